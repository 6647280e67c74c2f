"""A traced run of every decoder: it replays to the recorded tokens and windows, and it has a report."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fakes import WHOLE

import harness
from harness.records.store import Recorder, read_run
from harness.records.traces import each_frame, read_prompts, replay, window_sums

PRESETS = (
    "llada,ssd,ddosp,dcd,threshold,factor,entropy,klass,wino,freedave,pc-sampler,prophet,fef-2,fef-fast,"
    "block(editing_threshold=0.99)"
)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traced run of every decoder on two problems."""
    folder = tmp_path_factory.mktemp("traced") / "run"
    harness.evaluate(PRESETS, "gsm8k,math", limit=1, trace=True, threads=1, out=folder)
    return folder


@pytest.mark.slow
def test_every_decoder_replays_to_its_recorded_tokens_and_windows(traced: Path) -> None:
    run = read_run(traced)
    assert {method.method for method in run.config.methods.values()} == set(WHOLE)
    items = run.items.set_index(["method", "suite", "item"])
    seen = []
    for _, trace in each_frame(traced):
        recorded = items.loc[trace.key]
        assert hashlib.sha256(replay(trace).tobytes()).hexdigest()[:16] == recorded["tokens_hash"], trace.key
        windows = run.windows[(run.windows[["method", "suite", "item"]] == list(trace.key)).all(axis=1)]
        for name, counted in window_sums(trace).items():
            assert counted.tolist() == windows[name].tolist(), trace.key
        assert trace.column("forward").max() <= recorded["forwards"]
        seen.append(trace.key)
    assert sorted(seen) == sorted(items.index)


@pytest.mark.slow
def test_the_pieces_of_a_trace_are_the_text_of_its_response(traced: Path) -> None:
    run, pieces = read_run(traced), dict[str, dict[int, str]]()
    texts = run.items.set_index(["method", "suite", "item"])["text"]
    for _, trace in each_frame(traced):
        known = pieces.setdefault(trace.tokenizer, {})
        known.update(trace.pieces)
        tokens = replay(trace).tolist()
        end = next((number for number, token in enumerate(tokens) if token in trace.ends), len(tokens))
        said = "".join(known[token] for token in tokens[:end] if token != trace.mask)
        assert said.split() == str(texts[trace.key]).split()


@pytest.mark.slow
def test_a_traced_run_has_its_prompts_its_reasons_and_its_report(traced: Path) -> None:
    run = read_run(traced)
    assert set(read_prompts(traced)) == {("gsm8k", 0), ("math", 0)}
    assert run.items["why"].str.startswith("read ").all()
    assert (traced / "report" / "index.html").is_file()
    Recorder(traced).check_traced()
