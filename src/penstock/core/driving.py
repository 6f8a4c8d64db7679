"""Tubes with a driver: code outside the engine decides in which state each task is, and which task is served next.

The driver stores its tasks in a mapping from id to tuple. Each task is a job in the engine. The job's name is the
task's id, and its body is the whole tuple, so that the journal has every field. `user_body` is the part that users
see: the task's data.

A call of a driver is a transaction. `TubeDriver` runs the driver's code and returns the tasks that the call stored or
removed. The engine checks all of them first. If it refuses one, `undo` restores the driver's mapping, and no job has
changed. Otherwise each job changes as its task did, and the rows are in one frame of the journal.

A job can return to its tube without the driver, because its session ended or its delivery was not received. Then the
engine lets the driver release the task when the command ends (`_serve_driver`), or when the driver starts (`_driver`).
"""

from __future__ import annotations

import json
from typing import Final

from mypy_extensions import i64, mypyc_attr, u8

from penstock.core import states as s
from penstock.core.errors import BadDriver, CommandError, Unsupported
from penstock.core.job import BODY_MSGPACK, Draft, Job
from penstock.core.limits import DURATION_MS_MAX, UNSET, check_body
from penstock.core.moves import Moves
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.sessions import Session
from penstock.core.states import OK
from penstock.core.tube import Tube

# The event for a change of state by the driver, if the command does not determine it.
_EVENTS: Final[dict[tuple[int, int], int]] = {
    (s.TAKEN, s.READY): s.SNATCHED,
    (s.TAKEN, s.DELAYED): s.SNATCHED_DELAYED,
    (s.TAKEN, s.BURIED): s.BURIED_BY,
    (s.TAKEN, s.DONE): s.KEPT,
    (s.TAKEN, s.TAKEN): s.TOUCHED,
    (s.READY, s.READY): s.SWITCHED_READY,
    (s.READY, s.DELAYED): s.SWITCHED_DELAYED,
    (s.READY, s.BURIED): s.BURIED_BY,
    (s.READY, s.DONE): s.SWITCHED_DONE,
    (s.DELAYED, s.READY): s.DELAY_PASSED,
    (s.DELAYED, s.DELAYED): s.SWITCHED_DELAYED,
    (s.DELAYED, s.BURIED): s.BURIED_BY,
    (s.DELAYED, s.DONE): s.SWITCHED_DONE,
    (s.BURIED, s.READY): s.KICKED,
    (s.BURIED, s.DELAYED): s.KICKED_DELAYED,
    (s.BURIED, s.BURIED): s.SWITCHED_BURIED,
    (s.BURIED, s.DONE): s.SWITCHED_DONE,
    (s.DONE, s.READY): s.RESTARTED,
    (s.DONE, s.DELAYED): s.RESTARTED_DELAYED,
    (s.DONE, s.BURIED): s.SWITCHED_BURIED,
    (s.DONE, s.DONE): s.SWITCHED_DONE,
}
_NO_OPTIONS: Final[dict[str, object]] = {}


class TaskChange:
    """A task that a driver stored or removed, with its state in the engine."""

    name: bytes  # The task's id, which is the job's name.
    number: i64  # The task's id if it is a whole number from 0 on; otherwise NO_SLOT.
    state: i64  # GONE if it was removed.
    body: bytes  # All fields as msgpack.
    user_body: bytes  # The data that users see.
    user_body_kind: int  # The kind of that body.
    headers: bytes  # Headers of the put that created the task; empty if none.

    def __init__(self, name: bytes, number: i64, state: i64, body: bytes, shown: bytes, shown_kind: int) -> None:
        self.name = name
        self.number = number
        self.state = state
        self.body = body
        self.user_body = shown
        self.user_body_kind = shown_kind
        self.headers = b""


class DriverCall:
    """The result of one call of a driver."""

    name: bytes  # Id of the task that the call returned; empty if none.
    count: int  # Number that `kick` returned.
    changes: list[TaskChange]

    def __init__(self, name: bytes, count: int, changes: list[TaskChange]) -> None:
        self.name = name
        self.count = count
        self.changes = changes

    def state_of(self, name: bytes) -> i64:
        """Return the state in which the call left a task, or -1 if it did not change the task."""
        for change in self.changes:
            if change.name == name:
                return change.state
        return -1


