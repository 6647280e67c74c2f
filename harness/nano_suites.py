"""Nano's suites: splits of the generated problems, and test files in the formats that OpenCompass's datasets read.

Generated and real problems take one way: `write_suites` lays out the same files in the same folders as the real data,
so `harness/run.py` cannot tell them apart. Train, dev and test never overlap: the split of a problem is a hash of what
it asks, whatever its names and wordings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from harness.nano_problems import Problem, gsm8k, lists, math
from harness.nano_programs import humaneval, mbpp

GENERATORS: dict[str, Callable[[Random], Problem]] = {
    "gsm8k": gsm8k,
    "math": math,
    "humaneval": humaneval,
    "mbpp": mbpp,
    "lists": lists,
}
SPLITS = ("train", "dev", "test")
TEST_PROBLEMS = 200


def split_of(problem: Problem) -> str:
    """`test`, `dev` (one in sixteen each) or `train`, by a hash of the problem's key."""
    bucket = hashlib.sha256(problem.key.encode()).digest()[0] % 16
    return {0: "test", 1: "dev"}.get(bucket, "train")


def draw(suite: str, split: str, rng: Random) -> Problem:
    """One problem of a suite's split, by rejection."""
    if suite not in GENERATORS or split not in SPLITS:
        raise ValueError(
            f"unknown suite or split: {suite}, {split}; valid: {', '.join(GENERATORS)}; {', '.join(SPLITS)}"
        )
    while True:
        problem = GENERATORS[suite](rng)
        if split_of(problem) == split:
            return problem


def problems(suite: str, split: str, count: int, seed: int = 0) -> Iterator[Problem]:
    """`count` problems with different questions, the same for the same arguments.

    Raises ValueError if the split does not seem to hold that many.
    """
    rng = Random(f"{suite} {split} {seed}")
    seen: set[str] = set()
    draws = 0
    while len(seen) < count:
        draws += 1
        if draws > 20 * count + 1000:
            raise ValueError(f"{suite} has fewer than {count} different {split} problems; ask for fewer")
        problem = draw(suite, split, rng)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


# The folder layout of OpenCompass's data (the same as the real files').
FILES = {
    "gsm8k": "gsm8k/test.jsonl",
    "math": "math/test_prm800k_500.json",
    "humaneval": "humaneval/human-eval-v2-20210705.jsonl",
    "mbpp": "mbpp/mbpp.jsonl",
    "lists": "lists/test.jsonl",
}
MBPP_FIRST_TEST_ROW = 10  # OpenCompass takes rows 10 to 509 of mbpp.jsonl as the test set


def write_suites(folder: Path, split: str = "test", count: int = TEST_PROBLEMS) -> None:
    """Write `count` problems of every suite below `folder/data`, as the real files are laid out."""
    for suite, name in FILES.items():
        rows = [problem.row for problem in problems(suite, split, count)]
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if suite == "humaneval":
            rows = [{"task_id": f"HumanEval/{i}", **row} for i, row in enumerate(rows)]
        elif suite == "mbpp":
            rows = [rows[i % len(rows)] for i in range(-MBPP_FIRST_TEST_ROW, len(rows))]
            rows = [{"task_id": i + 1, **row} for i, row in enumerate(rows)]
        if suite == "math":
            text = json.dumps({str(i): row for i, row in enumerate(rows)}, indent=0)
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows)
        if suite == "gsm8k":  # the loader wants a train file too; nothing reads its rows
            path.with_name("train.jsonl").write_text(text, encoding="utf-8")
        path.write_text(text, encoding="utf-8")
