"""Several samples of a problem: their seeds, how a run of them grows, and what they solve."""

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_lines import config_of
from rendering import render
from run_records import item, rows_of, save, seeded

from harness import evaluate
from harness.measures.samples import sampled
from harness.measures.table import measure
from harness.records.schema import Method, RunConfig
from harness.records.store import Run
from harness.runs.record import announcement
from harness.stats import chance_of_all, mean_interval

RIGHT = [[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]]  # by seed, of four problems


def test_the_first_sample_has_the_runs_seed_and_more_samples_keep_the_others() -> None:
    seeds = RunConfig(seed=3, samples=4).draws
    assert seeds[0] == 3 and len(set(seeds)) == 4
    assert RunConfig(seed=3, samples=2).draws == seeds[:2]
    assert RunConfig(seed=3).draws == seeds[:1]


def test_runs_of_other_seeds_share_no_sample() -> None:
    assert not {*RunConfig(seed=0, samples=9).draws} & {*RunConfig(seed=1, samples=9).draws}


def test_each_of_several_seeds_is_sampled_and_more_samples_come_last() -> None:
    both = RunConfig(seeds=(5, 7), samples=3).draws
    assert both == (5, 7, *both[2:]) and len(set(both)) == 6
    assert both[:4] == RunConfig(seeds=(5, 7), samples=2).draws


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_chance_of_all_is_that_of_every_subset(k: int) -> None:
    verdicts = [True, True, False, True, False]
    subsets = list(combinations(verdicts, k))
    every = np.mean([all(subset) for subset in subsets])
    some = np.mean([any(subset) for subset in subsets])
    count = np.array([3.0])
    total = np.array([5.0])
    assert chance_of_all(count, total, k) == pytest.approx(every)
    assert 1 - chance_of_all(total - count, total, k) == pytest.approx(some)


def test_pass_at_k_is_a_mean_over_problems_with_an_interval_over_them(tmp_path: Path) -> None:
    row = sampled(seeded(tmp_path, {"llada": RIGHT}), {"1": 1, "n": 3}).iloc[0]
    # right of three samples: 3, 2, 1, 0
    assert row["pass_at_1"] == pytest.approx(50.0) and row["pass_all_1"] == pytest.approx(50.0)
    assert row["pass_at_n"] == 75.0 and row["pass_all_n"] == 25.0
    ends = mean_interval(100 * np.array([1, 2 / 3, 1 / 3, 0]))
    assert (row["pass_at_1_low"], row["pass_at_1_high"]) == pytest.approx(ends)


def test_problems_without_so_many_samples_do_not_count(tmp_path: Path) -> None:
    run = seeded(tmp_path, {"llada": RIGHT})
    few = Run(run.folder, run.meta, run.items.head(9), run.windows)  # the third of one problem
    row = sampled(few, {"3": 3, "4": 4}).iloc[0]
    assert row["pass_all_3"] == 100.0 and "pass_at_4" not in row


def answered(folder: Path, answers: list[list[str | None]]) -> Run:
    """A run of LLaDA, by sample what was read of each problem."""
    rows = [
        item("llada", "gsm8k", draw * len(of_draw) + problem, why=why)
        for draw, of_draw in enumerate(answers)
        for problem, why in enumerate(of_draw)
    ]
    config = {
        "samples": len(answers),
        "methods": {"llada": {"label": "llada"}},
        "suites": {"gsm8k": {"title": "GSM8K"}},
    }
    return save(folder, rows, config=config, data={"files": {"gsm8k": {"items": len(rows)}}})


