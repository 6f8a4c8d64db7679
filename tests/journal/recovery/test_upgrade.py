"""A directory of version 1 is opened, continues as version 2, and every tool reads the mixed directory."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.core import states as s
from penstock.core.errors import DamagedJournal, NewerJournal
from penstock.core.job import Draft
from penstock.journal import layout
from penstock.journal.disk import ReadableDisk
from penstock.journal.frame import Row, parse_sent_frames
from penstock.journal.history.columns import SCHEMA, batches
from penstock.journal.history.follower import LogFollower
from penstock.journal.history.index import SegmentIndex
from penstock.journal.history.reader import Event, Reader
from penstock.journal.identity import identity
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.mirror import Mirror
from penstock.journal.maintenance.retention import Retention, trim, without_bodies
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import ReadOnlyDisk, RealDisk
from penstock.journal.recovery.check import check_log
from penstock.journal.recovery.opening import Opened
from penstock.journal.recovery.repair import examine, repair
from penstock.journal.segment import SEGMENT_HEADER_BYTES, FrameFile, segment_names, snapshot_names
from penstock.testing.disk import MemoryDisk, crashes
from penstock.testing.invariants import check
from tests.journal.engine_state import picture
from tests.journal.recovery.engine_fields import differences, engine_fields
from tests.journal.recovery.upgrade_disks import OPENED, open_v1, v1_disk, v1_engine, write_v1

LATER = OPENED + 10_000


def versions(disk: ReadableDisk) -> dict[str, tuple[int, set[int]]]:
    """Return for each file the version of its header and of its frames."""
    found = {}
    for name in [*segment_names(disk), *snapshot_names(disk)]:
        with FrameFile(disk, name) as file:
            header = int.from_bytes(file.file.read(8, 2), "little")
            found[name] = (header, {located.frame.version for located in file.frames(whole=False)})
    return found


def upgraded() -> tuple[MemoryDisk, Opened]:
    """Return a disk of version 1 that was opened, and on which jobs of version 1 went on."""
    disk = v1_disk()
    opened = open_v1(disk)
    engine = opened.engine
    tube = engine.tubes[b"fifottl"]
    connection = engine.connect(b"a session of version 2")
    session = connection.session
    session.set_client(b"worker", b"ann")
    engine.outbox.actor = session
    engine.put(tube, Draft(b"new", headers=b"\1\0\1\0hv"), OPENED)
    for step in range(4):
        taken = engine.take(session, tube, LATER + step)
        assert taken is not None
        if step:
            (engine.ack if step == 1 else engine.release)(session, taken, LATER + step)
        opened.log.commit(LATER + step, LATER)
    engine.outbox.actor = None
    opened.log.make_durable(opened.log.written)
    return disk, opened


def all_events(disk: ReadableDisk) -> list[Event]:
    return list(Reader(disk).events())


def test_the_engine_has_every_field_that_version_1_gave_it() -> None:
    opened = open_v1(v1_disk())
    now = json.loads(json.dumps(engine_fields(opened.engine)))
    before = v1_engine()
    assert differences(before, now) == []
    assert set(now) == set(before)
    assert ["torn tail of" in warning for warning in opened.warnings] == [True]
    check(opened.engine)


def test_the_directory_of_version_1_contains_everything() -> None:
    """Otherwise the other tests show nothing."""
    engine = open_v1(v1_disk()).engine
    jobs = engine.jobs.scan(0, 1_000)
    assert {job.state for job in jobs} == set(range(1, s.STATES_COUNT))
    types = {tube.policy.type for tube in engine.tubes.values()}
    assert types >= {"fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube", "disque", "queue15", "xqueue"}
    extras = [job.extra for job in jobs if job.extra is not None]
    for field in ("reason", "retry", "name", "unique", "consumer", "stage", "copy", "doomed"):
        assert any(getattr(extra, field) for extra in extras), field
    assert len(engine.sessions) == 3 and all(session.held for session in engine.sessions.values())
    assert engine.tubes[b"counted"].dedups is not None and engine.tubes[b"counted"].dedups.entries()
    assert engine.notes[b"changed note"] == b"after" and b"removed note" not in engine.notes
    assert b"temporary" not in engine.tubes


def test_the_log_continues_in_a_segment_of_version_2_and_old_files_stay() -> None:
    before = v1_disk()
    disk, opened = upgraded()
    old = set(before.files) - {"node.json"}
    for name, (header, frames) in versions(disk).items():
        assert (header, frames) == ((1, {1}) if name in old else (2, {2})), name
    torn = "segment-0000000005.log"
    for name in old - {torn}:
        assert disk.files[name] == before.files[name], name
    assert before.files[torn].startswith(disk.files[torn])
    expected = picture(opened.engine, restarted=True)
    again = open_v1(disk.copy(), "a third boot", LATER)
    assert picture(again.engine, restarted=False) == expected
    assert again.warnings == []
    check(again.engine)


def test_a_job_of_version_1_has_been_in_its_state_since_its_last_change_or_its_creation() -> None:
    """Rows after the snapshot have the time of each change. A row of the snapshot has only the creation."""
    disk = v1_disk()
    last: dict[int, int] = {}
    for name in segment_names(disk):
        with FrameFile(disk, name) as file:
            if file.header.segment < 4:  # The snapshot replaces the segments before this one.
                continue
            for data, frame, _ in file.frames(whole=False):
                for at in range(frame.rows_at, frame.var_at, frame.row_bytes):
                    if data[at + layout.EVENT_AT] < layout.SNAPSHOT_JOB:
                        row = Row(data, at, frame)
                        if row.before != row.after:
                            last[row.job] = int.from_bytes(data[at + 48 : at + 56], "little")
    opened = open_v1(disk)
    seen = {"change": 0, "creation": 0, "opening": 0}
    for job in opened.engine.jobs.scan(0, 1_000):
        if job.since == OPENED:
            seen["opening"] += 1  # The job was taken, and its session has ended.
        elif job.id in last:
            assert job.since == last[job.id]
            seen["change"] += 1
        else:
            assert job.since == job.created
            seen["creation"] += 1
    assert all(seen.values()), seen
    assert opened.engine.tubes[b"fifottl"].oldest_ready() == min(
        job.since for job in opened.engine.tubes[b"fifottl"].jobs_in(s.READY)
    )


def test_events_and_columns_and_histories_span_both_versions() -> None:
    disk, opened = upgraded()
    events = all_events(disk)
    assert [event.position for event in events] == list(range(1, opened.log.written))
    of_jobs = [event for event in events if event.job is not None]
    begun = next(event.position for event in reversed(events) if event.time_ms < OPENED)
    old = [event for event in of_jobs if event.position <= begun]
    new = [event for event in of_jobs if event.position > begun]
    assert len(old) > 150 and {event.actor for event in old} == {None} and {event.since_ms for event in old} == {None}
    assert len(new) > 8 and all(event.since_ms is not None for event in new)
    assert {event.actor for event in new if event.time_ms >= LATER} != {None}
    table = pa.Table.from_batches(batches(disk), SCHEMA)
    rows = table.to_pylist()
    assert [row["position"] for row in rows] == [event.position for event in of_jobs]
    assert [row["actor"] for row in rows] == [event.actor for event in of_jobs]
    assert [row["since"] is None for row in rows] == [event.since_ms is None for event in of_jobs]
    assert [row["headers"] for row in rows if row["headers"]] == [[("h", b"v")]]
    reader = Reader(disk)
    both = 0
    for job in opened.engine.jobs.scan(0, 1_000):
        history = reader.history(job.id)
        assert history[-1].position == job.position
        both += history[0].position <= begun < history[-1].position
    assert both > 2


def test_the_index_of_a_segment_of_version_1_can_be_rebuilt() -> None:
    disk = v1_disk()
    for name in segment_names(disk)[:-1]:
        index = SegmentIndex()
        with FrameFile(disk, name) as file:
            for piece in file.pieces():
                index.add(piece)
        with_index = Reader(disk).history(8796093022209)
        disk.remove(name.replace(".log", ".idx"))
        assert Reader(disk).history(8796093022209) == with_index


def test_a_follower_gets_the_frames_of_both_versions() -> None:
    disk, opened = upgraded()
    follower = LogFollower(disk, Reader(disk))
    position, found = 1, set()
    while position < opened.log.written:
        page = follower.read(position, opened.log.written, 5_000, names=False)
        frames = parse_sent_frames(page.data)
        found |= {frame.version for frame in frames}
        assert frames[0].position <= position
        position = page.next
    assert found == {1, 2}


def test_a_backup_of_a_mixed_directory_has_the_same_state_and_a_restore_goes_back_to_version_1() -> None:
    disk, opened = upgraded()
    expected = picture(opened.engine, restarted=True)
    copy = MemoryDisk()
    copy_log(disk, copy)
    assert picture(open_v1(copy, clock=LATER).engine, restarted=False) == expected
    assert all_events(copy)[: opened.log.written - 1] == all_events(disk)[: opened.log.written - 1]
    # As it was before the upgrade: the last row of version 1 is before the first row that the opening wrote.
    first = next(event.position for event in all_events(disk) if event.time_ms >= OPENED)
    restored = MemoryDisk()
    copy_log(disk, restored, first - 1)
    engine = open_v1(restored).engine
    assert picture(engine, restarted=False) == picture(open_v1(v1_disk()).engine, restarted=False)
    check(engine)


def test_check_finds_no_damage_in_a_mixed_directory_and_finds_damage_in_its_old_part() -> None:
    disk, _ = upgraded()
    assert not check_log(disk, "another boot").damaged
    assert examine(disk, "another boot") == []
    disk.files["segment-0000000004.log"][SEGMENT_HEADER_BYTES + 100] ^= 1
    assert check_log(disk, "another boot").damaged


def test_a_repair_of_a_mixed_directory_keeps_the_jobs_of_both_versions() -> None:
    disk, opened = upgraded()
    before = {job.id for job in opened.engine.jobs.scan(0, 1_000)}
    with FrameFile(disk, "segment-0000000005.log") as file:
        damaged = next(iter(file.frames()))
        lost = {
            Row(damaged.data, at, damaged.frame).job for at in range(damaged.frame.rows_at, damaged.frame.var_at, 128)
        }
    disk.files["segment-0000000005.log"][SEGMENT_HEADER_BYTES + 70] ^= 1
    report = repair(disk, LATER, "another boot")
    assert report.problems and report.kept_aside == ["segment-0000000005.log.damaged"]
    engine = open_v1(disk, clock=LATER).engine
    assert before - {job.id for job in engine.jobs.scan(0, 1_000)} <= lost
    check(engine)


def test_retention_removes_bodies_and_segments_of_version_1() -> None:
    disk, opened = upgraded()
    take_snapshot(disk, opened.log, opened.engine, LATER, LATER)
    expected = picture(opened.engine, restarted=True)
    events = all_events(disk)
    rewritten = set()
    while name := without_bodies(disk, opened.log):
        rewritten.add(name)
    assert rewritten >= {f"segment-000000000{number}.log" for number in (1, 2, 3, 4, 5)}
    # The rows are the same, and only their bodies are missing. Its header is new, and so it has the new version.
    assert versions(disk)["segment-0000000001.log"] == (2, {1})
    now = all_events(disk)
    assert [event.body for event in now if event.position <= events[-40].position] == [None] * (len(events) - 39)
    assert [(event.position, event.event, event.reason) for event in now] == [
        (event.position, event.event, event.reason) for event in events
    ]
    trim(disk, opened.log, Retention(bytes_max=0), LATER)
    assert {versions(disk)[name][1] <= {2} for name in segment_names(disk)} == {True}
    assert picture(open_v1(disk, clock=LATER).engine, restarted=False) == expected


def test_bodies_of_version_1_are_read_from_disk_while_memory_is_short() -> None:
    expected = picture(open_v1(v1_disk()).engine, restarted=False)
    assert picture(open_v1(v1_disk(), memory_max=0).engine, restarted=False) == expected


def test_the_python_interface_opens_a_directory_of_version_1(tmp_path: Path) -> None:
    directory = write_v1(tmp_path / "queue")
    with pytest.warns(RuntimeWarning, match="torn tail"), penstock.open(directory) as queue:
        assert queue.tube("stube").take(key="key 4").body == b"stube 4"
    found = versions(ReadOnlyDisk(str(directory))).values()
    assert {version for _, frames in found for version in frames} == {1, 2}


def copy_to(mirror: Mirror, source: MemoryDisk, end: int) -> None:
    """Do the work of a standby of version 2 whose node has the disk `source` and is durable up to `end`."""
    follower = LogFollower(source, Reader(source))
    mirror.follow(identity(source))
    if mirror.segment == 0:
        mirror.begin_at(1, 1, follower.fetch)
    while mirror.position < end:
        page = follower.read(mirror.position, end, 5_000, names=False, one_file=True)
        mirror.append(*page.place, page.data, follower.fetch)


def test_a_standby_of_version_2_follows_a_node_of_version_1_and_goes_on_after_its_upgrade(tmp_path: Path) -> None:
    source = v1_disk()
    end = 1 + max(event.position for event in all_events(source))
    home = tmp_path / "standby"
    mirror = Mirror(RealDisk(str(home)))
    copy_to(mirror, source, end)
    mirror.close()
    copied = ReadOnlyDisk(str(home))
    assert {found for _, frames in versions(copied).values() for found in frames} == {1}
    assert all_events(copied) == all_events(source)
    # The node is upgraded. The standby continues with its frames of version 2.
    source, opened = upgraded()
    mirror = Mirror(RealDisk(str(home)))
    copy_to(mirror, source, opened.log.written)
    mirror.close()
    assert versions(copied)["segment-0000000006.log"] == (2, {2})
    assert all_events(copied) == all_events(source)
    assert not check_log(copied, "another boot").damaged
    # A node of a newer version is refused by name.
    source.files["segment-0000000006.log"][8] = 3
    mirror = Mirror(RealDisk(str(tmp_path / "another")))
    with pytest.raises(NewerJournal, match=r"segment-0000000006\.log was written by a newer Penstock"):
        copy_to(mirror, source, opened.log.written)
    mirror.close()


@pytest.mark.parametrize("commits", [6])
def test_a_power_cut_while_a_directory_is_upgraded_loses_nothing_of_version_1(commits: int) -> None:
    """After each effect of the first open and of the first commits, with torn and reordered writes."""
    old = open_v1(v1_disk())
    expected = picture(old.engine, restarted=False)
    disk = v1_disk()
    opened = open_v1(disk)
    known = [(0, expected, True), (len(disk.effects), picture(opened.engine, restarted=True), True)]
    tube = opened.engine.tubes[b"fifottl"]
    session = opened.engine.connect(b"a new session").session
    session.set_client(b"worker", b"ann")
    for number in range(commits):
        opened.engine.outbox.actor = session
        if number % 2:
            opened.engine.take(session, tube, OPENED)
        else:
            opened.engine.put(tube, Draft(b"new", headers=b"\1\0\1\0hv"), OPENED)
        opened.engine.outbox.actor = None
        opened.log.commit(OPENED, OPENED)
        written = picture(opened.engine, restarted=True)
        known.append((len(disk.effects), written, False))
        opened.log.make_durable(opened.log.written)
        known.append((len(disk.effects), written, True))
    cases = 0
    for count in range(1, len(disk.effects) + 1):
        done = [index for index, (effects, _, _) in enumerate(known) if effects <= count]
        least = max(index for index in done if known[index][2])
        allowed = [state for _, state, _ in known[least : len(done) + 1]]
        for crashed in crashes(disk, count):
            assert picture(open_v1(crashed).engine, restarted=False) in allowed, f"after effect {count}"
            cases += 1
    assert cases > 60


def small_upgrade() -> tuple[MemoryDisk, list[dict[str, object]]]:
    """Return a disk that was upgraded, and the states after its open and after each commit of version 2."""
    disk = v1_disk()
    opened = open_v1(disk)
    states = [picture(opened.engine, restarted=True)]
    session = opened.engine.connect(b"a new session").session
    session.set_client(b"worker", b"ann")
    for number in range(3):
        opened.engine.outbox.actor = session
        opened.engine.put(opened.engine.tubes[b"kept"], Draft(b"%d" % number, headers=b"\1\0\1\0hv"), OPENED)
        opened.engine.outbox.actor = None
        opened.log.commit(OPENED, OPENED)
        states.append(picture(opened.engine, restarted=True))
    opened.log.make_durable(opened.log.written)
    return disk, states


def test_the_first_segment_of_version_2_cut_at_every_byte_is_a_prefix_after_version_1(compiled: bool) -> None:
    disk, states = small_upgrade()
    name = "segment-0000000006.log"
    assert segment_names(disk)[-1] == name
    with FrameFile(disk, name) as file:
        frames = [found.base + found.frame.at for found in file.frames()]
        end = frames[-1] + next(reversed(list(file.frames()))).frame.length
    states.insert(0, picture(open_v1(v1_disk()).engine, restarted=False))
    data, seen = disk.read(name), 0
    # Every byte, or every fifth in the interpreted build, which is ten times slower.
    for size in [*range(frames[0], end, 1 if compiled else 5), end]:
        cut = disk.copy()
        cut.files[name] = bytearray(data[:size])
        found = picture(open_v1(cut).engine, restarted=False)
        index = max(i for i, state in enumerate(states) if state == found)
        assert index >= seen, "more bytes never mean less history"
        seen = index
    assert seen == len(states) - 1


def test_a_flipped_bit_in_a_mixed_directory_is_cut_as_a_torn_tail_or_refused(compiled: bool) -> None:
    disk, states = small_upgrade()
    states.insert(0, picture(open_v1(v1_disk()).engine, restarted=False))
    refused = cut = 0
    for name in ("segment-0000000004.log", "segment-0000000005.log", "segment-0000000006.log"):
        with FrameFile(disk, name) as file:
            end = SEGMENT_HEADER_BYTES + sum(found.frame.length for found in file.frames())
        for place in range(8 * SEGMENT_HEADER_BYTES, 8 * end, 101 if compiled else 501):
            flipped = disk.copy()
            flipped.files[name][place // 8] ^= 1 << place % 8
            try:
                opened = open_v1(flipped)
            except DamagedJournal as error:
                # The first frame of a segment that was created in advance has the position of the segment.
                missing = "segment-0000000005.log begins at position 317, not 276"
                assert f"{name} is damaged at offset" in str(error) or missing in str(error)
                refused += 1
            else:
                assert name == "segment-0000000006.log"
                assert picture(opened.engine, restarted=False) in states
                cut += 1
    assert refused > 20 and cut > 0
