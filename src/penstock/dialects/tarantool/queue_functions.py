"""The functions of tarantool/queue up to its release 1.5.0: `queue.tube.NAME:put` and others.

The older API for Tarantool 1.5 is in `queue15_functions.py`. A task is `[id, state, data]`. Error messages are those of
tarantool/queue, because clients compare the ends of messages. Options that the type of a tube does not have are ignored
(`tube_options.py`). docs/reference/compatibility.md lists the differences.
"""

from __future__ import annotations

import math
import uuid
from typing import Any, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core import views
from penstock.core.commands.scans import Emptying
from penstock.core.driving import driver_options
from penstock.core.engine import Engine
from penstock.core.errors import BadHeaders, CommandError, Full, TubeAwaited, TubeTaken, UnknownSession
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID
from penstock.core.job import Draft, Job
from penstock.core.limits import BATCH_JOBS_MAX, NEVER, PRIORITY_UNSET, UNSET, check_priority, duration_ms
from penstock.core.policy import TubePolicy
from penstock.core.states import NO_JOB, OK
from penstock.core.tube import Tube
from penstock.core.waits import PutWait, TakeWait, Waiting
from penstock.dialects.native.permissions import check_policy
from penstock.dialects.tarantool.calls import (
    Functions,
    Method,
    Pending,
    SlicedCall,
    argument,
    denied,
    encode_result,
    run_sliced,
)
from penstock.dialects.tarantool.tube_options import (
    has_put_option,
    has_release_option,
    has_take_option,
    has_tube_option,
)
from penstock.node.caller import ADMIN, EVERYTHING, READ, SLICE, WRITE, Caller, check_join, check_tube
from penstock.node.context import CommandContext
from penstock.options import altered
from penstock.wire.bodies import from_value, name_value, to_value, write_name
from penstock.wire.errors import BoxError, LuaError, NoProcedure
from penstock.wire.headers import decode_headers, encode_headers
from penstock.wire.iproto import Request
from penstock.wire.msgpack import (
    DEPTH_MAX,
    NIL,
    NO_VALUES,
    unpack,
    write_array,
    write_integer,
    write_map,
    write_text,
    write_value,
)

# The original's letters for states, by the number of the state. The original has no zombies, so they are shown as done.
# Staged jobs are not visible yet.
STATE_LETTERS: Final = ["-", "r", "t", "~", "!", "-", "-", "-"]
_LETTERS: Final = [ord(letter) for letter in STATE_LETTERS]
_STATES: Final[dict[str, int]] = {"r": s.READY, "t": s.TAKEN, "~": s.DELAYED, "!": s.BURIED, "-": s.DONE}

# The events that count as each call. Each event is in at most one list, so nothing is counted twice.
CALLS: Final[dict[str, list[int]]] = {
    "put": [s.PUT, s.PUT_DELAYED, s.PUT_URGENT, s.PUBLISHED, s.PUBLISHED_DELAYED],
    "take": [s.TOOK, s.CLAIMED],
    "ack": [s.ACKED, s.KEPT, s.LINGERED],
    "release": [
        s.RELEASED,
        s.POSTPONED,
        s.REQUEUED,
        s.NACKED,
        s.DISCONNECTED,
        s.UNDELIVERED,
        s.SNATCHED,
        s.SNATCHED_DELAYED,
        s.CLAIM_ENDED,
    ],
    "bury": [s.BURIED_BY, s.EXHAUSTED, s.SWITCHED_BURIED],
    "kick": [s.KICKED, s.KICKED_DELAYED],
    "delete": [s.DELETED, s.TRUNCATED, s.DISCARDED],
    "touch": [s.TOUCHED],
    "ttl": [s.EXPIRED],
    "ttr": [s.TTR_PASSED],
    "delay": [s.DELAY_PASSED],
}

# Error numbers of Tarantool's box.
_ER_KEY_PART_TYPE: Final = 18
_ER_EXACT_MATCH: Final = 19
_ER_FIELD_TYPE: Final = 23
_ER_FIELD_MISSING: Final = 39

_NOT_TAKEN: Final = "Task was not taken"
TEMPORARY_REFUSED: Final = "Cannot create temporary tube in replicaset mode"
# Encoded results: nil for a put to a full tube, and true.
_FULL: Final = b"\x91\xc0"
_TRUE: Final = b"\x91\xc3"

# The number of tubes per slice of statistics, and the maximum of task bytes in a reply.
_TUBES_SLICE: Final = 200
_TASKS_BYTES_MAX: Final = 16 * 1024 * 1024

