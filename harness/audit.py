"""Measure factorization error: how far the law of each decoder's output is from the law it should sample from.

    python harness/audit.py                              law, lemma and neural, on nano and on a table of 2^4
    python harness/audit.py --sections law --tokens 3    the decoders on a table of 3^4
    python harness/audit.py --sections neural --model FOLDER --prompts FILE --device cuda
    python harness/audit.py --sections lists             shuffles, beside a closed form (minutes)
    python harness/audit.py --sections streams           the law of two-stream verification beside the paper's

`law`: every decoder on an oracle whose joint is known, its output law by walking every branch of its randomness, or by
sampling. `lemma`: Lemma 1 and FeF-DLLM's law given a corrupted sequence, in numbers, under the uniform kernel.
`neural`: for a model, the total variation between its next w tokens drawn at once and drawn one after the other.
`lists`: shuffles of words, right with a probability that has a closed form where they are drawn at once. `streams`: how
far the target law of two-stream verification is from the paper's, place by place, against the anchor. Exit code 1 if
a decoder that must be exact is not, or one that cannot be looks exact; one decoder is broken on purpose and must be
caught. Total variation (TV) is in [0, 1], KL in nats.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import transformers
from rich.console import Console
from rich.progress import track

from harness.audit_law import LEVEL, Budget, Result, audit_law, law_failures, law_table
from harness.audit_lemma import audit_lemma, lemma_failures
from harness.audit_lists import lists_section, plot_lists
from harness.audit_neural import Prompts, audit_neural, check_fit, file_prompts, suite_prompts
from harness.audit_streams import audit_streams
from harness.environment import describe
from harness.errors import UserError, one_line_errors
from harness.nano_suites import GENERATORS
from harness.records import write_atomically
from model_wrappers import Backbone, load_backbone

SECTIONS = ("law", "lemma", "neural", "lists", "streams")
DEFAULT_SECTIONS = "law,lemma,neural"
COUNTS = ("samples", "prompts_per_suite", "chains", "span", "lists", "gen_length")
OUTCOMES = 1024  # most entries of a table: the lemma's joint has the square of it
SHOWN = (1, 2, 4, 8, 16, 32, 64)  # the w that are printed; all are stored
T = TypeVar("T")

LAW_NOTE = """\
TV: total variation to the joint p*. exact: all branches of the decoder's randomness were walked (runs: how many).
sampled: of so many samples; the TV is right within the bound with 95% confidence. KL: KL(p* || law), exact laws only.
Factorization error: LLaDA in random order is exact at one token a step and not at more, where tokens that depend on one
another are drawn independently. Selection bias: ranked by confidence even one token a step misses the joint, because
the tokens drawn decide which of them stay. Ranked by entropy they do not: one at a time is exact in that order too.
FeF at one diffusion step is exact; at more its re-masking by low confidence is such a selection, but the law is the
same for every window, every draft and without speculation.
SSD is left out: it is defined at temperature 0 only."""
STREAMS_NOTE = """\
TV between the target law of two-stream verification and the paper's at the same place, given the same tokens before it,
mean over the places of reference responses (dev problems), 95% interval over responses; and how often both have the
same most likely token. anchor: places a context pass; whole: one pass for all."""
NEURAL_NOTE = """\
TV between the next w response tokens drawn at once from their marginals, given a fully masked response, and drawn one
after the other, at temperature 1. The bound (Hoeffding) is for the mean over these very prompts."""


def check(asked: argparse.Namespace) -> list[str]:
    """The sections asked for. Raises UserError for an unknown one and for numbers that make no audit."""
    sections = [name.strip() for name in asked.sections.split(",")]
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        raise UserError(f"unknown section {unknown[0]!r}; valid: {', '.join(SECTIONS)}")
    least = {
        "tokens": 2,
        "positions": 2,
        "samples": 1,
        "branches": 0,
        "prompts_per_suite": 1,
        "chains": 1,
        "span": 1,
        "lists": 1,
    }
    for name, bound in (least | {"gen_length": 1, "seed": 0}).items():
        value = getattr(asked, name)
        if value is not None and value < bound:
            raise UserError(f"--{name.replace('_', '-')} {value} must be at least {bound}")
    if asked.tokens**asked.positions > OUTCOMES:
        raise UserError(
            f"--tokens {asked.tokens} --positions {asked.positions} make a table of more than {OUTCOMES} entries; "
            "ask for fewer"
        )
    return sections


def prepare_neural(asked: argparse.Namespace, backbone: Backbone) -> list[Prompts]:
    """The encoded prompts. Raises UserError or ValueError for what cannot be used."""
    if asked.prompts is not None:
        groups = [file_prompts(backbone, asked.prompts, asked.gen_length)]
    else:
        groups = [suite_prompts(backbone, suite, asked.prompts_per_suite, asked.gen_length) for suite in GENERATORS]
    check_fit(backbone, groups, asked.span)
    return groups


def make_folder(folder: Path) -> None:
    """The folder for what is written. Raises UserError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be made: {error.strerror}; choose another") from error


