"""Scoring through OpenCompass's evaluators: references are right, nonsense is wrong, any subset can
be scored; where no sandbox works, model-written code is not run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from generated import write_suites
from rendering import render
from run_records import PAPER_SUITES, item, save
from verdicts_only import evaluate

from harness.errors import UserError
from harness.records.files import file_hash, files_hash
from harness.records.store import read_run
from harness.runs.problems import load_problems
from harness.sandbox import verdicts
from harness.sandbox.program import UNSAFE, Containment, Sandbox, choose
from harness.sandbox.scoring import describe_scoring, score_run
from harness.sandbox.verdicts import verdict_in
from harness.scoring import main
from harness.suites.registry import GENERATED, SUITES, problems, suite_named, write_generated

CODE_SUITES = [name for name in GENERATED if SUITES[name].executes]
RUN_CODE_SUITES = [name for name in CODE_SUITES if name in PAPER_SUITES]  # of `finished_run`


def skip_without_sandbox(suite: str) -> None:
    """Skip a test that has to run code where no sandbox works."""
    choice = choose()
    if SUITES[suite].executes and choice.sandbox is None:
        pytest.skip(choice.missing)


# Suites with solved problems in front have the problems and judges of the others.
@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(suite, marks=[pytest.mark.slow] if suite.endswith("-4shot") else [])
        for suite in GENERATED
    ],
)
def test_references_are_right_and_nonsense_is_wrong(suite: str, tmp_path: Path) -> None:
    skip_without_sandbox(suite)
    write_suites(tmp_path, "dev", 6)
    responses = [problem.response for problem in problems(suite, "dev", 6)]
    items = [5, 0, 3]
    texts = [responses[5], "nonsense", responses[3]]
    assert evaluate(suite_named(suite).datasets(True, tmp_path)[0], items, texts) == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("suite", CODE_SUITES)
def test_a_program_that_ends_its_process_costs_its_own_item(suite: str, tmp_path: Path) -> None:
    skip_without_sandbox(suite)
    write_suites(tmp_path, "dev", 3)
    responses = [problem.response for problem in problems(suite, "dev", 3)]
    texts = [responses[0], f"import os\nos._exit(0)\n{responses[1]}", responses[2]]
    assert evaluate(suite_named(suite).datasets(True, tmp_path)[0], [0, 1, 2], texts) == [
        True,
        False,
        True,
    ]


def test_real_math_wants_the_answer_in_a_box_and_gsm8k_as_the_last_number(tmp_path: Path) -> None:
    write_suites(tmp_path, "dev", 2)
    answer = next(iter(problems("math", "dev", 1))).response.split("{")[1].split("}")[0]
    (config,) = suite_named("math500").datasets(False, tmp_path)
    assert evaluate(config, [0], [rf"It is \boxed{{{answer}}}."]) == [True]
    assert evaluate(config, [0], [r"It is \boxed{-1}."]) == [False]
    answer = next(iter(problems("gsm8k", "dev", 1))).row["answer"].split("#### ")[1]
    (config,) = suite_named("gsm8k").datasets(False, tmp_path)
    assert evaluate(config, [0], [f"The answer is {answer}"]) == [True]
    assert evaluate(config, [0], ["The answer is -1"]) == [False]


def run_of_another_configuration(folder: Path, configuration: str, suite: str) -> Path:
    """A run of a right and a wrong response to problems of a suite, asked by another configuration
    of OpenCompass's."""
    if (choice := choose()).sandbox is None:
        pytest.skip(choice.missing)
    name = f"opencompass:{configuration}"
    write_suites(folder / "real", "dev", 2)
    sha256 = files_hash(suite_named(name).files(False, folder / "real"))
    row = next(iter(problems(suite, "dev", 1))).row
    right = row["answer"] if suite == "gsm8k" else row["prompt"] + row["canonical_solution"]
    items = [
        item("llada", name, number, text=text, correct=None)
        for number, text in enumerate([right, "nonsense"])
    ]
    methods = {"llada": {"label": "LLaDA", "method": "llada"}}
    config = {"data": {name: sha256}, "methods": methods, "suites": {name: {"title": name}}}
    data = {"folder": str(folder / "real"), "files": {name: {"sha256": sha256}}}
    save(folder / "run", items, config=config, data=data)
    return folder / "run"


