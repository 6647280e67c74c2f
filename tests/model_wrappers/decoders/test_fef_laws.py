"""The FeF-DLLM decoder's law: the chain product of the target's probs, for every window, draft and speculation."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fef_reference import PROMPT, enumerated_law, fit, reference_law, target, unlike

from harness.laws.oracle import TableBackbone, random_table, total_variation
from model_wrappers import decode

every_temperature = pytest.mark.parametrize("temperature", [1.0, 0.7])


# The law, exactly


@every_temperature
@pytest.mark.parametrize(
    ("real", "length", "window"), [(3, 4, 1), pytest.param(3, 4, 2, marks=pytest.mark.slow), (3, 3, 4), (2, 4, 4)]
)
def test_law_of_one_step_is_the_chain_product(real: int, length: int, window: int, temperature: float) -> None:
    law = enumerated_law(length, temperature, real, steps=1, window=window, draft=unlike(real))
    assert total_variation(law, reference_law(target(real), length, 1, temperature)) < 1e-9


def test_law_of_one_step_on_an_oracle_is_the_joint() -> None:
    table = random_table(2, 4)
    run = partial(decode, TableBackbone(table, len(PROMPT)), torch.tensor(PROMPT) % 2, gen_length=4, temperature=1.0)
    joint = {tuple(x): float(table[tuple(x)]) for x in torch.cartesian_prod(*[torch.arange(2)] * 4).tolist()}
    draft = TableBackbone(random_table(2, 4, seed=1), len(PROMPT))
    law = enumerate_law(lambda sampler: run(steps=1, window=4, draft=draft, sampler=sampler).tokens)
    assert total_variation(law, joint) < 1e-9


@pytest.mark.parametrize(
    "variant",
    [
        {"speculative": False},
        {"window": 1},
        {"window": 2},
        {"window": 4},
        {"window": 1, "draft": unlike(2)},
        {"window": 2, "draft": unlike(2)},
    ],
)
def test_law_of_two_steps_is_the_same_for_every_window_draft_and_without_speculation(
    variant: dict[str, Any],
) -> None:
    law = enumerated_law(4, 0.7, real=2, steps=2, **variant)
    assert total_variation(law, reference_law(target(2), 4, 2, 0.7)) < 1e-9


def test_law_of_two_steps_for_a_whole_window_and_another_draft() -> None:
    law = enumerated_law(3, 1.0, real=2, steps=2, window=4, draft=unlike(2))
    assert total_variation(law, reference_law(target(2), 3, 2, 1.0)) < 1e-9


def test_law_of_two_steps_differs_from_that_of_one() -> None:
    assert total_variation(*(reference_law(target(2), 4, steps, 1.0) for steps in (1, 2))) > 0.01


@pytest.mark.parametrize("scope", ["all", "pass"])
def test_law_of_three_steps_follows_the_confidence_scope(scope: str) -> None:
    law = enumerated_law(4, 1.0, real=2, steps=3, speculative=False, confidence_scope=scope)
    assert total_variation(law, reference_law(target(2), 4, 3, 1.0, scope)) < 1e-9
    other = "pass" if scope == "all" else "all"
    assert total_variation(law, reference_law(target(2), 4, 3, 1.0, other)) > 0.01


@pytest.mark.usefixtures("broken_residual")
@pytest.mark.parametrize("window", [1, 2])
def test_exact_law_exposes_a_broken_residual(window: int) -> None:
    law = enumerated_law(3, 1.0, steps=1, window=window, draft=unlike())
    assert total_variation(law, reference_law(target(), 3, 1, 1.0)) > 0.01


# The law, by seeded samples; the exact laws above see the same


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "steps", "window"), [(1.0, 1, 4), (0.7, 1, 4), (1.0, 2, 4)])
def test_samples_fit_the_reference_law(temperature: float, steps: int, window: int) -> None:
    assert fit(4, temperature, steps, window) > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("broken_residual")
def test_samples_expose_a_broken_residual() -> None:
    assert fit(4, 1.0, 1, 4) < 1e-9
