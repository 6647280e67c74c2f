"""The audit's sections, one after the other: tables on the screen, records and figures in a folder."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
import transformers
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from harness.errors import UserError
from harness.laws.chains import audit_chains, chains_failures
from harness.laws.exact import LEVEL, Budget, Result, audit_law, law_failures, law_table
from harness.laws.lemma import audit_lemma, lemma_failures
from harness.laws.lists import lists_section, plot_lists
from harness.laws.neural import Prompts, audit_neural, check_fit, file_prompts, suite_prompts
from harness.laws.streams import audit_streams
from harness.records.environment import write_tables
from harness.records.store import write_atomically
from harness.training.tokenizer import NANO_SUITES
from model_wrappers import Backbone, load_backbone

if TYPE_CHECKING:
    from harness.audit import AuditOptions

SECTIONS = ("law", "lemma", "chains", "neural", "lists", "streams")
OUTCOMES = 1024  # most entries of a table: the lemma's joint has the square of it
SHOWN = (1, 2, 4, 8, 16, 32, 64)  # the w that are printed; all are stored
T = TypeVar("T")

LAW_NOTE = """\
TV: total variation to the joint p*. exact: all branches of the decoder's randomness were walked (runs: how many).
sampled: of so many samples; the TV is right within the bound with 95% confidence. KL: KL(p* || law), exact laws only.
Factorization error: LLaDA in random order is exact at one token a step and not at more, where tokens that depend on one
another are drawn independently. Selection bias: ranked by confidence even one token a step misses the joint, because
the drawn tokens decide which of them are committed. Ranked by entropy they do not, and one at a time is exact too.
FeF at one diffusion step is exact. At more steps its re-masking by low confidence is such a selection, but its law is
the same for every window, every draft and without speculation.
SSD is left out: it is defined at temperature 0 only."""
CHAINS_NOTE = """\
TV between laws at temperature 1, all branches walked. Every way to decode a chain must have the law of decoding it one
position at a time; the self-check must not. To full verification it is the distance of the chain, not an error."""
STREAMS_NOTE = """\
TV between the target of two-stream verification and the paper's at the same position, given the same tokens before it:
mean over the positions of reference responses (dev problems), with a 95% interval over responses; and how often both
have the same most likely token. anchor: positions per context pass; whole: one pass for all, and another one where the
best token has a probability below `fresh below`. contexts: context passes a response."""
NEURAL_NOTE = """\
TV between the next w response tokens drawn at once from their marginals, given a fully masked response, and drawn one
after the other, at temperature 1. The bound (Hoeffding) is for the mean over these very prompts."""


def check(options: AuditOptions) -> list[str]:
    """The sections of the options. Raises UserError for an unknown one, and for tables that are too large."""
    sections = [name.strip() for name in options.sections.split(",")]
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        raise UserError(f"unknown section {unknown[0]!r}; valid: {', '.join(SECTIONS)}")
    if options.tokens**options.positions > OUTCOMES:
        raise UserError(
            f"--tokens {options.tokens} --positions {options.positions} make a table of more than {OUTCOMES} entries; "
            "ask for fewer"
        )
    return sections


def prepare_neural(options: AuditOptions, backbone: Backbone) -> list[Prompts]:
    """The encoded prompts. Raises UserError or ValueError for what cannot be used."""
    if options.prompts is not None:
        groups = [file_prompts(backbone, options.prompts, options.gen_length)]
    else:
        groups = [
            suite_prompts(backbone, suite, options.prompts_per_suite, options.gen_length) for suite in NANO_SUITES
        ]
    check_fit(backbone, groups, options.span)
    return groups


def progress(label: str) -> Callable[[Sequence[T]], Any]:
    """A progress bar on stderr around the items of a section."""
    quiet = not sys.stderr.isatty()
    return lambda items: track(items, label, console=Console(stderr=True), transient=True, disable=quiet)


def shown(table: pd.DataFrame, index: bool = False) -> str:
    """A table as text: three digits, nothing where there is no value."""
    return str(table.to_string(index=index, float_format="{:.3g}".format, na_rep=""))


def audit(options: AuditOptions) -> list[str]:
    """Run the sections of the options and print them; returns the failed checks, one line each."""
    sections = check(options)
    transformers.utils.logging.disable_progress_bar()
    backbone = load_backbone(options.model, options.device, options.dtype)
    prompts = prepare_neural(options, backbone) if "neural" in sections else []
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {options.out} cannot be made: {error.strerror}; choose another") from error
    budget = Budget(options.branches, options.samples, options.seed)
    size = f"tables of {options.tokens} tokens at {options.positions} positions, seed {options.seed}"
    tables: dict[str, pd.DataFrame] = {}
    failures: list[str] = []
    if "law" in sections:
        with tempfile.TemporaryDirectory() as scratch:
            results = audit_law(options.tokens, options.positions, budget, Path(scratch), progress("law"))
        tables["law"] = law_table(results)
        failures += law_failures(results)
        print(f"\nlaw: {size}, temperature 1\n{shown(tables['law'])}\n{LAW_NOTE}")
        if options.out is not None:
            draw_laws(results, options.out)
    if "lemma" in sections:
        tables["lemma"] = audit_lemma(options.tokens, options.positions, budget, progress("lemma"))
        failures += lemma_failures(tables["lemma"])
        print(f"\nlemma: {size} and on, uniform kernel\n{shown(tables['lemma'])}")
    if "chains" in sections:
        tables["chains"] = audit_chains(options.tokens, options.seed, progress("chains"))
        failures += chains_failures(tables["chains"])
        print(
            f"\nchains: a random LLaDA of {options.tokens} tokens, two-stream\n{shown(tables['chains'])}\n{CHAINS_NOTE}"
        )
    if "neural" in sections:
        neural = audit_neural(backbone, prompts, options.span, options.chains, options.seed, LEVEL, progress("neural"))
        tables["neural"] = neural.reset_index()
        rows = [w for w in neural.index if not w.isdigit() or int(w) in (*SHOWN, options.span)]
        print(f"\nneural: {options.model}, {options.chains} chains a prompt\n{shown(neural.loc[rows], index=True)}")
        print(NEURAL_NOTE)
        if options.out is not None:
            draw_neural(neural, options.out)
    if "lists" in sections:
        tables["lists"] = lists_section(backbone, options.lists, options.seed)
        short = tables["lists"].filter(regex="(method|%|forwards)$")
        print(f"\nlists: {options.model}, {options.lists} shuffles, temperature 1\n{shown(short)}")
        if options.out is not None:
            plot_lists(tables["lists"], options.out / "lists.png")
    if "streams" in sections:
        names = [name.strip() for name in options.models.split(",")]
        backbones = {name: load_backbone(name, options.device, options.dtype) for name in names}
        tables["streams"] = audit_streams(backbones, options.prompts_per_suite, progress=progress("streams"))
        print(f"\nstreams: {options.models}\n{shown(tables['streams'])}\n{STREAMS_NOTE}")
    if options.out is not None:
        write_tables(options.out / "audit.json", options, tables, {"failures": failures})
        for name, table in tables.items():
            write_atomically(options.out / f"{name}.csv", table.to_csv(index=False))
    return failures


def draw_laws(results: list[Result], folder: Path) -> None:
    """error.png and .pdf: total variation against expected forward passes, a marker per decoder, bars where sampled."""
    figure = Figure(figsize=(6.5, 3.8))
    axes = figure.subplots()
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    decoders = list(dict.fromkeys(result.case.decoder for result in results))
    for number, decoder in enumerate(decoders):
        own = [result for result in results if result.case.decoder == decoder]
        axes.errorbar(
            [result.measured.forwards for result in own],
            [result.distance for result in own],
            yerr=[[min(result.measured.bound(), result.distance) for result in own], [r.measured.bound() for r in own]],
            fmt="os^Dv<>pP*X"[number % 11],
            color=colormaps["tab20"](2 * number % 20 + number // 10),
            fillstyle="none",  # markers of decoders with the same law overlap
            elinewidth=0.8,
            label=decoder,
        )
    axes.set(xlabel="expected forward passes", ylabel="total variation to the joint")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, folder / "error")


def draw_neural(table: pd.DataFrame, folder: Path) -> None:
    """neural.png and .pdf: total variation against w, a line per column, the last row being the bound."""
    figure = Figure(figsize=(4.5, 3.2))
    axes = figure.subplots()
    for name in table:
        style: dict[str, Any] = {"color": "black", "linewidth": 2} if name == "all" else {}
        axes.plot(range(1, len(table)), table[name].iloc[:-1], label=name, **style)
    axes.set(xlabel="tokens drawn at once, w", ylabel="total variation to the chain law")
    axes.set(xticks=range(1, len(table), 3), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize="small")
    _save(figure, folder / "neural")


def _save(figure: Figure, stem: Path) -> None:
    for kind in ("png", "pdf"):
        figure.savefig(stem.with_suffix(f".{kind}"), dpi=150, bbox_inches="tight")