@pytest.mark.parametrize(
    ("configuration", "suite"),
    [
        ("gsm8k_0shot_gen_a58960", "gsm8k"),
        pytest.param("humaneval_gen_8e312c", "humaneval", marks=pytest.mark.slow),
    ],
)
def test_another_configuration_is_scored(configuration: str, suite: str, tmp_path: Path) -> None:
    run = run_of_another_configuration(tmp_path, configuration, suite)
    score_run(run)
    assert read_run(run).items["correct"].tolist() == [True, False]


def test_problems_of_a_run_from_another_machine_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_another_configuration(tmp_path, "gsm8k_0shot_gen_a58960", "gsm8k")
    monkeypatch.setenv("COMPASS_DATA_CACHE", str((tmp_path / "real").rename(tmp_path / "here")))
    score_run(run)
    assert read_run(run).items["correct"].tolist() == [True, False]


def lcbench_run(folder: Path, texts: dict[str, list[str]]) -> Path:
    """A run of LCBench, in whose evaluator responses can change the evaluator: texts of two items
    by method."""
    if (choice := choose()).sandbox is None:
        pytest.skip(choice.missing)
    row = {
        "text": "Double x.",
        "test_list": ["assert double(2) == 4"],
        "Contest id": 1,
        "Difficulty": 1,
    }
    for name in ("LCBench2023", "LCBench2023_cn"):
        path = folder / "real" / "data" / "LCBench2023" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(json.dumps(row | {"Contest id": 10 + number}) + "\n" for number in range(6))
        )
    folder.chmod(0o755)
    suite = "opencompass:lcbench_gen_5ff288"
    sha256 = files_hash(suite_named(suite).files(False, folder / "real"))
    items = [
        item(method, suite, place, text=text)
        for method, each in texts.items()
        for place, text in enumerate(each)
    ]
    methods = {method: {"label": method, "method": method} for method in texts}
    data = {"folder": str(folder / "real"), "files": {suite: {"sha256": sha256, "items": 2}}}
    save(
        folder / "run",
        items,
        config={"data": {suite: sha256}, "methods": methods, "suites": {suite: {"title": suite}}},
        data=data,
    )
    return folder / "run"


DOUBLE = "def double(x):\n    return 2 * x"


@pytest.mark.slow
def test_a_response_that_ends_its_evaluator_is_wrong_alone(tmp_path: Path) -> None:
    """LCBench's evaluator runs programs in a way of its own: in a confined process for each
    method."""
    end = f"import os\nos.killpg(0, 9)\n{DOUBLE}"
    run = lcbench_run(tmp_path, {"llada": [end, DOUBLE]})
    score_run(run)
    items = read_run(run).items
    assert items["correct"].tolist() == [False, True]


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """A run of two right responses a suite, one method, with verdicts (all wrong) of an earlier
    scoring."""
    suites = {suite: PAPER_SUITES[suite] for suite in ("gsm8k", *RUN_CODE_SUITES)}
    config = {
        "data": "generated",
        "limit": 2,
        "methods": {"llada": {"label": "LLaDA", "method": "llada"}},
        "suites": {suite: {"title": title} for suite, title in suites.items()},
    }
    write_generated(tmp_path / "problems", "generated", 2, map(suite_named, suites))
    files = {
        suite: {"sha256": file_hash(suite_named(suite).files(True, tmp_path / "problems")[0])}
        for suite in suites
    }
    items = [
        item("llada", suite, number, text=problem.response, correct=False)
        for suite in suites
        for number, problem in enumerate(problems(suite, "test", 2))
    ]
    save(tmp_path / "run", items, config=config, data={"folder": "generated", "files": files})
    return tmp_path / "run"


