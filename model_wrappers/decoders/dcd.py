"""DCD-style decoding: a diffusion proposal corrected by a causal model (after Liu et al., Discrete Copula Diffusion).

As in the FeF-DLLM paper's reproduction, an approximation of the original: the copula model is the same checkpoint under
a causal attention bias, and the proposal's logits are l_cop + alpha * l_diff. Logits at a place predict its own token
(no shift). Shapes: L length, N candidates, V vocabulary.
"""

from __future__ import annotations

import torch

from model_wrappers.decoders.llada import Choice, Even, Proposal, steps_per_block, unmask
from model_wrappers.request import Request
from model_wrappers.trace import Window


def dcd(
    request: Request,
    *,
    steps: int | None = None,
    alpha: float = 1.0,
    sequential: bool = False,
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place; no speculative windows.

    steps: diffusion steps for the whole response (default: its length). alpha: weight of the diffusion logits.
    sequential: fill the masked positions left to right, one causal pass each, then keep the step's quota and re-mask
    the rest; else one causal pass a step. The EOS options are LLaDA's. Raises ValueError for bad values.
    """
    if not 0 <= alpha < float("inf"):
        raise ValueError(f"alpha={alpha} must be finite and not negative")
    backbone = request.backbone
    choice = Choice(request, logits_eos_inf, confidence_eos_eot_inf)

    def one_pass(x_1L: torch.Tensor, place_N: torch.Tensor) -> Proposal:
        diffusion_NV = backbone.logits(x_1L, positions=place_N)[0]
        return choice(backbone.logits(x_1L, positions=place_N, causal=True)[0] + alpha * diffusion_NV)

    def left_to_right(x_1L: torch.Tensor, place_N: torch.Tensor) -> Proposal:
        diffusion_NV = backbone.logits(x_1L, positions=place_N)[0]
        filled_1L, proposals = x_1L.clone(), []
        for place, diffusion_V in zip(place_N, diffusion_NV, strict=True):
            copula_1V = backbone.logits(filled_1L, positions=place[None], causal=True)[0]
            proposals.append(choice(copula_1V + alpha * diffusion_V))
            filled_1L[0, place] = proposals[-1][0]
        token_N, confidence_N, logits_NV = (torch.cat(parts) for parts in zip(*proposals, strict=True))
        return token_N, confidence_N, logits_NV

    rule = Even(steps_per_block(request.length, request.block_length, steps))
    unmask(request, left_to_right if sequential else one_pass, rule, stop_at_eos)
    return []
