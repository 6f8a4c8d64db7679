"""The functions of Tarantool's queue in its 1.5 API: `queue.put(space, tube, delay, ttl, ttr, pri, ...)` and others.

A task is `[id, tube, status, field, …]`. The tube `q` of space 0 is called `q` in the engine, and the tube
`q` of space 5 is called `5/q`. Tubes are made at their first use. Clients of this API send numbers as strings, so the
text of a number is accepted as well.
"""

from __future__ import annotations

import math
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core import states as s
from penstock.core import views
from penstock.core.engine import Engine, quoted_name
from penstock.core.errors import CommandError
from penstock.core.ids import HEX_ID_BYTES, NOT_AN_ID
from penstock.core.job import BODY_MSGPACK, Draft, Job
from penstock.core.limits import JOB_TTL, NEVER, PRIORITY_BACK, PRIORITY_FRONT, PRIORITY_UNSET, UNSET, duration_ms
from penstock.core.policy import QUEUE15
from penstock.core.states import NO_JOB, NOT_TAKEN, OK
from penstock.core.tube import Tube
from penstock.core.waits import TakeWait, Waiting
from penstock.dialects.tarantool.calls import Method, Pending, SlicedCall, argument, encode_result, run_sliced
from penstock.dialects.tarantool.queue_functions import EmptyingCall, Kicking, lua_number
from penstock.node.caller import ADMIN, READ, WRITE, Caller, check_tube
from penstock.node.context import CommandContext
from penstock.wire.bodies import fields_count, from_fields, name_value, to_fields, write_name
from penstock.wire.errors import LuaError
from penstock.wire.iproto import Request
from penstock.wire.msgpack import NIL, NO_VALUES, write_array, write_text

# The original's words for states, by the number of the state. Zombies are shown as done. Staged jobs are not visible.
STATE_WORDS: Final = ["done", "ready", "taken", "delayed", "buried", "done", "done", "done"]

# For each counter of the original, the events that it counts.
_COUNTERS: Final[dict[str, list[int]]] = {
    "put": [s.PUT, s.PUT_DELAYED, s.PUBLISHED, s.PUBLISHED_DELAYED],
    "urgent": [s.PUT_URGENT],
    "take": [s.TOOK, s.CLAIMED],
    "ack": [s.ACKED],
    "release": [s.RELEASED, s.POSTPONED, s.NACKED],
    "requeue": [s.REQUEUED],
    "bury": [s.BURIED_BY, s.EXHAUSTED],
    "done": [s.KEPT],
    "dig": [s.KICKED, s.KICKED_DELAYED],
    "touch": [s.TOUCHED],
    "delete": [s.DELETED],
    "ready_by_disconnect": [s.DISCONNECTED],
}
# The states that are counted in `tasks.total`, with their words.
_TASKS: Final = [
    ("ready", s.READY),
    ("delayed", s.DELAYED),
    ("taken", s.TAKEN),
    ("buried", s.BURIED),
    ("done", s.DONE),
]


def statistics(space: int, name: str, tube: Tube, calls: dict[str, int]) -> list[str]:
    """Return the result of `queue.statistics(space, tube)`: a flat list of names and values, all of them strings.

    The list is empty if nothing was counted since the node started. `calls` has the counters of calls that change no
    job: take_timeout, peek, meta.
    """
    events = views.events(tube)
    found = {counter: sum([events[event] for event in counted]) for counter, counted in _COUNTERS.items()}
    found.update(calls)
    found.update(_expired(tube))
    found = {counter: count for counter, count in found.items() if count}
    if not found:
        return []
    states = {f"tasks.{word}": tube.count_in(state) for word, state in _TASKS}
    found.update({"tasks.total": sum(states.values()), **states})
    flat: list[str] = []
    for counter, count in found.items():
        flat += [f"space{space}.{name}.{counter}", str(count)]
    return flat


def _expired(tube: Tube) -> dict[str, int]:
    """Return how many tasks expired: the total, and the number for each state in which they expired."""
    found: dict[str, int] = {"ttl.total": 0}
    for (event, source, _), count in zip(s.TRANSITIONS, views.rule_counts(tube, life=False), strict=True):
        if event == s.EXPIRED:
            found["ttl.total"] += count
            found[f"ttl.{STATE_WORDS[source]}"] = count
    return found


