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

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import one_line_errors

DEFAULT_SECTIONS = "law,lemma,chains,neural"


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--sections",
        default=DEFAULT_SECTIONS,
        help="comma-separated: law, lemma, chains, neural, lists, streams (default: the first four)",
    )
    add("--tokens", type=int, default=2, help="law, lemma, chains: real tokens (default 2)")
    add("--positions", type=int, default=4, help="law, lemma: positions of a table (default 4)")
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
    add("--models", default="nano,nano-fef", help="streams: comma-separated (default nano,nano-fef)")
    add("--lists", type=int, default=100, help="lists: shuffles of the test split (default 100)")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="folder for the tables (CSV), the record (JSON) and the figures (PNG, PDF)")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> int:
    """The command line; 1 if a check failed."""
    asked = arguments_of(line)
    from harness.laws.sections import audit

    failures = audit(asked)
    if failures:
        print(f"audit failed: {'; '.join(failures)}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
