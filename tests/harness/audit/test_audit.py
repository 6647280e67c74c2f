"""The audit: its numbers against known ones, its verdicts on decoders that are right and on broken
ones."""

import json
import math
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
import torch
from command_lines import refused
from fakes import tiny_llada

from harness.audit import fef as chains
from harness.audit.__main__ import main
from harness.audit.exact import (
    EXACT,
    PROMPT,
    Budget,
    Case,
    Result,
    audit_law,
    broken_residual,
    law_failures,
    law_table,
    measure,
)
from harness.audit.fef import (
    CHAINS,
    NO_SPECULATION,
    SELF_CHECK,
    audit_chains,
    audit_lemma,
    chains_failures,
    lemma_errors,
    lemma_failures,
)
from harness.audit.neural import (
    Contexts,
    Prompts,
    audit_neural,
    chain_terms,
    distances,
    probs_along,
    prompts_of,
)
from harness.audit.oracle import TableBackbone, random_table, table_law, total_variation
from harness.errors import UserError
from harness.stats import hoeffding, sampling_bound
from harness.suites.registry import Example
from model_wrappers import METHODS, Backbone, decode, load_backbone
from model_wrappers.decoders.fef.two_stream import TwoStreamVerifier
from model_wrappers.diffusion import Uniform
from model_wrappers.sampling import Sampler, token_probs
from model_wrappers.trace import Decoded

SMALL = Budget(branches=400, samples=300)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """The law section on a table of 2^3."""
    return audit_law(2, 3, SMALL, tmp_path_factory.mktemp("law"))


def fef_only(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.method == "fef"]


def distances_of(results: list[Result], decoder: str) -> list[float]:
    return [result.distance for result in results if result.case.decoder == decoder]


# The law section
@pytest.mark.slow
def test_nothing_fails_on_decoders_as_shipped(results: list[Result]) -> None:
    assert law_failures(results) == []
    left_out = {name for name in METHODS if METHODS[name].greedy_only or METHODS[name].needs_extend}
    assert {result.case.method for result in results} == set(METHODS) - left_out


@pytest.mark.slow
def test_one_step_of_fef_and_one_token_in_random_order_are_exact(results: list[Result]) -> None:
    assert max(distances_of(results, "FeF, 1 step")) < EXACT
    one, three = distances_of(results, "LLaDA, random order")
    assert one < EXACT and three > 0.01


@pytest.mark.parametrize("steps", ["2 steps", "4 steps"])
@pytest.mark.slow
def test_more_steps_of_fef_have_one_law_for_all_windows_and_drafts(
    results: list[Result], steps: str
) -> None:
    same = [result for result in results if result.case.decoder == f"FeF, {steps}"]
    assert len(same) == 6 and same[0].to_reference is None
    for result in same[1:]:
        away, bound = result.to_reference, result.measured.bound()
        assert away is not None and away <= (bound or EXACT)


@pytest.mark.slow
def test_the_broken_residual_is_seen(results: list[Result]) -> None:
    assert distances_of(results, "FeF, broken residual")[0] > 0.01


@pytest.mark.slow
def test_forwards_are_expected_ones(results: list[Result]) -> None:
    table = law_table(results).set_index(["decoder", "options"])["forwards"]
    assert table["LLaDA, random order", "1 a step"] == pytest.approx(3)
    assert table["FeF, 1 step", "no speculation"] == pytest.approx(3)
    assert table["FeF, 1 step", "window 1"] == pytest.approx(6)
    assert 2 < table["FeF, 1 step", "window 3"] < 6


@pytest.mark.slow
def test_divergence_is_given_for_exact_laws_only(results: list[Result]) -> None:
    table = law_table(results)
    exact = table["law"] == "exact"
    assert exact.any() and (~exact).any()
    assert (table["KL"].notna() == exact).all() and (table["95% bound"].isna() == exact).all()


@pytest.mark.slow
def test_an_inexact_fef_is_reported(tmp_path: Path) -> None:
    with broken_residual():
        failures = law_failures(audit_law(2, 2, SMALL, tmp_path, fef_only))
    assert any(
        failure.startswith("FeF, 1 step (window 2, other draft) is not exact")
        for failure in failures
    )
    assert any("has another law than without speculation" in failure for failure in failures)


