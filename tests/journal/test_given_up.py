"""The log marks the events with which a retry policy gives a job up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.journal.history.columns import SCHEMA, batches
from penstock.journal.layout import FLAG_GIVEN_UP
from penstock.journal.real_disk import ReadOnlyDisk


def marked(directory: Path) -> list[tuple[str, str, bool]]:
    rows = pa.Table.from_batches(batches(ReadOnlyDisk(str(directory))), SCHEMA).to_pylist()
    return [(row["tube"], row["event"], bool(row["flags"] & FLAG_GIVEN_UP)) for row in rows]


@pytest.mark.parametrize(
    ("then", "end"),
    [
        ("bury", [("t", "exhausted", True)]),
        ("drop", [("t", "discarded", True)]),
        ("move dead", [("t", "moved out", True), ("dead", "moved in", False)]),
    ],
)
def test_a_job_that_fails_too_often_is_marked_as_given_up(
    tmp_path: Path, then: str, end: list[tuple[str, str, bool]]
) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifo", retry=f"2x then {then}")
        tube.put("x")
        tube.take().nack("one")
        tube.take().nack("two")
    failure = [("t", "taken", False), ("t", "nacked", False)]
    assert marked(tmp_path) == [("t", "put", False), *failure, *failure, *end]


def test_a_job_that_a_user_moves_or_buries_is_not_given_up(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifo", retry="2x then move dead")
        tube.put("x")
        tube.take().nack("one")
        tube.take().move(queue.tube("dead", "fifo"))
        queue.tube("dead").take().bury("enough")
        queue.tube("dead").kick()
        tube.put("y")
        tube.take().nack("one")
        tube.take().ack()
    assert not any(given_up for _, _, given_up in marked(tmp_path))


def test_a_dead_letter_tube_without_a_log_leaves_other_rows_unmarked(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("lost", "fifo", temporary=True)
        kept = queue.tube("kept", "fifo", retry="1x then move lost")
        kept.put("x")
        kept.take().nack()
        unlogged = queue.tube("unlogged", "fifo", temporary=True, retry="1x then move kept")
        kept.put("y")
        unlogged.put("z")
        unlogged.take().nack()
    assert [event for event in marked(tmp_path) if event[2]] == [("kept", "moved out", True)]
