"""A log of a newer version is refused by name, and nothing in its directory changes. Optional parts are skipped."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from penstock.core import policy
from penstock.core import states as s
from penstock.core.errors import DamagedJournal, NewerJournal
from penstock.core.job import Draft
from penstock.journal import layout
from penstock.journal.frame import NewerFrame, parse_sent_frames
from penstock.journal.history.columns import batches
from penstock.journal.history.reader import Reader
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.check import check_log
from penstock.journal.recovery.opening import open_log
from penstock.journal.recovery.repair import examine, repair
from penstock.journal.segment import FrameFile, is_segment, segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk
from tests.journal.engine_state import picture
from tests.journal.shortened_queue import SEGMENT, WALL, reopen

NAME = "segment-0000000001.log"


def written(snapshot: bool = False) -> MemoryDisk:
    """Return a disk with a put, a take and an ack of jobs with a key, and a session with a grace time."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot", segment_bytes=SEGMENT)
    engine = opened.engine
    tube = engine.create_tube(b"t", policy.UTUBE, WALL)
    connection = engine.connect(b"token of a session")
    engine.identify(connection, connection.session.token, WALL, 1_000)
    opened.log.commit(WALL, WALL)
    for body in (b"first", b"second"):
        engine.put(tube, Draft(body, key=body), WALL)
        opened.log.commit(WALL, WALL)
    if snapshot:
        take_snapshot(disk, opened.log, engine, WALL, WALL)
    taken = engine.take(connection.session, tube, WALL)
    opened.log.commit(WALL, WALL)
    assert taken is not None
    engine.ack(connection.session, taken, WALL)
    opened.log.commit(WALL, WALL)
    opened.log.make_durable(opened.log.written)
    return disk


def rewrite_frame(disk: MemoryDisk, name: str, number: int, change: Callable[[bytearray], bytes | None]) -> None:
    """Change one frame of a file, and compute its checksum again. The new frame may be longer if it is the last one."""
    with FrameFile(disk, name) as file:
        frames = list(file.frames())
        found = frames[number]
        offset, seed = found.base + found.frame.at, file.header.frame_seed(found.base + found.frame.at)
    frame = bytearray(disk.files[name][offset : offset + found.frame.length])
    frame = bytearray(change(frame) or frame)
    struct.pack_into("<I", frame, 12, len(frame))
    struct.pack_into("<I", frame, 4, zlib.crc32(frame[8:], seed))
    assert len(frame) == found.frame.length or number in (-1, len(frames) - 1)
    disk.files[name][offset : offset + len(frame)] = frame


def frame_of(event: int, disk: MemoryDisk, name: str = NAME) -> int:
    """Return the number of the frame whose last row has this event."""
    with FrameFile(disk, name) as file:
        for number, (data, frame, _) in enumerate(file.frames()):
            if data[frame.var_at - frame.row_bytes + layout.EVENT_AT] == event:
                return number
    raise AssertionError(event)


def last_row(frame: bytearray) -> int:
    return layout.FRAME_HEADER_BYTES + (int.from_bytes(frame[40:44], "little") - 1) * layout.ROW_BYTES


def set_byte(offset: int, value: int) -> Callable[[bytearray], None]:
    """Return a change of one byte of the last row."""

    def change(frame: bytearray) -> None:
        frame[last_row(frame) + offset] = value

    return change


def set_version(frame: bytearray) -> None:
    frame[8] = 3


def set_tag(tag: int) -> Callable[[bytearray], None]:
    """Return a change of the last tag of the last row."""

    def change(frame: bytearray) -> None:
        row = last_row(frame)
        offset, length = struct.unpack_from("<II", frame, row + layout.VAR_OFFSET_AT)
        at = row + layout.ROW_BYTES + offset
        end = at + length
        while at < end:
            last, at = at, at + layout.VAR_HEADER_BYTES + int.from_bytes(frame[at + 1 : at + 5], "little")
        frame[last] = tag

    return change