def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where none works."""
    sandboxes = {True: UNSAFE, False: None}
    monkeypatch.setattr(
        "harness.sandbox.scoring.choose",
        lambda unsafe: Containment(sandboxes[unsafe], "no sandbox"),
    )


def test_verdicts_of_a_run_may_come_from_two_sandboxes(finished_run: Path) -> None:
    skip_without_sandbox("humaneval")
    items = [json.loads(line) for line in (finished_run / "items.jsonl").read_text().splitlines()]
    items[-1]["correct"] = None
    (finished_run / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in items))
    meta = json.loads((finished_run / "run.json").read_text())
    (finished_run / "run.json").write_text(json.dumps({**meta, "scoring": {"sandbox": "unsafe"}}))
    assert score_run(finished_run, pending=True)["sandbox"] == f"{choose().sandbox.name}, unsafe"  # type: ignore[union-attr]
    # the others have verdicts
    assert read_run(finished_run).items["correct"].tolist() == [False] * 5 + [True]


def test_without_a_sandbox_code_is_not_scored_and_the_rest_goes_on(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_sandbox(monkeypatch)
    assert main([str(finished_run)]) == 0
    expected = {
        "sandbox": "none",
        "not_scored": dict.fromkeys(RUN_CODE_SUITES, "no sandbox"),
        "judges": {},
        "changed": {},
    }
    assert json.loads((finished_run / "run.json").read_text())["scoring"] == expected
    printed = capsys.readouterr().out
    assert printed.startswith(describe_scoring(expected)) and "33.33" in printed
    run = read_run(finished_run)
    verdicts = run.items.groupby("suite")["correct"].agg(list)
    assert verdicts["gsm8k"] == [True, True]
    # those of an earlier scoring
    assert all(verdicts[suite] == [False, False] for suite in RUN_CODE_SUITES)


@pytest.mark.parametrize(
    ("config", "noted"),
    [
        ({"prompt": "plain", "data": {"humaneval": "x"}}, True),
        ({"prompt": "plain", "data": "generated"}, True),
        ({"data": {"humaneval": "x"}}, False),
    ],
)
def test_a_base_models_responses_to_humaneval_are_misjudged(
    config: dict[str, Any], noted: bool, tmp_path: Path
) -> None:
    methods, suites = (
        {"llada": {"label": "LLaDA", "method": "llada"}},
        {"humaneval": {"title": "HumanEval"}},
    )
    run = save(
        tmp_path,
        [item("llada", "humaneval", 0)],
        config={**config, "methods": methods, "suites": suites},
    )
    assert ("is for base models" in render(run)["main.md"]) is noted


def test_all_is_scored_and_the_sandbox_is_named(finished_run: Path) -> None:
    skip_without_sandbox("humaneval")
    scoring = score_run(finished_run)
    assert (scoring["sandbox"], scoring["not_scored"]) == (choose().sandbox.name, {})  # type: ignore[union-attr]
    assert describe_scoring(scoring).startswith("scored: every model-written program ")
    assert read_run(finished_run).items["correct"].tolist() == [True] * 6


def test_code_runs_unprotected_only_if_that_is_wanted(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_sandbox(monkeypatch)
    scoring = score_run(finished_run, unsafe=True)
    assert (scoring["sandbox"], scoring["not_scored"]) == ("unsafe", {})
    assert "UNPROTECTED" in describe_scoring(scoring)
    assert read_run(finished_run).items["correct"].tolist() == [True] * 6


def test_a_response_that_several_methods_gave_is_judged_once(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.loads(line) for line in (finished_run / "items.jsonl").read_text().splitlines()]
    own = [line for line in lines if line["suite"] == "gsm8k"]
    other = own[0] | {"method": "dcd", "text": "nonsense"}
    all_of_them = [*own, *(line | {"method": "ssd"} for line in own), other]
    (finished_run / "items.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in all_of_them)
    )
    meta = json.loads((finished_run / "run.json").read_text())
    methods = {name: {"label": name, "method": name} for name in ("llada", "ssd", "dcd")}
    meta["config"]["methods"] = methods
    meta.pop("config_hash", None)
    (finished_run / "run.json").write_text(json.dumps(meta))
    seen: list[str] = []
    judged = verdicts.judged

    def count(
        parts: Any, items: list[int], texts: list[str], sandbox: Sandbox | None
    ) -> list[tuple[bool, str]]:
        seen.extend(texts)
        return judged(parts, items, texts, sandbox)

    monkeypatch.setattr(verdicts, "judged", count)
    score_run(finished_run)
    assert seen == [*(line["text"] for line in own), "nonsense"]
    assert read_run(finished_run).items["correct"].tolist() == [True] * 4 + [False]


def test_a_verdict_that_somebody_corrected_stays_when_a_run_goes_on(finished_run: Path) -> None:
    score_run(finished_run, pending=True)
    assert read_run(finished_run).items["correct"].tolist() == [False] * 6


def test_where_no_program_is_run_no_sandbox_is_named() -> None:
    assert (
        describe_scoring({"sandbox": "none", "not_scored": {}})
        == "scored: no model-written program was run"
    )


def real_data(suite: str) -> Path:
    """The folder of the real problems, or a skip."""
    if suite in SUITES:
        skip_without_sandbox(suite)
    folder = Path(os.environ.get("COMPASS_DATA_CACHE", "/nowhere"))
    if not (folder / "data" / suite).is_dir():
        pytest.skip("COMPASS_DATA_CACHE names no folder that holds the real problems")
    return folder


@pytest.mark.slow
def test_all_canonical_solutions_of_humaneval_are_right() -> None:
    folder = real_data("humaneval")
    rows = [
        json.loads(line)
        for line in suite_named("humaneval").files(False, folder)[0].read_text().splitlines()
    ]
    texts = [row["prompt"] + row["canonical_solution"] for row in rows]
    verdicts = evaluate(
        suite_named("humaneval").datasets(False, folder)[0], list(range(len(rows))), texts
    )
    assert len(verdicts) == 164 and all(verdicts)


@pytest.mark.slow
def test_the_body_alone_is_right_by_the_configuration_for_base_models() -> None:
    """And a response that goes on with the next task; by the one for chat models every such
    response is wrong."""
    folder = real_data("humaneval")
    path = suite_named("humaneval").files(False, folder)[0]
    texts = [
        f"{json.loads(line)['canonical_solution']}\n\ndef other("
        for line in path.read_text().splitlines()
    ]
    suites = ["opencompass:internal_humaneval_v2_new_gen", "humaneval"]
    verdicts = [
        evaluate(suite_named(suite).datasets(False, folder)[0], list(range(164)), texts)
        for suite in suites
    ]
    assert [sum(each) for each in verdicts] == [164, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "count"), [("gsm8k", 1319), ("math500", 500)])
def test_every_real_answer_passes_its_own_judge(suite: str, count: int) -> None:
    folder = real_data(suite.rstrip("50"))
    (part,) = load_problems(suite_named(suite), suite_named(suite).datasets(False, folder), None)
    golds = [gold.split("#### ")[-1].replace(",", "") for gold in part.golds]
    texts = golds if suite == "gsm8k" else [rf"\boxed{{{gold}}}" for gold in part.golds]
    assert evaluate(part.config, list(range(count)), texts) == [True] * count


@pytest.mark.slow
def test_of_mbpps_solutions_those_are_wrong_that_opencompass_says() -> None:
    folder = real_data("mbpp")
    rows = [
        json.loads(line)
        for line in suite_named("mbpp").files(False, folder)[0].read_text().splitlines()
    ][10:510]
    verdicts = evaluate(
        suite_named("mbpp").datasets(False, folder)[0],
        list(range(500)),
        [row["code"] for row in rows],
    )
    wrong = {row["task_id"] for row, right in zip(rows, verdicts, strict=True) if not right}
    assert wrong == {14, 38, 40, 55, 76, 78, 88, 293, 335, 367, 397, 414, 422, 432, 491}


@pytest.mark.parametrize(
    ("detail", "verdict"),
    [
        ({"correct": True}, True),
        ({"is_correct": [False]}, False),
        ({"correct": [True]}, True),
        ({}, None),
        ({"correct": [True, False]}, None),
        ({"pred": "x"}, None),
    ],
)
def test_a_verdict_is_read_where_there_is_one(detail: dict[str, Any], verdict: bool | None) -> None:
    assert verdict_in(detail) is verdict


@pytest.mark.parametrize("grade", [22.2, 100.0, "yes", [0.5]])
def test_a_grade_is_no_verdict(grade: object) -> None:
    with pytest.raises(UserError, match="the evaluator grades a response"):
        verdict_in({"correct": grade})