def progress(label: str) -> Callable[[Sequence[T]], Any]:
    """A progress bar on stderr around the items of a section."""
    quiet = not sys.stderr.isatty()
    return lambda items: track(items, label, console=Console(stderr=True), transient=True, disable=quiet)


def shown(table: pd.DataFrame, index: bool = False) -> str:
    """A table as text: three digits, nothing where there is no value."""
    return str(table.to_string(index=index, float_format="{:.3g}".format, na_rep=""))


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows for JSON: null where there is no value, text for an infinite one."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float) or math.isfinite(value):
            return value
        return None if math.isnan(value) else str(value)

    return [{str(name): plain(value) for name, value in row.items()} for row in table.to_dict("records")]


def draw_laws(results: list[Result], folder: Path) -> None:
    """error.png and .pdf: total variation against expected forward passes, a marker per decoder, bars where sampled."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6.5, 3.8))
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    decoders = list(dict.fromkeys(result.case.decoder for result in results))
    for number, decoder in enumerate(decoders):
        own = [result for result in results if result.case.decoder == decoder]
        axes.errorbar(
            [result.measured.forwards for result in own],
            [result.distance for result in own],
            yerr=[[min(result.measured.bound(), result.distance) for result in own], [r.measured.bound() for r in own]],
            fmt="os^Dv<>pP*X"[number % 11],
            color=plt.get_cmap("tab20")(2 * number % 20 + number // 10),
            fillstyle="none",  # decoders of one law lie on one another
            elinewidth=0.8,
            label=decoder,
        )
    axes.set(xlabel="expected forward passes", ylabel="total variation to the joint")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    _save(figure, folder / "error")


def draw_neural(table: pd.DataFrame, folder: Path) -> None:
    """neural.png and .pdf: total variation against w, a line per column, the last row being the bound."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(4.5, 3.2))
    for name in table:
        style = {"color": "black", "linewidth": 2} if name == "all" else {}
        axes.plot(range(1, len(table)), table[name].iloc[:-1], label=name, **style)
    axes.set(xlabel="tokens drawn at once, w", ylabel="total variation to the chain law")
    axes.set(xticks=range(1, len(table), 3), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, fontsize="small")
    _save(figure, folder / "neural")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, stem: Path) -> None:
    for kind in ("png", "pdf"):
        figure.savefig(stem.with_suffix(f".{kind}"), dpi=150, bbox_inches="tight")


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--sections",
        default=DEFAULT_SECTIONS,
        help=f"comma-separated: {', '.join(SECTIONS)} (default: the first three)",
    )
    add("--tokens", type=int, default=2, help="law, lemma: real tokens of a table (default 2)")
    add("--positions", type=int, default=4, help="law, lemma: places of a table (default 4)")
    add("--branches", type=int, default=25_000, help="walk every branch up to this estimate of them (default 25000)")
    add("--samples", type=int, default=4000, help="samples of a law that has more branches (default 4000)")
    add("--model", default="nano", help="neural, lists: nano, a folder or a hub id (default nano)")
    add("--device", default="cpu")
    add("--dtype")
    add("--prompts", type=Path, help='neural: JSON lines, {"prompt": text} (default: nano\'s generated dev problems)')
    add("--prompts-per-suite", type=int, default=10, help="neural, streams: dev problems per suite (default 10)")
    add("--gen-length", type=int, help="neural: tokens of the masked response (default: nano's, 64 for a file)")
    add("--chains", type=int, default=16, help="neural: chain samples per prompt, in one batch (default 16)")
    add("--span", type=int, default=16, help="neural: the largest w (default 16)")
    add("--models", default="nano,nano-two-stream", help="streams: comma-separated (default nano,nano-two-stream)")
    add("--lists", type=int, default=100, help="lists: shuffles of the test split (default 100)")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="folder for the tables (CSV), the record (JSON) and the figures (PNG, PDF)")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    asked = arguments_of(line)
    sections = check(asked)
    transformers.utils.logging.disable_progress_bar()
    backbone = load_backbone(asked.model, asked.device, asked.dtype)
    prompts = prepare_neural(asked, backbone) if "neural" in sections else []
    if asked.out is not None:
        make_folder(asked.out)
    budget = Budget(asked.branches, asked.samples, asked.seed)
    size = f"tables of {asked.tokens} tokens at {asked.positions} places, seed {asked.seed}"
    tables: dict[str, pd.DataFrame] = {}
    failures: list[str] = []
    if "law" in sections:
        with tempfile.TemporaryDirectory() as scratch:
            results = audit_law(asked.tokens, asked.positions, budget, Path(scratch), progress("law"))
        tables["law"] = law_table(results)
        failures += law_failures(results)
        print(f"\nlaw: {size}, temperature 1\n{shown(tables['law'])}\n{LAW_NOTE}")
        if asked.out is not None:
            draw_laws(results, asked.out)
    if "lemma" in sections:
        tables["lemma"] = audit_lemma(asked.tokens, asked.positions, budget, progress("lemma"))
        failures += lemma_failures(tables["lemma"])
        print(f"\nlemma: {size} and on, uniform kernel\n{shown(tables['lemma'])}")
    if "neural" in sections:
        neural = audit_neural(backbone, prompts, asked.span, asked.chains, asked.seed, LEVEL, progress("neural"))
        tables["neural"] = neural.reset_index()
        rows = [w for w in neural.index if not w.isdigit() or int(w) in (*SHOWN, asked.span)]
        print(f"\nneural: {asked.model}, {asked.chains} chains a prompt\n{shown(neural.loc[rows], index=True)}")
        print(NEURAL_NOTE)
        if asked.out is not None:
            draw_neural(neural, asked.out)
    if "lists" in sections:
        tables["lists"] = lists_section(backbone, asked.lists, asked.seed)
        short = tables["lists"].filter(regex="(method|%|forwards)$")
        print(f"\nlists: {asked.model}, {asked.lists} shuffles, temperature 1\n{shown(short)}")
        if asked.out is not None:
            plot_lists(tables["lists"], asked.out / "lists.png")
    if "streams" in sections:
        names = [name.strip() for name in asked.models.split(",")]
        backbones = {name: load_backbone(name, asked.device, asked.dtype) for name in names}
        tables["streams"] = audit_streams(backbones, asked.prompts_per_suite, progress=progress("streams"))
        print(f"\nstreams: {asked.models}\n{shown(tables['streams'])}\n{STREAMS_NOTE}")
    if asked.out is not None:
        write_record(asked, tables, failures)
    if failures:
        print(f"audit failed: {'; '.join(failures)}", file=sys.stderr)
        return 1
    return 0


def write_record(asked: argparse.Namespace, tables: dict[str, pd.DataFrame], failures: list[str]) -> None:
    """audit.json, with the arguments, the environment and every table, and one CSV file per table."""
    record: dict[str, Any] = {"arguments": {name: str(value) for name, value in vars(asked).items() if name != "out"}}
    record["environment"] = describe(asked.device, asked.dtype or "default")
    record["failures"] = failures
    record |= {name: rows_of(table) for name, table in tables.items()}
    write_atomically(asked.out / "audit.json", json.dumps(record, indent=1) + "\n")
    for name, table in tables.items():
        write_atomically(asked.out / f"{name}.csv", table.to_csv(index=False))


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
