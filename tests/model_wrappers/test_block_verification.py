"""Block verification: the law of the target, and no fewer accepted drafts than token by token."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from enumerated import enumerate_law

from harness.audit.oracle import branches, random_table
from model_wrappers.sampling import (
    Sampler,
    block_accept,
    inverse_cdf,
    probs_at,
    speculative_accept,
)

REAL, WINDOW = 3, 3
Accept = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def conditionals(table: torch.Tensor, drafts: list[int]) -> torch.Tensor:
    """p(x_i | the drafts before it) of a joint table, (W, R)."""
    rows = []
    for position in range(table.dim()):
        weight = table[tuple(drafts[:position])]
        weight_R = weight.reshape(REAL, -1).sum(1)
        rows.append(weight_R / weight_R.sum())
    return torch.stack(rows)


def window_of(
    accept: Accept, sampler: Any, seed: int, limit: int | None = None
) -> tuple[int, list[int]]:
    """Draft a window from one table, verify it by another: accepted drafts, committed tokens."""
    target = random_table(REAL, WINDOW, seed)
    draft = random_table(REAL, WINDOW, seed + 100)
    drafts: list[int] = []
    for position in range(WINDOW):
        row_1R = conditionals(draft, [*drafts, 0, 0, 0][:WINDOW])[position : position + 1]
        drafts.append(int(sampler.tokens(row_1R)))
    limit_1 = torch.tensor([WINDOW if limit is None else limit])
    target_WR = conditionals(target, drafts)
    draft_WR = conditionals(draft, drafts)
    accepted_1, token_W = accept(target_WR, draft_WR, torch.tensor(drafts), sampler, limit_1)
    accepted = int(accepted_1)
    committed = min(accepted + 1, WINDOW if limit is None else limit)
    return accepted, token_W[:committed].tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_what_is_committed_and_then_drawn_has_the_law_of_the_target(
    seed: int, limit: int | None
) -> None:
    """The rest of the window is drawn from the target itself, as further windows would."""
    target = random_table(REAL, WINDOW, seed)

    def run(sampler: Any) -> torch.Tensor:
        _, tokens = window_of(block_accept, sampler, seed, limit)
        while len(tokens) < WINDOW:
            row_R = conditionals(target, [*tokens, 0, 0, 0][:WINDOW])[len(tokens)]
            tokens.append(int(sampler.tokens(row_R[None])))
        return torch.tensor(tokens)

    law = enumerate_law(run)
    for outcome, probability in law.items():
        assert probability == pytest.approx(float(target[outcome]), abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_no_fewer_drafts_are_accepted_than_token_by_token(seed: int) -> None:
    def expected(accept: Accept) -> float:
        walked = branches(lambda sampler: window_of(accept, sampler, seed)[0])
        return sum(accepted * probability for accepted, probability in walked)

    assert expected(block_accept) >= expected(speculative_accept) - 1e-12


def test_more_drafts_are_accepted_where_a_late_one_makes_up_for_an_early_one() -> None:
    """The example of the paper: drafts of one token each way, and a target that is likelier."""
    target_WV = torch.tensor([[1 / 3, 2 / 3], [1 / 3, 2 / 3]], dtype=torch.float64)
    draft_WV = torch.tensor([[2 / 3, 1 / 3], [2 / 3, 1 / 3]], dtype=torch.float64)

    def expected(accept: Accept) -> float:
        def run(sampler: Any) -> int:
            draft_W = sampler.tokens(draft_WV)
            return int(accept(target_WV, draft_WV, draft_W, sampler, torch.tensor([2]))[0])

        return sum(accepted * probability for accepted, probability in branches(run))

    assert expected(speculative_accept) == pytest.approx(10 / 9)
    assert expected(block_accept) == pytest.approx(11 / 9)


def test_equal_distributions_accept_all() -> None:
    same_WV = conditionals(random_table(REAL, WINDOW, 1), [0, 1, 2])
    sampler = Sampler(0)
    for _ in range(50):
        draft_W = inverse_cdf(same_WV, sampler.uniforms(WINDOW, torch.device("cpu")))
        accepted_1, token_W = block_accept(
            same_WV, same_WV, draft_W, sampler, torch.tensor([WINDOW])
        )
        assert int(accepted_1) == WINDOW and token_W.equal(draft_W)
        assert bool((probs_at(same_WV, token_W) > 0).all())
