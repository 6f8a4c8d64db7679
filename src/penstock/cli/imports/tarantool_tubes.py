"""Tubes of tarantool/queue and spaces of xqueue, and the conversion of their rows to jobs.

A tube of tarantool/queue has a row in `_queue`, which names its type, and the type fixes the layout of its tasks:

    fifo                    id, state, data
    utube                   id, state, utube, data
    fifottl, limfifottl     id, state, next_event, ttl, ttr, pri, created, data
    utubettl                id, state, next_event, ttl, ttr, pri, created, utube, data

Durations are in microseconds, times in microseconds since 1970. The layout of an xqueue space is in its row of
`_space`. The options of such a space exist only in the Lua code that called `xqueue.upgrade`. They are inferred from
the names of fields and from the indexes, unless the user gives them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from penstock.cli.errors import USAGE
from penstock.cli.imports.import_items import ImportItem, SkippedItem
from penstock.cli.imports.tarantool_spaces import BadSource, Space, fields_of
from penstock.core.errors import CommandError, ProtocolError
from penstock.core.limits import NUMBER_MAX
from penstock.core.policy import PRESETS, TubePolicy
from penstock.dialects.xqueue import options
from penstock.dialects.xqueue.options import AUTO_INCREMENT, NO_FIELD, XqueueError
from penstock.dialects.xqueue.rows import Rows, key_name, key_text
from penstock.options import EncodedBody, altered
from penstock.wire.bodies import from_value
from penstock.wire.msgpack import unpack

BAD_ROWS: Final = "rows that are no tasks"
EXPIRED: Final = "expired"
EXPIRING: Final = "expiring before their delay ends"
ENDED: Final = "acked already"
TEMPORARY_TUBE: Final = "in a temporary tube, whose jobs a directory does not keep"

# tarantool/queue writes "no ttl" as 100 years.
_FOREVER_S: Final = 50 * 365 * 86_400
_US: Final = 1_000_000
# The shortest ttr of Penstock. In Tarantool a ttr of 0 returns a task immediately.
_TTR_S_MIN: Final = 0.001

# By the type of a tube: the positions of utube and of data, from 0; -1 if there is none.
_LAYOUTS: Final = {"fifo": (-1, 2), "utube": (2, 3), "fifottl": (-1, 7), "limfifottl": (-1, 7), "utubettl": (7, 8)}
_NEXT_EVENT, _TTL, _TTR, _PRI, _CREATED = 2, 3, 4, 5, 6

_XQUEUE_LETTERS: Final = frozenset("RTWBZD")
_RUNAT_FEATURES: Final = ("delayed", "ttl", "ttr")


class QueueTube:
    """One tube of tarantool/queue."""

    name: str
    space: Space
    policy: TubePolicy

    def __init__(self, row: list[Any], spaces: dict[str, Space], source: str) -> None:
        self._source = source
        try:
            self.name, space, self._type, options = str(row[0]), row[2], row[3], row[4] if len(row) > 4 else None
        except LookupError:
            raise BadSource("a row of _queue is not one of tarantool/queue", USAGE) from None
        if self._type not in _LAYOUTS:
            types = ", ".join(_LAYOUTS)
            raise BadSource(
                f"tube {self.name} has the type {self._type}; the types that can be read are {types}", USAGE
            )
        if space not in spaces:
            raise BadSource(f"tube {self.name} has its tasks in space {space}, which cannot be read", USAGE)
        self.space = spaces[space]
        self._utube, self._data = _LAYOUTS[self._type]
        self.policy = _policy(self._type, options if isinstance(options, dict) else {}, self.name)

    def numbers_from(self, last: bytes | None) -> TubePolicy:
        """Return the policy of a new tube, whose job numbers start after the id of the last row."""
        greatest = -1 if last is None else unpack(fields_of(last)[0])
        if isinstance(greatest, int) and 0 <= greatest < NUMBER_MAX:
            return dataclasses.replace(self.policy, first_integer=greatest + 1)
        return self.policy

    def item(self, raw: bytes, now_ms: int) -> ImportItem | SkippedItem:
        """Convert a row to a job, or return the reason why it is skipped."""
        label = f"tube {self.name}"
        try:
            fields = fields_of(raw)
            id, state = unpack(fields[0]), unpack(fields[1])
            label = f"task {id} of {label}"
            if isinstance(id, bool) or not isinstance(id, int) or state not in ("r", "t", "!", "~", "-"):
                return SkippedItem(
                    BAD_ROWS, label, "its id is not a number, or its state is not one of r, t, ~, ! and -"
                )
            if state == "-":
                return SkippedItem(ENDED)
            body = from_value(fields[self._data])
            options: dict[str, Any] = {"state": "buried"} if state == "!" else {}
            if self._utube >= 0:
                options["key"] = _label(unpack(fields[self._utube]))
            if self.policy.has_ttl:
                times = [_number(unpack(field)) for field in fields[_NEXT_EVENT : _CREATED + 1]]
                passed = _add_times(options, times, state, now_ms)
                if passed:
                    return SkippedItem(passed)
        except (ProtocolError, LookupError, TypeError, ValueError) as error:
            return SkippedItem(BAD_ROWS, label, f"its fields are not those of a {self._type} task ({error})")
        if 0 <= id < NUMBER_MAX:
            options["number"] = id
        same = f"import {self._source} {self.space.name} {id}"
        return ImportItem(
            label, self.name, EncodedBody(body.data, body.kind), {**options, "dedup": same, "unique": same}, id
        )


def _policy(type: str, options: dict[Any, Any], name: str) -> TubePolicy:
    """Return the policy that follows from the options of a tube in its row of `_queue`."""
    base = PRESETS[type]
    given: dict[str, Any] = {"temporary": True} if options.get("temporary") is True else {}
    try:
        if base.has_ttl:
            given |= {time: _seconds(options[time]) for time in ("ttl", "ttr") if options.get(time) is not None}
            if options.get("pri") is not None:
                given["priority"] = int(options["pri"])
        if type == "limfifottl" and options.get("capacity") is not None:
            given["capacity"] = int(options["capacity"])
        policy = altered(base, **given)
        policy.check()
    except (CommandError, TypeError, ValueError) as error:
        raise BadSource(f"the options of tube {name} cannot be used: {error}", USAGE) from None
    return policy


def _seconds(value: Any) -> float | None:
    """Return a duration in seconds, or None if it stands for "no limit"."""
    seconds = _number(value)
    return None if seconds >= _FOREVER_S else max(seconds, _TTR_S_MIN)


def _add_times(options: dict[str, Any], times: list[float], state: str, now_ms: int) -> str:
    """Add the remaining ttl and delay, the ttr and the priority to `options`. Return why the task is skipped, or ""."""
    next_event, ttl, ttr, pri, created = times
    now = now_ms * 1_000
    delay_s = max(0.0, (next_event - now) / _US) if state == "~" else 0.0
    if delay_s:
        options["delay"] = delay_s
    options["ttl"] = None
    if ttl / _US < _FOREVER_S:
        left_s = (created + ttl - now) / _US
        if left_s <= 0:
            return EXPIRED
        # The ttl of tarantool/queue includes the delay. The ttl of Penstock starts after it.
        if left_s <= delay_s:
            return EXPIRING
        options["ttl"] = left_s - delay_s
    options["ttr"] = _seconds(ttr / _US)
    options["priority"] = int(pri)
    return ""


class XqueueSpace:
    """One space of xqueue."""

    name: str
    space: Space
    policy: TubePolicy

    def __init__(self, space: Space, upgrade: dict[str, Any] | None, source: str) -> None:
        self._source = source
        self.space = space
        self.name = space.name
        given = {"format": space.format, "primary_key": [at + 1 for at in space.key], **(upgrade or inferred(space))}
        try:
            self._options = options.read_options(given)
            self.policy = options.policy_of(self._options)
            self.policy.check()
        except (XqueueError, CommandError) as error:
            raise BadSource(f"space {space.name} cannot be imported as an xqueue space: {error}", USAGE) from None
        self._rows = Rows(self._options, space.name)

    def numbers_from(self, last: bytes | None) -> TubePolicy:
        """Return the policy of a new tube. If task ids are numbers, job numbers start after the id in `last`."""
        if self._options.id == AUTO_INCREMENT and last is not None:
            greatest = unpack(fields_of(last)[self._options.key[0]])
            if isinstance(greatest, int) and 0 <= greatest < NUMBER_MAX:
                return dataclasses.replace(self.policy, first_integer=max(self.policy.first_integer, greatest + 1))
        return self.policy

    def item(self, raw: bytes, now_ms: int) -> ImportItem | SkippedItem:
        """Convert a row to a job, or return the reason why it is skipped."""
        options, label = self._options, f"space {self.name}"
        try:
            row = unpack(raw)
            assert isinstance(row, list)
            row = self._rows.check(row)
            key = self._rows.key(row)
            status = row[options.status]
            if key is None or status not in _XQUEUE_LETTERS:
                return SkippedItem(
                    BAD_ROWS, label, "its key is missing, or its status is not one of R, T, W, B, Z and D"
                )
            label = f"task {key_text(key)} of {label}"
            if status == "Z" or (status == "D" and not options.keep):
                return SkippedItem(ENDED)
            body, kind = self._rows.body(row)
            given: dict[str, Any] = {}
            if options.priority != NO_FIELD:
                given["priority"] = self._rows.priority(row)
            if tube := self._rows.tube(row):
                given["key"] = tube
            if self._add_time(given, status, row, now_ms):
                return SkippedItem(EXPIRED)
        except (ProtocolError, CommandError, XqueueError, LookupError, TypeError, ValueError) as error:
            return SkippedItem(BAD_ROWS, label, f"it is not a row of this space ({error})")
        same = f"import {self._source} {self.space.name} {key_text(key)}"
        number = key[0] if options.id == AUTO_INCREMENT and 0 <= key[0] < NUMBER_MAX else None
        given |= {"name": key_name(key, options)} if number is None else {"number": number}
        return ImportItem(
            label, self.name, EncodedBody(body, kind), {**given, "dedup": same, "unique": same}, key_text(key)
        )

    def _add_time(self, given: dict[str, Any], status: str, row: list[Any], now_ms: int) -> bool:
        """Add the state and the remaining delay or ttl to the options `given`. Return whether the task has expired."""
        options = self._options
        if status in ("B", "D"):
            given["state"] = "buried" if status == "B" else "done"
        runat = _number(row[options.runat]) if options.runat != NO_FIELD else 0.0
        left_s = runat - now_ms / 1_000
        if status == "W" and left_s > 0:
            given["delay"] = left_s
        # For a taken or buried task, runat is the end of its lease and not of its ttl.
        if options.ttl is not False:
            given["ttl"] = None
            if status == "R" and runat > 0:
                given["ttl"] = left_s
                return left_s <= 0
        return False


def inferred(space: Space) -> dict[str, Any]:
    """Infer the options of an xqueue space from the names of its fields. Raise BadSource if it is another space."""
    names = [each.get("name") if isinstance(each, dict) else None for each in space.format]
    fields = {what: what for what in ("status", "runat", "priority", "tube") if what in names}
    if not is_xqueue(space):
        raise BadSource(
            f"space {space.name} is not a queue: it is not in _queue, and xqueue needs a field `status` and an index "
            "that begins with it; if its fields have other names, describe them with --upgrade",
            USAGE,
        )
    features: dict[str, Any] = dict.fromkeys(_RUNAT_FEATURES, True) if "runat" in fields else {}
    return {"fields": fields, "features": features}


def is_xqueue(space: Space) -> bool:
    """Return whether a space has a text field `status` and an index that begins with it, as xqueue needs."""
    for at, each in enumerate(space.format):
        if (
            isinstance(each, dict)
            and each.get("name") == "status"
            and str(each.get("type")).lower() in ("string", "str")
        ):
            return any(at in index.parts[:2] for number, index in space.indexes.items() if number > 0)
    return False


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return value


def _label(value: Any) -> bytes:
    """Return the value of a task's `utube` field as bytes. Numbers become text, as in Tarantool."""
    if isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogateescape")
