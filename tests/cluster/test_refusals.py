"""Workers: options that do not fit and clusters that cannot be had are refused; options travel to
other processes."""

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import torch
from command_lines import refused
from msgspec import Meta
from paths import ROOT

from harness.cluster.actor import pickled, unpickled
from harness.cluster.connect import check_machine, check_reachable, shortage
from harness.errors import UserError
from harness.options import checked, parsed
from harness.run import main
from harness.runs.options import RunOptions
from harness.runs.pool import Workers, workers_of
from harness.runs.selection import methods_named
from model_wrappers import METHODS, register
from model_wrappers.options import Options, Positive
from model_wrappers.request import Request


def workers_for(*line: str) -> Workers | None:
    return workers_of(parsed(RunOptions, list(line)))


def sure(*line: str) -> Workers:
    found = workers_for(*line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--workers", "0"], "--workers 0 must be at least 1"),
        (["--workers", "2", "--threads", "0"], "--threads 0 must be at least 1"),
        (["--ray-address", "10.0.0.1:6379"], "--ray-address is for runs with workers"),
        (["--gpus-per-worker", "1"], "--gpus-per-worker is for runs with workers"),
        (
            ["--workers", "2", "--device", "cuda:1"],
            "cpu or cuda, for each worker is given its own; not cuda:1",
        ),
        (["--workers", "2", "--gpus-per-worker", "1"], "is for --device cuda"),
        (["--workers", "2", "--device", "cuda", "--gpus-per-worker", "2"], "above 0 and at most 1"),
        (["--workers", "2", "--device", "cuda", "--gpus-per-worker", "0.5"], "add --untimed"),
    ],
)
def test_what_does_not_fit_is_refused(line: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        workers_for(*line)
    assert said in str(error.value)


def test_threads_are_shared_out_among_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runs.pool.cores", lambda: list(range(16)))
    assert [sure("--workers", count).threads for count in ("2", "5", "32")] == [8, 3, 1]
    assert sure("--workers", "2", "--ray-address", "10.0.0.1:6379").threads == 1


def test_more_threads_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cluster.connect.cores", lambda: [0, 1, 2])
    check_machine(sure("--workers", "3", "--threads", "1"))
    with pytest.raises(
        UserError, match="--workers 2 of 2 threads need 4 cores, and this process may use 3"
    ):
        check_machine(sure("--workers", "2", "--threads", "2"))


def test_more_gpus_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cluster.connect.cores", lambda: list(range(64)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    line = ["--device", "cuda", "--threads", "1", "--untimed"]
    check_machine(sure("--workers", "1", *line))
    check_machine(sure("--workers", "2", "--gpus-per-worker", "0.5", *line))
    with pytest.raises(UserError, match=r"--workers 8 .* need 8 GPUs, and torch sees 1 here"):
        check_machine(sure("--workers", "8", *line))


def test_an_address_where_nothing_answers_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=f"--ray-address 127.0.0.1:{port}: nothing answers there"):
        check_reachable(f"127.0.0.1:{port}")


def node(cpus: float, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "NodeManagerHostname": "n", "Resources": {"CPU": cpus, "GPU": gpus}}


def test_workers_must_fit_on_the_nodes_one_by_one() -> None:
    line = ["--ray-address", "10.0.0.1:6379", "--threads", "2"]
    nodes = [node(3), node(5), node(64, alive=False)]
    assert shortage(nodes, sure("--workers", "3", *line)) == ""
    assert "room for 3 (n: 3 CPUs, 0 GPUs; n: 5 CPUs, 0 GPUs)" in shortage(
        nodes, sure("--workers", "4", *line)
    )
    assert "room for 1 " in shortage(
        [node(64, gpus=1)], sure("--workers", "2", "--device", "cuda", *line)
    )


def test_without_ray_the_message_says_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = ["--workers", "1", "--threads", "1", "--suite", "lists", "--out", str(tmp_path / "run")]
    assert 'install it: python -m pip install --editable ".[cluster]"' in refused(
        main, line, capsys
    )
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_does_not_start_in_time_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        raise Exception("The current node timed out during startup.\nMore of it.")  # as Ray does

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    line = ["--workers", "1", "--threads", "1", "--suite", "lists", "--out", str(tmp_path / "run")]
    assert "no Ray cluster on this machine: The current node timed out during startup." in refused(
        main, line, capsys
    )


# Options in processes that do not know the module of a decoder
LARGEST = 9


class Known(Options):
    """Options with a rule of their own."""

    k: Positive = 2
    share: Annotated[float, Meta(ge=0)] = 0.5

    def check(self) -> None:
        """Raise ValueError."""
        super().check()
        if self.k > LARGEST:
            raise ValueError(f"k={self.k} is too large")


def of_mine(request: Request, options: Known) -> None:
    """A decoder."""
    print(options)


ELSEWHERE = """
import sys
from pathlib import Path
from harness.cluster.actor import unpickled
from harness.runs.selection import methods_named
from model_wrappers.options import convert_options

named = methods_named(unpickled(Path(sys.argv[1]).read_bytes()).methods)
(name,) = named
decoder = named[name].decoder
for values in ({"k": 3}, {"k": 0}, {"k": 10}, {"step": 1}):
    try:
        decoder.function(None, convert_options(decoder.options, values, name))
    except ValueError as error:
        print(error)
print(decoder.options.__doc__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("registered", [False, True])
def test_a_decoder_and_its_options_are_known_elsewhere(
    registries: None, tmp_path: Path, registered: bool
) -> None:
    name = "of-mine" if registered else "of_mine"
    if registered:
        register(name)(of_mine)
    (tmp_path / "options").write_bytes(pickled(checked(RunOptions, {"methods": (of_mine,)})))
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "options")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "Known(k=3, share=0.5)",
        f"option k=0 for {name} must be a whole number of at least 1",
        f"{name}: k=10 is too large",
        f"unknown option 'step' for {name}; valid: k, share",
        "Options with a rule of their own.",
    ], done.stderr


def test_a_function_with_options_is_known_elsewhere_with_them() -> None:
    options = checked(RunOptions, {"methods": ("llada", (of_mine, {"k": 3}))})
    assert list(methods_named(unpickled(pickled(options)).methods)) == ["llada", "of_mine(k=3)"]


def test_options_without_functions_come_back_as_they_were() -> None:
    assert workers_for() is None
    options, before = (
        checked(RunOptions, {"methods": "llada; fef-2", "limit": 3, "workers": 2}),
        dict(METHODS),
    )
    assert unpickled(pickled(options)).limit == 3 and before == METHODS
