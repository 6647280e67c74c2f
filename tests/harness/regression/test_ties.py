"""On another class of platform a proven tie is excused, and costs that the golden revision has there too."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from command_lines import resolved_run
from gate_runs import ENVIRONMENT, ITEMS, items_of, run_of, verdict
from harness.regression.elsewhere import Responder, bench_responses, compared
from msgspec.structs import replace
from paths import ROOT

from harness.errors import UserError
from harness.records.store import Run, read_run
from harness.regression import judgement, ties, unchanged
from harness.regression.golden import Key
from harness.runs.loading import load
from model_wrappers import load_backbone

ELSEWHERE = {**ENVIRONMENT, "cpu_capability": "AVX512"}
KEY = ("fef-2", "math", 7)
OTHER = {"tokens_hash": "other", "text": "said so"}


@pytest.fixture
def golden(tmp_path: Path) -> Run:
    return run_of(tmp_path / "golden", items_of())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of(**OTHER), ELSEWHERE)


def row_of(run: Run, **changes: Any) -> dict[str, Any]:
    rows = run.items.set_index(["method", "suite", "item"])
    return {**rows.loc[KEY].to_dict(), **changes}


@pytest.mark.parametrize(("met", "excused"), [(0, True), (ties.TRIES - 1, True), (ties.TRIES, False)])
def test_an_item_is_a_tie_if_moved_logits_give_the_golden_one(golden: Run, run: Run, met: int, excused: bool) -> None:
    def decode(key: Key, number: int | None) -> dict[str, Any]:
        return row_of(golden if number == met else run)

    assert ties.proven(golden, run, [KEY], decode)[0] == ([KEY] if excused else [])


@pytest.mark.parametrize(
    ("change", "says"),
    [({"forwards": 49}, "fef-2 math 7 is no tie"), ({"correct": False}, ""), (None, "not what the run recorded")],
    ids=["one more forward", "another verdict", "nor does this tree give the record again"],
)
def test_golden_tokens_that_come_otherwise_are_no_tie(
    golden: Run, run: Run, change: dict[str, Any] | None, says: str
) -> None:
    def decode(key: Key, number: int | None) -> dict[str, Any]:
        return row_of(run) if number is None and change is not None else row_of(golden, **change or {})

    found, notes = ties.proven(golden, run, [KEY], decode)
    assert not found and says in notes[0]


@pytest.mark.parametrize("verdict_while_decoding", [False, None])
def test_another_verdict_on_the_golden_response_is_no_tie(
    golden: Run, tmp_path: Path, verdict_while_decoding: bool | None
) -> None:
    run = run_of(tmp_path / "judged", items_of(correct=False), ELSEWHERE)
    found, notes = ties.proven(golden, run, [KEY], lambda key, number: row_of(run, correct=verdict_while_decoding))
    assert not found and "its verdict is not" in notes[0]


def test_behind_the_first_item_that_is_no_tie_none_is_looked_for(golden: Run, run: Run) -> None:
    asked: list[Key] = []

    def decode(key: Key, number: int | None) -> dict[str, Any]:
        asked.append(key)
        return row_of(golden)

    keys = [KEY, ("fef-2", "math", 8)]
    assert ties.proven(golden, run, keys, decode)[0] == [] and set(asked) == {KEY}


def test_more_items_than_ties_are_likely_are_not_tried(golden: Run, run: Run) -> None:
    keys = [("fef-2", "math", item) for item in range(ties.MOST + 1)]
    found, notes = ties.tied_items(golden, run, keys)
    assert not found and "items differ" in notes[0]


def test_a_run_whose_models_are_not_known_proves_nothing(golden: Run, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", items_of(**OTHER), ELSEWHERE, dtype="float32")
    assert ties.tied_items(golden, run, [KEY]) == ([], ["no ties can be proven: the run does not name its models"])


def test_a_proven_tie_passes_elsewhere_and_is_named(
    golden: Run, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judgement, "tied_items", lambda *asked: ([KEY], []))
    assert verdict(run, golden.folder) == 0
    assert "excused, a proven tie: fef-2 math 7" in capsys.readouterr().out


def test_on_the_same_class_of_platform_no_tie_is_looked_for(
    golden: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "tied_items", lambda *asked: ([KEY], []))
    assert verdict(run_of(tmp_path / "run", items_of(**OTHER)), golden.folder) == 1


@pytest.mark.parametrize("change", [{"tokens_hash": "other"}, {"text": "said so"}, {"forwards": 49}, {"gold": "8"}])
def test_elsewhere_one_changed_item_is_caught(
    golden: Run, tmp_path: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(run_of(tmp_path / "changed", items_of(**change), ELSEWHERE), golden.folder) == 1
    printed = capsys.readouterr().out
    assert "another class of platform: processor" in printed and "fef-2" in printed


def test_elsewhere_one_more_forward_in_every_response_of_a_method_is_caught(golden: Run, tmp_path: Path) -> None:
    rows = [row | ({"forwards": 49} if row["method"] == "fef-2" else {}) for row in items_of()]
    assert len(rows) == 8 * ITEMS and verdict(run_of(tmp_path / "run", rows, ELSEWHERE), golden.folder) == 1


def test_elsewhere_an_unchanged_run_passes(golden: Run, tmp_path: Path) -> None:
    assert verdict(run_of(tmp_path / "run", items_of(), ELSEWHERE), golden.folder) == 0


def test_logits_move_by_less_than_the_bound_and_only_inside() -> None:
    backbone, ids = load_backbone("nano"), torch.arange(3, 19)[None]
    before = backbone.logits(ids)
    bound = ties.ROUNDING * torch.finfo(torch.float32).eps * before.abs().max()
    with ties.moved([backbone], seed=0):
        inside = backbone.logits(ids)
    assert 0 < (inside - before).abs().max() <= 1.01 * bound
    assert torch.equal(backbone.logits(ids), before)


TWIN, FIRST = 7, 485  # the token that nano's first response to gsm8k begins with, and one that gets the same logit


class Twins:
    """An item of nano where two tokens tie; `decode(share)`: its record, with the twin's weights times `share`."""

    def __init__(self, folder: Path) -> None:
        line = ["--suite", "gsm8k", "--methods", "entropy", "--limit", "1", "--threads", "1"]
        run = resolved_run(*line)
        self.config, self.loaded = run.config, load(run, folder)

    def decode(self, share: float) -> dict[str, Any]:
        from harness.runs.respond import decode_item, item_seed

        jobs, backbones = self.loaded
        head = backbones["nano"].model.lm_head
        weight = head.weight.detach().clone()
        weight[TWIN] = share * weight[FIRST]
        head.weight = torch.nn.Parameter(weight)
        return decode_item(jobs[0], "entropy", 0, item_seed(0, "gsm8k", 0))[0]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    threads = torch.get_num_threads()
    yield Twins(tmp_path_factory.mktemp("twins"))
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("before", "after", "excused"), [(1 - 1e-6, 1.0, True), (0.999, 1.001, False)])
def test_two_tokens_of_nano_tie_only_if_their_logits_are_a_rounding_apart(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, before: float, after: float, excused: bool
) -> None:
    there, now = ([twins.decode(each)] for each in (before, after))
    golden, run = (
        SimpleNamespace(config=twins.config, meta=SimpleNamespace(data={}), items=pd.DataFrame(rows))
        for rows in (there, now)
    )
    assert there[0]["tokens_hash"] != now[0]["tokens_hash"]
    monkeypatch.setattr(ties, "recorded", lambda *given: None)
    monkeypatch.setattr(ties, "load", lambda *given: twins.loaded)
    key = ("entropy", "gsm8k", 0)
    found, _ = ties.tied_items(golden, run, [key])  # type: ignore[arg-type]
    assert found == ([key] if excused else [])


