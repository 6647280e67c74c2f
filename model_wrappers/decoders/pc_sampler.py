"""PC-Sampler: confidence weighted by position and by how rare a token is (Huang et al., arXiv
2508.13021).

LLaDA's loop with another score: exp(-lambda i) min(-p log f, alpha), where i is the position in its
block, p the confidence and f the frequency of the token in a reference corpus. Shapes: N
candidates, V vocabulary.
"""

import json
from pathlib import Path
from typing import Any

import torch

from model_wrappers.decoders.llada import (
    Candidates,
    Choice,
    Even,
    UnmaskOptions,
    steps_per_block,
    unmask,
)
from model_wrappers.options import AboveZero, NotNegative, Positive
from model_wrappers.request import Request

EPSILON = 1e-9  # the official code's, in the logarithm of a frequency


class PCSamplerOptions(UnmaskOptions, frozen=True, kw_only=True):
    """steps: forwards for the whole response (None: its length). lambd: how much earlier positions
    come first. alpha: bound on a token's rarity. baseline: file of token counts, {"num_token": ..,
    "p_baseline_dict": {id: count}} as the official code has it; "nano" is the one that is shipped
    with nano; None takes every token for as rare as any other.
    """

    baseline: Path | None = None
    steps: Positive | None = None
    lambd: NotNegative = 0.25
    alpha: AboveZero = 10.0


def decode_pc_sampler(request: Request, options: PCSamplerOptions) -> None:
    """Fill the response. Raises ValueError for steps that do not fit its length and blocks, and for
    a bad baseline."""
    steps = steps_per_block(request.length, request.block_length, options.steps)
    frequency_V = read_frequencies(options.baseline, request.backbone.vocab_size).to(
        request.x_1L.device
    )
    unmask(
        Choice(request, options), Calibrated(request, options, steps, frequency_V), block_only=True
    )


class Calibrated(Even):
    """LLaDA's quotas, ranked by position and rarity."""

    def __init__(
        self, request: Request, options: PCSamplerOptions, steps: int, frequency_V: torch.Tensor
    ) -> None:
        super().__init__(steps)
        self._request = request
        self._options = options
        self._frequency_V = frequency_V

    def select(
        self, step: int, position_N: torch.Tensor, candidates: Candidates
    ) -> tuple[torch.Tensor, int]:
        rarity_N = -candidates.confidence_N * torch.log(
            self._frequency_V[candidates.token_N] + EPSILON
        )
        at_N = ((position_N - self._request.block_ends[0]) % self._request.block_length).float()
        score_N = torch.exp(-self._options.lambd * at_N) * rarity_N.clamp(max=self._options.alpha)
        return score_N, self._quotas[step]


def read_frequencies(baseline: Path | None, vocab_size: int) -> torch.Tensor:
    """How often a token comes in a reference corpus, (V,) float32; one that does not come counts as
    one.

    Raises ValueError if the file cannot be read, or is no such file for this vocabulary.
    """
    if baseline is None:
        return torch.full((vocab_size,), 1 / vocab_size)
    from model_wrappers.backbones.registry import NANO  # transformers: not for --list

    path = NANO / "frequencies.json" if str(baseline) == "nano" else baseline
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        total = int(content["num_token"])
        made_for = int(content.get("vocab_size", vocab_size))
        counts = {int(token): int(count) for token, count in content["p_baseline_dict"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"baseline {baseline} cannot be read: {type(error).__name__}: {error}"
        ) from error
    if made_for != vocab_size:
        raise ValueError(
            f"baseline {baseline} is of a vocabulary of {made_for} tokens, not {vocab_size};"
            " docs/methods.md makes one"
        )
    if total < 1 or any(
        not 0 <= token < vocab_size or count < 0 for token, count in counts.items()
    ):
        raise ValueError(
            f"baseline {baseline} is no table of token counts for a vocabulary of {vocab_size}"
            " tokens"
        )
    frequency_V = torch.full((vocab_size,), 1 / total)
    frequency_V[list(counts)] = torch.tensor([count / total for count in counts.values()])
    return frequency_V
