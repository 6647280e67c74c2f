"""Decoders on LLaDA's loop: DDOSP's schedules, DCD's causal proposals, KLASS, PC-Sampler, Prophet.
Of commits by confidence the official tokens say all (tests/official)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import FixedLogits, RandomConditionals, Recorder, Unmasked, tiny_llada

from harness.audit.oracle import total_variation
from model_wrappers import decode
from model_wrappers.decoders.pc_sampler import read_frequencies
from model_wrappers.trace import EventLog

LENGTH = 8


def schedule_file(folder: Path, quotas: object) -> Path:
    path = folder / "schedule.json"
    path.write_text(json.dumps({"quotas": quotas}))
    return path


def test_ddosp_without_a_schedule_is_lladas_uniform_one(prompt: torch.Tensor) -> None:
    backbone = tiny_llada()
    uniform = decode(backbone, prompt, "llada", gen_length=LENGTH, steps=4)
    assert torch.equal(decode(backbone, prompt, "ddosp", gen_length=LENGTH).tokens, uniform.tokens)


def test_ddosp_follows_its_schedule(prompt: torch.Tensor, tmp_path: Path) -> None:
    backbone = Recorder(tiny_llada())
    path = schedule_file(tmp_path, [[1, 1, 2], [2, 1, 1]])
    out = decode(
        backbone, prompt, "ddosp", gen_length=LENGTH, block_length=4, steps=6, schedule=path
    )
    masks = [int((ids_1L == backbone.mask_id).sum()) for ids_1L in backbone.inputs]
    assert masks == [8, 7, 6, 4, 2, 1]  # every block its own quotas
    assert not (out.tokens == backbone.mask_id).any() and out.trace.forwards == 6


@pytest.mark.parametrize(
    ("quotas", "named"),
    [
        ([2, 2, 2, 2], "cannot be read: .*array"),
        ([[4, 4]], "has blocks of 2 steps for 8 tokens; wanted are 2 steps for 4 tokens, 2 steps"),
        ([[2, 2], [4]], "2 steps for 4 tokens, 1 steps for 4 tokens"),
        ([[2, 2], [2, 1]], "2 steps for 3 tokens; wanted"),
        ([[2, 2], [4, 0]], "cannot be read: .*int` >= 1"),
        ([[2, 2], ["2", 2]], "cannot be read: .*got `str`"),
        ([[2, 2], [3, True]], "cannot be read: .*got `bool`"),
    ],
)
def test_a_schedule_that_fits_not_is_refused(
    tmp_path: Path, prompt: torch.Tensor, quotas: object, named: str
) -> None:
    path = schedule_file(tmp_path, quotas)
    with pytest.raises(ValueError, match=named):
        decode(
            tiny_llada(), prompt, "ddosp", gen_length=LENGTH, block_length=4, steps=4, schedule=path
        )


def test_dcd_at_alpha_zero_is_the_causal_model_alone(prompt: torch.Tensor) -> None:
    class Causal(RandomConditionals):
        def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
            return super().row_logits(row, causal=True)

    alone = decode(Causal(real=5, seed=1), torch.tensor([0]), "llada", gen_length=LENGTH)
    out = decode(
        RandomConditionals(real=5, seed=1), torch.tensor([0]), "dcd", gen_length=LENGTH, alpha=0.0
    )
    assert torch.equal(out.tokens, alone.tokens)


def test_sequential_dcd_reads_each_position_after_the_fills_before_it(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, "dcd", gen_length=LENGTH, sequential=True).trace
    assert trace.forwards == sum(1 + masked for masked in range(1, LENGTH + 1))


def test_sequential_dcd_keeps_the_tokens_that_it_filled_in() -> None:
    """At temperature 1 and one step, the joint law of two positions is the causal chain, not two
    draws of it."""
    backbone = RandomConditionals(real=2, seed=4)
    logits_LV = backbone.row_logits((0, backbone.mask_id, backbone.mask_id), causal=True)
    first_V = logits_LV[1].softmax(-1)
    expected = {}
    for first in range(3):
        second_V = backbone.row_logits((0, first, backbone.mask_id), causal=True)[2].softmax(-1)
        expected |= {
            (first, second): float(first_V[first] * second_V[second]) for second in range(3)
        }
    options = {"gen_length": 2, "steps": 1, "alpha": 0.0, "sequential": True, "temperature": 1.0}
    law = enumerate_law(
        lambda s: decode(backbone, torch.tensor([0]), "dcd", sampler=s, **options).tokens
    )  # type: ignore[arg-type]
    assert total_variation(law, expected) < 1e-12


# KLASS: what is sure and stable is committed, else the most confident position


# Token 1 with confidence 0.97, 0.96, .., at positions 1 to 5, token 0 at position 6; the mask, id
# 2, is impossible.
SURE_LV = torch.tensor([[1 - p, p, 0.0] for p in (0.5, 0.97, 0.96, 0.95, 0.94, 0.93, 0.2)]).log()


@pytest.mark.parametrize(("history", "forwards"), [(1, 3), (2, 4), (3, 5)])
def test_nothing_is_stable_before_the_history_is_full(history: int, forwards: int) -> None:
    """One position a step so long, then all that is sure at once, then the last."""
    out = decode(FixedLogits(SURE_LV), torch.tensor([0]), "klass", gen_length=6, history=history)
    assert out.trace.forwards == forwards and out.tokens.tolist() == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("method", "options"),
    [("threshold", {"tau": 1.0}), ("factor", {"f": 1e-12}), ("entropy", {"gamma": 0.0})],
)
def test_where_nothing_is_sure_the_leftmost_mask_is_committed(
    method: str, options: dict[str, Any], prompt: torch.Tensor
) -> None:
    log = EventLog()
    options = {"gen_length": LENGTH, "block_length": 4, "observer": log, **options}
    decode(Unmasked(real=5, seed=2), prompt % 5, method, fallback="leftmost", **options)
    assert log.position == list(range(LENGTH))


# Entropy's budget always has room for a second position beside a sure one.
@pytest.mark.parametrize(
    ("method", "options"), [("threshold", {"tau": 0.9}), ("factor", {"f": 0.1})]
)
def test_a_single_sure_position_goes_before_the_leftmost(
    method: str, options: dict[str, Any]
) -> None:
    """Of three positions the last is sure; then the two others come from the left."""
    log = EventLog()
    logits_LV = torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0], [0.01, 0.99, 0.0]])
    decode(
        FixedLogits(logits_LV.log()),
        torch.tensor([0]),
        method,
        gen_length=3,
        fallback="leftmost",
        observer=log,
        **options,
    )
    assert log.position == [2, 0, 1]


@pytest.mark.parametrize("fallback", ["surest", "leftmost"])
@pytest.mark.parametrize("method", ["threshold", "factor", "entropy"])
def test_what_is_sure_is_committed_whatever_the_fallback(method: str, fallback: str) -> None:
    loose = {"threshold": {"tau": 0.0}, "factor": {"f": 1e9}, "entropy": {"gamma": 1e9}}
    options = {"gen_length": LENGTH, "fallback": fallback, **loose[method]}
    out = decode(Unmasked(real=5, seed=2), torch.tensor([0]), method, **options)
    assert out.trace.forwards == 1


@pytest.mark.parametrize("method", ["threshold", "factor", "entropy"])
def test_confidences_keep_an_order_that_float32_does_not_know(method: str) -> None:
    """Both positions are sure to within 1e-8, the second one more, and it goes first."""
    logits_LV = torch.tensor([[0.0, 0, -99], [19.0, 0, -99], [20.0, 0, -99]])
    assert torch.softmax(logits_LV, -1)[1:, 0].tolist() == [1.0, 1.0]
    few = {"threshold": {"tau": 1.0}, "factor": {"f": 1e-12}, "entropy": {"gamma": 0.0}}
    observer = Order()
    decode(
        FixedLogits(logits_LV),
        torch.tensor([0]),
        method,
        gen_length=2,
        observer=observer,
        **few[method],
    )  # type: ignore[arg-type]
    assert observer.positions == [1, 0]


# PC-Sampler: earlier positions and rarer tokens first
class Order:
    """An observer that notes the order in which positions are committed."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def committed(
        self, positions: list[int], tokens: list[int], probs: list[float], how: list[str]
    ) -> None:
        self.positions += positions

    def remasked(self, positions: list[int], tokens: list[int]) -> None:
        raise AssertionError("nothing is masked again")


