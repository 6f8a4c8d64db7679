"""Bodies beyond the memory limit are on disk only, and users of the queue see no difference."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import policy
from penstock.core.engine import Engine
from penstock.core.errors import CommandError, DamagedJournal, NoMemory, OutOfRange
from penstock.core.job import BodyRef, Draft, Job
from penstock.core.limits import JOB_MEMORY_BYTES
from penstock.core.moves import tube_bytes
from penstock.core.sessions import Session
from penstock.core.states import BURIED
from penstock.core.tube import Tube
from penstock.embedded_async import AsyncQueue
from penstock.host.host import Host
from penstock.journal.bodies import Bodies
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import RealFile
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import segment_name, snapshot_name, snapshot_names
from penstock.testing import digest
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.maintenance_waits import wait_for_rest
from tests.journal.shortened_queue import SEGMENT, WALL

LIMIT = 1024 * 1024
JOBS = 2_000  # 8 MB of bodies.


def body(number: int) -> bytes:
    """Return 4 KB that depend on the number."""
    return b"%08d" % number * 512


def open_small(directory: Path, **options: Any) -> penstock.Queue:
    return penstock.open(directory, fsync="never", memory_limit=LIMIT, **options)


def open_large(directory: Path) -> penstock.Queue:
    return penstock.open(directory, fsync="never")


def resident_bytes(queue: penstock.Queue) -> int:
    return queue._host.engine.resident_bytes


def on_disk(queue: penstock.Queue) -> int:
    """Return how many jobs have their bodies on disk only."""
    return sum(isinstance(job.body, BodyRef) for job in queue._host.engine.jobs.scan(0, 100_000))


# For each type of tube: the options of a put, and the order in which the numbers are served.
KINDS: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[int], Any]]] = {
    "fifo": (lambda number: {}, lambda number: number),
    "fifottl": (lambda number: {"priority": number * 7 % 5}, lambda number: (number * 7 % 5, number)),
    "utube": (lambda number: {"key": f"key-{number % 10}"}, lambda number: number),
    "disque": (lambda number: {}, lambda number: number),
}


def fill(queue: penstock.Queue, kind: str, numbers: range) -> None:
    tube = queue.tube(kind, kind)  # type: ignore[arg-type]
    for number in numbers:
        tube.put(body(number), **KINDS[kind][0](number))
        assert resident_bytes(queue) <= LIMIT + len(body(0))


def drain(queue: penstock.Queue, kind: str, count: int) -> list[int]:
    """Take and ack `count` jobs one after the other. Return their numbers."""
    tube = queue.tube(kind)
    numbers = []
    for _ in range(count):
        job = tube.take()
        assert job is not None
        number = int(job.body[:8])
        assert job.body == body(number)
        job.ack()
        assert job.body == body(number), "the consumer can read a taken job after its ack"
        numbers.append(number)
        assert resident_bytes(queue) <= LIMIT + len(body(0))
    return numbers


@pytest.mark.parametrize("kind", KINDS)
def test_all_bodies_come_back_in_order_and_memory_stays_small(tmp_path: Path, kind: str) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, kind, range(JOBS))
        assert on_disk(queue) > JOBS * 2 // 3
        assert drain(queue, kind, JOBS) == sorted(range(JOBS), key=KINDS[kind][1])
        assert queue.tube(kind).take() is None and resident_bytes(queue) == 0
        check(queue._host.engine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reopen", [open_small, open_large])
@pytest.mark.parametrize("snapshot", [False, True])
def test_all_bodies_come_back_after_a_restart(
    tmp_path: Path, kind: str, reopen: Callable[[Path], penstock.Queue], snapshot: bool
) -> None:
    with open_small(tmp_path, history_bytes=0) as queue:
        fill(queue, kind, range(JOBS))
        if snapshot:
            queue.checkpoint()
    with reopen(tmp_path) as queue:
        if reopen is open_small:
            assert resident_bytes(queue) <= LIMIT and on_disk(queue) > JOBS // 2
            assert drain(queue, kind, JOBS) == sorted(range(JOBS), key=KINDS[kind][1])
        else:
            assert on_disk(queue) == 0
            tube = queue.tube(kind)
            found = []
            while (job := tube.take()) is not None:
                found.append(job.body)
                job.ack()
            assert found == [body(number) for number in sorted(range(JOBS), key=KINDS[kind][1])]


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_between_puts_and_takes_lose_no_body(tmp_path: Path, kind: str) -> None:
    """Without history, each checkpoint removes all files that bodies were in."""
    left = set(range(JOBS))
    with open_small(tmp_path, history_bytes=0) as queue:
        for start in range(0, JOBS, 500):
            fill(queue, kind, range(start, start + 500))
            queue.checkpoint()
            left -= set(drain(queue, kind, 100))
            queue.checkpoint()
        check(queue._host.engine)
    with open_small(tmp_path, history_bytes=0) as queue:
        queue.checkpoint()
        assert drain(queue, kind, len(left)) == sorted(left, key=KINDS[kind][1])


def test_jobs_that_come_back_bring_their_bodies(tmp_path: Path) -> None:
    with open_small(tmp_path, history_bytes=0) as queue:
        fill(queue, "fifottl", range(600))
        tube = queue.tube("fifottl")
        jobs = tube.take_many(600)
        for number, job in enumerate(jobs):
            (job.release, job.bury, lambda job=job: job.release(delay=0.001), job.requeue)[number % 4]()
        queue.checkpoint()
        assert tube.kick(600) == 150
        assert {job.body for job in tube.jobs("ready")} <= {body(number) for number in range(600)}
    with open_small(tmp_path) as queue:
        assert sorted(drain(queue, "fifottl", 600)) == list(range(600))


def test_a_job_that_is_not_taken_shows_its_body(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        tube = queue.tube("t")
        jobs = [tube.put(body(number)) for number in range(600)]
        assert isinstance(jobs[-1]._core.body, BodyRef)
        assert [job.body for job in jobs] == [body(number) for number in range(600)]
        assert [queue.job(job.id).body for job in jobs[-10:]] == [body(number) for number in range(590, 600)]
        queue.checkpoint()
        assert [event.body for event in jobs[-1].history()] == [body(599)]
        assert [job.body for job in jobs] == [body(number) for number in range(600)]


def test_the_result_of_a_job_takes_the_place_of_a_body_on_disk(tmp_path: Path) -> None:
    with open_small(tmp_path, history_bytes=0) as queue:
        fill(queue, "fifottl", range(600))
        jobs = queue.tube("fifottl").take_many(600)
        for job in jobs:
            number = int(job.body[:8])
            job.done(body(number + 10_000))
            assert job.body == body(number + 10_000)
            assert resident_bytes(queue) <= LIMIT + len(body(0))
        queue.checkpoint()
        assert sorted(job.body for job in jobs) == [body(number + 10_000) for number in range(600)]


def test_a_job_that_moves_to_a_temporary_tube_keeps_its_body_over_checkpoints(tmp_path: Path) -> None:
    with open_small(tmp_path, history_bytes=0) as queue:
        temporary = queue.tube("temporary", "fifo", temporary=True)
        jobs = [queue.tube("t").put(body(number)) for number in range(600)]
        assert isinstance(jobs[-1]._core.body, BodyRef)
        for job in jobs[-50:]:
            job.move(temporary)
        for _ in range(2):
            queue.checkpoint()
        assert [job.body for job in temporary.take_many(99)] == [body(number) for number in range(550, 600)]
        for job in jobs[-50:]:
            job.move(queue.tube("back", "fifo"))
        queue.checkpoint()
    with open_small(tmp_path) as queue:
        assert [job.body for job in queue.tube("back").take_many(99)] == [body(number) for number in range(550, 600)]


def test_a_body_on_disk_counts_for_the_capacity_of_its_tube(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        tube = queue.tube("small", "fifo", capacity_bytes=10 * 4_096)
        for number in range(10):
            tube.put(body(number))
        with pytest.raises(penstock.CommandError) as refused:
            tube.put(body(10))
        assert refused.value.code == "FULL"
        job = tube.take()
        assert job is not None
        job.ack()
        tube.put(body(10))


def test_tubes_that_look_jobs_up_by_their_bodies_keep_them_in_memory(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        tube = queue.tube("unique", "queue15")
        engine = queue._host.engine
        twins = [
            [engine.put(tube._core, Draft(body(number), same_body=True), engine.now).id for number in range(20)]
            for _ in range(2)
        ]
        assert twins[0] == twins[1]
        moved = queue.tube("fifo").jobs("ready", 500)[-1]
        assert isinstance(moved._core.body, BodyRef)
        moved.move(tube)
        again = engine.put(tube._core, Draft(moved.body, same_body=True), engine.now)
        assert again is moved._core
        check(engine)


def test_tubes_that_look_jobs_up_by_their_bodies_do_so_after_a_restart(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        queue.tube("unique", "queue15").put_many([body(number) for number in range(20)])
    with open_small(tmp_path) as queue:
        engine, tube = queue._host.engine, queue.tube("unique")
        for number in range(20):
            engine.put(tube._core, Draft(body(number), same_body=True), engine.now)
        assert tube.stats()["ready"] == 20
        check(engine)


def test_puts_are_refused_when_jobs_alone_are_too_many_and_acks_make_room(tmp_path: Path) -> None:
    most = (LIMIT - tube_bytes(b"t", policy.FIFOTTL)) // JOB_MEMORY_BYTES
    with open_small(tmp_path) as queue:
        tube = queue.tube("t")
        tube.put_many([b"x"] * (most - 1))
        tube.put("the last")
        with pytest.raises(NoMemory):
            tube.put("one more")
        with pytest.raises(NoMemory):
            tube.put_many(["one more", "and another"])
        assert tube.stats()["ready"] == most
        job = tube.take()
        assert job is not None
        job.ack()
        tube.put("fits")
        with pytest.raises(NoMemory):
            tube.put("one more")
    with open_small(tmp_path) as queue:
        with pytest.raises(NoMemory):
            queue.tube("t").put("one more")
        assert len(queue.tube("t").take_many(10_000)) == most


def test_in_memory_puts_beyond_the_limit_are_refused_and_acks_make_room() -> None:
    with penstock.open(":memory:", memory_limit=LIMIT) as queue:
        tube = queue.tube("t")
        put = 0
        with pytest.raises(NoMemory):
            while True:
                tube.put(body(put))
                put += 1
        assert put == (LIMIT - tube_bytes(b"t", policy.FIFOTTL)) // (4_096 + JOB_MEMORY_BYTES)
        with pytest.raises(NoMemory):
            tube.put_many([body(0)])
        assert drain(queue, "t", 1) == [0]
        tube.put(body(put))
        assert drain(queue, "t", put) == list(range(1, put + 1))


def test_an_implausibly_low_limit_is_refused(tmp_path: Path) -> None:
    for path in (":memory:", tmp_path):
        with pytest.raises(OutOfRange, match="memory_limit"):
            penstock.open(path, memory_limit=LIMIT - 1)


def test_tasks_get_their_bodies_from_disk_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.open_async(tmp_path, fsync="never", memory_limit=LIMIT, history_bytes=0) as queue:
            tube = await queue.tube("t", "fifo")
            for number in range(1_000):
                await tube.put(body(number))
                assert resident_bytes(queue.sync) <= LIMIT + len(body(0))
            assert on_disk(queue.sync) > 500
            await queue.checkpoint()
            first = await tube.take_many(400)
            assert [job.body for job in first] == [body(number) for number in range(400)]
            for job in first:
                await job.ack()
            await queue.checkpoint()
            assert [job.body for job in first] == [body(number) for number in range(400)]
            waiting = asyncio.ensure_future(tube.take(timeout=None))
            job = await waiting
            assert job is not None and job.body == body(400)
            await job.release()
        async with penstock.open_async(tmp_path, memory_limit=LIMIT) as queue:
            tube = await queue.tube("t")
            assert [job.body for job in await tube.take_many(999)] == [body(number) for number in range(400, 1_000)]

    asyncio.run(main())


def test_put_many_respects_the_limit(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        queue.tube("t").put_many([body(number) for number in range(JOBS)])
        assert resident_bytes(queue) <= LIMIT + len(body(0))


def test_jobs_and_bodies_together_stay_within_the_limit_after_a_restart(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(JOBS))
    with open_small(tmp_path) as queue:
        assert resident_bytes(queue) + JOBS * JOB_MEMORY_BYTES <= LIMIT + len(body(0))


def test_an_interrupted_commit_mixes_no_bodies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        wait_for_rest(queue)
        tube = queue.tube("fifo")

        def interrupted(self: RealFile, offset: int, data: bytes) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(RealFile, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tube.put(body(500))
        tube.put(body(501))
        assert drain(queue, "fifo", 502) == list(range(502))


def test_the_limit_holds_from_the_first_put_after_a_restart(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        queue.tube("t").put("x")
    with open_small(tmp_path) as queue:
        queue.tube("t").put_many([body(number) for number in range(JOBS)])
        assert resident_bytes(queue) <= LIMIT + len(body(0))


@pytest.mark.parametrize(
    "history",
    [
        {"history_bytes": 0},
        {"history_bodies": False},
    ],
)
def test_a_take_that_a_checkpoint_overtakes_gets_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: dict[str, Any]
) -> None:
    """The take has read where the body is. Then the body moves: its file is removed or rewritten."""
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(600))
    with open_small(tmp_path, **history) as queue:
        read = Bodies.read

        def overtaken(self: Bodies, ref: BodyRef) -> bytes:
            monkeypatch.undo()
            shorten = threading.Thread(target=queue.checkpoint)
            shorten.start()
            shorten.join()
            return read(self, ref)

        monkeypatch.setattr(Bodies, "read", overtaken)
        job = queue.tube("fifo").take()
        assert job is not None and job.body == body(0)


def test_a_take_that_is_interrupted_while_it_reads_a_body_gives_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(10))
    with open_small(tmp_path) as queue:
        tube = queue.tube("fifo")
        for take in (tube.take, lambda: tube.take_many(3), lambda: queue.take([tube], 3)):

            def interrupted(self: Bodies, ref: BodyRef) -> bytes:
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(Bodies, "read", interrupted)
            with pytest.raises(KeyboardInterrupt):
                take()
            assert tube.stats()["ready"] == 10
        assert drain(queue, "fifo", 10) == list(range(10))


def test_a_job_that_moves_to_a_temporary_tube_after_an_interrupt_keeps_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path, history_bytes=0) as queue:
        fill(queue, "fifo", range(500))
        wait_for_rest(queue)
        tube, temporary = queue.tube("fifo"), queue.tube("temporary", "fifo", temporary=True)

        def interrupted(self: RealFile, offset: int, data: bytes) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(RealFile, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tube.put(body(500), name="last")
        engine = queue._host.engine
        with queue._session:
            # Before anything is written again.
            job = engine.find_named(tube._core, b"last", engine.now)
            assert job is not None
            engine.move(queue._session.connection.session, job, temporary._core, engine.now)
        assert job.body == body(500)


def test_reading_the_body_of_a_job_that_is_gone_with_its_file_is_refused(tmp_path: Path) -> None:
    """The producer has not read the body and may ask for it after the job and its file are gone."""
    with open_small(tmp_path, history_bytes=0) as queue:
        fill(queue, "fifo", range(500))
        put = queue.tube("fifo").put(body(500))
        drain(queue, "fifo", 501)
        queue.checkpoint()
        try:
            assert put.body == body(500)
        except CommandError as error:
            assert error.code == "NOJOB"


def test_a_body_that_changes_within_one_commit_is_the_one_it_changed_to() -> None:
    opened = open_log(MemoryDisk(), lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine, log = opened.engine, opened.log
    log.writer.memory_left = -1
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    session = engine.connect(b"c" * 16).session
    job = engine.put(tube, Draft(b"first" * 100), WALL)
    assert engine.take(session, tube, WALL) is job
    engine.release(session, job, WALL, body=b"second" * 50)
    log.commit(WALL, WALL)
    assert engine.outbox.body_of(job) == b"second" * 50


@pytest.mark.parametrize("target", [dataclasses.replace(policy.FIFO, temporary=True), policy.QUEUE15])
def test_a_job_that_moves_within_one_commit_to_where_bodies_are_kept_in_memory_keeps_its_own(
    target: policy.TubePolicy,
) -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine, log = opened.engine, opened.log
    log.writer.memory_left = -1
    source, other = engine.create_tube(b"source", policy.FIFO, WALL), engine.create_tube(b"other", target, WALL)
    session = engine.connect(b"c" * 16).session
    job = engine.put(source, Draft(b"body" * 100), WALL)
    engine.move(session, job, other, WALL)
    log.commit(WALL, WALL)
    assert job.body == b"body" * 100
    take_snapshot(disk, log, engine, WALL, WALL)
    check(engine)


IN_MEMORY = [
    dataclasses.replace(policy.FIFOTTL, temporary=True),
    dataclasses.replace(policy.FIFOTTL, unique_bodies=True),
]


def with_a_damaged_body(target: policy.TubePolicy, retry: str = "") -> tuple[Engine, Session, Tube, Job]:
    """Return an engine, a tube that keeps bodies in memory, and a taken job of another tube with a damaged body."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine, log = opened.engine, opened.log
    log.writer.memory_left = -1
    source = engine.create_tube(b"source", dataclasses.replace(policy.FIFOTTL, retry=retry), WALL)
    other = engine.create_tube(b"other", target, WALL)
    session = engine.connect(b"c" * 16).session
    job = engine.put(source, Draft(b"body" * 100, ttr_ms=1_000), WALL)
    log.commit(WALL, WALL)
    assert engine.take(session, source, WALL) is job and isinstance(job.body, BodyRef)
    disk.open(segment_name(job.body.file)).write(job.body.offset + 5, b"?")
    return engine, session, other, job