@mypyc_attr(allow_interpreted_subclasses=True)
class TubeDriver:
    """The driver of one tube, as the engine calls it. If the driver's code fails, a call raises BadDriver.

    Nothing has changed in that case.
    """

    def put(self, draft: Draft) -> DriverCall:
        raise NotImplementedError

    def take(self) -> DriverCall:
        """Mark the next task as taken. The result has no task name if there is no task to take."""
        raise NotImplementedError

    def delete(self, name: bytes) -> DriverCall:
        raise NotImplementedError

    def release(self, name: bytes, options: dict[str, object]) -> DriverCall:
        raise NotImplementedError

    def bury(self, name: bytes) -> DriverCall:
        raise NotImplementedError

    def kick(self, count: int) -> DriverCall:
        """Return up to `count` buried tasks to the queue."""
        raise NotImplementedError

    def make_ready(self, name: bytes) -> DriverCall:
        """Store a task as ready without calling the driver, because its `release` failed."""
        raise NotImplementedError

    def opened(self) -> DriverCall:
        """Return the changes that the driver made when it started."""
        raise NotImplementedError

    def undo(self) -> None:
        """Restore the state before the last call, because the engine refused its changes."""

    def failed(self, error: CommandError) -> None:
        """Report an error of the driver that occurred outside a client's command."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Drivers:
    """The registered drivers by type, and the drivers of tubes. Nodes with drivers use a subclass of this class."""

    def policy(self, type: str, options: dict[str, object]) -> TubePolicy | None:
        """Return the policy of a new tube of this type, or None if no driver is registered for the type."""
        return None

    def create(self, name: bytes, policy: TubePolicy) -> None:
        """Create the driver's storage for a new tube. Raise an error if the driver refuses the options."""
        raise missing_driver(name, policy)

    def find(self, tube: Tube) -> TubeDriver | None:
        """Return the driver of a tube, or None if it has not been started.

        Raise Unsupported if it is not registered.
        """
        raise missing_driver(tube.name, tube.policy)

    def open(self, tube: Tube, bodies: list[bytes]) -> list[TaskChange]:
        """Start the driver of a tube. `bodies` are its tasks in the journal. Return these tasks and their states."""
        raise missing_driver(tube.name, tube.policy)

    def drop(self, tube: Tube) -> None:
        """Remove the driver of a tube that is dropped."""


def driver_options(policy: TubePolicy) -> dict[str, object]:
    """Return the options with which a tube with a driver was created."""
    options = json.loads(policy.notes)["driver"]
    assert isinstance(options, dict)
    return options


def missing_driver(name: bytes, policy: TubePolicy) -> Unsupported:
    """Return the error for a tube whose driver is not registered in this process."""
    shown = name[:60].decode("utf-8", "backslashreplace")
    return Unsupported(
        f"tube '{shown}' has the driver {policy.type!r}, which is not registered; its jobs are kept: register it with "
        "register_driver, or name it in the drivers table of the server's configuration file"
    )


