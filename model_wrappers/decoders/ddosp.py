"""DDOSP: LLaDA with a data-driven unmasking schedule (Lavenant and Zanella, arXiv 2510.25544).

Only how many positions each step commits differs from LLaDA: the quotas come from a schedule that
`harness/schedule.py` estimates from training responses. Without one they are the uniform ones, as in the FeF-DLLM
paper's reproduction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from model_wrappers.backbone import Ledger
from model_wrappers.decoders.llada import Choice, Even, steps_per_block, unmask
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Window


def ddosp(
    backbone: Ledger,
    x_1L: torch.Tensor,
    start: int,
    block_length: int,
    temperature: float,
    sampler: Sampler,
    *,
    steps: int | None = None,
    schedule: str | None = None,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
) -> list[Window]:
    """Fill the response x_1L[:, start:] in place; no speculative windows.

    steps: forwards for the whole response (default: half its length). schedule: path of a schedule file, whose quotas
    every block follows; None for the uniform schedule. The EOS options are LLaDA's. Raises ValueError for bad values
    and for a schedule made for other steps or another block length.
    """
    length = x_1L.shape[1] - start
    per_block = steps_per_block(
        length, block_length, max(length // 2, length // block_length) if steps is None else steps
    )
    rule = Even(per_block) if schedule is None else Scheduled(read_schedule(schedule, per_block, block_length))
    unmask(
        x_1L,
        start,
        block_length,
        lambda x_1L, place_N: backbone.logits(x_1L, positions=place_N)[0],
        Choice(backbone, temperature, sampler, logits_eos_inf, confidence_eos_eot_inf),
        rule,
    )
    return []


class Scheduled:
    """Ranked by confidence, as many a step as the schedule says."""

    def __init__(self, quotas: list[int]) -> None:
        self._quotas = quotas

    def steps(self, masked: int) -> int:
        return len(self._quotas)

    def select(self, step: int, logits_NV: torch.Tensor, confidence_N: torch.Tensor) -> tuple[torch.Tensor, int]:
        return confidence_N, self._quotas[step]


def read_schedule(path: str, steps: int, block_length: int) -> list[int]:
    """The quotas of a schedule file for one block. Raises ValueError if it is no schedule for these steps and block."""
    try:
        content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        quotas = content["quotas"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"schedule {path} cannot be read: {error}; harness/schedule.py writes one") from error
    if not isinstance(quotas, list) or not all(type(quota) is int and quota >= 1 for quota in quotas):
        raise ValueError(f"schedule {path}: quotas must be whole numbers of at least 1")
    if len(quotas) != steps or sum(quotas) != block_length:
        raise ValueError(
            f"schedule {path} is for {len(quotas)} steps and a block of {sum(quotas)}, not {steps} and {block_length}"
        )
    return quotas