@pytest.mark.slow
def test_a_residual_that_is_not_broken_is_said_to_be_not_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.audit.exact.broken_residual", nullcontext)
    failures = law_failures(audit_law(2, 2, SMALL, tmp_path, fef_only))
    assert (
        len(failures) == 1
        and failures[0].startswith("FeF, broken residual")
        and "not caught" in failures[0]
    )


def test_a_parallel_decoder_that_looks_exact_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    independent = torch.full((2, 2), 0.25, dtype=torch.float64)
    monkeypatch.setattr("harness.audit.oracle.random_table", lambda *_: independent)
    failures = law_failures(audit_law(2, 2, SMALL, tmp_path, lambda cases: cases[:5]))
    looked = [failure.split(" (2 a step) looks exact")[0] for failure in failures]
    assert looked == ["LLaDA, random order", "LLaDA, low confidence", "DDOSP"]


@pytest.mark.slow
def test_a_sampled_law_is_within_its_bound_of_the_exact_one() -> None:
    backbone = TableBackbone(random_table(2, 4))

    def run(sampler: Sampler) -> Decoded:
        return decode(backbone, PROMPT, "llada", gen_length=4, temperature=1.0, sampler=sampler)

    exact = measure(run, 16, Budget(branches=2000))
    sampled = measure(run, 16, Budget(branches=0, samples=1000))
    assert (exact.branches, exact.samples, sampled.samples) == (1024, 0, 1000)
    assert 0 < total_variation(exact.law, sampled.law) < sampled.bound(1e-6)
    assert exact.bound() == 0


def test_the_sampling_bound_covers_as_often_as_it_says() -> None:
    probabilities = torch.softmax(
        torch.randn(8, generator=torch.Generator().manual_seed(0)), 0
    ).double()
    drawn = torch.multinomial(
        probabilities, 500 * 200, replacement=True, generator=torch.Generator().manual_seed(1)
    )
    frequencies = torch.stack(
        [torch.bincount(part, minlength=8) / 200 for part in drawn.split(200)]
    )
    away = (frequencies - probabilities).abs().sum(1) / 2
    assert float((away > sampling_bound(8, 200, 0.05)).double().mean()) < 0.05
    assert float(away.mean()) <= math.sqrt(8 / 200) / 2


# The lemma section
def test_the_lemma_holds_and_fef_samples_its_posterior() -> None:
    table = audit_lemma(2, 3, SMALL)
    assert table["largest error"].max() < EXACT and lemma_failures(table) == []


def test_the_lemma_needs_positions_that_are_corrupted_independently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = random_table(2, 3)
    entangled = torch.softmax(
        torch.randn((2,) * 6, generator=torch.Generator().manual_seed(0)).flatten(), 0
    )
    monkeypatch.setattr(
        "harness.audit.fef.joint_of", lambda *_: entangled.reshape((2,) * 6).double()
    )
    first, second = lemma_errors(table, Uniform(2), 0.5)
    assert first > 0.01 and second > 0.01


def test_a_law_that_is_not_the_posterior_is_reported() -> None:
    with broken_residual():
        table = audit_lemma(2, 3, SMALL)
    (failure,) = lemma_failures(table)
    assert failure.startswith("law of FeF, 1 step, given x_t")


# The neural section
def exact_distances(table: torch.Tensor) -> list[float]:
    """Total variation between the first w positions' joint and the product of their marginals, w =
    1 .. d."""
    marginals = [
        table.movedim(position, 0).reshape(len(table), -1).sum(1) for position in range(table.dim())
    ]
    values = []
    for w in range(1, table.dim() + 1):
        joint = table.sum(tuple(range(w, table.dim()))) if w < table.dim() else table
        product = {
            x: math.prod(float(marginals[i][t]) for i, t in enumerate(x)) for x in table_law(joint)
        }
        values.append(total_variation(table_law(joint), product))
    return values


