"""The main job on a random model of every family: published decoders, a cache, and two streams side
by side."""

from pathlib import Path

import pytest
from families import NAMES, with_nanos_tokenizer

from harness.records.store import read_run
from harness.run import main

METHODS = "llada,klass,wino,freedave,threshold+dual,fef-two-stream"
BLOCKWISE = "llada,llada/2,threshold,klass,freedave,fef-2,fef-fast,fef-two-stream-1,s2d2"
SHIFTED = "llada,threshold,freedave,fef-2,fef-fast,block(threshold=0.5,sub_block=2)"


@pytest.fixture(params=[name for name in NAMES if name != "llada"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny checkpoint of a model that attends to the whole sequence."""
    return with_nanos_tokenizer(request.param, tmp_path / "model")


@pytest.mark.slow
def test_every_family_runs_published_decoders_caches_and_two_streams(
    model: Path, tmp_path: Path
) -> None:
    line = [
        "--suite",
        "gsm8k,mbpp",
        "--methods",
        METHODS,
        "--limit",
        "1",
        "--threads",
        "1",
        "--seed",
        "0",
    ]
    out = tmp_path / "run"
    assert main([*line, "--model", str(model), "--data", "generated", "--out", str(out)]) == 0
    items = read_run(out).items.set_index(["method", "suite"])
    assert len(items) == 12 and (out / "tables" / "main.md").exists()
    for suite in ("gsm8k", "mbpp"):
        of_suite = items.xs(suite, level="suite")
        # it is lossless
        assert of_suite.loc["freedave", "tokens_hash"] == of_suite.loc["llada", "tokens_hash"]
        assert (
            of_suite.loc["threshold+dual", "cached_tokens"]
            > 0
            == of_suite.loc["llada", "cached_tokens"]
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "methods"),
    [
        ("sdar", BLOCKWISE),
        ("llada2_moe", BLOCKWISE),
        ("Fast_dLLM_Qwen", SHIFTED),
        ("diffusion_gemma", "renoise(steps=3)"),
    ],
)
def test_block_models_run_decoders_traced(family: str, methods: str, tmp_path: Path) -> None:
    model, out = with_nanos_tokenizer(family, tmp_path / "model"), tmp_path / "run"
    line = [
        "--suite",
        "gsm8k",
        "--limit",
        "2",
        "--threads",
        "1",
        "--model",
        str(model),
        "--data",
        "generated",
    ]
    assert main([*line, "--methods", methods, "--trace", "--seed", "0", "--out", str(out)]) == 0
    items = read_run(out).items.set_index(["method", "item"])
    assert (out / "report" / "index.html").exists() and (
        items["cached_tokens"] > 0
    ).all()  # finished blocks
    assert "model\\_blocks" not in (out / "tables" / "main.md").read_text()
    for lossless, of in (("freedave", "llada"), ("fef-fast", "fef-2")):
        if lossless in methods:
            assert (items.loc[lossless, "tokens_hash"] == items.loc[of, "tokens_hash"]).all()


@pytest.mark.slow
def test_a_block_model_says_when_its_blocks_are_others(tmp_path: Path) -> None:
    model = with_nanos_tokenizer("sdar", tmp_path / "model")
    line = [
        "--suite",
        "gsm8k,mbpp",
        "--limit",
        "2",
        "--threads",
        "1",
        "--model",
        str(model),
        "--data",
        "generated",
    ]
    wide = [
        "--methods",
        "llada,block(threshold=0.5,block_length=8)",
        "--untimed",
        "--out",
        str(tmp_path / "wide"),
    ]
    assert main([*line, *wide]) == 0
    markdown = (tmp_path / "wide" / "tables" / "main.md").read_text()
    assert read_run(tmp_path / "wide").config.methods["llada"].suites["gsm8k"].block_length == 4
    assert "block\\_length=8, stop\\_at\\_eos=True, model\\_blocks=4" in markdown
