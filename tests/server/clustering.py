"""Clusters for tests: real processes that have met."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .forked import Forked
from .proxies import Proxy
from .serving import Server, Wire, wait_for

# Short, so that tests need not wait long for a node to be missed; longer than a busy machine keeps one from answering.
TIMEOUT_MS = 2_000


class Node(Server):
    """A server with a directory of its own, and a connection for whoever asks."""

    def __init__(self, home: Path, *words: str) -> None:
        home.mkdir(exist_ok=True)
        super().__init__(home, "--dir", ".", "--cluster-node-timeout", str(TIMEOUT_MS), "--iproto-port", "0", *words)

    def _spawn(self, words: list[str]) -> Forked:  # type: ignore[override]
        self._said = self._next_files()
        return Forked(["serve", *words], self.home, *self._said)

    def ask(self, *words: bytes | str | int) -> object:
        """What one command answers, on a connection of its own."""
        with contextlib.closing(Wire(self.port)) as wire:
            return wire.call(*words)

    @property
    def id(self) -> bytes:
        return self.ask("CLUSTER", "MYID")  # type: ignore[return-value]

    def cluster_info(self) -> dict[str, int | str]:
        told = self.ask("CLUSTER", "INFO")
        assert isinstance(told, bytes)
        pairs = (line.split(":") for line in told.decode().split())
        return {name: int(value) if value.isdigit() else value for name, value in pairs}

    def flags_of(self, other: bytes) -> str | None:
        """What it knows of a node; None if it does not know it."""
        told = self.ask("CLUSTER", "NODES")
        assert isinstance(told, bytes)
        lines = [line.split() for line in told.decode().splitlines()]
        return next((words[2] for words in lines if words[0] == other.decode()), None)

    def reaches(self) -> int:
        return int(self.cluster_info()["cluster_reachable_nodes"])

    def meet(self, other: Node, bus_port: int, host: str = "127.0.0.1") -> None:
        assert self.ask("CLUSTER", "MEET", host, other.port, bus_port) == b"OK"


class LastingNode(Node):
    """A node that can start again by itself, once it was started again: it is a process of its own then."""

    def _spawn(self, words: list[str]) -> Forked | subprocess.Popen[bytes]:  # type: ignore[override]
        return Server._spawn(self, words) if self._said else super()._spawn(words)


class Cluster:
    """Nodes that know each other."""

    def __init__(
        self,
        home: Path,
        count: int,
        *words: str,
        chain: bool = False,
        proxies: Sequence[Proxy] = (),
        host: str = "127.0.0.1",
    ) -> None:
        def start(number: int) -> Node:
            behind = ["--cluster-announce-bus-port", str(proxies[number].port)] if proxies else []
            return Node(home / f"n{number}", *words, *behind)

        with ThreadPoolExecutor(count) as starters:
            self.nodes = list(starters.map(start, range(count)))
        for proxy, node in zip(proxies, self.nodes, strict=False):
            proxy.to = node.bus_port
        for number, node in enumerate(self.nodes[1:]):
            self.nodes[number if chain else 0].meet(node, proxies[number + 1].port if proxies else node.bus_port, host)
        self.gather()

    def gather(self) -> None:
        """Wait until everybody who runs reaches everybody else who does."""
        running = [node for node in self.nodes if node.is_running]
        wait_for(lambda: all(node.reaches() == len(running) - 1 for node in running))

    def stop(self) -> None:
        for node in self.nodes:
            if node.is_running:
                node.stop()


@contextlib.contextmanager
def cluster_of(
    home: Path,
    count: int,
    *words: str,
    chain: bool = False,
    proxies: Sequence[Proxy] = (),
    host: str = "127.0.0.1",
) -> Iterator[Cluster]:
    """Nodes that have met, all through the first or each through the one before it; each behind its proxy, if any."""
    cluster = Cluster(home, count, *words, chain=chain, proxies=proxies, host=host)
    try:
        yield cluster
    finally:
        cluster.stop()
