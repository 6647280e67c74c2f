"""DCD-style decoding: a diffusion proposal corrected by a causal model (after Liu et al., Discrete
Copula Diffusion).

As in the FeF-DLLM paper's reproduction, the copula model is the same checkpoint with causal
attention. Tokens are proposed by the logits l_cop + alpha * l_diff, both those that predict the
token at the position itself.
Shapes: L length, N candidates, V vocabulary.
"""

import torch
from torch import Tensor

from model_wrappers.decoders.llada import Candidates, Choice, Even, steps_per_block, unmask
from model_wrappers.options import EndOptions, NotNegative, Positive
from model_wrappers.request import Request


class DCDOptions(EndOptions, frozen=True, kw_only=True):
    """Options of the decoder `dcd`.

    Attributes:
        steps: diffusion steps for the whole response (None: its length).
        alpha: weight of the diffusion logits.
        sequential: True fills the masked positions from left to right by one causal pass each, then
            commits the step's quota of them and leaves the others masked; False makes one causal
            pass a step.
    """

    steps: Positive | None = None
    alpha: NotNegative = 1.0
    sequential: bool = False


def decode_dcd(request: Request, options: DCDOptions) -> None:
    """Fill the response.

    Raises:
        ValueError: the steps do not fit the response's length and blocks.
    """
    backbone = request.backbone
    alpha = options.alpha
    choice = Choice(request, options)

    def one_pass(x_1L: Tensor, position_N: Tensor) -> Candidates:
        diffusion_NV = backbone.logits(x_1L, positions=position_N)[0]
        return choice(
            backbone.logits(x_1L, positions=position_N, causal=True)[0] + alpha * diffusion_NV
        )

    def left_to_right(x_1L: Tensor, position_N: Tensor) -> Candidates:
        diffusion_NV = backbone.logits(x_1L, positions=position_N)[0]
        # A copy: the proposals of a step are seen by later ones, and committed only by its quota.
        filled_1L = x_1L.clone()
        proposals = []
        for position, diffusion_V in zip(position_N, diffusion_NV, strict=True):
            copula_1V = backbone.logits(filled_1L, positions=position[None], causal=True)[0]
            proposals.append(choice(copula_1V + alpha * diffusion_V))
            filled_1L[0, position] = proposals[-1].token_N
        return Candidates(*(torch.cat(parts) for parts in zip(*proposals, strict=True)))

    rule = Even(steps_per_block(request.length, request.block_length, options.steps))
    unmask(choice, rule, left_to_right if options.sequential else one_pass)
