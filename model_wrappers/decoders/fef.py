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
from model_wrappers.verification import FullVerification, Laws, TwoStreamVerification, Verification

SCOPES = ("all", "pass")
KERNELS = ("absorbing", "uniform")
VERIFICATIONS: dict[str, type[Verification]] = {"full": FullVerification, "two-stream": TwoStreamVerification}
REACHED = 0.02  # adaptive window: a place is verified if its draft is reached with this chance, by the draft laws


def fef(
    request: Request,
    *,
    steps: int = 2,
    window: int = 16,
    speculative: bool = True,
    draft: Ledger,
    remask_fraction: float = 0.5,
    remask_below: float | None = None,
    confidence_scope: str = "all",
    kernel: str = "absorbing",
    verify: str = "full",
    anchor: int | None = None,
    skip_root_row: bool = False,
    reuse_drafts: bool = False,
    adaptive_window: bool = False,
    stop_at_eos: bool = False,
) -> list[Window]:
    """Fill the response in place; returns its speculative windows.

    Predicted places (J_pred) are those that hold masks, or all of them under the uniform kernel. steps: diffusion
    steps; all of a block's finish before the next block starts. window: most drafts verified at once.
    speculative: False decodes one position at a time from its target law. draft: the model of the draft laws.
    remask_fraction: share of a block's predicted places that is re-corrupted after a step, the least confident first.
    remask_below: of these, only those less confident than this (None: all; not in the paper).
    confidence_scope: "all" ranks every position by its latest confidence, "pass" only those committed in the last pass
    (Algorithm 2 read literally). kernel: the forward kernel that positions are re-corrupted through, at its last time:
    "absorbing" masks them, "uniform" draws them anew, and a response of masks then starts from such draws.

    verify: "full" gives the paper's target law; "two-stream" another one, at the cost of tokens instead of rows (see
    model_wrappers/verification.py; the backbone must have `extend`). anchor: with "two-stream", unresolved places per
    context pass (None: all of the step's); windows do not cross its grid.

    The others leave the law as it is, for either verification. skip_root_row: a place whose draft law is its target law
    is not verified. reuse_drafts: draft laws come from the rows of verifications made before; with "full" alone, for
    two streams would compute more to that end than a pass costs. adaptive_window: a window ends where it is unlikely to
    be accepted so far. stop_at_eos: in the last step, fill the rest with EOS once all before an EOS is resolved. Raises
    ValueError for bad values.
    """
    if steps < 1 or window < 1 or (anchor is not None and anchor < 1):
        raise ValueError(f"steps={steps}, window={window} and anchor={anchor} must be at least 1")
    for name, share in (("remask_fraction", remask_fraction), ("remask_below", remask_below)):
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"{name}={share} must lie in [0, 1]")
    for name, choice, valid in (
        ("confidence_scope", confidence_scope, SCOPES),
        ("kernel", kernel, KERNELS),
        ("verify", verify, VERIFICATIONS),
    ):
        if choice not in valid:
            raise ValueError(f"unknown {name} {choice!r}; valid: {', '.join(valid)}")
    backbone, mask_id, sampler, temperature = request.backbone, request.mask_id, request.sampler, request.temperature
    if verify == "two-stream" and not backbone.can_extend:
        raise ValueError("verify='two-stream' needs a backbone with cached attention (a method `extend`); use 'full'")
    if anchor is not None and verify != "two-stream":
        raise ValueError(f"anchor={anchor} is of verify='two-stream', not of {verify!r}")
    if not speculative and (skip_root_row or reuse_drafts or adaptive_window):
        raise ValueError("skip_root_row, reuse_drafts and adaptive_window are about drafts; they need speculative=True")
    if reuse_drafts and verify != "full":
        raise ValueError(f"reuse_drafts is of verify='full', not of {verify!r}, whose passes for drafts cost little")
    if backbone.max_length is not None and window > backbone.max_length:
        raise ValueError(f"window={window} exceeds the model's limit of {backbone.max_length} tokens")

    x_1L, start = request.x_1L, request.start
    noise = make_kernel(kernel, backbone.vocab_size, mask_id)
    masks = start + (x_1L[0, start:] == mask_id).nonzero()[:, 0]
    x_1L[0, masks] = noise.corrupt(x_1L[0, masks], 1.0, sampler)
    # Only the absorbing kernel shows which places are corrupted; under another one all of them are predicted.
    predicted = masks.tolist() if kernel == "absorbing" else list(range(start, x_1L.shape[1]))
    verification = VERIFICATIONS[verify](backbone, draft, x_1L, window)
    one_model = draft.is_model_of(backbone)
    windows: list[Window] = []
    for end_of_block in request.block_ends:
        block = [place for place in predicted if end_of_block - request.block_length <= place < end_of_block]
        confidence: dict[int, float] = {}
        held: Laws = {}  # draft laws that need no pass of their own
        unresolved = block
        for step in range(steps):
            if confidence_scope == "pass":
                confidence = {}
            last: Laws = {}  # target laws of this step
            cell: list[int] = []  # what is left of it; full verification has one cell a step
            round_ = 0
            while unresolved:
                if not cell:
                    cell, known = unresolved[:anchor], False  # known: the held law of the next place is its target law
                    laws = verification.start(cell)
                    if laws and one_model:
                        held, known = laws, True
                drafts, draft_WV, skip = [], None, False
                if speculative:
                    if any(place not in held for place in cell[:window]):
                        held, known = verification.draft(cell), one_model
                    draft_logits_WV = torch.stack([held[place] for place in cell[:window]])
                    if adaptive_window:
                        draft_logits_WV = draft_logits_WV[_reached(draft_logits_WV, mask_id, known) >= REACHED]
                    draft_WV = law(draft_logits_WV, temperature, exclude=mask_id)
                    drafts = draw(draft_WV, temperature, sampler).tolist()
                    skip = skip_root_row and known
                target_logits_WV, ahead = verification.verify(cell, drafts, skip, look_ahead=reuse_drafts)
                if skip:
                    target_logits_WV = torch.cat([draft_logits_WV[:1], target_logits_WV])
                target_WV = law(target_logits_WV, temperature, exclude=mask_id)
                committed, accepted = _walk(target_WV, draft_WV, drafts, temperature, sampler)

                resolved, tokens = cell[: len(committed)], torch.tensor(committed, device=x_1L.device)
                x_1L[0, resolved] = tokens
                probability_WV = law(target_logits_WV[: len(committed)], 1.0, exclude=mask_id)
                confidence.update(zip(resolved, probability_WV.gather(1, tokens[:, None])[:, 0].tolist(), strict=True))
                if speculative:
                    windows.append(Window(step, round_, cell[0] - start, len(drafts), accepted, len(committed)))
                if reuse_drafts:
                    last.update(zip(resolved, target_logits_WV, strict=False))
                    held, known = ahead.get(accepted, {}), accepted == len(drafts)
                else:
                    held, known = held if accepted == len(drafts) else {}, False
                unresolved, cell = unresolved[len(committed) :], cell[len(committed) :]
                round_ += 1
                if stop_at_eos and step == steps - 1:
                    end = unresolved[0] if unresolved else end_of_block  # all before it is resolved
                    if bool((x_1L[0, start:end] == backbone.eos_id).any()):
                        x_1L[0, [place for place in predicted if place >= end]] = backbone.eos_id
                        return windows
            if step < steps - 1:
                n_rm = math.floor(remask_fraction * len(block) + 1e-9)  # 0.29 * 100 is 28.999999999999996
                doubtful = {p: c for p, c in confidence.items() if remask_below is None or c < remask_below}
                unresolved = sorted(lowest(doubtful, n_rm))
                x_1L[0, unresolved] = noise.corrupt(x_1L[0, unresolved], 1.0, sampler)
                held = last
    return windows


def _reached(draft_logits_WV: torch.Tensor, mask_id: int, known: bool) -> torch.Tensor:
    """By the draft laws, the chance of each place that all drafts before it are accepted, (W,).

    A function of the laws alone, not of the drafts: a window may end by it, for these are drawn later. known: the first
    draft is sure to be accepted.
    """
    accepted_W = law(draft_logits_WV, 1.0, exclude=mask_id).amax(1)
    if known:
        accepted_W[0] = 1
    return torch.cat([accepted_W.new_ones(1), accepted_W.cumprod(0)[:-1]])


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
