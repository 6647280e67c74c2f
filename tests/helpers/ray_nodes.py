"""Ray nodes on this machine that talk over the loopback interface alone, ended by the ids of what
was started."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.cluster.connect import TOKEN

# `ray start` replaces 127.0.0.1 by the machine's address, and then listens on all interfaces.
START = (
    "from ray._private import services\n"
    "services.resolve_ip_for_localhost = lambda host: host\n"
    "from ray.scripts.scripts import main\n"
    "main()\n"
)
UP_WITHIN = 60  # seconds


@dataclass
class Nodes:
    """A cluster. environment: of those who are let in."""

    folder: Path
    address: str
    environment: dict[str, str]
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, cpus: int) -> subprocess.Popen[bytes]:
        """Another node; the first one is the head."""
        first = not self.nodes
        where = (
            ["--head", f"--port={self.address.rpartition(':')[2]}"]
            if first
            else [f"--address={self.address}"]
        )
        line = [
            "start",
            "--block",
            "--disable-usage-stats",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={cpus}",
        ]
        line += [
            *where,
            "--object-store-memory=100000000",
            *(["--include-dashboard=false"] if first else []),
        ]
        with (self.folder / f"node-{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                [sys.executable, "-c", START, *line],
                env=os.environ | self.environment | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.nodes.append(node)
        return node

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """A node is gone at once, with all its processes."""
        family = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
        for process in family:
            with_it(process, signal.SIGKILL)
        node.wait(10)

    def workers(self, node: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """The processes of a node that decode."""
        family = psutil.Process(node.pid).children(recursive=True)
        return [
            each
            for each in family
            if each.cmdline()[:1] and each.cmdline()[0].startswith("ray::Actor")
        ]


def with_it(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal, if the process is still there."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


@contextmanager
def ray_nodes(folder: Path, *cpus: int, **environment: str) -> Iterator[Nodes]:
    """A cluster with a node for each of `cpus`, over the loopback interface; none of its processes
    stays."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    # a process keeps the first token that it has
    token = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    # the path of a socket may not be longer than 107 bytes
    short = tempfile.TemporaryDirectory(prefix="ray-")
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": short.name}
    cluster = Nodes(folder, f"127.0.0.1:{port}", token | quiet | environment)
    try:
        for count in cpus:
            cluster.start(count)
            wait_for(cluster, port)
        yield cluster
    finally:
        family = []
        for node in cluster.nodes:
            if node.poll() is None:
                family += psutil.Process(node.pid).children(recursive=True)
                node.terminate()
        for node in cluster.nodes:
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait(10)
        for process in family:
            with_it(process, signal.SIGKILL)
        short.cleanup()


def wait_for(cluster: Nodes, port: int) -> None:
    """Until the newest node says that it runs."""
    log, deadline = (
        cluster.folder / f"node-{len(cluster.nodes) - 1}.log",
        time.monotonic() + UP_WITHIN,
    )
    while b"Ray runtime started" not in log.read_bytes():
        assert cluster.nodes[-1].poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
