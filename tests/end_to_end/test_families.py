"""The main job on a random model of every family: published decoders, a cache, and two streams side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from families import NAMES, checkpoint

from harness.records.store import read_run
from harness.run import main
from model_wrappers.backbones.registry import NANO

METHODS = "llada,klass,wino,freedave,threshold+dual,fef-two-stream"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.fixture(params=[name for name in NAMES if name != "llada"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny checkpoint with nano's tokenizer."""
    config = json.loads((NANO / "config.json").read_text())
    ids = {name: config[name] for name in ("vocab_size", "mask_token_id", "eos_token_id")}
    folder = checkpoint(request.param, tmp_path / "model", **ids, max_position_embeddings=512)
    for name in TOKENIZER:
        shutil.copy(NANO / name, folder)
    return folder


@pytest.mark.slow
def test_every_family_runs_published_decoders_caches_and_two_streams(model: Path, tmp_path: Path) -> None:
    line = ["--suite", "gsm8k,mbpp", "--methods", METHODS, "--limit", "1", "--threads", "1", "--seed", "0"]
    out = tmp_path / "run"
    assert main([*line, "--model", str(model), "--data", "generated", "--out", str(out)]) == 0
    items = read_run(out).items.set_index(["method", "suite"])
    assert len(items) == 12 and (out / "tables" / "main.md").exists()
    for suite in ("gsm8k", "mbpp"):
        of_suite = items.xs(suite, level="suite")
        assert of_suite.loc["freedave", "tokens_hash"] == of_suite.loc["llada", "tokens_hash"]  # it is lossless
        assert of_suite.loc["threshold+dual", "cached_tokens"] > 0 == of_suite.loc["llada", "cached_tokens"]