def test_flips_are_pairs_of_samples_with_other_answers(tmp_path: Path) -> None:
    two = answered(tmp_path / "two", [["read A", "read B"], ["read A", "read C"]])
    assert sampled(two, {}).loc[0, "flips"] == 0.5
    three = answered(tmp_path / "three", [["read A"], ["read A"], ["read B"]])
    assert sampled(three, {}).loc[0, "flips"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("why", [None, "the program: passed"])
def test_without_an_answer_that_was_read_there_are_no_flips(
    tmp_path: Path, why: str | None
) -> None:
    assert sampled(answered(tmp_path, [[why], [why]]), {})["flips"].isna().all()


def test_the_table_of_several_samples_needs_no_option(tmp_path: Path) -> None:
    cells = rows_of(render(seeded(tmp_path, {"llada": RIGHT}))["responses.md"])
    assert cells["llada"][1] == "50.00" and cells["llada"][-2:] == ["50.00", "75.00"]
    assert "pass@k, % k=4" not in cells["Method"]


def test_one_sample_has_that_table_among_the_measures_alone(tmp_path: Path) -> None:
    run = save(tmp_path, [item("llada", "gsm8k", 0, text="4", eos_tokens=0, post_stop_tokens=0)])
    assert "responses.md" not in render(run)
    table = render(run, measures=True)["responses.md"]
    assert rows_of(table)["LLaDA"] == ["GSM8K", "100.00", "0.0", "100.0"]


def ending(folder: Path, empty: int, **fields: Any) -> Run:
    """Twenty responses of LLaDA, some of them empty."""
    texts = [" \n"] * empty + ["4"] * (20 - empty)
    return save(
        folder, [item("llada", "gsm8k", n, text=text, **fields) for n, text in enumerate(texts)]
    )


@pytest.mark.parametrize(("empty", "mark"), [(1, ""), (2, " [e]")])
def test_more_than_one_empty_response_in_twenty_has_a_mark(
    tmp_path: Path, empty: int, mark: str
) -> None:
    run = ending(tmp_path, empty)
    assert measure(run).loc[0, "empty"] == empty / 20
    main = render(run)["main.md"]
    assert rows_of(main)["LLaDA"][0] == f"**100.00**{mark}"
    assert ("more than 5% of its responses are empty" in main) == bool(mark)


def test_a_response_without_eos_or_a_token_after_the_stop_has_no_end(tmp_path: Path) -> None:
    counts = [(0, 0), (3, 0), (0, 1), (2, 2)]
    rows = [
        item("llada", "gsm8k", n, eos_tokens=eos, post_stop_tokens=after)
        for n, (eos, after) in enumerate(counts)
    ]
    assert measure(save(tmp_path, rows)).loc[0, "without_end"] == 0.25


def test_a_record_without_text_and_counts_has_dashes(tmp_path: Path) -> None:
    run = save(tmp_path, [item("llada", "gsm8k", 0)])
    row = rows_of(render(run, measures=True)["responses.md"])["LLaDA"]
    assert row[2:] == ["-", "-"]


def test_a_plan_counts_every_sample() -> None:
    config = RunConfig(methods={"llada": Method(), "dcd": Method()}, samples=4)
    pool: Any = SimpleNamespace(items={"gsm8k": range(40)}, size=1)
    (line,) = announcement(config, pool, measure=False)
    assert line == "80 responses to decode (2 methods; items: gsm8k 40, 4 of each problem)"


@pytest.mark.parametrize(("samples", "batch"), [("5", None), ("6", 16)])
def test_samples_count_among_the_items_that_are_decoded_at_once(
    samples: str, batch: int | None
) -> None:
    line = ["--methods", "llada", "--suite", "gsm8k", "--limit", "20", "--temperature", "1"]
    assert config_of(*line, "--untimed", "--samples", samples).get("batch") == batch


def test_samples_that_nothing_draws_are_said_to_be_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["--methods", "llada", "--suite", "gsm8k", "--samples", "2"]
    config_of(*line, "--temperature", "0.5")
    assert not capsys.readouterr().err
    config_of(*line)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("at temperature 0 a method that draws nothing gives a problem the same")


@pytest.mark.slow
def test_a_run_goes_on_with_more_samples_and_keeps_those_that_are_there(tmp_path: Path) -> None:
    options = {
        "methods": "llada",
        "suites": "lists",
        "limit": 2,
        "temperature": 1.0,
        "threads": 1,
        "untimed": True,
        "quiet": True,
    }
    evaluate(**options, out=tmp_path / "one")
    evaluate(**options, samples=2, out=tmp_path / "more")
    first = (tmp_path / "more" / "items.jsonl").read_text()
    evaluate(out=tmp_path / "more", resume=True, samples=3, batch=4, quiet=True)
    second = (tmp_path / "more" / "items.jsonl").read_text()
    hashes = [
        {row["item"]: row["tokens_hash"] for row in map(json.loads, text.splitlines())}
        for text in ((tmp_path / "one" / "items.jsonl").read_text(), first, second)
    ]
    assert [len(of_run) for of_run in hashes] == [2, 4, 6]
    assert hashes[0].items() <= hashes[1].items() <= hashes[2].items()


@pytest.mark.slow
def test_chosen_items_have_the_tokens_that_they_have_among_all(tmp_path: Path) -> None:
    options = {"methods": "llada", "suites": "lists", "threads": 1, "untimed": True, "quiet": True}
    chosen = evaluate(**options, temperature=1.0, items="3,1", out=tmp_path / "chosen")
    whole = evaluate(**options, temperature=1.0, limit=4, out=tmp_path / "whole")
    hashes = [run.items.set_index("item")["tokens_hash"] for run in (chosen, whole)]
    assert hashes[0].to_dict() == hashes[1][[1, 3]].to_dict()
