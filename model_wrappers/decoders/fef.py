"""FeF-DLLM: prefix-conditioned targets with speculative verification (the paper's Algorithm 2).

Within a diffusion step the joint law of the committed tokens is the chain product of target laws (Theorem 1), whatever
the draft and the window. Shapes: L length of prompt and response, W window, V vocabulary.
"""

from __future__ import annotations

import math

import torch

from model_wrappers.backbone import Ledger
from model_wrappers.diffusion import make_kernel
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler, draw, law, lowest, residual
from model_wrappers.trace import Window

SCOPES = ("all", "pass")
KERNELS = ("absorbing", "uniform")


def fef(
    request: Request,
    *,
    steps: int = 2,
    window: int = 16,
    speculative: bool = True,
    draft: Ledger,
    remask_fraction: float = 0.5,
    confidence_scope: str = "all",
    kernel: str = "absorbing",
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place; returns its speculative windows.

    Predicted places (J_pred) are those that hold masks, or all of them under the uniform kernel. steps: diffusion
    steps; all of a block's finish before the next block starts. window: most drafts verified at once.
    speculative: False decodes one position at a time from its target law. draft: the model of the draft laws.
    remask_fraction: share of a block's predicted places that is re-corrupted after a step, the least confident first.
    confidence_scope: "all" ranks every position by its latest confidence, "pass" only those committed in the last pass
    (Algorithm 2 read literally). kernel: the forward kernel that positions are re-corrupted through, at its last time:
    "absorbing" masks them, "uniform" draws them anew, and a response of masks then starts from such draws. stop_at_eos:
    in the last step, fill the rest with EOS once all before an EOS is resolved. Raises ValueError for bad values.
    """
    if steps < 1 or window < 1:
        raise ValueError(f"steps={steps} and window={window} must be at least 1")
    if not 0 <= remask_fraction <= 1:
        raise ValueError(f"remask_fraction={remask_fraction} must lie in [0, 1]")
    if confidence_scope not in SCOPES:
        raise ValueError(f"unknown confidence_scope {confidence_scope!r}; valid: {', '.join(SCOPES)}")
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}; valid: {', '.join(KERNELS)}")

    backbone, mask_id, sampler, temperature = request.backbone, request.mask_id, request.sampler, request.temperature
    x_1L, start = request.x_1L, request.start
    noise = make_kernel(kernel, backbone.vocab_size, mask_id)
    masks = start + (x_1L[0, start:] == mask_id).nonzero()[:, 0]
    x_1L[0, masks] = noise.corrupt(x_1L[0, masks], 1.0, sampler)
    # Only the absorbing kernel shows which places are corrupted; under another one all of them are predicted.
    predicted = masks.tolist() if kernel == "absorbing" else list(range(start, x_1L.shape[1]))
    windows: list[Window] = []
    for end_of_block in request.block_ends:
        block = [place for place in predicted if end_of_block - request.block_length <= place < end_of_block]
        confidence: dict[int, float] = {}
        unresolved = block
        for step in range(steps):
            if confidence_scope == "pass":
                confidence = {}
            round_ = 0
            while unresolved:
                places = unresolved[: window if speculative else 1]
                drafts, draft_WV = [], None
                if speculative:
                    draft_WV = law(_logits(draft, x_1L, places), temperature, exclude=mask_id)
                    drafts = draw(draft_WV, temperature, sampler).tolist()
                # Input m: drafts 1 .. m-1 filled in, position m and all after it as they are.
                inputs_WL = x_1L.repeat(len(places), 1)
                for m, token in enumerate(drafts):
                    inputs_WL[m + 1 :, places[m]] = token
                target_logits_WV = _logits(backbone, inputs_WL, [[place] for place in places])
                target_WV = law(target_logits_WV, temperature, exclude=mask_id)
                committed, accepted = _walk(target_WV, draft_WV, drafts, temperature, sampler)

                resolved, tokens = places[: len(committed)], torch.tensor(committed, device=x_1L.device)
                x_1L[0, resolved] = tokens
                probability_WV = law(target_logits_WV[: len(committed)], 1.0, exclude=mask_id)
                confidence.update(zip(resolved, probability_WV.gather(1, tokens[:, None])[:, 0].tolist(), strict=True))
                if speculative:
                    windows.append(Window(step, round_, places[0] - start, len(places), accepted, len(committed)))
                unresolved = unresolved[len(committed) :]
                round_ += 1
                if stop_at_eos and step == steps - 1:
                    end = unresolved[0] if unresolved else end_of_block  # all before it is resolved
                    if bool((x_1L[0, start:end] == backbone.eos_id).any()):
                        x_1L[0, [place for place in predicted if place >= end]] = backbone.eos_id
                        return windows
            if step < steps - 1:
                n_rm = math.floor(remask_fraction * len(block) + 1e-9)  # 0.29 * 100 is 28.999999999999996
                unresolved = sorted(lowest(confidence, n_rm))
                x_1L[0, unresolved] = noise.corrupt(x_1L[0, unresolved], 1.0, sampler)
    return windows


def _walk(
    target_WV: torch.Tensor,
    draft_WV: torch.Tensor | None,
    drafts: list[int],
    temperature: float,
    sampler: Sampler,
) -> tuple[list[int], int]:
    """Accept drafts left to right and correct the first rejected one: the committed tokens, how many were accepted."""
    if draft_WV is None:
        return draw(target_WV, temperature, sampler).tolist(), 0
    drafted_W1 = torch.tensor(drafts, device=target_WV.device)[:, None]
    ratios = (target_WV.gather(1, drafted_W1) / draft_WV.gather(1, drafted_W1))[:, 0].tolist()
    for m, ratio in enumerate(ratios):
        if not sampler.accept(min(1.0, ratio)):
            corrected = draw(residual(target_WV[m], draft_WV[m])[None], temperature, sampler)
            return [*drafts[:m], int(corrected)], m
    return drafts, len(drafts)


def _logits(backbone: Ledger, ids_BL: torch.Tensor, places: list[int] | list[list[int]]) -> torch.Tensor:
    """Logits (W, V): of one row at its W places, or of W rows at one place each."""
    positions = torch.tensor(places, device=ids_BL.device)
    logits = backbone.logits(ids_BL, positions=positions)
    return logits[0] if positions.dim() == 1 else logits[:, 0]
