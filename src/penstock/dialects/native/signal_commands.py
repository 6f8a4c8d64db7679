"""JOB CANCEL, JOB PROGRESS, JOB WATCH and SESSION EVENTS: what a worker and the clients of its jobs tell each other.

core/tasks has the concepts. Nothing is polled: a client sends a command that waits until there is something to report,
as with JOB WAIT. So the same commands serve RESP2, RESP3 and clients of other nodes.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import UnknownJob, refuse
from penstock.core.ids import NOT_AN_ID
from penstock.core.job import BODY_BYTES
from penstock.core.limits import NEVER
from penstock.core.states import OK
from penstock.core.tasks.attention import cancel, check_after, report_progress, wait_signals, watch
from penstock.core.tasks.progress import JobProgress
from penstock.core.tasks.signals import SIGNAL_NAMES
from penstock.core.tube import Tube
from penstock.core.waits import END_NAMES, END_UNKNOWN, STILL_THERE, SignalWait, Waiting, WatchWait
from penstock.dialects.native.arguments import KIND_WORDS, Words, body_kind, check_kind
from penstock.dialects.native.delivery_commands import DeliveryCommands, read_reason
from penstock.node.caller import Caller, WaitReply, check_tube
from penstock.wire.reply import Reply


class SignalCommands:
    """The commands that wait for news of taken jobs, and those that send the news."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native
        self._engine: Engine = native.context.engine
        self._watch_reply: WaitReply = _WatchReply(native)
        self._signals_reply: WaitReply = _SignalsReply(native)

    def cancel(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB CANCEL id [REASON text]: reply with 1 if the job has ended, or 0 if its consumer was told."""
        reason = read_reason(Words(args, 3))
        job = self._native.job(caller, args[2], now)
        if job.copy() is not None and job.state != s.TAKEN:
            outcome = self._native.context.delete(job, now)
        else:
            outcome = cancel(self._engine, job, reason, now)
        if outcome != OK:
            refuse(outcome)
        caller.reply.integer(0 if job.state == s.TAKEN else 1)

    def progress(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB PROGRESS id value [AS bytes|text|json|msgpack]: send a value to the clients that watch the job."""
        words = Words(args, 4)
        kind = BODY_BYTES
        while words.has_more():
            if words.option() != b"AS":
                raise words.unknown(["AS"])
            kind = body_kind(words.value())
        check_kind(args[3], kind)
        job = self._native.job(caller, args[2], now)
        session = caller.connection.session
        self._native.reply_with_outcome(caller, report_progress(self._engine, session, job, args[3], kind, now))

    def watch(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run JOB WATCH id [AFTER number] [TIMEOUT duration] [TUBE tube].

        Wait until the job has progress after this number, or until it ends or fails for good.
        """
        words = Words(args, 3)
        after = 0
        timeout = NEVER
        home: Tube | None = None
        while words.has_more():
            word = words.option()
            if word == b"AFTER":
                after = words.integer()
            elif word == b"TIMEOUT":
                timeout = words.duration()
            elif word == b"TUBE":
                name = words.value()
                check_tube(caller, name)
                home = self._engine.tubes.get(name)
            else:
                raise words.unknown(["AFTER", "TIMEOUT", "TUBE"])
        check_after(after)
        job = self._native.find(caller, args[2], now)
        if job is None:
            self._native.refuse_elsewhere(args[2])
            write_ended(caller, self._ended(caller, args[2], now), after)
            return
        wait = watch(self._engine, caller.connection, job, after, now, timeout, caller, home)
        caller.wait_for(wait, self._watch_reply)

    def _ended(self, caller: Caller, text: bytes, now: i64) -> JobProgress | None:
        """Return what is remembered of a job that is gone, or None."""
        try:
            number = self._native.number(caller, text, now)
        except UnknownJob:
            return None
        progress = None if number == NOT_AN_ID else self._engine.progress.by_job.get(number)
        if progress is not None:
            check_tube(caller, progress.tube)
        return progress

    def events(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run SESSION EVENTS [AFTER number] [TIMEOUT duration] [TUBE tube].

        Wait for a signal about a job that the session holds on this node, or on the node of the tube.
        """
        words = Words(args, 2)
        after = 0
        timeout = 0
        while words.has_more():
            word = words.option()
            if word == b"AFTER":
                after = words.integer()
            elif word == b"TIMEOUT":
                timeout = words.duration()
            elif word == b"TUBE":
                name = words.value()
                check_tube(caller, name)
                self._native.context.tube(name)
            else:
                raise words.unknown(["AFTER", "TIMEOUT", "TUBE"])
        wait = wait_signals(self._engine, caller.connection, after, now, timeout, caller)
        caller.wait_for(wait, self._signals_reply)


def write_ended(caller: Caller, progress: JobProgress | None, after: i64) -> None:
    """Write the reply of a JOB WATCH of a job that is gone."""
    if progress is None or progress.end == STILL_THERE:
        _write_watch(caller.reply, progress, after, END_UNKNOWN, b"")
    else:
        _write_watch(caller.reply, progress, after, progress.end, progress.reason)


def _write_watch(reply: Reply, progress: JobProgress | None, after: i64, end: i64, reason: bytes) -> None:
    values = [] if progress is None else progress.since(after)
    reply.map(4)
    reply.bulk(b"after")
    reply.integer(after if progress is None or progress.newest < after else progress.newest)
    reply.bulk(b"values")
    reply.array(len(values))
    for each in values:
        reply.array(3)
        reply.integer(each.number)
        reply.bulk(KIND_WORDS[each.kind])
        reply.bulk(each.value)
    reply.bulk(b"outcome")
    if end == STILL_THERE:
        reply.null()
    else:
        reply.bulk(END_NAMES[end].encode())
    reply.bulk(b"reason")
    reply.bulk(reason)


class _WatchReply(WaitReply):
    """Writes the reply of a JOB WATCH."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, WatchWait)
        progress = self._native.context.engine.progress.by_job.get(wait.job.id)
        if progress is not None and not caller.any_tube and not caller.may_use(progress.tube):
            # The job has moved to a tube that the caller may not use.
            progress = None
        hidden = wait.moved and not caller.any_tube
        _write_watch(caller.reply, progress, wait.after, wait.end, b"" if hidden else wait.reason)


class _SignalsReply(WaitReply):
    """Writes the reply of a SESSION EVENTS."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, SignalWait)
        found = wait.signals.since(wait.after)
        reply = caller.reply
        reply.array(2)
        reply.integer(max(wait.after, wait.signals.newest))
        reply.array(len(found))
        for each in found:
            reply.map(4)
            reply.bulk(b"number")
            reply.integer(each.number)
            reply.bulk(b"event")
            reply.bulk(SIGNAL_NAMES[each.kind].encode())
            reply.bulk(b"id")
            reply.bulk(self._native.context.id_of(each.job))
            reply.bulk(b"reason")
            reply.bulk(each.reason)
