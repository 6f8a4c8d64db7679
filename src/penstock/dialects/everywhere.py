"""GLOBAL: what all nodes of a cluster have of a queue. Each has a part of it; these put the parts together."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import EMPTY, LENGTHS, OLDEST, JobImage
from penstock.cluster.node import Cluster
from penstock.cluster.questions import SHOWN_MAX, QuestionWait
from penstock.core.waits import Waiting
from penstock.dialects.command import Answer, Caller, check_tube
from penstock.dialects.disque import integer
from penstock.dialects.site import ANSWER_BYTES_MAX, Site
from penstock.wire.bodies import to_plain
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# How long others have to answer. Who does not is missing, and that is told.
_PATIENCE_MS: Final = 1_000


class Everywhere:
    """The commands about queues of all nodes."""

    _site: Site
    _lengths: Answer
    _emptied: Answer

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lengths = _Figures(site, [b"ready", b"taken", b"delayed", b"buried", b"copies"])
        self._emptied = _Figures(site, [b"deleted", b"left"])

    def qlen(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """GLOBAL QLEN queue"""
        self._ask(caller, args[2], LENGTHS, 0, self._lengths, now)

    def qpeek(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """GLOBAL QPEEK queue count"""
        count = integer(args[3])
        if count < 1 or count > SHOWN_MAX:
            raise Refused(b"ERR COUNT must be 1 to %d; the newest jobs are asked for node by node" % SHOWN_MAX)
        self._ask(caller, args[2], OLDEST, count, _Peeked(count), now)

    def empty(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """GLOBAL EMPTY queue"""
        self._ask(caller, args[2], EMPTY, 0, self._emptied, now)

    def _ask(self, caller: Caller, queue: bytes, about: i64, count: int, answer: Answer, now: i64) -> None:
        check_tube(caller, queue)
        cluster: Cluster | None = self._site.cluster
        if cluster is None:
            raise Refused(b"NOCLUSTER this node is of no cluster, and has all there is")
        caller.waits(cluster.ask(caller.connection, about, queue, count, _PATIENCE_MS, caller, now), answer)


class _Figures(Answer):
    """Figures of all nodes, added up, and how many nodes they are of."""

    _site: Site
    _names: list[bytes]

    def __init__(self, site: Site, names: list[bytes]) -> None:
        self._site = site
        self._names = names

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Answer with what was told in time."""
        assert isinstance(wait, QuestionWait) and self._site.cluster is not None
        reply = caller.reply
        reply.map(len(self._names) + 2)
        for at in range(len(self._names)):
            _pair(reply, self._names[at], wait.figures[at] if at < len(wait.figures) else 0)
        _pair(reply, b"nodes", wait.answers)
        _pair(reply, b"missing", max(0, self._site.cluster.members.size() - wait.answers))


class _Peeked(Answer):
    """The first jobs of all nodes."""

    _count: int

    def __init__(self, count: int) -> None:
        self._count = count

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Answer with the oldest of those that were shown, as many as fit in an answer."""
        assert isinstance(wait, QuestionWait)
        images = sorted(wait.jobs, key=_order)[: self._count]
        length = 0
        fit = 0
        while fit < len(images) and length <= ANSWER_BYTES_MAX:
            length += len(images[fit].body)
            fit += 1
        reply = caller.reply
        reply.array(fit)
        for image in images[:fit]:
            reply.array(3)
            reply.bulk(image.queue)
            reply.bulk(image.id)
            reply.bulk(to_plain(image.body, image.body_kind))


def _pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)


def _order(image: JobImage) -> tuple[int, bytes]:
    return image.order, image.id
