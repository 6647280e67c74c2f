"""What is compared with Dream's official sampler beyond nano's tokens: tiny checkpoints at
temperature 0, and laws above it.

`tests/official/make_dream.py` runs the official code, the tests run ours. Shapes: L response.
"""

from pathlib import Path
from typing import Any

import torch
from fakes import RandomConditionals

GOLDEN = Path(__file__).parents[1] / "official" / "goldens" / "dream.json"
FAMILIES = ("Dream", "a2d-qwen3")
SEED = 3  # of the tiny checkpoints' weights
TOKENS = 12  # of a response of it
PROMPTS = [[5, 9, 14], [21, 7, 30, 11, 2], [33]]
GREEDY: dict[str, dict[str, Any]] = {
    f"{alg} {steps} {top_p}": {"alg": alg, "steps": steps, "top_p": top_p}
    for alg in ("maskgit_plus", "topk_margin", "entropy")
    for steps in (TOKENS, 5)
    for top_p in (None, 0.7)
}

# The law of three tokens out of three, from conditionals that depend on everything.
PROMPT = [0]
LENGTH = 3
DRAWS = 20_000
TEMPERATURE = 0.9
SAMPLED: dict[str, dict[str, Any]] = {
    "origin": {"alg": "origin", "steps": 2, "eps": 0.2},
    "origin top_p": {"alg": "origin", "steps": 3, "top_p": 0.75},
    "maskgit_plus top_p": {"alg": "maskgit_plus", "top_p": 0.8},
    "maskgit_plus top_k": {"alg": "maskgit_plus", "top_k": 2},
    "topk_margin": {"alg": "topk_margin", "steps": 2},
    "entropy": {"alg": "entropy", "steps": 2},
    "entropy top_p top_k": {"alg": "entropy", "top_p": 0.8, "top_k": 2},
    "entropy alg_temp": {"alg": "entropy", "top_k": 2, "alg_temp": 0.5},
    "maskgit_plus alg_temp": {"alg": "maskgit_plus", "steps": 2, "alg_temp": 0.3},
}


class WithoutMask(RandomConditionals):
    """Conditionals over the real tokens alone, so that no mask is drawn."""

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        logits_LV = super().row_logits(row, causal)
        return logits_LV.index_fill(1, torch.tensor([self.mask_id]), -torch.inf)


def conditionals() -> RandomConditionals:
    """The backbone whose law is compared."""
    return WithoutMask(real=3, seed=1)
