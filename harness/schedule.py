"""Estimate a data-driven unmasking schedule for DDOSP (Lavenant and Zanella, arXiv 2510.25544).

    python harness/schedule.py --model nano --suite gsm8k
    python harness/schedule.py --model GSAI-ML/LLaDA-8B-Instruct --suite gsm8k --responses train.jsonl --device cuda

h(i) is the mean of -log p(x_j | x_S) over masked j, for random subsets S of i revealed tokens of training responses. It
is smoothed and then made monotone; the schedule 0 = a_0 < ... < a_K = N minimises the estimated factorization error
sum_k sum_{i = a_k}^{a_{k+1} - 1} [f(i) - f(a_k)], f(i) = h(0) - h(i), by dynamic programming in O(K N^2). Every block
has a profile and a schedule of its own: the blocks before it are clean, those after it masked. Writes quotas, profiles
and what they were made for and with as JSON, and a plot beside it; `harness/run.py --schedules FOLDER` takes the file
as FOLDER/<suite>.json. Cost: examples x subsets x gen_length forwards of one row.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import one_line_errors
from harness.suites.registry import SUITES


def arguments_of(line: list[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default="nano", help="nano, a folder or a hub id")
    add("--suite", required=True, help=f"one of {', '.join(SUITES)}")
    add("--steps", type=int, help="forwards for the whole response (default: half its length)")
    add("--gen-length", type=int, help="tokens of a response (default: as harness/run.py)")
    add("--block-length", type=int, help="tokens of a block (default: as harness/run.py)")
    for name in ("--logits-eos-inf", "--confidence-eos-eot-inf"):
        usual = "the decoding option that the schedule is for (default: as harness/run.py)"
        add(name, action=argparse.BooleanOptionalAction, default=None, help=usual)
    add("--responses", help="training responses, a JSONL file, or `generated` (default with nano)")
    add("--examples", type=int, default=64, help="training responses (default 64)")
    add("--subsets", type=int, default=2, help="subsets of each size, per response (default 2)")
    add("--batch", type=int, default=16, help="rows of a forward (default 16)")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="default: float32 on a CPU, else bfloat16")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="JSON file; the plot is laid beside it (default: results/schedules/<model>/)")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> int:
    """The command line."""
    asked = arguments_of(line)
    from harness.methods.estimation import write_schedule

    print("\n".join(write_schedule(asked)))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
