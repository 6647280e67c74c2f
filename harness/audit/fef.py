"""The lemma and chains sections of the audit: the laws that FeF-DLLM samples from, in numbers.

lemma: Lemma 1, and the decoder's law given a corrupted sequence, under the uniform kernel, where
corrupted tokens look like clean ones. Everything is summed over the whole joint p(x_0, x_t), and
nothing of the proof is used. chains: two-stream verification has one law for every window, draft
and saving, also in blocks. The backbone is a small random LLaDA, and all branches are walked. The
distance to the law of full verification, the paper's, is the price of a stale context.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from harness.audit.exact import (
    EXACT,
    LEVEL,
    PROMPT,
    SEEN,
    Budget,
    Measured,
    broken_residual,
    measure,
)
from harness.audit.oracle import (
    PrefixOracle,
    posterior_table,
    random_table,
    table_law,
    total_variation,
)
from model_wrappers import Backbone, decode
from model_wrappers.backbones.blocks import Blocks
from model_wrappers.backbones.llada import FAMILY, LLaDAConfig, LLaDAForMaskedLM
from model_wrappers.backbones.protocol import Ledger
from model_wrappers.decoders.fef import FeFOptions, decode_fef
from model_wrappers.diffusion import Kernel, Uniform
from model_wrappers.request import Request
from model_wrappers.sampling import Sampler
from model_wrappers.trace import Decoded, Trace

TABLES = 4
TIMES = (0.1, 0.5, 0.9)


def joint_of(table: torch.Tensor, kernel: Kernel, t: float) -> torch.Tensor:
    """p(x_0, x_t), shape (R,) * 2d: the clean tokens' axes, then the corrupted ones'."""
    length = table.dim()
    joint = (table / table.sum()).reshape(table.shape + (1,) * length)
    # Tokens are corrupted independently: p(x_t | x_0) is a product over the positions.
    for position in range(length):
        shape = [1] * (2 * length)
        shape[position] = shape[length + position] = table.shape[0]
        joint = joint * kernel.cumulative(t).reshape(shape)
    return joint


def lemma_errors(table: torch.Tensor, kernel: Kernel, t: float) -> tuple[float, float]:
    """The largest errors of Lemma 1's two identities, over all positions, x_t, prefixes and tokens.

    The first is p(x_0^i | x_t, x_0^{<i}) = p(x_0^i | x_t^{>=i}, x_0^{<i}); the second compares the
    same posterior with p(x_0^i | x_t) p(x_0^i | x_t^{>i}, x_0^{<i}) / p(x_0^i | x_t^{-i}),
    normalised.
    """
    joint = joint_of(table, kernel, t)
    length = table.dim()
    errors = [0.0, 0.0]
    for i in range(length):
        before = range(i)
        corrupted = range(length, 2 * length)

        def conditional(*axes: int, position: int = i) -> torch.Tensor:
            """p(x_0^i | the tokens of these axes); other axes are summed out and have size 1."""
            summed = [axis for axis in range(2 * length) if axis != position and axis not in axes]
            marginal = joint.sum(summed, keepdim=True) if summed else joint
            return marginal / marginal.sum(position, keepdim=True)

        posterior = conditional(*before, *corrupted)
        suffix = conditional(*before, *corrupted[i:])
        product = conditional(*corrupted) * conditional(*before, *corrupted[i + 1 :])
        product = product / conditional(*corrupted[:i], *corrupted[i + 1 :])
        product = product / product.sum(i, keepdim=True)
        gaps = [float((posterior - other).abs().max()) for other in (suffix, product)]
        errors = [max(pair) for pair in zip(errors, gaps, strict=True)]
    return errors[0], errors[1]


def posterior_distance(
    table: torch.Tensor, t: float, window: int, draft: PrefixOracle | None, budget: Budget
) -> tuple[float, float]:
    """Total variation between p(x_0 | x_t) and FeF's law at one diffusion step, for a sampled x_t.

    Args:
        table: p(x_0), (R,) * d.
        t: level of the corruption.
        window: of the decoder.
        draft: the draft model; None for the target itself, the exact position-conditioned oracle.
        budget: of branches and samples.

    Returns:
        The distance, and its bound if the law was sampled, else 0.
    """
    kernel = Uniform(table.shape[0])
    sampler = Sampler(budget.seed)
    flat = int(sampler.tokens(table.reshape(1, -1)))
    x_0 = torch.tensor([int(axis) for axis in torch.unravel_index(torch.tensor(flat), table.shape)])
    x_t = sampler.tokens(kernel.cumulative(t)[x_0])
    oracle = PrefixOracle(table, kernel, t)

    def run(sampler: Sampler) -> Decoded:
        # Not through `decode`, for which every token but the mask is part of the response already.
        x_1L = torch.cat([PROMPT, x_t])[None]
        target = Ledger(oracle)
        drafts = Ledger(oracle if draft is None else draft)
        options = FeFOptions(steps=1, window=window, kernel="uniform")
        decode_fef(Request(target, drafts, x_1L, len(PROMPT), len(x_t), 1.0, sampler), options)
        return Decoded(x_1L[0, len(PROMPT) :], Trace(forwards=target.calls + drafts.calls))

    measured = measure(run, table.numel(), budget)
    truth = table_law(posterior_table(table, kernel, t, x_t.tolist()))
    # Bonferroni over the cases of `audit_lemma`: two drafts at each time.
    return total_variation(measured.law, truth), measured.bound(LEVEL / (2 * len(TIMES)))


def audit_lemma(
    tokens: int,
    positions: int,
    budget: Budget,
    progress: Callable[[list[tuple[int, float]]], Any] = iter,
) -> pd.DataFrame:
    """Lemma 1's identities and FeF's law, on random tables of `tokens`^`positions` with the seeds
    from budget.seed on: a row for each of the three claims."""
    kernel = Uniform(tokens)
    grid = [(budget.seed + number, t) for number in range(TABLES) for t in TIMES]
    pairs = [
        lemma_errors(random_table(tokens, positions, seed), kernel, t) for seed, t in progress(grid)
    ]
    distances = []
    for t in TIMES:
        table, other = (
            random_table(tokens, positions, budget.seed + number) for number in (0, TABLES)
        )
        distances.append(posterior_distance(table, t, positions, None, budget))
        distances.append(posterior_distance(table, t, 2, PrefixOracle(other, kernel, t), budget))
    # The worst case is the one that exceeds its bound most, or comes nearest to it.
    worst, bound = max(distances, key=lambda pair: pair[0] - pair[1])
    return pd.DataFrame(
        {
            "claim": [
                "p(x_0^i | x_t, x_0^<i) = p(x_0^i | x_t^>=i, x_0^<i)",
                "... proportional to p(x_0^i | x_t) p(x_0^i | x_t^>i, x_0^<i) / p(x_0^i | x_t^-i)",
                "law of FeF, 1 step, given x_t = p(x_0 | x_t) (total variation)",
            ],
            "cases": [len(pairs), len(pairs), len(distances)],
            "largest error": [
                max(first for first, _ in pairs),
                max(second for _, second in pairs),
                worst,
            ],
            "bound": [0.0, 0.0, bound],
        }
    )


def lemma_failures(table: pd.DataFrame) -> list[str]:
    """The claims that do not hold, one line each."""
    wrong = table[table["largest error"] > EXACT + table["bound"]]
    return [
        f"{claim}: error {error:.3g}"
        for claim, error in zip(wrong["claim"], wrong["largest error"], strict=True)
    ]


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
NO_SPECULATION = "no speculation"
SELF_CHECK = "self-check: broken residual, other draft"
NOTE = """\
TV between laws at temperature 1, all branches walked. Every way to decode a chain must have the law
of decoding it one position at a time; the self-check must not. To full verification it is the
distance of the chain, not an error."""


def random_llada(
    tokens: int, seed: int, length: int = 16, std: float = 0.3, blocks: Blocks | None = None
) -> Backbone:
    """A random LLaDA of two layers of width 32, in float64.

    Args:
        tokens: real tokens; the last of them is EOS, and the mask comes after them.
        seed: of the weights.
        length: the longest input.
        std: standard deviation of the weights.
        blocks: blocks of its attention; None for attention over the whole sequence.
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
    # The caller's global random numbers stay as they are.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LLaDAForMaskedLM(config).double()
    family = FAMILY if blocks is None else replace(FAMILY, blocks={"": blocks})
    return Backbone(family, model, None, f"random-{seed}")


