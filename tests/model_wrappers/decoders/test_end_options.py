"""EOS and EoT with every decoder: the official sampler's options about them, and ending a response
at EOS."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from fakes import ON_LOGITS, RandomConditionals, Unmasked, request_for

from model_wrappers import METHODS, decode
from model_wrappers.decoders.llada import Choice
from model_wrappers.options import EndOptions
from model_wrappers.request import Request, fill_after_eos
from model_wrappers.trace import KINDS, EventLog

EOS, EOT = 2, 1
PROMPT = torch.tensor([3, 0])


class WithoutEos(Unmasked):
    """The same conditionals, EOS having no probability."""

    def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
        return super().row_logits(row, causal).index_fill(1, torch.tensor([EOS]), -1e4)


def with_eot(backbone: RandomConditionals) -> RandomConditionals:
    backbone.eot_id = EOT  # type: ignore[attr-defined]
    return backbone


@pytest.mark.parametrize("method", ON_LOGITS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_eos_is_never_predicted(method: str, temperature: float) -> None:
    if METHODS[method].greedy_only and temperature:
        pytest.skip("defined at temperature 0")
    seen = 0
    for seed in range(4):
        run = partial(decode, gen_length=12, temperature=temperature, seed=seed)
        plain = Unmasked(real=4, seed=seed, eos_id=EOS)
        out = run(plain, PROMPT, method, logits_eos_inf=True)
        same = run(WithoutEos(real=4, seed=seed, eos_id=EOS), PROMPT, method)
        assert EOS not in out.tokens.tolist() and torch.equal(out.tokens, same.tokens)
        seen += EOS in run(plain, PROMPT, method).tokens.tolist()
    assert seen  # without the option it is predicted


@pytest.mark.parametrize(
    "options", [{}, {"reuse_drafts": True, "skip_root_row": True, "adaptive_window": True}]
)
def test_savings_keep_the_tokens_with_both_options(options: dict[str, Any]) -> None:
    ends = {"logits_eos_inf": True, "confidence_eos_eot_inf": True}
    for seed in range(4):
        run = partial(
            decode,
            with_eot(RandomConditionals(real=4, seed=seed, eos_id=EOS)),
            PROMPT,
            "fef",
            **ends,
        )
        plain = run(gen_length=12, speculative=False)
        assert torch.equal(run(gen_length=12, window=4, **options).tokens, plain.tokens)


def remasked(log: EventLog) -> list[int]:
    """The tokens that stood where positions were masked again."""
    now: dict[int, int] = {}
    found = []
    for kind, position, token in zip(log.kind, log.position, log.token, strict=True):
        if KINDS[kind] == "remasked":
            found.append(now[position])
        if KINDS[kind] not in ("rejected", "discarded"):
            now[position] = token
    return found


def test_fef_remasks_ends_first() -> None:
    """Half of the positions are re-masked: of those that hold EOS or EoT all, as long as they are
    not more."""
    seen = 0
    for seed in range(8):
        backbone, log = with_eot(RandomConditionals(real=5, seed=seed, eos_id=EOS)), EventLog()
        first = decode(
            backbone, PROMPT, "fef", gen_length=12, steps=1, confidence_eos_eot_inf=True
        ).tokens.tolist()
        options = {"gen_length": 12, "steps": 2, "confidence_eos_eot_inf": True, "observer": log}
        decode(backbone, PROMPT, "fef", **options)
        ends = first.count(EOS) + first.count(EOT)
        assert sum(token in (EOS, EOT) for token in remasked(log)) == min(ends, 6)
        seen += ends
    assert seen > 8


@pytest.mark.parametrize(
    ("option", "temperature", "without"),
    [
        (True, 0.0, {EOS, EOT}),
        (True, 0.7, {EOS, EOT}),
        ("official", 0.0, {EOS, EOT}),
        ("official", 0.7, {EOT}),
    ],
)
def test_ends_have_no_confidence_but_for_the_official_form_above_temperature_0(
    option: Any, temperature: float, without: set[int]
) -> None:
    """There the noisy logits, of which LLaDA's code takes out EOS, are not those that give
    confidences."""
    request = request_for(with_eot(RandomConditionals(real=5, eos_id=EOS)), [3, 5, 5], start=1)
    request = Request(**{**vars(request), "temperature": temperature})
    logits_NV = 8.0 * torch.eye(6)[:5]  # position n predicts token n, near certainty
    candidates = Choice(request, EndOptions(confidence_eos_eot_inf=option))(logits_NV)
    confident = {
        token
        for token, sure in zip(range(5), candidates.confidence_N.tolist(), strict=True)
        if sure > 0.5
    }
    assert candidates.token_N.tolist() == [0, 1, 2, 3, 4] and confident == set(range(5)) - without


# dcd takes it off a sum of two logits.
@pytest.mark.parametrize("method", [method for method in ON_LOGITS if method != "dcd"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_penalty_is_logits_that_are_lower_at_both_ends(method: str, temperature: float) -> None:
    if METHODS[method].greedy_only and temperature:
        pytest.skip("defined at temperature 0")

    class Penalized(Unmasked):
        def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
            logits_LV = super().row_logits(row, causal).clone()
            logits_LV[:, [EOS, EOT]] -= 1.5
            return logits_LV

    changed = 0
    for seed in range(3):
        run = partial(decode, gen_length=12, temperature=temperature, seed=seed)
        plain = with_eot(Unmasked(real=4, seed=seed, eos_id=EOS))
        out = run(plain, PROMPT, method, eos_penalty=1.5).tokens
        same = run(with_eot(Penalized(real=4, seed=seed, eos_id=EOS)), PROMPT, method).tokens
        assert torch.equal(out, same)
        changed += not torch.equal(out, run(plain, PROMPT, method).tokens)
    assert changed


def test_a_penalty_divides_the_odds_of_ends_above_temperature_0() -> None:
    """The options about confidence leave EOS as frequent as it is; this one does not."""

    def share(**options: Any) -> float:
        logits_NV = torch.zeros(4000, 6)
        logits_NV[:, 5] = -torch.inf
        request = request_for(with_eot(RandomConditionals(real=5, eos_id=EOS)), [3, 5], start=1)
        request = Request(**{**vars(request), "temperature": 0.5})
        token_N = Choice(request, EndOptions(**options))(logits_NV).token_N
        return float((token_N == EOS).double().mean())

    assert share(confidence_eos_eot_inf=True) == share()
    odds = math.exp(-1.0 / 0.5)
    expected = odds / (3 + 2 * odds)
    assert abs(share(eos_penalty=1.0) - expected) < 4 * math.sqrt(expected / 4000)


# Ending at EOS: the same text for fewer forwards
MASK = 3
SHORT = torch.tensor([1, 0])


WAYS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in ON_LOGITS),
    *(
        ("fef", {"speculative": on, "temperature": heat})
        for on in (True, False)
        for heat in (0.0, 1.0)
    ),
]


@pytest.mark.parametrize("block_length", [16, 4])
@pytest.mark.parametrize(("method", "options"), WAYS, ids=str)
def test_the_text_stays_and_costs_less(
    method: str, options: dict[str, Any], block_length: int
) -> None:
    saved = 0
    for seed in range(6):
        backbone = Unmasked(real=3, seed=seed, eos_id=EOS)
        run = partial(
            decode,
            backbone,
            SHORT,
            method,
            gen_length=16,
            block_length=block_length,
            seed=seed,
            **options,
        )
        full, stopped = run(stop_at_eos=False), run(stop_at_eos=True)
        saved += full.trace.forwards - stopped.trace.forwards
        response = full.tokens.tolist()
        end = response.index(EOS) + 1 if EOS in response else len(response)
        assert stopped.tokens[:end].tolist() == response[:end]
        assert (
            stopped.tokens[stopped.tokens != full.tokens] == EOS
        ).all() and MASK not in stopped.tokens.tolist()
    assert saved > 0 or (method, block_length) == ("block", 16)  # it ends with a block


def request(response: list[int]) -> Request:
    return request_for(
        RandomConditionals(real=3, eos_id=EOS), [*SHORT.tolist(), *response], start=len(SHORT)
    )


@pytest.mark.parametrize(
    ("response", "filled"),
    [
        ([1, EOS, MASK, 0, MASK], [1, EOS, EOS, 0, EOS]),
        ([EOS, MASK, MASK], [EOS, EOS, EOS]),
        ([1, MASK, EOS, MASK], None),
        ([1, 0, MASK], None),
    ],
)
def test_masks_after_the_first_eos_are_filled_once_none_is_before(
    response: list[int], filled: list[int] | None
) -> None:
    made = request(response)
    assert fill_after_eos(made) == (filled is not None)
    assert made.x_1L[0, len(SHORT) :].tolist() == (filled or response)
