"""A made-up traced run: every way in which a token comes, hostile texts on request, and as many
items as wanted."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from run_records import item
from window_sums import window_sums

from harness.records.files import PromptRecord, TraceRecord, packed_columns, replay
from harness.records.store import Recorder, Run, read_run
from model_wrappers.trace import EventLog, Window

LENGTH, MASK, END = 8, 1, 2
PIECES = {
    MASK: "<mask>",
    END: "<end>",
    3: "one",
    4: " two",
    5: "\n",
    6: " six",
    7: "\u202eseven",
    8: "<b>",
}
METHODS = {"llada": "LLaDA", "fef-2": "FeF-DLLM (step=2)"}
SUITES = {"gsm8k": "GSM8K", "math": "MATH"}


def llada_log(last: int = 6) -> EventLog:
    """One token a forward, from left to right, the last one `last`."""
    log = EventLog()
    calls = 0
    log.began(lambda: calls)
    for position in range(LENGTH):
        calls += 1
        log.committed(
            [position], [last if position == LENGTH - 1 else 3], [0.5 + position / 20], ["unmasked"]
        )
    return log


def fef_log() -> EventLog:
    """Two windows, two positions masked again, a window of these, and the end filled in."""
    log = EventLog()
    calls = 0

    def forwards(count: int) -> None:
        nonlocal calls
        calls += count

    log.began(lambda: calls)
    forwards(2)
    log.committed([0, 1, 2], [3, 4, 7], [0.9, 0.8, 0.3], ["known", "accepted", "corrected"])
    log.rejected([2, 3], [6, 6], [0.7, 0.6], [0.1, 0.2])
    log.recorded(Window(0, 0, 0, 4, 2, 3))
    forwards(2)
    log.committed([3, 4, 5], [5, 6, 8], [0.9, 0.4, 0.95], ["accepted", "accepted", "accepted"])
    log.recorded(Window(0, 1, 3, 3, 3, 3))
    log.remasked([2, 4], [MASK, MASK])
    forwards(2)
    log.committed([2, 4], [4, 6], [0.6, 0.7], ["accepted", "accepted"])
    log.recorded(Window(1, 0, 2, 2, 2, 2))
    log.committed([6, 7], [END, END], [math.nan] * 2, ["filled", "filled"])
    return log


def traced_run(
    folder: Path,
    items: int = 3,
    texts: dict[int, str] | None = None,
    methods: dict[str, str] = METHODS,
    name: str = "made-up",
    pieces: dict[int, str] = PIECES,
) -> Run:
    """A run of `items` problems a suite. texts: of LLaDA's responses to GSM8K, by item, instead of
    a usual one.

    LLaDA is wrong on every third item, FeF on every fourth; methods whose name begins with fef are
    traced like FeF.
    """
    folder.mkdir(parents=True)
    config = {
        "methods": {
            key: {"label": label, "method": key.split("-")[0]} for key, label in methods.items()
        },
        "suites": {key: {"title": title} for key, title in SUITES.items()},
        "traced": True,
    }
    run = {"schema": 1, "name": name, "config": config, "weights": {"m": {"name": "m"}}}
    (folder / "run.json").write_text(json.dumps(run))
    logs = {method: fef_log() if method.startswith("fef") else llada_log() for method in methods}
    columns = {method: packed_columns(log) for method, log in logs.items()}
    recorder = Recorder(folder)
    keys = [(suite, number) for suite in SUITES for number in range(items)]
    recorder.write_prompts(
        [PromptRecord(suite, number, f"What is {number} of {suite}?") for suite, number in keys]
    )
    for suite in SUITES:
        for number in range(items):
            for method in methods:
                key = {"method": method, "suite": suite, "item": number}
                known = {} if recorder.pieces else {"pieces": pieces}
                trace = TraceRecord(
                    **key,
                    length=LENGTH,
                    mask=MASK,
                    ends=[END],
                    tokenizer="m",
                    columns=columns[method],
                    **known,
                )
                sums = window_sums(trace)
                windows = [
                    {**key, "step": step, "round": number_, "start": start}
                    | {name: int(count[number_]) for name, count in sums.items()}
                    for number_, (step, start) in enumerate(
                        [(0, 0), (0, 3), (1, 2)][: len(sums["proposed"])]
                    )
                ]
                recorder.add(_line(method, suite, number, trace, sums, texts or {}), windows, trace)
    return read_run(folder)


def _line(
    method: str,
    suite: str,
    number: int,
    trace: TraceRecord,
    sums: dict[str, Any],
    texts: dict[int, str],
) -> dict[str, Any]:
    is_fef = method.startswith("fef")
    totals = {name: int(counted.sum()) for name, counted in sums.items()}
    own = number in texts and suite == "gsm8k" and not is_fef
    spent = {"seconds": (0.5 if is_fef else 2.0) + number / 100, "forwards": 6 if is_fef else 8}
    tokens = {
        "content_tokens": 6 if is_fef else 8,
        "eos_tokens": 2 if is_fef else 0,
        "post_stop_tokens": 0,
    }
    text = texts[number] if own else f"Response {number} of {method}"
    said = {
        "text": text,
        "gold": f"gold {number}",
        "why": f"read {number}",
        "rejected": int(is_fef),
    }
    tokens_hash = hashlib.sha256(replay(trace).tobytes()).hexdigest()[:16]
    said |= {"correct": number % (4 if is_fef else 3) != 1, "tokens_hash": tokens_hash}
    return item(method, suite, number, **spent, **tokens, **said, **totals)
