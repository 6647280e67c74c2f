"""What single passes cost beside the items of a run: the inputs of the paper's prediction, measured on its prompts.

Shapes: L length of prompt and response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.costs.timing import seconds_of
from model_wrappers.api import check_options
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef import make_verifier
from model_wrappers.decoders.fef.targets import Proposal
from model_wrappers.opencompass_model import DiffusionModel
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler


@torch.inference_mode()
def pass_seconds(model: DiffusionModel, prompt_P: torch.Tensor) -> dict[str, Any]:
    """Seconds of a plain forward, a draft pass and the verification of a full window: the fields of a PassRecord.

    model: of a prefix-conditioned method. prompt_P: LongTensor (P,); the response is all masks. Each pass runs once
    before it is timed.
    """
    backbone, options = model.backbone, check_options(model.method, model.options)
    options_: Any = options
    x_1L = torch.cat([prompt_P, torch.full((model.gen_length,), backbone.mask_id)])[None].to(backbone.device)
    start, draft = len(prompt_P), Ledger(backbone if options_.draft is None else options_.draft)
    request = Request(Ledger(backbone), draft, x_1L, start, model.gen_length, 0.0, Sampler(0))
    verifier = make_verifier(request, options_, [backbone.mask_id])
    segment, _ = verifier.segment(list(range(start, x_1L.shape[1])))
    drafts = [backbone.eos_id] * min(options_.window, len(segment))
    half = torch.arange(start, start + max(1, model.gen_length // 2), device=backbone.device)
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: backbone.logits(x_1L, positions=half),
        "draft": lambda: verifier.draft(segment),
        "verification": lambda: verifier.verify(segment, Proposal(drafts, None, None)),
    }
    for call in calls.values():
        call()
    return {"drafts": len(drafts)} | {name: seconds_of(call, backbone.device) for name, call in calls.items()}