def order(logits_LV: torch.Tensor, **options: object) -> list[int]:
    observer = Order()
    backbone = FixedLogits(logits_LV)
    decode(
        backbone,
        torch.tensor([0]),
        "pc_sampler",
        gen_length=len(logits_LV) - 1,
        observer=observer,
        **options,
    )
    return observer.positions


def baseline(folder: Path, counts: dict[int, int], total: int) -> Path:
    path = folder / "frequencies.json"
    path.write_text(
        json.dumps({"num_token": total, "p_baseline_dict": {str(k): v for k, v in counts.items()}})
    )
    return path


# Token 0 at position 1, token 1 at 2, token 0 at 3, each less confident than the next one.
LOGITS_LV = torch.tensor([[0.0, 0, -9, -9], [1.0, 0, -9, -9], [0.0, 2, -9, -9], [3.0, 0, -9, -9]])


def test_a_large_lambda_decodes_from_left_to_right() -> None:
    assert order(LOGITS_LV, lambd=0.0) == [2, 1, 0]
    assert order(LOGITS_LV, lambd=50.0) == [0, 1, 2]


def test_a_rare_token_comes_before_a_frequent_one(tmp_path: Path) -> None:
    path = baseline(tmp_path, {0: 999, 1: 1}, 1000)
    assert order(LOGITS_LV, lambd=0.0, baseline=path) == [1, 2, 0]


