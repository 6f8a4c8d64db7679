"""The replies of TUBE KEYS and TUBE CAUSES, which summarise the jobs of a tube in slices."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core.commands.key_counts import KeyCounts
from penstock.core.tube import Tube
from penstock.dialects.pages import SCAN_SLICE
from penstock.node.caller import SLICE, Caller, SlicedCommand
from penstock.node.context import CommandContext
from penstock.search.cause_groups import CauseGroups
from penstock.wire.reply import Reply

SUMMARY_COUNT_DEFAULT: Final = 100


class KeysReply(SlicedCommand):
    """Runs TUBE KEYS: replies with the number of keys, and the keys with the most ready jobs."""

    def __init__(self, tube: Tube, count: int) -> None:
        self._tube = tube
        self._keys = KeyCounts(tube, count)

    def step(self, caller: Caller, now: i64) -> bool:
        if not self._keys.step(SLICE):
            return False
        reply = caller.reply
        found = self._keys.found()
        reply.map(2)
        _pair(reply, b"count", 0 if self._tube.keys is None else len(self._tube.keys))
        reply.bulk(b"keys")
        reply.array(len(found))
        for key in found:
            reply.map(4)
            reply.bulk(b"key")
            reply.bulk(key.name)
            _pair(reply, b"ready", key.ready)
            _pair(reply, b"taken", key.taken)
            _pair(reply, b"jobs", key.jobs)
        return True


class CausesReply(SlicedCommand):
    """Runs TUBE CAUSES: replies with the causes of failure that most buried jobs have."""

    def __init__(self, context: CommandContext, tube: Tube, count: int) -> None:
        self._context = context
        self._causes = CauseGroups(tube)
        self._count = count

    def step(self, caller: Caller, now: i64) -> bool:
        if not self._causes.step(SCAN_SLICE):
            return False
        reply = caller.reply
        found = self._causes.found()
        others = self._causes.others
        for group in found[self._count :]:
            others += group.jobs
        reply.map(4)
        _pair(reply, b"buried", self._causes.buried)
        _pair(reply, b"examined", self._causes.examined)
        _pair(reply, b"others", others)
        reply.bulk(b"causes")
        reply.array(min(len(found), self._count))
        for group in found[: self._count]:
            reply.map(4)
            reply.bulk(b"cause")
            reply.bulk(group.cause.encode("utf-8", "backslashreplace"))
            _pair(reply, b"jobs", group.jobs)
            _pair(reply, b"oldest", int(group.oldest))
            reply.bulk(b"example")
            reply.bulk(self._context.id_of(group.example))
        return True


def _pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)
