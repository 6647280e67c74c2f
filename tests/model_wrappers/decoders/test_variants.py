"""Decoders on LLaDA's loop: DDOSP's schedules, DCD's causal proposals, and commits by confidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from enumerated import enumerate_law
from fakes import FixedLogits, RandomConditionals, Recorder, tiny_llada

from harness.laws.oracle import total_variation
from model_wrappers import decode

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
    out = decode(backbone, prompt, "ddosp", gen_length=LENGTH, block_length=4, steps=6, schedule=path)
    masks = [int((ids_1L == backbone.mask_id).sum()) for ids_1L in backbone.inputs]
    assert masks == [8, 7, 6, 4, 2, 1]  # every block its own quotas
    assert not (out.tokens == backbone.mask_id).any() and out.trace.forwards == 6


def test_the_uniform_schedule_in_a_file_is_lladas_own(prompt: torch.Tensor, tmp_path: Path) -> None:
    lengths = {"gen_length": LENGTH, "block_length": 4, "steps": 4}
    path = schedule_file(tmp_path, [[2, 2], [2, 2]])
    scheduled = decode(tiny_llada(), prompt, "ddosp", **lengths, schedule=str(path))
    assert torch.equal(scheduled.tokens, decode(tiny_llada(), prompt, "llada", **lengths).tokens)


@pytest.mark.parametrize(
    ("quotas", "named"),
    [
        ([2, 2, 2, 2], "one list of quotas per block"),
        ("2222", "one list of quotas per block"),
        ([[4, 4]], "1 blocks, not 2"),
        ([], "0 blocks, not 2"),
        ([[2, 2], [4]], "block 2: 1 steps"),
        ([[2, 2], [2, 1]], "block 2: 2 steps that commit 3 tokens, not 2 that commit 4"),
        ([[2, 2], [4, 0]], "at least 1"),
        ([[2, 2], ["2", 2]], "whole numbers"),
        ([[2, 2], [2.0, 2]], "whole numbers"),
        ([[2, 2], [3, True]], "whole numbers"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(
    tmp_path: Path, prompt: torch.Tensor, quotas: object, named: str
) -> None:
    path = schedule_file(tmp_path, quotas)
    with pytest.raises(ValueError, match=named):
        decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, block_length=4, steps=4, schedule=path)


@pytest.mark.parametrize("schedule", ["nowhere.json", "nano/nothing"])
def test_a_missing_schedule_is_refused(prompt: torch.Tensor, schedule: str) -> None:
    with pytest.raises(ValueError, match=r"schedule\.py"):
        decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, schedule=schedule)


@pytest.mark.parametrize("text", ["{broken", "[]", "{}", "3"])
def test_a_file_that_is_no_schedule_is_refused(prompt: torch.Tensor, tmp_path: Path, text: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"schedule\.json cannot be read"):
        decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, schedule=path)


def test_dcd_at_alpha_zero_is_the_causal_model_alone(prompt: torch.Tensor) -> None:
    class Causal(RandomConditionals):
        def row_logits(self, row: tuple[int, ...], causal: bool) -> torch.Tensor:
            return super().row_logits(row, causal=True)

    alone = decode(Causal(real=5, seed=1), torch.tensor([0]), "llada", gen_length=LENGTH)
    out = decode(RandomConditionals(real=5, seed=1), torch.tensor([0]), "dcd", gen_length=LENGTH, alpha=0.0)
    assert torch.equal(out.tokens, alone.tokens)


def test_dcd_makes_two_rows_a_step(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, "dcd", gen_length=LENGTH).trace
    assert trace.rows == 2 * LENGTH


def test_sequential_dcd_reads_each_position_after_the_fills_before_it(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, "dcd", gen_length=LENGTH, sequential=True).trace
    assert trace.forwards == sum(1 + masked for masked in range(1, LENGTH + 1))


def test_sequential_dcd_at_one_step_is_greedy_left_to_right() -> None:
    backbone = RandomConditionals(real=4, seed=2)
    row = [0, *[backbone.mask_id] * 4]
    for position in range(1, 5):
        logits_LV = backbone.row_logits(tuple(row), causal=True)
        row[position] = int(logits_LV[position].argmax())
    out = decode(backbone, torch.tensor([0]), "dcd", gen_length=4, steps=1, alpha=0.0, sequential=True)
    assert out.tokens.tolist() == row[1:]


def fixed(confidences: list[float]) -> FixedLogits:
    """Independent distributions over two tokens with these confidences in token 1; the prompt is one token."""
    rows = [[0.0, 0.0, -60.0]] + [[0.0, float(torch.logit(torch.tensor(c))), -60.0] for c in confidences]
    return FixedLogits(torch.tensor(rows))


def forwards(method: str, confidences: list[float], **options: float) -> int:
    return decode(fixed(confidences), torch.tensor([0]), method, gen_length=len(confidences), **options).trace.forwards


def test_threshold_commits_all_above_tau_and_at_least_one() -> None:
    assert forwards("threshold", [0.95, 0.92, 0.8, 0.6]) == 3  # two at once, then one by one
    assert forwards("threshold", [0.95, 0.92, 0.8, 0.6], tau=0.5) == 1
    assert forwards("threshold", [0.95, 0.92, 0.8, 0.6], tau=1.0) == 4


def test_factor_commits_the_largest_n_within_f() -> None:
    # (n + 1)(1 - c_(n)): 0.10, 0.24, 0.80, 2.0 for f = 1: three at once, then one.
    assert forwards("factor", [0.95, 0.92, 0.8, 0.6]) == 2
    assert forwards("factor", [0.95, 0.92, 0.8, 0.6], f=0.2) == 4


def test_entropy_commits_the_largest_set_within_gamma() -> None:
    entropies = torch.distributions.Bernoulli(torch.tensor([0.95, 0.92, 0.8, 0.6])).entropy()
    budget = float(entropies[0] + entropies[1])
    assert forwards("entropy", [0.95, 0.92, 0.8, 0.6], gamma=budget + 1e-4) == 2  # three, then one
    assert forwards("entropy", [0.95, 0.92, 0.8, 0.6], gamma=0.0) == 4


@pytest.mark.parametrize(
    ("method", "options"),
    [("threshold", {"tau": 1.5}), ("factor", {"f": 0.0}), ("entropy", {"gamma": -1.0}), ("dcd", {"alpha": -0.5})],
)
def test_bad_values_are_refused(method: str, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        decode(fixed([0.9, 0.8]), torch.tensor([0]), method, gen_length=2, **options)


def test_sequential_dcd_keeps_the_tokens_that_it_filled_in() -> None:
    """At temperature 1 and one step, the joint law of two positions is the causal chain, not two draws of it."""
    backbone = RandomConditionals(real=2, seed=4)
    logits_LV = backbone.row_logits((0, backbone.mask_id, backbone.mask_id), causal=True)
    first_V = logits_LV[1].softmax(-1)
    expected = {}
    for first in range(3):
        second_V = backbone.row_logits((0, first, backbone.mask_id), causal=True)[2].softmax(-1)
        expected |= {(first, second): float(first_V[first] * second_V[second]) for second in range(3)}
    options = {"gen_length": 2, "steps": 1, "alpha": 0.0, "sequential": True, "temperature": 1.0}
    law = enumerate_law(lambda s: decode(backbone, torch.tensor([0]), "dcd", sampler=s, **options).tokens)  # type: ignore[arg-type]
    assert total_variation(law, expected) < 1e-12
