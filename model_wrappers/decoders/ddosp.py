"""DDOSP: LLaDA with a data-driven unmasking schedule (Lavenant and Zanella, arXiv 2510.25544).

Every block has quotas, from a schedule that `harness/schedule.py` estimates from training
responses; without one they are the uniform ones, as in the FeF-DLLM paper's reproduction.
"""

from pathlib import Path

import msgspec

from model_wrappers.decoders.llada import Choice, Even, UnmaskOptions, steps_per_block, unmask
from model_wrappers.options import Positive
from model_wrappers.request import Request


class DDOSPOptions(UnmaskOptions, frozen=True, kw_only=True):
    """Options of the decoder `ddosp`.

    Attributes:
        steps: forwards for the whole response (None: half its length).
        schedule: path of a schedule file, or "nano/<suite>" for one that is shipped with nano; None
            for the uniform schedule.
    """

    steps: Positive | None = None
    schedule: Path | None = None


def decode_ddosp(request: Request, options: DDOSPOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: bad steps, and a schedule of other lengths or steps.
    """
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
    """The quotas of a schedule.

    Args:
        schedule: as `schedule_path` takes it.
        blocks: of the response.
        steps: of all blocks together.
        block_length: tokens of a block.

    Returns:
        One list per block.

    Raises:
        ValueError: it cannot be read, or is no schedule for these blocks and steps.
    """
    try:
        content = schedule_path(schedule).read_bytes()
        quotas = msgspec.json.decode(content, type=ScheduleFile).quotas
    except (OSError, ValueError) as error:
        raise ValueError(
            f"schedule {schedule} cannot be read: {type(error).__name__}: {error};"
            " harness/schedule.py writes one"
        ) from error
    there = [(len(block), sum(block)) for block in quotas]
    wanted = [(steps // blocks, block_length)] * blocks
    if there != wanted:
        raise ValueError(
            f"schedule {schedule} has blocks of {_described(there)}; wanted are"
            f" {_described(wanted)}"
        )
    return quotas


class ScheduleFile(msgspec.Struct):
    """What a decoder reads of a schedule: how many tokens each step of each block commits."""

    quotas: list[list[Positive]]


def _described(blocks: list[tuple[int, int]]) -> str:
    return ", ".join(f"{steps} steps for {tokens} tokens" for steps, tokens in blocks)
