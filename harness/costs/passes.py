"""The passes that decoding is made of, on a made-up sequence, ready to be timed or to have their memory measured.

Shapes: B batch, L length of prompt and response.
"""

from __future__ import annotations

import torch

from harness.costs.timing import random_ids
from harness.errors import UserError
from model_wrappers import Backbone
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler

DRAFTS = 16  # the window of the paper's main table


class Passes:
    """Forwards of a random prompt and a masked response; L is their length in tokens.

    Raises UserError where they are too short for a window of DRAFTS or too long for the model.
    """

    def __init__(self, backbone: Backbone, prompt: int, response: int) -> None:
        length = prompt + response
        if prompt < 1 or response < 1 or not DRAFTS <= length <= backbone.max_length:
            raise UserError(
                f"a prompt of {prompt} and a response of {response} tokens cannot be measured: both must be positive, "
                f"and together from {DRAFTS} to the model's limit of {backbone.max_length}"
            )
        self.backbone, self.length, self._response = backbone, length, response
        self.x_1L = random_ids(backbone.vocab_size, length, backbone.device)
        self.x_1L[0, prompt:] = backbone.mask_id

    def forward(self, rows: int = 1, positions: int | None = None) -> None:
        """One forward; logits of the last `positions` of every row, None for all."""
        read = (
            None if positions is None else torch.arange(self.length - positions, self.length, device=self.x_1L.device)
        )
        self.backbone.logits(self.x_1L.repeat(rows, 1), positions=read)

    def plain(self) -> None:
        """A plain forward: one row, of which half of the response is read, as LLaDA's steps do on average."""
        self.forward(positions=max(1, self._response // 2))

    def draft(self) -> None:
        """A draft pass: one row, of which a window is read."""
        self.forward(positions=DRAFTS)

    def literal(self, rows: int) -> None:
        """Literal verification of as many drafts as rows: one position of each is read."""
        self.forward(rows, positions=1)

    def two_stream(self, window: int) -> TwoStream:
        """Two-stream verification of a window in a segment of the whole response, or of a window if that is wider."""
        return TwoStream(self.backbone, self.x_1L, window, max(window, self._response))


class TwoStream:
    """The two passes of two-stream verification as the decoder runs them; `context` comes first."""

    def __init__(self, backbone: Backbone, x_1L: torch.Tensor, window: int, segment: int) -> None:
        self._ledger = Ledger(backbone)
        start = x_1L.shape[1] - segment
        request = Request(self._ledger, self._ledger, x_1L, start, segment, 0.0, Sampler(0))
        self._verifier = TwoStreamVerifier(request, window)
        self._segment = list(range(start, x_1L.shape[1]))
        drafts = random_ids(backbone.vocab_size, window, torch.device("cpu"))[0].tolist()
        self._proposal = Proposal(drafts, None, None)

    def context(self) -> None:
        """The context pass: the whole sequence, of which the segment is read."""
        self._verifier.begin(self._segment)

    def verify(self) -> int:
        """Verify all drafts of a window at the segment's start; returns the tokens added after the cached ones."""
        before = self._ledger.tokens
        self._verifier.verify(self._segment, self._proposal)
        return self._ledger.tokens - before
