"""The chains section of the audit: a verification has one law for every window, draft and saving, in blocks too.

The backbone is a small random LLaDA, whose laws at temperature 1 are found by walking every branch. Each chain (where a
context is computed, in which order, in which blocks) is decoded one position at a time, and then with drafts in
windows. The distance to the law of full verification, the paper's, is what a stale context costs.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from harness.audit.exact import EXACT, PROMPT, SEEN, Budget, Measured, broken_residual, measure
from harness.audit.oracle import total_variation
from model_wrappers import Backbone, decode
from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.llada import FAMILY, LLaDAConfig, LLaDAForMaskedLM
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Decoded

POSITIONS = 3
BLOCKS = Blocks(3)  # the first begins in the prompt, the last reaches beyond the response
CHAINS: dict[str, dict[str, Any]] = {
    "one context": {},
    "anchor 2": {"anchor": 2},
    "fresh below 0.65": {"refresh_below": 0.65},
    "by confidence": {"order": "confidence"},
    "by confidence, fresh below 0.65": {"order": "confidence", "refresh_below": 0.65},
    "in blocks of 3": {"blocks": BLOCKS},
    "in blocks of 3, full verification": {"blocks": BLOCKS, "verify": "full"},
}
NO_SPECULATION, SELF_CHECK = "no speculation", "self-check: broken residual, other draft"
NOTE = """\
TV between laws at temperature 1, all branches walked. Every way to decode a chain must have the law of decoding it one
position at a time; the self-check must not. To full verification it is the distance of the chain, not an error."""


def random_llada(tokens: int, seed: int, length: int = 16, std: float = 0.3, blocks: Blocks | None = None) -> Backbone:
    """A random LLaDA of two layers of width 32, in float64: weights of deviation `std`, inputs of at most `length`.

    tokens: real tokens; the mask comes after them and the last of them is EOS. blocks: what it attends in.
    """
    config = LLaDAConfig(
        vocab_size=tokens + 1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=length,
        initializer_range=std,
        mask_token_id=tokens,
        eos_token_id=tokens - 1,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LLaDAForMaskedLM(config).double()
    family = FAMILY if blocks is None else replace(FAMILY, blocks={"": blocks})
    return Backbone(family, model, None, f"random-{seed}")


def audit_chains(tokens: int, seed: int, progress: Callable[[list[str]], Any] = iter) -> pd.DataFrame:
    """A row per chain and way to decode it: branches, forwards, TV to no speculation and to full verification."""
    rows = []
    for chain in progress(list(CHAINS)):
        options = {"verify": "two-stream", **CHAINS[chain]}
        blocks = options.pop("blocks", None)
        backbone, unlike = (random_llada(tokens, each, blocks=blocks) for each in (seed, seed + 1))
        variants: dict[str, dict[str, Any]] = {
            NO_SPECULATION: {"speculative": False},
            "window 1": {"window": 1},
            "window 2": {"window": 2},
            "window 3, savings": {"window": 3, "skip_root_row": True, "adaptive_window": True},
            "window 2, other draft": {"window": 2, "draft": unlike},
            SELF_CHECK: {"window": 2, "draft": unlike},
        }

        def law(model: Backbone = backbone, **how: Any) -> Measured:
            def run(sampler: Sampler) -> Decoded:
                return decode(
                    model, PROMPT, "fef", gen_length=POSITIONS, temperature=1.0, sampler=sampler, steps=1, **how
                )

            return measure(run, tokens**POSITIONS, Budget(branches=10**6, seed=seed))

        full, reference = law(speculative=False), law(speculative=False, **options)
        for name, variant in variants.items():
            with broken_residual() if name == SELF_CHECK else nullcontext():
                measured = law(**options, **variant)
            rows.append(
                {
                    "chain": chain,
                    "decoded with": name,
                    "branches": measured.branches,
                    "forwards": measured.forwards,
                    "TV to no speculation": total_variation(measured.law, reference.law),
                    "TV to full verification": total_variation(measured.law, full.law),
                }
            )
    return pd.DataFrame(rows)


def chains_failures(table: pd.DataFrame) -> list[str]:
    """The failed checks, one line each."""
    failures = []
    for row in table.to_dict("records"):
        name, apart = f"chain {row['chain']} ({row['decoded with']})", row["TV to no speculation"]
        if row["decoded with"] == SELF_CHECK and apart <= SEEN:
            failures.append(f"{name} is not caught: total variation {apart:.3g} to no speculation")
        if row["decoded with"] != SELF_CHECK and apart > EXACT:
            failures.append(f"{name} has another law than without speculation: total variation {apart:.3g}")
    return failures