def add_field(tag: int) -> Callable[[bytearray], bytes]:
    """Return a change that adds a var field to the last row of the last frame."""

    def change(frame: bytearray) -> bytes:
        row = last_row(frame)
        end = row + layout.ROW_BYTES + int.from_bytes(frame[48:52], "little")
        more = bytes([tag]) + (3).to_bytes(4, "little") + b"new"
        offset, length = struct.unpack_from("<II", frame, row + layout.VAR_OFFSET_AT)
        struct.pack_into("<II", frame, row + layout.VAR_OFFSET_AT, offset, length + len(more))
        struct.pack_into("<I", frame, 48, int.from_bytes(frame[48:52], "little") + len(more))
        made = bytes(frame[:end]) + more
        return made + bytes(-len(made) % 8)

    return change


def assert_refused(disk: MemoryDisk, named: str) -> None:
    """Check that an open and a repair are refused with `named`, that a check reports it, and that nothing changes."""
    before = {name: bytes(data) for name, data in disk.files.items()}
    for attempt in (
        lambda: reopen(disk),
        lambda: repair(disk, WALL, "another boot"),
        lambda: examine(disk, "another boot"),
        lambda: reopen(disk, "boot"),
    ):
        with pytest.raises(NewerJournal, match=named):
            attempt()
        disk.unlock()
        assert {name: bytes(data) for name, data in disk.files.items()} == before
    assert named in "".join(filter(None, [check_log(disk, "another boot").refused]))


@pytest.mark.parametrize(("offset", "value", "named"), [(8, 3, "format 3"), (10, 4, "bits 0x4")])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_newer_segment_is_refused(snapshot: bool, offset: int, value: int, named: str) -> None:
    disk = written(snapshot)
    for name in [segment_names(disk)[-1], *snapshot_names(disk)]:
        disk.files[name][offset] = value
        if is_segment(name):
            assert_refused(disk, named)
    assert_refused(disk, named)


def test_a_repair_does_not_set_a_newer_segment_of_the_history_aside() -> None:
    disk = written(snapshot=True)
    disk.files[NAME][8] = 3
    before = dict(disk.files)
    assert NAME in check_log(disk, "another boot").problems[0]
    with pytest.raises(NewerJournal, match="format 3"):
        repair(disk, WALL, "another boot")
    assert disk.files == before


def test_a_snapshot_of_a_newer_version_is_not_used_and_named() -> None:
    """A newer log has a newer segment, too. So this version is wrong, and the log without the snapshot is complete."""
    disk = written(snapshot=True)
    expected = picture(reopen(disk.copy()).engine, restarted=False)
    name = snapshot_names(disk)[-1]
    disk.files[name][8] = 3
    opened = reopen(disk.copy())
    assert picture(opened.engine, restarted=False) == expected
    assert f"{name} was written by a newer Penstock (format 3" in opened.warnings[0]
    assert repair(disk, WALL, "another boot").kept_aside == [f"{name}.damaged"]
    assert picture(reopen(disk).engine, restarted=False) == expected


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_newer_frame_is_refused_and_not_cut_as_a_torn_tail(number: int) -> None:
    disk = written()
    rewrite_frame(disk, NAME, number, set_version)
    assert_refused(disk, "frame version 3")
    for read in (
        lambda: list(Reader(disk).events()),
        lambda: list(batches(disk)),
        lambda: copy_log(disk, MemoryDisk()),
    ):
        with pytest.raises(DamagedJournal, match="frame version 3"):
            read()


def test_a_newer_frame_with_a_wrong_checksum_is_a_torn_tail() -> None:
    disk = written()
    rewrite_frame(disk, NAME, -1, set_version)
    with FrameFile(disk, NAME) as file:
        run = file.run()
        with pytest.raises(NewerJournal):
            list(run)
    disk.files[NAME][run.end + 70] ^= 1
    assert "torn tail" in reopen(disk).warnings[0]


def test_a_newer_frame_that_a_server_sent_is_refused() -> None:
    disk = written()
    with FrameFile(disk, NAME) as file:
        data, frame, _ = next(iter(file.frames()))
        sent = bytearray(data[frame.at : frame.at + frame.length])
    assert len(parse_sent_frames(bytes(sent))) == 1
    sent[8] = 3
    with pytest.raises(NewerFrame, match="frame version 3"):
        parse_sent_frames(bytes(sent))


@pytest.mark.parametrize("event", [layout.RATE_CHANGED, 150, layout.OPTIONAL - 1])
def test_an_unknown_event_is_refused(event: int) -> None:
    disk = written()
    rewrite_frame(disk, NAME, frame_of(layout.SESSION_MADE, disk), set_byte(layout.EVENT_AT, event))
    assert_refused(disk, f"unknown event {event}")


