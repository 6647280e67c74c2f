"""Tune decoders on dev problems, all by one rule, before test problems are touched.

    python harness/tune.py --suite gsm8k,mbpp --model nano --out results/runs/tuned
    python harness/run.py --methods "results/runs/tuned/choice.json" --suite gsm8k,mbpp --data generated:7 --limit 1000

Of each decoder and checkpoint as many settings are tried, its defaults and random ones of its space
(harness/methods/tuning.py), in a run for each suite below --out. On every suite two are chosen: `fast`, the fastest
whose dev accuracy is at most TOLERANCE points below the best of LLaDA's settings (or the most accurate), and
`accurate`, the most accurate; ties go to the faster one. Then a decoder's checkpoint is chosen by the same rule over
the means of the suites. `choice.json` has the choice with its dev figures and is an element of --methods; `choice.md`
shows it. The same command goes on where it was stopped. `--data generated:SEED` draws problems that no choice has seen.
"""

import json
import logging
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.elements import format_label
from harness.errors import UserError, one_line_errors
from harness.methods.tuning import GOALS, SPACES, TUNED, decoders_for, settings, with_role
from harness.options import option, parsed
from harness.suites.published import blocks_of
from harness.suites.registry import suites_named
from harness.suites.splits import split_named

TOLERANCE = 1.0  # points of dev accuracy
ROLES = ("base", "fef", "control")  # of checkpoints that any decoder may have


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What is tuned, on which problems, and how many settings are tried."""

    suite: str = option("as for harness/run.py", required=True)
    decoders: str | None = option(f"which of {', '.join(SPACES)} (default: all that the model takes; LLaDA is needed)")
    model: str = option("as for harness/run.py; every decoder is tuned with each of its checkpoints", "nano")
    data: str = option("dev problems (default: generated-dev)", "generated-dev")
    limit: int = option("dev problems of each suite (default 50)", 50, least=1)
    budget: int = option("settings of each decoder and checkpoint (default 10)", 10, least=1)
    seed: int = option("of the settings that are drawn", 0)
    out: Path = option("folder of the runs and of choice.json", required=True)
    workers: int | None = option("as for harness/run.py")
    threads: int | None = option("as for harness/run.py")
    device: str = option("as for harness/run.py", "cpu")


def tune(options: TuneOptions) -> None:
    """Run the settings on each suite, choose, and write choice.json and choice.md. Raises UserError."""
    from harness.measures.intervals import summarise
    from harness.methods.selection import methods_named
    from harness.options import checked
    from harness.records.store import read_run, write_atomically
    from harness.run import run
    from harness.runs.models import read_models
    from harness.runs.options import RunOptions

    suites = suites_named(options.suite)
    table = read_models(options.model, suites)
    roles: dict[str, str] = {}
    for role in ROLES:
        if role in table:
            roles.setdefault(str(table[role]), role)  # each checkpoint once
    rows = []
    alike = {name: getattr(options, name) for name in ("model", "data", "limit", "device", "workers", "threads")}
    for name, suite in suites.items():
        length = suite.settings_for(options.model, split_named(options.data) is not None)["gen_length"]
        in_blocks = any(blocks_of(models[name]) for models in table.values())
        named = options.decoders.split(",") if options.decoders else decoders_for(in_blocks)
        tried = {
            with_role(element, role): decoder
            for decoder in map(str.strip, named)
            for element in settings(decoder, length, options.budget, options.seed, in_blocks)
            for role in roles.values()
        }
        found = {method: decoder for element, decoder in tried.items() for method in methods_named([element])}
        folder = options.out / name
        given = {"suite": name, "methods": tuple(tried), "out": folder, "resume": (folder / "run.json").exists()}
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            run(checked(RunOptions, given | alike), Path(scratch), tables=False)
        made = read_run(folder)
        for row in summarise(made).to_dict("records"):
            method = made.config.methods[row["method"]]
            setting = method.suites[name]
            rows.append(
                {
                    **{column: row[column] for column in ("suite", "accuracy", "seconds", "scored")},
                    "decoder": found[row["method"]],
                    "role": method.role,
                    "checkpoint": made.config.models[method.role][name],
                    "method": method.method,
                    "settings": {"block_length": setting.block_length, **setting.options},
                }
            )
    chosen = choose(pd.DataFrame(rows))
    choice = {
        "rule": f"fast: the fastest within {TOLERANCE:g} points of LLaDA's best on dev; accurate: the most accurate",
        **{name: getattr(options, name) for name in ("model", "data", "limit", "budget", "seed")},
        "methods": choice_of(chosen),
    }
    write_atomically(options.out / "choice.json", json.dumps(choice, indent=1) + "\n")
    write_atomically(options.out / "choice.md", described(chosen))
    print(described(chosen))
    print(f"chosen on {options.limit} dev problems a suite: {options.out}/choice.json")


def choose(dev: pd.DataFrame) -> pd.DataFrame:
    """The settings that the rule chooses: rows of dev with goal (of GOALS) and best, whether its role is the decoder's
    best.

    dev: a row per setting and suite: suite, decoder, role, accuracy (percent), seconds (of a response), and others.
    Raises UserError where LLaDA has no scored row on a suite.
    """
    bars = dev[dev["decoder"] == "llada"].groupby("suite")["accuracy"].max()
    without = [suite for suite in dev["suite"].unique() if pd.isna(bars.get(suite))]
    if without:
        raise UserError(f"LLaDA has no scored dev problems of {', '.join(without)}; tune it with the others")
    dev = dev.assign(enough=dev["accuracy"] >= dev["suite"].map(bars) - TOLERANCE)
    chosen = []
    for goal in GOALS:
        for _, group in dev.groupby(["decoder", "role", "suite"], sort=False):
            chosen.append(group.loc[[_chosen(group, goal)]].assign(goal=goal))
    found = pd.concat(chosen, ignore_index=True)
    slowest = dev[dev["decoder"] == "llada"].groupby("suite")["seconds"].max()
    means = (
        found.assign(seconds=found["seconds"] / found["suite"].map(slowest))
        .groupby(["goal", "decoder", "role"], sort=False)[["accuracy", "seconds"]]
        .mean()
        .reset_index()
    )
    means["enough"] = means["accuracy"] >= bars.mean() - TOLERANCE
    best = {
        (goal, decoder): group.loc[_chosen(group, str(goal)), "role"]
        for (goal, decoder), group in means.groupby(["goal", "decoder"], sort=False)
    }
    rows = found[["goal", "decoder", "role"]].itertuples(index=False, name=None)
    found["best"] = [best[goal, decoder] == role for goal, decoder, role in rows]
    return found.drop(columns="enough")


def _chosen(group: pd.DataFrame, goal: str) -> Any:
    """The index of the row that the rule takes for a goal; columns accuracy, seconds and enough."""
    if goal == "fast" and group["enough"].any():
        return group[group["enough"]].sort_values(["seconds", "accuracy"], ascending=[True, False]).index[0]
    return group.sort_values(["accuracy", "seconds"], ascending=[False, True]).index[0]


def choice_of(chosen: pd.DataFrame) -> dict[str, Any]:
    """The chosen methods as a file has them: DECODER-tuned-GOAL, with /ROLE for other checkpoints than the best, each
    with label, method, role, settings and dev figures by suite. Where both goals have the same, `accurate` is left out.

    chosen: of `choose`, with columns method (the decoder's name in METHODS) and settings (lengths and options).
    """
    methods: dict[str, Any] = {}
    for (decoder, goal, role), group in chosen.groupby(["decoder", "goal", "role"], sort=False):
        best = bool(group["best"].iloc[0])
        methods[f"{decoder}{TUNED}{goal}{'' if best else f'/{role}'}"] = {
            "label": f"{SPACES[str(decoder)].label}, tuned ({goal})",
            "method": str(group["method"].iloc[0]),
            "role": str(role),
            "suites": dict(zip(group["suite"], group["settings"], strict=True)),
            "dev": group.set_index("suite")[["accuracy", "seconds"]].to_dict("index"),
        }
    for decoder in SPACES:
        pair = [methods.get(f"{decoder}{TUNED}{goal}", {}) for goal in GOALS]
        if pair[0] and all(pair[0][name] == pair[1].get(name) for name in ("role", "suites")):
            del methods[f"{decoder}{TUNED}accurate"]
    return methods


def described(chosen: pd.DataFrame) -> str:
    """What was chosen, in Markdown: a row per decoder, goal, checkpoint and suite."""
    lines = [
        "| decoder | for | checkpoint | suite | dev accuracy | seconds | settings |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for row in chosen.to_dict("records"):
        shown = {name: value for name, value in row["settings"].items() if name in SPACES[row["decoder"]].values}
        name = f"**{row['decoder']}**" if row["best"] else row["decoder"]
        lines.append(
            f"| {name} | {row['goal']} | {row['checkpoint']} | {row['suite']} | {row['accuracy']:.1f} "
            f"| {row['seconds']:.4f} | {format_label(shown)} |"
        )
    return "\n".join(lines) + "\n"


def main(line: list[str] | None = None) -> int:
    """The command line."""
    tune(parsed(TuneOptions, line, __doc__))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
