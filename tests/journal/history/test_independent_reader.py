"""A reader that was written from the documentation alone gets the same jobs and events as the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.journal import layout
from penstock.journal.history.reader import Reader
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import ReadOnlyDisk, RealDisk
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import segment_names
from penstock.wire.headers import decode_headers
from tests.journal.history.independent_reader import Recovered, Unknown, waits
from tests.journal.random_commands import Script
from tests.journal.recovery.upgrade_disks import OPENED, write_v1

EVENTS = {name: number for number, name in reversed(list(enumerate(s.EVENT_NAMES)))}
Jobs = dict[int, tuple[object, ...]]


def expected(engine: Engine) -> Jobs:
    """Return the jobs of an engine that are in its log."""
    return {
        job.id: (
            engine.tube_of(job).name,
            job.state,
            job.since,
            job.deliveries,
            engine.outbox.body_of(job),
            decode_headers(job.headers()),
            job.format,
        )
        for job in engine.jobs.scan(0, 100_000)
        if not engine.tube_of(job).temporary
    }


def found(directory: Path) -> tuple[Jobs, Recovered]:
    recovered = Recovered(directory, EVENTS)
    jobs: Jobs = {
        number: (
            recovered.tubes[job.row.tube],
            job.row.after,
            job.since,
            job.row.deliveries,
            job.body,
            job.headers,
            job.row.format,
        )
        for number, job in recovered.jobs.items()
    }
    return jobs, recovered


def compare_events(directory: Path, recovered: Recovered) -> None:
    events = list(Reader(ReadOnlyDisk(str(directory))).events())
    assert [(row.position, row.time) for row in recovered.rows] == [(x.position, x.time_ms) for x in events]
    for row, event in zip(recovered.rows, events, strict=True):
        if event.job is not None:
            assert (row.holder or None, row.actor or None) == (event.session, event.actor)
            assert (row.since or None) == event.since_ms


@pytest.mark.parametrize("seed", range(3))
def test_it_recovers_the_jobs_of_a_queue_with_a_snapshot(seed: int, tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    opened = open_log(disk, lambda: OPENED, "boot", segment_bytes=64 * 1024)
    script, now = Script(opened.engine, seed), OPENED
    for step in range(200):
        now += script.chance.choice([0, 1, 100])
        opened.engine.advance(now)
        script.step(now)
        opened.log.commit(now, now)
        if step == 100:
            take_snapshot(disk, opened.log, opened.engine, now, now)
    jobs, recovered = found(tmp_path)
    assert jobs == expected(opened.engine)
    assert len(jobs) > 10 and any(job[5] for job in jobs.values())
    assert recovered.sessions and any(waits(recovered.rows, EVENTS["taken"]))
    compare_events(tmp_path, recovered)


def test_it_recovers_the_jobs_of_a_directory_that_was_upgraded(tmp_path: Path) -> None:
    directory = write_v1(tmp_path / "queue")
    disk = RealDisk(str(directory))
    opened = open_log(disk, lambda: OPENED, "boot", segment_bytes=64 * 1024)
    script = Script(opened.engine, 1)
    for _ in range(60):
        script.step(OPENED)
        opened.log.commit(OPENED, OPENED)
    jobs, recovered = found(directory)
    assert jobs == expected(opened.engine)
    assert {row.version for row in recovered.rows} == {1, 2}
    compare_events(directory, recovered)


def test_it_refuses_a_newer_version(tmp_path: Path) -> None:
    opened = open_log(RealDisk(str(tmp_path)), lambda: OPENED, "boot", segment_bytes=64 * 1024)
    opened.log.close(OPENED, OPENED)
    path = tmp_path / segment_names(ReadOnlyDisk(str(tmp_path)))[0]
    data = bytearray(path.read_bytes())
    assert data[8] == 2 and layout.FRAME_VERSION == 2
    data[8] = 3
    path.write_bytes(data)
    with pytest.raises(Unknown, match="version 3"):
        Recovered(tmp_path, EVENTS)
