"""Decoders on LLaDA's loop: DDOSP's schedules, DCD's causal proposals, and commits by confidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fakes import FixedLogits, RandomConditionals, tiny_llada

from model_wrappers import decode

LENGTH = 8


def schedule_file(folder: Path, quotas: list[object]) -> str:
    path = folder / "schedule.json"
    path.write_text(json.dumps({"quotas": quotas}))
    return str(path)


def test_ddosp_without_a_schedule_is_lladas_uniform_one(prompt: torch.Tensor) -> None:
    backbone = tiny_llada()
    uniform = decode(backbone, prompt, "llada", gen_length=LENGTH, steps=4)
    assert torch.equal(decode(backbone, prompt, "ddosp", gen_length=LENGTH).tokens, uniform.tokens)


def test_ddosp_follows_its_schedule(prompt: torch.Tensor, tmp_path: Path) -> None:
    path = schedule_file(tmp_path, [1, 1, 2])
    out = decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, block_length=4, steps=6, schedule=path)
    assert out.trace.forwards == 6 and not (out.tokens == tiny_llada().mask_id).any()


@pytest.mark.parametrize("quotas", [[4, 4, 4], [2, 2, 2, 1], [8, 0, 0, 0], ["2", 2, 2, 2], []])
def test_a_schedule_for_another_length_is_refused(tmp_path: Path, prompt: torch.Tensor, quotas: list[object]) -> None:
    with pytest.raises(ValueError, match="schedule"):
        decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, steps=4, schedule=schedule_file(tmp_path, quotas))


def test_a_missing_schedule_is_refused(prompt: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"schedule\.py"):
        decode(tiny_llada(), prompt, "ddosp", gen_length=LENGTH, schedule="nowhere.json")


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


def test_sequential_dcd_reads_each_place_after_the_fills_before_it(prompt: torch.Tensor) -> None:
    trace = decode(tiny_llada(), prompt, "dcd", gen_length=LENGTH, sequential=True).trace
    assert trace.forwards == sum(1 + masked for masked in range(1, LENGTH + 1))


def test_sequential_dcd_at_one_step_is_greedy_left_to_right() -> None:
    backbone = RandomConditionals(real=4, seed=2)
    row = [0, *[backbone.mask_id] * 4]
    for place in range(1, 5):
        logits_LV = backbone.row_logits(tuple(row), causal=True)
        row[place] = int(logits_LV[place].argmax())
    out = decode(backbone, torch.tensor([0]), "dcd", gen_length=4, steps=1, alpha=0.0, sequential=True)
    assert out.tokens.tolist() == row[1:]


def fixed(confidences: list[float]) -> FixedLogits:
    """Independent laws over two tokens with these confidences in token 1; the prompt is one token."""
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
