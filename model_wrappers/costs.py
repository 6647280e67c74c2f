"""What a response cost, and its tokens in numbers, as every record has them: a run's,
OpenCompass's, lm-eval's."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from model_wrappers.backbones.model import Backbone
from model_wrappers.chat import content_length
from model_wrappers.trace import Decoded


def costs_of(backbone: Backbone, prompt_P: torch.Tensor, out: Decoded) -> dict[str, Any]:
    """The numbers of a response to prompt_P, LongTensor (P,): lengths, hashes, the trace's costs,
    window sums."""
    costs = {
        name: value
        for name, value in vars(out.trace).items()
        if name not in ("windows", "block_seconds")
    }
    costs = {name: value for name, value in costs.items() if value is not None}
    if not out.trace.changed_forwards:
        del costs["changed_forwards"]
    content = content_length(backbone, out.tokens)
    eos = int((out.tokens == backbone.eos_id).sum())
    blocks = out.trace.block_seconds
    until = {"first_block_seconds": blocks[0][1]} if blocks else {}
    until |= {"content_seconds": next(at for end, at in blocks if end >= content)} if blocks else {}
    return {
        "prompt_tokens": len(prompt_P),
        "prompt_hash": hash_of(prompt_P),
        "content_tokens": content,
        "eos_tokens": eos,
        "post_stop_tokens": len(out.tokens) - content - eos,  # after the stop token, not EOS
        "tokens_hash": hash_of(out.tokens),
        **costs,
        **until,
        **window_sums([(w.proposed, w.accepted, w.committed) for w in out.trace.windows]),
    }


def window_sums(windows: Sequence[tuple[int, int, int]]) -> dict[str, int]:
    """A response's sums over its windows. windows: what each proposed, accepted and committed."""
    proposed, accepted, committed = (sum(window[place] for window in windows) for place in range(3))
    rejected = sum(window[1] < window[0] for window in windows)
    return {
        "proposed": proposed,
        "accepted": accepted,
        "rejected": rejected,
        "committed": committed,
    }


def hash_of(ids: torch.Tensor) -> str:
    """A hash of ids, LongTensor (N,)."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:16]
