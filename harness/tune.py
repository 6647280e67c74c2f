"""Tune decoders on dev problems, all by one rule, before test problems are touched.

    python harness/tune.py --suite gsm8k,mbpp --model nano --out results/runs/tuned
    python harness/run.py --methods "results/runs/tuned/choice.json" --suite gsm8k,mbpp --data generated:7 --limit 1000
    python harness/tune.py --decoders "threshold; ../mine.py:margin(low=0.1|0.3|0.5)" --suite gsm8k --out FOLDER

Of each decoder and checkpoint as many settings are tried, its defaults and random ones of its space (SPACES, or all
combinations of the values in --decoders), in a run for each suite below --out. On every suite two are chosen: `fast`,
the fastest whose dev accuracy is at most TOLERANCE points below the best of LLaDA's settings (or the most accurate),
and `accurate`, the most accurate; ties go to the faster one. Then a decoder's checkpoint is chosen by the same rule
over the means of the suites. `choice.json` has the choice with its dev figures and is an element of --methods;
`choice.md` shows it. The same command goes on where it was stopped. `--data generated:SEED` draws problems that no
choice has seen.
"""

import itertools
import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from msgspec import structs

from harness.elements import alternatives, elements_of, format_call, format_label, parse_call
from harness.errors import UserError, one_line_errors
from harness.methods.presets import TUNED
from harness.options import option, parsed
from harness.runs.selection import methods_named
from harness.suites.published import blocks_of
from harness.suites.registry import split_named, suites_named

TOLERANCE = 1.0  # points of dev accuracy
ROLES = ("base", "fef", "control")  # of checkpoints that any decoder may have
GOALS = ("fast", "accurate")
BLOCKS = (8, 16, 32, 64, None)  # None: one block, the whole response
UNMASKING: dict[str, tuple[Any, ...]] = {"block_length": BLOCKS, "cache": ("none", "prefix", "dual")}

SPECULATION: dict[str, tuple[Any, ...]] = {
    "threshold": (0.6, 0.7, 0.85, 0.95),
    "min_span": (1, 2, 4),
    "min_expected": (0.0, 1.0, 2.0),
}


@dataclass(frozen=True)
class Space:
    """What a decoder is tuned over: values by option, the preset they change, the row's name.

    fixed: options of all its settings, unless a value goes before. blocks: for block models alone, or (False) not for
    them. usual: the defaults of a decoder of --decoders, as far as they are values. plugin: the file or module of one
    from outside.
    """

    preset: str
    label: str
    values: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    blocks: bool | None = None
    usual: Mapping[str, Any] = field(default_factory=dict)
    plugin: str = ""


SPACES = {
    "llada": Space("llada", "LLaDA", UNMASKING),
    "threshold": Space("threshold", "Threshold", {"tau": (0.7, 0.8, 0.9, 0.95, 0.99), **UNMASKING}),
    "factor": Space("factor", "Factor", {"f": (0.1, 0.25, 0.5, 1.0, 2.0), **UNMASKING}),
    "entropy": Space("entropy", "Entropy", {"gamma": (0.01, 0.03, 0.1, 0.3, 1.0), **UNMASKING}),
    "klass": Space(
        "klass", "KLASS", {"conf_threshold": (0.6, 0.8, 0.9, 0.95), "kl_threshold": (0.005, 0.01, 0.05), **UNMASKING}
    ),
    "wino": Space(
        "wino",
        "WINO",
        {"threshold": (0.5, 0.6, 0.7, 0.8), "threshold_back": (0.8, 0.9, 0.95), **UNMASKING},
        blocks=False,
    ),
    "editing": Space(
        "block",
        "Editing",
        {"threshold": (0.5, 0.7, 0.8, 0.9, 0.95), "editing_threshold": (0.5, 0.7, 0.9, 0.95)},
        {"threshold": 0.7, "editing_threshold": 0.5},  # LLaDA2.1's defaults
        blocks=True,
    ),
    "s2d2": Space("s2d2", "S2D2", SPECULATION, blocks=True),
    "linear": Space("s2d2", "Linear speculation", SPECULATION, {"acceptance": "match"}, blocks=True),
    "fef": Space(
        "fef-two-stream",
        "FeF-DLLM two-stream",
        {
            "steps": (1, 2),
            "anchor": (None, 8, 16, 32),
            "refresh_below": (None, 0.5, 0.7, 0.9),
            "remask_below": (None, 0.7, 0.9),
            "window": (8, 16, 32),
        },
    ),
    "fef-literal": Space(
        "fef-2",
        "FeF-DLLM",
        {
            "steps": (1, 2),
            "window": (4, 8, 16),
            "skip_root_row": (False, True),
            "reuse_drafts": (False, True),
            "adaptive_window": (False, True),
        },
        blocks=True,
    ),
}


