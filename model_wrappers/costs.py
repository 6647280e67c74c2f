"""The numbers of a response (lengths, hashes, costs) that records of runs, of OpenCompass and of
lm-eval share."""

import hashlib
from typing import Any

from torch import Tensor

from model_wrappers.backbones.model import Backbone
from model_wrappers.chat import content_length
from model_wrappers.trace import Decoded


def costs_of(backbone: Backbone, prompt_P: Tensor, out: Decoded) -> dict[str, Any]:
    """The numbers of a response.

    Args:
        backbone: the model.
        prompt_P: LongTensor (P,).
        out: the response.

    Returns:
        By name: lengths, hashes, the trace's costs, and sums over its windows.
    """
    trace = out.trace
    costs = {
        name: value
        for name, value in vars(trace).items()
        if name not in ("windows", "block_seconds") and value is not None
    }
    # Only records of changed models have this field.
    if not trace.changed_forwards:
        del costs["changed_forwards"]
    content = content_length(backbone, out.tokens)
    eos = int((out.tokens == backbone.eos_id).sum())
    # The text is complete with the first block that reaches the end of the content.
    if trace.block_seconds:
        costs["first_block_seconds"] = trace.block_seconds[0][1]
        costs["content_seconds"] = next(
            seconds for end, seconds in trace.block_seconds if end >= content
        )
    return {
        "prompt_tokens": len(prompt_P),
        "prompt_hash": hash_of(prompt_P),
        "content_tokens": content,
        "eos_tokens": eos,
        "post_stop_tokens": len(out.tokens) - content - eos,  # after the stop token, not EOS
        "tokens_hash": hash_of(out.tokens),
        **costs,
        "proposed": sum(window.proposed for window in trace.windows),
        "accepted": sum(window.accepted for window in trace.windows),
        "rejected": sum(window.accepted < window.proposed for window in trace.windows),
        "committed": sum(window.committed for window in trace.windows),
    }


def hash_of(ids: Tensor) -> str:
    """A hash of ids, LongTensor (N,)."""
    return hashlib.sha256(ids.cpu().numpy().tobytes()).hexdigest()[:16]
