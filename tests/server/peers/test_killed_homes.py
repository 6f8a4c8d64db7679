"""Tubes of a cluster while its nodes are killed: every acknowledged operation was done exactly once.

The test suite runs a short form; `make homes` runs JOBS=5000.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..clustering import Cluster, Node, cluster_of
from ..serving import Refusal, Wire, Word, decoded, pairs, wait_for

JOBS = int(os.environ.get("PENSTOCK_HOMES_JOBS", "120"))
TUBES = ["first", "second"]

# The errors of a client while nodes come and go: its connection is closed, or the outcome is unknown.
TROUBLE = (OSError, EOFError, Refusal)


def ask(wire: Wire, *words: Word) -> Any:
    """Return the reply to a command, or raise its error."""
    answer = wire.ask(*words)
    if not answer.endswith(b"\r\n"):
        raise EOFError
    told = decoded(answer)
    if isinstance(told, Refusal):
        raise told
    return told


class Client(threading.Thread):
    """A client that works through any running node."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._nodes: Iterator[Node] = itertools.cycle(nodes)

    def run(self) -> None:
        while not self.over.is_set():
            wire = None
            try:
                wire = Wire(next(self._nodes).port)
                while not self.over.is_set():
                    self.work(wire)
            except TROUBLE:
                self.over.wait(0.01)
            finally:
                if wire is not None:
                    wire.close()

    def work(self, wire: Wire) -> None:
        raise NotImplementedError


class Producer(Client):
    """Puts jobs with distinct bodies."""

    def __init__(self, nodes: list[Node], tube: str) -> None:
        super().__init__(nodes)
        self._tube = tube
        self.put: list[bytes] = []  # The bodies whose puts were confirmed.
        self._numbers = itertools.count()

    def work(self, wire: Wire) -> None:
        body = f"{self._tube} {next(self._numbers)}".encode()
        ask(wire, "PUT", self._tube, body)
        self.put.append(body)
        if len(self.put) >= JOBS:
            self.over.set()


class Consumer(Client):
    """Takes and acks jobs."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(nodes)
        self.acked: list[bytes] = []
        self.perhaps: list[bytes] = []  # Jobs whose acks were not confirmed.
        self._tubes = itertools.cycle(TUBES)

    def work(self, wire: Wire) -> None:
        for job in ask(wire, "TAKE", next(self._tubes), "COUNT", 3, "TIMEOUT", "50ms"):
            told = pairs(job)
            self.perhaps.append(told[b"body"])
            try:
                done = ask(wire, "ACK", told[b"id"])
            except Refusal as refusal:
                if "may have been executed" not in str(refusal):
                    self.perhaps.pop()
                raise
            self.perhaps.pop()
            assert done == 1
            self.acked.append(told[b"body"])


def left(cluster: Cluster, home: int) -> int:
    told = pairs(cluster.nodes[home].ask("TUBE", "STATS", TUBES[home]))  # type: ignore[arg-type]
    return int(told[b"ready"]) + int(told[b"taken"])


def test_every_job_is_acked_once_while_nodes_are_killed(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3, "--appendfsync", "everysec") as cluster:
        nodes = cluster.nodes
        for node, tube in zip(nodes, TUBES, strict=False):
            node.ask("TUBE", "CREATE", tube, "TYPE", "fifottl")
        producers = [Producer(nodes[at:] + nodes[:at], tube) for at, tube in enumerate(TUBES)]
        consumers = [Consumer(nodes[at:] + nodes[:at]) for at in range(3)]
        for each in (*producers, *consumers):
            each.start()

        def acked() -> int:
            return sum(len(each.acked) for each in consumers)

        for share, victim in zip((0.2, 0.4, 0.6), (nodes[2], nodes[0], nodes[1]), strict=True):
            wait_for(lambda share=share: acked() >= share * JOBS * len(TUBES))
            victim.kill()
            victim.start_again()
            cluster.gather()
        wait_for(lambda: all(each.over.is_set() for each in producers))
        wait_for(lambda: left(cluster, 0) + left(cluster, 1) == 0)
        for consumer in consumers:
            consumer.over.set()
            consumer.join()
        counts = Counter(body for each in consumers for body in each.acked)
        assert max(counts.values()) == 1
        perhaps = {body for each in consumers for body in each.perhaps}
        put = {body for each in producers for body in each.put}
        assert put <= counts.keys() | perhaps
        assert all(len(node.ask("CLUSTER", "HOMES")) == 2 for node in nodes)  # type: ignore[arg-type]
