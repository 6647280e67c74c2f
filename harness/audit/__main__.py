"""Measure factorization error: does each decoder sample from the distribution it claims to?

    python -m harness.audit                            # all but streams, on nano and a table of 2^4
    python -m harness.audit --sections law --tokens 3  # the decoders on a table of 3^4
    python -m harness.audit --sections neural --model FOLDER --prompts FILE --device cuda
    python -m harness.audit --sections streams         # two streams against the paper's target

`law`: every decoder's output law on an oracle whose joint is known, by walking every branch of its
randomness, or by sampling. `lemma`: Lemma 1 and FeF-DLLM's law given a corrupted sequence.
`chains`: two-stream verification has one law for every window and draft. `neural`: a model's next w
tokens drawn at once against one after the other. `streams`: the target of two-stream verification
against the paper's, by anchor. Exit code 1 if a decoder that must be exact is not, one that cannot
be looks exact, or a broken one is not caught. Total variation (TV) is in [0, 1], KL in nats.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, explained, one_line_errors
from harness.options import option, parsed

if TYPE_CHECKING:
    import pandas as pd

DRAWN = {"law": "error", "neural": "neural"}  # figures of sections
SECTIONS = ("law", "lemma", "chains", "neural", "streams")
OUTCOMES = 1024  # most entries of a table: the lemma's joint has the square of it
SHOWN = (1, 2, 4, 8, 16, 32, 64)  # the w that are printed; all are stored


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What is audited, and how closely."""

    sections: str = option(
        f"comma-separated: {', '.join(SECTIONS)} (default: the first four)", ",".join(SECTIONS[:4])
    )
    tokens: int = option("law, lemma, chains: real tokens (default 2)", 2, least=2)
    positions: int = option("law, lemma: positions of a table (default 4)", 4, least=2)
    branches: int = option(
        "walk every branch up to this estimate of them (default 25000)", 25000, least=0
    )
    samples: int = option("samples of a law that has more branches (default 4000)", 4000, least=1)
    model: str = option("neural: nano, a folder or a hub id (default nano)", "nano")
    device: str = option(None, "cpu")
    dtype: str | None = option(None)
    prompts: Path | None = option(
        'neural: JSON lines, {"prompt": text} (default: nano\'s generated dev problems)'
    )
    prompts_per_suite: int = option(
        "neural, streams: dev problems per suite (default 10)", 10, least=1
    )
    gen_length: int | None = option(
        "neural: tokens of the masked response (default: nano's, 64 for a file)", least=1
    )
    chains: int = option("neural: chain samples per prompt, in one batch (default 16)", 16, least=1)
    span: int = option("neural: the largest w (default 16)", 16, least=1)
    models: str = option("streams: comma-separated (default nano,nano-fef)", "nano,nano-fef")
    seed: int = option(None, 0, least=0)
    out: Path | None = option(
        "folder for the tables (CSV), the record (JSON) and the figures (PNG, PDF)"
    )


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a check failed."""
    failures = audit(parsed(AuditOptions, line, __doc__))
    if failures:
        print(f"audit failed: {'; '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


def audit(options: AuditOptions) -> list[str]:
    """Run, print and record the sections; returns the failed checks. Raises UserError before
    anything is measured."""
    sections = [name.strip() for name in options.sections.split(",")]
    wrong = "".join(
        f"unknown section {name!r}; valid: {', '.join(SECTIONS)}; "
        for name in {*sections} - {*SECTIONS}
    )
    if options.tokens**options.positions > OUTCOMES:
        size = f"--tokens {options.tokens} --positions {options.positions}"
        wrong += f"{size} make a table of more than {OUTCOMES} entries; ask for fewer"
    if wrong:
        raise UserError(wrong.removesuffix("; "))
    import transformers

    from harness.audit import exact, fef, neural
    from harness.records.environment import write_tables
    from harness.records.store import write_atomically
    from model_wrappers import load_backbone

    transformers.utils.logging.disable_progress_bar()
    tables: dict[str, pd.DataFrame] = {}
    failures: list[str] = []
    budget = exact.Budget(options.branches, options.samples, options.seed)
    if "neural" in sections:  # before anything is measured
        backbone = load_backbone(options.model, options.device, options.dtype)
        prompts = neural.prompts_of(
            backbone, options.prompts, options.prompts_per_suite, options.gen_length
        )
        neural.check_fit(backbone, prompts, options.span)
    if options.out is not None:
        with explained(f"cannot write to {options.out}", OSError):
            options.out.mkdir(parents=True, exist_ok=True)
    size = (
        f"tables of {options.tokens} tokens at {options.positions} positions, seed {options.seed}"
    )
    if "law" in sections:
        with tempfile.TemporaryDirectory() as scratch:
            results = exact.audit_law(
                options.tokens, options.positions, budget, Path(scratch), progress("law")
            )
        tables["law"] = exact.law_table(results)
        failures += exact.law_failures(results)
        print(f"\nlaw: {size}, temperature 1\n{shown(tables['law'])}\n{exact.NOTE}")
        if options.out is not None:
            exact.draw_laws(results, options.out)
    if "lemma" in sections:
        tables["lemma"] = fef.audit_lemma(
            options.tokens, options.positions, budget, progress("lemma")
        )
        failures += fef.lemma_failures(tables["lemma"])
        print(f"\nlemma: {size} and on, uniform kernel\n{shown(tables['lemma'])}")
    if "chains" in sections:
        tables["chains"] = fef.audit_chains(options.tokens, options.seed, progress("chains"))
        failures += fef.chains_failures(tables["chains"])
        print(
            f"\nchains: a random LLaDA of {options.tokens} tokens,"
            f" two-stream\n{shown(tables['chains'])}"
        )
        print(fef.NOTE)
    if "neural" in sections:
        how = (options.span, options.chains, options.seed, exact.LEVEL)
        found = neural.audit_neural(backbone, prompts, *how, progress("neural"))
        tables["neural"] = found.reset_index()
        rows = [w for w in found.index if not w.isdigit() or int(w) in (*SHOWN, options.span)]
        print(
            f"\nneural: {options.model}, {options.chains} chains a"
            f" prompt\n{shown(found.loc[rows], index=True)}"
        )
        print(neural.NOTE)
        if options.out is not None:
            neural.draw_neural(found, options.out)
    if "streams" in sections:
        names = [name.strip() for name in options.models.split(",")]
        backbones = {name: load_backbone(name, options.device, options.dtype) for name in names}
        tables["streams"] = neural.audit_streams(
            backbones, options.prompts_per_suite, progress("streams")
        )
        print(f"\nstreams: {options.models}\n{shown(tables['streams'])}\n{neural.STREAMS_NOTE}")
    if options.out is not None:
        write_tables(options.out / "audit.json", options, tables, {"failures": failures})
        for name, table in tables.items():
            write_atomically(options.out / f"{name}.csv", table.to_csv(index=False))
    return failures


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


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
