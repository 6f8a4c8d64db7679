"""Logs of earlier versions can always be read, and lead to the same state."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core import policy
from penstock.core.job import Draft
from penstock.journal.history.columns import SCHEMA, batches
from penstock.journal.history.reader import Event, Reader
from penstock.journal.real_disk import ReadOnlyDisk, RealDisk
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import SEGMENT_VERSION
from penstock.testing.invariants import check
from tests.journal.recovery.engine_fields import differences
from tests.journal.recovery.old_logs import LOGS, WALL, told

VERSIONS = sorted(path.stem for path in LOGS.glob("*.json"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def directory(version: str, tmp_path: Path) -> Path:
    """Return a copy of an old log that may be written to."""
    return Path(shutil.copytree(LOGS / version, tmp_path / version))


def test_there_is_an_old_log_of_every_version() -> None:
    assert [f"v{number}" for number in range(1, SEGMENT_VERSION + 1)] == VERSIONS


def test_an_old_log_leads_to_the_same_state_as_when_it_was_written(version: str, directory: Path) -> None:
    opened = open_log(RealDisk(str(directory)), lambda: WALL + 300_000, "boot 3")
    # Later versions have more fields.
    assert differences(json.loads((LOGS / f"{version}.json").read_text()), told(opened.engine)) == []
    assert ["torn tail of" in warning for warning in opened.warnings] == [True]
    check(opened.engine)


def test_the_history_of_an_old_log_can_be_read_as_events_and_as_columns(directory: Path) -> None:
    disk = ReadOnlyDisk(str(directory))
    reader = Reader(disk)
    events = [event for event in reader.events() if event.job is not None]
    assert len(events) > 100
    assert pa.Table.from_batches(batches(disk), SCHEMA).num_rows == len(events)
    for event in events[::10]:
        assert event.job is not None
        history = reader.history(reader._ids.parse_long(event.job.encode()))
        # A client that changes its name within a segment has its last name there in the history.
        assert nameless(event) in map(nameless, history)


def nameless(event: Event) -> Event:
    return dataclasses.replace(event, actor_name=None, actor_user=None)


@pytest.mark.parametrize("version", ["v1"])
def test_columns_that_an_old_log_lacks_are_null_until_this_version_continues_it(directory: Path) -> None:
    disk = RealDisk(str(directory))
    before = {event.position for event in Reader(disk).events()}
    opened = open_log(disk, lambda: WALL + 300_000, "boot 3")
    now = opened.engine.now
    opened.engine.put(opened.engine.create_tube(b"new", policy.FIFO, now), Draft(b"x"), now)
    opened.log.commit(now, now)
    rows = pa.Table.from_batches(batches(disk), SCHEMA).to_pylist()
    old = [row for row in rows if row["position"] in before]
    assert {(row["since"], row["actor"], row["headers"]) for row in old} == {(None, None, None)}
    assert all(row["tube_number"] for row in rows)
    assert len(old) < len(rows) and all(row["since"] for row in rows if row["position"] not in before)


@pytest.mark.parametrize("version", ["v1"])
def test_jobs_of_an_old_log_have_the_first_format(directory: Path) -> None:
    engine = open_log(RealDisk(str(directory)), lambda: WALL + 300_000, "boot 3").engine
    jobs = engine.jobs.scan(0, 10_000)
    assert len(jobs) > 10 and {int(job.format) for job in jobs} == {0}
    assert {tube.policy.row_format for tube in engine.tubes.values()} == {0}
