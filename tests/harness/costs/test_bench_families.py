"""The benchmark's recordings of calls know where a family's logits are read, and what becomes of new keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from families import SHIFTED, checkpoint, tiny

from harness.bench import main
from harness.costs.decoders import _Recording, bench_methods
from harness.errors import UserError
from harness.methods.selection import methods_named
from model_wrappers import decode


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
