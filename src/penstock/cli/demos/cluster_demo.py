"""`penstock cluster demo`: a cluster on this machine that loses a node but no jobs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

import penstock
from penstock.cli import cluster_nodes
from penstock.cli.errors import fail
from penstock.cluster.roster import BUS_OFFSET

JOBS: Final = 100
PATIENCE_S: Final = 30.0
_PORTS: Final = range(7_711, 7_911)
_NODE_TIMEOUT_MS: Final = 2_000


class DemoNode:
    """A node in its own process."""

    def __init__(self, home: Path, port: int) -> None:
        self.port = port
        words = ["--port", str(port), "--iproto-port", "0", "--dir", str(home), "--logfile", "log"]
        words += ["--cluster-node-timeout", str(_NODE_TIMEOUT_MS)]
        self.process = subprocess.Popen([sys.executable, "-m", "penstock", "serve", *words])
        self._queue: Any = None

    def ask(self, *words: str | int) -> Any:
        """Send a command to the node and return its answer. Wait until the node listens."""
        if self._queue is None:
            wait_for(self._listens, f"the node on port {self.port} does not answer")
            self._queue = penstock.connect(f"penstock://127.0.0.1:{self.port}")
        return self._queue.execute(*words)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def reaches(self) -> int:
        lines = self.ask("CLUSTER", "INFO").decode().split()
        return int(dict(line.split(":") for line in lines)["cluster_reachable_nodes"])

    def end(self) -> None:
        if self._queue is not None:
            self._queue.close()
        self.process.kill()
        self.process.wait()


def run(count: int) -> int:
    """Run the demo. Return 0 if no job was lost."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as home, contextlib.ExitStack() as stack:
        nodes = []
        for number, port in enumerate(free_ports(count)):
            node = DemoNode(Path(home, f"node{number}"), port)
            stack.callback(node.end)
            nodes.append(node)
        return _show(nodes)


def _show(nodes: list[DemoNode]) -> int:
    first, second, last = nodes[0], nodes[1], nodes[-1]
    ports = ", ".join(str(node.port) for node in nodes)
    typer.echo(f"Started {len(nodes)} nodes on ports {ports}. The first node meets the others:")
    for node in nodes[1:]:
        node.ask("PING")
        typer.echo(f"  port {first.port}> CLUSTER MEET 127.0.0.1 {node.port}")
        first.ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    began = time.monotonic()
    wait_for(lambda: all(node.reaches() == len(nodes) - 1 for node in nodes), "the nodes do not reach each other")
    typer.echo(f"All nodes reach each other after {time.monotonic() - began:.1f} s.\n")

    copies = min(3, len(nodes))
    began = time.monotonic()
    ids = [
        first.ask("ADDJOB", "demo", f"job {number}", 5_000, "REPLICATE", copies, "RETRY", 1) for number in range(JOBS)
    ]
    spent = time.monotonic() - began
    typer.echo(f"{JOBS} jobs added on port {first.port}, each with {copies} copies: {spent / JOBS * 1000:.1f} ms each.")
    typer.echo(f"The node on port {first.port}, which has them queued, is killed.")
    first.end()

    found: dict[bytes, int] = {}
    began = time.monotonic()
    while set(found) != set(ids) and time.monotonic() - began < PATIENCE_S:
        for node in (second, last):
            for _, id, _ in node.ask("GETJOB", "TIMEOUT", 100, "COUNT", JOBS, "FROM", "demo") or []:
                found[id] = found.get(id, 0) + 1
                node.ask("ACKJOB", id)
    lost = set(ids) - set(found)
    spent = time.monotonic() - began
    typer.echo(f"{len(found)} of them were taken from the other nodes within {spent:.1f} s, and acknowledged there.")
    if lost:
        typer.echo(f"{len(lost)} jobs were lost. This is a bug, please report it.")
        return 1
    typer.echo("No job was lost.")
    return 0


def wait_for(condition: Callable[[], bool], why_not: str) -> None:
    """Wait until the condition is true. After the timeout, print `why_not` and exit."""
    if not cluster_nodes.wait_for(condition, PATIENCE_S):
        fail(f"{why_not} within {PATIENCE_S:.0f} s; try again when this machine is less busy")


def free_ports(count: int) -> list[int]:
    """Return free ports whose cluster ports are free, too."""
    free = [port for port in _PORTS if _is_free(port) and _is_free(port + BUS_OFFSET)]
    if len(free) < count:
        fail(f"only {len(free)} of the ports from {_PORTS[0]} to {_PORTS[-1]} are free, but {count} are needed")
    return free[:count]


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
