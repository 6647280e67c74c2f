"""Some problems of a suite, chosen by their numbers or by what another run got wrong; they grow."""

import json
from pathlib import Path

import pytest
from command_lines import config_of, resolved_run
from run_records import item, save

from harness.errors import UserError
from harness.options import checked
from harness.records.schema import RunConfig, SuiteName
from harness.records.store import read_meta
from harness.runs.chosen import check_numbers
from harness.runs.folder import continued_options
from harness.runs.options import RunOptions
from harness.runs.record import describe_status
from harness.runs.resolve import resolve

LLADA = ("--methods", "llada", "--suite", "gsm8k")


def wrong_run(folder: Path, draws: int = 1) -> str:
    """A run of five problems: LLaDA has the second wrong, `dcd` the fourth; in its last draw."""
    wrong = {("llada", 1), ("dcd", 3)}
    rows = [
        item(
            method,
            "gsm8k",
            5 * draw + problem,
            correct=draw < draws - 1 or (method, problem) not in wrong,
        )
        for method in ("llada", "dcd")
        for draw in range(draws)
        for problem in range(5)
    ]
    run = save(
        folder, rows, suites={"gsm8k": "GSM8K"}, data={"files": {"gsm8k": {"items": 5 * draws}}}
    )
    record = json.loads((folder / "run.json").read_text())
    record["config"] |= {"samples": draws, "temperature": 1.0}
    (folder / "run.json").write_text(json.dumps(record))
    return str(run.folder)


def test_numbers_and_ranges_are_chosen_of_each_suite() -> None:
    config = config_of("--methods", "llada", "--suite", "gsm8k,math", "--items", "17, 3,40-42,41")
    assert config["items"] == {"gsm8k": (3, 17, 40, 41, 42), "math": (3, 17, 40, 41, 42)}
    assert config["limit"] is None


def test_a_limit_takes_the_first_of_the_chosen_items() -> None:
    assert config_of(*LLADA, "--items", "17,3,40", "--limit", "2")["items"] == {"gsm8k": (3, 17)}


@pytest.mark.parametrize("text", ["x", "3;4", "", "-3", "3-4-5", "60-40"])
def test_what_names_no_items_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be numbers and ranges, such as 3,17,40-60, or wrong"):
        resolved_run(*LLADA, "--items", text)


def test_a_number_beyond_the_suite_is_refused() -> None:
    check_numbers("gsm8k", (0, 199), 200)
    with pytest.raises(UserError, match="--items 200: gsm8k has 200 problems, numbered from 0"):
        check_numbers("gsm8k", (3, 200), 200)


@pytest.mark.parametrize(
    ("methods", "expected"), [("llada", (1,)), ("llada,dcd", (1, 3)), ("entropy", (1, 3))]
)
@pytest.mark.parametrize("draws", [1, 2])
def test_wrong_items_are_of_the_methods_of_both_runs_or_else_of_any(
    tmp_path: Path, methods: str, expected: tuple[int, ...], draws: int
) -> None:
    wrong = f"wrong:{wrong_run(tmp_path, draws)}"
    config = config_of("--methods", methods, "--suite", "gsm8k,math", "--items", wrong)
    assert config["items"] == {"gsm8k": expected, "math": ()}


def test_a_run_without_a_wrong_item_is_refused(tmp_path: Path) -> None:
    save(tmp_path, [item("llada", "gsm8k", 0)])
    with pytest.raises(UserError, match="nothing there is wrong"):
        resolved_run(*LLADA, "--items", f"wrong:{tmp_path}")


def test_every_draw_has_the_chosen_problems() -> None:
    config = RunConfig(suites={"gsm8k": SuiteName()}, items={"gsm8k": (1, 4)}, samples=3)
    assert config.numbers("gsm8k", 15) == [1, 4, 6, 9, 11, 14]
    assert config.numbers("math", 15) == range(15)


def chosen_run(folder: Path, *line: str) -> RunOptions:
    """A run of two chosen items that was begun; the options with which it goes on."""
    begun = resolved_run(*LLADA, "--items", "1,4")
    meta = {
        "schema": 1,
        "config": begun.config.to_json(),
        "data": {"files": {"gsm8k": {"items": 5}}},
    }
    (folder / "run.json").write_text(json.dumps(meta))
    (folder / "items.jsonl").write_text(json.dumps(item("llada", "gsm8k", 4)) + "\n")
    named = dict(zip(line[::2], line[1::2], strict=True))
    return checked(RunOptions, {"out": folder, "resume": True, **named})


def test_the_status_counts_the_chosen_items(tmp_path: Path) -> None:
    chosen_run(tmp_path)
    assert "GSM8K: 1 of 2 responses, 1 scored" in describe_status(tmp_path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ((), {"gsm8k": (1, 4)}),
        (("items", "0,4"), {"gsm8k": (0, 1, 4)}),
        (("items", "2", "suite", "math"), {"gsm8k": (1, 4), "math": (2,)}),
    ],
)
def test_a_run_that_goes_on_has_its_items_and_those_that_are_named(
    tmp_path: Path, line: tuple[str, ...], expected: dict[str, tuple[int, ...]]
) -> None:
    config = resolve(continued_options(chosen_run(tmp_path, *line))).config
    assert config.items == expected
    assert set(config.suites) == set(expected)
    assert read_meta(tmp_path).config.items == {"gsm8k": (1, 4)}


def test_items_do_not_join_a_run_that_is_numbered_by_its_limit(tmp_path: Path) -> None:
    options = chosen_run(tmp_path, "items", "2")
    record = json.loads((tmp_path / "run.json").read_text())
    del record["config"]["items"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="choose another --out for --items"):
        continued_options(options)


def test_wrong_items_of_other_generated_problems_are_refused(tmp_path: Path) -> None:
    folder = wrong_run(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    record["config"]["data"] = "generated-dev"
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="its numbers are of --data generated-dev; give that too"):
        config_of(*LLADA, "--items", f"wrong:{folder}")
    config = config_of(*LLADA, "--items", f"wrong:{folder}", "--data", "generated-dev")
    assert config["items"] == {"gsm8k": (1,)}


def test_wrong_items_of_another_file_of_questions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    rows = [{"question": "one", "answer": "1"}, {"question": "two", "answer": "2"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    asked = ("--methods", "llada", "--suite", f"mine={file}(judge=number)")
    config = config_of(*asked)
    save(tmp_path / "run", [item("llada", "mine", 1, correct=False)], config=config)
    again = (*asked, "--items", f"wrong:{tmp_path / 'run'}")
    assert config_of(*again)["items"] == {"mine": (1,)}
    file.write_text("\n".join(map(json.dumps, rows[::-1])))
    with pytest.raises(UserError, match="its numbers are of another file of mine; put that back"):
        config_of(*again)
