"""Penstock's own words for tubes: TUBE CREATE, INFO, STATS, LIST and the rest.

The options of a tube mean here what they mean in Python: a word becomes the option of its name in `options.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import stats
from penstock.core.engine import Engine
from penstock.core.limits import NEVER
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.dialects.command import ANSWERED, SLICE, Caller, Long, check_tube
from penstock.dialects.site import Site
from penstock.dialects.words import Words, read_json
from penstock.options import altered, policy_from, policy_of
from penstock.wire.reply import Reply

# What the value of an option is.
_TIME: Final = 0
_NUMBER: Final = 1
_TEXT: Final = 2
_YES_NO: Final = 3

_OPTIONS: Final[dict[bytes, tuple[str, int]]] = {
    b"TTL": ("ttl", _TIME),
    b"TTR": ("ttr", _TIME),
    b"PRIORITY": ("priority", _NUMBER),
    b"TTL-WHILE-TAKEN": ("ttl_while_taken", _TEXT),
    b"KEY-LIMIT": ("key_limit", _NUMBER),
    b"FAIR": ("fair", _YES_NO),
    b"CAPACITY": ("capacity", _NUMBER),
    b"CAPACITY-BYTES": ("capacity_bytes", _NUMBER),
    b"RETRY": ("retry", _TEXT),
    b"MAX-DELIVERIES": ("max_deliveries", _NUMBER),
    b"DEAD-LETTER": ("dead_letter", _TEXT),
    b"KEEP": ("keep", _YES_NO),
    b"ZOMBIE": ("zombie", _TIME),
    b"DEDUP-WINDOW": ("dedup_window", _TIME),
    b"DEDUP-COUNT": ("dedup_count", _NUMBER),
    b"TEMPORARY": ("temporary", _YES_NO),
}
_OPTION_WORDS: Final = [word.decode() for word in _OPTIONS]


class Tubes:
    """The commands that are about tubes."""

    site: Site
    _engine: Engine

    def __init__(self, site: Site) -> None:
        self.site = site
        self._engine = site.engine

    def create(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """TUBE CREATE name [TYPE type] [option value ...] [POLICY json]"""
        name = args[2]
        check_tube(caller, name)
        words = Words(args, 3)
        base: str | TubePolicy | None = None
        options: dict[str, Any] = {}
        while words.more():
            word = words.option()
            if word == b"TYPE":
                base = words.text()
            elif word == b"POLICY":
                base = policy_from(read_json(words.value(), "a policy"))
            elif not _read_option(words, word, options):
                raise words.unknown([*_OPTION_WORDS, "TYPE", "POLICY"])
        tube = self._engine.tubes.get(name)
        if tube is None or base is not None or options:
            policy = altered(policy_of(base), **options)
            if tube is None:
                policy.check()
                self.site.check_new([name])
            tube = self._engine.create_tube(name, policy, now)
        self._write_info(caller.reply, tube)

    def info(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """TUBE INFO name"""
        self._write_info(caller.reply, self._tube(caller, args[2], now))

    def stats(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """TUBE STATS name"""
        write_stats(caller.reply, self._tube(caller, args[2], now), now, True)

    def names(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """TUBE LIST"""
        self.site.run(caller, _Names(self._engine), now)

    def _tube(self, caller: Caller, name: bytes, now: i64) -> Tube:
        """The tube of a name as it is now."""
        check_tube(caller, name)
        self._engine.advance(now)
        return self._engine.tube(name)

    def _write_info(self, reply: Reply, tube: Tube) -> None:
        reply.map(7)
        _write_head(reply, tube)
        reply.bulk(b"policy")
        _write_policy(reply, tube.policy)
        _write_pauses(reply, tube)
        _write_pair(reply, b"jobs", tube.total())
        _write_pair(reply, b"body-bytes", tube.body_bytes)


def _read_option(words: Words, word: bytes, options: dict[str, Any]) -> bool:
    """Read the value of an option of a tube, if there is such an option."""
    found = _OPTIONS.get(word)
    if found is None:
        return False
    name, kind = found
    if kind == _TIME:
        ms = words.duration()
        options[name] = None if ms == NEVER else ms / 1000
    elif kind == _NUMBER:
        options[name] = words.integer()
    elif kind == _TEXT:
        options[name] = words.text()
    else:
        options[name] = words.boolean()
    return True


def write_stats(reply: Reply, tube: Tube, now: i64, counts: bool) -> None:
    """How a tube is: with what happened in its life, or without."""
    reply.map(15 if counts else 13)
    _write_head(reply, tube)
    states = stats.states(tube)
    for state in range(1, s.STATES_COUNT):
        _write_pair(reply, s.STATE_NAMES[state].encode(), states[state])
    reply.bulk(b"oldest-ms")
    first = tube.first_ready(None)
    if first is None:
        reply.null()
    else:
        reply.integer(max(now - first.created, 0))
    waiting = tube.line.length
    for line in tube.key_lines.values():
        waiting += line.length
    _write_pair(reply, b"waiting", waiting)
    _write_pair(reply, b"keys", 0 if tube.keys is None else len(tube.keys))
    _write_pauses(reply, tube)
    if counts:
        _write_counts(reply, tube)


def _write_counts(reply: Reply, tube: Tube) -> None:
    happened = [(name, count) for name, count in zip(s.EVENT_NAMES, stats.events(tube, True), strict=True) if count]
    reply.bulk(b"events")
    reply.map(len(happened))
    for name, count in happened:
        _write_pair(reply, name.encode(), count)
    names = stats.TRANSITION_NAMES
    went = stats.transitions(tube, True)
    reply.bulk(b"transitions")
    reply.map(len(went))
    for (source, target), count in went.items():
        _write_pair(reply, f"{names[source]}-{names[target]}".encode(), count)


def _write_head(reply: Reply, tube: Tube) -> None:
    reply.bulk(b"name")
    reply.bulk(tube.name)
    reply.bulk(b"type")
    reply.bulk(tube.policy.type.encode())


def _write_pauses(reply: Reply, tube: Tube) -> None:
    _write_pair(reply, b"paused-in", 1 if tube.paused_in else 0)
    _write_pair(reply, b"paused-out", 1 if tube.paused_out else 0)


def _write_pair(reply: Reply, name: bytes, value: int) -> None:
    reply.bulk(name)
    reply.integer(value)


def _write_policy(reply: Reply, policy: TubePolicy) -> None:
    """Every field under its own name. For ever is nothing; what was left open is -1."""
    fields = dataclasses.asdict(policy)
    reply.map(len(fields))
    for name, value in fields.items():
        reply.bulk(name.encode())
        if value == NEVER:
            reply.null()
        elif isinstance(value, int):
            reply.integer(int(value))
        elif isinstance(value, str):
            reply.bulk(value.encode())
        else:
            reply.bulks([each.encode() for each in value])


class _Names(Long):
    """TUBE LIST: the names of all tubes that a caller may use, in the order they were made."""

    _engine: Engine
    _cursor: int
    _names: list[bytes]
    _at: int  # How many were answered; negative before the first.

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cursor = 0
        self._names = []
        self._at = -1

    def step(self, caller: Caller, now: i64) -> bool:
        """Look at the next tubes; or answer some names, when all are known: an answer begins with its length."""
        if self._at < 0:
            tubes, self._cursor = self._engine.scan_tubes(self._cursor, SLICE)
            for tube in tubes:
                if caller.any_tube or caller.may_use(tube.name):
                    self._names.append(tube.name)
            if self._cursor != 0:
                return False
            if caller.muted != ANSWERED:
                # Nobody wants the answer, and what has left cannot be taken back.
                return True
            caller.reply.array(len(self._names))
            self._at = 0
        for name in self._names[self._at : self._at + SLICE]:
            caller.reply.bulk(name)
        self._at += SLICE
        return self._at >= len(self._names)
