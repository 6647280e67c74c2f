"""Batches: every decoder's tokens and costs are those it has alone, and no response suffers by
another."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from families import NAMES, tiny

from model_wrappers import Backbone, Decoded, decode
from model_wrappers.backbones.plain import Call, PlainForward
from model_wrappers.batches import MOST_AT_ONCE, at_once, fitting, in_batch

LENGTH = 8
WAYS: list[dict[str, Any]] = [
    {"method": "llada", "block_length": 4},
    {"method": "llada", "block_length": 4, "cache": "prefix"},
    {"method": "llada", "block_length": 4, "cache": "dual"},
    {"method": "llada", "temperature": 0.7},
    *(
        {"method": method}
        for method in ("ssd", "dcd", "threshold", "factor", "entropy", "klass", "wino", "freedave")
    ),
    {"method": "flash", "window": 4, "threshold": 0.3, "gamma": 0.1, "tracked": 4, "masked": 8},
    {"method": "ddosp", "steps": 4},
    {"method": "fef", "window": 3},
    {"method": "fef", "window": 3, "temperature": 1.0},
    {"method": "fef", "reuse_drafts": True, "skip_root_row": True, "adaptive_window": True},
    {"method": "fef", "verify": "two-stream", "refresh_below": 0.7},
]
IN_BLOCKS = ("llada", "threshold", "block", "s2d2", "fef")


def exact(name: str, **changes: Any) -> Backbone:
    """A tiny model in float64, where no tie of rounding decides between tokens; experts are in
    float32 alone."""
    backbone = tiny(name, **changes)
    if "moe" not in name:
        backbone.model.double()
    return Backbone(backbone.family, backbone.model, None, name)


def prompts(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 30, (3 + number,), generator=generator) for number in range(count)]


def response(backbone: Backbone, prompt_P: torch.Tensor, seed: int, way: dict[str, Any]) -> Decoded:
    return decode(backbone, prompt_P, gen_length=LENGTH, seed=seed, **way)


def jobs(
    backbone: Backbone, count: int, way: dict[str, Any]
) -> Iterator[Callable[[], tuple[int, Decoded]]]:
    for seed, prompt_P in enumerate(prompts(count)):
        yield partial(
            lambda *given: (given[1], response(in_batch(backbone), *given, way)), prompt_P, seed
        )


def told(out: Decoded) -> tuple[Any, ...]:
    """All of a response but its seconds."""
    costs = {name: value for name, value in vars(out.trace).items() if not name.endswith("seconds")}
    return out.tokens.tolist(), costs


def same_as_alone(backbone: Backbone, way: dict[str, Any], size: int = 3, count: int = 5) -> None:
    alone = [
        told(response(backbone, prompt_P, seed, way))
        for seed, prompt_P in enumerate(prompts(count))
    ]
    found = dict(at_once(jobs(backbone, count, way), size))
    assert [told(found[number]) for number in range(count)] == alone


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_tokens_and_costs_are_those_of_a_response_alone(way: dict[str, Any]) -> None:
    same_as_alone(exact("llada"), way)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "llada"])
@pytest.mark.parametrize("method", ["threshold", "fef"])
def test_so_they_are_on_every_family(name: str, method: str) -> None:
    same_as_alone(exact(name), {"method": method})


@pytest.mark.parametrize("name", ["sdar", "sdar_moe", "llada2_moe"])
@pytest.mark.parametrize("method", IN_BLOCKS)
def test_so_they_are_on_block_models(name: str, method: str) -> None:
    same_as_alone(exact(name), {"method": method})


def test_calls_of_a_round_are_one_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, sizes = exact("llada"), list[int]()
    packed = backbone.forward.packed
    monkeypatch.setattr(
        backbone.forward, "packed", lambda calls: sizes.append(len(calls)) or packed(calls)
    )
    assert len(list(at_once(jobs(backbone, 4, {"method": "llada"}), 4))) == 4
    assert sizes == [4] * LENGTH  # four responses of as many calls each


def test_two_models_of_a_response_are_each_packed() -> None:
    target, draft = exact("llada"), exact("llada", seed=1)
    alone = [
        told(response(target, prompt_P, 0, {"method": "fef", "draft": draft}))
        for prompt_P in prompts(3)
    ]

    def one(prompt_P: torch.Tensor) -> Decoded:
        return response(in_batch(target), prompt_P, 0, {"method": "fef", "draft": in_batch(draft)})

    found = list(at_once([partial(one, prompt_P) for prompt_P in prompts(3)], 3))
    assert sorted(map(str, map(told, found))) == sorted(map(str, alone))


def test_a_failing_response_is_raised_when_the_others_have_ended() -> None:
    backbone, begun = exact("llada"), []

    def job(number: int) -> int:
        begun.append(number)
        own = in_batch(backbone)
        own.logits(torch.zeros(1, 4, dtype=torch.long))
        if number == 1:
            raise KeyError("one")
        own.logits(torch.zeros(1, 4, dtype=torch.long))
        return number

    found = []
    with pytest.raises(KeyError, match="one"):
        for number in at_once([partial(job, number) for number in range(6)], 3):
            found.append(number)
    assert sorted(found) == [0, 2] and begun == [0, 1, 2]


def test_logits_of_eight_calls_at_once_are_those_of_each_alone() -> None:
    backbone = exact("llada")

    def job(token: int) -> tuple[int, torch.Tensor]:
        return token, in_batch(backbone).logits(torch.tensor([[1, token]]))

    for token, logits_12V in at_once([partial(job, token) for token in range(4, 12)], 8):
        torch.testing.assert_close(
            logits_12V, backbone.logits(torch.tensor([[1, token]])), rtol=0, atol=1e-12
        )


def test_where_memory_runs_out_the_batch_is_halved_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone, sizes = exact("llada"), list[int]()
    packed = PlainForward.packed

    def small(self: PlainForward, calls: list[Call]) -> list[torch.Tensor]:
        if len(calls) > 2:
            raise torch.OutOfMemoryError("too much")
        sizes.append(len(calls))
        return packed(self, calls)

    way = {"method": "fef"}
    alone = [
        told(response(backbone, prompt_P, seed, way)) for seed, prompt_P in enumerate(prompts(8))
    ]
    monkeypatch.setattr(PlainForward, "packed", small)
    found = dict(at_once(jobs(backbone, 8, way), 8))
    lines = capsys.readouterr().out.splitlines()
    assert [told(found[number]) for number in range(8)] == alone
    assert max(sizes) == 2 and lines[0].startswith(
        "memory ran out with 8 responses at once; from here on it is 4"
    )
    assert lines[-1].endswith("it is 2")


def test_as_many_fit_as_their_keys_and_logits_leave_room_for() -> None:
    backbone = tiny("llada")  # 2 layers, 2 heads of 8 for keys, 40 tokens, fp32
    each = 100 * (2 * 2 * 2 * 8 * 4 + 40 * 12)
    assert fitting(backbone, 100, 7 * each) == fitting(backbone, 100, 8 * each - 1) == 7
    assert fitting(backbone, 100, 0) == 1 and fitting(backbone, 100, 10**15) == MOST_AT_ONCE