class Driving(Moves):
    """Transitions of jobs in tubes with a driver."""

    def __init__(self, epoch: int, now: i64, outbox: Outbox, entropy: int = 1) -> None:
        super().__init__(epoch, now, outbox, entropy)
        self.drivers = Drivers()

    def attach(self, tube: Tube, now: i64) -> None:
        """Start the driver of a tube, unless it has started. Raise an error if it is not registered."""
        self._driver(tube, now)
        if self.woken_tubes:
            self.settle(now)

    def _driver(self, tube: Tube, now: i64) -> TubeDriver:
        """Return the driver of a tube. If it is not running, start it with the tasks from the journal.

        Before the return, the driver releases the tasks whose jobs returned to the tube without it.
        """
        driver = self.drivers.find(tube)
        if driver is not None:
            self._release_returned(tube, driver, now)
            return driver
        tube.has_started = True
        tube.returned.clear()
        jobs = sorted(tube.names.values(), key=_job_id)
        changes = self.drivers.open(tube, [self.outbox.body_of(job) for job in jobs])
        driver = self.drivers.find(tube)
        assert driver is not None and len(changes) == len(jobs)
        call = driver.opened()
        for i in range(len(jobs)):
            _show(jobs[i], changes[i])
        self._follow(tube, driver, call, s.SWITCHED_READY, b"", None, now)
        for i in range(len(jobs)):
            state = call.state_of(changes[i].name)
            if jobs[i].state == s.READY and (changes[i].state if state < 0 else state) == s.TAKEN:
                tube.returned.append(jobs[i])
        self._release_returned(tube, driver, now)
        return driver

    def release_driven(self, session: Session, job: Job, options: dict[str, object], now: i64) -> int:
        """Release a taken job of a tube with a driver. The driver gets the options unchanged."""
        refusal = self._not_held_job(job, session)
        if refusal != OK:
            return refusal
        tube = self.tube_of(job)
        if not tube.driven:
            raise tube.lacks("driver, so a release has no options for one")
        self._release(job, tube, options, s.RELEASED, now)
        self.settle(now)
        return OK

    def _put_driven(self, tube: Tube, draft: Draft, now: i64) -> Job:
        driver = self._driver(tube, now)
        call = driver.put(draft)
        if call.name not in tube.names and call.state_of(call.name) <= s.GONE:
            driver.undo()
            raise BadDriver(f"the {tube.policy.type!r} driver did not store the task that its put returned")
        if draft.headers:
            for change in call.changes:
                if change.name == call.name:
                    change.headers = draft.headers
        self._follow(tube, driver, call, s.PUT, b"", None, now)
        return tube.names[call.name]

    def _take_driven(self, session: Session, tube: Tube, now: i64) -> Job | None:
        driver = self._driver(tube, now)
        call = driver.take()
        if not call.name:
            self._follow(tube, driver, call, s.TOOK, b"", None, now)
            return None
        job = tube.names.get(call.name)
        if (job is not None and job.state == s.TAKEN) or call.state_of(call.name) != s.TAKEN:
            driver.undo()
            why = "is taken already" if job is not None and job.state == s.TAKEN else "it did not store as taken"
            raise BadDriver(f"the take of the {tube.policy.type!r} driver returned a task that {why}")
        self._follow(tube, driver, call, s.TOOK, call.name, session, now)
        return tube.names[call.name]

    def _ack_driven(self, session: Session, job: Job, tube: Tube, now: i64) -> int:
        refusal = self._not_held_job(job, session)
        if refusal != OK:
            return refusal
        self._remove(job, tube, s.ACKED, session, now)
        self.settle(now)
        return OK

    def _remove(self, job: Job, tube: Tube, event: i64, session: Session | None, now: i64) -> None:
        driver = self._driver(tube, now)
        name = job.ensure_extra().name
        call = driver.delete(name)
        if call.state_of(name) != s.GONE and call.state_of(name) != s.DONE:
            driver.undo()
            raise BadDriver(f"the delete of the {tube.policy.type!r} driver did not remove the task")
        self._follow(tube, driver, call, event, name, session, now)

    def _release(self, job: Job, tube: Tube, options: dict[str, object], event: i64, now: i64) -> None:
        driver = self._driver(tube, now)
        name = job.ensure_extra().name
        call = driver.release(name, options)
        self._check_let_go(tube, driver, call, name, "release")
        self._follow(tube, driver, call, event, name, None, now)

    def _bury_driven(self, job: Job, tube: Tube, reason: bytes, now: i64) -> None:
        driver = self._driver(tube, now)
        name = job.ensure_extra().name
        call = driver.bury(name)
        if job.state != s.BURIED or call.state_of(name) >= s.GONE:
            self._check_let_go(tube, driver, call, name, "bury")
        self._follow(tube, driver, call, s.BURIED_BY, name, None, now)
        if job.state == s.BURIED:
            job.ensure_extra().reason = reason
        self.settle(now)

    def _check_let_go(self, tube: Tube, driver: TubeDriver, call: DriverCall, name: bytes, method: str) -> None:
        """Raise BadDriver if a call of `method` left the task `name` taken, or did not change it."""
        state = call.state_of(name)
        if state == s.TAKEN or state < s.GONE:
            driver.undo()
            raise BadDriver(f"the {method} of the {tube.policy.type!r} driver did not change the state of the task")

    def _kick_driven(self, tube: Tube, count: int, now: i64) -> int:
        driver = self._driver(tube, now)
        call = driver.kick(count)
        self._follow(tube, driver, call, s.KICKED, b"", None, now)
        self.settle(now)
        return call.count

    # Jobs that returned without the driver

    def _serve_driver(self, tube: Tube, now: i64) -> bool:
        """Let the driver of a tube release the jobs that returned to the tube without a call of the driver.

        This is the case, for example, if the session of a taken job ended. Return whether the driver can serve takes.
        """
        try:
            self._driver(tube, now)
        except CommandError:
            # The driver is not registered or cannot start. Clients that use the tube get this error themselves.
            return False
        return True

    def _release_returned(self, tube: Tube, driver: TubeDriver, now: i64) -> None:
        while tube.returned:
            job = tube.returned.pop()
            if job.state != s.READY:
                continue
            name = job.ensure_extra().name
            try:
                call = driver.release(name, _NO_OPTIONS)
                self._check_let_go(tube, driver, call, name, "release")
                self._follow(tube, driver, call, s.SWITCHED_READY, name, None, now)
            except CommandError as error:
                # The session is gone, so the task must not stay taken.
                driver.failed(error)
                self._make_ready(tube, driver, name, now)

    def _make_ready(self, tube: Tube, driver: TubeDriver, name: bytes, now: i64) -> None:
        """Make a task ready that its driver failed to release."""
        try:
            self._follow(tube, driver, driver.make_ready(name), s.SWITCHED_READY, name, None, now)
        except CommandError as error:
            # The changes that the driver made when it restarted cannot be stored. The next start tries again.
            driver.failed(error)

    def _driver_failed(self, tube: Tube, error: CommandError) -> None:
        """Report an error of a driver that occurred outside a client's command."""
        if not tube.driven:
            raise error
        driver = self.drivers.find(tube)
        if driver is not None:
            driver.failed(error)

    # Applying the changes of a call

    def _follow(
        self,
        tube: Tube,
        driver: TubeDriver,
        call: DriverCall,
        event: i64,
        target: bytes,
        session: Session | None,
        now: i64,
    ) -> None:
        """Apply the changes of a driver call to the jobs. If one of them is refused, apply none and raise the error.

        `event` is the effect of the command on the task `target`. `session` is the session of a take or ack.
        """
        try:
            self._check_changes(tube, call, target if event == s.TOOK else b"")
        except CommandError:
            driver.undo()
            raise
        self._driving = True
        try:
            for change in call.changes:
                self._follow_one(tube, change, event, change.name == target, session, now)
        finally:
            self._driving = False

    def _check_changes(self, tube: Tube, call: DriverCall, taken: bytes) -> None:
        """Raise an error if changes cannot be stored, or are not allowed in this command."""
        added: i64 = 0
        added_bytes: i64 = 0
        more_bytes: i64 = 0
        for change in call.changes:
            if change.state == s.GONE:
                continue
            job = tube.names.get(change.name)
            if change.state == s.TAKEN and change.name != taken and (job is None or job.state != s.TAKEN):
                raise BadDriver(
                    f"the {tube.policy.type!r} driver stored a task as taken outside of take; only a take may do so"
                )
            if job is None:
                check_body(len(change.body), self.body_bytes_max)
                added += 1
                added_bytes += len(change.body) + len(change.name) + len(change.headers)
            else:
                self._check_new_body(job, change.body)
                more_bytes += max(0, len(change.body) - job.body_length())
        if added > 0:
            self.check_room(added, added_bytes + more_bytes)
        elif more_bytes > 0 and self._counts_bodies():
            self.check_room(0, more_bytes)

    def _follow_one(
        self, tube: Tube, change: TaskChange, event: i64, is_target: bool, session: Session | None, now: i64
    ) -> None:
        job = tube.names.get(change.name)
        if change.state == s.GONE:
            if job is not None:
                if is_target and event == s.ACKED and session is not None:
                    self._move(job, tube, s.ACKED, now)
                else:
                    self._move(job, tube, s.TRUNCATED if event == s.TRUNCATED else s.DELETED, now)
            return
        if job is None:
            job = self._enter(tube, change, now)
            if job.state == change.state:
                return
        elif job.body != change.body:
            self._replace_body(job, tube, change.body, BODY_MSGPACK)
        elif job.state == change.state:
            return
        _show(job, change)
        if change.state == s.TAKEN and job.state != s.TAKEN:
            assert session is not None
            if job.state != s.READY:
                self._move(job, tube, _EVENTS[int(job.state), s.READY], now)
            self._deliver(job, tube, session, UNSET, now)
        else:
            self._change_state(job, tube, change.state, event if is_target else -1, now)

    def _enter(self, tube: Tube, change: TaskChange, now: i64) -> Job:
        draft = Draft(change.body, body_kind=BODY_MSGPACK, name=change.name, headers=change.headers)
        job = tube.make(self.next_id, draft, now)
        if change.state == s.DELAYED:
            job.wake = now + i64(DURATION_MS_MAX)
        _show(job, change)
        self._admit(job, tube, draft, now)
        return job

    def _change_state(self, job: Job, tube: Tube, state: i64, command: i64, now: i64) -> None:
        """Set a job to the state of its task.

        The event of the transition follows from the old and the new state. There is one exception: if `command` is
        RELEASED or NACKED, a taken job that becomes ready gets `command` as the event, and one that becomes delayed
        gets POSTPONED.
        """
        event: i64 = _EVENTS[int(job.state), int(state)]
        if state == s.READY and (command == s.RELEASED or command == s.NACKED) and job.state == s.TAKEN:
            event = command
        elif state == s.DELAYED and (command == s.RELEASED or command == s.NACKED) and job.state == s.TAKEN:
            event = s.POSTPONED
        if job.state == s.TAKEN and (state == s.READY or state == s.DELAYED) and command != s.NACKED:
            job.returns += 1
        if state == s.BURIED and job.state != s.BURIED:
            job.ensure_extra().buries += 1
        if state == s.DELAYED:
            # Only the driver knows when the delay ends.
            job.wake = now + i64(DURATION_MS_MAX)
        self._move(job, tube, event, now)


def _show(job: Job, change: TaskChange) -> None:
    extra = job.ensure_extra()
    extra.user_body = change.user_body
    extra.user_body_kind = u8(change.user_body_kind)
    job.local = change.number


def _job_id(job: Job) -> int:
    return job.id
