"""PC-Sampler: confidence weighted by position and by how rare a token is (Huang et al., arXiv
2508.13021).

LLaDA's loop with another score: exp(-lambda i) min(-p log f, alpha), where i is the index of the
position in its block, p the confidence and f the frequency of the token in a reference corpus.
Shapes: N candidates, V vocabulary.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import torch
from msgspec import Meta
from torch import Tensor

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
    """Options of the decoder `pc_sampler`.

    Attributes:
        baseline: file of token counts in the official code's format, {"num_token": ..,
            "p_baseline_dict": {id: count}}; "nano" is the file that comes with nano (None: all
            tokens are equally frequent).
        steps: forwards for the whole response (None: its length).
        lambd: lambda, how strongly earlier positions are preferred.
        alpha: upper bound on -p log f.
    """

    baseline: Path | None = None
    steps: Positive | None = None
    lambd: NotNegative = 0.25
    alpha: AboveZero = 10.0


def decode_pc_sampler(request: Request, options: PCSamplerOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the steps do not fit the response's length and blocks, or the baseline cannot
            be used.
    """
    steps = steps_per_block(request.length, request.block_length, options.steps)
    frequency_V = read_frequencies(options.baseline, request.backbone.vocab_size)
    unmask(
        Choice(request, options), Calibrated(request, options, steps, frequency_V), block_only=True
    )


class Calibrated(Even):
    """LLaDA's quotas, filled in the order of position, confidence and rarity."""

    def __init__(
        self, request: Request, options: PCSamplerOptions, steps: int, frequency_V: Tensor
    ) -> None:
        super().__init__(steps)
        self._request = request
        self._options = options
        self._frequency_V = frequency_V

    def select(self, step: int, position_N: Tensor, candidates: Candidates) -> tuple[Tensor, int]:
        rarity_N = -candidates.confidence_N * torch.log(
            self._frequency_V[candidates.token_N] + EPSILON
        )
        # Counted from the first block's end: the prompt's length need not divide by the block
        # length.
        index_N = ((position_N - self._request.block_ends[0]) % self._request.block_length).float()
        score_N = torch.exp(-self._options.lambd * index_N) * rarity_N.clamp(
            max=self._options.alpha
        )
        return score_N, self._quotas[step]


def read_frequencies(baseline: Path | None, vocab_size: int) -> Tensor:
    """The frequency of every token in a reference corpus, float32 (V,).

    A token that the corpus does not have gets the frequency of one that it has once.

    Args:
        baseline: a file, "nano", or None, as in `PCSamplerOptions`.
        vocab_size: V, of the model.

    Raises:
        ValueError: the file cannot be read, or is not for a vocabulary of this size.
    """
    if baseline is None:
        return torch.full((vocab_size,), 1 / vocab_size)
    from model_wrappers.backbones.registry import NANO  # transformers: not for --list

    path = NANO / "frequencies.json" if str(baseline) == "nano" else baseline
    try:
        corpus = msgspec.json.decode(path.read_bytes(), type=Corpus, strict=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"baseline {baseline} cannot be read: {type(error).__name__}: {error}"
        ) from error
    counts = corpus.p_baseline_dict
    # Official files do not name their vocabulary's size: there only a larger id shows a mismatch.
    corpus_size = max([corpus.vocab_size or vocab_size, *(token + 1 for token in counts)])
    if corpus_size != vocab_size:
        raise ValueError(
            f"baseline {baseline} is of a vocabulary of {corpus_size} tokens, not {vocab_size};"
            " docs/methods.md makes one"
        )
    frequency_V = torch.full((vocab_size,), 1 / corpus.num_token)
    frequency_V[list(counts)] = torch.tensor(
        [count / corpus.num_token for count in counts.values()]
    )
    return frequency_V


class Corpus(msgspec.Struct):
    """Token counts of a corpus, in the official code's format and, if known, its vocabulary
    size."""

    num_token: Positive
    p_baseline_dict: dict[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)]]
    vocab_size: Positive | None = None
