"""LLaDA: semi-autoregressive blocks, low-confidence remasking (Nie et al., arXiv 2502.09992).

Token for token the official sampler at temperature 0; LLaDA/2 is `steps = gen_length // 2`.
Shapes: L length of prompt and response, N candidates (masked positions up to the block's end), V vocabulary.
"""

from __future__ import annotations

import torch

from model_wrappers.backbone import Ledger
from model_wrappers.sampling import Sampler, draw, law, quotas
from model_wrappers.trace import Window

REMASKING = ("low_confidence", "random")


def llada(
    backbone: Ledger,
    x_1L: torch.Tensor,
    start: int,
    block_length: int,
    temperature: float,
    sampler: Sampler,
    *,
    steps: int | None = None,
    cfg_scale: float = 0.0,
    remasking: str = "low_confidence",
    logits_eos_inf: bool = False,
    confidence_eos_eot_inf: bool = False,
) -> list[Window]:
    """Fill the response x_1L[:, start:] in place; no speculative windows.

    steps: forwards for the whole response (default: its length), a multiple of the number of blocks. cfg_scale: weight
    of classifier-free guidance; above 0 each step runs a second row with the prompt masked. remasking: which
    predictions stay, "low_confidence" or "random". logits_eos_inf: EOS is never predicted. confidence_eos_eot_inf: EOS
    and EoT are left out of the softmax that gives confidences, so that they commit last. Raises ValueError for bad
    values.
    """
    length = x_1L.shape[1] - start
    blocks = length // block_length
    steps = length if steps is None else steps
    if not isinstance(steps, int) or steps < blocks or steps % blocks or steps > length:
        raise ValueError(
            f"steps={steps!r} must be a multiple of the {blocks} blocks and at most the response length {length}"
        )
    if remasking not in REMASKING:
        raise ValueError(f"unknown remasking {remasking!r}; valid: {', '.join(REMASKING)}")
    if not cfg_scale >= 0:
        raise ValueError(f"cfg_scale={cfg_scale} must not be negative")
    given_1L = x_1L != backbone.mask_id

    for end in range(start + block_length, x_1L.shape[1] + 1, block_length):
        masked = int((x_1L[0, end - block_length : end] == backbone.mask_id).sum())
        for quota in quotas(masked, steps // blocks):
            place_N = (x_1L[0, :end] == backbone.mask_id).nonzero()[:, 0]
            if cfg_scale > 0:
                rows_2L = torch.cat([x_1L, x_1L.masked_fill(given_1L, backbone.mask_id)])
                conditional_NV, unconditional_NV = backbone.logits(rows_2L, positions=place_N)
                logits_NV = unconditional_NV + (cfg_scale + 1) * (conditional_NV - unconditional_NV)
            else:
                logits_NV = backbone.logits(x_1L, positions=place_N)[0]
            if logits_eos_inf:
                logits_NV = _without(logits_NV, backbone.eos_id)

            if temperature > 0:
                token_N = draw(law(logits_NV, temperature), temperature, sampler)
            else:
                token_N = logits_NV.argmax(-1)
            if confidence_eos_eot_inf:
                logits_NV = _without(logits_NV, backbone.eos_id, backbone.eot_id)
            # Over the whole row, as the official sampler ranks them: equal confidences then fall the same way.
            confidence_L = torch.full((x_1L.shape[1],), -torch.inf, dtype=logits_NV.dtype, device=x_1L.device)
            if remasking == "random":
                confidence_L[place_N] = sampler.order(len(place_N)).to(confidence_L)
            else:
                confidence_L[place_N] = torch.softmax(logits_NV, -1).gather(1, token_N[:, None])[:, 0]
            chosen = confidence_L.topk(quota).indices
            proposal_L = x_1L[0].index_put((place_N,), token_N)
            x_1L[0, chosen] = proposal_L[chosen]
    return []


def _without(logits_NV: torch.Tensor, *tokens: int | None) -> torch.Tensor:
    """The logits with those tokens at -inf; a copy, for the backbone may keep its own."""
    known = torch.tensor([token for token in tokens if token is not None], device=logits_NV.device)
    return logits_NV.index_fill(-1, known, -torch.inf)