def to_engine_priority(pri: int) -> int:
    """Convert a priority of this API (0 to 255, higher first) to the engine's (lower first)."""
    return 255 - pri


def from_engine_priority(priority: int) -> int:
    """Convert the engine's priority to one of this API (0 to 255, higher first).

    The priorities of `urgent` and `requeue` are outside this range and become 255 and 0.
    """
    if priority == PRIORITY_FRONT:
        return 255
    if priority == PRIORITY_BACK:
        return 0
    return max(0, min(255, 255 - priority))


# The default priority, from the documentation of the original.
_PRI_DEFAULT: Final = 127

# The number of tubes per slice of statistics.
_TUBES_SLICE: Final = 200

_NOT_FOUND: Final = "Task not found"
_ONLY_CONSUMER: Final = "Only consumer that took the task can it"


# Arguments


def number(value: object, what: str) -> float | int:
    """Convert a number or its text to a number. `what` names the argument in errors."""
    found = lua_number(value)
    if found is None:
        raise LuaError(f"{what} must be a number")
    return found


def whole(value: object, what: str) -> int:
    """Convert a whole number or its text to a whole number. `what` names the argument in errors."""
    found = number(value, what)
    if isinstance(found, float):
        raise LuaError(f"{what} must be a whole number")
    return found


def time_ms(call: Request, at: i64, what: str) -> int:
    """Convert the argument at index `at` from seconds to milliseconds. Return 0 if it is missing or not positive."""
    value = argument(call, at)
    if value is None:
        return 0
    seconds = number(value, what)
    return duration_ms(seconds, what) if seconds > 0 else 0


def wait_ms(value: object) -> int:
    """Convert the timeout of a take to milliseconds. Return NEVER if it is missing or negative."""
    if value is None:
        return NEVER
    seconds = number(value, "timeout")
    return duration_ms(seconds, "timeout") if seconds >= 0 else NEVER


