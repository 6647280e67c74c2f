"""Ray: a cluster of this machine alone, or one that exists, with room for the workers of a run.

A cluster of this machine listens on the loopback interface alone, is closed to other users by a
token, and ends with the run. Usage statistics and dashboard are off.
"""

import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from harness.errors import UserError, explained
from harness.runs.pool import Workers, cores

ROOT = Path(__file__).resolve().parents[2]
INSTALL = 'python -m pip install --editable ".[cluster]"'
ANSWERS_WITHIN = 5.0  # seconds
JOINED_WITHIN = 60.0  # seconds
STORE = 256 * 2**20  # bytes of shared memory for what workers and driver exchange, which is little
# The last one lets workers without GPUs see CUDA_VISIBLE_DEVICES as it is; Ray warns without it.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# 0 tells Ray, on Linux too, that no cluster spans machines: it then listens on the loopback
# interface instead of the machine's address.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
TOKEN = secrets.token_hex(32)  # of clusters that this process starts
# What a worker must know of the driver's environment.
PASSED_ON = ("COMPASS_DATA_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "OMP_WAIT_POLICY")


@contextmanager
def connected(workers: Workers) -> Iterator[Any]:
    """The module `ray`, connected to a cluster that has room for the workers.

    Raises UserError if Ray is not installed, the cluster cannot be reached, or it is too small.
    """
    if workers.address is None:
        check_machine(workers)
        variables = LOOPBACK | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    else:
        check_reachable(workers.address)
        host = workers.address.rpartition(":")[0]
        variables = LOOPBACK if host in ("127.0.0.1", "localhost") else {}
    with mock.patch.dict(os.environ, QUIET | variables), _initialized(workers) as ray:
        yield ray


@contextmanager
def _initialized(workers: Workers) -> Iterator[Any]:
    """The module `ray` after ray.init, until the context ends; the environment is set."""
    with explained(
        "--workers needs Ray, which is not installed", ImportError, instead=f"install it: {INSTALL}"
    ):
        import ray
    options: dict[str, Any] = {
        "runtime_env": {"env_vars": environment()},
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    if workers.address is None:
        options |= {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": STORE,
            "num_cpus": workers.count * workers.threads,
            "num_gpus": math.ceil(workers.count * workers.gpus),
        }
    else:
        options |= {"address": workers.address}
    try:
        ray.init(**options)
    except Exception as error:
        # a start that takes Ray more than 30 seconds raises a bare Exception
        where = "on this machine" if workers.address is None else f"at {workers.address}"
        raise UserError(f"no Ray cluster {where}: {first_line(error)}{hint(workers)}") from error
    try:
        if workers.address is not None:
            wait_for_room(ray.nodes, workers)
        yield ray
    finally:
        ray.shutdown()


def environment() -> dict[str, str]:
    """The environment variables of a worker: PYTHONPATH with our packages, and PASSED_ON."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), **passed}


def hint(workers: Workers) -> str:
    """The end of an error message: how to pass a token; "" if that cannot be the cause."""
    if workers.address is None or os.environ.get("RAY_AUTH_MODE"):
        return ""
    return "; if it was started with a token, export RAY_AUTH_MODE=token here as well"


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or else its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def check_machine(workers: Workers) -> None:
    """Raise UserError if this machine has too few cores or GPUs."""
    needed = workers.count * workers.threads
    available = len(cores())
    need = f"of {_count(workers.threads, 'thread')} need {needed} cores"
    supply = f"this process may use {available}"
    remedy = "fewer --workers or --threads"
    # GPUs are checked only if the cores suffice: the message names one shortage.
    if needed <= available and workers.gpus:
        import torch

        needed = math.ceil(workers.count * workers.gpus)
        available = torch.cuda.device_count()
        need = f"with --gpus-per-worker {workers.gpus:g} need {_count(needed, 'GPU')}"
        supply = f"torch sees {available} here"
        remedy = "fewer --workers"
    if needed > available:
        raise UserError(
            f"--workers {workers.count} {need}, and {supply}; give {remedy}, or --ray-address of a"
            " cluster"
        )


def check_reachable(address: str) -> None:
    """Raise UserError unless something listens at HOST:PORT; `auto` is Ray's to find."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    remedy = "start the head node with `ray start --head`, and give its HOST:PORT or auto"
    with explained(
        f"--ray-address {address}: nothing answers there", OSError, ValueError, instead=remedy
    ):
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN).close()


def wait_for_room(nodes: Callable[[], list[dict[str, Any]]], workers: Workers) -> None:
    """Wait up to JOINED_WITHIN seconds until the cluster's nodes have room for the workers.

    Args:
        nodes: the function ray.nodes.
        workers: of the run.

    Raises:
        UserError: there is still no room.
    """
    deadline = time.monotonic() + JOINED_WITHIN
    fault = shortage(nodes(), workers)
    while fault and time.monotonic() <= deadline:
        time.sleep(0.5)
        fault = shortage(nodes(), workers)
    if fault:
        raise UserError(fault)


def shortage(nodes: list[dict[str, Any]], workers: Workers) -> str:
    """The message that a cluster has no room for the workers; "" if it has.

    Args:
        nodes: as ray.nodes() returns them; those that are not alive do not count.
        workers: of the run.
    """
    room = 0
    described = []
    for node in nodes:
        if not node["Alive"]:
            continue
        cpus = node["Resources"].get("CPU", 0)
        gpus = node["Resources"].get("GPU", 0)
        fitting = cpus // workers.threads
        if workers.gpus:
            fitting = min(fitting, gpus // workers.gpus)
        room += int(fitting)
        described.append(f"{node['NodeManagerHostname']}: {cpus:g} CPUs, {gpus:g} GPUs")
    fault = (
        f"--workers {workers.count} of {_count(workers.threads, 'thread')} and"
        f" {_count(workers.gpus, 'GPU')} do not fit: the cluster has room for {room}"
        f" ({'; '.join(described)}); give fewer --workers or --threads"
    )
    return fault if room < workers.count else ""


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"
