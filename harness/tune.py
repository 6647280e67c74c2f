"""Tune decoders on dev problems, all by one rule, before test problems are touched.

    python harness/tune.py --suite humaneval,mbpp --model nano --out results/runs/tuned
    python harness/run.py --methods "llada; results/runs/tuned/choice.json" \\
        --suite humaneval,mbpp --data generated:7

A choice is for the suites of one command together: give those of one kind of task, words and
equations or programs, as the paper has a model for each. Of each decoder as many different settings
are tried with every checkpoint, its defaults and random ones of its space (SPACES): on the first
dev problems, timed. The best few of each decoder go on to all dev problems. All responses end at
EOS. LLaDA's best is its most accurate setting and checkpoint. Of every decoder two are chosen:
`fast`, the fastest whose dev accuracy is not shown to be below LLaDA's best (one-sided exact paired
test, 5%), and `accurate`, the most accurate; accuracies are means over the suites. Ties go to the
more accurate, then to the slower one. `choice.json` has the choice with its dev figures and is an
element of --methods; `choice.md` shows it. The same command goes on where it was stopped. Choices
of several kinds of task together, `--methods words/choice.json, programs/choice.json`, make one row
of each method. `--data generated:SEED` draws problems that no choice has seen.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd
from msgspec import structs

from harness.elements import alternatives, elements_of, format_call, format_label, parse_call
from harness.errors import UserError, one_line_errors
from harness.methods.presets import TUNED
from harness.methods.settings import setting_of
from harness.options import option, parsed
from harness.runs.selection import methods_named
from harness.suites.published import blocks_of
from harness.suites.registry import split_named, suites_named

if TYPE_CHECKING:
    from harness.runs.options import RunOptions
    from model_wrappers.backbones.blocks import Blocks

ROLES = ("base", "fef", "control", "linear")  # of checkpoints that any decoder may have
BLOCKS = (8, 16, 32, 64, None)  # None: one block, the whole response
UNMASKING: dict[str, tuple[Any, ...]] = {
    "block_length": BLOCKS,
    "cache": ("none", "prefix", "dual"),
}
THRESHOLDS = {"tau": (0.7, 0.8, 0.9, 0.95, 0.99), **UNMASKING}
SPECULATION: dict[str, tuple[Any, ...]] = {
    "threshold": (0.6, 0.7, 0.85, 0.95),
    "min_span": (1, 2, 4),
    "min_expected": (0.0, 1.0, 2.0),
}


@dataclass(frozen=True)
class Space:
    """The settings that a decoder is tuned over.

    Attributes:
        preset: what the settings change.
        label: the name of the decoder's row.
        values: by option.
        fixed: options that all settings have, unless `values` has them.
        blocks: True for block models alone, False for all others, None for any model.
        usual: the decoder's defaults of the options in `values`, for elements of --decoders.
        plugin: the file or module of a decoder from outside.
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
    "threshold": Space("threshold", "Threshold", THRESHOLDS),
    "fork": Space("threshold", "Fork-dLLM", THRESHOLDS, {"fallback": "leftmost"}),
    "factor": Space("factor", "Factor", {"f": (0.1, 0.25, 0.5, 1.0, 2.0), **UNMASKING}),
    "entropy": Space("entropy", "Entropy", {"gamma": (0.01, 0.03, 0.1, 0.3, 1.0), **UNMASKING}),
    "klass": Space(
        "klass",
        "KLASS",
        {"conf_threshold": (0.6, 0.8, 0.9, 0.95), "kl_threshold": (0.005, 0.01, 0.05), **UNMASKING},
    ),
    "wino": Space(
        "wino",
        "WINO",
        {"threshold": (0.5, 0.6, 0.7, 0.8), "threshold_back": (0.8, 0.9, 0.95), **UNMASKING},
        blocks=False,
    ),
    "flash": Space(
        "flash",
        "Flash-dLLM",
        {
            "threshold": (0.7, 0.8, 0.9, 0.95),
            "gamma": (0.3, 0.5, 0.8, 0.9),
            "verify": (True, False),
            "window": (8, 16, 32),
            "tracked": (None, 16, 64),
        },
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
    "linear": Space(
        "s2d2", "Linear speculation", SPECULATION, {"acceptance": "match"}, blocks=True
    ),
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
    ),
}


def decoders_for(in_blocks: bool) -> list[str]:
    """The decoders that are tuned by default, on a block model or on one that attends over the
    whole sequence."""
    return [name for name, space in SPACES.items() if space.blocks in (None, in_blocks)]


