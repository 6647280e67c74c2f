"""Records that disagree are refused, and what disagrees is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_lines import refused
from run_records import drafted_window, item, save

from harness.errors import UserError
from harness.records.store import read_run
from harness.scoring import main as score
from tables.figures import main as draw
from tables.render import main as render
from tables.report import main as report

Rows = list[dict[str, Any]]
LENGTHS = {"gsm8k": {"gen_length": 8, "options": {"steps": 2}}}
KINDS = {"llada": "llada", "fef-2": "fef"}
METHODS = {name: {"label": name, "method": kind, "suites": LENGTHS} for name, kind in KINDS.items()}
CONFIG: dict[str, Any] = {
    "methods": METHODS,
    "suites": {"gsm8k": {"title": "GSM8K"}},
    "limit": 3,
    "seed": 0,
}


def records() -> tuple[Rows, Rows]:
    """Items and windows of a run of two methods, three items each."""
    lengths = {"content_tokens": 5, "eos_tokens": 2, "post_stop_tokens": 1}
    drafts = {"proposed": 6, "accepted": 4, "rejected": 1, "committed": 5}
    items = [item("llada", "gsm8k", number, **lengths) for number in range(3)]
    items += [item("fef-2", "gsm8k", number, **lengths, **drafts) for number in range(3)]
    windows = [drafted_window("fef-2", number, 4, 2, start=0) for number in range(3)]
    windows += [drafted_window("fef-2", number, 2, 2, start=4) for number in range(3)]
    return items, windows


def write(folder: Path, items: Rows, windows: Rows) -> None:
    """A run's files as they are given."""
    save(folder, *records(), config=CONFIG)
    for name, rows in (("items", items), ("windows", windows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def disagreements(items: Rows, windows: Rows) -> dict[str, Callable[[], object]]:
    """What refuses the records, and what is done to them before."""
    return {
        "of fef-2 .* is not the sum over its windows": lambda: windows.__delitem__(slice(0, 3)),
        "proposed of llada gsm8k 0 is not the sum": lambda: windows.append(
            drafted_window("llada", 0, 2, 2)
        ),
        "method ssd is not in": lambda: items[0].update(method="ssd"),
        "suite math is not in": lambda: items[0].update(suite="math"),
        "gsm8k 1 has more than one prompt": lambda: [
            row.update(prompt_hash=row["method"]) for row in items[1::3]
        ],
        "rejected of fef-2 gsm8k 0 is not": lambda: items[3].update(rejected=0),
        "items.jsonl: llada gsm8k 0 .*is there twice": lambda: items.append(items[0]),
        "windows.jsonl: fef-2 .* twice": lambda: windows.extend(
            [windows[0] | {"step": 0, "round": 0}] * 2
        ),
    }


@pytest.mark.parametrize("says", disagreements([], []))
def test_records_that_disagree_are_refused(tmp_path: Path, says: str) -> None:
    items, windows = records()
    disagreements(items, windows)[says]()
    write(tmp_path, items, windows)
    with pytest.raises(UserError, match=says):
        read_run(tmp_path)


def test_what_people_do_to_records_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A label edited, items deleted, a blank line, a text stripped, no windows.jsonl."""
    items, windows = records()
    write(tmp_path, items, windows)
    meta = json.loads((tmp_path / "run.json").read_text())
    meta["config"]["methods"]["llada"]["label"] = "LLaDA, mine"
    (tmp_path / "run.json").write_text(json.dumps(meta | {"config_hash": "0" * 16}))
    lines = (tmp_path / "items.jsonl").read_text().splitlines()
    # as pandas writes whole numbers
    lines[0] = json.dumps(items[0] | {"text": "stripped", "seed": 4.0})
    (tmp_path / "items.jsonl").write_text("\n\n".join([*lines[:-1], ""]) + "\n\n")
    (tmp_path / "windows.jsonl").unlink()
    run = read_run(tmp_path)
    assert len(run.items) == 5 and run.windows.empty
    assert run.config.methods["llada"].label == "LLaDA, mine"
    assert "the configuration was edited since the run" in capsys.readouterr().err


def test_windows_of_an_item_in_flight_are_left_out(tmp_path: Path) -> None:
    items, windows = records()
    write(tmp_path, items[:-1], windows)
    assert set(read_run(tmp_path).windows["item"]) == {0, 1}


def test_a_run_json_of_another_form_is_refused(tmp_path: Path) -> None:
    write(tmp_path, *records())
    meta = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(meta | {"sessions": "x"}))
    with pytest.raises(UserError, match=r"damaged: Expected `array`, got `str` - at `\$.sessions`"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    "command", [render, draw, report, score], ids=["render", "figures", "report", "scoring"]
)
def test_a_run_without_items_is_refused_by_all(
    tmp_path: Path, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [], [])
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "holds no items yet" in refused(command, [str(tmp_path)], capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
