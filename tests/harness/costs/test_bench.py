"""The benchmark's tables: what they count is right; what they time is printed, never asserted."""

import json
from pathlib import Path

import pytest
import torch
from fakes import tiny_llada
from families import SHIFTED, checkpoint, tiny

from harness.bench import main
from harness.costs import architectures, sections
from harness.costs.architectures import random_backbone
from harness.costs.decoders import ROWS, _Recording, bench_forwards, bench_methods
from harness.costs.throughput import bench_throughput
from harness.costs.training import bench_training
from harness.errors import UserError
from harness.methods.selection import methods_named
from model_wrappers import Backbone, decode


def test_forwards_are_timed_for_every_number_of_rows() -> None:
    table = bench_forwards(tiny_llada(), prompt=4, response=8, repeats=1)
    assert table["rows"].tolist() == list(ROWS) and (table["ms, all logits"] > 0).all()
    assert table["relative to 1 row"].iloc[0] == 1.0


def test_every_method_has_a_row_with_the_forwards_it_made() -> None:
    prompts = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6])]
    presets = methods_named("decoders,savings")
    table = bench_methods(tiny_llada(), prompts, response=8, repeats=1, presets=presets).set_index("method")
    assert list(table.index) == list(presets)
    assert table.loc["llada", "forwards"] == 8 and table.loc["llada", "token-forwards"] == 8 * (12 + 10) / 2
    assert table.loc["ddosp", "speedup, forwards"] == table.loc["llada/2", "speedup, forwards"] == 2
    assert table.loc["dcd", "rows"] == 16 and table.loc["ssd", "forwards"] <= 8


def test_throughput_is_of_no_more_responses_at_once_than_there_are(nano: Backbone) -> None:
    table = bench_throughput(nano, ["lists"], limit=3, repeats=1, presets=methods_named("threshold"))
    assert table["batch"].tolist() == [1, 2] and table["over batch 1"].iloc[0] == 1
    tokens = table["tokens/s"] / table["responses/s"]  # of a response, at every size the same ones
    assert tokens.iloc[0] == pytest.approx(tokens.iloc[1]) and tokens.iloc[0] > 1


def test_the_record_holds_tables_and_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    assert main(["--response", "8", "--repeats", "1", "--methods", "llada,fef-2", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert set(record) == {"arguments", "environment", "forwards", "methods"}
    assert "overhead, %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (["--repeats", "0"], "--repeats 0 must be at least 1"),
        (["--response", "0"], "--response 0 must be at least 1"),
        (["--prompt", "-1"], "--prompt -1 must be at least 1"),
        (["--out", "nowhere/bench.json"], "--out nowhere/bench.json cannot be written"),
    ],
)
def test_bad_numbers_and_places_are_refused_before_anything_is_measured(
    option: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "load_backbone", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(UserError, match=named):
        main(option)


@pytest.mark.slow
def test_training_is_measured_for_all_positions_and_for_subsets() -> None:
    table = bench_training("nano", repeats=1).set_index("objective")
    assert table.loc["llada", "rows a batch"] == 16 and table.loc["fef, 4 positions", "rows a batch"] <= 64
    assert table.loc["fef, all positions", "rows a batch"] > table.loc["fef, 16 positions", "rows a batch"]
    assert table.loc["fef, two-stream mask", "rows a batch"] == 16
    assert (table["tokens a second"] > 0).all()


# Families: where logits are read, and what becomes of new keys


@pytest.mark.parametrize("name", SHIFTED)
def test_a_shifted_model_is_benched_with_two_streams(name: str, prompt: torch.Tensor) -> None:
    frame = bench_methods(tiny(name), [prompt], 8, 1, methods_named("llada,fef-two-stream"))
    assert len(frame) == 2


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("name", SHIFTED)
def test_calls_on_a_cache_are_replayed_as_they_were_made(name: str, cache: str, prompt: torch.Tensor) -> None:
    backbone = tiny(name)
    recording = _Recording(backbone)
    options = {"gen_length": 8, "block_length": 4, "cache": cache}
    out = decode(recording, prompt, "llada", **options)  # type: ignore[arg-type]
    assert torch.equal(out.tokens, decode(backbone, prompt, "llada", **options).tokens)  # type: ignore[arg-type]
    assert len(recording._calls) == out.trace.forwards
    recording.replay()


@pytest.mark.parametrize("name", ["sdar", "diffusion_gemma"])
def test_a_block_model_is_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"attends in blocks of \d, and whole sequences are measured here"):
        main(["--model", str(checkpoint(name, tmp_path / "model")), "--costs"])


# Random weights in a given shape


def parameters(hidden: int, layers: int, mlp: int, vocabulary: int) -> int:
    """Those of a LLaDA model: four square projections, three of the MLP and two norms a layer; two vocabularies."""
    return layers * (4 * hidden**2 + 3 * hidden * mlp + 2 * hidden) + 2 * vocabulary * hidden + hidden


@pytest.mark.parametrize("layers", [None, 1, 3])
def test_random_weights_have_the_shape_and_dtype_that_were_asked_for(layers: int | None) -> None:
    backbone = random_backbone("llada-tiny", dtype="bfloat16", layers=layers)
    weights = list(backbone.model.parameters())
    assert sum(weight.numel() for weight in weights) == parameters(64, layers or 2, 192, 512)
    assert backbone.dtype == torch.bfloat16 and backbone.tokenizer is None
    matrices = torch.cat([weight.flatten() for weight in weights if weight.dim() > 1]).float()
    assert matrices.std().item() == pytest.approx(0.02, rel=0.05)
    assert backbone.logits(torch.zeros(1, 5, dtype=torch.long)).isfinite().all()


def test_weights_that_do_not_fit_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(architectures, "free_bytes", lambda device: 10**9)
    with pytest.raises(UserError, match=r"16\.03 GB, and 1\.00 GB are free on cpu"):
        random_backbone("llada-8b", dtype="bfloat16")
    assert "need 16.03 GB" in capsys.readouterr().out


@pytest.mark.parametrize(("arch", "layers"), [("llama", None), ("llada-tiny", 0)])
def test_unknown_shapes_are_refused(arch: str, layers: int | None) -> None:
    with pytest.raises(UserError, match=r"valid: llada-8b|at least 1"):
        random_backbone(arch, layers=layers)
