"""What is audited, and how closely: the options of `python -m harness.audit`."""

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.options import option

SECTIONS = ("law", "lemma", "chains", "neural", "streams")
OUTCOMES = 1024  # most entries of a table; the lemma's joint p(x_0, x_t) has the square of these


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


def checked_sections(options: AuditOptions) -> list[str]:
    """The sections to run, in their order.

    Raises:
        UserError: an unknown section, or tables that are too large.
    """
    named = {name.strip() for name in options.sections.split(",")}
    unknown = named - set(SECTIONS)
    if unknown:
        names = ", ".join(map(repr, sorted(unknown)))
        raise UserError(f"unknown section {names}; valid: {', '.join(SECTIONS)}")
    if options.tokens**options.positions > OUTCOMES:
        raise UserError(
            f"--tokens {options.tokens} --positions {options.positions} make a table of more than"
            f" {OUTCOMES} entries; ask for fewer"
        )
    return [name for name in SECTIONS if name in named]
