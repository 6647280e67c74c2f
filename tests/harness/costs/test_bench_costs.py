"""The cost model: fits, interpolation and predictions are right; what is timed is printed, never asserted."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import tiny_llada

from harness.bench import main
from harness.costs.costs import Costs, bench_costs, cost_at, goals, linear_fit, statements
from harness.costs.decoders import bench_methods
from harness.costs.estimate import DEVICES, REACHED, Shape, Work, bench_estimate
from harness.errors import UserError
from harness.methods.selection import methods_named
from harness.records.store import Recorder, read_run
from harness.runs.worker import pass_seconds
from model_wrappers import load_backbone
from model_wrappers.opencompass_model import DiffusionModel

COSTS = Costs(
    length=20,
    plain=1.0,
    draft=1.5,
    context=2.0,
    literal={1: 1.0, 2: 3.0, 4: 5.0},
    two_stream={10: 0.5, 30: 1.5},
)


# --- fits and interpolation ---


def test_the_fit_recovers_the_line_that_timings_lie_on() -> None:
    fit = linear_fit({rows: 0.25 + 0.5 * rows for rows in (1, 2, 4, 8)})
    assert fit == pytest.approx((0.25, 0.5, 0.0))


def test_the_residual_is_the_root_mean_square_of_what_is_off_the_line() -> None:
    off = {1: 0.1, 2: -0.1, 3: -0.1, 4: 0.1}  # no line fits these better than 0
    fit = linear_fit({rows: 2.0 + 3.0 * rows + off[rows] for rows in off})
    assert fit == pytest.approx((2.0, 3.0, 0.1))


@pytest.mark.parametrize(("size", "seconds"), [(2, 3.0), (3, 4.0), (1.5, 2.0), (8, 9.0), (0.5, 0.0)])
def test_costs_are_interpolated_and_the_outer_lines_continued(size: float, seconds: float) -> None:
    assert cost_at({4: 5.0, 1: 1.0, 2: 3.0}, size) == pytest.approx(seconds)


def test_goals_are_in_words_relative_to_a_plain_forward() -> None:
    costs = Costs(20, 2.0, 3.0, 2.5, {1: 2.0, 16: 20.0}, {7: 0.4, 31: 1.0})
    assert goals(costs)["context pass and two-stream verification"] == 3.5
    said = " ".join(statements(costs))
    assert "A 16-token verification pass costs 0.50 plain forwards" in said and "together 1.75" in said
    assert "16 drafts costs 10.00 plain forwards, a draft pass 1.50" in said


# --- measuring ---


def test_costs_are_measured_for_rows_lengths_and_windows_that_fit() -> None:
    costs, tables = bench_costs(tiny_llada(), prompt=8, response=16, repeats=1, rows=(4, 1, 2))
    assert list(tables) == ["rows", "lengths", "two-stream", "passes", "fits"]
    assert tables["rows"]["rows"].tolist() == [1, 2, 4] == list(costs.literal)
    assert tables["lengths"]["tokens"].tolist() == [6, 12, 24, 48]
    assert bench_costs(tiny_llada(), 20, 20, 1, (1, 2))[1]["lengths"]["tokens"].tolist() == [10, 20, 40]  # 80 > 64
    assert tables["two-stream"]["window"].tolist() == [4, 8, 16]  # 32 and 64 exceed the sequence
    assert tables["two-stream"]["tokens"].tolist() == [2 * 4 - 1, 2 * 8 - 1, 2 * 16 - 1]  # nobody sees the last draft
    assert set(tables["two-stream"]["tokens"]) == set(costs.two_stream)
    assert tables["passes"].set_index("pass").loc["plain forward", "plain forwards"] == 1
    measured = [tables[name] for name in ("rows", "lengths", "two-stream")]  # the others are fitted or extrapolated
    assert all((table.select_dtypes("number") > 0).all(axis=None) for table in measured)


@pytest.mark.parametrize(
    ("prompt", "response", "rows", "message"),
    [
        (8, 4, (1, 2), "together from 16"),
        (40, 40, (1, 2), "limit of 64"),
        (0, 20, (1, 2), "positive"),
        (8, 16, (2, 2), "different"),
        (8, 16, (0, 2), "rows"),
    ],
)
def test_sizes_that_cannot_be_measured_are_refused(prompt: int, response: int, rows: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        bench_costs(tiny_llada(), prompt, response, 1, rows)


def test_too_little_memory_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    backbone = tiny_llada()
    monkeypatch.setattr(backbone, "logits", full)
    with pytest.raises(UserError, match="fewer --rows"):
        bench_costs(backbone, 8, 16, 1, (1, 2))


def test_recorded_extends_give_the_same_logits_when_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, given = tiny_llada(), []
    extend = backbone.extend

    def spied(*args: Any, **kwargs: Any) -> Any:
        logits, cache = extend(*args, **kwargs)
        given.append(logits)
        return logits, cache

    monkeypatch.setattr(backbone, "extend", spied)
    presets = methods_named("fef-two-stream(anchor=8)")
    bench_methods(backbone, [torch.tensor([1, 2, 3]), torch.tensor([4, 5])], 12, 1, presets)
    assert len(given) % 7 == 0  # recorded once; decoded and replayed in three rounds
    calls = len(given) // 7
    assert calls >= 2 * 2 * 2  # prompts, segments, context and verification
    for made, again in zip(given[:calls], given[-calls:], strict=True):
        torch.testing.assert_close(made, again)


# --- the command line ---

TINY = ["--arch", "llada-tiny", "--random-weights", "--layers", "1", "--prompt", "8", "--response", "16"]


def test_the_record_of_the_costs_holds_all_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "costs.json"
    assert main(["--costs", *TINY, "--repeats", "1", "--rows", "1,2", "--out", str(out)]) == 0
    saved = json.loads(out.read_text())
    tables = {"rows", "lengths", "two-stream", "passes", "fits"}
    assert set(saved) == {"arguments", "environment", "notes", *tables}
    assert all(saved[name] for name in tables) and len(saved["notes"]) == 2
    assert "plain forwards; context pass and verification together" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--rows", "1,2"], "for --costs"),
        (["--costs", "--rows", "one"], "separated by commas"),
        (["--costs", "--arch", "llada-tiny"], "--random-weights"),
        (["--costs", "--random-weights"], "need --arch"),
        (["--costs", "--model", "nano-fef", "--arch", "llada-tiny", "--random-weights"], "no --model"),
        (["--training", "--arch", "llada-tiny", "--random-weights"], "leave out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(line: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(line)


# --- estimates by data sheets ---


LLADA = Shape.of("llada-8b")


def test_the_shape_of_llada_is_8_billion_weights() -> None:
    embedding = LLADA.head
    assert (LLADA.layers + LLADA.head + embedding) / 1e9 == pytest.approx(8.02, abs=0.01)
    assert LLADA.keys == 2 * 32 * 4096


def test_a_call_reads_weights_and_keys_and_does_two_operations_a_weight() -> None:
    call = Work(tokens=16, read=4, keys=100, pairs=16 * 100)
    assert LLADA.bytes_of(call) == 2 * (LLADA.layers + LLADA.head) + 2 * 100 * LLADA.keys
    products = 16 * LLADA.layers + 4 * LLADA.head
    assert LLADA.operations_of(call) == 2 * products + 4 * 4096 * 32 * 1600


def test_llada_decodes_a_whole_sequence_at_every_call_and_arithmetic_bounds_it() -> None:
    methods = methods_named("llada,threshold")
    table = bench_estimate(load_backbone("nano-long"), "h100", ["gsm8k-long"], 1, methods).set_index("method")
    calls, tokens = table.loc["llada", ["calls", "tokens"]]
    assert calls == 128 and tokens % 128 == 0
    assert table.loc["llada", "speed"] == 1 < table.loc["threshold", "speed"]
    assert table.loc["llada", "memory-bound, %"] == (100 if tokens / 128 < 140 else 0)


def test_one_token_a_step_of_a_block_model_is_bound_by_its_weights() -> None:
    table = bench_estimate(load_backbone("nano-block"), "h100", ["gsm8k"], 1, methods_named("llada")).iloc[0]
    assert table["memory-bound, %"] == 100
    weights = 2 * (LLADA.layers + LLADA.head) / DEVICES["h100"][0]
    assert 1e3 * weights <= table["ms"] / table["calls"] <= 1.02 * 1e3 * weights
    assert REACHED < 1


# --- single passes beside a run ---


PROMPT = torch.tensor([5, 6, 7, 8])
ROW = {"method": "fef-2", "suite": "gsm8k", "item": 0, "drafts": 4, "plain": 0.1, "draft": 0.1, "verification": 0.3}


@pytest.mark.parametrize("options", [{"window": 4}, {"verify": "two-stream", "window": 4, "anchor": 6}, {}])
@pytest.mark.parametrize("draft", [None, "nano-fef"])
def test_passes_of_the_method_are_timed(options: dict[str, Any], draft: str | None) -> None:
    model = DiffusionModel(load_backbone("nano"), "fef", options, gen_length=12, draft=draft)
    found = pass_seconds(model, PROMPT)
    assert found["drafts"] == min(options.get("window", 16), 12)
    assert all(0 < found[name] < 60 for name in ("plain", "draft", "verification"))


def test_passes_are_recorded_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1, "config": {}}')
    recorder = Recorder(tmp_path)
    for number in (0, 5):
        recorder.add({name: ROW[name] for name in ("method", "suite")} | {"item": number}, [])
    recorder.add_passes(ROW)
    with (tmp_path / "passes.jsonl").open("a") as file:
        file.write('{"method": "fef')  # torn by a kill
    Recorder(tmp_path).add_passes(ROW | {"item": 5})
    assert read_run(tmp_path).passes["item"].to_list() == [0, 5]
    with (tmp_path / "passes.jsonl").open("a") as file:
        file.write('{"method": "fef-2", "suite": "gsm8k", "item": 1, "plain": -1}\n')
    with pytest.raises(UserError, match=r"passes\.jsonl, line 3"):
        read_run(tmp_path)
