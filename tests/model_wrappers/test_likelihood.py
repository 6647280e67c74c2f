"""Likelihoods: the official estimate on the same draws, exact where a model is autoregressive,
block by block."""

import pytest
import torch
import torch.nn.functional as F

from model_wrappers import Backbone, load_backbone
from model_wrappers.backbones.blocks import ledgers
from model_wrappers.likelihood import log_likelihood, masked_counts

# Prompt, answer, seed, draws, rows of a call, and what `get_log_likelihood` of ML-GSAI/LLaDA
# (commit b7e6c35) gave on
# nano after torch.manual_seed(seed).
OFFICIAL = [
    ("Tom has 3 apples and buys 4.", " He has 7 apples.", 0, 128, 16, -51.9277081489563),
    ("Tom has 3 apples and buys 4.", " He has 7 apples.", 1, 32, 8, -46.58308124542236),
    ("Copy", "cat", 0, 128, 16, -30.898035049438477),
    ("Copy", "cat", 2, 1, 1, -29.876813888549805),
    ("1 + 1 =", " 2", 1, 32, 8, -2.1140458583831787),
]


def ids(backbone: Backbone, text: str) -> torch.Tensor:
    return torch.tensor(backbone.text_tokenizer()(text, add_special_tokens=False).input_ids)


@pytest.mark.parametrize(("prompt", "answer", "seed", "draws", "rows", "official"), OFFICIAL)
def test_an_estimate_is_the_official_one_on_the_same_draws(
    monkeypatch: pytest.MonkeyPatch,
    nano: Backbone,
    prompt: str,
    answer: str,
    seed: int,
    draws: int,
    rows: int,
    official: float,
) -> None:
    monkeypatch.setattr("model_wrappers.likelihood.ROWS", rows)
    found = log_likelihood(nano, ids(nano, prompt), ids(nano, answer), seed, draws)
    assert found.value == pytest.approx(official, abs=1e-4)
    length = len(ids(nano, prompt)) + len(ids(nano, answer))
    assert (found.forwards, found.rows, found.token_forwards) == (
        draws // rows,
        draws,
        draws * length,
    )


def test_masks_are_spread_evenly_over_the_answer() -> None:
    for seed in range(20):
        counts_R = masked_counts(12, 12, torch.Generator().manual_seed(seed))
        assert sorted(counts_R.tolist()) == list(range(1, 13))


def test_an_autoregressive_model_gives_the_chain_itself() -> None:
    backbone = load_backbone("nano-ar")
    prompt_P, answer_A = ids(backbone, "Tom has 3 apples."), ids(backbone, " He has 3 apples.")
    x_1L, chain = torch.cat([prompt_P, answer_A])[None], 0.0
    for at in range(len(prompt_P), x_1L.shape[1]):
        every_N = torch.arange(at)
        logits_11V, _ = backbone.extend(
            x_1L[:, :at], every_N, every_N[-1:], visible_NK=every_N <= every_N[:, None]
        )
        chain += float(F.log_softmax(logits_11V[0, 0], 0)[x_1L[0, at]])
    found = log_likelihood(backbone, prompt_P, answer_A)
    assert found.value == pytest.approx(chain, abs=1e-4) and found.forwards == 1


def test_a_block_model_masks_one_block_at_a_time_after_clean_ones() -> None:
    backbone = load_backbone("nano-block")
    prompt_P, answer_A = ids(backbone, "Tom has 3 apples."), torch.arange(5, 5 + 20)
    start, x_1L, expected, calls = len(prompt_P), torch.cat([prompt_P, answer_A])[None], 0.0, 0
    ledger, _ = ledgers(backbone, backbone, start, backbone.blocks)
    generator, begin = torch.Generator().manual_seed(3), start
    while begin < x_1L.shape[1]:
        end = min(ledger.grid.end(begin), x_1L.shape[1])  # type: ignore[attr-defined]
        (count,) = masked_counts(end - begin, 1, generator).tolist()
        first = [number < count for number in range(end - begin)]
        masked = [
            first[number] for number in torch.randperm(end - begin, generator=generator).tolist()
        ]
        at = torch.tensor([begin + number for number, each in enumerate(masked) if each])
        corrupted_1L = x_1L[:, :end].clone()
        corrupted_1L[0, at] = backbone.mask_id
        logits_1nV = ledger.logits(corrupted_1L, positions=at)
        expected -= (
            float(F.cross_entropy(logits_1nV[0], x_1L[0, at], reduction="sum"))
            * (end - begin)
            / count
        )
        begin, calls = end, calls + 1
    found = log_likelihood(backbone, prompt_P, answer_A, seed=3, draws=1)
    assert calls > 1 and found.value == pytest.approx(expected, abs=1e-3)


def test_what_has_no_likelihood_is_refused(nano: Backbone) -> None:
    some, none = torch.tensor([5]), torch.tensor([], dtype=torch.long)
    with pytest.raises(ValueError, match="an answer needs a token"):
        log_likelihood(nano, some, none)
    with pytest.raises(ValueError, match="of an autoregressive model one before it"):
        log_likelihood(load_backbone("nano-ar"), none, some)
