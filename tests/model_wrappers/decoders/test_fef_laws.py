"""The FeF-DLLM decoder's law: the chain product of the target's probs, for every window, draft and
kernel."""

from functools import partial
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import RandomConditionals
from fef_reference import PROMPT, enumerated_law, fit, reference_law, target, unlike

from harness.audit.oracle import Law, TableBackbone, random_table, total_variation
from model_wrappers import decode
from model_wrappers.sampling import token_probs

every_temperature = pytest.mark.parametrize("temperature", [1.0, 0.7])


# The law, exactly
@every_temperature
@pytest.mark.parametrize(
    ("real", "length", "window"),
    [
        (3, 3, 4),
        *(
            pytest.param(*sizes, marks=pytest.mark.slow)
            for sizes in ((3, 4, 1), (3, 4, 2), (2, 4, 4))
        ),
    ],
)
def test_law_of_one_step_is_the_chain_product(
    real: int, length: int, window: int, temperature: float
) -> None:
    law = enumerated_law(length, temperature, real, steps=1, window=window, draft=unlike(real))
    assert total_variation(law, reference_law(target(real), length, 1, temperature)) < 1e-9


@pytest.mark.parametrize(
    "temperature", [1.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.5, 2.0))]
)
@pytest.mark.parametrize("window", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_drafts_that_are_accepted_jointly_leave_the_law(window: int, temperature: float) -> None:
    options = {"window": window, "draft": unlike(2), "acceptance": "block"}
    law = enumerated_law(4, temperature, 2, steps=1, **options)
    assert total_variation(law, reference_law(target(2), 4, 1, temperature)) < 1e-9


def test_law_of_one_step_on_an_oracle_is_the_joint() -> None:
    table = random_table(2, 4)
    run = partial(
        decode,
        TableBackbone(table, len(PROMPT)),
        torch.tensor(PROMPT) % 2,
        gen_length=4,
        temperature=1.0,
    )
    joint = {
        tuple(x): float(table[tuple(x)])
        for x in torch.cartesian_prod(*[torch.arange(2)] * 4).tolist()
    }
    draft = TableBackbone(random_table(2, 4, seed=1), len(PROMPT))
    law = enumerate_law(lambda sampler: run(steps=1, window=4, draft=draft, sampler=sampler).tokens)
    assert total_variation(law, joint) < 1e-9


@pytest.mark.parametrize(
    "variant",
    [
        {"speculative": False},
        {"window": 2},
        *(pytest.param({"window": w}, marks=pytest.mark.slow) for w in (1, 4)),
        *(pytest.param({"window": w, "draft": unlike(2)}, marks=pytest.mark.slow) for w in (1, 2)),
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
@pytest.mark.parametrize("window", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_exact_law_exposes_a_broken_residual(window: int) -> None:
    law = enumerated_law(3, 1.0, steps=1, window=window, draft=unlike())
    assert total_variation(law, reference_law(target(), 3, 1, 1.0)) > 0.01


# The law, by seeded samples; the exact laws above see the same
@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "steps", "window"), [(1.0, 1, 4), (0.7, 1, 4), (1.0, 2, 4)]
)
def test_samples_fit_the_reference_law(temperature: float, steps: int, window: int) -> None:
    assert fit(4, temperature, steps, window) > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("broken_residual")
def test_samples_expose_a_broken_residual() -> None:
    assert fit(4, 1.0, 1, 4) < 1e-9


# Under the uniform kernel "unresolved" means drawn anew
REAL, LENGTH = 2, 3
ONE = torch.tensor([1])


def uniform_law(**options: Any) -> Law:
    """The decoder's exact law over responses of LENGTH tokens, at temperature 1."""
    backbone = RandomConditionals(REAL, seed=1)
    run = partial(
        decode,
        backbone,
        ONE,
        "fef",
        gen_length=LENGTH,
        temperature=1.0,
        kernel="uniform",
        **options,
    )
    return enumerate_law(lambda sampler: run(sampler=sampler).tokens)


def one_step_law() -> Law:
    """Noise drawn uniformly, then the chain product of the target's probs: each position given
    those before it."""
    backbone = RandomConditionals(REAL, seed=1)
    outcome: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {
        (): dict.fromkeys(_words(), REAL**-LENGTH)
    }
    for position in range(LENGTH):
        grown: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
        for done, noises in outcome.items():
            for noise, probability in noises.items():
                row = torch.tensor([[*ONE.tolist(), *done, *noise[position:]]])
                logits_1V = backbone.logits(row)[0, 1 + position][None]
                target_V = token_probs(logits_1V, 1.0, exclude=backbone.mask_id)[0].tolist()
                for token in range(REAL):
                    grown.setdefault((*done, token), {})[noise] = probability * target_V[token]
        outcome = grown
    return {tokens: sum(noises.values()) for tokens, noises in outcome.items()}


def _words() -> list[tuple[int, ...]]:
    return [tuple(word) for word in torch.cartesian_prod(*[torch.arange(REAL)] * LENGTH).tolist()]


@pytest.mark.parametrize("options", [{"speculative": False}, {"window": 2}, {"window": 3}])
def test_one_step_is_the_chain_product_given_noise(options: dict[str, Any]) -> None:
    assert total_variation(uniform_law(steps=1, **options), one_step_law()) < 1e-12


@pytest.mark.slow
def test_two_steps_have_one_law_for_every_window_and_draft() -> None:
    expected = uniform_law(steps=2, speculative=False)
    assert total_variation(uniform_law(steps=2, window=2), expected) < 1e-12
    assert (
        total_variation(
            uniform_law(steps=2, window=1, draft=RandomConditionals(REAL, seed=5)), expected
        )
        < 1e-12
    )


def test_half_the_positions_are_drawn_anew_and_resolved_again() -> None:
    trace = decode(
        RandomConditionals(REAL), ONE, "fef", gen_length=8, kernel="uniform", speculative=False
    ).trace
    assert trace.forwards == 8 + 4
