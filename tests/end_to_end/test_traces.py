"""A traced run of every decoder, which a run refuses to record unless it replays to its tokens and windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import WHOLE

import harness
from harness.records.store import Recorder, read_run
from harness.records.traces import each_frame, read_prompts, replay

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
    assert {method.method for method in run.config.methods.values()} == set(WHOLE)
    assert set(read_prompts(traced)) == {("gsm8k", 0), ("math", 0)}
    assert run.items["why"].str.startswith("read ").all()
    assert (traced / "report" / "index.html").is_file()
    Recorder(traced).check_traced()