# Types of tubes that `create_tube` can make.
_TYPES: Final = frozenset([*p.PRESETS]) - {"xqueue"}
# Options of `create_tube` that are not part of a policy.
_NOT_IN_POLICY: Final = frozenset(["if_not_exists", "engine", "storage_mode"])
_TIME_OPTIONS: Final = frozenset(["ttl", "ttr"])
_WHOLE_OPTIONS: Final = frozenset(["pri", "capacity"])

# The shortest ttr. It stands for a ttr of 0: as in the original, the task is delivered and immediately released.
TTR_MS_MIN: Final = 1

# The number of the priority field in the rows of all types that have one, counted from 1.
_PRIORITY_FIELD: Final = 6


def statistics(tube: Tube) -> dict[str, dict[str, int]]:
    """Return the result of `queue.statistics(name)`: how many tasks are in each state, and how many calls were made.

    Calls are counted by function, since the node started. `done` counts all tasks that ended, by ack, delete or ttl.
    `total` does not include them.
    """
    events = views.events(tube)
    calls = {call: sum([events[event] for event in counted]) for call, counted in CALLS.items()}
    tasks = {s.STATE_NAMES[state]: tube.count_in(state) for state in (s.READY, s.TAKEN, s.BURIED, s.DELAYED)}
    return {
        "tasks": {**tasks, "total": sum(tasks.values()), "done": calls["ack"] + calls["delete"] + calls["ttl"]},
        "calls": calls,
    }


# Arguments


def read_options(raw: bytes) -> dict[object, object]:
    """Decode the options of a call. An empty Lua table arrives as an empty array."""
    if raw in (b"\x80", NIL, NO_VALUES):
        return {}
    options = unpack(raw)
    if not isinstance(options, dict):
        raise LuaError("options must be a table")
    return options


def seconds_ms(value: object, what: str) -> int:
    """Convert seconds to milliseconds. Negative times become 0, and infinity becomes NEVER."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LuaError(f"{what} must be a number of seconds, not {type(value).__name__}")
    return 0 if value < 0 else duration_ms(value, what)


def wait_ms(call: Request, at: i64) -> int:
    """Return the timeout at index `at` in milliseconds. A missing one becomes NEVER, and a negative one 0."""
    if at >= len(call.args) or call.args[at] == NIL:
        return NEVER
    wait = seconds_ms(unpack(call.args[at]), "timeout")
    # Our clock may be up to a millisecond behind the client's, and a wait must not end early for the client.
    return wait + 1 if 0 < wait < NEVER else wait


def key_bytes(value: object) -> bytes | None:
    """Convert the option `utube` or `stube` to a job key. Its value is text, bytes, a number, or nil for no key."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LuaError("the name of a micro-queue must be a string or a number")
    return (f"{value:.14g}" if isinstance(value, float) else str(value)).encode()


def read_put(draft: Draft, options: dict[str, object]) -> int:
    """Store the options of a put in the new job `draft`. Return how long the put waits for room, in ms.

    The caller has removed the options that the tube does not support.
    """
    timeout = 0
    for name, value in options.items():
        if name == "ttl":
            draft.ttl_ms = seconds_ms(value, "ttl")
        elif name == "ttr":
            draft.ttr_ms = max(seconds_ms(value, "ttr"), TTR_MS_MIN)
        elif name == "delay":
            draft.delay_ms = seconds_ms(value, "delay")
        elif name == "pri":
            draft.priority = _priority(value)
        elif name == "utube" or name == "stube":
            draft.key = key_bytes(value)
        elif name == "timeout":
            timeout = seconds_ms(value, "timeout")
        elif name == "headers":
            draft.headers = _read_headers(value)
    return timeout


def _read_headers(value: object) -> bytes:
    """Encode the headers of a put: a map of strings. An empty Lua table arrives as an empty array."""
    if value is None or value == []:
        return b""
    if not isinstance(value, dict):
        raise BadHeaders("headers must be a map of strings")
    headers: list[tuple[str, bytes]] = []
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, (str, bytes)):
            raise BadHeaders("headers must be a map of strings")
        headers.append((name, text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text))
    return encode_headers(headers)


def row_length(policy: TubePolicy) -> int:
    """Return the number of fields that a task's row has in tarantool/queue. The last field is the data."""
    timed = policy.has_ttl or policy.has_ttr or policy.has_delay
    return 3 + (5 if timed else 0) + (1 if policy.keys != p.KEYS_NONE else 0)


def _priority(value: object) -> int:
    number = _whole(value)
    if number is None:
        text = f"Tuple field {_PRIORITY_FIELD} (pri) type does not match one required by operation: expected integer"
        raise BoxError(_ER_FIELD_TYPE, text)
    return check_priority(number)


