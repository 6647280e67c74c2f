"""FeF-DLLM once more, without speculation and by enumeration: what its tests compare the decoder
with."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from enumerated import enumerate_law
from fakes import RandomConditionals
from scipy.stats import chisquare

from harness.audit.oracle import Law
from model_wrappers import decode
from model_wrappers.backbones.protocol import BackboneLike
from model_wrappers.sampling import Sampler

LENGTH = 16
PROMPT = (2, 0)


def tokens(backbone: BackboneLike, prompt: torch.Tensor, **options: Any) -> list[int]:
    return decode(
        backbone, prompt, method="fef", **{"gen_length": LENGTH} | options
    ).tokens.tolist()


def target(real: int = 3) -> RandomConditionals:
    return RandomConditionals(real, seed=1)


def unlike(real: int = 3) -> RandomConditionals:
    """A draft model unlike the target."""
    return RandomConditionals(real, seed=2)


def reference_law(
    backbone: BackboneLike, length: int, steps: int, temperature: float, scope: str = "all"
) -> Law:
    """The response's law after PROMPT with no speculation: chain products, floor(length / 2)
    re-masked in between."""
    outcome: defaultdict[tuple[int, ...], float] = defaultdict(float)

    def passes(
        row: tuple[int, ...], positions: tuple[int, ...], left: int, confidence: dict[int, float]
    ) -> Iterator[tuple[tuple[int, ...], float]]:
        """Every way to resolve `positions` from left to right, then `left` more passes, with its
        probability."""
        if positions:
            position, *rest = positions
            logits = backbone.logits(torch.tensor([row]))[0, position].tolist()
            weights = [
                math.exp(logit) if token != backbone.mask_id else 0.0
                for token, logit in enumerate(logits)
            ]
            if temperature == 0:
                powers = [float(weight == max(weights)) for weight in weights]
            else:
                powers = [weight ** (1 / temperature) for weight in weights]
            for token, power in enumerate(powers):
                if power:
                    filled = (*row[:position], token, *row[position + 1 :])
                    latest = confidence | {position: weights[token] / sum(weights)}
                    for response, probability in passes(filled, tuple(rest), left, latest):
                        yield response, probability * power / sum(powers)
        elif left:
            ranked = sorted(confidence, key=lambda position: (confidence[position], position))
            again = tuple(sorted(ranked[: length // 2]))
            masked = tuple(
                backbone.mask_id if position in again else token
                for position, token in enumerate(row)
            )
            yield from passes(masked, again, left - 1, confidence if scope == "all" else {})
        else:
            yield row[len(PROMPT) :], 1.0

    everything = tuple(range(len(PROMPT), len(PROMPT) + length))
    for response, probability in passes(
        (*PROMPT, *[backbone.mask_id] * length), everything, steps - 1, {}
    ):
        outcome[response] += probability
    return dict(outcome)


def enumerated_law(length: int, temperature: float, real: int = 3, **options: Any) -> Law:
    """The decoder's exact law."""
    run = partial(
        tokens,
        target(real),
        torch.tensor(PROMPT),
        gen_length=length,
        temperature=temperature,
        **options,
    )
    return enumerate_law(lambda sampler: torch.tensor(run(sampler=sampler)))


def fit(
    length: int, temperature: float, steps: int, window: int, samples: int = 2000, **options: Any
) -> float:
    """p-value of a chi-square test of seeded samples against the reference law, cells expected
    below 5 in one."""
    sampler = Sampler(11)
    run = partial(
        tokens,
        target(),
        torch.tensor(PROMPT),
        gen_length=length,
        temperature=temperature,
        steps=steps,
    )
    run = partial(run, **options)
    counts = Counter(
        tuple(run(window=window, draft=unlike(), sampler=sampler)) for _ in range(samples)
    )
    cells: defaultdict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for response, probability in reference_law(target(), length, steps, temperature).items():
        cell = cells[response if samples * probability >= 5 else "rare"]
        cell[0] += counts[response]
        cell[1] += samples * probability
    observed, expected = zip(*cells.values(), strict=True)
    assert sum(observed) == samples
    return float(chisquare(observed, expected).pvalue)