def spaces_of(decoders: str) -> dict[str, Space]:
    """The spaces of --decoders by name, and LLaDA's, which the rule needs.

    Args:
        decoders: names in SPACES, or elements as in --methods with several values,
            `threshold(tau=0.5|0.7)` or `../mine.py:margin(low=0.1|0.3)`; an option with one value
            has it in every setting.

    Raises:
        UserError or ValueError: an element that is unknown, repeated, or no method.
    """
    spaces: dict[str, Space] = {}
    for text in elements_of(decoders):
        name, space = (text, SPACES[text]) if text in SPACES else _space_of(text)
        if name in spaces:
            raise UserError(
                f"--decoders names {name} twice; give all its values in one element:"
                f" {name}(option=1|2)"
            )
        spaces[name] = space
    return spaces if "llada" in spaces else {"llada": SPACES["llada"], **spaces}


def _space_of(text: str) -> tuple[str, Space]:
    """The name and the space of an element that has its values in brackets."""
    calls = [parse_call(alternative) for alternative in alternatives(text)]
    head = calls[0][0]
    # Without the path: the name becomes a part of the names of chosen methods.
    plugin, _, decoder = head.rpartition(":")
    known = SPACES.get(head)
    presets = methods_named([known.preset if known else head])
    if len(presets) > 1:
        raise UserError(f"--decoders {text} names {len(presets)} methods; name them one by one")
    (preset,) = presets.values()
    space = known or Space(head, preset.row, {})
    varied = {}
    fixed = dict(space.fixed)
    for name in calls[0][1]:
        # By their texts: 1, 1.0 and True are equal in Python, and different values of an option.
        values = tuple({repr(call[name]): call[name] for _, call in calls}.values())
        if len(values) > 1:
            varied[name] = values
        else:
            fixed[name] = values[0]
    defaults = {**structs.asdict(preset.decoder.options()), **preset.options, **fixed}
    usual = {name: defaults[name] for name in varied if defaults.get(name) is not None}
    return decoder.replace("+", "-"), replace(
        space, values=varied, fixed=fixed, usual=usual, plugin=plugin.strip()
    )


def settings(
    decoder: str,
    suites: Mapping[str, dict[str, Any]],
    budget: int,
    seed: int,
    attends: Blocks | None = None,
    spaces: Mapping[str, Space] = SPACES,
) -> list[str]:
    """At most `budget` different settings of a decoder, as elements of --methods.

    The first is the preset, the others are drawn at random. Two elements that decode alike are one
    setting.

    Args:
        decoder: a name in `spaces`.
        suites: defaults of lengths and options by suite; every setting is for all suites, with
            blocks that divide their responses.
        budget: of settings.
        seed: of the random numbers.
        attends: the blocks of a block model, else None.
        spaces: by decoder.
    """
    space = spaces[decoder]
    lengths = [defaults["gen_length"] for defaults in suites.values()]
    values = _values(space, lengths, attends is not None)
    combinations = [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]
    rng = Random(f"settings {decoder} {sorted(suites)} {seed}")
    elements = dict[str, str]()
    for chosen in (space.usual, *rng.sample(combinations, len(combinations))):
        element = format_call(space.preset, {**space.fixed, **chosen})
        (preset,) = methods_named([element]).values()
        # An option at its default, and one that is left out, are the same setting.
        usual = structs.asdict(preset.decoder.options())
        decoded = []
        for suite, defaults in suites.items():
            setting = setting_of(preset, suite, defaults, blocks=attends)
            tuned = sorted({**usual, **setting.options}.items())
            decoded.append((setting.gen_length, setting.block_length, tuned))
        elements.setdefault(repr(decoded), element)
        if len(elements) == budget:
            break
    return list(elements.values())


def _values(space: Space, lengths: Sequence[int], in_blocks: bool) -> dict[str, tuple[Any, ...]]:
    """The values of a space by option, as far as the model and the suites allow them."""
    # By identity, so that values of an element of --decoders stay on a block model, too.
    values = {
        name: options
        for name, options in space.values.items()
        if not (in_blocks and options is UNMASKING.get(name))
    }
    # Blocks must divide every response; one that is the whole response is None already.
    if values.get("block_length") is BLOCKS:
        values["block_length"] = tuple(
            block
            for block in BLOCKS
            if block is None or all(not length % block and block < length for length in lengths)
        )
    return values