def test_a_baseline_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 40; docs"):
        decode(tiny_llada(), torch.tensor([0]), "pc_sampler", gen_length=2, baseline="nano")
    with pytest.raises(ValueError, match="vocabulary"):
        read_frequencies(baseline(tmp_path, {7: 1}, 1), 4)


# Prophet: LLaDA until the answer is clear, and then everything at once
PROMPT = torch.tensor([0])
# Gaps of 1, 2, 3 and 9 at the four positions of the response; token 0 everywhere, token 3 is the
# mask.
GAPS_LV = torch.tensor(
    [[0.0, 0, 0, -9], [1.0, 0, 0, -9], [2.0, 0, 0, -9], [3.0, 0, 0, -9], [9.0, 0, 0, -9]]
)


def forwards(**options: object) -> int:
    out = decode(FixedLogits(GAPS_LV), PROMPT, "prophet", gen_length=4, **options)  # type: ignore[arg-type]
    assert out.tokens.tolist() == [0, 0, 0, 0]
    return out.trace.forwards


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [((3.7, 0, 0), 1), ((3.8, 3.7, 0), 2), ((3.8, 3.8, 3.7), 3), ((3.8, 3.8, 3.8), 4)],
)
def test_the_threshold_falls_with_the_steps(
    thresholds: tuple[float, float, float], expected: int
) -> None:
    """The mean gap is 3.75; steps 1, 2 and 3 of 4 are 25, 50 and 75% of them."""
    assert forwards(**dict(zip(("early", "mid", "late"), thresholds, strict=True))) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"block_length": 2, "early": 3.7}, 1),  # an exit fills the later blocks too
        (
            {"block_length": 2, "early": 1e9, "mid": 3.7, "late": 0},
            2,
        ),  # of two blocks of two steps, 2 is 50% of all
        (
            {"steps": 2, "early": 1e9, "mid": 1e9, "late": 0.0},
            2,
        ),  # half as many steps begin late sooner
    ],
)
def test_steps_are_counted_over_all_blocks(options: dict[str, float], expected: int) -> None:
    assert forwards(**options) == expected
