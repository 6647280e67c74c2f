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

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import one_line_errors
from harness.options import option, parsed
from harness.suites.registry import SUITES

ENDS = "the decoding option that the schedule is for (default: as harness/run.py)"


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """What a schedule is for, and from what it is estimated."""

    model: str = option("nano, a folder or a hub id", "nano")
    suite: str = option(f"one of {', '.join(SUITES)}", required=True)
    steps: int | None = option("forwards for the whole response (default: half its length)")
    gen_length: int | None = option("tokens of a response (default: as harness/run.py)")
    block_length: int | None = option("tokens of a block (default: as harness/run.py)")
    logits_eos_inf: bool | None = option(ENDS, action=argparse.BooleanOptionalAction)
    confidence_eos_eot_inf: bool | None = option(ENDS, action=argparse.BooleanOptionalAction)
    responses: str | None = option("training responses, a JSONL file, or `generated` (default with nano)")
    examples: int = option("training responses (default 64)", 64, least=1)
    subsets: int = option("subsets of each size, per response (default 2)", 2, least=1)
    batch: int = option("rows of a forward (default 16)", 16, least=1)
    device: str = option("cpu, cuda, cuda:1, ...", "cpu")
    dtype: Literal["float32", "bfloat16", "float16"] | None = option("default: float32 on a CPU, else bfloat16")
    seed: int = option(None, 0)
    out: Path | None = option("JSON file; the plot is laid beside it (default: results/schedules/<model>/)")


def main(line: list[str] | None = None) -> int:
    """The command line."""
    options = parsed(ScheduleOptions, line, __doc__)
    from harness.methods.estimation import write_schedule

    print("\n".join(write_schedule(options)))
    return 0


if __name__ == "__main__":
    sys.exit(one_line_errors(main))
