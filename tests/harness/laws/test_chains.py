"""The chains section: what is exact is, what is broken on purpose is noticed, and a wrong chain fails the audit."""

from __future__ import annotations

import pandas as pd
import pytest

from harness.laws import chains
from harness.laws.chains import CHAINS, NO_SPECULATION, SELF_CHECK, audit_chains, chains_failures
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return audit_chains(tokens=2, seed=0)


@pytest.mark.slow
def test_every_chain_has_one_law(table: pd.DataFrame) -> None:
    assert chains_failures(table) == []
    assert set(table["chain"]) == set(CHAINS) and len(table) == 6 * len(CHAINS)
    shipped = table[table["decoded with"] != SELF_CHECK]
    assert shipped["TV to no speculation"].max() < 1e-12


@pytest.mark.slow
def test_the_chains_are_different_ones(table: pd.DataFrame) -> None:
    apart = table[table["decoded with"] == NO_SPECULATION].set_index("chain")["TV to full verification"]
    assert apart["one context"] > apart["fresh below 0.65"] > 1e-3 and apart["by confidence"] > 1e-3


@pytest.mark.slow
def test_a_broken_residual_that_nobody_notices_fails(table: pd.DataFrame) -> None:
    unseen = table.assign(**{"TV to no speculation": 0.0})
    assert len(chains_failures(unseen)) == len(CHAINS) and "is not caught" in chains_failures(unseen)[0]


def test_doubt_that_depends_on_a_draft_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that ends at its last draft instead of where its target is in doubt has another law."""
    monkeypatch.setattr(chains, "CHAINS", {"fresh": CHAINS["fresh below 0.65"]})
    monkeypatch.setattr(TwoStreamVerifier, "before_doubt", lambda self, segment, logits_WV: min(2, len(logits_WV)))
    failures = chains_failures(audit_chains(tokens=2, seed=0))
    assert failures and "has another law than without speculation" in failures[0]