def test_the_estimate_is_the_distance_to_the_product_of_marginals() -> None:
    table, chains = random_table(3, 4), 4000
    terms = chain_terms(TableBackbone(table), [0], 4, span=4, chains=chains, sampler=Sampler(0))
    assert terms.shape == (chains, 4) and float(terms.min()) >= 0 and float(terms.max()) <= 1
    for estimate, exact in zip(terms.mean(0).tolist(), exact_distances(table), strict=True):
        assert abs(estimate - exact) < hoeffding(chains, 1e-6)


def test_columns_share_one_scale_and_name_their_bound() -> None:
    backbone = TableBackbone(random_table(2, 3))
    groups = [Prompts("a", [[0], [1]], 3), Prompts("b", [[0]], 3)]
    table = audit_neural(backbone, groups, span=2, chains=50, seed=0, level=0.05)
    assert list(table) == ["a", "b", "all"] and list(table.index) == ["1", "2", "95% bound"]
    assert table.loc["2", "all"] == pytest.approx(
        (2 * table.loc["2", "a"] + table.loc["2", "b"]) / 3
    )
    assert table.loc["95% bound"].tolist() == [hoeffding(n, 0.05) for n in (100, 50, 150)]


@pytest.mark.parametrize("line", ["not json", '{"prompt": 3}', "", None])
def test_a_bad_prompt_file_is_refused_by_its_line(tmp_path: Path, line: str | None) -> None:
    path, says = (
        tmp_path / "prompts.jsonl",
        "cannot be read" if line is None else "line 3: not a JSON object",
    )
    if line is not None:
        path.write_text(
            ('{"prompt": "Sort [ cat ]"}\n\n' if line else "\n") + line, encoding="utf-8"
        )
    with pytest.raises(UserError, match="holds no prompt" if line == "" else says):
        prompts_of(load_backbone("nano"), path, 1, None)


# The command line
@pytest.mark.slow
@pytest.mark.parametrize(
    "sections", [["law", "lemma", "neural"], ["law", "lemma", "chains", "neural"]]
)
def test_all_is_printed_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sections: list[str]
) -> None:
    prompts, out = tmp_path / "mine.jsonl", tmp_path / "out"
    prompts.write_text('{"prompt": "Sort [ cat, ant ]"}')
    line = [
        "--sections",
        ",".join(sections),
        "--positions",
        "2",
        "--samples",
        "300",
        "--prompts",
        str(prompts),
    ]
    assert (
        main([*line, "--gen-length", "8", "--span", "3", "--chains", "4", "--out", str(out)]) == 0
    )
    printed = capsys.readouterr().out
    assert (
        "SSD is left out" in printed
        and "Selection bias" in printed
        and "x_t^>=i" in printed
        and "mine" in printed
    )
    record = json.loads((out / "audit.json").read_text())
    assert record["failures"] == [] and {"arguments", "environment", *sections} <= set(record)
    assert list(pd.read_csv(out / "neural.csv")["w"]) == ["1", "2", "3", "95% bound"]
    assert len(pd.read_csv(out / "law.csv")) == len(record["law"])
    for figure in ("error", "neural"):
        assert all((out / f"{figure}.{kind}").stat().st_size > 1000 for kind in ("png", "pdf"))


