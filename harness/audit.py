"""Measure factorization error: does each decoder sample from the distribution it claims to?

    python harness/audit.py                              law, lemma and neural, on nano and on a table of 2^4
    python harness/audit.py --sections law --tokens 3    the decoders on a table of 3^4
    python harness/audit.py --sections neural --model FOLDER --prompts FILE --device cuda
    python harness/audit.py --sections lists             shuffles, beside a closed form (minutes)
    python harness/audit.py --sections streams           the target of two-stream verification beside the paper's

`law`: every decoder on an oracle whose joint is known. Its output law is found by walking every branch of its
randomness, or by sampling. `lemma`: Lemma 1 and FeF-DLLM's law given a corrupted sequence, in numbers, under the
uniform kernel. `neural`: for a model, the total variation between its next w tokens drawn at once and drawn one after
the other. `lists`: shuffles of words; drawn at once, they are right with a probability that has a closed form.
`streams`: how far the target of two-stream verification is from the paper's at each position, against the anchor. Exit
code 1 if a decoder that must be exact is not, or one that cannot be looks exact; one decoder is broken on purpose and
must be caught. Total variation (TV) is in [0, 1], KL in nats.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.errors import one_line_errors
from harness.options import option, parsed


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What is audited, and how closely."""

    sections: str = option(
        "comma-separated: law, lemma, chains, neural, lists, streams (default: the first four)",
        "law,lemma,chains,neural",
    )
    tokens: int = option("law, lemma, chains: real tokens (default 2)", 2, least=2)
    positions: int = option("law, lemma: positions of a table (default 4)", 4, least=2)
    branches: int = option("walk every branch up to this estimate of them (default 25000)", 25000, least=0)
    samples: int = option("samples of a law that has more branches (default 4000)", 4000, least=1)
    model: str = option("neural, lists: nano, a folder or a hub id (default nano)", "nano")
    device: str = option(None, "cpu")
    dtype: str | None = option(None)
    prompts: Path | None = option('neural: JSON lines, {"prompt": text} (default: nano\'s generated dev problems)')
    prompts_per_suite: int = option("neural, streams: dev problems per suite (default 10)", 10, least=1)
    gen_length: int | None = option("neural: tokens of the masked response (default: nano's, 64 for a file)", least=1)
    chains: int = option("neural: chain samples per prompt, in one batch (default 16)", 16, least=1)
    span: int = option("neural: the largest w (default 16)", 16, least=1)
    models: str = option("streams: comma-separated (default nano,nano-fef)", "nano,nano-fef")
    lists: int = option("lists: shuffles of the test split (default 100)", 100, least=1)
    seed: int = option(None, 0, least=0)
    out: Path | None = option("folder for the tables (CSV), the record (JSON) and the figures (PNG, PDF)")


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a check failed."""
    options = parsed(AuditOptions, line, __doc__)
    from harness.laws.sections import audit

    failures = audit(options)
    if failures:
        print(f"audit failed: {'; '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