def decoders_for(in_blocks: bool) -> list[str]:
    """The decoders that are tuned on a block model, or on one that attends over the whole sequence."""
    return [name for name, space in SPACES.items() if space.blocks in (None, in_blocks)]


def spaces_of(decoders: str) -> dict[str, Space]:
    """The spaces of --decoders by name, with LLaDA's, which the rule needs: of SPACES, or of the values in brackets.

    An element is as in --methods, `threshold(tau=0.5|0.7)` or `../mine.py:margin(low=0.1|0.3)`; options with one value
    have it in every setting. Raises UserError or ValueError for one that is unknown, repeated, or no method.
    """
    spaces: dict[str, Space] = {}
    for text in elements_of(decoders):
        name, space = (text, SPACES[text]) if text in SPACES else _own(text)
        if name in spaces:
            raise UserError(f"--decoders names {name} twice; give all its values in one element: {name}(option=1|2)")
        spaces[name] = space
    return spaces if "llada" in spaces else {"llada": SPACES["llada"], **spaces}


def _own(text: str) -> tuple[str, Space]:
    """The name and the space of an element with values of its own."""
    calls = [parse_call(each) for each in alternatives(text)]
    head = calls[0][0]
    plugin, _, name = head.rpartition(":")  # of the name alone, for it becomes part of other names
    ours = SPACES.get(head)
    preset = next(iter(methods_named([ours.preset if ours else head]).values()))
    space = ours or Space(head, preset.label, {})
    values = {option: tuple({repr(call[option]): call[option] for _, call in calls}.values()) for option in calls[0][1]}
    varied = {option: each for option, each in values.items() if len(each) > 1}
    fixed = {**space.fixed, **{option: each[0] for option, each in values.items() if option not in varied}}
    defaults = {**structs.asdict(preset.decoder.options()), **preset.options, **fixed}
    usual = {option: defaults[option] for option in varied if defaults.get(option) is not None}
    return name.replace("+", "-"), replace(space, values=varied, fixed=fixed, usual=usual, plugin=plugin.strip())


def settings(
    decoder: str,
    gen_length: int,
    budget: int,
    seed: int,
    in_blocks: bool = False,
    spaces: Mapping[str, Space] = SPACES,
) -> list[str]:
    """At most `budget` settings of a decoder for responses of gen_length tokens, as elements of --methods.

    The preset comes first; others are drawn without repetition among those whose blocks divide the response. in_blocks:
    for a block model.
    """
    space = spaces[decoder]
    values = {name: each for name, each in space.values.items() if not (in_blocks and each is UNMASKING.get(name))}
    if values.get("block_length") is BLOCKS:
        blocks = [length for length in BLOCKS if length is not None and length < gen_length]
        values["block_length"] = (*(length for length in blocks if gen_length % length == 0), gen_length)
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    combinations = [each for each in combinations if each not in (space.fixed, space.usual)]
    rng = Random(f"settings {decoder} {gen_length} {seed}")
    drawn = rng.sample(combinations, min(budget - 1, len(combinations))) if values else []
    return [format_call(space.preset, {**space.fixed, **chosen}) for chosen in (space.usual, *drawn)]