# Costs of another class of platform


WINDOW = {"proposed": 5, "accepted": 4, "rejected": 1, "committed": 5}


@pytest.fixture
def windowed(tmp_path: Path) -> Run:
    return run_of(tmp_path / "golden", items_of(**WINDOW))


@pytest.fixture
def dearer(tmp_path: Path) -> Run:
    return run_of(tmp_path / "run", items_of(forwards=49, **WINDOW), ELSEWHERE)


def answer_of(run: Run) -> dict[str, Any]:
    """What a worker answers to the item of KEY where it takes as much as in the run."""
    row = run.items.set_index(["method", "suite", "item"]).loc[KEY].to_dict()
    return {"tokens": f"{row['tokens_hash']}ffff", "costs": row, "windows": [(5, 4, 5)]}


def answered(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """The golden records' revision gives this answer to every item."""
    monkeypatch.setattr(unchanged, "_answers", lambda golden, run, keys: [answer] * len(keys))


def test_costs_that_the_golden_revision_has_here_are_excused_and_named(
    windowed: Run, dearer: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(monkeypatch, answer_of(dearer))
    assert verdict(dearer, windowed.folder) == 0
    assert "excused, the golden records' revision takes as much here: fef-2 math 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        *({"costs": costs} for costs in ({"forwards": 48}, {"forwards": 50}, {"draft_rows": 1})),
        *({"tokens": "other"}, {"windows": []}, {"error": "unheard of"}),
    ],
    ids=str,
)
def test_what_the_golden_revision_does_otherwise_here_is_a_change(
    windowed: Run, dearer: Run, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    usual = answer_of(dearer)
    costs = {"costs": usual["costs"] | change.get("costs", {})}
    answered(monkeypatch, change if "error" in change else usual | change | costs)
    assert verdict(dearer, windowed.folder) == 1


@pytest.mark.parametrize("measure", ["tokens_hash", "text", "correct", "prompt_hash"])
def test_of_an_item_with_another_response_or_verdict_that_revision_is_not_asked(
    windowed: Run, dearer: Run, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    monkeypatch.setattr(unchanged, "_answers", lambda *asked: pytest.fail("asked"))
    assert unchanged.unchanged_items(windowed, dearer, {KEY: {"forwards", measure}}) == ([], [])


def test_on_the_same_class_of_platform_that_revision_is_not_asked(
    windowed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_answers", lambda *asked: pytest.fail("asked"))
    assert verdict(run_of(tmp_path / "here", items_of(forwards=49, **WINDOW)), windowed.folder) == 1


def test_golden_records_outside_the_history_excuse_nothing_and_say_so(
    windowed: Run, dearer: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict(dearer, windowed.folder) == 1
    assert "the golden records' revision cannot be asked for its costs here: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("more", "excused"), [(0, True), (1, False)])
def test_ssd_on_nano_takes_here_what_it_took_under_the_golden_revision(more: int, excused: bool) -> None:
    """Whatever processor this is: golden costs that are not its own are excused, one forward more is not."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    golden = read_run(ROOT / "results" / "golden" / "nano", windows=False)
    key: Key = ("ssd", "math", 0)
    row = Responder(golden, "cpu", 1, ["ssd"]).answer(key)
    row["forwards"] += more
    run = Run(golden.folder, golden.meta, pd.DataFrame([row]), golden.windows)
    assert unchanged.unchanged_items(golden, run, {key: {"forwards"}}) == ([key] if excused else [], [])


# Responses beside golden ones: equal, different by a proven tie, or named


METHOD = "fef-two-stream"


@pytest.fixture(scope="module")
def four() -> Run:
    """Four items of the golden record."""
    run = read_run(Path(ROOT) / "results" / "golden" / "nano", windows=False)
    items = run.items[(run.items["method"] == METHOD) & (run.items["item"] == 0)]
    config = replace(run.config, methods={METHOD: run.config.methods[METHOD]})
    return Run(run.folder, replace(run.meta, config=config), items, run.windows)


def recorded(four: Run) -> dict[Key, dict[str, Any]]:
    rows = four.items.drop(columns="correct").to_dict("records")
    return {(str(row["method"]), str(row["suite"]), int(row["item"])): {str(k): row[k] for k in row} for row in rows}


def test_responses_here_are_the_golden_ones(four: Run) -> None:
    tables, notes = bench_responses(four, "cpu", 1)
    assert tables["parity"].to_dict("records") == [
        {"method": METHOD, "responses": 4, "equal": 4, "other costs": 0, "ties": 0, "unlike": 0}
    ]
    assert notes == [] and tables["suites"]["ms"].gt(0).all()


def test_an_equal_record_has_no_differences(four: Run) -> None:
    found = compared(four, recorded(four), lambda key, seed: pytest.fail("decoded again"))
    assert not any(found.values())


def test_golden_tokens_at_other_costs_are_counted_apart(four: Run) -> None:
    answers = recorded(four)
    key = next(iter(answers))
    there = answers[key]["forwards"]
    answers[key] |= {"forwards": there + 1, "accepted": 0}
    found = compared(four, answers, lambda key, seed: pytest.fail("decoded again"))
    told = f"{METHOD} gsm8k 0 has the golden tokens at other costs (forwards: golden {there}, here {there + 1})"
    assert found == {"other costs": {key: told}, "ties": {}, "unlike": {}}


def test_a_response_that_rounding_explains_is_a_tie(four: Run) -> None:
    answers = recorded(four)
    key = next(iter(answers))
    right, wrong = answers[key], answers[key] | {"tokens_hash": "other"}
    answers[key] = wrong
    found = compared(four, answers, lambda _, seed: right if seed == 3 else wrong)
    told = f"{METHOD} gsm8k 0 differs by a proven tie"
    assert found == {"other costs": {}, "ties": {key: told}, "unlike": {}}


def test_one_that_nothing_explains_is_named(four: Run) -> None:
    answers = recorded(four)
    key = list(answers)[1]
    answers[key] |= {"tokens_hash": "other", "forwards": answers[key]["forwards"] + 1}
    found = compared(four, answers, lambda key, seed: answers[key])
    assert not found["ties"] and list(found["unlike"]) == [key]
    assert found["unlike"][key].startswith(f"{METHOD} math 0 is no tie")


def test_a_record_with_other_problems_is_refused(four: Run) -> None:
    changed = Run(four.folder, four.meta, four.items.assign(prompt_hash="other"), pd.DataFrame())
    with pytest.raises(UserError, match=r"has another prompt of gsm8k, item 0; the problems have changed"):
        Responder(changed, "cpu", 1)