@pytest.mark.slow
def test_a_decoder_that_is_not_exact_makes_the_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model_wrappers.sampling.residual", lambda target_V, draft_V: target_V)
    assert main(["--sections", "law", "--positions", "2", "--samples", "300"]) == 1
    message = capsys.readouterr().err.strip()
    assert message.startswith("audit failed: FeF, 1 step") and "\n" not in message


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--sections", "law,table"], "unknown section 'table'; valid: law, lemma, chains, neural"),
        (["--tokens", "4", "--positions", "6"], "more than 1024 entries"),
        (["--span", "40"], "--span 40 exceeds the response of 32 tokens of lists"),
        (["--sections", "lemma", "--out", __file__], "File exists"),
    ],
)
def test_what_makes_no_audit_is_refused(
    line: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refused(main, line, capsys)


# The chains section
@pytest.fixture(scope="module")
def chains_table() -> pd.DataFrame:
    return audit_chains(tokens=2, seed=0)


@pytest.mark.slow
def test_every_chain_has_one_law(chains_table: pd.DataFrame) -> None:
    assert chains_failures(chains_table) == []
    assert set(chains_table["chain"]) == set(CHAINS) and len(chains_table) == 7 * len(CHAINS)
    shipped = chains_table[chains_table["decoded with"] != SELF_CHECK]
    assert shipped["TV to no speculation"].max() < 1e-12


@pytest.mark.slow
def test_the_chains_are_different_ones(chains_table: pd.DataFrame) -> None:
    apart = chains_table[chains_table["decoded with"] == NO_SPECULATION].set_index("chain")[
        "TV to full verification"
    ]
    assert apart["one context"] > apart["fresh below 0.65"] > 1e-3 and apart["by confidence"] > 1e-3


@pytest.mark.slow
def test_a_broken_residual_that_nobody_notices_fails(chains_table: pd.DataFrame) -> None:
    unseen = chains_table.assign(**{"TV to no speculation": 0.0})
    assert (
        len(chains_failures(unseen)) == len(CHAINS)
        and "is not caught" in chains_failures(unseen)[0]
    )


@pytest.mark.slow
def test_doubt_that_depends_on_a_draft_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that ends at its last draft instead of where its target is in doubt has another
    law."""
    monkeypatch.setattr(chains, "CHAINS", {"fresh": CHAINS["fresh below 0.65"]})
    monkeypatch.setattr(
        TwoStreamVerifier,
        "before_doubt",
        lambda self, segment, logits_WV: torch.tensor([min(2, len(logits_WV))]),
    )
    failures = chains_failures(audit_chains(tokens=2, seed=0))
    assert failures and "has another law than without speculation" in failures[0]


# The streams section: the distance of the two-stream target to the paper's
EXAMPLE = Example([3, 4, 5, 6], [7, 8, 9, 10, 11, 12])


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return tiny_llada()


def apart(backbone: Backbone, contexts: Contexts) -> pd.DataFrame:
    return distances(backbone, [EXAMPLE], [probs_along(backbone, EXAMPLE, None)[0]], contexts)


def test_the_papers_target_is_that_of_the_sequence_with_the_tokens_before_filled_in(
    backbone: Backbone,
) -> None:
    found = probs_along(backbone, EXAMPLE, None)[0]
    prompt, response = EXAMPLE
    for position in range(len(response)):
        row = prompt + response[:position] + [backbone.mask_id] * (len(response) - position)
        logits = backbone.logits(torch.tensor([row]))[0, len(prompt) + position]
        alone = token_probs(logits[None], 1.0, exclude=backbone.mask_id)[0]
        torch.testing.assert_close(found[position], alone, rtol=0, atol=1e-6)  # logits are float32


def test_in_a_longer_segment_they_differ_except_at_its_first_position(backbone: Backbone) -> None:
    full, two_stream = (
        probs_along(backbone, EXAMPLE, contexts)[0] for contexts in (None, Contexts(anchor=3))
    )
    away = (full - two_stream).abs().sum(1)
    assert away[[0, 3]].max() < 1e-5 < away[[1, 2, 4, 5]].min()


def test_where_it_is_in_doubt_the_target_is_the_papers(backbone: Backbone) -> None:
    """Below every probability: the same context throughout. Above all of them: a fresh one for each
    position."""
    one, some, all_fresh = (
        apart(backbone, Contexts(fresh_below=c)).loc[0] for c in (0.0, 0.2, 1.1)
    )
    assert [one["contexts"], all_fresh["contexts"]] == [1, 6] and 1 < some["contexts"] < 6
    assert one["tv"] > some["tv"] > 1e-3 and all_fresh["tv"] < 1e-5


@pytest.mark.slow
def test_the_section_prints_a_row_per_model_and_anchor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sections", "streams", "--models", "nano", "--prompts-per-suite", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("nano  ") >= 9 and "whole" in printed
