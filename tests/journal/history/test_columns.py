"""The log as Arrow columns contains the same events as the log read event by event."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.core import policy
from penstock.core.job import Draft
from penstock.journal.history.columns import SCHEMA, batches
from penstock.journal.history.reader import Event, Reader
from penstock.journal.recovery.opening import open_log
from penstock.testing.disk import MemoryDisk
from penstock.wire.headers import encode_headers
from tests.journal.maintenance.test_snapshot import Life
from tests.journal.shortened_queue import WALL


@pytest.fixture(scope="module")
def disk() -> MemoryDisk:
    """Write a log of three opens, with everything that a log can contain."""
    disk = MemoryDisk()
    for seed in range(3):
        life = Life(disk, seed)
        life.work(150)
        life.take_snapshot(3)
    return disk


def in_ms(moment: datetime.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def text(raw: bytes | None) -> str | None:
    return raw.decode("utf-8", "backslashreplace") if raw else None


def as_event(row: dict[str, Any], job: str | None) -> Event:
    return Event(
        position=row["position"],
        time_ms=in_ms(row["time"]) or 0,
        event=row["event"],
        tube=row["tube"],
        job=job,
        before=row["before"],
        after=row["after"],
        session=row["session"],
        actor=row["actor"],
        since_ms=in_ms(row["since"]),
        number=row["number"],
        priority=row["priority"],
        deliveries=row["deliveries"],
        nacks=row["nacks"],
        returns=row["returns"],
        wake_ms=in_ms(row["wake"]),
        expiry_ms=in_ms(row["expiry"]),
        key=text(row["key"]),
        reason=row["reason"],
        body=row["body"],
        headers=headers(row["headers"]),
    )


def headers(found: list[tuple[str, bytes]] | None) -> dict[str, str] | None:
    return None if found is None else {name: value.decode("utf-8", "surrogateescape") for name, value in found}


@pytest.mark.parametrize("batch_bytes", [4 * 1024 * 1024, 2_000])
def test_every_event_of_every_job_is_a_row(disk: MemoryDisk, batch_bytes: int) -> None:
    # The columns have the numbers of sessions, not their names.
    nameless = {"actor_name": None, "actor_user": None}
    expected = [dataclasses.replace(event, **nameless) for event in Reader(disk).events() if event.job is not None]
    table = pa.Table.from_batches(batches(disk, batch_bytes), SCHEMA)
    rows = table.to_pylist()
    assert len(rows) == len(expected) > 300
    assert [as_event(row, event.job) for row, event in zip(rows, expected, strict=True)] == expected


def test_the_rows_of_a_job_point_to_each_other(disk: MemoryDisk) -> None:
    newest: dict[int, int] = {}
    for batch in batches(disk):
        for row in batch.to_pylist():
            if row["before_position"]:
                assert newest[row["job"]] == row["before_position"]
            newest[row["job"]] = row["position"]


def test_an_empty_log_has_no_rows() -> None:
    disk = MemoryDisk()
    Life(disk, 1).opened.log.close(1, 1)
    assert list(batches(disk)) == []


def test_a_reason_that_is_not_utf8_is_escaped() -> None:
    """The bytes of two adjacent reasons could look like text to a reader that ignores where each one ends."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    session = engine.connect(b"session").session
    tube = engine.create_tube(b"t", policy.FIFOTTL, WALL)
    for reason in (b"caf\xc3", b"\xa9", b"caf\xc3\xa9"):
        engine.put(tube, Draft(b"x"), WALL)
        job = engine.take(session, tube, WALL)
        assert job is not None
        engine.bury(session, job, WALL, reason)
    log.commit(WALL, WALL)
    table = pa.Table.from_batches(batches(disk), SCHEMA)
    table.validate(full=True)
    told = [row["reason"] for row in table.to_pylist() if row["event"] == "buried"]
    assert told == ["caf\\xc3", "\\xa9", "café"]


def test_headers_are_maps_and_jobs_without_headers_have_none() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    tube = engine.create_tube(b"t", policy.FIFOTTL, WALL)
    given: list[list[tuple[str, bytes]]] = [[("trace", b"\xff"), ("größe", b"")], [], [("a", b"1")]]
    for headers in given:
        engine.put(tube, Draft(b"x", headers=encode_headers(headers)), WALL)
    session = engine.connect(b"session").session
    assert engine.take(session, tube, WALL) is not None
    log.commit(WALL, WALL)
    table = pa.Table.from_batches(batches(disk), SCHEMA)
    table.validate(full=True)
    assert [row["headers"] for row in table.to_pylist()] == [given[0], None, given[2], None]
