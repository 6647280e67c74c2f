"""Prophet: LLaDA until the answer is clear, and then everything at once."""

from __future__ import annotations

import pytest
import torch
from fakes import FixedLogits, Unmasked, tiny_llada

from model_wrappers import decode

PROMPT = torch.tensor([0])
# Gaps of 1, 2, 3 and 9 at the four positions of the response; token 0 everywhere, token 3 is the mask.
LOGITS_LV = torch.tensor([[0.0, 0, 0, -9], [1.0, 0, 0, -9], [2.0, 0, 0, -9], [3.0, 0, 0, -9], [9.0, 0, 0, -9]])


def forwards(**options: object) -> int:
    out = decode(FixedLogits(LOGITS_LV), PROMPT, "prophet", gen_length=4, **options)  # type: ignore[arg-type]
    assert out.tokens.tolist() == [0, 0, 0, 0]
    return out.trace.forwards


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block_length", [8, 16])
def test_without_an_exit_it_is_llada(seed: int, block_length: int) -> None:
    backbone, prompt = Unmasked(real=5, seed=seed), torch.tensor([0, 1])
    lengths = {"gen_length": 16, "block_length": block_length}
    never = dict.fromkeys(("early", "mid", "late"), 1e9)
    got = decode(backbone, prompt, "prophet", **lengths, **never)  # type: ignore[arg-type]
    expected = decode(backbone, prompt, "llada", **lengths)
    assert torch.equal(got.tokens, expected.tokens) and got.trace.forwards == expected.trace.forwards == 16


@pytest.mark.parametrize(
    ("thresholds", "expected"),
    [((3.7, 0, 0), 1), ((3.8, 3.7, 0), 2), ((3.8, 3.8, 3.7), 3), ((3.8, 3.8, 3.8), 4)],
)
def test_the_threshold_falls_with_the_steps(thresholds: tuple[float, float, float], expected: int) -> None:
    """The mean gap is 3.75; steps 1, 2 and 3 of 4 are 25, 50 and 75% of them."""
    assert forwards(**dict(zip(("early", "mid", "late"), thresholds, strict=True))) == expected


@pytest.mark.parametrize(("start", "length", "gap"), [(0, 1, 1.0), (0, 2, 1.5), (3, 5, 9.0), (1, 3, 14 / 3)])
def test_the_gap_is_that_of_the_answer(start: int, length: int, gap: float) -> None:
    where = {"answer_start": start, "answer_length": length, "mid": 1e9, "late": 1e9}
    assert forwards(early=gap - 0.01, **where) == 1 and forwards(early=gap + 0.01, **where) == 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"block_length": 2, "early": 3.7}, 1),  # an exit fills the later blocks too
        ({"block_length": 2, "early": 1e9, "mid": 3.7, "late": 0}, 2),  # of two blocks of two steps, 2 is 50% of all
        ({"steps": 2, "early": 1e9, "mid": 1e9, "late": 0.0}, 2),  # half as many steps begin late sooner
    ],
)
def test_steps_are_counted_over_all_blocks(options: dict[str, float], expected: int) -> None:
    assert forwards(**options) == expected


def test_what_was_given_stays() -> None:
    given = torch.tensor([3, 1, 3, 3])
    out = decode(FixedLogits(LOGITS_LV), PROMPT, "prophet", gen_length=4, given=given, early=0.0)
    assert out.tokens.tolist() == [0, 1, 0, 0] and out.trace.forwards == 1


def test_a_step_reads_as_many_tokens_as_llada() -> None:
    out = decode(tiny_llada(), torch.tensor([1, 2]), "prophet", gen_length=8, early=1e9, mid=1e9, late=1e9)
    assert out.trace.token_forwards == 8 * 10


@pytest.mark.parametrize("start", [-1, 4, 100])
def test_an_answer_outside_the_response_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match=f"answer_start={start} must be in the response, 0 to 3"):
        forwards(answer_start=start)