def _text(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise LuaError(f"{what} must be a string")
    return value.encode("utf-8", "surrogateescape")


def _space(call: Request) -> int:
    return _space_number(argument(call, 0))


def _space_number(value: object) -> int:
    space = whole(value, "space")
    if space < 0 or space >= 1 << 32:
        raise LuaError("space must be a number from 0 to 4294967295")
    return space


def _prefix(space: int) -> bytes:
    return b"" if space == 0 else b"%d/" % space


def _split(name: bytes) -> tuple[int, bytes]:
    """Split the engine's name of a tube into the number of its space and its name within the space."""
    digits, mark, rest = name.partition(b"/")
    if mark and rest and digits.isdigit() and digits[:1] != b"0" and len(digits) < 11:
        return int(digits), rest
    return 0, name


class Queue15Functions:
    """The functions of the 1.5 API."""

    def __init__(self, context: CommandContext) -> None:
        # Add priorities to 127, as the original's code does. Its documentation says otherwise.
        self.pri_is_offset = False
        self._context = context
        self._engine: Engine = context.engine
        self._calls: dict[int, dict[str, int]] = {}  # Counts of calls that change no task, by the number of the tube.

    def functions(self) -> dict[bytes, Method]:
        dig = Method(WRITE, self.dig)
        return {
            b"put": Method(WRITE, self.put),
            b"put_unique": Method(WRITE, self.put_unique),
            b"urgent": Method(WRITE, self.urgent),
            b"take": Method(WRITE, self.take),
            b"ack": Method(WRITE, self.ack),
            b"release": Method(WRITE, self.release),
            b"requeue": Method(WRITE, self.requeue),
            b"bury": Method(WRITE, self.bury),
            b"done": Method(WRITE, self.done),
            b"dig": dig,
            b"unbury": dig,
            b"kick": Method(WRITE, self.kick),
            b"touch": Method(WRITE, self.touch),
            b"delete": Method(WRITE, self.delete),
            b"truncate": Method(ADMIN, self.truncate),
            b"peek": Method(READ, self.peek),
            b"meta": Method(READ, self.meta),
            b"statistics": Method(READ, self.statistics),
        }

    # Putting

    def put(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.put(space, tube, delay, ttl, ttr, pri, ...): put a task and return it."""
        return self._put(caller, call, False, False, now)

    def urgent(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.urgent(space, tube, delay, ttl, ttr, pri, ...): put a task first, unless it is delayed."""
        return self._put(caller, call, True, False, now)

    def put_unique(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.put_unique(space, tube, delay, ttl, ttr, pri, data, ...).

        Put a task, or return the existing task with the same data.
        """
        if len(call.args) < 7 or call.args[6] == NIL:
            raise LuaError("Can not put unique task without data")
        return self._put(caller, call, False, True, now)

    def _put(self, caller: Caller, call: Request, urgent: bool, unique: bool, now: i64) -> bytes:
        space = _space(call)
        name = self._name(caller, call, space)
        body = from_fields(call.args[6:])
        draft = Draft(body.data)
        draft.body_kind = body.kind
        draft.delay_ms = time_ms(call, 2, "delay")
        draft.ttl_ms = time_ms(call, 3, "ttl") or UNSET
        draft.ttr_ms = time_ms(call, 4, "ttr") or UNSET
        draft.priority = self._priority(argument(call, 5))
        draft.urgent = urgent and draft.delay_ms == 0
        draft.same_body = unique
        if self._context.leaving:
            raise self._context.leaving_error(caller)
        tube = self._engine.tubes.get(name)
        if tube is None:
            tube = self._context.new_tube(name, QUEUE15, [draft], now)
        else:
            self._context.reserve_log(len(draft.body))
        if unique and not tube.policy.unique_bodies:
            raise LuaError(
                "Tarantool have to be configured to use queue.put_unique method: "
                f"{quoted_name(tube.name)} is a {tube.policy.type} tube; put_unique needs a queue15 tube"
            )
        job = self._engine.put(tube, draft, now)
        if job.created == now and job.state == s.TAKEN:
            # A waiting client already has the task. The producer gets the state in which it was put.
            return self.task(job, space, "ready")
        return self.task(job, space, STATE_WORDS[job.state])

    def _priority(self, value: object) -> int:
        if value is None:
            return PRIORITY_UNSET
        pri = whole(value, "pri")
        if self.pri_is_offset:
            pri = max(0, min(255, pri + _PRI_DEFAULT))
        elif pri < 0 or pri > 255:
            raise LuaError("pri must be 0 to 255; higher values are served first")
        return to_engine_priority(pri)

    def _name(self, caller: Caller, call: Request, space: int) -> bytes:
        name = _prefix(space) + _text(argument(call, 1), "tube")
        check_tube(caller, name)
        return name

    def name_of(self, space: object, tube: object) -> bytes:
        """Return the engine's name of a tube of a space."""
        return _prefix(_space_number(space)) + _text(tube, "tube")

    # Taking

    def take(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.take(space, tube, timeout): take a task, or wait for one until the timeout."""
        space = _space(call)
        name = self._name(caller, call, space)
        timeout = wait_ms(argument(call, 2))
        tube = self._engine.tubes.get(name)
        if tube is None:
            if timeout == 0:
                self._context.raise_if_elsewhere([name])
                return NO_VALUES
            self._context.check_new([name], QUEUE15)
            tube = self._engine.create_tube(name, QUEUE15, now)
        job = self._engine.take(caller.connection.session, tube, now)
        if job is not None:
            return self.deliver(caller, job, space, now)
        if timeout == 0:
            self.count(tube, "take_timeout")
            return NO_VALUES
        if self._context.leaving:
            raise self._context.leaving_error(caller)
        pending = _Take(self, tube, space, caller, call)
        pending.begin(
            self._context, self._engine.wait(caller.connection, [tube], now, timeout, 1, None, UNSET, pending)
        )
        return None

    def deliver(self, caller: Caller, job: Job, space: int, now: i64) -> bytes:
        """Return the encoded results of a take that has just taken `job`."""
        body = job.user_body()
        if not isinstance(body, bytes):
            body = self._context.bodies(caller, [job], now)[0]
        caller.unsent.append(job)
        caller.unsent_deliveries.append(job.deliveries)
        return self.with_body(job, space, "taken", body, job.user_body_kind())

    # Finishing

    def ack(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.ack(space, id): ack a task and return it."""
        job = self._job(caller, call, now)
        results = self.task(job, _space(call), "taken")
        self._check(self._engine.ack(caller.connection.session, job, now), "ack")
        return results

    def release(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.release(space, id, delay, ttl): return a taken task to its tube."""
        job = self._job(caller, call, now)
        delay = time_ms(call, 2, "delay")
        ttl = time_ms(call, 3, "ttl") or UNSET
        self._check(self._engine.release(caller.connection.session, job, now, delay, ttl), "release")
        return self.task(job, _space(call), "delayed" if delay else "ready")

    def requeue(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.requeue(space, id): return a taken task to the end of its tube."""
        job = self._job(caller, call, now)
        self._check(self._engine.requeue(caller.connection.session, job, now), "release")
        return self.task(job, _space(call), "ready")

    def bury(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.bury(space, id): bury a taken task."""
        job = self._job(caller, call, now)
        if job.state != s.TAKEN:
            self._check(NOT_TAKEN, "done")
        # The original says "done" here by mistake, and clients may match it.
        self._check(self._engine.bury(caller.connection.session, job, now), "done")
        return self.task(job, _space(call), "buried")

    def done(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.done(space, id, ...): mark a taken task as done and replace its fields by the given ones."""
        job = self._job(caller, call, now)
        body = from_fields(call.args[2:])
        self._context.reserve_log(len(body.data))
        self._check(self._engine.done(caller.connection.session, job, body.data, body.kind, now, JOB_TTL), "done")
        return self.task(job, _space(call), "done")

    def touch(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.touch(space, id): restart the ttr of a taken task."""
        job = self._job(caller, call, now)
        self._check(self._engine.touch(caller.connection.session, job, now), "touch")
        return self.task(job, _space(call), STATE_WORDS[job.state])

    def _check(self, outcome: int, what: str) -> None:
        if outcome == OK:
            return
        if outcome == NO_JOB:
            raise LuaError(_NOT_FOUND)
        raise LuaError("Task is not taken" if outcome == NOT_TAKEN else f"{_ONLY_CONSUMER} {what}")

    # Calls that do not need the task to be held

    def dig(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.dig(space, id): move a buried task back to its tube."""
        job = self._job(caller, call, now)
        if self._engine.dig(job, now) != OK:
            raise LuaError("Task is not buried")
        return self.task(job, _space(call), "ready")

    def kick(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.kick(space, tube, count): move buried tasks back to their tube, and return their number."""
        tube = self._find_tube(self._name(caller, call, _space(call)))
        value = argument(call, 2)
        count = 1 if value is None else number(value, "count")
        if tube is None or count <= 0:
            return encode_result(0)
        wanted = NEVER if count == math.inf else whole(count, "count")
        return run_sliced(self._context, caller, Kicking(call, self._engine, tube, wanted), now)

    def delete(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.delete(space, id): delete a task in any state and return it."""
        job = self._job(caller, call, now)
        results = self.task(job, _space(call), STATE_WORDS[job.state])
        self._context.delete(job, now)
        return results

    def truncate(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.truncate(space, tube): delete all tasks of a tube and return their number."""
        tube = self._find_tube(self._name(caller, call, _space(call)))
        if tube is None:
            return encode_result(0)
        return run_sliced(self._context, caller, EmptyingCall(call, self._engine, tube, b"", False), now)

    def peek(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.peek(space, id): return a task without changing it."""
        job = self._job(caller, call, now)
        self.count(self._engine.tube_of(job), "peek")
        return self.task(job, _space(call), STATE_WORDS[job.state])

    def meta(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.meta(space, id): return 13 fields that describe a task. Times are in seconds."""
        job = self._job(caller, call, now)
        tube = self._engine.tube_of(job)
        self.count(tube, "meta")
        extra = job.ensure_extra()
        given = job.priority if extra.priority_given == PRIORITY_UNSET else extra.priority_given
        fields: list[object] = [
            self._context.ids.hex(job.id).decode(),
            name_value(tube.name[len(_prefix(_space(call))) :]),
            STATE_WORDS[job.state],
            _seconds(job.due) if job.deadline_pos >= 0 else _seconds(job.expiry),
            str(255 - from_engine_priority(job.priority)),
            str(from_engine_priority(given)),
            self._engine.session_number(job.holder) if job.holder >= 0 else None,
            _seconds(job.created),
            None if job.expiry == NEVER else (job.expiry - job.created) / 1000,
            _seconds(job.ttr),
            int(extra.buries),
            int(job.deliveries),
            _seconds(now),
        ]
        return encode_result(fields)

    def statistics(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.statistics(space, tube): return a flat list of names and values, all of them strings."""
        self._engine.advance(now)
        space = -1 if argument(call, 0) is None else _space(call)
        if argument(call, 1) is None:
            return run_sliced(self._context, caller, _Statistics(call, self, space), now)
        tube = self._find_tube(self._name(caller, call, space))
        return encode_result([] if tube is None else self.tube_statistics(tube))

    def tube_statistics(self, tube: Tube) -> list[str]:
        """Return the statistics of a tube as a flat list of names and values."""
        space, name = _split(tube.name)
        return statistics(space, name.decode("utf-8", "backslashreplace"), tube, self._calls.get(tube.number, {}))

    def count(self, tube: Tube, what: str) -> None:
        """Increase the counter of a call that changes no task. `what` is the name of the counter in the statistics."""
        counts = self._calls.get(tube.number)
        if counts is None:
            if len(self._calls) > len(self._engine.tubes):
                # Remove the counts of tubes that no longer exist.
                there = [each.number for each in self._engine.tubes.values()]
                self._calls = {each: self._calls[each] for each in there if each in self._calls}
            counts = {}
            self._calls[tube.number] = counts
        counts[what] = counts.get(what, 0) + 1

    # Tasks

    def _find_tube(self, name: bytes) -> Tube | None:
        """Return the tube with a name, or None if it does not exist. Raise Elsewhere if it is on another node."""
        tube = self._engine.tubes.get(name)
        if tube is None:
            self._context.raise_if_elsewhere([name])
        return tube

    def _job(self, caller: Caller, call: Request, now: i64) -> Job:
        """Return the job whose id is in a call. Raise an error if it is not in the space of the call."""
        space = _space(call)
        text = _text(argument(call, 1), "id")
        found = self._context.ids.parse_hex(text) if len(text) == HEX_ID_BYTES else self._context.number_of(text)
        if found == NOT_AN_ID:
            self._context.raise_if_job_elsewhere(caller, text)
        job = None if found == NOT_AN_ID else self._context.find(caller, found, now)
        if job is None or not self._engine.tube_of(job).name.startswith(_prefix(space)):
            raise LuaError(_NOT_FOUND)
        return job

    def task(self, job: Job, space: int, status: str) -> bytes:
        """Encode a task as the result of a function. `status` is the status to show."""
        body = job.user_body()
        kind = job.user_body_kind()
        if not isinstance(body, bytes):
            try:
                body = self._context.body_of(job)
            except CommandError:
                body, kind = NO_VALUES, BODY_MSGPACK
        return self.with_body(job, space, status, body, kind)

    def with_body(self, job: Job, space: int, status: str, body: bytes, kind: int) -> bytes:
        """Encode a task as the result of a function. `status` is the status to show, `body` the body of the task."""
        writer = BytesWriter()
        writer.append(0x91)
        write_array(writer, 3 + fields_count(body, kind))
        write_text(writer, self._context.ids.hex(job.id))
        tube = self._engine.tube_at(i64(job.tube))
        write_name(writer, b"" if tube is None else tube.name[len(_prefix(space)) :])
        write_text(writer, status.encode())
        writer.write(to_fields(body, kind))
        return writer.getvalue()


def _seconds(ms: int) -> float | None:
    return None if ms == NEVER else ms / 1000


class _Take(Pending):
    def __init__(self, queue: Queue15Functions, tube: Tube, space: int, caller: Caller, call: Request) -> None:
        super().__init__(caller, call)
        self._queue = queue
        self._tube = tube
        self._space = space

    def result(self, wait: Waiting, now: i64) -> bytes:
        assert isinstance(wait, TakeWait)
        if wait.jobs:
            return self._queue.deliver(self.caller, wait.jobs[0], self._space, now)
        self._queue.count(self._tube, "take_timeout")
        return NO_VALUES


class _Statistics(SlicedCall):
    """Returns the statistics of every tube of a space, or of all spaces."""

    def __init__(self, call: Request, queue: Queue15Functions, space: int) -> None:
        super().__init__(call)
        self._queue = queue
        self._engine: Engine = queue._engine
        self._space = space  # Negative for all spaces.
        self._cursor = 0
        self._statistics: list[object] = []

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, _TUBES_SLICE)
        for tube in tubes:
            if self._space < 0 or _split(tube.name)[0] == self._space:
                if caller.any_tube or caller.may_use(tube.name):
                    self._statistics += self._queue.tube_statistics(tube)
        return encode_result(self._statistics) if self._cursor == 0 else None
