"""DDOSP: LLaDA with a data-driven unmasking schedule (Lavenant and Zanella, arXiv 2510.25544).

Each block has quotas from a schedule, which `harness/schedule.py` estimates from training
responses. Without a schedule the quotas are even, as in the FeF-DLLM paper's reproduction.
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
        schedule: path of a schedule file, or "nano/<suite>" for a schedule that comes with nano
            (None: the uniform schedule).
    """

    steps: Positive | None = None
    schedule: Path | None = None


def decode_ddosp(request: Request, options: DDOSPOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the steps do not fit the response's length and blocks, or the schedule is for
            other lengths or steps.
    """
    blocks = len(request.block_ends)
    # Two tokens a step, but each block needs a step.
    steps = max(request.length // 2, blocks) if options.steps is None else options.steps
    per_block = steps_per_block(request.length, request.block_length, steps)
    rule = Even(per_block)
    if options.schedule is not None:
        rule = Scheduled(
            read_schedule(options.schedule, blocks, steps, request.block_length), per_block
        )
    unmask(Choice(request, options), rule)


class Scheduled(Even):
    """A rule that ranks by confidence and takes each block's quotas from a schedule."""

    def __init__(self, quotas: list[list[int]], steps: int) -> None:
        super().__init__(steps)
        self._blocks = iter(quotas)

    def steps(self, masked: int) -> int:
        self._quotas = next(self._blocks)
        return self._steps


def schedule_path(schedule: str | Path) -> Path:
    """The path of a schedule: "nano/<suite>" names one that comes with nano, other texts are
    paths."""
    from model_wrappers.backbones.registry import NANO  # transformers: not for --list

    folder, _, suite = str(schedule).partition("/")
    shipped = folder == "nano" and suite.isidentifier()
    return NANO / "schedules" / f"{suite}.json" if shipped else Path(schedule)


def read_schedule(
    schedule: str | Path, blocks: int, steps: int, block_length: int
) -> list[list[int]]:
    """Read the quotas of a schedule file.

    Args:
        schedule: a path or "nano/<suite>", as in `schedule_path`.
        blocks: number of blocks of the response.
        steps: number of steps of all blocks together.
        block_length: tokens of a block.

    Returns:
        One list a block: how many tokens each of its steps commits.

    Raises:
        ValueError: the file cannot be read, or is no schedule for these blocks and steps.
    """
    try:
        content = schedule_path(schedule).read_bytes()
        quotas = msgspec.json.decode(content, type=ScheduleFile).quotas
    except (OSError, ValueError) as error:
        raise ValueError(
            f"schedule {schedule} cannot be read: {type(error).__name__}: {error};"
            " harness/schedule.py writes one"
        ) from error
    actual = [(len(block), sum(block)) for block in quotas]
    expected = [(steps // blocks, block_length)] * blocks
    if actual != expected:
        raise ValueError(
            f"schedule {schedule} has blocks of {_described(actual)}; wanted are"
            f" {_described(expected)}"
        )
    return quotas


class ScheduleFile(msgspec.Struct):
    """The part of a schedule file that decoding needs: tokens that each step of each block
    commits."""

    quotas: list[list[Positive]]


def _described(blocks: list[tuple[int, int]]) -> str:
    return ", ".join(f"{steps} steps for {tokens} tokens" for steps, tokens in blocks)
