"""top_p and top_k with every decoder that samples."""

from typing import Any

import pytest
import torch
from enumerated import enumerate_law
from fakes import ON_LOGITS, Unmasked

from harness.audit.oracle import TableBackbone, random_table, total_variation
from model_wrappers import METHODS, decode
from model_wrappers.sampling import Sampler

PROMPT = [3, 0]
# Its order is of the truncated probabilities; test_official_dream.py has its law.
SAMPLING = [name for name in ON_LOGITS if not METHODS[name].greedy_only and name != "dream"]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SAMPLING),
    ("fef", {"speculative": False}),
    ("fef", {"window": 4, "skip_root_row": True, "reuse_drafts": True, "adaptive_window": True}),
    ("fef", {"draft": Unmasked(real=5, seed=9)}),
]


@pytest.mark.parametrize(("method", "options"), CASES)
@pytest.mark.parametrize("truncation", [{"top_k": 1}, {"top_p": 1e-6}])
def test_one_token_that_is_left_is_the_likeliest(
    method: str, options: dict[str, Any], truncation: dict[str, Any]
) -> None:
    for seed in range(3):
        backbone = Unmasked(real=5, seed=seed)
        common = {"gen_length": 12, **options}
        greedy = decode(backbone, PROMPT, method, **common).tokens
        out = decode(backbone, PROMPT, method, temperature=1.0, seed=seed, **common, **truncation)
        assert torch.equal(out.tokens, greedy)


@pytest.mark.parametrize("truncation", [{"top_p": 0.6}, {"top_k": 2}])
def test_drafts_of_the_model_itself_are_truncated_too(truncation: dict[str, Any]) -> None:
    """In windows of one a draft has the target's distribution, so none is rejected. The law does
    not tell: it is the target's whatever the draft."""
    options = {"gen_length": 12, "steps": 1, "window": 1, "temperature": 1.0, **truncation}
    for seed in range(4):
        trace = decode(Unmasked(real=5, seed=seed), PROMPT, "fef", seed=seed, **options).trace
        assert [window.accepted for window in trace.windows] == [1] * 12


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("truncation", [{"top_p": 0.7}, {"top_k": 2}])
def test_fef_samples_from_the_product_of_truncated_conditionals(
    window: int, truncation: dict[str, Any]
) -> None:
    """The draft is another table, truncated by itself; every branch is walked."""
    table = random_table(3, 3, seed=4)
    expected: dict[tuple[int, ...], float] = {}
    for first, second, third in torch.cartesian_prod(*[torch.arange(3)] * 3).tolist():
        conditionals = (table.sum((1, 2)), table[first].sum(1), table[first, second])
        probability = 1.0
        for weight_R, token in zip(conditionals, (first, second, third), strict=True):
            probability *= truncated_share(weight_R / weight_R.sum(), token, **truncation)
        expected[first, second, third] = probability
    target = TableBackbone(table)
    draft = TableBackbone(random_table(3, 3, seed=5))

    def run(sampler: Sampler) -> torch.Tensor:
        settings = {"steps": 1, "window": window, "draft": draft, **truncation}
        return decode(
            target, [0], "fef", gen_length=3, temperature=1.0, sampler=sampler, **settings
        ).tokens

    assert total_variation(enumerate_law(run), expected) < 1e-12


def truncated_share(probs_R: torch.Tensor, token: int, top_p: float = 1.0, top_k: int = 3) -> float:
    """A token's probability after truncation, by counting."""
    ranked = sorted(probs_R.tolist(), reverse=True)
    kept = []
    for probability in ranked[:top_k]:
        if sum(kept) < top_p:
            kept.append(probability)
    probability = float(probs_R[token])
    return probability / sum(kept) if probability >= kept[-1] else 0.0