def _whole(value: object) -> int | None:
    """Return a whole number, or None for any other value. Lua can send it as a float without a fraction."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def lua_number(value: object) -> int | float | None:
    """Convert a number, or the text of a number, as Lua does. Return None for other values and NaN."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if isinstance(value, str):
        if len(value) >= 64 or "_" in value:
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Tasks:
    """Converts jobs to tasks, and finds jobs by the ids of tasks."""

    def __init__(self, context: CommandContext) -> None:
        self.context = context
        self.engine: Engine = context.engine

    def tube(self, call: Request, name: bytes) -> Tube:
        """Return the tube with a name. If it does not exist, raise NoProcedure, because its methods do not exist."""
        tube = self.engine.tubes.get(name)
        if tube is None:
            self.context.raise_if_elsewhere([name])
            raise NoProcedure(call.name)
        return tube

    def write(self, writer: BytesWriter, job: Job, letter: i64, data: bytes) -> None:
        """Write a task: its id, the letter of its state, and its encoded data."""
        writer.append(0x93)
        if job.local >= 0:
            write_integer(writer, job.local)
        else:
            write_name(writer, self.id_text(job))
        writer.append(0xA1)
        writer.append(letter)
        writer.write(data)

    def encode_task(self, job: Job, letter: i64) -> bytes:
        """Encode a task as the result of a method. `letter` is the state to show."""
        return self.with_data(job, letter, self.data(job))

    def with_data(self, job: Job, letter: i64, data: bytes) -> bytes:
        """Encode a task as the result of a method. `data` is the encoded data of the task."""
        writer = BytesWriter()
        writer.append(0x91)
        self.write(writer, job, letter, data)
        return writer.getvalue()

    def data(self, job: Job) -> bytes:
        """Return the body of a job as a msgpack value, or nil if it cannot be read."""
        body = job.user_body()
        if not isinstance(body, bytes):
            try:
                body = self.context.body_of(job)
            except CommandError:
                return NIL
        return to_value(body, job.user_body_kind())

    def id_text(self, job: Job) -> bytes:
        """Return the id of a job in a tube that does not number its jobs."""
        if job.extra is not None and job.extra.name:
            return job.extra.name
        # The job may have ended and left its tube.
        tube = self.engine.tube_at(i64(job.tube))
        if tube is not None and tube.policy.ids == p.ID_HEX:
            return self.context.ids.hex(job.id)
        return self.context.id_of(job)

    def find(self, tube: Tube, call: Request, now: i64) -> Job | None:
        """Return the job whose id is the first argument of a call, or None if it is not in this tube."""
        if not call.args:
            raise BoxError(_ER_EXACT_MATCH, "Invalid key part count in an exact match (expected 1, got 0)")
        raw = call.args[0]
        if len(raw) == 1 and raw[0] < 0x80:
            return self.engine.find_local(tube, i64(raw[0]), now)
        return self.find_id(tube, unpack(raw), now)

    def find_id(self, tube: Tube, value: object, now: i64) -> Job | None:
        """Return the job with an id, or None. An id is a number within the tube, or the text id of another dialect."""
        number = _whole(value)
        if tube.driven and number is not None:
            return self.engine.find_named(tube, b"%d" % number, now)
        if number is not None and number >= 0:
            return self.engine.find_local(tube, number, now) if number < NEVER else None
        text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        if isinstance(text, bytes) and tube.jobs_by_number is None:
            named = self.engine.find_named(tube, text, now)
            if named is not None:
                return named
            id = NOT_AN_ID
            if len(text) == LONG_ID_BYTES:
                id = self.context.number_of(text)
            elif len(text) == HEX_ID_BYTES:
                id = self.context.ids.parse_hex(text)
            job = None if id == NOT_AN_ID else self.engine.find(id, now)
            return job if job is not None and job.tube == tube.slot else None
        raise BoxError(
            _ER_KEY_PART_TYPE, "Supplied key type of part 1 does not match index part type: expected unsigned"
        )

    def require(self, tube: Tube, call: Request, now: i64) -> Job:
        """Return the job whose id is the first argument of a call. Raise an error if it does not exist."""
        job = self.find(tube, call, now)
        if job is None:
            raise LuaError(f"Task {_shown_id(call)} not found")
        return job


def _shown_id(call: Request) -> str:
    value = unpack(call.args[0])
    return str(value)[:64]