@pytest.mark.parametrize("event", [s.EVENTS_COUNT, 100])
def test_an_unknown_event_of_a_job_is_refused(event: int) -> None:
    disk = written()
    rewrite_frame(disk, NAME, frame_of(s.PUT, disk), set_byte(layout.EVENT_AT, event))
    assert_refused(disk, f"unknown event {event} of a job")


def test_an_unknown_transition_and_an_unknown_state_are_refused() -> None:
    disk = written()
    rewrite_frame(disk, NAME, frame_of(s.ACKED, disk), set_byte(layout.FROM_AT, s.GONE))
    assert_refused(disk, f"unknown event {s.ACKED} of a job in state {s.GONE}")
    disk = written()
    rewrite_frame(disk, NAME, frame_of(s.PUT, disk), set_byte(layout.TO_AT, s.STATES_COUNT))
    assert_refused(disk, f"unknown state {s.STATES_COUNT}")


@pytest.mark.parametrize("tag", [0, layout.TAG_RATE, 100, layout.OPTIONAL - 1])
@pytest.mark.parametrize("event", [s.PUT, s.TOOK, s.ACKED, layout.SESSION_MADE])
def test_an_unknown_tag_is_refused_in_every_row(event: int, tag: int) -> None:
    disk = written()
    rewrite_frame(disk, NAME, frame_of(event, disk), set_tag(tag))
    assert_refused(disk, f"unknown tag {tag}")


def test_an_unknown_tag_is_refused_in_a_snapshot_and_in_rows_that_it_replaces() -> None:
    disk = written(snapshot=True)
    snapshot = snapshot_names(disk)[-1]
    rewrite_frame(disk, snapshot, 0, set_tag(100))
    assert_refused(disk, "unknown tag 100")


@pytest.mark.parametrize("tag", [layout.OPTIONAL, 255])
@pytest.mark.parametrize("last", [s.ACKED, s.TOOK, layout.SESSION_MADE])
def test_an_optional_field_is_skipped(last: int, tag: int) -> None:
    disk = written()
    number = frame_of(last, disk)
    with FrameFile(disk, NAME) as file:
        found = list(file.frames())[number]
    end = found.base + found.frame.at + found.frame.length
    disk.files[NAME][end:] = bytes(len(disk.files[NAME]) - end)
    expected = picture(reopen(disk.copy()).engine, restarted=False)
    rewrite_frame(disk, NAME, -1, add_field(tag))
    opened = reopen(disk)
    assert picture(opened.engine, restarted=False) == expected and opened.warnings == []


@pytest.mark.parametrize("event", [layout.OPTIONAL, 255])
def test_an_optional_event_is_skipped(event: int) -> None:
    disk = written()
    number = frame_of(layout.SESSION_MADE, disk)
    plain = reopen(disk.copy()).engine

    def change(frame: bytearray) -> None:
        set_byte(layout.EVENT_AT, event)(frame)
        struct.pack_into("<q", frame, last_row(frame), 1 << 60)  # Its number may be of any kind.

    rewrite_frame(disk, NAME, number, change)
    engine = reopen(disk).engine
    assert picture(engine, restarted=False) == picture(plain, restarted=False)
    assert engine.next_number < 100
    assert [found.event for found in Reader(disk).events() if found.event.startswith("event ")] == [f"event {event}"]


def test_longer_rows_are_read_and_their_new_bytes_ignored() -> None:
    disk = written()
    expected = picture(reopen(disk.copy()).engine, restarted=False)

    def longer(frame: bytearray) -> bytes:
        rows = int.from_bytes(frame[40:44], "little")
        made = bytearray(frame[: layout.FRAME_HEADER_BYTES])
        struct.pack_into("<H", made, 44, layout.ROW_BYTES + 8)
        for row in range(rows):
            at = layout.FRAME_HEADER_BYTES + row * layout.ROW_BYTES
            made += frame[at : at + layout.ROW_BYTES] + b"\xff" * 8
        return bytes(made + frame[layout.FRAME_HEADER_BYTES + rows * layout.ROW_BYTES :])

    rewrite_frame(disk, NAME, -1, longer)
    opened = reopen(disk)
    assert opened.warnings == [] and picture(opened.engine, restarted=False) == expected
    assert sum(batch.num_rows for batch in batches(disk)) == 4
