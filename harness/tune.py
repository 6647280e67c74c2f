"""Tune decoders on dev problems, all by one rule, before test problems are touched.

    python harness/tune.py --suite gsm8k,mbpp --model nano --out results/runs/tuned
    python harness/run.py --methods "results/runs/tuned/choice.json" --suite gsm8k,mbpp --data generated:7 --limit 1000

Every decoder gets the same budget of settings with every checkpoint of the model: its defaults, and random ones of its
space (harness/methods/tuning.py has the spaces, choosing.py the rule). They run on dev problems, a run for each suite,
below --out. `choice.json` has what the rule chose on each suite, with the dev figures; `choice.md` shows it. The file
is an element of --methods. A tuning that was stopped goes on when the same command is given again. Test problems that
no earlier choice has seen are drawn by `--data generated:SEED` with a new seed.
"""

import argparse
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.elements import shown
from harness.errors import UserError, one_line_errors
from harness.methods.tuning import SPACES, decoders_for, settings, with_role
from harness.suites.published import blocks_of
from harness.suites.registry import suites_named
from harness.suites.splits import split_named

ROLES = ("base", "fef", "control")  # of checkpoints that any decoder may have


def main(line: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", required=True, help="as for harness/run.py")
    add("--decoders", help=f"which of {', '.join(SPACES)} (default: all that the model takes; LLaDA sets the bar)")
    add("--model", default="nano", help="as for harness/run.py; every decoder is tuned with each of its checkpoints")
    add("--data", default="generated-dev", help="dev problems (default: generated-dev)")
    add("--limit", type=int, default=50, help="dev problems of each suite")
    add("--budget", type=int, default=10, help="settings of each decoder and checkpoint")
    add("--seed", type=int, default=0, help="of the settings that are drawn")
    add("--out", type=Path, required=True)
    add("--workers", type=int, help="as for harness/run.py")
    add("--threads", type=int, help="as for harness/run.py")
    add("--device", default="cpu", help="as for harness/run.py")
    tune(parser.parse_args(line))
    return 0


def tune(args: argparse.Namespace) -> None:
    """Run the settings on each suite, choose, and write choice.json and choice.md. Raises UserError."""
    import pandas as pd

    from harness.methods.choosing import TOLERANCE, choice_of, choose
    from harness.methods.selection import methods_named
    from harness.options import checked
    from harness.records.store import read_run, write_atomically
    from harness.run import run
    from harness.runs.models import read_models
    from harness.runs.options import RunOptions

    if args.budget < 1:
        raise UserError(f"--budget {args.budget} must be at least 1 setting")
    suites = suites_named(args.suite)
    table = read_models(args.model, suites)
    roles: dict[str, str] = {}
    for role in ROLES:
        if role in table:
            roles.setdefault(str(table[role]), role)  # each checkpoint once
    rows = []
    alike = {name: getattr(args, name) for name in ("model", "data", "limit", "device", "workers", "threads")}
    for name, suite in suites.items():
        length = suite.settings_for(args.model, split_named(args.data) is not None)["gen_length"]
        in_blocks = any(blocks_of(models[name]) for models in table.values())
        decoders = [name.strip() for name in args.decoders.split(",")] if args.decoders else decoders_for(in_blocks)
        tried = {
            with_role(element, role): decoder
            for decoder in decoders
            for element in settings(decoder, length, args.budget, args.seed, in_blocks)
            for role in roles.values()
        }
        found = {method: decoder for element, decoder in tried.items() for method in methods_named([element])}
        folder = args.out / name
        resume = (folder / "run.json").exists()
        options = checked(
            RunOptions, {"suite": name, "methods": tuple(tried), "out": folder, "resume": resume, **alike}
        )
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            run(options, Path(scratch), tables=False)
        rows += dev_rows(read_run(folder), name, found)
    chosen = choose(pd.DataFrame(rows))
    choice = {
        "rule": f"fast: the fastest within {TOLERANCE:g} points of LLaDA's best on dev; accurate: the most accurate",
        **{name: getattr(args, name) for name in ("model", "data", "limit", "budget", "seed")},
        "methods": choice_of(chosen),
    }
    write_atomically(args.out / "choice.json", json.dumps(choice, indent=1) + "\n")
    write_atomically(args.out / "choice.md", described(chosen))
    print(described(chosen))
    print(f"chosen on {args.limit} dev problems a suite: {args.out}/choice.json")


def dev_rows(run: Any, suite: str, decoders: dict[str, str]) -> list[dict[str, Any]]:
    """A row per method of a suite's dev run, as `choose` takes them. decoders: of each method."""
    from harness.measures.intervals import summarise

    rows = []
    for row in summarise(run).to_dict("records"):
        method = run.config.methods[row["method"]]
        setting = method.suites[suite]
        rows.append(
            {
                **{name: row[name] for name in ("suite", "accuracy", "seconds", "scored")},
                "decoder": decoders[row["method"]],
                "role": method.role,
                "checkpoint": run.config.models[method.role][suite],
                "method": method.method,
                "settings": {"block_length": setting.block_length, **setting.options},
            }
        )
    return rows


def described(chosen: Any) -> str:
    """What was chosen, in Markdown: a row per decoder, goal, checkpoint and suite."""
    lines = [
        "| decoder | for | checkpoint | suite | dev accuracy | seconds | settings |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for row in chosen.to_dict("records"):
        told = {name: value for name, value in row["settings"].items() if name in SPACES[row["decoder"]].values}
        name = f"**{row['decoder']}**" if row["best"] else row["decoder"]
        lines.append(
            f"| {name} | {row['goal']} | {row['checkpoint']} | {row['suite']} | {row['accuracy']:.1f} "
            f"| {row['seconds']:.4f} | {shown(told)} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
