"""Three nodes beside one: what copies cost, in rates and in what nodes say to each other; and jobs that are added on
one node and taken on another.

All nodes and whoever loads them share this machine, so ratios are what counts, and what is said for each job.
"""

from __future__ import annotations

import time
from functools import partial

from bench import child
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.server import processes
from bench.server.processes import Server
from bench.server.rates import BODY
from bench.server.redis_benchmark import CLIENTS, per_second
from bench.trial import Sample, Trial

_NODES = 3
_COUNT = 20_000
_SECONDS = 3.0
_MEET_S = 20.0

# Of the rate of one node that keeps no copies, while three processes share two cores; and of that of local consumers.
_COPIES_RATIO_MIN = 0.35
_ELSEWHERE_RATIO_MIN = 0.5

# For each job at three copies: two are asked to hold it and say that they do; when it is done, two are told, say that
# they know, and are told to forget it. Of greetings there are a few a second beside that.
_COPY_MESSAGES = 4
_ACK_MESSAGES = 6
_FAST_ACK_MESSAGES = 2
_GREETINGS = 0.1
_ABOUT_ACKS = ("setack", "gotack", "deljob")


def trials(scale: Scale) -> list[Trial]:
    """Copies, acknowledgements, and jobs that go elsewhere."""
    seconds = _SECONDS / 4 if scale.quick else _SECONDS
    elsewhere = Trial(
        (
            Spec("cluster/local", "added 32 at a time, taken and acked likewise, on one of two nodes", Unit.JOBS),
            Spec(
                *("cluster/elsewhere", "added on one node, taken on the other", Unit.JOBS, "cluster/local"),
                Goal(_ELSEWHERE_RATIO_MIN, Of.RATIO),
            ),
        ),
        partial(_prepare_elsewhere, seconds),
        scale.rounds_server,
    )
    if not processes.is_there("redis-benchmark"):
        return [elsewhere]
    count = scale.jobs(_COUNT, _COUNT // 4)
    copies = (
        Spec("cluster/one", f"ADDJOB of 40 bytes on one node, {CLIENTS} clients", Unit.COMMANDS),
        Spec(
            *("cluster/three", "the same with three copies on three nodes", Unit.COMMANDS, "cluster/one"),
            Goal(_COPIES_RATIO_MIN, Of.RATIO),
        ),
        Spec(
            *("cluster/three-messages", "messages between nodes for each of them", Unit.MESSAGES),
            goal=Goal(_COPY_MESSAGES + _GREETINGS),
        ),
        Spec("cluster/three-bytes", "bytes between nodes for each of them", Unit.BYTES),
        Spec("cluster/three-writes", "in so many writes", Unit.MESSAGES),
        Spec("cluster/ackjob", "messages for each ACKJOB of them", Unit.MESSAGES, goal=Goal(_ACK_MESSAGES)),
        Spec("cluster/fastack", "messages for each FASTACK of them", Unit.MESSAGES, goal=Goal(_FAST_ACK_MESSAGES)),
    )
    return [Trial(copies, partial(_prepare_copies, count), scale.rounds_server), elsewhere]


def _prepare_copies(count: int) -> Sample:
    alone, nodes = processes.penstock("--no-journal"), _met(_NODES)

    def sample() -> list[float]:
        for server in (alone, *nodes):
            server.ask("DEBUG", "FLUSHALL")
        one = per_second(alone, count, 1, "ADDJOB", "bench", BODY, "0")
        before = _said(nodes)
        three = per_second(nodes[0], count, 1, "ADDJOB", "bench", BODY, "0", "REPLICATE", str(_NODES))
        copies = [(after - start) / count for after, start in zip(_said(nodes), before, strict=True)]
        acks = [_acked(nodes, word, count // 4) for word in ("ACKJOB", "FASTACK")]
        return [one, three, *copies, *acks]

    return sample


def _acked(nodes: list[Server], word: str, count: int) -> float:
    """How many messages about acknowledgements it takes to finish a job."""

    def said() -> int:
        infos = [_info(node) for node in nodes]
        return sum(info.get(f"cluster_stats_sent_{kind}", 0) for info in infos for kind in _ABOUT_ACKS)

    before = said()
    child.figures("bench.cluster.load", "finish", nodes[0].port, word, count)
    _wait_for(lambda: sum(_jobs(node) for node in nodes[1:]) == (len(nodes) - 1) * _jobs(nodes[0]))
    return (said() - before) / count


def _jobs(node: Server) -> int:
    """How many jobs a node knows of, and acknowledgements."""
    return int(node.ask("INFO", "jobs").split(b"registered_jobs:")[1].split()[0])


def _prepare_elsewhere(seconds: float) -> Sample:
    nodes = _met(2)

    def rate(giver: Server, taker: Server) -> float:
        for node in nodes:
            node.ask("DEBUG", "FLUSHALL")
        (found,) = child.figures("bench.cluster.load", "move", giver.port, taker.port, seconds)
        return found

    def sample() -> list[float]:
        first, second = nodes
        return [rate(first, first), rate(first, second)]

    return sample


def _met(count: int) -> list[Server]:
    """Nodes that know each other."""
    nodes, ports = [], []
    for _ in range(count):
        port = processes.free_port()
        nodes.append(processes.penstock("--no-journal", "--iproto-port", "0", "--cluster-port", str(port)))
        ports.append(port)
    for node, port in zip(nodes[1:], ports[1:], strict=True):
        nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, port)
    _wait_for(lambda: all(_info(node)["cluster_reachable_nodes"] == count - 1 for node in nodes))
    return nodes


def _info(node: Server) -> dict[str, int]:
    lines = [line.split(b":") for line in node.ask("CLUSTER", "INFO").split() if b":" in line]
    return {name.decode(): int(value) for name, value in lines if value.isdigit()}


def _said(nodes: list[Server]) -> list[int]:
    """Messages, bytes and writes of all nodes."""
    infos = [_info(node) for node in nodes]
    return [sum(info[f"cluster_stats_{what}"] for info in infos) for what in ("messages_sent", "bytes_sent", "writes")]


def _wait_for(condition: object) -> None:
    until = time.monotonic() + _MEET_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise RuntimeError("the nodes do not come to it")
        time.sleep(0.02)