def with_role(element: str, role: str) -> str:
    """An element of `settings` whose method decodes with the checkpoint of a role."""
    return f"{element[:-1]},role={role})" if element.endswith(")") else f"{element}(role={role})"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What is tuned, on which problems, and how many settings are tried."""

    suite: str = option("as for harness/run.py", required=True)
    decoders: str | None = option(
        f"of {', '.join(SPACES)}, or methods with values of their own: NAME(option=1|2), FILE.py:NAME(option=1|2) "
        "(default: all of ours that the model takes)"
    )
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
    suites = suites_named(options.suite)
    own = spaces_of(options.decoders) if options.decoders else {}
    spaces = {**SPACES, **own}
    # What takes seconds to import comes after what may be refused.
    from harness.measures.intervals import summarise
    from harness.options import checked
    from harness.records.store import read_run, write_atomically
    from harness.run import run
    from harness.runs.models import read_models
    from harness.runs.options import RunOptions
    from harness.runs.resolve import resolve

    table = read_models(options.model, suites)
    roles: dict[str, str] = {}
    for role in ROLES:
        if role in table:
            roles.setdefault(str(table[role]), role)  # each checkpoint once
    alike = {name: getattr(options, name) for name in ("model", "data", "limit", "device", "workers", "threads")}
    runs, found = {}, {}
    for name, suite in suites.items():
        length = suite.settings_for(options.model, split_named(options.data) is not None)["gen_length"]
        in_blocks = any(blocks_of(models[name]) for models in table.values())
        tried = {
            with_role(element, role): decoder
            for decoder in own or decoders_for(in_blocks)
            for element in settings(decoder, length, options.budget, options.seed, in_blocks, spaces)
            for role in roles.values()
        }
        found[name] = {method: decoder for element, decoder in tried.items() for method in methods_named([element])}
        folder = options.out / name
        given = {"suite": name, "methods": tuple(tried), "out": folder, "resume": (folder / "run.json").exists()}
        runs[name] = checked(RunOptions, given | alike)
        resolve(runs[name])  # what cannot be decoded is refused before hours of another suite
    counts = ", ".join(f"{len(methods)} settings on {name}" for name, methods in found.items())
    print(f"{counts}, each on {options.limit} dev problems")
    rows = []
    for name, each in runs.items():
        with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
            made = read_run(run(each, Path(scratch), tables=False))
        for row in summarise(made).to_dict("records"):
            method = made.config.methods[row["method"]]
            setting = method.suites[name]
            rows.append(
                {
                    **{column: row[column] for column in ("suite", "accuracy", "seconds", "scored")},
                    "decoder": found[name][row["method"]],
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
        "methods": choice_of(chosen, spaces, options.out),
    }
    write_atomically(options.out / "choice.json", json.dumps(choice, indent=1) + "\n")
    write_atomically(options.out / "choice.md", described(chosen, spaces))
    print(described(chosen, spaces))
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


def choice_of(chosen: pd.DataFrame, spaces: Mapping[str, Space] = SPACES, folder: Path = Path()) -> dict[str, Any]:
    """The chosen methods as a file has them: DECODER-tuned-GOAL, with /ROLE for other checkpoints than the best, each
    with label, method, role, settings and dev figures by suite. Where both goals have the same, `accurate` is left out.

    chosen: of `choose`, with columns method (the decoder's name in METHODS) and settings (lengths and options). folder:
    of the file, in which plugins are named from there.
    """
    methods: dict[str, Any] = {}
    for (decoder, goal, role), group in chosen.groupby(["decoder", "goal", "role"], sort=False):
        best, space = bool(group["best"].iloc[0]), spaces[str(decoder)]
        plugin = space.plugin
        if plugin.endswith(".py"):
            plugin = os.path.relpath(Path(plugin).expanduser(), folder)
        methods[f"{decoder}{TUNED}{goal}{'' if best else f'/{role}'}"] = {
            "label": f"{space.label}, tuned ({goal})",
            "method": str(group["method"].iloc[0]),
            "role": str(role),
            "suites": dict(zip(group["suite"], group["settings"], strict=True)),
            **({"plugin": plugin} if plugin else {}),
            "dev": group.set_index("suite")[["accuracy", "seconds"]].to_dict("index"),
        }
    for decoder in spaces:
        pair = [methods.get(f"{decoder}{TUNED}{goal}", {}) for goal in GOALS]
        if pair[0] and all(pair[0][name] == pair[1].get(name) for name in ("role", "suites")):
            del methods[f"{decoder}{TUNED}accurate"]
    return methods


def described(chosen: pd.DataFrame, spaces: Mapping[str, Space] = SPACES) -> str:
    """What was chosen, in Markdown: a row per decoder, goal, checkpoint and suite."""
    lines = [
        f"# What was chosen on dev problems\n\nFast: the fastest within {TOLERANCE:g} point of LLaDA's best accuracy; "
        "accurate: the most accurate. Bold: the decoder's best checkpoint, by the means over the suites.\n",
        "| decoder | for | checkpoint | suite | dev accuracy | seconds | settings |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for row in chosen.to_dict("records"):
        shown = {name: value for name, value in row["settings"].items() if name in spaces[row["decoder"]].values}
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