@pytest.mark.parametrize("target", IN_MEMORY)
def test_a_dead_letter_that_cannot_be_read_is_buried_where_it_is(target: policy.TubePolicy) -> None:
    engine, _, other, job = with_a_damaged_body(target, "1x then move other")
    engine.advance(WALL + 1_000)
    assert job.state == BURIED and b"damaged" in job.ensure_extra().reason
    assert other.total() == 0
    check(engine)


@pytest.mark.parametrize("target", IN_MEMORY)
def test_a_move_that_is_refused_because_its_body_cannot_be_read_has_changed_nothing(target: policy.TubePolicy) -> None:
    engine, session, other, job = with_a_damaged_body(target)
    before = digest(engine)
    with pytest.raises(DamagedJournal):
        engine.move(session, job, other, WALL, delay_ms=50)
    assert digest(engine) == before
    check(engine)


def damage(queue: penstock.Queue, number: int) -> None:
    """Change a byte of a body that is on disk only."""
    journal = queue._host.require_journal()
    (ref,) = [
        job.body
        for job in queue._host.engine.jobs.scan(0, 100_000)
        if isinstance(job.body, BodyRef) and journal.log.bodies.read(job.body) == body(number)
    ]
    assert isinstance(ref, BodyRef)
    name = segment_name(ref.file) if ref.file > 0 else snapshot_name(-ref.file)
    file = journal.disk.open(name)
    file.write(ref.offset + 5, b"?")
    file.close()


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_damaged_body_is_an_error_and_its_job_is_buried(tmp_path: Path, snapshot: bool) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        if snapshot:
            queue.checkpoint()
        tube = queue.tube("fifo")
        last = tube.jobs("ready", 1_000)[-1]
        damage(queue, 499)
        with pytest.raises(DamagedJournal, match="wrong checksum"):
            tube.take_many(500)
        assert tube.stats()["ready"] == 499 and tube.stats()["buried"] == 1
        with pytest.raises(DamagedJournal):
            last.body  # noqa: B018
        assert "damaged" in last.meta()["reason"]
        assert drain(queue, "fifo", 499) == list(range(499))


