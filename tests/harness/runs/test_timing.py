"""Timing: what other programs disturbed is timed again, and marked where that does not help;
threads that suit."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_lines import resolved_run
from run_records import full_items, save

from harness.measures.card import card_of
from harness.measures.marks import with_marks
from harness.measures.seconds import read_measured
from harness.measures.table import measure
from harness.records.store import Recorder, read_run
from harness.runs.loading import worker_for
from harness.runs.pool import Chunk
from harness.runs.responses import Response
from harness.runs.timing import MOST_REPEATS, Timing, fastest_threads, is_disturbed

pytestmark = pytest.mark.disturbed

QUIET, MOST_WAITED = 0.0, 0.5


def response(
    seconds: float, waited: float | None = QUIET, tokens: str = "same", share: float = 1.0
) -> Response:
    item: dict[str, Any] = {"method": "llada", "suite": "gsm8k", "item": 0, "tokens_hash": tokens}
    item |= {"seconds": seconds, "cpu_seconds": share * seconds * torch.get_num_threads()}
    if waited is not None:
        item["waited_seconds"] = waited * seconds
    return Response(item, [])


@pytest.fixture(autouse=True)
def _no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are those of the test, not the machine's."""
    monkeypatch.setattr("harness.runs.timing.THREADS", Path("/nowhere"))


def timed(timing: Timing, *responses: Response) -> tuple[dict[str, Any], int]:
    """The item that is kept of responses that come one after the other, and how many were
    needed."""
    left: Iterator[Response] = iter(responses)
    kept = timing.undisturbed(lambda: next(left)).item
    return kept, len(responses) - len(list(left))


def test_a_quiet_response_is_timed_once() -> None:
    kept, times = timed(Timing(), response(2.0), response(1.0))
    assert (kept["seconds"], times) == (2.0, 1)
    assert "disturbed" not in kept


def test_a_disturbed_response_is_timed_again_until_it_is_quiet() -> None:
    kept, times = timed(
        Timing(),
        response(1.0, MOST_WAITED),
        response(0.5, MOST_WAITED),
        response(0.6),
        response(0.1),
    )
    assert (kept["seconds"], times) == (0.6, 3)
    assert "disturbed" not in kept


def test_one_that_stays_disturbed_is_marked() -> None:
    kept, times = timed(
        Timing(), *[response(seconds, MOST_WAITED) for seconds in (0.9, 0.2, 0.1, 0.3, 0.1)]
    )
    assert (kept["seconds"], kept["disturbed"], times) == (0.1, True, 1 + MOST_REPEATS)


def test_timing_again_takes_no_longer_than_timing() -> None:
    timing = Timing()
    for _ in range(5):
        kept, _ = timed(timing, *[response(1.0, MOST_WAITED)] * (1 + MOST_REPEATS))
        assert kept["disturbed"]
    kept, times = timed(timing, *[response(1.0, MOST_WAITED)] * (1 + MOST_REPEATS))
    assert times <= 2


def test_a_response_with_other_tokens_does_not_stand_for_the_first() -> None:
    kept, times = timed(Timing(), response(1.0, MOST_WAITED), response(0.5, tokens="other"))
    assert (kept["seconds"], kept["disturbed"], times) == (1.0, True, 2)


def test_without_counts_of_waiting_the_share_of_the_cores_tells() -> None:
    usual = [0.9, 1.0, 0.95]
    assert is_disturbed(response(1.0, None, share=0.5).item, usual)
    assert not is_disturbed(response(1.0, None, share=0.9).item, usual)
    assert not is_disturbed(response(1.0, None, share=0.5).item, usual[:2])


def test_the_share_is_compared_with_that_of_the_method_on_the_suite() -> None:
    timing = Timing()
    for _ in range(3):
        timed(timing, response(1.0, None))
    kept, _ = timed(timing, *[response(1.0, None, share=0.5)] * (1 + MOST_REPEATS))
    assert kept["disturbed"]


def test_a_marked_response_is_timed_again_by_the_next_session(tmp_path: Path) -> None:
    row = {
        "schema": 1,
        "method": "llada",
        "suite": "gsm8k",
        "item": 0,
        "tokens_hash": "a",
        "correct": True,
    }
    (tmp_path / "run.json").write_text('{"schema": 1, "config": {}}')
    Recorder(tmp_path).add(row | {"seconds": 9.0, "disturbed": True, "waited_seconds": 5.0}, [])
    recorder = Recorder(tmp_path)
    assert not recorder.done("llada", "gsm8k", 0)
    recorder.add(row | {"seconds": 1.0, "tokens_hash": "b", "correct": None}, [])
    assert not recorder.done("llada", "gsm8k", 0)
    recorder.add(row | {"seconds": 2.0, "correct": None}, [])
    assert recorder.done("llada", "gsm8k", 0)
    (kept,) = read_run(tmp_path).items.to_dict("records")
    assert kept == row | {"seconds": 2.0}