def with_role(element: str, role: str) -> str:
    """An element of `settings` that decodes with the checkpoint of a role."""
    return f"{element[:-1]},role={role})" if element.endswith(")") else f"{element}(role={role})"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What is tuned, on which problems, and how many settings are tried."""

    suite: str = option("as for harness/run.py", required=True)
    decoders: str | None = option(
        f"of {', '.join(SPACES)}, or methods with values of their own: NAME(option=1|2),"
        " FILE.py:NAME(option=1|2) (default: all of ours that the model takes)"
    )
    model: str = option(
        "as for harness/run.py; every decoder is tuned with each of its checkpoints", "nano"
    )
    data: str = option("dev problems (default: generated-dev)", "generated-dev")
    limit: int = option("dev problems of each suite (default 200)", 200, least=1)
    first: int = option(
        "of them, timed, with all settings; the best few go on to all (default 20)", 20, least=1
    )
    budget: int = option(
        "different settings of each decoder, with every checkpoint (default 8)", 8, least=1
    )
    seed: int = option("of the settings that are drawn", 0)
    out: Path = option("folder of the runs and of choice.json", required=True)
    workers: int | None = option("as for harness/run.py")
    threads: int | None = option("as for harness/run.py")
    device: str = option("as for harness/run.py", "cpu")


@dataclass(frozen=True)
class Settings:
    """The settings that are tried.

    Attributes:
        spaces: by decoder.
        lengths: tokens of a response by suite.
        elements: of --methods, by the method's name in a run.
        decoders: by the method's name in a run.
    """

    spaces: dict[str, Space]
    lengths: dict[str, int]
    elements: dict[str, str]
    decoders: dict[str, str]


def settings_tried(options: TuneOptions) -> Settings:
    """The settings of every decoder, each with every checkpoint of the model.

    Raises:
        UserError or ValueError: an unknown decoder, suite or model.
    """
    from harness.runs.models import read_models

    suites = suites_named(options.suite)
    chosen = spaces_of(options.decoders) if options.decoders else {}
    spaces = {**SPACES, **chosen}
    table = read_models(options.model, suites)
    # Roles may share a checkpoint, which is tried once.
    roles: dict[str, str] = {}
    for role in ROLES:
        if role in table:
            roles.setdefault(str(table[role]), role)
    small = split_named(options.data) is not None
    usual = {name: suite.settings_for(options.model, small) for name, suite in suites.items()}
    checkpoints = [model for role in roles.values() for model in table[role].values()]
    attends = next(filter(None, map(blocks_of, checkpoints)), None)
    elements = {}
    decoders = {}
    for decoder in chosen or decoders_for(attends is not None):
        drawn = settings(decoder, usual, options.budget, options.seed, attends, spaces)
        for setting, role in itertools.product(drawn, roles.values()):
            element = with_role(setting, role)
            for method in methods_named([element]):
                elements[method] = element
                decoders[method] = decoder
    lengths = {name: defaults["gen_length"] for name, defaults in usual.items()}
    return Settings(spaces, lengths, elements, decoders)


def tune(options: TuneOptions) -> None:
    """Decode all settings, choose, and write choice.json and choice.md. Raises UserError for what
    cannot be used."""
    tried = settings_tried(options)
    # What takes seconds to import comes after what may be refused.
    from harness.measures.card import card_line
    from harness.measures.choosing import RULE, choose, dev_of, finalists
    from harness.measures.seconds import with_speed
    from harness.measures.table import measure
    from harness.records.store import problems_of, read_meta, read_run, write_atomically
    from harness.runs.resolve import resolve

    suites = suites_named(options.suite)
    where = ", ".join(suites)
    if any(suite.questions is None for suite in suites.values()):
        where = f"{where} ({options.data})"
    few = min(options.first, options.limit)
    print(
        f"{len(tried.elements)} settings on {few} problems of {where}; the best on {options.limit}"
    )
    folder = options.out / "dev"
    first = options.out / "first"
    whole = {"limit": options.limit, "untimed": True, "workers": options.workers}
    # Settings that cannot be decoded are refused now, and not after hours.
    resolve(_run_options(options, folder, tried.elements.values(), whole))
    options.out.mkdir(parents=True, exist_ok=True)
    # The seconds of all settings are those of the first problems; the second run is untimed, and
    # only its verdicts count.
    _decode(_run_options(options, first, tried.elements.values(), {"limit": few}))
    timed = read_run(first)
    best = finalists(dev_of(timed, tried.decoders, tried.lengths))["name"]
    finalists_elements = [tried.elements[name] for name in best]
    _decode(_run_options(options, folder, finalists_elements, whole))
    dev = with_speed(read_run(folder), timed)
    decoders = {name: tried.decoders[name] for name in best}
    chosen = choose(dev_of(dev, decoders, tried.lengths))
    recorded = ("suite", "model", "data", "limit", "first", "budget", "seed")
    meta = read_meta(folder)
    choice = {
        "rule": RULE,
        **{name: getattr(options, name) for name in recorded},
        "problems": {suite: problems_of(meta, suite) for suite in suites},
        "settings": Counter(tried.decoders.values()),
        "methods": choice_of(chosen, tried.spaces, options.out),
    }
    write_atomically(options.out / "choice.json", json.dumps(choice, indent=1) + "\n")
    page = described(chosen, tried.spaces, f"Chosen on these: {card_line(dev, measure(dev))}")
    write_atomically(options.out / "choice.md", page)
    print(page)
    print(f"the choice: {options.out}/choice.json")


def _run_options(
    options: TuneOptions, out: Path, methods: Iterable[str], more: dict[str, Any]
) -> RunOptions:
    """Options of a run of these methods, which resumes the one in `out` if there is one."""
    from harness.options import checked
    from harness.runs.options import RunOptions

    values = {
        name: getattr(options, name) for name in ("suite", "model", "data", "device", "threads")
    }
    # Tokens after EOS are padding: a decoder that is fast on these is not fast for a user.
    values["stop_at_eos"] = True
    values["resume"] = (out / "run.json").exists()
    return checked(RunOptions, {**values, **more, "out": out, "methods": tuple(methods)})


def _decode(options: RunOptions) -> None:
    """Decode a run, unless it is finished: another revision of the code may choose from it."""
    from harness.run import run
    from harness.runs.record import finished
    from harness.runs.resolve import resolve

    if options.out and options.resume and finished(options.out, resolve(options).config):
        return
    with tempfile.TemporaryDirectory(prefix="harness-") as scratch:
        run(options, Path(scratch), tables=False)


def choice_of(chosen: pd.DataFrame, spaces: Mapping[str, Space], folder: Path) -> dict[str, Any]:
    """The chosen methods for choice.json, by names like DECODER-tuned-GOAL.

    Args:
        chosen: of `choose`, with the columns method (the decoder's name in METHODS) and settings
            (lengths and options by suite).
        folder: of the file; paths of plugins are relative to it.
    """
    methods: dict[str, Any] = {}
    for row in chosen.to_dict("records"):
        space = spaces[row["decoder"]]
        goal = row["goal"]
        method = {
            "label": f"{space.label}, tuned ({goal})",
            "method": row["method"],
            "role": row["role"],
            "suites": row["settings"],
        }
        if space.plugin.endswith(".py"):
            method["plugin"] = os.path.relpath(Path(space.plugin).expanduser(), folder)
        elif space.plugin:
            method["plugin"] = space.plugin
        method["dev"] = {name: round(row[name], 4) for name in ("accuracy", "speed", "p_below")}
        methods[f"{row['decoder']}{TUNED}{goal}"] = method
    return methods


def described(chosen: pd.DataFrame, spaces: Mapping[str, Space], timing: str) -> str:
    """The choice in Markdown: a row per decoder and goal, then `timing` on the problems and
    seconds."""
    from harness.measures.choosing import RULE

    lines = [
        "# What was chosen",
        "",
        (
            f"{RULE[0].upper()}{RULE[1:]}. Accuracy and speed, over LLaDA's best, are means of the"
            " suites; p is of the test that a setting is below LLaDA's best."
        ),
        "",
        "| decoder | for | checkpoint | dev accuracy | p | speed | settings |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for row in chosen.to_dict("records"):
        shown = _shown_settings(row["settings"], spaces[row["decoder"]])
        lines.append(
            f"| {row['decoder']} | {row['goal']} | {row['checkpoint']} | {row['accuracy']:.1f} |"
            f" {row['p_below']:.3f} | {row['speed']:.2f}x | {shown} |"
        )
    return "\n".join([*lines, "", timing]) + "\n"


def _shown_settings(settings: Mapping[str, dict[str, Any]], space: Space) -> str:
    """The tuned options of a method as text, by suite where they differ."""
    tuned = {*space.values, *space.fixed}
    by_suite = {}
    for suite, values in settings.items():
        options = {name: value for name, value in values.items() if name in tuned}
        by_suite[suite] = format_label(options) or "defaults"
    if len(set(by_suite.values())) == 1:
        return next(iter(by_suite.values()))
    return "; ".join(f"{suite}: {options}" for suite, options in by_suite.items())


def main(line: list[str] | None = None) -> int:
    """The command line."""
    tune(parsed(TuneOptions, line, __doc__))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
