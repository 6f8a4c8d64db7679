"""Clusters of real processes for tests."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .bus_proxy import Proxy
from .forked_servers import Forked
from .serving import Server, Wire, wait_for

# Much longer than a busy machine delays a node. After half of it without an answer, a link is closed and its messages
# are lost.
TIMEOUT_MS = 10_000

# Short, for tests that wait until a node is suspected.
MISSED_MS = 2_000


class Node(Server):
    """A server with its own directory, and a connection for commands."""

    def __init__(self, home: Path, *words: str) -> None:
        home.mkdir(exist_ok=True)
        super().__init__(home, "--dir", ".", "--cluster-node-timeout", str(TIMEOUT_MS), "--iproto-port", "0", *words)

    def ask(self, *words: bytes | str | int) -> object:
        """Return the reply to a command, sent on a new connection."""
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
        """Return the flags of another node in this node's table, or None if it is not there."""
        told = self.ask("CLUSTER", "NODES")
        assert isinstance(told, bytes)
        lines = [line.split() for line in told.decode().splitlines()]
        return next((words[2] for words in lines if words[0] == other.decode()), None)

    def reaches(self) -> int:
        return int(self.cluster_info()["cluster_reachable_nodes"])

    def links(self) -> int:
        """Return the number of nodes that this node has a link to."""
        told = self.ask("CLUSTER", "NODES")
        assert isinstance(told, bytes)
        # The node itself is shown as connected, too.
        return sum(line.endswith(b" connected") for line in told.splitlines()) - 1

    def stand_still(self) -> None:
        """Suspend the process until `go_on`."""
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def meet(self, other: Node, bus_port: int, host: str = "127.0.0.1") -> None:
        assert self.ask("CLUSTER", "MEET", host, other.port, bus_port) == b"OK"


class LastingNode(Node):
    """A node that restarts itself. After the first restart it is a process of its own."""

    def _spawn(self, words: list[str], prelude: str = "") -> Forked | subprocess.Popen[bytes]:
        self._is_forked = not self._said
        return super()._spawn(words, prelude)


class Cluster:
    """Nodes of one cluster."""

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
        """Wait until every running node reaches every other one and has a link to it.

        A node that has just restarted still counts as reachable, even before its links are up.
        """
        running = self._running()
        wait_for(lambda: all(node.reaches() == node.links() == len(running) - 1 for node in running))

    @contextlib.contextmanager
    def missing_soon(self) -> Iterator[None]:
        """Shorten the node timeout of running nodes. A node that restarts meanwhile has the usual timeout."""
        self._set_timeout(MISSED_MS)
        try:
            yield
        finally:
            self._set_timeout(TIMEOUT_MS)

    def _set_timeout(self, timeout_ms: int) -> None:
        for node in self._running():
            assert node.ask("CONFIG", "SET", "cluster-node-timeout", timeout_ms) == b"OK"

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

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
    """Return nodes that have met through the first one, or each through the one before it. Proxies are optional."""
    cluster = Cluster(home, count, *words, chain=chain, proxies=proxies, host=host)
    try:
        yield cluster
    finally:
        cluster.stop()
