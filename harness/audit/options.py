"""What is audited, and how closely: the options of `python -m harness.audit`."""

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.options import option

SECTIONS = ("law", "lemma", "chains", "neural", "streams")
MOST_OUTCOMES = 1024  # of tokens ** positions; the lemma's joint table grows as its square


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What is audited, and how closely."""

    sections: str = option(
        f"comma-separated: {', '.join(SECTIONS)} (default: the first four)", ",".join(SECTIONS[:4])
    )
    tokens: int = option("law, lemma, chains: real tokens (default 2)", 2, least=2)
    positions: int = option("law, lemma: positions of a table (default 4)", 4, least=2)
    branches: int = option(
        "enumerate all branches if at most this many are estimated, else sample (default 25000)",
        25000,
        least=0,
    )
    samples: int = option("samples of a law with more branches (default 4000)", 4000, least=1)
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
        "neural: tokens of the masked response (default: nano's, with --prompts 64)", least=1
    )
    chains: int = option("neural: chain samples per prompt, in one batch (default 16)", 16, least=1)
    span: int = option("neural: the most tokens that are drawn at once (default 16)", 16, least=1)
    models: str = option(
        "streams: the models, comma-separated (default nano,nano-fef)", "nano,nano-fef"
    )
    seed: int = option(None, 0, least=0)
    out: Path | None = option(
        "folder for the tables (CSV), the record (JSON) and the figures (PNG, PDF)"
    )


def checked_sections(options: AuditOptions) -> list[str]:
    """The sections to run, in the order of SECTIONS, each once.

    Raises:
        UserError: a section is unknown, or --tokens and --positions make a table of more than
            MOST_OUTCOMES entries, whichever sections are chosen.
    """
    named = {name.strip() for name in options.sections.split(",")}
    unknown = named - set(SECTIONS)
    if unknown:
        names = ", ".join(map(repr, sorted(unknown)))
        raise UserError(f"unknown section {names}; valid: {', '.join(SECTIONS)}")
    if options.tokens**options.positions > MOST_OUTCOMES:
        raise UserError(
            f"--tokens {options.tokens} --positions {options.positions} make a table of more than"
            f" {MOST_OUTCOMES} entries; ask for fewer"
        )
    return [name for name in SECTIONS if name in named]
