"""Each row has its time, actor and holder, and each segment names the sessions that act in it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock.core import policy
from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.job import Draft
from penstock.core.tube import Tube
from penstock.core.waits import Connection
from penstock.journal import layout
from penstock.journal.disk import ReadableDisk
from penstock.journal.frame import Row, integer_at, var_fields
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import FrameFile, segment_names
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from penstock.wire.headers import encode_headers
from tests.journal.random_commands import Script
from tests.journal.shortened_queue import SEGMENT, WALL, reopen


class Found(NamedTuple):
    """A row of a log."""

    segment: int
    event: int
    number: int  # Of the job, tube or session.
    time: int
    row: Row
    fields: dict[int, bytes]


def rows_of(disk: ReadableDisk) -> list[Found]:
    """Return all rows of a log."""
    found = []
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            for data, frame, _ in file.frames():
                for at in range(frame.rows_at, frame.var_at, frame.row_bytes):
                    event, time = data[at + layout.EVENT_AT], integer_at(data, at + layout.TIME_AT)
                    fields = dict(var_fields(data, at, frame))
                    row = Row(data, at, frame)
                    found.append(Found(file.header.segment, event, integer_at(data, at), time, row, fields))
    return found


class Logged:
    """An engine with a log in memory. Each command of a session is one commit, 10 ms after the one before."""

    def __init__(self, segment_bytes: int = SEGMENT) -> None:
        self.disk = MemoryDisk()
        opened = open_log(self.disk, lambda: WALL, "boot", segment_bytes=segment_bytes)
        self.engine: Engine = opened.engine
        self.log = opened.log
        self.now = WALL
        self.tube: Tube = self.engine.create_tube(b"t", policy.FIFOTTL, WALL)

    def connect(self, name: bytes, user: bytes = b"") -> Connection:
        connection = self.engine.connect(name.ljust(16))
        connection.session.set_client(name, user)
        return connection

    def run(self, who: Connection | None, command: str, *args: object, **options: object) -> object:
        """Run a command of the engine as the shell does."""
        self.now += 10
        self.engine.outbox.actor = None if who is None else who.session
        result = getattr(self.engine, command)(*args, self.now, **options)
        self.engine.outbox.actor = None
        self.log.commit(self.now, self.now)
        return result

    def events(self) -> list[tuple[str, int, int, int]]:
        """Return the event, the actor, the holder and the time in the previous state of all rows of jobs."""
        return [
            (s.EVENT_NAMES[found.event], found.row.actor, found.row.holder, found.time - found.row.since)
            for found in rows_of(self.disk)
            if found.event < layout.SNAPSHOT_JOB
        ]


def test_each_row_has_actor_holder_and_time_of_the_previous_state() -> None:
    queue = Logged()
    producer, worker, other = queue.connect(b"p"), queue.connect(b"w"), queue.connect(b"o")
    p, w, o = (connection.session.number for connection in (producer, worker, other))
    tube, session = queue.tube, worker.session
    job = queue.run(producer, "put", tube, Draft(b"body"))
    queue.run(worker, "take", session, tube)
    queue.run(worker, "touch", session, job)
    queue.run(worker, "release", session, job)
    queue.run(worker, "take", session, tube)
    queue.run(worker, "nack", session, job)
    queue.run(worker, "take", session, tube)
    queue.run(worker, "bury", session, job)
    queue.run(other, "kick", tube, 1)
    queue.run(worker, "take", session, tube)
    queue.run(worker, "disconnect", worker)
    again = queue.run(other, "take", other.session, tube)
    assert again is job
    queue.run(other, "ack", other.session, job)
    queue.run(producer, "delete", queue.run(producer, "put", tube, Draft(b"second")))
    expected = [
        *[("put", p, 0, 0), ("taken", w, w, 10), ("touched", w, w, 10), ("released", w, w, 20), ("taken", w, w, 10)],
        *[("nacked", w, w, 10), ("taken", w, w, 10), ("buried", w, w, 10), ("kicked", o, 0, 10), ("taken", w, w, 10)],
        *[
            ("disconnected", 0, w, 10),
            ("taken", o, o, 10),
            ("acked", o, o, 10),
            ("put", p, 0, 0),
            ("deleted", p, 0, 10),
        ],
    ]
    assert queue.events() == expected


def test_the_session_that_acks_a_job_of_another_one_is_the_actor_and_the_other_one_the_holder() -> None:
    queue = Logged()
    shared = queue.engine.create_tube(b"shared", policy.DISQUE, WALL)
    taker, acker = queue.connect(b"taker"), queue.connect(b"acker")
    job = queue.run(taker, "put", shared, Draft(b"x"))
    queue.run(taker, "take", taker.session, shared)
    queue.run(acker, "ack", acker.session, job)
    assert [(event, actor) for event, actor, _, _ in queue.events()] == [
        ("put", taker.session.number),
        ("taken", taker.session.number),
        ("acked", acker.session.number),
    ]


def test_timers_have_no_actor_even_if_they_fire_within_a_command() -> None:
    queue = Logged()
    me = queue.connect(b"me")
    tube = queue.engine.create_tube(b"timed", policy.FIFOTTL, WALL)
    queue.run(me, "put", tube, Draft(b"delayed", delay_ms=5))
    queue.run(me, "put", tube, Draft(b"short", ttl_ms=15))
    queue.run(me, "take", me.session, tube, ttr_ms=5)
    queue.now += 100
    # All deadlines are due. The command that fires them is a put.
    queue.run(me, "put", tube, Draft(b"last"))
    number = me.session.number
    by_event = {event: actor for event, actor, _, _ in queue.events()}
    assert by_event == {
        "put delayed": number,
        "put": number,
        "delay passed": 0,
        "taken": number,
        "ttr passed": 0,
        "expired": 0,
    }


def test_a_waiting_take_that_another_client_serves_has_the_taker_as_its_actor() -> None:
    queue = Logged()
    taker, producer = queue.connect(b"taker"), queue.connect(b"producer")
    queue.engine.wait(taker, [queue.tube], queue.now)
    queue.run(producer, "put", queue.tube, Draft(b"x"))
    number = taker.session.number
    assert queue.events() == [("put", producer.session.number, 0, 0), ("taken", number, number, 0)]


def test_a_session_is_named_once_in_each_segment_in_which_it_acts() -> None:
    queue = Logged(segment_bytes=16 * 1024)
    named, nameless = queue.connect(b"worker-3", b"ann"), queue.connect(b"")
    for number in range(120):
        queue.run((named, nameless)[number % 2], "put", queue.tube, Draft(b"x" * 400))
    rows = rows_of(queue.disk)
    segments = {found.segment for found in rows if found.row.actor == named.session.number}
    assert len(segments) > 3
    names = [found for found in rows if found.event == layout.SESSION_NAMED]
    assert [found.segment for found in names] == sorted(segments)
    assert {(found.number, found.fields[layout.TAG_NAME], found.fields[layout.TAG_USER]) for found in names} == {
        (named.session.number, b"worker-3", b"ann")
    }
    for segment in segments:
        own = [found for found in rows if found.segment == segment]
        first = next(i for i, found in enumerate(own) if found.row.actor == named.session.number)
        where = next(i for i, found in enumerate(own) if found.event == layout.SESSION_NAMED)
        # In a frame that did not fit into the segment before, the names follow its rows.
        assert where < first or own[where].time == own[first].time


def test_a_session_that_changes_its_name_is_named_again() -> None:
    queue = Logged()
    me = queue.connect(b"before")
    queue.run(me, "put", queue.tube, Draft(b"x"))
    me.session.set_client(b"after", b"ann")
    queue.run(me, "put", queue.tube, Draft(b"x"))
    me.session.set_client(b"after", b"ann")
    queue.run(me, "put", queue.tube, Draft(b"x"))
    names = [found.fields for found in rows_of(queue.disk) if found.event == layout.SESSION_NAMED]
    assert [(x[layout.TAG_NAME], x[layout.TAG_USER]) for x in names] == [(b"before", b""), (b"after", b"ann")]


@pytest.mark.parametrize("name", [b"", b"me"])
def test_the_number_of_a_session_is_not_used_again_after_a_restart(name: bytes) -> None:
    """Otherwise, the history would show the name of another client."""
    queue = Logged()
    for number in range(5):
        queue.connect(b"%d" % number)
    me = queue.connect(name)
    queue.run(me, "put", queue.tube, Draft(b"x"))
    engine = reopen(queue.disk).engine
    assert engine.connect(b"another client").session.number > me.session.number


def test_headers_are_written_with_the_body_and_survive_restarts_and_snapshots() -> None:
    queue = Logged()
    me = queue.connect(b"me")
    headers = encode_headers([("trace", b"\x00\xff"), ("type", b"text")])
    job = queue.run(me, "put", queue.tube, Draft(b"body", headers=headers))
    queue.run(me, "take", me.session, queue.tube)
    queue.run(me, "release", me.session, job)
    written = [found.fields.get(layout.TAG_HEADERS) for found in rows_of(queue.disk) if found.event < 127]
    assert written == [headers, None, None]
    for step in range(2):
        found = reopen(queue.disk.copy()).engine.jobs.find(job.id)  # type: ignore[attr-defined]
        assert found is not None and (found.headers(), found.body) == (headers, b"body")
        if step == 0:
            take_snapshot(queue.disk, queue.log, queue.engine, queue.now, queue.now)


@pytest.mark.parametrize("jobs", [10, 5_000])
def test_the_age_of_the_oldest_ready_job_survives_a_restart(jobs: int) -> None:
    """Also in a tube with more jobs than recovery handles at once."""
    queue = Logged(segment_bytes=8 * 1024 * 1024)
    for number in range(jobs):
        queue.engine.put(queue.tube, Draft(b""), queue.now + number)
    queue.now += jobs
    queue.log.commit(queue.now, queue.now)
    me = queue.connect(b"me")
    first = queue.run(me, "take", me.session, queue.tube)
    queue.run(me, "release", me.session, first)
    engine = reopen(queue.disk).engine
    check(engine)
    tube = engine.tubes[b"t"]
    assert tube.oldest_ready() == WALL + 1
    session = engine.connect(b"another").session
    for _ in range(jobs):
        assert engine.take(session, tube, engine.now) is not None
    assert tube.ready_times.groups() == []


def test_a_temporary_tube_is_empty_after_a_restart_and_keeps_policy_and_pauses() -> None:
    disk = MemoryDisk()
    opened = reopen(disk, "boot")
    engine = opened.engine
    kept_policy = dataclasses.replace(policy.FIFOTTL, temporary=True, default_ttr_ms=1_234)
    tube = engine.create_tube(b"temporary", kept_policy, WALL)
    engine.put(tube, Draft(b"not logged"), WALL)
    opened.log.commit(WALL, WALL)
    assert reopen(disk.copy(), "boot").engine.tubes[b"temporary"].policy == tube.policy
    engine.pause(tube, True, False, WALL)
    opened.log.commit(WALL, WALL)
    for step in range(3):
        again = reopen(disk, f"boot {step}")
        found = again.engine.tubes[b"temporary"]
        assert found.temporary and found.policy.default_ttr_ms == 1_234 and found.total() == 0
        assert (found.paused_in, found.paused_out) == (True, False)
        assert again.engine.jobs.count == 0 and found.number == tube.number
        check(again.engine)
        if step == 1:
            take_snapshot(disk, again.log, again.engine, WALL, WALL)
    bodies = [x.fields for x in rows_of(disk) if layout.TAG_BODY in x.fields]
    assert bodies == []
    again.engine.pause(found, False, False, WALL)
    again.engine.drop(found, WALL)
    again.log.commit(WALL, WALL)
    assert b"temporary" not in reopen(disk, "last").engine.tubes


@pytest.mark.parametrize("seed", range(3))
def test_since_of_each_row_is_the_time_of_the_previous_change_of_state(seed: int) -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    script, now = Script(opened.engine, seed), WALL
    for _ in range(400):
        now += script.chance.choice([0, 1, 100])
        opened.engine.advance(now)
        script.step(now)
        opened.log.commit(now, now)
    changed: dict[int, tuple[int, int]] = {}  # State and time of the last change, by job.
    checked = 0
    for found in rows_of(disk):
        if found.event >= layout.SNAPSHOT_JOB:
            continue
        row = found.row
        if row.job in changed:
            state, since = changed[row.job]
            # A job can have been in a temporary tube between two rows.
            if row.before == state:
                assert row.since == since, s.EVENT_NAMES[found.event]
                checked += 1
        if row.before != row.after:
            changed[row.job] = (row.after, found.time)
    assert checked > 100


def test_an_embedded_queue_writes_the_actor_of_each_command(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl")
        job = tube.put("x")
        taken = tube.take()
        taken.touch()
        taken.release()
        tube.take().nack("why")
        tube.take().bury("why")
        tube.kick(1)
        tube.take().move(queue.tube("u", "fifo"))
        queue.tube("u").take().ack()
        tube.put("y").delete()
        del job
        events = [event for event in queue.events() if event.job is not None]
    actors = {event.actor for event in events}
    assert len(actors) == 1 and None not in actors
    assert {event.event for event in events} >= {"put", "taken", "touched", "released", "nacked", "buried", "acked"}


def test_two_sessions_of_an_embedded_queue_are_different_actors(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue, queue.session() as other:
        tube = queue.tube("t", "fifottl")
        tube.put("x")
        taken = other.tube("t").take()
        tube.put("y")
        taken.ack()
        mine = tube.take()
        other.tube("t").put("z")
        mine.release()
        events = [(event.event, event.actor) for event in queue.events() if event.job is not None]
    a, b = events[0][1], events[1][1]
    assert a != b and None not in (a, b)
    assert events == [("put", a), ("taken", b), ("put", a), ("acked", b), ("taken", a), ("put", b), ("released", a)]


def test_the_end_of_an_embedded_session_and_timers_have_no_actor(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl")
        tube.put("x", ttl=0.05)
        tube.put("y")
        with queue.session() as other:
            assert other.tube("t").take().body == "x"
            tube.put("z", delay=0.01)
        while tube.take(timeout=5).body != "z":
            pass
        events = {event.event: event.actor for event in queue.events() if event.job is not None}
    assert {event for event, actor in events.items() if actor is None} >= {"disconnected", "delay passed"}
    assert None not in (events["put"], events["put delayed"], events["taken"])
