"""Prophet: stop as soon as the answer is clear (Li et al., "Diffusion Language Models Know the
Answer Before Decoding", arXiv 2508.19982).

This is LLaDA's decoding with an early exit. The gap between the two highest logits is averaged over
the positions of the answer. Once it reaches a threshold, which falls as decoding goes on, every
mask gets its likeliest token. Shapes: L length of prompt and response, N candidates, M positions
whose logits are read, A positions of the answer.
"""

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, Even, steps_per_block, unmask
from model_wrappers.options import EndOptions, NotNegative, Positive
from model_wrappers.request import Request
from model_wrappers.transfers import to_device, to_host

# Shares of the steps at which a lower threshold begins; the official code's.
EARLY = 0.33
MID = 0.67


class ProphetOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `prophet`.

    Attributes:
        steps: forwards for the whole response without an exit (None: its length).
        early: the gap (a difference of logits) that ends decoding in the first third of the steps.
        mid: the gap that ends it in the second third.
        late: the gap that ends it in the last third.
        answer_start: index in the response of the answer's first token (None: the whole response is
            the answer).
        answer_length: number of the answer's tokens; it may reach beyond the response.
    """

    steps: Positive | None = None
    early: NotNegative = 7.5
    mid: NotNegative = 5.0
    late: NotNegative = 2.5
    answer_start: int | None = None
    answer_length: Positive = 5


def decode_prophet(request: Request, options: ProphetOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the steps do not fit the response's length and blocks, or the answer begins
            outside the response.
    """
    steps = steps_per_block(request.length, request.block_length, options.steps)
    foresight = Foresight(request, options, steps * len(request.block_ends))
    unmask(foresight.choice, Even(steps), foresight.propose, finish=foresight.finish)


class Foresight:
    """Proposes tokens at every mask of the response, and decides whether the answer is clear."""

    def __init__(self, request: Request, options: ProphetOptions, steps: int) -> None:
        self.choice = Choice(request, options)
        self._request = request
        self._options = options
        self._steps = steps
        self._step = 0
        self._answer_L = torch.zeros_like(request.x_1L[0], dtype=torch.bool)
        if options.answer_start is None:
            self._answer_L[request.start :] = True
        elif 0 <= options.answer_start < request.length:
            first = request.start + options.answer_start
            self._answer_L[first : first + options.answer_length] = True
        else:
            raise ValueError(
                f"answer_start={options.answer_start} must be in the response, 0 to"
                f" {request.length - 1}"
            )

    def propose(self, x_1L: Tensor, position_N: Tensor) -> Candidates:
        """The candidates of a step.

        The same forward reads the answer's positions and all masks of the response, for `finish`.
        """
        masked_L = x_1L[0] == self._request.mask_id
        self._read_M = (masked_L | self._answer_L).nonzero()[:, 0]
        self._candidates = self.choice.propose(x_1L, self._read_M)
        row_N = torch.searchsorted(self._read_M, position_N)
        token_M, confidence_M, logits_MV = self._candidates
        return Candidates(token_M[row_N], confidence_M[row_N], logits_MV)

    def finish(self) -> bool:
        """Fill every mask if the answer is clear, and return whether it is."""
        self._step += 1
        if self._gap() < self._threshold():
            return False
        # Answer positions that hold tokens already were read for the gap alone.
        masked_M = self._request.x_1L[0, self._read_M] == self._request.mask_id
        token_M, confidence_M, _ = self._candidates
        self._request.commit(
            self._read_M[masked_M], token_M[masked_M], confidence_M[masked_M], "unmasked"
        )
        return True

    def _gap(self) -> float:
        logits_MV = self._candidates.logits_NV
        (row_A,) = to_device(logits_MV.device, self._answer_L[self._read_M].nonzero()[:, 0])
        first_A, second_A = logits_MV.index_select(0, row_A).topk(2, dim=-1).values.T
        (gap_A,) = to_host(first_A - second_A)
        # Summed in float64, whatever the logits' dtype: the mean is compared with a threshold.
        return sum(gap_A.tolist()) / len(gap_A)

    def _threshold(self) -> float:
        options = self._options
        progress = self._step / self._steps
        if progress < EARLY:
            return options.early
        return options.mid if progress < MID else options.late
