"""What memory programs that want a gigabyte and a half get, read from outside the sandbox while they run."""

import os
import threading
import time
from pathlib import Path

import psutil
import pytest

from harness.sandbox.execute import MIB, TOTAL_BYTES, TOTAL_FILES, Isolation, Outcome, Program, attempt
from harness.sandbox.memory import can_watch, held_bytes

HOSTILE = Path(__file__).parent / "hostile"
GREEDY = ("shared_memory_segments", "memory_files", "namespace_with_scratch", "memory_of_several_processes")
OVERSHOOT = 192 * MIB  # what processes can take between two looks at them, and what else the machine does
WANTED = 1500 * MIB


def shared_memory() -> int:
    """Bytes of the machine's memory in shared memory and scratch folders."""
    return (
        int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "Shmem:" in line).split()[1]) * 1024
    )


def taken_while_running(isolation: Isolation, code: str) -> tuple[int, Outcome | None]:
    """The most bytes that a program's processes and the shared memory of the machine grew by, and its outcome."""
    outcomes: list[Outcome | None] = []
    tests = "assert double(2) == 4\nassert double(-3) == -6"

    def run() -> None:
        outcomes.append(attempt(Program(code, 10.0, 11.0, tests=tests), isolation)[0])

    own = {child.pid for child in psutil.Process().children()}
    before, most = shared_memory(), 0
    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        started = [child.pid for child in psutil.Process().children() if child.pid not in own]
        most = max(most, sum(map(held_bytes, started)) + shared_memory() - before)
        time.sleep(0.01)
    return most, outcomes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", GREEDY)
def test_a_program_gets_no_more_than_its_share_seen_from_outside(isolation: Isolation, name: str) -> None:
    most, outcome = taken_while_running(isolation, (HOSTILE / f"{name}.py").read_text())
    assert outcome is not None and outcome.kind == "failed"
    assert most < TOTAL_BYTES + OVERSHOOT < WANTED


@pytest.mark.slow
@pytest.mark.skipif(not can_watch(), reason="this kernel does not list the children of a process")
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_empty_files_are_limited_though_they_are_no_ones_memory(isolation: Isolation, folder: str) -> None:
    code = (HOSTILE / "empty_files.py").read_text().replace('f"empty', f'f"{folder}/empty')
    program = Program(code, 10.0, 11.0, tests="assert double(2) == 4")
    outcome = attempt(program, isolation)[0]
    assert outcome == Outcome("failed", f"it made more than {TOTAL_FILES:,} files")


@pytest.mark.skipif(not can_watch(), reason="this kernel does not list the children of a process")
def test_the_memory_of_a_process_and_its_children_is_added_up() -> None:
    alone = held_bytes(os.getpid())
    code = "x = bytearray(200 * 2**20); import sys; print(flush=True); sys.stdin.read()"
    with psutil.Popen(["python3", "-c", code], stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        assert held_bytes(os.getpid()) > alone + 190 * MIB
        child.stdin.close()
    assert held_bytes(child.pid) == 0
