"""A response in numbers, as items have them; nothing here needs OpenCompass."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from harness.records.schema import SCHEMA
from model_wrappers import Backbone, Decoded
from model_wrappers.chat import content_length


def cost_and_tokens(
    key: dict[str, Any], seed: int, backbone: Backbone, prompt_P: torch.Tensor, out: Decoded
) -> dict[str, Any]:
    """What an item cost, and its tokens in numbers. key: its method, suite and item. prompt_P: LongTensor (P,)."""
    costs = {name: value for name, value in vars(out.trace).items() if name != "windows"}
    content, eos = content_length(backbone, out.tokens), int((out.tokens == backbone.eos_id).sum())
    return {
        "schema": SCHEMA,
        **key,
        "seed": seed,
        "prompt_tokens": len(prompt_P),
        "prompt_hash": hash_of(prompt_P),
        "content_tokens": content,
        "eos_tokens": eos,
        "post_stop_tokens": len(out.tokens) - content - eos,  # behind the end, and no EOS
        "tokens_hash": hash_of(out.tokens),
        **costs,
        **window_sums([(w.proposed, w.accepted, w.committed) for w in out.trace.windows]),
    }


def window_sums(windows: Sequence[tuple[int, int, int]]) -> dict[str, int]:
    """An item's sums over its windows. windows: what each proposed, accepted and committed."""
    proposed, accepted, committed = (sum(window[place] for window in windows) for place in range(3))
    rejected = sum(window[1] < window[0] for window in windows)
    return {"proposed": proposed, "accepted": accepted, "rejected": rejected, "committed": committed}


def hash_of(ids: torch.Tensor) -> str:
    """A hash of ids, LongTensor (N,), as items have it."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:16]
