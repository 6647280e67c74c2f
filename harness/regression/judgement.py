"""The gate's judgement of records: what is compared, what is printed, whether it passes."""

import json
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from harness.records.store import KEY, Run, read_lines, read_run, write_atomically
from harness.regression.golden import (
    Key,
    check_complete,
    check_settings,
    compare_accuracy,
    compare_exactly,
    items_that_differ,
    of_first,
    platform_class,
)
from harness.regression.ties import tied_items
from harness.regression.unchanged import unchanged_items
from harness.runs.resolve import differences


def judge_records(
    run: Run, golden: Run, margin: float, first: int | None = None, unscored: Collection[str] = ()
) -> bool:
    """Print what differs from the golden records; whether the run passes.

    first: the run has only so many items of each suite. unscored: suites whose verdicts may be missing, where the run
    says why it could not score them.
    """
    check_complete(golden)
    golden = golden if first is None else of_first(golden, first)
    check_settings(golden, run)
    elsewhere = differences(platform_class(golden.meta), platform_class(run.meta))
    if run.config.temperature == 0:
        print(f"records: {len(golden.items)} golden items, compared exactly")
        passed = _judge_exactly(run, golden, elsewhere, unscored)
    else:
        check_complete(run)
        found = compare_accuracy(golden, run, margin)
        passed = set(found["verdict"]) == {"ok"}
        print(f"records: accuracy of the same items, margin {margin:g} points (not greedy)")
        print(found.to_string(index=False, float_format="%.2f"))
    print("records: passed" if passed else "records: REGRESSED; if this is meant, --update")
    return passed


def _judge_exactly(run: Run, golden: Run, elsewhere: list[str], allowed: Collection[str]) -> bool:
    unscored: dict[str, str] = run.meta.scoring.get("not_scored") or {}
    for suite, why in unscored.items():
        left_out = "left out" if suite in allowed else f"missing; if that is meant: --allow-unscored {suite}"
        print(f"verdicts of {suite} are {left_out}: {why}")
    left = {suite for suite in unscored if suite in allowed}
    excused: list[Key] = []
    if elsewhere:
        print(f"another class of platform: {'; '.join(elsewhere)}")
        print("there rounding may decide otherwise: what is proven to differ by that is excused, and nothing else")
        excused = _excused(golden, run, left)
    found = compare_exactly(golden, run, excused, left)
    print(found.to_string(index=False) if len(found) else "no difference")
    _show_text(golden, run, found)
    return found.empty


def _excused(golden: Run, run: Run, unscored: Collection[str]) -> list[Key]:
    """The items whose differences are proven to be rounding's; prints them, and why others are not."""
    differing = items_that_differ(golden, run, unscored)
    unchanged, unasked = unchanged_items(golden, run, differing)
    ties, unproven = tied_items(golden, run, [key for key in differing if key not in unchanged])
    for why, proven in (("the golden records' revision takes as much here", unchanged), ("a proven tie", ties)):
        for key in proven:
            print(f"excused, {why}: {' '.join(map(str, key))}")
    for note in (*unasked, *unproven):
        print(note)
    return unchanged + ties


def _show_text(golden: Run, run: Run, found: pd.DataFrame) -> None:
    """The text of the first response that is not what it was."""
    changed = found[found["measure"].isin(["tokens_hash", "text"])]
    if changed.empty or "text" not in golden.items or "text" not in run.items:
        return
    first = changed.iloc[0]
    key = (first["method"], first["suite"], int(str(first["items"]).split(",")[0].split(" ")[0]))
    texts = [each.items.set_index(list(KEY))["text"].get(key) for each in (golden, run)]
    print(f"{' '.join(map(str, key))}\n  golden: {texts[0]!r}\n  run:    {texts[1]!r}")


def update(run: Run, folder: Path) -> None:
    """Make a run's records the golden ones; prints what changed. Windows are left out: their sums are in the items.

    Raises UserError if the run does not hold all of its items.
    """
    check_complete(run)
    if (folder / "run.json").exists():
        changed = compare_exactly(read_run(folder, windows=False), run)
        print(changed.to_string(index=False) if len(changed) else "no difference")
    folder.mkdir(parents=True, exist_ok=True)
    meta = json.loads((run.folder / "run.json").read_bytes())
    kept = {name: value for name, value in meta.items() if name != "sessions"}
    write_atomically(folder / "run.json", json.dumps(kept, indent=1) + "\n")
    items = read_lines(run.folder / "items.jsonl")
    write_atomically(folder / "items.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    print(f"golden records: {folder} ({len(run.items)} items)")
