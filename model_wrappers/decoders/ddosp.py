"""DDOSP: LLaDA with a data-driven unmasking schedule (Lavenant and Zanella, arXiv 2510.25544).

Every block has quotas, from a schedule that `harness/schedule.py` estimates from training
responses; without one they are the uniform ones, as in the FeF-DLLM paper's reproduction.
"""

import json
from pathlib import Path

import msgspec

from model_wrappers.decoders.llada import Choice, Even, UnmaskOptions, steps_per_block, unmask
from model_wrappers.options import Positive
from model_wrappers.request import Request


class DDOSPOptions(UnmaskOptions, frozen=True, kw_only=True):
    """steps: forwards for the whole response (None: half its length). schedule: path of a schedule
    file, or "nano/<suite>" for one that is shipped with nano; None for the uniform schedule.
    """

    steps: Positive | None = None
    schedule: Path | None = None


def decode_ddosp(request: Request, options: DDOSPOptions) -> None:
    """Fill the response. Raises ValueError for bad steps, and for a schedule of other lengths or
    steps."""
    blocks = len(request.block_ends)
    steps = max(request.length // 2, blocks) if options.steps is None else options.steps
    per_block = steps_per_block(request.length, request.block_length, steps)
    rule = Even(per_block)
    if options.schedule is not None:
        rule = Scheduled(
            read_schedule(options.schedule, blocks, steps, request.block_length), per_block
        )
    unmask(Choice(request, options), rule)


class Scheduled(Even):
    """Ranked by confidence, as many a step as the schedule has for the block."""

    def __init__(self, quotas: list[list[int]], steps: int) -> None:
        super().__init__(steps)
        self._blocks = iter(quotas)

    def steps(self, masked: int) -> int:
        self._quotas = next(self._blocks)
        return self._steps


def schedule_path(schedule: str | Path) -> Path:
    """Where a schedule lies: "nano/<suite>" is shipped with nano, anything else is a path."""
    from model_wrappers.backbones.registry import NANO  # transformers: not for --list

    folder, _, suite = str(schedule).partition("/")
    shipped = folder == "nano" and suite.isidentifier()
    return NANO / "schedules" / f"{suite}.json" if shipped else Path(schedule)


def read_schedule(
    schedule: str | Path, blocks: int, steps: int, block_length: int
) -> list[list[int]]:
    """The quotas of a schedule, one list per block; `steps` are those of all blocks together.

    Raises ValueError if it cannot be read, or is no schedule for these blocks and steps.
    """
    try:
        content = json.loads(schedule_path(schedule).read_text(encoding="utf-8"))
        quotas = msgspec.convert(content["quotas"], list[list[Positive]])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"schedule {schedule} cannot be read: {type(error).__name__}: {error};"
            " harness/schedule.py writes one"
        ) from error
    found = [(len(block), sum(block)) for block in quotas]
    wanted = [(steps // blocks, block_length)] * blocks
    if found != wanted:
        there, here = (
            ", ".join(f"{s} steps for {n} tokens" for s, n in each) for each in (found, wanted)
        )
        raise ValueError(f"schedule {schedule} has blocks of {there}; wanted are {here}")
    return quotas
