"""The regression gate: a run against golden records, and this tree's speed against another revision's.

    python harness/gate.py RUN --against results/golden/nano            # tokens, costs, accuracy
    python harness/gate.py RUN --against results/golden/nano --update   # make RUN the golden record
    python harness/gate.py RUN --against-rev HEAD~1                     # speed, both measured now, interleaved

On the golden record's class of platform (processor, vector instructions, threads, dtype, torch) and at temperature 0
the comparison is exact: any other token, verdict or forward pass is an error. Elsewhere accuracy must not be inferior,
paired by item, by more than --margin points. Speed is never compared across machines or days: --against-rev checks the
revision out and measures both trees in turn, with the methods and settings of RUN; slower by more than --tolerance,
with its whole interval, is an error. Exit code 1 if anything regressed, 2 if the two cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path

import pandas as pd

from harness.errors import UserError, one_line_errors
from harness.gate_records import PASSES, check_settings, compare_accuracy, compare_exactly, platform_class
from harness.gate_speed import checkout, compare_seconds, measure_both
from harness.plan import differences
from harness.records import KEY, Run, read_lines, read_run, write_atomically
from harness.run import load

MARGIN = 5.0
TOLERANCE = 0.05
ITEMS = 5


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if something regressed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("run", type=Path, help="folder of the run to judge")
    add("--against", type=Path, metavar="GOLDEN", help="folder of golden records")
    add("--update", action="store_true", help="write the run's records to GOLDEN, and say what changed")
    add("--margin", type=float, default=MARGIN, help=f"points of accuracy that may not be lost (default {MARGIN:g})")
    add("--against-rev", metavar="REV", help="also measure speed against this revision of the repository")
    add("--items", type=int, default=ITEMS, help=f"items a suite for --against-rev (default {ITEMS})")
    add("--methods", help="comma-separated, for --against-rev (default: all of the run)")
    add("--tolerance", type=float, default=TOLERANCE, help=f"share of speed that may be lost (default {TOLERANCE:g})")
    asked = parser.parse_args(line)
    if asked.against is None and asked.against_rev is None:
        raise UserError("nothing to compare with: give --against FOLDER, --against-rev REV, or both")
    if asked.update and asked.against is None:
        raise UserError("--update needs --against, the folder of the golden records")
    if asked.items < 1:
        raise UserError(f"--items {asked.items}: at least 1 is needed")
    run = read_run(asked.run)
    if run.items.empty:
        raise UserError(f"{asked.run} holds no items; nothing to judge")
    passed = True
    if asked.update:
        update(run, asked.against)
    elif asked.against is not None:
        passed = judge_records(run, read_run(asked.against), asked.margin)
    if asked.against_rev is not None:
        passed &= judge_speed(run, asked.against_rev, asked.methods, asked.items, asked.tolerance)
    return 0 if passed else 1


def judge_records(run: Run, golden: Run, margin: float) -> bool:
    """Print what differs from the golden records; whether the run passes."""
    check_settings(golden, run)
    elsewhere = differences(platform_class(golden.meta), platform_class(run.meta))
    if not elsewhere and run.meta["config"].get("temperature") == 0:
        found = compare_exactly(golden, run)
        passed = set(found["verdict"]) <= set(PASSES)
        print(f"records: {len(golden.items)} golden items, same class of platform, compared exactly")
        for suite, why in ((run.meta.get("scoring") or {}).get("not_scored") or {}).items():
            print(f"verdicts of {suite} are left out: {why}")
        print(found.to_string(index=False) if len(found) else "no difference")
        _show_text(golden, run, found)
    else:
        found = compare_accuracy(golden, run, margin)
        passed = set(found["verdict"]) == {"ok"}
        why = f"another class of platform: {'; '.join(elsewhere)}" if elsewhere else "not greedy"
        print(f"records: accuracy of the same items, margin {margin:g} points ({why})")
        print(found.to_string(index=False, float_format="%.2f"))
    print("records: passed" if passed else "records: REGRESSED; if this is meant, --update")
    return passed


def _show_text(golden: Run, run: Run, found: pd.DataFrame) -> None:
    """The text of the first response that is not what it was."""
    changed = found[found["measure"] == "tokens_hash"]
    if changed.empty or "text" not in golden.items or "text" not in run.items:
        return
    first = changed.iloc[0]
    key = (first["method"], first["suite"], int(str(first["items"]).split(",")[0].split(" ")[0]))
    texts = [each.items.set_index(list(KEY))["text"].get(key) for each in (golden, run)]
    print(f"{' '.join(map(str, key))}\n  golden: {texts[0]!r}\n  run:    {texts[1]!r}")


def judge_speed(run: Run, rev: str, methods: str | None, items: int, tolerance: float) -> bool:
    """Measure this tree and a revision in turn and print both; whether this tree passes."""
    config = dict(run.meta["config"])
    if methods is not None:
        wanted = [name.strip() for name in methods.split(",")]
        unknown = [name for name in wanted if name not in config["methods"]]
        if unknown:
            raise UserError(
                f"--methods {', '.join(unknown)}: not in {run.folder}, which has {', '.join(config['methods'])}"
            )
        config["methods"] = {name: config["methods"][name] for name in wanted}
    config["limit"] = items
    with checkout(rev) as tree, tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        generated = isinstance(config["data"], str)
        data = Path(scratch) if generated else Path(run.meta["data"]["folder"])
        jobs, _ = load(config, data, Path(scratch))
        measured, notes = measure_both(tree, config, jobs, items)
    for note in notes:
        print(note)
    if measured.empty:
        raise UserError(f"{rev} can run none of the methods; choose --methods that it knows")
    found = compare_seconds(measured, tolerance)
    print(f"speed: now against {rev}, {items} items a suite, in turn; seconds and speedup over LLaDA, now / before")
    print(found.to_string(index=False, float_format="%.3f"))
    other = measured[~measured["same_tokens"]].groupby("method").size()
    if len(other):
        print(f"tokens differ: {', '.join(f'{name} ({count} items)' for name, count in other.items())}")
    passed = set(found["verdict"]) == {"ok"}
    print("speed: passed" if passed else f"speed: REGRESSED by more than {100 * tolerance:g}%")
    return passed


def update(run: Run, folder: Path) -> None:
    """Make a run's records the golden ones; prints what changed. Windows are left out: their sums are in the items."""
    if (folder / "run.json").exists():
        changed = compare_exactly(read_run(folder), run)
        print(changed.to_string(index=False) if len(changed) else "no difference")
    folder.mkdir(parents=True, exist_ok=True)
    meta = {name: value for name, value in run.meta.items() if name != "sittings"}
    write_atomically(folder / "run.json", json.dumps(meta, indent=1) + "\n")
    items = read_lines(run.folder / "items.jsonl")
    write_atomically(folder / "items.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    print(f"golden records: {folder} ({len(run.items)} items)")


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # OpenCompass and its packages log every step; errors still show
    sys.exit(one_line_errors(main))
