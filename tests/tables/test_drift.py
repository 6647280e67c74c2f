"""What captions say of the machine while a run was timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_records import item, rows_of, save, window

from harness.measures.drift import BUSY, FEWEST, drift, timing_sentences
from harness.records.store import Run
from tables.render import render


def run_of(folder: Path, paces: list[float], suite: str = "gsm8k", **meta: Any) -> Run:
    """LLaDA's items of one suite in the order of their lines, with these seconds a forward pass, and as many of DCD."""
    items = []
    for number, pace in enumerate(paces):
        forwards = 40 + number
        items.append(item("llada", suite, number, seconds=pace * forwards, forwards=forwards))
        items.append(item("dcd", suite, number, seconds=1.0 + number))
    items[1] |= {"proposed": 4, "accepted": 2}
    return save(folder, items, [window("dcd", suite, 0, 2)], {suite: suite.upper()}, **meta)


def test_drift_is_of_medians_of_the_last_third_over_the_first(tmp_path: Path) -> None:
    paces = [1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0, 1.2, 1.2, 0.1, 1.2]
    moved = drift(run_of(tmp_path, paces))  # of 11 items, 3 and 3
    assert moved is not None and moved == (pytest.approx(0.2), "gsm8k")


def test_drift_goes_by_the_order_of_the_lines_and_not_of_the_items(tmp_path: Path) -> None:
    run = run_of(tmp_path, [1.0] * 6 + [1.5] * 3)
    turned = Run(run.folder, run.meta, run.items[::-1], run.windows)
    assert drift(run) == (pytest.approx(0.5), "gsm8k") and drift(turned) == (pytest.approx(-1 / 3), "gsm8k")


def test_too_few_items_are_no_drift(tmp_path: Path) -> None:
    assert drift(run_of(tmp_path / "few", [1.0] * (FEWEST - 4) + [2.0] * 3)) is None
    assert drift(run_of(tmp_path / "enough", [1.0] * (FEWEST - 3) + [2.0] * 3)) == (pytest.approx(1.0), "gsm8k")


def test_the_drift_of_a_run_is_that_of_the_suite_that_moved_farthest(tmp_path: Path) -> None:
    items = []
    for suite, end in (("gsm8k", 1.2), ("math", 0.7)):
        items += [item("llada", suite, n, seconds=1.0 if n < 6 else end, forwards=1) for n in range(9)]
    assert drift(save(tmp_path, items)) == (pytest.approx(-0.3), "math")


def receipt(busy: float = 3.0, reasons: str | None = None) -> dict[str, Any]:
    return {"busy_percent": busy, "gpu": None if reasons is None else {"throttle_reasons": reasons}}


def test_a_run_without_receipts_says_nothing_of_the_machine(tmp_path: Path) -> None:
    assert timing_sentences(run_of(tmp_path, [1.0])) == []


@pytest.mark.parametrize(
    ("sessions", "says"),
    [
        ([{"start": receipt(), "end": receipt()}], []),
        ([{"start": receipt(BUSY), "end": receipt(100.0)}], []),  # the end is the run's own work
        ([{"start": receipt(BUSY + 1), "end": None}], ["The machine was 26% busy before the start."]),
        ([{"start": receipt(None), "end": {"gpu": {"unknown": "NVML: no"}}}], []),  # type: ignore[arg-type]
        ([{"start": receipt(reasons="0x4"), "end": receipt(reasons="0x0")}], []),
        ([{"start": receipt(), "end": receipt(reasons="0x1")}], []),
        ([{"start": receipt(), "end": receipt(reasons="0x5")}], ["The GPU reported throttling at the end (0x4)."]),
        ([{"start": receipt(), "end": receipt()}] * 2, ["The run had 2 sessions."]),
        (
            [{"start": receipt(), "end": end} for end in (None, None, receipt())],
            ["The run had 3 sessions, 2 of them without an end."],
        ),
    ],
)
def test_each_receipt_gives_a_short_sentence(tmp_path: Path, sessions: list[dict[str, Any]], says: list[str]) -> None:
    run = run_of(tmp_path, [1.0], sessions=sessions)
    assert timing_sentences(run) == says and all(sentence in render(run)["main.md"] for sentence in says)


def test_a_run_that_was_not_timed_says_only_that(tmp_path: Path) -> None:
    run = run_of(tmp_path, [1.0] * 6 + [2.0] * 3, sessions=[{"start": receipt(90.0), "end": None}] * 2)
    run.config.timed = False
    caption = render(run)["main.md"].splitlines()[0]
    assert caption.endswith("Seconds were not measured for comparison.")
    assert not any(word in caption for word in ("drifted", "busy", "sessions"))
    assert rows_of(render(run)["main.md"])["Method"] == ["GSM8K Acc.", "GSM8K Fwd."]


def test_each_worker_drifts_by_itself(tmp_path: Path) -> None:
    fast = [item("llada", "gsm8k", n, seconds=1.0, forwards=1, worker="a") for n in range(9)]
    slow = [item("llada", "gsm8k", 9 + n, seconds=2.0, forwards=1, worker="b") for n in range(9)]
    assert drift(save(tmp_path / "unlike", fast + slow)) == (0.0, "gsm8k")
    slow[-3:] = [row | {"seconds": 3.0} for row in slow[-3:]]
    assert drift(save(tmp_path / "moved", fast + slow)) == (pytest.approx(0.5), "gsm8k")


def test_a_gpu_of_a_worker_that_was_throttled_is_in_the_caption(tmp_path: Path) -> None:
    session = {"start": receipt(), "end": receipt(), "workers": {"a": {"end": receipt(reasons="0x8")}}}
    assert timing_sentences(run_of(tmp_path, [1.0], sessions=[session])) == [
        "The GPU reported throttling at the end (0x8)."
    ]
