"""The sections of the audit: functions of the options that return a `Section`, and draw its figure
into the output folder if it has one.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from harness.audit import exact, fef, neural
from harness.audit.options import AuditOptions
from model_wrappers import Backbone, load_backbone

SHOWN = (1, 2, 4, 8, 16, 32, 64)  # the w that are printed; all are stored


@dataclass(frozen=True)
class Section:
    """What a section measured.

    Attributes:
        table: as it is stored.
        text: what is printed.
        failures: the checks that failed, a sentence each.
    """

    table: pd.DataFrame
    text: str
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class NeuralInputs:
    """The model and prompts of the neural section, which fit each other."""

    backbone: Backbone
    prompts: list[Any]


def neural_inputs(options: AuditOptions) -> NeuralInputs:
    """Load what the neural section needs, before anything is measured.

    Raises:
        UserError: prompts or responses that do not fit into the model.
    """
    backbone = load_backbone(options.model, options.device, options.dtype)
    prompts = neural.prompts_of(
        backbone, options.prompts, options.prompts_per_suite, options.gen_length
    )
    neural.check_fit(backbone, prompts, options.span)
    return NeuralInputs(backbone, prompts)


def law(options: AuditOptions) -> Section:
    """Every decoder's output law on an oracle whose joint is known."""
    # DDOSP reads its schedule from a file.
    with tempfile.TemporaryDirectory() as scratch:
        results = exact.audit_law(
            options.tokens, options.positions, budget_of(options), Path(scratch), progress("law")
        )
    if options.out is not None:
        exact.draw_laws(results, options.out)
    table = exact.law_table(results)
    text = f"law: {size_of(options)}, temperature 1\n{shown(table)}\n{exact.NOTE}"
    return Section(table, text, exact.law_failures(results))


def lemma(options: AuditOptions) -> Section:
    """Lemma 1, and FeF-DLLM's law given a corrupted sequence."""
    table = fef.audit_lemma(
        options.tokens, options.positions, budget_of(options), progress("lemma")
    )
    text = f"lemma: {size_of(options)} and on, uniform kernel\n{shown(table)}"
    return Section(table, text, fef.lemma_failures(table))


def chains(options: AuditOptions) -> Section:
    """Two-stream verification: one law for every window and draft."""
    table = fef.audit_chains(options.tokens, options.seed, progress("chains"))
    head = f"chains: a random LLaDA of {options.tokens} tokens, two-stream"
    return Section(table, f"{head}\n{shown(table)}\n{fef.NOTE}", fef.chains_failures(table))


def neural_section(options: AuditOptions, inputs: NeuralInputs) -> Section:
    """A model's next w tokens drawn at once, against one after the other."""
    measured = neural.audit_neural(
        inputs.backbone,
        inputs.prompts,
        options.span,
        options.chains,
        options.seed,
        exact.LEVEL,
        progress("neural"),
    )
    if options.out is not None:
        neural.draw_neural(measured, options.out)
    # The last row is no w but the bound, which is always printed.
    printed = (*SHOWN, options.span)
    rows = [w for w in measured.index if not w.isdigit() or int(w) in printed]
    head = f"neural: {options.model}, {options.chains} chains a prompt"
    text = f"{head}\n{shown(measured.loc[rows], index=True)}\n{neural.NOTE}"
    return Section(measured.reset_index(), text)


def streams(options: AuditOptions) -> Section:
    """The target of two-stream verification against the paper's, by anchor."""
    names = [name.strip() for name in options.models.split(",")]
    backbones = {name: load_backbone(name, options.device, options.dtype) for name in names}
    table = neural.audit_streams(backbones, options.prompts_per_suite, progress("streams"))
    return Section(table, f"streams: {options.models}\n{shown(table)}\n{neural.STREAMS_NOTE}")


def budget_of(options: AuditOptions) -> exact.Budget:
    """The limits of law and lemma: branches that are walked, and samples drawn where there are
    more."""
    return exact.Budget(options.branches, options.samples, options.seed)


def size_of(options: AuditOptions) -> str:
    """A description of the oracles of law and lemma."""
    tokens = f"{options.tokens} tokens at {options.positions} positions"
    return f"tables of {tokens}, seed {options.seed}"


def progress(label: str) -> Callable[[Sequence[Any]], Any]:
    """A progress bar on stderr around the items of a section."""
    from rich.console import Console
    from rich.progress import track

    quiet = not sys.stderr.isatty()
    return lambda items: track(
        items, label, console=Console(stderr=True), transient=True, disable=quiet
    )


def shown(table: pd.DataFrame, index: bool = False) -> str:
    """A table as text: three digits, nothing where there is no value."""
    return str(table.to_string(index=index, float_format="{:.3g}".format, na_rep=""))
