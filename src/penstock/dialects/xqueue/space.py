"""The methods of a space: put, take, ack and others. They work on the tube of the space.

A method gets a caller, the arguments of the client, the time, and a tag, which identifies the call when its wait ends.
It returns its results as a list, or `Waits` if they follow later, or `Steps` if it runs in slices. The embedded API and
the server use the same methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NoReturn

from penstock.core import states as s
from penstock.core.commands.scans import Emptying
from penstock.core.engine import Engine
from penstock.core.errors import NameTaken, refuse
from penstock.core.job import HELD_BY_CLAIM, NO_KEY, NO_SLOT, Draft, Job
from penstock.core.limits import NEVER, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.states import IS_TAKEN, NOT_BURIED, NOT_KEPT, NOT_OWNER, NOT_TAKEN, OK
from penstock.core.tube import Tube, key_of
from penstock.core.waits import EndWait, TakeWait, Waiting
from penstock.dialects.spaces.arguments import read_key, select_query
from penstock.dialects.spaces.reading import SelectCall, rows_in
from penstock.dialects.spaces.upgraded_space import XqueueSpace
from penstock.dialects.xqueue.arguments import (
    argument,
    attributes,
    count_of,
    duration_of,
    is_number,
    seconds_ms,
    state_back,
    state_of,
    timeout_ms_of,
)
from penstock.dialects.xqueue.options import (
    FUNCTION,
    NO_FIELD,
    REQUIRED,
    TIME64,
    Options,
    XqueueError,
    as_map,
)
from penstock.dialects.xqueue.rows import (
    Row,
    Rows,
    find_job,
    find_unnamed,
    key_name,
    key_of_job,
    key_text,
    tube_key,
)
from penstock.dialects.xqueue.statuses import space_stats
from penstock.dialects.xqueue.tasks import Changes, Task
from penstock.dialects.xqueue.updates import updated
from penstock.node.caller import SLICE, Caller
from penstock.node.context import CommandContext
from penstock.wire.iproto import CALL, Request

_DUPLICATE: Final = 3  # Tarantool's error number for a duplicate key.

Results = list[object]


class Waits:
    """The outcome of a method that waits: the wait, and the function that makes the results when the wait ends."""

    def __init__(self, wait: Waiting, finish: Callable[[Waiting, int], Results]) -> None:
        self.wait = wait
        self.finish = finish


class Steps:
    """The outcome of a method that runs in slices: the caller calls `step` until it returns the results."""

    def __init__(self, step: Callable[[int], Results | None]) -> None:
        self.step = step


Outcome = Results | Waits | Steps
Method = Callable[[Caller, list[object], int, object], Outcome]


# The feature that a status needs.
_FEATURE_OF: Final = {s.DELAYED: "delayed", s.BURIED: "buried", s.DONE: "keep", s.ZOMBIE: "zombie"}
# The holder in error messages if no session holds the task.
_HOLDERS: Final = {NO_SLOT: "anyone", HELD_BY_CLAIM: "a claim"}


class Space:
    """One xqueue space: a tube. Clients see its jobs as the tuples of a Tarantool space, here called rows."""

    context: CommandContext
    tube: Tube
    options: Options
    name: str
    policy: TubePolicy  # The policy that the options were read from.
    make_id: Callable[[], object] | None  # Makes the ids, in the embedded API.
    _rows: Rows
    _last_time64: int

    def __init__(self, context: CommandContext, tube: Tube, options: Options) -> None:
        self.context = context
        self.tube = tube
        self.name = tube.name.decode("utf-8", "backslashreplace")
        self.make_id = None
        self._last_time64 = 0
        self._rows = Rows(options, self.name)
        self.set_options(options)

    def set_options(self, options: Options) -> None:
        self.options = options
        self.policy = self.tube.policy
        self._rows.set_options(options)

    def method(self, name: str) -> Method | None:
        return getattr(self, METHODS[name]) if name in METHODS else None

    def readable(self) -> XqueueSpace:
        """Return this space as an object that can be read by its indexes."""
        return XqueueSpace(self.context, self.tube, self._rows)

    @property
    def _engine(self) -> Engine:
        return self.context.engine

    # Putting

    def put(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run put(task, {delay, ttl, wait}): put a task and return it. With `wait`, wait until the task ends."""
        attr = attributes(args, 1, "put", ("delay", "ttl", "wait"))
        delay_ms, ttl_ms = self._delay(attr), self._ttl(attr)
        wait_ms = UNSET if attr.get("wait") is None else timeout_ms_of(attr["wait"])
        if wait_ms != UNSET and attr.get("delay") is not None:
            raise XqueueError("wait and delay are mutually exclusive")
        task = argument(args, 0)
        row = self._rows.read(task)
        key = self._key_of_new(row, isinstance(task, tuple), now)
        body, kind = self._rows.body(row)
        draft = Draft(body, ttl_ms, UNSET, delay_ms, self._rows.priority(row), self._rows.tube(row), body_kind=kind)
        if key is not None:
            draft.name = key_name(key, self.options)
            self._check_free(key)
        self._check_staying(caller)
        self.context.reserve_log_for([draft])
        try:
            job = self._engine.put(self.tube, draft, now)
        except NameTaken:
            raise self._duplicate() from None
        task = Task(self._rows, self._key(job), job, NO_KEY if draft.key is None else draft.key, body)
        if wait_ms == UNSET:
            # A waiting client may already have the task. The result shows the state in which it was put.
            return [task.as_result(state_back(delay_ms))]
        return self._until_end(caller, task, wait_ms, now, tag)

    def _key_of_new(self, row: Row, is_tuple: bool, now: int) -> list[Any] | None:
        """Return the primary key of a new task, or None if it is made from the number or id of the new job."""
        kind = self.options.id
        if kind == REQUIRED:
            key = self._rows.key(row)
            if key is None:
                raise XqueueError("Primary key is mandatory")
            return key
        if is_tuple:
            raise tuple_refused()
        if kind == FUNCTION:
            if self.make_id is None:
                raise XqueueError("features.id is a function of the process that made the space; upgrade it again")
            made = self.make_id()
            return self._rows.check_key(list(made) if isinstance(made, (list, tuple)) else [made])
        if kind == TIME64:
            self._last_time64 = max(self._last_time64 + 1, now * 1_000_000)
            while key_name([self._last_time64], self.options) in self.tube.names:
                self._last_time64 += 1
            return [self._last_time64]
        return None

    def _check_free(self, key: list[Any]) -> None:
        """Raise an error if a primary key is one that the queue has made for another task."""
        if find_unnamed(self._engine, self.tube, self.context.ids, key) is not None:
            raise self._duplicate()

    def _duplicate(self) -> XqueueError:
        return XqueueError(f"Duplicate key exists in unique index 'primary' in space '{self.name}'", _DUPLICATE)

    # Taking

    def take(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run take(timeout, {tube, ttr}) or take({timeout, tube, ttr}): take a task, or wait for one."""
        first = argument(args, 0)
        if isinstance(first, (dict, list)):
            attr = attributes(args, 0, "take", ("timeout", "tube", "ttr"))
        else:
            attr = attributes(args, 1, "take", ("timeout", "tube", "ttr"))
            if first is not None:
                attr = {**attr, "timeout": first}
        timeout_ms = timeout_ms_of(attr.get("timeout", 0))
        ttr_ms = self._ttr(attr)
        key: bytes | None = None
        if attr.get("tube") is not None:
            if self.options.tube == NO_FIELD:
                raise XqueueError("Feature tube is not enabled")
            key = tube_key(attr["tube"], self.options.tube)
        engine = self._engine
        job = engine.take(caller.connection.session, self.tube, now, key, ttr_ms)
        if job is not None:
            return self._deliver(caller, [job], now)
        if timeout_ms == 0:
            return []
        self._check_staying(caller)
        wait = engine.wait(caller.connection, [self.tube], now, timeout_ms, 1, key, ttr_ms, tag)
        return Waits(wait, lambda ended, when: self._taken(caller, ended, when))

    def _taken(self, caller: Caller, wait: Waiting, now: int) -> Results:
        assert isinstance(wait, TakeWait)
        return self._deliver(caller, [job for job in wait.jobs if job.state != s.GONE], now)

    def _deliver(self, caller: Caller, jobs: list[Job], now: int) -> Results:
        bodies = self.context.bodies(caller, jobs, now)
        for job in jobs:
            caller.unsent.append(job)
            caller.unsent_deliveries.append(job.deliveries)
        tasks = [
            Task(self._rows, self._key(job), job, key_of(self.tube, job), body)
            for job, body in zip(jobs, bodies, strict=True)
        ]
        return [task.as_result(s.TAKEN) for task in tasks]

    # Methods that only the holder of a task may call

    def ack(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run ack(key, {update, delay}): ack a task. With `delay`, keep it as a zombie for this time."""
        attr = attributes(args, 1, "ack", ("update", "delay"))
        delay_ms = UNSET
        if attr.get("delay") is not None:
            self._require_feature("zombie")
            delay_ms = seconds_ms(attr["delay"], "attr.delay")
        task = self._held(caller, args, now)
        new = self._changes(task, attr)
        session = caller.connection.session
        self._done(
            self._engine.ack(session, task.job, now, delay_ms, new.body, new.kind, new.priority, new.tube), caller, task
        )
        # A task that has ended is shown in its last state.
        return [task.as_result(s.TAKEN if task.job.state == s.GONE else task.job.state, new)]

    def release(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run release(key, {update, delay, ttl}): return a taken task to the space."""
        attr = attributes(args, 1, "release", ("update", "delay", "ttl"))
        delay_ms, ttl_ms = self._delay(attr), self._ttl(attr)
        task = self._held(caller, args, now)
        new = self._changes(task, attr)
        session = caller.connection.session
        outcome = self._engine.release(
            session, task.job, now, delay_ms, ttl_ms, new.priority, new.tube, new.body, new.kind
        )
        self._done(outcome, caller, task)
        return [task.as_result(state_back(delay_ms), new)]

    def bury(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run bury(key, {update, ttl}): bury a taken task."""
        attr = attributes(args, 1, "bury", ("update", "ttl"))
        self._require_feature("buried")
        ttl_ms = self._ttl(attr)
        task = self._held(caller, args, now)
        new = self._changes(task, attr)
        session = caller.connection.session
        outcome = self._engine.bury(session, task.job, now, b"", ttl_ms, new.tube, new.body, new.kind, new.priority)
        self._done(outcome, caller, task)
        return []

    def touch(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run touch(key, {increment}): extend the ttr of a taken task, or the ttl of a ready one."""
        attr = attributes(args, 1, "touch", ("increment",))
        increment = attr.get("increment")
        if isinstance(increment, bool) or not isinstance(increment, (int, float)) or math.isnan(increment):
            raise XqueueError("attr.increment must be number")
        if increment < 0:
            raise XqueueError("attr.increment can't be negative")
        more_ms = seconds_ms(increment, "attr.increment")
        task = self._find(args, now)
        if task.job.state == s.READY:
            self._require_feature("ttl")
            self._done(self._engine.prolong(task.job, now, more_ms), caller, task)
            return [task.as_result(s.READY)]
        self._require_feature("ttr")
        self._check_held(caller, task)
        self._done(self._engine.touch(caller.connection.session, task.job, now, more_ms), caller, task)
        return [task.as_result(s.TAKEN)]

    # Methods that any client may call

    def dig(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run dig(key, {update, delay, ttl}): dig up one task. dig(N, …) digs up the first N buried tasks.

        If the primary keys are numbers, a number is a key. Clients then use `plow` to pass a count.
        """
        first = argument(args, 0)
        is_count = is_number(first) and self.options.key_type() == "string"
        if first is None or is_count or (isinstance(first, float) and math.isinf(first)):
            return self.plow(caller, args, now, tag)
        return self._dig_one(caller, args, now)

    def kick(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run kick(N, {update, delay, ttl}): dig up the first N buried tasks. kick(key, …) digs up one task.

        A number is always a count, never a key.
        """
        first = argument(args, 0)
        if first is None or is_number(first):
            return self.plow(caller, args, now, tag)
        return self._dig_one(caller, args, now)

    def _dig_one(self, caller: Caller, args: list[object], now: int) -> Outcome:
        attr = attributes(args, 1, "dig", ("update", "delay", "ttl"))
        delay_ms, ttl_ms = self._delay(attr), self._ttl(attr)
        return [self._dig(caller, self._find(args, now), attr, delay_ms, ttl_ms, now)]

    def plow(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run plow(N, {update, delay, ttl}): dig up the first N buried tasks, or all of them if N is missing."""
        attr = attributes(args, 1, "plow", ("update", "delay", "ttl"))
        delay_ms, ttl_ms = self._delay(attr), self._ttl(attr)
        self._engine.advance(now)
        # Stop after the tasks that are buried now, so that a task which is buried again is not dug up twice.
        left = min(count_of(argument(args, 0)), len(self.tube.buried))
        dug = 0

        def step(when: int) -> Results | None:
            nonlocal dug, left
            some = min(left, SLICE)
            left -= some
            self._engine.advance(when)
            for _ in range(some):
                job = None if self.tube.dropped else self.tube.buried.first()
                if job is None:
                    left = 0
                    break
                self._dig(caller, self._task(self._key(job), job), attr, delay_ms, ttl_ms, when)
                dug += 1
            return [dug] if left == 0 else None

        return Steps(step)

    def _dig(self, caller: Caller, task: Task, attr: dict[Any, Any], delay_ms: int, ttl_ms: int, now: int) -> object:
        new = self._changes(task, attr)
        outcome = self._engine.dig(task.job, now, delay_ms, ttl_ms, new.priority, new.tube, new.body, new.kind)
        self._done(outcome, caller, task)
        return task.as_result(state_back(delay_ms), new)

    def kill(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run kill(key): delete a task in any state and return it."""
        key, job = self._lookup(args, now)
        if job is None:
            raise XqueueError(f"Task by {key_text(key)} not found to kill")
        task = self._task(key, job)
        was = job.state
        self._done(self._engine.delete(job, now), caller, task)
        return [task.as_result(was)]

    def snatch(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run snatch(key, {delay}): take a task away from the session that holds it."""
        delay_ms = self._delay(attributes(args, 1, "snatch", ("delay",)))
        task = self._find(args, now)
        self._done(self._engine.snatch(task.job, now, delay_ms), caller, task)
        return [task.as_result(state_back(delay_ms))]

    def restart(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run restart(key, {delay}): make a delayed or kept task ready again."""
        delay_ms = self._delay(attributes(args, 1, "restart", ("delay",)))
        task = self._find(args, now)
        self._done(self._engine.restart(task.job, now, delay_ms), caller, task)
        return [task.as_result(state_back(delay_ms))]

    def switch(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run switch(key, status, {delay}): change the status of a task that is not taken."""
        attr = attributes(args, 2, "switch", ("delay",))
        state = state_of(argument(args, 1))
        if state in _FEATURE_OF:
            self._require_feature(_FEATURE_OF[state])
        delay_ms = 0 if attr.get("delay") is None else seconds_ms(attr["delay"], "attr.delay")
        if state == s.ZOMBIE and attr.get("delay") is None:
            delay_ms = max(self.tube.policy.zombie_ms, 0)
        if (state in (s.DELAYED, s.ZOMBIE)) != (delay_ms > 0):
            raise XqueueError("switch to W or Z requires attr.delay; other statuses must not have it")
        task = self._find(args, now)
        self._done(self._engine.switch(task.job, state, now, delay_ms), caller, task)
        return [task.as_result(state)]

    # Methods that read

    def get(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run get(key): return a task, or nothing if it does not exist."""
        key, job = self._lookup(args, now)
        return [] if job is None else [self._task(key, job).as_result(job.state)]

    def select(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run select(key, {iterator, limit, offset}): return rows in the order of the primary index."""
        space = self.readable()
        options = as_map(argument(args, 1), "options")
        query = select_query(space, space.indexes[0], read_key(argument(args, 0)), options)
        selecting = SelectCall(Request(CALL, 0), space, query, True)

        def step(when: int) -> Results | None:
            found = selecting.run_slice(caller, when)
            return None if found is None else [rows_in(found)]

        return Steps(step)

    def count(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run len() or count(): return the number of tasks."""
        self._engine.advance(now)
        return [self.tube.total() - self.tube.count_in(s.STAGED)]

    def wait(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run wait(key, timeout): wait until a task ends. Return the task, and whether it was acked."""
        timeout = argument(args, 1)
        timeout_ms = NEVER if timeout is None else timeout_ms_of(timeout)
        return self._until_end(caller, self._find(args, now), timeout_ms, now, tag)

    def _until_end(self, caller: Caller, task: Task, timeout_ms: int, now: int, tag: object) -> Outcome:
        job = task.job
        if job.state in (s.DONE, s.ZOMBIE):
            return [task.as_result(job.state), True]
        if timeout_ms == 0 or job.state == s.BURIED:
            return [task.as_result(job.state), False]
        wait = self._engine.wait_end(caller.connection, job, now, timeout_ms, tag, failures=True)
        was = job.state

        def finish(ended: Waiting, _: int) -> Results:
            assert isinstance(ended, EndWait)
            if job.tube != self.tube.slot:
                # The job moved to a tube that the caller may have no permission to use: show its last row here.
                return [task.as_result(was), ended.processed]
            if job.state != s.GONE:
                return [self._task(task.key, job).as_result(job.state), ended.processed]
            # Show the task in the state it ended from, with its last body if that is still in memory.
            if isinstance(job.body, bytes):
                task.set_body(job.body)
            return [task.as_result(ended.before), ended.processed]

        return Waits(wait, finish)

    def stats(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run stats(pretty): return the statistics of the space."""
        self._engine.advance(now)
        return [space_stats(self.tube, argument(args, 0) is True)]

    def truncate(self, caller: Caller, args: list[object], now: int, tag: object) -> Outcome:
        """Run truncate(): delete all tasks."""
        self._engine.advance(now)
        emptying = Emptying(self._engine, self.tube)

        def step(when: int) -> Results | None:
            return [] if emptying.step(SLICE, when) else None

        return Steps(step)

    # Helpers of the methods

    def _check_staying(self, caller: Caller) -> None:
        if self.context.leaving:
            raise self.context.leaving_error(caller)

    def _require_feature(self, feature: str) -> None:
        if getattr(self.options, feature) is False:
            raise XqueueError(f"Feature {feature} is not enabled")

    def _delay(self, attr: dict[Any, Any]) -> int:
        if attr.get("delay") is None:
            return 0
        self._require_feature("delayed")
        return seconds_ms(attr["delay"], "attr.delay")

    def _ttl(self, attr: dict[Any, Any]) -> int:
        if attr.get("ttl") is None:
            return UNSET
        self._require_feature("ttl")
        return duration_of(attr["ttl"], "attr.ttl")

    def _ttr(self, attr: dict[Any, Any]) -> int:
        """Return the ttr of a take in ms. The default is the present ttr of the space, not that of the job."""
        if attr.get("ttr") is None:
            return UNSET if self.options.ttr is False else self.tube.policy.default_ttr_ms
        self._require_feature("ttr")
        ttr_ms = duration_of(attr["ttr"], "attr.ttr")
        if ttr_ms == 0:
            raise XqueueError("attr.ttr must be above 0")
        return ttr_ms

    def _find(self, args: list[object], now: int) -> Task:
        key, job = self._lookup(args, now)
        if job is None:
            raise XqueueError(f"Task {{{key_text(key)}}} was not found")
        return self._task(key, job)

    def _held(self, caller: Caller, args: list[object], now: int) -> Task:
        task = self._find(args, now)
        self._check_held(caller, task)
        return task

    def _lookup(self, args: list[object], now: int) -> tuple[list[Any], Job | None]:
        """Parse the primary key in the first argument. Return the key, and the job with this key or None."""
        key = self._read_key(argument(args, 0))
        self._engine.advance(now)
        job = find_job(self._engine, self.tube, self.options, self.context.ids, key)
        if job is not None:
            self._engine.refresh(job, now)
        # Staged jobs are not visible yet.
        return key, None if job is None or job.state in (s.GONE, s.STAGED) else job

    def _read_key(self, given: object) -> list[Any]:
        options = self.options
        if isinstance(given, dict):
            names = [options.format[at].name for at in options.key] if options.format else []
            if names and all(given.get(name) is not None for name in names):
                return self._rows.check_key([given[name] for name in names])
        elif isinstance(given, (list, tuple)):
            if len(given) == len(options.key):
                return self._rows.check_key(list(given))
            if len(given) > max(options.key) and all(given[at] is not None for at in options.key):
                return self._rows.check_key([given[at] for at in options.key])
        elif isinstance(given, (str, bytes)) or is_number(given):
            if len(options.key) == 1:
                return self._rows.check_key([given])
        raise XqueueError("Wrong key/task argument. Expected table or tuple or key")

    def _key(self, job: Job) -> list[Any]:
        return key_of_job(job, self.options, self.context.ids)

    def _task(self, key: list[Any], job: Job) -> Task:
        return Task(self._rows, key, job, key_of(self.tube, job), self.context.body_of(job))

    def _changes(self, task: Task, attr: dict[Any, Any]) -> Changes:
        new = Changes()
        if attr.get("update") is not None:
            rows = self._rows
            row = task.row(task.job.state)
            changed = rows.check(updated(row, attr["update"], self.options, self.name))
            rows.check_given(changed, row)
            new.body, new.kind = rows.body(changed)
            if self.options.tube != NO_FIELD and self.options.tube not in self.options.key:
                new.tube = rows.tube(changed)
            priority = rows.priority(changed)
            if priority != rows.priority(row):
                new.priority = priority
        return new

    def _check_held(self, caller: Caller, task: Task) -> None:
        """Raise an error if the caller's session does not hold the task. This is checked before anything else."""
        job = task.job
        if job.state != s.TAKEN:
            self._refuse(NOT_TAKEN, caller, task)
        if job.holder == HELD_BY_CLAIM or (job.holder >= 0 and job.holder != caller.connection.session.slot):
            self._refuse(NOT_OWNER, caller, task)

    def _done(self, outcome: int, caller: Caller, task: Task) -> None:
        if outcome != OK:
            self._refuse(outcome, caller, task)

    def _refuse(self, outcome: int, caller: Caller, task: Task) -> NoReturn:
        shown = key_text(task.key)
        if outcome == NOT_TAKEN:
            raise XqueueError(f"Task {shown} not taken by any")
        if outcome in (NOT_OWNER, IS_TAKEN):
            slot = task.job.holder
            holder = str(self._engine.session_number(slot)) if slot >= 0 else _HOLDERS[slot]
            if outcome == NOT_OWNER:
                raise XqueueError(f"Task {shown} taken by {holder}. Not you ({caller.connection.session.number})")
            raise XqueueError(f"Task {shown} taken by {holder}. Snatch it first")
        if outcome == NOT_BURIED:
            raise XqueueError(f"Task {shown} is not buried")
        if outcome == NOT_KEPT:
            raise XqueueError(f"Task {shown} is not in W, D or Z status")
        refuse(outcome)


def tuple_refused() -> XqueueError:
    """Return the error for a put of a tuple into a space that makes primary keys. A tuple cannot get one."""
    return XqueueError("Can't use id generation with tuple.")


# The methods by the names that clients use.
METHODS: Final[dict[str, str]] = {
    **{name: name for name in ("put", "take", "ack", "release", "bury", "touch", "dig", "plow", "kick", "kill")},
    **{name: name for name in ("snatch", "restart", "switch", "get", "select", "wait", "stats", "truncate", "count")},
    "unbury": "dig",
    "queue_stats": "stats",
    "len": "count",
}
