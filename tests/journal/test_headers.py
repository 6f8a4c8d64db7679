"""Headers in the log: written once, kept by recovery, snapshots and exports, and counted on a full disk."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import penstock
from penstock.cli.journal_export import write_json_lines, write_parquet
from penstock.core.errors import NoMemory, NoSpace
from penstock.embedded import Job
from penstock.journal.real_disk import ReadOnlyDisk
from penstock.options import headers_to_bytes
from penstock.testing.disk import MemoryDisk
from penstock.testing.invariants import check
from tests.journal.test_full_disk import MEGABYTE, a_queue, use_up

HEADERS = {"trace": "00-0af7", "raw": b"\xff"}
LONG = {"long": "x" * 8_000}


@pytest.mark.parametrize("with_snapshot", [False, True], ids=["log", "snapshot"])
def test_recovery_restores_headers_and_their_memory(tmp_path: Path, with_snapshot: bool) -> None:
    with penstock.open(tmp_path) as queue:
        jobs = queue.tube("t").put_many(["1", "2", "3"], headers=HEADERS)
        queue.tube("t").take()
        if with_snapshot:
            queue.checkpoint()
        jobs[1].delete()
        used = queue._host.engine.labels.headers
        assert used == 2 * len(headers_to_bytes(HEADERS))
    with penstock.open(tmp_path) as queue:
        assert queue._host.engine.labels.headers == used
        check(queue._host.engine)
        assert [queue.job(job.id).headers["trace"] for job in (jobs[0], jobs[2])] == ["00-0af7"] * 2


def test_only_the_first_event_of_a_job_has_its_headers(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifottl", keep=True)
        job = tube.put("body", headers=HEADERS)
        for _ in range(2):
            taken = tube.take()
            assert taken is not None
            taken.release()
        taken = tube.take()
        assert taken is not None
        taken.done("a result that is longer than the body")
        assert [event.headers is not None for event in job.history()] == [True] + [False] * 6


def test_a_job_that_leaves_a_temporary_tube_writes_its_headers(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        job = queue.tube("temporary", temporary=True).put("body", headers=HEADERS)
        job.move(queue.tube("t"))
        there_and_back = queue.tube("t").put("other", headers=HEADERS)
        there_and_back.move(queue.tube("temporary"))
        there_and_back.move(queue.tube("t"))
    with penstock.open(tmp_path) as queue:
        assert [job.headers["trace"] for job in queue.tube("t").take_many(9)] == ["00-0af7"] * 2


def test_exports_contain_headers(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    with penstock.open(tmp_path) as queue:
        queue.tube("t").put("body", headers=HEADERS)
        queue.tube("t").put("plain")
    lines, columns = io.BytesIO(), io.BytesIO()
    write_json_lines(ReadOnlyDisk(str(tmp_path)), lines, 1, True, lambda done, size: None)
    write_parquet(ReadOnlyDisk(str(tmp_path)), columns, 1, True, lambda done, size: None)
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [event.get("headers") for event in events if "job" in event] == [{"trace": "00-0af7", "raw": "\\xff"}, None]
    column = pq.read_table(io.BytesIO(columns.getvalue())).column("headers").to_pylist()
    assert column == [[("trace", b"00-0af7"), ("raw", b"\xff")], None]


# ---- Full ------------------------------------------------------------------------------------------------------------


def test_every_job_that_a_full_disk_accepted_can_be_taken_returned_and_finished() -> None:
    disk = MemoryDisk(capacity=10 * MEGABYTE)
    with a_queue(disk) as queue:
        tube = queue.tube("t", keep=True)
        accepted = 0
        with pytest.raises(NoSpace):
            while True:
                tube.put(b"", headers=LONG)
                accepted += 1
        assert 200 < accepted < 10 * MEGABYTE // 8_000
        with pytest.raises(NoSpace):
            tube.put_many([b""] * 1_000, headers=LONG)
        jobs = tube.take_many(accepted)
        assert len(jobs) == accepted and all(job.headers == LONG for job in jobs)
        for job in jobs[: accepted // 2]:
            job.release()
        assert use_up(tube) > 0
        for job in jobs[accepted // 2 :]:
            # The headers are not written again, so the space that is reserved for acks is sufficient.
            job.done(b"")
        check(queue._host.engine)
    with a_queue(disk) as queue:
        assert sum(queue.tube("t").stats().values()) == accepted
        assert all(job.headers == LONG for job in queue.tube("t").jobs("done"))


@pytest.mark.parametrize("place", ["memory", "directory"])
def test_headers_count_for_the_memory_limit(tmp_path: Path, place: str) -> None:
    limit = 2 * MEGABYTE
    with penstock.open(":memory:" if place == "memory" else tmp_path, memory_limit=limit) as queue:
        tube = queue.tube("t")
        accepted = 0
        with pytest.raises(NoMemory):
            while True:
                tube.put(b"", headers=LONG)
                accepted += 1
        assert limit // 8_500 - 5 < accepted < limit // 8_000
        for job in tube.take_many(accepted):
            job.ack()
        assert queue._host.engine.labels.headers == 0
        assert isinstance(tube.put(b"", headers=LONG), Job)
