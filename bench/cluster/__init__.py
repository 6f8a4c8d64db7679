"""Three nodes compared with one: the cost of copies in rates and messages, and jobs that are added on one node and
taken on another.

All nodes and clients share this machine, so only ratios and messages per job are meaningful.
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

# Goals: the rate with copies relative to one node without copies, while three processes share two cores; and the rate
# of remote consumers relative to local ones.
_COPIES_RATIO_MIN = 0.35
_ELSEWHERE_RATIO_MIN = 0.5

# Messages per job with three copies. ADDJOB: two nodes get the job and confirm it. ACKJOB: two nodes get the ack,
# confirm it, and get the command to delete the job. In addition, there are a few gossip messages per second.
_COPY_MESSAGES = 4
_ACK_MESSAGES = 6
_FAST_ACK_MESSAGES = 2
_GREETINGS = 0.1
_ABOUT_ACKS = ("setack", "gotack", "deljob")


def trials(scale: Scale) -> list[Trial]:
    """Return trials of copies, of acks, and of jobs that are taken on another node."""
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
            *("cluster/three-messages", "messages between nodes per job", Unit.MESSAGES),
            goal=Goal(_COPY_MESSAGES + _GREETINGS),
        ),
        Spec("cluster/three-bytes", "bytes between nodes per job", Unit.BYTES),
        Spec("cluster/three-writes", "writes between nodes per job", Unit.MESSAGES),
        Spec("cluster/ackjob", "messages between nodes per ACKJOB", Unit.MESSAGES, goal=Goal(_ACK_MESSAGES)),
        Spec("cluster/fastack", "messages between nodes per FASTACK", Unit.MESSAGES, goal=Goal(_FAST_ACK_MESSAGES)),
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
    """Return the number of messages about acks per finished job."""

    def said() -> int:
        infos = [_info(node) for node in nodes]
        return sum(info.get(f"cluster_stats_sent_{kind}", 0) for info in infos for kind in _ABOUT_ACKS)

    before = said()
    child.figures("bench.cluster.load", "finish", nodes[0].port, word, count)
    _wait_for(lambda: sum(_jobs(node) for node in nodes[1:]) == (len(nodes) - 1) * _jobs(nodes[0]))
    return (said() - before) / count


def _jobs(node: Server) -> int:
    """Return the number of jobs and acks that a node stores."""
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
    """Return the nodes of a new cluster."""
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
    """Return the messages, bytes and writes that all nodes have sent."""
    infos = [_info(node) for node in nodes]
    return [sum(info[f"cluster_stats_{what}"] for info in infos) for what in ("messages_sent", "bytes_sent", "writes")]


def _wait_for(condition: object) -> None:
    until = time.monotonic() + _MEET_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise RuntimeError("the nodes did not reach the expected state in time")
        time.sleep(0.02)
