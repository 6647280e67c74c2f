"""The field's measures: each definition beside its source's own count, areas under curves, notes on
lengths."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec import structs
from rendering import render
from run_records import full_items, item, rows_of, save
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationMixin,
)

import harness
from harness.measures.intervals import SUMMARY, paired, summarise, with_intervals
from harness.measures.parallelism import LEDGER, area, aup, curves, token_ledger
from harness.measures.table import measure
from harness.records.store import Run

EOS, TURN, PROMPT = 0, 1, 10  # what a response ends with, and the tokens before it
RESPONSES = ([5] * 20 + [TURN, 7] + [EOS] * 26, [6] * 30 + [TURN, 7] + [EOS] * 16)
SECONDS, CALLS = (1.0, 4.0), (8, 12)


def counted(method: str, number: int, content: int, **fields: Any) -> dict[str, Any]:
    """An item of 48 tokens after a prompt of 10: content, an end of turn and one more behind it,
    the rest EOS."""
    counts = {
        "prompt_tokens": PROMPT,
        "content_tokens": content,
        "eos_tokens": 46 - content,
        "post_stop_tokens": 2,
    }
    return item(method, "gsm8k", number, **(counts | fields))


def sized(folder: Path, items: list[dict[str, Any]]) -> Run:
    """A saved run whose configuration says 48 tokens a response."""
    methods = {
        name: {"label": name.upper(), "suites": {"gsm8k": {"gen_length": 48}}}
        for name in ("llada", "dcd")
    }
    config = {"data": "generated", "methods": methods, "suites": {"gsm8k": {"title": "GSM8K"}}}
    return save(folder, items, config=config)


def test_every_definition_gives_what_its_source_counts(tmp_path: Path) -> None:
    items = [
        counted(
            "llada",
            number,
            row.index(TURN),
            seconds=seconds,
            first_block_seconds=seconds / 2,
            forwards=calls,
        )
        | {"token_forwards": 100}
        for number, (row, seconds, calls) in enumerate(zip(RESPONSES, SECONDS, CALLS, strict=True))
    ]
    row = token_ledger(sized(tmp_path, items)).to_dict("records")[0]
    assert list(row) == LEDGER and (row["items"], row["seconds_per_item"]) == (2, 2.5)
    assert [row[f"{name}_tokens"] for name in ("prompt", "content", "eos", "post_stop")] == [
        10,
        25,
        21,
        2,
    ]

    out, before = torch.tensor(RESPONSES), torch.full((2, PROMPT), 9)
    whole = torch.cat([before, out], dim=1)
    # tokens of the decoded text, which ends where the model's turn does
    text = [row.index(TURN) for row in RESPONSES]
    no_eos = (whole != EOS).sum(1)
    assert row["tpf_content"] == sum(text) / sum(CALLS)  # d3LLM: re-encoded text / NFE
    # Diffulex: mean over requests
    assert row["tpf_content_mean"] == np.mean(np.divide(text, CALLS))
    passes = torch.tensor(CALLS)
    # of each row
    mine = DiffusionGemmaGenerationMixin._compute_tokens_per_forward(whole, passes, PROMPT, EOS)
    assert row["tpf_written"] == pytest.approx(float((mine * passes).sum() / passes.sum()))
    never = 156892  # dInfer's EOS, which LLaDA-8B has no token for, so that padding counts
    assert row["tpf_generated"] == int((whole != never).sum() - 2 * PROMPT) / sum(CALLS)
    assert row["tps_content"] == sum(text) / sum(SECONDS)  # Fast-dLLM v1, d3LLM
    assert row["tps_content_mean"] == np.mean(np.divide(text, SECONDS))  # Diffulex
    # dInfer, were the EOS LLaDA's
    assert row["tps_written"] == int(no_eos.sum() - 2 * PROMPT) / sum(SECONDS)
    assert row["tps_generated"] == int((whole != never).sum() - 2 * PROMPT) / sum(SECONDS)
    # Fast-dLLM v1 counts what is no EOS, prompt and all
    assert row["tps_seen"] == int(no_eos.sum()) / sum(SECONDS)
    assert row["positions_per_token"] == 200 / 50
    assert (row["seconds_median"], row["seconds_90"]) == (2.5, pytest.approx(3.7))
    assert row["first_block_seconds"] == 1.25 and np.isnan(row["content_seconds"])


# d3LLM's AUP_leaderboard/data_llada.yaml, MATH: tokens per forward and accuracy; published with
# Qwen 2.5 in the list.
QWEN, BEST_OF_REST = 41.15, 32.76


@pytest.mark.parametrize(
    ("tpf", "accuracy", "best", "published"),
    [
        ([1.0, 3.17], [32.0, 30.18], QWEN, 64.5),
        ([1.0, 5.74], [32.76, 30.36], QWEN, 107.6),
        ([1.0, 3.17], [32.0, 30.18], BEST_OF_REST, 90.2),
        ([5.74, 1.0], [30.36, 32.76], BEST_OF_REST, 168.2),
    ],
)
def test_aup_is_what_d3llm_publishes(
    tpf: list[float], accuracy: list[float], best: float, published: float
) -> None:
    assert round(aup(np.array(tpf), np.array(accuracy), best), 1) == published


def test_a_last_setting_that_is_cut_has_no_published_aup_and_hardly_changes_the_area() -> None:
    tpf, reference = np.array([1.0, 4.0]), np.array(60.0)
    kept, cut = np.array([60.0, 55.001]), np.array([60.0, 54.999])
    assert aup(tpf, kept, 60.0) > 60 and np.isnan(aup(tpf, cut, 60.0))
    with np.errstate(all="raise"):
        assert np.isnan(aup(tpf, 0 * kept, 0.0))
    assert abs(area(tpf, kept, reference) - area(tpf, cut, reference)) < 0.1
    # all tokens a forward at the reference's accuracy
    assert area(tpf, np.array([60.0, 60.0]), reference) == 240.0
    assert area(tpf, cut, reference) == 60.0 + 1.5 * 60.0  # the second is worth nothing


def test_an_area_changes_with_no_rival_and_its_interval_holds_it(tmp_path: Path) -> None:
    def run(*names: str) -> Run:
        methods = {name: {"label": name, "method": name.partition("(")[0]} for name in names}
        wrong = {"llada": 2, "threshold": 2, "threshold(tau=0.5)": 3, "better": 0}  # of ten
        items = [
            counted(name, number, 20, forwards=12 * len(name), correct=number % 10 >= wrong[name])
            for name in names
            for number in range(40)
        ]
        return save(
            tmp_path / str(len(names)), items, config={"methods": methods, "suites": {"gsm8k": {}}}
        )

    both = ("llada", "threshold", "threshold(tau=0.5)")
    own, beside = curves(run(*both)), curves(run(*both, "better"))
    assert own["series"].to_list() == ["threshold"] and own["points"].to_list() == [2]
    assert own["tpf"][0] == pytest.approx([20 / 108, 20 / 216]) and own["accuracy"][0] == [
        80.0,
        70.0,
    ]
    # 70 is worth nothing
    assert own["area"][0] == beside["area"][0] == pytest.approx(80 * (20 / 108 - 20 / 216) / 2)
    assert own["area_low"][0] <= own["area"][0] <= own["area_high"][0] > own["area_low"][0]
    assert np.isfinite([*own["aup"], *beside["aup"]]).all() and own["aup"][0] > beside["aup"][0]


def test_an_older_record_has_post_stop_tokens_by_the_generation_length(tmp_path: Path) -> None:
    items = [counted("llada", n, 20 + n) for n in range(3)]
    older = [
        {key: value for key, value in row.items() if key != "post_stop_tokens"} for row in items
    ]
    mixed = [items[0], *older[1:]]
    expected = token_ledger(sized(tmp_path / "new", items))
    for name, rows in (("older", older), ("mixed", mixed)):
        pd.testing.assert_frame_equal(token_ledger(sized(tmp_path / name, rows)), expected)


def test_a_record_without_counts_has_seconds_and_calls_alone(tmp_path: Path) -> None:
    files = render(save(tmp_path, full_items()), measures=True)
    assert rows_of(files["tokens.md"])["LLaDA"] == [
        "MATH",
        *["2.000"] * 4,
        *["-"] * 6,
        "48.0",
        "-",
        "-",
    ]
    assert set(rows_of(files["measures.md"])["LLaDA"][1:]) == {"-"}
    assert list(pd.read_csv(io.StringIO(files["measures.csv"])).columns) == LEDGER


def test_what_a_response_costs_has_columns_where_any_response_does(tmp_path: Path) -> None:
    spent = {"draw_seconds": 0.5, "flop": 3 * 10**12, "peak_bytes": 2**31, "joules": 40.0}
    items = [
        counted("llada", 0, 20, **spent),
        counted("llada", 1, 20, **spent | {"peak_bytes": 2**32}),
        counted("dcd", 0, 20),
    ]
    tables = render(sized(tmp_path, items), measures=True)
    lines = rows_of(tables["tokens.md"])
    assert lines["LLADA"][-4:] == ["25.0", "3.0000", "4.00", "40.0"]
    assert lines["DCD"][-4:] == ["-"] * 4


def test_seconds_that_do_not_count_leave_no_draws_and_no_joules(tmp_path: Path) -> None:
    items = [counted("llada", 0, 20, draw_seconds=0.5, flop=10**12, joules=4.0)]
    run = sized(tmp_path, items)
    untimed = replace(
        run, meta=structs.replace(run.meta, config=structs.replace(run.config, timed=False))
    )
    assert [name for name in token_ledger(untimed) if name not in LEDGER] == ["flop"]


@pytest.mark.parametrize(
    ("content", "marked"), [(17, True), (18, False), (20, False), (22, False), (23, True)]
)
def test_responses_of_another_length_are_marked_on_speed_alone(
    tmp_path: Path, content: int, marked: bool
) -> None:
    items = [counted("llada", n, 20) for n in range(2)] + [
        counted("dcd", n, content, seconds=1.0) for n in range(2)
    ]
    files = render(sized(tmp_path, items))
    mark = " [l]" if marked else ""
    assert rows_of(files["main.md"])["DCD"] == ["100.00", f"<ins>2.00x</ins>{mark}", "1.00x"]


# The summary of a run in Python: the numbers of its tables
def test_the_numbers_are_those_of_the_tables(tmp_path: Path) -> None:
    items = [
        row | {"seconds": 0.1 + 0.017 * number**1.3} for number, row in enumerate(full_items())
    ]
    run = save(tmp_path, [*items, item("dcd", "gsm8k", 0, correct=None)])
    ours, tables = summarise(run), with_intervals(measure(run), paired(run))
    assert list(ours.columns)[: len(SUMMARY)] == SUMMARY
    both = ours.merge(tables, on=["method", "suite"], suffixes=("", "_table"))
    assert len(both) == len(ours) == len(tables)
    names = [
        "items",
        "scored",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "speedup",
        "speedup_low",
        "speedup_high",
    ]
    for name in names:
        pd.testing.assert_series_equal(
            both[name], both[f"{name}_table"], check_names=False, check_dtype=False
        )
    assert set(ours["checkpoint"]) == {"-"} and ours["forward_speedup"].notna().any()
    pd.testing.assert_series_equal(both["seconds"], both["seconds_per_item"], check_names=False)
    of_fef = ours.set_index(["method", "suite"]).loc[("fef-2", "gsm8k")]
    assert of_fef[["label", "forwards"]].tolist() == ["FeF-DLLM (step=2)", 24.0]


def test_options_are_columns_and_means_are_of_methods_that_have_all_suites(tmp_path: Path) -> None:
    methods = {
        "llada": {
            "suites": {
                "gsm8k": {"gen_length": 48, "options": {"steps": 48}},
                "math": {"gen_length": 40},
            }
        },
        "mine(tau=0.5)": {
            "suites": {"gsm8k": {"gen_length": 48, "block_length": 16, "options": {"tau": 0.5}}}
        },
    }
    suites = {"gsm8k": {"title": "GSM8K"}, "math": {"title": "MATH"}}
    items = [item("llada", suite, 0, seconds=2.0 + (suite == "math")) for suite in suites]
    items.append(item("mine(tau=0.5)", "gsm8k", 0))
    save(tmp_path, items, config={"data": "generated", "methods": methods, "suites": suites})
    run = harness.open_run(str(tmp_path))
    assert (
        repr(run) == f"Evaluation in {tmp_path}: gsm8k (1 items), math (1 items)\nmethods: llada,"
        " mine(tau=0.5)"
    )
    summary = run.summary.set_index(["method", "suite"])
    assert summary.loc[
        ("mine(tau=0.5)", "gsm8k"), ["tau", "gen_length", "block_length"]
    ].tolist() == [0.5, 48, 16]
    assert summary["steps"].isna().tolist() == [False, True, True] and list(run.traces()) == []
    assert run.means["method"].tolist() == ["llada"] and run.means["seconds"].tolist() == [2.5]
