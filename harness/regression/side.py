"""Decodes requests with the code it finds on the import path: one side of a comparison of two revisions.

A line of JSON in, the request; a line of JSON out: {seconds, forwards, tokens, text, costs, windows} or {error}. It
uses the public API of model_wrappers alone, so that older revisions can answer as well.
"""

import hashlib
import json
import os
import sys
from functools import lru_cache
from typing import Any

import torch

from model_wrappers import decode, load_backbone


@lru_cache
def backbone_of(name: str, device: str, dtype: str, graphs: bool) -> Any:
    """A backbone, loaded once."""
    options: dict[str, Any] = {"cuda_graphs": True} if graphs else {}  # older revisions know no such option
    return load_backbone(name, device=device, dtype=dtype, **options)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Decode one response."""
    from model_wrappers.chat import response_text

    where = (request["device"], request["dtype"], request["graphs"])
    backbone, options = backbone_of(request["model"], *where), dict(request["options"])
    if request["draft"] is not None:
        options["draft"] = backbone_of(request["draft"], *where)
    out = decode(
        backbone,
        torch.tensor(request["prompt"]),
        method=request["method"],
        gen_length=request["gen_length"],
        block_length=request["block_length"],
        temperature=request["temperature"],
        seed=request["seed"],
        **options,
    )
    return {
        "seconds": out.trace.seconds,
        "forwards": out.trace.forwards,
        "tokens": hashlib.sha256(out.tokens.numpy().tobytes()).hexdigest(),
        "text": response_text(backbone, out.tokens),
        "costs": {name: value for name, value in vars(out.trace).items() if isinstance(value, int)},
        "windows": [(window.proposed, window.accepted, window.committed) for window in out.trace.windows],
    }


def main() -> None:
    """Answer until the input ends."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # an older revision may not know an option; the other side decides
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=channel, flush=True)


if __name__ == "__main__":
    main()
