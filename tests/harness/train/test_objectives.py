"""Position-conditioned prediction, by a random subset of positions against all of them; corruption
in blocks."""

import itertools

import pytest
import torch
from fakes import tiny_llada

from harness.train.data import CorruptedBatches, NanoExamples
from harness.train.objectives import (
    BLOCK_LENGTHS,
    PositionRows,
    corrupt_in_blocks,
    fef_loss,
    position_rows,
)
from model_wrappers import load_backbone

CLEAN = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
MASK = 39
CORRUPTED = torch.tensor([[1, 2, MASK, 4, MASK, MASK], [7, MASK, 9, 10, 11, 12]])


def rows(count: int | None, seed: int = 0) -> PositionRows:
    return position_rows(CLEAN, CORRUPTED, count, torch.Generator().manual_seed(seed))


def test_each_input_is_clean_before_its_position_and_corrupted_from_it_on() -> None:
    everything = rows(None)
    assert everything.position.tolist() == [2, 4, 5, 1] and everything.target.tolist() == [
        3,
        5,
        6,
        8,
    ]
    assert everything.inputs.tolist() == [
        [1, 2, MASK, 4, MASK, MASK],
        [1, 2, 3, 4, MASK, MASK],
        [1, 2, 3, 4, 5, MASK],
        [7, MASK, 9, 10, 11, 12],
    ]
    assert everything.weight.tolist() == [1, 1, 1, 1]


def test_a_subset_has_no_more_rows_than_there_are_positions() -> None:
    two = rows(2)
    assert (
        len(two.position) == 3 and two.weight.tolist() == [1.5, 1.5, 1.0] and two.position[2] == 1
    )


def loss_and_gradient(batch: PositionRows) -> tuple[float, torch.Tensor]:
    model = tiny_llada(0).model.double()
    logits_RV = model(input_ids=batch.inputs, positions=batch.position[:, None]).logits[:, 0]
    loss = fef_loss(logits_RV.double(), batch.target, batch.weight, tokens=8)
    loss.backward()
    return float(loss.detach()), torch.cat(
        [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    )


@pytest.mark.parametrize("count", [1, 2])
def test_the_mean_over_all_subsets_is_the_full_loss_and_gradient(count: int) -> None:
    """By enumeration: every subset of the first example's three positions; the second example has
    one."""
    everything = rows(None)
    expected, expected_gradient = loss_and_gradient(everything)
    losses, gradients = [], []
    for subset in itertools.combinations(range(3), count):
        chosen = torch.tensor([*subset, 3])
        weight = torch.tensor([*[3 / count] * count, 1.0])
        loss, gradient = loss_and_gradient(
            PositionRows(
                everything.inputs[chosen],
                everything.position[chosen],
                everything.target[chosen],
                weight,
            )
        )
        losses.append(loss)
        gradients.append(gradient)
    assert sum(losses) / len(losses) == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(
        torch.stack(gradients).mean(0), expected_gradient, rtol=1e-4, atol=1e-7
    )


def test_subsets_are_drawn_uniformly() -> None:
    draws = 3000
    generator = torch.Generator().manual_seed(0)
    positions = torch.cat(
        [position_rows(CLEAN[:1], CORRUPTED[:1], 2, generator).position for _ in range(draws)]
    )
    # Each of three positions is in two of three subsets: five standard deviations of a binomial.
    bound = 5 * (draws * 2 / 9) ** 0.5
    assert all(
        abs(int((positions == position).sum()) - draws * 2 / 3) < bound for position in (2, 4, 5)
    )


def test_the_loss_is_the_sum_over_corrupted_positions_per_response_token() -> None:
    model = tiny_llada(0).model
    everything = rows(None)
    logits_RLV = model(input_ids=everything.inputs).logits.detach()
    expected = -sum(
        float(logits_RLV[r, position].log_softmax(-1)[target]) / 8
        for r, (position, target) in enumerate(
            zip(everything.position, everything.target, strict=True)
        )
    )
    logits_RV = (
        model(input_ids=everything.inputs, positions=everything.position[:, None])
        .logits[:, 0]
        .detach()
    )
    assert float(fef_loss(logits_RV, everything.target, everything.weight, 8)) == pytest.approx(
        expected, rel=1e-5
    )


# Corruption as decoding in blocks meets it
def test_before_the_block_all_is_clean_and_behind_it_all_is_masked() -> None:
    clean = torch.arange(70).expand(64, -1)
    response = torch.zeros(64, 70, dtype=torch.bool)
    response[:, 6:] = True
    generator = torch.Generator().manual_seed(0)
    corrupted, share = corrupt_in_blocks(clean, response, torch.full((64,), 0.3), 99, generator)
    masked = corrupted == 99
    assert not masked[:, :6].any() and masked.any(1).all()
    assert share.tolist() == pytest.approx((masked.sum(1) / 64).tolist())
    starts = set()
    for row in masked[:, 6:]:
        fits = [
            (length, begin)
            for length in (*BLOCK_LENGTHS, 64)
            for begin in range(0, 64, length)
            if not row[:begin].any()
            and row[begin + length :].all()
            and int(row[begin : begin + length].sum()) == -(-3 * length // 10)
        ]
        assert fits, row
        starts |= {begin for _, begin in fits}
    assert len(starts) > 4


def test_each_batch_of_examples_comes_twice_corrupted_otherwise_and_without_solved_ones() -> None:
    backbone = load_backbone("nano")
    examples = NanoExamples(
        backbone.text_tokenizer(), 32, 4, 0, {"gsm8k-4shot": 1, "mbpp": 1}, repeats=2, shots=False
    )
    once = NanoExamples(backbone.text_tokenizer(), 16, 4, 0, {"gsm8k-4shot": 1, "mbpp": 1})
    batches = CorruptedBatches(backbone.eos_id, backbone.mask_id, 0, blocks=0.5)
    for number in range(4):
        first, second = (
            [examples[8 * number + 4 * half + n] for n in range(4)] for half in range(2)
        )
        responses = [example["response"] for example in first]
        assert responses == [example["response"] for example in second]
        assert responses == [once[4 * number + n]["response"] for n in range(4)]
        assert max(len(example["prompt"]) for example in first) < 150
        assert not torch.equal(batches(first)["corrupted"], batches(second)["corrupted"])