def audit_chains(
    tokens: int, seed: int, progress: Callable[[list[str]], Any] = iter
) -> pd.DataFrame:
    """A row per chain and way to decode it: branches, forwards, and the total variation to no
    speculation and to full verification."""
    rows = []
    for chain in progress(list(CHAINS)):
        options = {"verify": "two-stream", **CHAINS[chain]}
        blocks = options.pop("blocks", None)
        backbone, unlike = (
            random_llada(tokens, model_seed, blocks=blocks) for model_seed in (seed, seed + 1)
        )
        variants: dict[str, dict[str, Any]] = {
            NO_SPECULATION: {"speculative": False},
            "window 1": {"window": 1},
            "window 2": {"window": 2},
            "window 3, savings": {"window": 3, "skip_root_row": True, "adaptive_window": True},
            "window 2, other draft": {"window": 2, "draft": unlike},
            "window 3, other draft, accepted jointly": {
                "window": 3,
                "draft": unlike,
                "acceptance": "block",
            },
            SELF_CHECK: {"window": 2, "draft": unlike},
        }

        # The default binds this turn's model: a closure would see the last one.
        def law(model: Backbone = backbone, **settings: Any) -> Measured:
            def run(sampler: Sampler) -> Decoded:
                return decode(
                    model,
                    PROMPT,
                    "fef",
                    gen_length=POSITIONS,
                    temperature=1.0,
                    sampler=sampler,
                    steps=1,
                    **settings,
                )

            # So large a budget that every branch is walked: samples could not show equality.
            return measure(run, tokens**POSITIONS, Budget(branches=10**6, seed=seed))

        full = law(speculative=False)
        reference = law(speculative=False, **options)
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
        name = f"chain {row['chain']} ({row['decoded with']})"
        distance = row["TV to no speculation"]
        if row["decoded with"] == SELF_CHECK and distance <= SEEN:
            failures.append(
                f"{name} is not caught: total variation {distance:.3g} to no speculation"
            )
        if row["decoded with"] != SELF_CHECK and distance > EXACT:
            failures.append(
                f"{name} has another law than without speculation: total variation {distance:.3g}"
            )
    return failures
