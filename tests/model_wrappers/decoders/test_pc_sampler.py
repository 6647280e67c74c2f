"""PC-Sampler: earlier positions and rarer tokens first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fakes import FixedLogits, RandomConditionals, Unmasked, tiny_llada

from model_wrappers import decode
from model_wrappers.decoders.pc_sampler import read_frequencies
from model_wrappers.trace import How


class Order:
    """An observer that notes the order in which positions are committed."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def committed(self, positions: list[int], tokens: list[int], probs: list[float], how: list[How]) -> None:
        self.positions += positions

    def remasked(self, positions: list[int], tokens: list[int]) -> None:
        raise AssertionError("nothing is masked again")


def order(logits_LV: torch.Tensor, **options: object) -> list[int]:
    observer = Order()
    backbone = FixedLogits(logits_LV)
    decode(backbone, torch.tensor([0]), "pc_sampler", gen_length=len(logits_LV) - 1, observer=observer, **options)
    return observer.positions


def baseline(folder: Path, counts: dict[int, int], total: int) -> Path:
    path = folder / "frequencies.json"
    path.write_text(json.dumps({"num_token": total, "p_baseline_dict": {str(k): v for k, v in counts.items()}}))
    return path


# Token 0 at position 1, token 1 at 2, token 0 at 3, each less confident than the next one.
LOGITS_LV = torch.tensor([[0.0, 0, -9, -9], [1.0, 0, -9, -9], [0.0, 2, -9, -9], [3.0, 0, -9, -9]])


@pytest.mark.parametrize("seed", range(3))
def test_without_weights_it_is_llada_one_token_a_step(seed: int) -> None:
    backbone, prompt = Unmasked(real=5, seed=seed), torch.tensor([0, 1])
    expected = decode(backbone, prompt, "llada", gen_length=16, block_length=8)
    got = decode(backbone, prompt, "pc_sampler", gen_length=16, block_length=8, lambd=0.0, alpha=1e9)
    assert torch.equal(got.tokens, expected.tokens)


def test_a_large_lambda_decodes_from_left_to_right() -> None:
    assert order(LOGITS_LV, lambd=0.0) == [2, 1, 0]
    assert order(LOGITS_LV, lambd=50.0) == [0, 1, 2]


def test_a_rare_token_comes_before_a_frequent_one(tmp_path: Path) -> None:
    path = baseline(tmp_path, {0: 999, 1: 1}, 1000)
    assert order(LOGITS_LV, lambd=0.0, baseline=path) == [1, 2, 0]


def test_alpha_bounds_how_much_rarity_counts(tmp_path: Path) -> None:
    path = baseline(tmp_path, {0: 500, 1: 1}, 1000)
    unbounded, bounded = (order(LOGITS_LV, lambd=0.4, alpha=alpha, baseline=path) for alpha in (10.0, 0.4))
    assert unbounded[0] == 1 and bounded[0] == 0


def test_a_token_that_the_corpus_lacks_counts_as_one(tmp_path: Path) -> None:
    frequency_V = read_frequencies(baseline(tmp_path, {1: 30}, 40), 3)
    torch.testing.assert_close(frequency_V, torch.tensor([1 / 40, 30 / 40, 1 / 40]))


@pytest.mark.parametrize("content", ["", "[]", '{"num_token": 0, "p_baseline_dict": {}}', '{"num_token": 3}'])
def test_a_bad_baseline_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "frequencies.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="baseline"):
        decode(RandomConditionals(), torch.tensor([0]), "pc_sampler", gen_length=2, baseline=path)


def test_nanos_own_baseline_is_for_its_vocabulary_alone() -> None:
    with pytest.raises(ValueError, match="not 40; make one"):
        decode(tiny_llada(), torch.tensor([0]), "pc_sampler", gen_length=2, baseline="nano")


def test_a_baseline_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        read_frequencies(baseline(tmp_path, {7: 1}, 1), 4)
