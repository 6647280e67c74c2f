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

import sys
from collections.abc import Callable
from typing import Any

from harness.audit.options import AuditOptions, checked_sections
from harness.errors import explained, one_line_errors
from harness.options import parsed


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a check failed."""
    failures = audit(parsed(AuditOptions, line, __doc__))
    if failures:
        print(f"audit failed: {'; '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


def audit(options: AuditOptions) -> list[str]:
    """Run, print and record the sections.

    Returns:
        The failed checks.

    Raises:
        UserError: options that cannot be used, before anything is measured.
    """
    names = checked_sections(options)
    # After the options are checked: torch and transformers take seconds to import.
    import transformers

    from harness.audit import sections
    from harness.records.environment import write_tables
    from harness.records.store import write_atomically

    transformers.utils.logging.disable_progress_bar()
    runs: dict[str, Callable[[], Any]] = {
        "law": lambda: sections.law(options),
        "lemma": lambda: sections.lemma(options),
        "chains": lambda: sections.chains(options),
        "streams": lambda: sections.streams(options),
    }
    # A model that cannot be loaded is refused now, not after the minutes of the other sections.
    if "neural" in names:
        inputs = sections.neural_inputs(options)
        runs["neural"] = lambda: sections.neural_section(options, inputs)
    if options.out is not None:
        with explained(f"cannot write to {options.out}", OSError):
            options.out.mkdir(parents=True, exist_ok=True)
    tables = {}
    failures = []
    for name in names:
        section = runs[name]()
        print(f"\n{section.text}")
        tables[name] = section.table
        failures += section.failures
    if options.out is not None:
        write_tables(options.out / "audit.json", options, tables, {"failures": failures})
        for name, table in tables.items():
            write_atomically(options.out / f"{name}.csv", table.to_csv(index=False))
    return failures


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
