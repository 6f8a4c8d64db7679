"""The GLOBAL commands: they ask all nodes of a cluster about a queue and merge the replies."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import EMPTY, LENGTHS, MERE_COPY, OLDEST, JobImage
from penstock.cluster.node import Cluster
from penstock.cluster.questions import SCANNED_MAX, SHOWN_MAX, QuestionWait
from penstock.core import states as s
from penstock.core.errors import OutOfRange
from penstock.core.limits import NEVER, check_count
from penstock.core.waits import Waiting
from penstock.dialects.disque import require_integer
from penstock.dialects.native.arguments import Words, excerpt, parse_cursor
from penstock.dialects.native.job_commands import read_states
from penstock.node.caller import Caller, WaitReply, check_tube
from penstock.node.context import ANSWER_BYTES_MAX, CommandContext
from penstock.wire.bodies import to_plain
from penstock.wire.bus import NODE_ID_BYTES
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# Other nodes have this long to answer. A node that does not is counted as missing in the reply.
_PATIENCE_MS: Final = 1_000

_SCAN_COUNT: Final = 100


class GlobalCommands:
    """The GLOBAL commands."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._lengths_reply: WaitReply = _SumsReply(context, [b"ready", b"taken", b"delayed", b"buried", b"copies"])
        self._emptied_reply: WaitReply = _SumsReply(context, [b"deleted", b"left"])

    def qlen(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run GLOBAL QLEN queue: reply with the number of jobs of a queue on all reachable nodes."""
        self._ask(caller, args[2], LENGTHS, 0, self._lengths_reply, now)

    def qpeek(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run GLOBAL QPEEK queue count: reply with the first jobs of a queue on all reachable nodes."""
        count = require_integer(args[3])
        if count < 1 or count > SHOWN_MAX:
            raise Refused(b"ERR COUNT must be 1 to %d; for the newest jobs, use QPEEK on each node" % SHOWN_MAX)
        self._ask(caller, args[2], OLDEST, count, _PeekReply(count), now)

    def empty(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run GLOBAL EMPTY queue: delete up to 1,000 jobs of a queue on each reachable node."""
        self._ask(caller, args[2], EMPTY, 0, self._emptied_reply, now)

    def scan(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run GLOBAL SCAN cursor [TUBE tube] [STATE state ...] [COUNT n]: list the jobs of one node after the other."""
        cluster = self._cluster()
        node, cursor = _parse_cursor(args[2])
        queue = b""
        count = _SCAN_COUNT
        states = 0
        words = Words(args, 3)
        while words.has_more():
            word = words.option()
            if word == b"TUBE":
                queue = words.value()
                check_tube(caller, queue)
            elif word == b"STATE":
                states |= read_states(words)
            elif word == b"COUNT":
                count = min(check_count(words.integer(), "COUNT"), SCANNED_MAX)
            else:
                raise words.unknown(["TUBE", "STATE", "COUNT"])
        node = node or cluster.next_node(b"")
        self._context.engine.advance(now)
        wait = cluster.questions.ask_one(
            caller.connection, node, queue, count, cursor, states, _PATIENCE_MS, caller, now
        )
        caller.wait_for(wait, _ScanReply(cluster, node))

    def _cluster(self) -> Cluster:
        cluster = self._context.cluster
        if cluster is None:
            raise Refused(b"NOCLUSTER this node is not in a cluster; use the command without GLOBAL")
        return cluster

    def _ask(self, caller: Caller, queue: bytes, about: i64, count: int, answer: WaitReply, now: i64) -> None:
        check_tube(caller, queue)
        cluster = self._cluster()
        caller.wait_for(cluster.ask(caller.connection, about, queue, count, _PATIENCE_MS, caller, now), answer)


class _SumsReply(WaitReply):
    """Replies with sums over all nodes that answered, the number of these nodes, and the number of the others."""

    def __init__(self, context: CommandContext, names: list[bytes]) -> None:
        self._context = context
        self._names = names

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, QuestionWait) and self._context.cluster is not None
        reply = caller.reply
        reply.map(len(self._names) + 2)
        for at in range(len(self._names)):
            _pair(reply, self._names[at], wait.figures[at] if at < len(wait.figures) else 0)
        _pair(reply, b"nodes", wait.answers)
        _pair(reply, b"missing", max(0, self._context.cluster.members.size() - wait.answers))


class _PeekReply(WaitReply):
    """Replies to GLOBAL QPEEK: merges the first jobs of the queue from all nodes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Write the requested number of received jobs, the oldest first, or fewer if the reply would be too large."""
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


class _ScanReply(WaitReply):
    """Replies to GLOBAL SCAN with some jobs of one node, and a cursor that continues at this node or at the next."""

    def __init__(self, cluster: Cluster, node: bytes) -> None:
        self._cluster = cluster
        self._node = node

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Write the jobs of the node and the next cursor. If the node has not answered, the cursor skips it."""
        assert isinstance(wait, QuestionWait)
        images = [image for image in wait.jobs if caller.any_tube or caller.may_use(image.queue)]
        reply = caller.reply
        reply.map(4)
        reply.bulk(b"cursor")
        reply.bulk(self._next_cursor(wait.figures[0] if wait.figures else 0))
        reply.bulk(b"node")
        reply.bulk(self._node)
        _pair(reply, b"missing", 0 if wait.answers else 1)
        reply.bulk(b"jobs")
        reply.array(len(images))
        for image in images:
            _write_outline(reply, image, now)

    def _next_cursor(self, cursor: int) -> bytes:
        if cursor:
            return b"%b:%d" % (self._node, cursor)
        following = self._cluster.next_node(self._node)
        return b"%b:0" % following if following else b"0"


def _write_outline(reply: Reply, image: JobImage, now: i64) -> None:
    """Write a job of another node without its body. Times are in milliseconds."""
    reply.map(10)
    reply.bulk(b"id")
    reply.bulk(image.id)
    reply.bulk(b"tube")
    reply.bulk(image.queue)
    reply.bulk(b"state")
    reply.bulk(b"copy" if image.state == MERE_COPY else s.STATE_NAMES[image.state].encode())
    _pair(reply, b"created", now - image.age_ms)
    _write_time(reply, b"ttl", image.ttl_ms)
    _write_time(reply, b"ttr", image.retry_ms)
    _pair(reply, b"delay", image.delay_ms)
    _pair(reply, b"deliveries", image.deliveries)
    _pair(reply, b"nacks", image.nacks)
    reply.bulk(b"holders")
    reply.bulks(image.holders)


def _write_time(reply: Reply, name: bytes, ms: int) -> None:
    if ms == NEVER:
        reply.bulk(name)
        reply.null()
    else:
        _pair(reply, name, ms)


def _parse_cursor(word: bytes) -> tuple[bytes, int]:
    """Return the node at which a cursor continues, and the position on that node. The first cursor has no node."""
    if word == b"0":
        return b"", 0
    node, colon, cursor = word.partition(b":")
    if not colon or len(node) != NODE_ID_BYTES:
        raise OutOfRange(f"a cursor must be 0 or a value that an earlier scan returned, not {excerpt(word)}")
    return node, parse_cursor(cursor)


def _pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)


def _order(image: JobImage) -> tuple[int, bytes]:
    return image.order, image.id
