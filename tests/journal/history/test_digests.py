"""Digests of blocks: the same from indexes, from files and from columns, and different if a byte differs."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import policy
from penstock.core.errors import DamagedJournal, Trimmed
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.host.maintenance.indexes import IndexService
from penstock.host.maintenance.pacing import Pacing
from penstock.journal import layout
from penstock.journal.checksum import crc32
from penstock.journal.disk import ReadableDisk
from penstock.journal.history.block import BLOCK_ROWS, EMPTY_SHA256, BlockDigest
from penstock.journal.history.columns import SCHEMA, batches
from penstock.journal.history.follower import LogFollower
from penstock.journal.history.index import SegmentIndex, decode_blocks, decode_index
from penstock.journal.history.reader import Reader
from penstock.journal.maintenance.retention import Retention, rewrite, trim, without_bodies
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.recovery.repair import repair
from penstock.journal.segment import FrameFile, index_name, number_of, remove_index, segment_name, segment_names
from penstock.testing.disk import MemoryDisk
from penstock.wire.headers import encode_headers
from tests.journal.changing_disk import ChangingDisk
from tests.journal.history.arrow_digests import block_of
from tests.journal.maintenance.test_snapshot import Life
from tests.journal.recovery.old_logs import LOGS
from tests.journal.shortened_queue import WALL, write_index

SEGMENT = 1536 * 1024


def new_log(disk: MemoryDisk) -> Opened:
    return open_log(disk, lambda: WALL, "one boot", segment_bytes=SEGMENT)


def put_many(opened: Opened, count: int, together: int = 100) -> None:
    """Put jobs with bodies, keys and headers, and bury some of them."""
    engine, log = opened.engine, opened.log
    tube = engine.create_tube(b"many", policy.UTUBETTL, WALL)
    session = engine.connect(b"%016d" % log.written).session
    for number in range(count):
        headers = encode_headers([("trace", b"\xff%d" % number), ("é", b"")]) if number % 7 == 0 else b""
        key = b"" if number % 3 else b"key \xff %d" % (number % 50)
        ttl_ms = 60_000 if number % 2 else NEVER
        engine.put(tube, Draft(b"%d" % number, ttl_ms, key=key, headers=headers), WALL)
        if number % 5 == 0 and (job := engine.take(session, tube, WALL)) is not None:
            engine.bury(session, job, WALL, b"caf\xc3 %d" % number if number % 2 else "café".encode())
        if number % together == 0:
            log.commit(WALL, WALL)
    log.commit(WALL, WALL)
    log.make_durable(log.written)


@functools.cache
def written() -> MemoryDisk:
    """Return a log with several full segments, of some blocks each, without indexes."""
    disk = MemoryDisk()
    life = Life(disk, 1)
    life.work(100)
    life.take_snapshot(3)
    life.opened.log.close(life.now, life.now)
    opened = new_log(disk)
    put_many(opened, 14_000)
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    put_many(opened, 100)
    opened.log.close(WALL, WALL)
    assert len(full_segments(disk)) > 4
    return disk


@pytest.fixture
def disk() -> MemoryDisk:
    return written().copy()


@functools.cache
def columns() -> pa.Table:
    return pa.Table.from_batches(batches(written()), SCHEMA)


def full_segments(disk: MemoryDisk) -> list[str]:
    return segment_names(disk)[:-1]


def index_all(disk: MemoryDisk) -> MemoryDisk:
    for name in full_segments(disk):
        write_index(disk, name)
    return disk


def all_blocks(disk: ReadableDisk) -> list[BlockDigest]:
    reader = Reader(disk)
    return list(reader.blocks(reader.first() or 1))


def check_covered(blocks: list[BlockDigest], start: int, end: int) -> None:
    assert [block.first for block in blocks] == [start, *(block.end for block in blocks[:-1])]
    assert not blocks or blocks[-1].end == end
    assert all(0 <= block.rows <= block.end - block.first <= BLOCK_ROWS for block in blocks)


def without(block: BlockDigest) -> BlockDigest:
    return dataclasses.replace(block, bodies_sha256=None)


def test_blocks_can_be_computed_from_columns_alone(disk: MemoryDisk) -> None:
    blocks = all_blocks(disk)
    assert blocks == [block_of(columns(), block.first, block.end) for block in blocks]
    assert sum(block.rows for block in blocks) == len(columns()) > 12_000
    check_covered(blocks, 1, blocks[-1].end)
    for name in ("key", "reason", "headers", "since", "actor", "session", "wake", "expiry", "flags"):
        values = columns().column(name).to_pylist()
        assert any(value != values[0] for value in values), f"the test needs different values of {name}"


def test_a_block_ends_at_a_multiple_of_its_size_or_with_its_segment(disk: MemoryDisk) -> None:
    starts = [FrameFile(disk, name).header.position for name in segment_names(disk)]
    blocks = all_blocks(disk)
    assert {block.first for block in blocks} == {
        *(start for start in starts if start),
        *range(BLOCK_ROWS, blocks[-1].end, BLOCK_ROWS),
    }


def test_blocks_are_the_same_with_indexes(disk: MemoryDisk) -> None:
    expected = all_blocks(disk)
    index_all(disk)
    assert all_blocks(disk) == expected
    stored = [block for name in full_segments(disk) for block in stored_in(disk, name)]
    assert stored == expected[: len(stored)] and len(stored) >= len(expected) - 2


def stored_in(disk: ReadableDisk, name: str) -> list[BlockDigest]:
    index = index_name(number_of(name))
    return decode_blocks(index, disk.read(index))


@pytest.mark.parametrize("indexed", [True, False])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_blocks_are_cut_exactly_where_they_are_requested(indexed: bool, data: st.DataObject) -> None:
    disk = indexed_disk() if indexed else written()
    last = columns().column("position")[-1].as_py() + 1
    bounds = st.one_of(st.integers(1, last), st.integers(0, last // BLOCK_ROWS).map(lambda n: max(1, n * BLOCK_ROWS)))
    start, end = sorted((data.draw(bounds), data.draw(bounds)))
    blocks = list(Reader(disk).blocks(start, end))
    if start == end:
        assert blocks == []
    else:
        check_covered(blocks, start, end)
        assert blocks == [block_of(columns(), block.first, block.end) for block in blocks]


@functools.cache
def indexed_disk() -> MemoryDisk:
    return index_all(written().copy())


def test_a_request_reads_little_more_than_its_ragged_ends_if_there_are_indexes() -> None:
    disk = indexed_disk()
    expected = all_blocks(disk)
    reader = Reader(disk)
    assert list(reader.blocks(expected[1].first, expected[5].end)) == expected[1:6]
    assert all(not segment._is_complete for segment in reader._segment_cache.values()), "only blocks were read"


EXPECTED: dict[str, list[BlockDigest]] = {}  # The digests of the first example.


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 5_000), max_size=30), st.sampled_from([1, 17, 6_000]))
def test_the_sizes_of_frames_do_not_change_digests(sizes: list[int], rest: int) -> None:
    def blocks(cuts: Iterator[int]) -> list[BlockDigest]:
        disk = MemoryDisk()
        opened = open_log(disk, lambda: WALL, "one boot", segment_bytes=1 << 26)
        tube = opened.engine.create_tube(b"t", policy.FIFO, WALL)
        left = next(cuts)
        for number in range(6_000):
            opened.engine.put(tube, Draft(b"%d" % number), WALL)
            left -= 1
            if left == 0:
                opened.log.commit(WALL, WALL)
                left = next(cuts)
        opened.log.commit(WALL, WALL)
        return all_blocks(disk)

    def cuts(sizes: list[int], rest: int) -> Iterator[int]:
        yield from sizes
        while True:
            yield rest

    # Job ids contain no randomness, and the times are given.
    found = blocks(cuts(sizes, rest))
    assert len(found) == 2
    assert found == EXPECTED.setdefault("blocks", found)


def test_the_tail_has_the_digests_that_its_segment_has_when_it_is_full() -> None:
    disk = MemoryDisk()
    opened = new_log(disk)
    tails: list[BlockDigest] = []
    while opened.log.segment == 1:
        put_many(opened, 500)
        if opened.log.segment == 1:
            tails = all_blocks(disk)
    assert opened.log.segment > 1 and len(tails) > 2
    for _ in range(2):
        assert all_blocks(disk)[: len(tails) - 1] == tails[:-1]
        # The last block of the tail had fewer rows. It can still be requested.
        assert list(Reader(disk).blocks(tails[-1].first, tails[-1].end)) == tails[-1:]
        write_index(disk, segment_name(1))


def test_a_reader_that_stays_open_sees_the_growing_tail() -> None:
    disk = MemoryDisk()
    opened = new_log(disk)
    reader, position, found = Reader(disk), 1, list[BlockDigest]()
    for _ in range(8):
        put_many(opened, 700)
        new = list(reader.blocks(position, opened.log.durable))
        check_covered(new, position, opened.log.durable)
        position = opened.log.durable
        found += new
    events = pa.Table.from_batches(batches(disk), SCHEMA)
    assert found == [block_of(events, block.first, block.end) for block in found]


@pytest.mark.parametrize("indexed", [True, False])
def test_removing_bodies_changes_no_digest_of_rows(disk: MemoryDisk, indexed: bool) -> None:
    expected = all_blocks(disk)
    opened = new_log(disk)
    reader = Reader(disk)
    removed: list[str] = []
    while name := without_bodies(disk, opened.log):
        removed.append(name)
        if indexed:
            write_index(disk, name)
        if len(removed) % 3 == 0:
            found = list(reader.blocks(1))[: len(expected)]
            assert [without(block) for block in found] == [without(block) for block in expected]
            assert {block.bodies_sha256 is None for block in found} == {True, False}
    assert len(removed) > 4
    found = list(reader.blocks(1))[: len(expected)]
    assert [without(block) for block in found] == [without(block) for block in expected]
    assert all(one.bodies_sha256 in (None, other.bodies_sha256) for one, other in zip(found, expected, strict=True))


def test_bodies_that_are_removed_during_a_read_leave_no_hole(disk: MemoryDisk) -> None:
    index_all(disk)
    expected = all_blocks(disk)
    opened = new_log(disk)
    found: list[BlockDigest] = []
    start = 100
    for block in Reader(disk).blocks(start, expected[-1].end):
        found.append(block)
        without_bodies(disk, opened.log)
    check_covered(found, start, expected[-1].end)
    ends = {block.end: block for block in expected}
    assert [without(block) for block in found[1:]] == [without(ends[block.end]) for block in found[1:]]


READS: dict[str, Callable[[LogFollower, int, int], int]] = {
    "digests": lambda follower, start, end: follower.digests(start, end, 10).next,
    "events": lambda follower, start, end: start + len(follower.events(start, end, 10_000, 1 << 30, None).events),
    "frames": lambda follower, start, end: follower.read(start, end, 1 << 30, names=True).next,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("start", [1, 900])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_page_is_complete_if_its_segment_is_rewritten_at_any_step_of_the_read(
    indexed: bool, start: int, read: Callable[[LogFollower, int, int], int]
) -> None:
    disk = MemoryDisk()
    opened = new_log(disk)
    put_many(opened, 1_000)
    end = opened.log.durable
    take_snapshot(disk, opened.log, opened.engine, WALL, WALL)
    opened.log.close(WALL, WALL)
    [name] = full_segments(disk)
    if indexed:
        write_index(disk, name)

    def remove_bodies(copy: MemoryDisk) -> None:
        remove_index(copy, number_of(name))
        rewrite(copy, name, bodies=False)

    # The reader has read the segment once, so it has stored its size and its index.
    changing, step = ChangingDisk(disk.copy()), 0
    while step <= changing.steps:
        step += 1
        changing = ChangingDisk(disk.copy())
        follower = LogFollower(changing, Reader(changing))
        assert read(follower, start, end) == end
        changing.steps, changing.happens = 0, {step: functools.partial(remove_bodies, changing.disk)}
        assert read(follower, start, end) == end
    assert step > 3


class MaintainedDirectory:
    """As much of a queue as the service for indexes uses."""

    def __init__(self, disk: RealDisk) -> None:
        self.disk = disk
        self.log = SimpleNamespace(written=0)


def test_old_indexes_are_replaced_by_indexes_with_digests(tmp_path: Path) -> None:
    directory = tmp_path / "v1"
    shutil.copytree(LOGS / "v1", directory)
    disk = RealDisk(str(directory))
    names = segment_names(disk)
    expected = all_blocks(disk)
    with pytest.raises(DamagedJournal, match="another version"):
        stored_in(disk, names[0])
    queue: Any = MaintainedDirectory(disk)
    IndexService(Pacing(weakref.ref(queue), threading.Event())).run_once(queue, number_of(names[-1]))
    assert [block for name in names[:-1] for block in stored_in(disk, name)] == expected[:-1]
    assert all_blocks(disk) == expected


def test_the_digests_of_an_old_log_never_change() -> None:
    disk = RealDisk(str(LOGS / "v1"))
    blocks = all_blocks(disk)
    events = pa.Table.from_batches(batches(disk), SCHEMA)
    assert blocks == [block_of(events, block.first, block.end) for block in blocks]
    assert [(block.first, block.end, block.rows) for block in blocks] == [
        *((1, 60, 34), (60, 105, 36), (105, 156, 37), (156, 232, 59)),
    ]
    assert blocks[0].as_json() == {
        "first": 1,
        "end": 60,
        "rows": 34,
        "rows_sha256": "dd0dee5fb0bb301d95a14054b7af5a47ed1b53a921eab40bfae98f0e2b45dc93",
        "bodies_sha256": "ed156f5ff3eb7d92314b80e385c99d64b96870f35a1385b40dd19903537f9293",
    }


def flip(disk: MemoryDisk, name: str, position: int, change: Callable[[bytearray, int, int], int]) -> None:
    """Change a byte of the row at a position, and correct the checksum of its frame."""
    with FrameFile(disk, name) as file:
        for data, frame, base in file.frames():
            if frame.position <= position < frame.position + frame.rows:
                row_at = frame.rows_at + (position - frame.position) * frame.row_bytes
                changed = bytearray(data[frame.at : frame.at + frame.length])
                var_at = frame.var_at + int.from_bytes(data[row_at + 120 : row_at + 124], "little")
                changed[change(changed, row_at - frame.at, var_at - frame.at)] ^= 1
                crc = crc32(bytes(changed[8:]), file.header.frame_seed(base + frame.at))
                changed[4:8] = crc.to_bytes(4, "little")
                start = base + frame.at
                disk.files[name][start : start + frame.length] = changed
                return
    raise AssertionError("no such row")


@pytest.mark.parametrize("field", [layout.ID_AT, layout.TIME_AT, layout.FLAGS_AT, layout.SINCE_AT, layout.ACTOR_AT + 7])
def test_a_changed_byte_changes_the_digest_of_its_block_only(disk: MemoryDisk, field: int) -> None:
    before = all_blocks(disk)
    name = full_segments(disk)[3]
    position = next(event.position for event in Reader(alone(disk, name)).events() if event.event == "buried")
    flip(disk, name, position, lambda data, row, var: row + field)
    changed = [(one, two) for one, two in zip(before, all_blocks(disk), strict=True) if one != two]
    [(one, two)] = changed
    assert one.first <= position < one.end
    assert one.rows_sha256 != two.rows_sha256 and one.bodies_sha256 == two.bodies_sha256


def test_a_changed_body_changes_the_digest_of_bodies_only(disk: MemoryDisk) -> None:
    before = all_blocks(disk)
    name = full_segments(disk)[3]
    position = next(event.position for event in Reader(alone(disk, name)).events() if event.body and event.key)
    # The body is the first var field.
    flip(disk, name, position, lambda data, row, var: var + layout.VAR_HEADER_BYTES)
    [(one, two)] = [(one, two) for one, two in zip(before, all_blocks(disk), strict=True) if one != two]
    assert one.first <= position < one.end
    assert one.rows_sha256 == two.rows_sha256 and one.bodies_sha256 != two.bodies_sha256


def alone(disk: MemoryDisk, name: str) -> MemoryDisk:
    only = disk.copy()
    for other in segment_names(only):
        if other != name:
            only.remove(other)
    return only


def test_damage_is_reported_and_not_hashed(disk: MemoryDisk) -> None:
    name = full_segments(disk)[3]
    disk.files[name][disk.size(name) // 2] ^= 1
    with pytest.raises(DamagedJournal, match=name):
        all_blocks(disk)


def test_rows_that_a_repair_has_left_out_are_in_no_block_but_covered(disk: MemoryDisk) -> None:
    before = all_blocks(disk)
    for place in (0.1, 0.5):
        name = full_segments(disk)[3]
        used = len(bytes(disk.files[name]).rstrip(b"\0"))
        at = int(used * place)
        disk.files[name][at : at + 100] = bytes(range(100))
    repair(disk, WALL, "another boot")
    expected = all_blocks(disk)
    check_covered(expected, 1, expected[-1].end)
    assert expected[-1].end >= before[-1].end
    assert sum(block.rows for block in expected) < sum(block.rows for block in before)
    index_all(disk)
    assert all_blocks(disk) == expected


def test_segments_between_which_rows_are_missing_have_a_block_without_rows(disk: MemoryDisk) -> None:
    blocks = all_blocks(disk)
    names = full_segments(disk)
    first, end = (FrameFile(disk, names[at]).header.position for at in (3, 4))
    disk.remove(names[3])
    for _ in range(2):
        found = all_blocks(disk)
        missing = BlockDigest(first, end, 0, EMPTY_SHA256, EMPTY_SHA256)
        assert [block for block in found if block.first == first] == [missing]
        assert [block for block in blocks if not first <= block.first < end] == [b for b in found if b.first != first]
        for name in (*names[:3], *names[4:]):
            write_index(disk, name)


def test_pages_continue_where_the_last_one_ended(disk: MemoryDisk) -> None:
    index_all(disk)
    expected = all_blocks(disk)
    follower = LogFollower(disk, Reader(disk))
    found, position, end = list[BlockDigest](), 1, expected[-1].end
    while position < end:
        page = follower.digests(position, end, 2)
        assert 1 <= len(page.blocks) <= 2 and page.next == page.blocks[-1].end
        found, position = found + page.blocks, page.next
    assert found == expected
    assert follower.digests(end, end, 2).blocks == []


def test_a_position_that_is_not_kept_is_trimmed(disk: MemoryDisk) -> None:
    opened = new_log(disk)
    trim(disk, opened.log, Retention(bytes_max=SEGMENT), WALL)
    reader = Reader(disk)
    first = reader.first()
    assert first is not None and first > 1
    follower = LogFollower(disk, reader)
    with pytest.raises(Trimmed, match=f"the first that is kept is {first}"):
        follower.digests(first - 1, opened.log.durable, 10)
    assert follower.digests(first, opened.log.durable, 10).blocks[0].first == first
    assert list(reader.blocks(first - 1)) == []


def test_an_index_has_digests_only_if_it_was_made_for_a_file(disk: MemoryDisk) -> None:
    data = SegmentIndex().encode(lambda: None)
    assert decode_blocks("x.idx", data) == [] and decode_index("x.idx", data).newest(1) is None