def test_a_damaged_body_is_not_copied_into_a_snapshot_as_if_it_were_good(tmp_path: Path) -> None:
    with open_small(tmp_path) as queue:
        fill(queue, "fifo", range(500))
        damage(queue, 499)
        with pytest.raises(DamagedJournal):
            queue.checkpoint()
        assert snapshot_names(queue._host.require_journal().disk) == []


def before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Run a callback after jobs were taken and before the first of their bodies is read."""
    body_of = Host.body_of

    def acting(self: Host, job: Job) -> bytes:
        monkeypatch.undo()
        act()
        return body_of(self, job)

    monkeypatch.setattr(Host, "body_of", acting)


@pytest.mark.parametrize("deleted", [[498], [499], [498, 499]])
@pytest.mark.parametrize("face", ["sync", "async"])
def test_jobs_deleted_before_they_are_read_do_not_hold_back_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: list[int], face: str
) -> None:
    with open_small(tmp_path) as queue, queue.session() as another:
        fill(queue, "fifo", range(500))
        tube = queue.tube("fifo")
        ids = [job.id for job in tube.jobs("ready", 1_000)]
        tube.take_many(498)
        before_reading(monkeypatch, lambda: [another.job(ids[number]).delete() for number in deleted] and None)

        async def take_many() -> list[Any]:
            return await (await AsyncQueue(queue).tube("fifo")).take_many(10)

        found = tube.take_many(10) if face == "sync" else asyncio.run(take_many())
        assert [job.body for job in found] == [body(number) for number in (498, 499) if number not in deleted]
        assert tube.stats()["taken"] == 500 - len(deleted)


def test_a_take_whose_job_is_deleted_before_it_is_read_goes_on_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path) as queue, queue.session() as another:
        fill(queue, "fifo", range(500))
        tube = queue.tube("fifo")
        tube.take_many(498)
        first = tube.jobs("ready")[0].id
        before_reading(monkeypatch, another.job(first).delete)
        job = tube.take()
        assert job is not None and job.body == body(499)


def test_a_handle_shows_the_body_that_its_job_has_now(tmp_path: Path) -> None:
    """The handle has read an earlier body from disk. The present body is on disk, too."""
    with open_small(tmp_path) as queue:
        fill(queue, "fifottl", range(500))
        tube = queue.tube("fifottl")
        *_, job = tube.take_many(500)
        another = queue.job(job.id)
        assert isinstance(job._core.body, BodyRef)
        before = job.body
        another.done(body(7_000))
        for number in range(500):
            tube.put(body(number), key=None)
        assert job.body == another.body == body(7_000) != before