@pytest.mark.parametrize(("marked", "speed"), [(0, 4.0), (1, math.nan)])
def test_a_tenth_of_disturbed_seconds_takes_a_method_its_speed(
    tmp_path: Path, marked: int, speed: float
) -> None:
    rows = full_items()
    fef = [row for row in rows if row["method"] == "fef-2" and row["suite"] == "gsm8k"]
    for row in fef[:marked]:
        row["disturbed"] = True
    run = save(tmp_path, rows)
    measured = measure(run).set_index(["method", "suite"])
    assert measured.loc[("fef-2", "gsm8k"), "speedup"] == pytest.approx(speed, nan_ok=True)
    assert measured.loc[("fef-2", "math"), "speedup"] == 4.0
    assert measured.loc[("fef-2", "gsm8k"), "forward_speedup"] == 2.0


def test_a_disturbed_reference_leaves_a_suite_without_speeds_and_the_mark_says_so(
    tmp_path: Path,
) -> None:
    rows = full_items()
    rows[0]["disturbed"] = True
    run = save(tmp_path, rows)
    marks = with_marks(measure(run), run).set_index(["method", "suite"])["speed_marks"]
    assert (marks["fef-2", "gsm8k"], marks["fef-2", "math"]) == ("d", "")


def test_fewer_disturbed_seconds_are_counted_in_the_card(tmp_path: Path) -> None:
    rows = full_items()
    rows[1] |= {"seconds": 0.1, "disturbed": True}
    run = save(tmp_path, rows)
    row = with_marks(measure(run), run).set_index(["method", "suite"]).loc[("fef-2", "gsm8k")]
    assert row["speedup"] > 4 and row["speed_marks"] == ""
    assert card_of(run, measure(run))["disturbed responses"] == "1 of 16"


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this system does not count waits"
)
def test_waiting_for_a_core_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs on one core wait for each other."""
    monkeypatch.undo()

    def spin(seconds: float) -> Response:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return response(seconds, None)

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        waited = Timing().undisturbed(lambda: spin(0.3)).item["waited_seconds"]
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, cores)
    assert waited > 0.05


@pytest.mark.parametrize(
    ("more", "items"), [((), 1), (("--untimed", "--limit", "3"), 5), (("--batch", "2"), 32)]
)
def test_where_seconds_count_items_pass_through_all_methods_one_by_one(
    more: tuple[str, ...], items: int
) -> None:
    assert resolved_run("--methods", "llada,fef-2", "--suite", "gsm8k", *more).config.chunk == items


def test_disturbed_seconds_of_a_timed_run_of_its_own_count_as_disturbed(tmp_path: Path) -> None:
    rows = [row | {"prompt_hash": "p", "tokens_hash": "t"} for row in full_items()]
    run = save(tmp_path, rows)
    save(tmp_path / "speed", [row | {"disturbed": True} for row in rows])
    assert measure(run)["speedup"].notna().all()
    assert measure(read_measured(tmp_path))["speedup"].isna().all()


@pytest.mark.parametrize("best", [1, 2, 4])
def test_threads_are_the_fastest_number(best: int) -> None:
    def trial() -> float:
        threads = torch.get_num_threads()
        return max(threads / best, best / threads)

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert fastest_threads(trial) == best
        assert torch.get_num_threads() == best
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("model", ["nano", "nano-block", "nano-ar"])
def test_every_kind_of_model_tells_its_number_of_threads(model: str, tmp_path: Path) -> None:
    method = "ar" if model == "nano-ar" else "llada"
    run = resolved_run(
        "--model",
        f"base={model},ar=nano-ar",
        "--methods",
        method,
        "--suite",
        "lists",
        "--limit",
        "1",
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert worker_for(run, tmp_path).config.threads in (1, 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("line", "marked"), [([], True), (["--untimed"], None)])
def test_a_worker_marks_what_others_disturbed_where_seconds_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], marked: bool | None
) -> None:
    monkeypatch.setattr("harness.runs.timing.is_disturbed", lambda *_: True)
    few = ["--suite", "lists", "--limit", "1", "--threads", "1", "--gen-length", "8"]
    worker = worker_for(resolved_run("--methods", "llada", *few, *line), tmp_path)
    (response,) = worker.decode(Chunk("lists", {"llada": [0]}))
    assert isinstance(response, Response) and response.item.get("disturbed") is marked