class TubeMethods(Functions):
    """The methods of a tube: `queue.tube.NAME:method`."""

    def __init__(self, context: CommandContext) -> None:
        self.tasks = Tasks(context)
        self._context = context
        self._engine: Engine = context.engine
        super().__init__(
            {
                b"put": Method(WRITE, self.put),
                b"take": Method(WRITE, self.take),
                b"ack": Method(WRITE, self.ack),
                b"release": Method(WRITE, self.release),
                b"touch": Method(WRITE, self.touch),
                b"peek": Method(READ, self.peek),
                b"bury": Method(WRITE, self.bury),
                b"kick": Method(WRITE, self.kick),
                b"delete": Method(WRITE, self.delete),
                # For administrators and for users with a grant for the tube, which `truncate` checks.
                b"truncate": Method(EVERYTHING, self.truncate),
                b"drop": Method(ADMIN, self.drop),
                b"release_all": Method(ADMIN, self.release_all),
                b"tasks_by_state": Method(READ, self.tasks_by_state),
                b"headers": Method(READ, self.headers),  # Not in the original.
                b"on_task_change": Method(READ, _refuse_function),
            }
        )

    def put(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:put(data, {ttl, ttr, delay, pri, utube, stube, timeout, headers}): put a task and return it.

        If the tube is full, wait for room until the timeout.
        """
        tube = self.tasks.tube(call, name)
        args = call.args
        if not args:
            field = row_length(tube.policy)
            raise BoxError(_ER_FIELD_MISSING, f"Tuple field {field} (data) required by space format is missing")
        body = from_value(args[0])
        draft = Draft(body.data)
        draft.body_kind = body.kind
        timeout = 0
        if tube.driven:
            draft.options = driver_arguments(call, 1)
            if "headers" in draft.options:
                draft.headers = _read_headers(draft.options.pop("headers"))
        elif len(args) > 1 and args[1] != b"\x80":
            options = self._context.ignored.supported("put", tube.policy, read_options(args[1]), has_put_option)
            timeout = read_put(draft, options)
        if self._context.leaving:
            raise self._context.leaving_error(caller)
        self._context.reserve_log(len(draft.body) + len(draft.headers))
        try:
            job = self._engine.put(tube, draft, now)
        except Full:
            if timeout == 0:
                return _FULL
            pending = _Put(self.tasks, caller, call)
            pending.begin(self._context, self._engine.wait_put(caller.connection, tube, draft, now, timeout, pending))
            return None
        return self.tasks.encode_task(job, returned_letter(job) if tube.driven else _put_letter(draft))

    def take(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:take(timeout, {stube}): take a task, or wait for one until the timeout."""
        tube = self.tasks.tube(call, name)
        timeout = wait_ms(call, 0)
        key: bytes | None = None
        if len(call.args) > 1:
            options = self._context.ignored.supported("take", tube.policy, read_options(call.args[1]), has_take_option)
            for value in options.values():
                key = key_bytes(value)
        job = self._engine.take(caller.connection.session, tube, now, key)
        if job is not None:
            return deliver(self.tasks, caller, job, now)
        if timeout == 0:
            return NO_VALUES
        if self._context.leaving:
            raise self._context.leaving_error(caller)
        pending = _Take(self.tasks, caller, call)
        pending.begin(self._context, self._engine.wait(caller.connection, [tube], now, timeout, 1, key, UNSET, pending))
        return None

    def ack(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:ack(id): ack a task and return it."""
        tube = self.tasks.tube(call, name)
        job = self.tasks.find(tube, call, now)
        if job is None:
            raise LuaError(_NOT_TAKEN)
        # A body on disk cannot be read after the job has ended.
        results = b"" if isinstance(job.user_body(), bytes) else self.tasks.encode_task(job, _LETTERS[s.GONE])
        if self._engine.ack(caller.connection.session, job, now) != OK:
            raise LuaError(_NOT_TAKEN)
        return results or self.tasks.encode_task(job, _LETTERS[s.GONE])

    def release(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:release(id, {delay, ttl, pri}): return a taken task to the tube."""
        tube = self.tasks.tube(call, name)
        if tube.driven:
            return self._release_driven(caller, call, tube, now)
        delay = 0
        ttl = UNSET
        priority = PRIORITY_UNSET
        if len(call.args) > 1:
            options = self._context.ignored.supported(
                "release", tube.policy, read_options(call.args[1]), has_release_option
            )
            for option, value in options.items():
                if option == "delay":
                    delay = seconds_ms(value, "delay")
                elif option == "ttl":
                    ttl = seconds_ms(value, "ttl")
                elif option == "pri":
                    priority = _priority(value)
        job = self.tasks.find(tube, call, now)
        if job is None or self._engine.release(caller.connection.session, job, now, delay, ttl, priority) != OK:
            raise LuaError(_NOT_TAKEN)
        return self.tasks.encode_task(job, _LETTERS[s.DELAYED if delay else s.READY])

    def _release_driven(self, caller: Caller, call: Request, tube: Tube, now: i64) -> bytes:
        options = driver_arguments(call, 1)
        job = self.tasks.find(tube, call, now)
        if job is None or self._engine.release_driven(caller.connection.session, job, options, now) != OK:
            raise LuaError(_NOT_TAKEN)
        return self.tasks.encode_task(job, returned_letter(job))

    def touch(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:touch(id, seconds): extend the ttr of a taken task."""
        tube = self.tasks.tube(call, name)
        more = argument(call, 1)
        job = self.tasks.find(tube, call, now)
        if more is None or seconds_ms(more, "the time to add") == 0:
            return NO_VALUES
        if not tube.policy.has_ttr:
            raise LuaError(f"{tube.policy.type} queue does not support touch")
        if job is None:
            raise LuaError(_NOT_TAKEN)
        if self._engine.touch(caller.connection.session, job, now, seconds_ms(more, "the time to add")) != OK:
            raise LuaError(_NOT_TAKEN)
        return self.tasks.encode_task(job, _LETTERS[job.state])

    def peek(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:peek(id): return a task without changing it."""
        job = self.tasks.require(self.tasks.tube(call, name), call, now)
        return self.tasks.encode_task(job, _LETTERS[job.state])

    def headers(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:headers(id): return the headers of a task as a map. A value that is not UTF-8 is binary."""
        headers = decode_headers(self.tasks.require(self.tasks.tube(call, name), call, now).headers())
        writer = BytesWriter()
        writer.append(0x91)
        write_map(writer, len(headers))
        for header, value in headers.items():
            write_text(writer, header.encode())
            write_name(writer, value)
        return writer.getvalue()

    def bury(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:bury(id): bury a taken task."""
        tube = self.tasks.tube(call, name)
        job = self.tasks.require(tube, call, now)
        outcome = self._engine.bury(caller.connection.session, job, now)
        if outcome == NO_JOB:
            raise LuaError(f"Task {_shown_id(call)} not found")
        if outcome != OK:
            raise LuaError(_NOT_TAKEN)
        return self.tasks.encode_task(job, _LETTERS[s.BURIED])

    def delete(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:delete(id): delete a task in any state and return it."""
        job = self.tasks.require(self.tasks.tube(call, name), call, now)
        results = self.tasks.encode_task(job, _LETTERS[s.GONE])
        self.tasks.context.delete(job, now)
        return results

    def kick(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:kick(count): move the first buried tasks back to the tube, and return their number."""
        tube = self.tasks.tube(call, name)
        count = kick_count(argument(call, 0))
        if count < 0:
            return encode_result(count)
        return run_sliced(self._context, caller, Kicking(call, self._engine, tube, whole_count(count)), now)

    def truncate(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:truncate(): delete all tasks of the tube."""
        if not caller.groups & ADMIN and name not in caller.truncates:
            raise denied(caller, call.name)
        tube = self.tasks.tube(call, name)
        return run_sliced(self._context, caller, EmptyingCall(call, self._engine, tube, NO_VALUES, False), now)

    def drop(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:drop(): delete the tube and its tasks."""
        tube = self.tasks.tube(call, name)
        _check_drop(self._engine, tube, now)
        return run_sliced(self._context, caller, EmptyingCall(call, self._engine, tube, _TRUE, True), now)

    def release_all(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:release_all(): return all taken tasks to the tube."""
        return run_sliced(self._context, caller, _Releasing(call, self._engine, self.tasks.tube(call, name)), now)

    def tasks_by_state(self, caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
        """Run tube:tasks_by_state(state): return all tasks in a state, which is given by its letter."""
        tube = self.tasks.tube(call, name)
        letter = argument(call, 0)
        state = _STATES.get(letter) if isinstance(letter, str) else None
        if state is None:
            raise LuaError("a state is one of r, t, ~, ! and -")
        self._engine.advance(now)
        return run_sliced(self._context, caller, _Listing(call, self.tasks, tube, state), now)


def _refuse_function(caller: Caller, call: Request, name: bytes, now: i64) -> bytes | None:
    raise LuaError("a function cannot be sent over the network; use penstock.compat.queue in your process")


def kick_count(value: object) -> int | float:
    """Convert the count of a kick to a number. The default is 1, and the text of a number is accepted, as in Lua.

    A negative count is allowed: tarantool/queue then kicks no task and returns the count.
    """
    number = 1 if value is None else lua_number(value)
    if number is None:
        raise LuaError("a count must be a number; nil means 1, and infinity means all")
    return number


def whole_count(count: int | float) -> int:
    """Round `count`, the number of tasks to kick, down to a whole number. Return NEVER if it is infinite."""
    return NEVER if math.isinf(count) else math.floor(count)


def driver_arguments(call: Request, at: i64) -> dict[str, object]:
    """Decode the options of a call on a tube with a driver. The driver gets them unchanged."""
    options = read_options(call.args[at]) if at < len(call.args) else {}
    given: dict[str, object] = {}
    for name, value in options.items():
        if not isinstance(name, str):
            raise LuaError("the names of options must be strings")
        given[name] = value
    return given


def returned_letter(job: Job) -> i64:
    """Return the letter to show for a task that a command returned to the queue.

    If another client has already taken the task, show it as ready.
    """
    return _LETTERS[s.READY if job.state == s.TAKEN else job.state]


def _put_letter(draft: Draft) -> i64:
    # A waiting client may already have the task. The producer gets the state in which it was put.
    return _LETTERS[s.DELAYED if draft.delay_ms else s.READY]


def deliver(tasks: Tasks, caller: Caller, job: Job, now: i64) -> bytes:
    """Return the encoded results of a take that has just taken `job`."""
    body = job.user_body()
    if not isinstance(body, bytes):
        # Read the body before the reply is written: if it is damaged, the job is buried.
        body = tasks.context.bodies(caller, [job], now)[0]
    caller.unsent.append(job)
    caller.unsent_deliveries.append(job.deliveries)
    return tasks.with_data(job, _LETTERS[s.TAKEN], to_value(body, job.user_body_kind()))


class _Take(Pending):
    def __init__(self, tasks: Tasks, caller: Caller, call: Request) -> None:
        super().__init__(caller, call)
        self._tasks = tasks

    def result(self, wait: Waiting, now: i64) -> bytes:
        assert isinstance(wait, TakeWait)
        return deliver(self._tasks, self.caller, wait.jobs[0], now) if wait.jobs else NO_VALUES


class _Put(Pending):
    """A pending `tube:put` that waits for room in the tube."""

    def __init__(self, tasks: Tasks, caller: Caller, call: Request) -> None:
        super().__init__(caller, call)
        self._tasks = tasks

    def result(self, wait: Waiting, now: i64) -> bytes:
        assert isinstance(wait, PutWait)
        if wait.refusal is not None:
            raise wait.refusal
        return _FULL if wait.job is None else self._tasks.encode_task(wait.job, _put_letter(wait.draft))


# Calls that run in slices


class Kicking(SlicedCall):
    """Moves up to `count` buried tasks back to their tube. The result is their number."""

    def __init__(self, call: Request, engine: Engine, tube: Tube, count: int) -> None:
        super().__init__(call)
        self._engine = engine
        self._tube = tube
        self._left: int = min(count, len(tube.buried))
        self._kicked = 0

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        if self._left > 0 and not self._tube.dropped:
            wanted = min(self._left, SLICE)
            kicked = self._engine.kick(self._tube, wanted, now)
            self._kicked += kicked
            self._left = self._left - kicked if kicked == wanted else 0
            if self._left > 0:
                return None
        return encode_result(self._kicked)


class EmptyingCall(SlicedCall):
    """Removes the tasks of a tube in slices, then the tube itself if `drops` is set.

    It removes as many tasks as the tube had at the start, so that it ends even if tasks keep arriving.
    """

    def __init__(self, call: Request, engine: Engine, tube: Tube, results: bytes, drops: bool) -> None:
        """Create the call. `results` are its encoded results, or empty if the result is the number of removed tasks."""
        super().__init__(call)
        self._engine = engine
        self._tube = tube
        self._results = results
        self._drops = drops
        self._emptying = Emptying(engine, tube)

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        tube = self._tube
        if not self._emptying.step(SLICE, now):
            return None
        if self._drops and not tube.dropped:
            _check_drop(self._engine, tube, now)
            self._engine.drop(tube, now)
        return self._results or encode_result(self._emptying.removed)


def _check_drop(engine: Engine, tube: Tube, now: i64) -> None:
    try:
        engine.check_drop(tube, now)
    except TubeAwaited:
        raise LuaError("There are consumers connected the tube") from None
    except TubeTaken:
        raise LuaError("There are taken tasks in the tube") from None


class _Releasing(SlicedCall):
    """Releases all taken tasks of a tube, starting with the last in the tube's list of taken jobs.

    Removing the last job moves no other job in the list, so no task is handled twice.
    """

    def __init__(self, call: Request, engine: Engine, tube: Tube) -> None:
        super().__init__(call)
        self._engine = engine
        self._tube = tube
        self._left: int = len(tube.taken)

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        tube = self._tube
        end = min(self._left, len(tube.taken))
        self._left = max(end - SLICE, 0)
        if not tube.dropped:
            self._engine.release_many(tube, tube.taken.items[self._left : end], now)
        return NO_VALUES if self._left == 0 else None


class _Listing(SlicedCall):
    """Returns the tasks of a tube that are in a state, in the order of their puts, until the reply is full."""

    def __init__(self, call: Request, tasks: Tasks, tube: Tube, state: int) -> None:
        super().__init__(call)
        self._tasks = tasks
        self._tube = tube
        self._state = state
        self._cursor = 0
        self._found = 0
        self._writer = BytesWriter()

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        jobs, self._cursor = self._tasks.engine.scan(self._cursor, SLICE, self._tube, 1 << self._state)
        writer = self._writer
        for job in jobs:
            if self._found < BATCH_JOBS_MAX and len(writer) < _TASKS_BYTES_MAX:
                self._tasks.write(writer, job, _LETTERS[job.state], self._tasks.data(job))
                self._found += 1
        if self._cursor != 0:
            return None
        head = BytesWriter()
        head.append(0x91)
        write_array(head, self._found)
        head.write(writer.getvalue())
        return head.getvalue()


class QueueFunctions(Functions):
    """The functions of the `queue` module."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._engine: Engine = context.engine
        create = Method(ADMIN, self.create_tube)
        statistics_method = Method(READ, self.statistics)
        super().__init__(
            {
                b"create_tube": create,
                b"schema.create_tube": create,
                b"tube": Method(READ, self.tube),
                b"statistics": statistics_method,
                b"stats": statistics_method,
                b"identify": Method(READ | WRITE, self.identify),
                b"state": Method(READ, self.state),
                b"register_driver": Method(ADMIN, _refuse_function),
            }
        )

    def create_tube(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.create_tube(name, type, {temporary, if_not_exists, ttl, ttr, pri, capacity, …}).

        Create a tube and return its description.
        """
        name = tube_name(argument(call, 0))
        type_name = argument(call, 1)
        given = read_options(call.args[2]) if len(call.args) > 2 else {}
        check_tube(caller, name)
        there = self._engine.tubes.get(name)
        if there is None:
            self._context.raise_if_elsewhere([name])
        if there is not None and given.get("if_not_exists"):
            return encode_result(description(there))
        if not isinstance(type_name, str):
            raise LuaError(f"Unknown tube type {lua_text(type_name)}")
        driven = None if type_name in _TYPES else self._driven_policy(type_name, call)
        if driven is None and type_name not in _TYPES:
            raise LuaError(f"Unknown tube type {lua_text(type_name)}")
        if there is not None:
            raise LuaError(f"Space '{_text(name)}' already exists")
        policy = self._policy(type_name, given) if driven is None else driven
        policy.check()
        check_policy(caller, policy)
        self._context.check_new([name], policy)
        return encode_result(description(self._engine.create_tube(name, policy, now)))

    def _policy(self, type_name: str, given: dict[object, object]) -> TubePolicy:
        """Return the policy of a new tube. Options that its type does not have are ignored."""
        preset = p.preset(type_name)
        options = self._context.ignored.supported("create_tube", preset, given, has_tube_option)
        if options.get("temporary") and self._context.in_replicaset:
            raise LuaError(TEMPORARY_REFUSED)
        return policy_from_options(preset, options)

    def _driven_policy(self, type_name: str, call: Request) -> TubePolicy | None:
        """Return the policy of a new tube whose type is a driver, or None if the type is not a driver."""
        options = driver_arguments(call, 2)
        options.pop("if_not_exists", None)
        if options.get("on_task_change") is None:
            options.pop("on_task_change", None)
        return self._engine.drivers.policy(type_name, options)

    def tube(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.tube([name]): return whether a tube exists, or the names of all tubes."""
        name = argument(call, 0)
        if name is None:
            return run_sliced(self._context, caller, _Names(call, self._engine), now)
        if not isinstance(name, str):
            raise LuaError("argument #1 should be string or nil")
        raw = tube_name(name)
        check_tube(caller, raw)
        return encode_result(raw in self._engine.tubes or self._context.is_elsewhere(raw))

    def statistics(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.statistics([name]): return the statistics of one tube, or of all tubes by name."""
        self._engine.advance(now)
        name = argument(call, 0)
        if name is None:
            return run_sliced(self._context, caller, _Statistics(call, self._engine), now)
        raw = tube_name(name)
        check_tube(caller, raw)
        tube = self._engine.tubes.get(raw)
        if tube is None:
            self._context.raise_if_elsewhere([raw])
            raise LuaError(f"attempt to index a nil value: there is no tube '{_text(raw)}'")
        return encode_result(statistics(tube))

    def identify(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.identify([uuid]): join the session with this token, if given. Return the session's token.

        A token has 16 bytes. Another connection can join the session with it.
        """
        wanted = argument(call, 0)
        if wanted is not None:
            token = wanted.encode("utf-8", "surrogateescape") if isinstance(wanted, str) else wanted
            if not isinstance(token, bytes) or len(token) != 16:
                raise LuaError("Invalid UUID format.")
            check_join(caller, self._engine.sessions.get(token))
            try:
                self._engine.identify(caller.connection, token, now)
                caller.introduce()
            except UnknownSession:
                raise LuaError(f"The UUID {uuid.UUID(bytes=token)} is unknown.") from None
            self._context.remote.identified(caller)
        writer = BytesWriter()
        writer.append(0x91)
        write_text(writer, caller.connection.session.token)
        return writer.getvalue()

    def state(self, caller: Caller, call: Request, _: bytes, now: i64) -> bytes | None:
        """Run queue.state(): return RUNNING, or ENDING if this node is leaving the cluster."""
        return encode_result("ENDING" if self._context.leaving else "RUNNING")


def tube_name(value: object) -> bytes:
    """Convert an argument to the name of a tube. Raise an error if it is not a string."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    raise LuaError("the name of a tube must be a string")


def lua_text(value: object) -> str:
    """Return the text of a value for error messages, as Lua writes it."""
    return "nil" if value is None else str(value)[:64]


def _text(name: bytes) -> str:
    return name[:200].decode("utf-8", "backslashreplace")


def policy_from_options(base: TubePolicy, options: dict[str, object]) -> TubePolicy:
    """Return a copy of the policy `base`, changed by `options`. The type of the tube supports all of these options."""
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name == "on_task_change":
            raise LuaError("on_task_change: a function cannot be sent over the network; use penstock.compat.queue")
        if name in _NOT_IN_POLICY:
            continue
        if name in _WHOLE_OPTIONS:
            number = _whole(value)
            value = value if number is None else number
        given["priority" if name == "pri" else name] = value
    for name in _TIME_OPTIONS:
        if given.get(name) == math.inf:
            given[name] = None
    if given.get("ttr") == 0 and not isinstance(given["ttr"], bool):
        given["ttr"] = TTR_MS_MIN / 1000
    return altered(base, **given)


def description(tube: Tube) -> dict[str, object]:
    """Return the description of a tube that `create_tube` returns."""
    policy = tube.policy
    options: dict[str, object] = {"temporary": policy.temporary}
    if policy.driven:
        options.update(driver_options(policy))
    if policy.has_ttl and policy.default_ttl_ms != NEVER:
        options["ttl"] = policy.default_ttl_ms / 1000
    if policy.has_ttr and policy.default_ttr_ms not in (UNSET, NEVER):
        options["ttr"] = policy.default_ttr_ms / 1000
    if policy.order == p.BY_PRIORITY:
        options["pri"] = policy.default_priority
    if policy.capacity:
        options["capacity"] = policy.capacity
    return {"name": name_value(tube.name), "type": policy.type, "tube_id": tube.number, "opts": options}


class _Names(SlicedCall):
    """Runs queue.tube() without a name: returns the names of all tubes that the caller may use, oldest tube first."""

    def __init__(self, call: Request, engine: Engine) -> None:
        super().__init__(call)
        self._engine = engine
        self._cursor = 0
        self._names: list[object] = []

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, SLICE)
        for tube in tubes:
            if caller.any_tube or caller.may_use(tube.name):
                self._names.append(name_value(tube.name))
        return encode_result(self._names) if self._cursor == 0 else None


class _Statistics(SlicedCall):
    """Runs queue.statistics() without a name: returns the statistics of all tubes that the caller may use, by name."""

    def __init__(self, call: Request, engine: Engine) -> None:
        super().__init__(call)
        self._engine = engine
        self._cursor = 0
        self._found: i64 = 0
        self._writer = BytesWriter()

    def run_slice(self, caller: Caller, now: i64) -> bytes | None:
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, _TUBES_SLICE)
        for tube in tubes:
            if caller.any_tube or caller.may_use(tube.name):
                write_name(self._writer, tube.name)
                write_value(self._writer, statistics(tube), DEPTH_MAX)
                self._found += 1
        if self._cursor != 0:
            return None
        head = BytesWriter()
        head.append(0x91)
        write_map(head, self._found)
        head.write(self._writer.getvalue())
        return head.getvalue()
