"""A published number again: its model, problems, lengths and options, and whether what comes out is the same.

    fef-dllm reproduce --list
    fef-dllm reproduce llada-8b/gsm8k --data FOLDER --device cuda
    fef-dllm reproduce paper/fef-2/gsm8k --model models.json --data FOLDER --device cuda --limit 200

What follows the name are options of harness/run.py; --model is a copy of the recipe's model, named in the answer. A
published accuracy is `the same` if it lies in the 95% interval (Wilson's) of the measured one, a speed over LLaDA if it
lies in the bootstrap interval; fewer problems make wider intervals. No source names a revision of the weights.
"""

import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from harness.elements import format_call
from harness.errors import UserError, one_line_errors
from harness.methods.presets import PRESETS
from harness.options import option, parsed
from harness.runs.options import RunOptions
from harness.suites.published import PAPER_TABLES, PUBLISHED
from harness.suites.registry import split_named
from model_wrappers.options import meant

PAPER_SOURCE = "the FeF-DLLM paper's tables; LLaDA-8B-Instruct, its suites' settings, 8 A100"
FIXED = ("suite", "methods", "gen_length", "block_length", "temperature")  # what a recipe says
GIVE = "give --data FOLDER of the real ones, and as --model a copy of that model"
REFUSED = (*FIXED, "prompt", "chat_template_args", "plan", "status")
UNLIKE = ("stop_at_eos", "dtype", "seed")  # are named beside the number


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(RunOptions):
    """A run's options, and which number it is to give."""

    name: str | None = option("a name of --list", nargs="?")
    model: str = option("in the place of the recipe's: a folder, a hub id, or roles", "")


@dataclass(frozen=True)
class PublishedNumber:
    """One published number: accuracy in percent, and speed over LLaDA in seconds, of a preset with options.

    judge: whose prompt and judge, where they are not those of OpenCompass's configuration here.
    """

    model: str
    suite: str
    method: str
    accuracy: float
    source: str
    speed: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    judge: str = ""

    @property
    def element(self) -> str:
        """The method as an element of --methods."""
        return format_call(self.method, self.options)


def _paper() -> Iterator[tuple[str, PublishedNumber]]:
    """The rows of the paper's tables of results and of training that are presets here."""
    tables = json.loads(PAPER_TABLES.read_text(encoding="utf-8"))
    presets = {preset.label: name for name, preset in PRESETS.items()}
    for row in (*tables["main_results"], *tables["ablation_training"]):
        for suite, accuracy, speed in zip(tables["suites"], row["acc"], row["speed"], strict=True):
            method = presets[row["method"]]
            over_llada = None if method == "llada" else speed
            made = PublishedNumber("GSAI-ML/LLaDA-8B-Instruct", suite, method, accuracy, PAPER_SOURCE, over_llada)
            yield f"paper/{method}/{suite}", made


RECIPES = {
    f"{entry.recipe}/{suite}": PublishedNumber(
        entry.model,
        suite,
        entry.decoder or "llada",
        accuracy,
        entry.source,
        options=entry.settings(suite) or {},
        judge=entry.judge,
    )
    for entry in PUBLISHED
    for suite, accuracy in entry.accuracy.items()
} | dict(_paper())


def described() -> str:
    """A line for each recipe."""
    lines = []
    for name, recipe in RECIPES.items():
        speed = "" if recipe.speed is None else f" {recipe.speed:.2f}x"
        judge = f"; judged by {recipe.judge}" if recipe.judge else ""
        lines.append(
            f"{name:32} {recipe.accuracy:5.1f}%{speed:7} {recipe.model} {recipe.element} ({recipe.source}{judge})"
        )
    return "\n".join(lines)


def verdict(recipe: PublishedNumber, row: Mapping[Any, Any], model: str = "", unlike: Sequence[str] = ()) -> str:
    """Published and measured, in a line. row: of `harness.measures.intervals.summarise`; model: if not the recipe's.

    unlike: options that the recipe does not have.
    """
    parts = []
    numbers = [("accuracy", recipe.accuracy, "%", 1), ("speedup", recipe.speed, "x", 2)]
    for name, published, unit, digits in numbers:
        low, measured, high = (row[each] for each in (f"{name}_low", name, f"{name}_high"))
        if published is None or math.isnan(measured):
            continue
        same = "the same" if low <= published <= high else "not the same"
        shown = [f"{value:.{digits}f}" for value in (published, measured, low, high)]
        parts.append("{}: published {}{u}, measured {}{u} ({} to {}): {}".format(name, *shown, same, u=unit))
    if not parts:
        return "nothing was scored"
    judge = f"; published with {recipe.judge}'s prompt and judge" if recipe.judge else ""
    with_options = f"; with {', '.join(unlike)}" if unlike else ""
    measured_with = f"; measured with {model}, published of {recipe.model}" if model else ""
    return f"{'; '.join(parts)}; {row['scored']:.0f} problems{judge}{measured_with}{with_options}"


def reproduce(options: ReproduceOptions) -> str:
    """Do a recipe's run, and say what came out. Raises UserError for an unknown one, and for an option that it has."""
    usual = {each.name: each.default for each in fields(RunOptions)}
    changed = [f"--{name.replace('_', '-')}" for name in REFUSED if getattr(options, name) != usual[name]]
    if options.name not in RECIPES or changed:
        wrong = f"recipe {options.name} takes no {', '.join(changed)}; leave it out, or use harness/run.py"
        unknown = f"there is no recipe {options.name}" if options.name else "a recipe's name is needed"
        raise UserError(wrong if options.name in RECIPES else unknown + meant(options.name, RECIPES))
    from model_wrappers.backbones.registry import SHIPPED

    if split_named(options.data) is not None or not SHIPPED.keys().isdisjoint(re.split("[=,]", options.model)):
        raise UserError(f"{options.name} was published of real problems and {RECIPES[options.name].model}; {GIVE}")
    from harness.run import evaluate

    recipe = RECIPES[options.name]
    methods = [recipe.element] if recipe.speed is None else ["llada", recipe.element]
    given = {name: getattr(options, name) for name in usual if name not in FIXED}
    summary = evaluate(methods, recipe.suite, **given | {"model": options.model or recipe.model}).summary
    unlike = [f"--{name.replace('_', '-')}" for name in UNLIKE if getattr(options, name) != usual[name]]
    return f"{options.name}: {verdict(recipe, summary.iloc[-1].to_dict(), options.model, unlike)}"


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ReproduceOptions, line, __doc__)
    print(described() if options.list else reproduce(options))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(one_line_errors(main))
