"""History is found through indexes, and is the same without them. Each segment can be read alone."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest

from penstock.core import policy
from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal
from penstock.core.job import Draft, Job
from penstock.core.tube import Tube
from penstock.journal.frame import MARK_BYTES
from penstock.journal.history.index import SegmentIndex, decode_index
from penstock.journal.history.reader import Event, Reader
from penstock.journal.identity import NODE_FILE
from penstock.journal.log import Log
from penstock.journal.maintenance.retention import Retention, trim, without_bodies
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import SEGMENT_HEADER_BYTES, FrameFile, index_name, number_of, segment_name, segment_names
from penstock.testing.disk import MemoryDisk, crashes
from tests.journal.changing_disk import ChangingDisk
from tests.journal.shortened_queue import WALL, reopen, write_index

# Long enough for several marks in an index.
SEGMENT = 3 * MARK_BYTES

Told = dict[int, list[tuple[str, str]]]


def test_every_segment_has_the_names_of_the_sessions_that_acted_in_it() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "one boot", segment_bytes=SEGMENT)
    engine, log = opened.engine, opened.log
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    named, nameless = engine.connect(b"1" * 16).session, engine.connect(b"2" * 16).session
    named.set_client(b"worker-3", b"")
    for number in range(3_000):
        engine.outbox.actor = (named, nameless, None)[number % 3]
        engine.put(tube, Draft(b"x" * 50), WALL)
        if number == 2_500:
            named.set_client(b"caf\xff", b"ann")
        log.commit(WALL, WALL)
    names = segment_names(disk)
    assert len(names) > 2
    told: list[list[Event]] = []
    for _ in range(2):
        reader = Reader(disk)
        events = [event for event in reader.events() if event.job]
        assert {(event.actor, event.actor_name, event.actor_user) for event in events} == {
            (named.number, "worker-3", None),
            (named.number, "caf\\xff", "ann"),
            (nameless.number, None, None),
            (None, None, None),
        }
        for event in events[:: len(events) // 20]:
            assert event.job is not None
            [found] = reader.history(reader.number_of(event.job))
            # A session that was renamed has its last name in the index of a segment.
            assert found == event or (found.actor_name, event.actor_name) == ("caf\\xff", "worker-3")
        told.append([*reader.events()])
        for name in names[:-1]:
            write_index(disk, name)
    assert told[0] == told[1]
    introduced = [event for event in told[0] if event.event == "session named"]
    assert {(event.actor, event.actor_name) for event in introduced} == {
        (named.number, "worker-3"),
        (named.number, "caf\\xff"),
    }


class Story:
    """Work on a disk, and record the changes of each job as subscribers receive them."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.told: Told = defaultdict(list)
        self.live: list[int] = []
        self.open()

    def open(self) -> None:
        opened = open_log(self.disk, lambda: WALL, "one boot", segment_bytes=SEGMENT)
        self.engine: Engine = opened.engine
        self.log: Log = opened.log
        self.engine.watch = self._tell
        self.session = self.engine.connect(b"%016d" % self.log.segment).session

    def work(self, rounds: int) -> None:
        """Jobs with all kinds of histories: one stays, one is acked, one returns, one moves."""
        engine = self.engine
        for number in range(rounds):
            tube = engine.create_tube(b"tube-%d" % (number % 3), policy.FIFO, WALL)
            stays = self.put(tube)
            for _ in range(3):
                self.put(tube)
            self.commit()
            jobs = [engine.take(self.session, tube, WALL) for _ in range(len(tube.ready))]
            self.commit()
            fates = [job for job in jobs if job is not None and job.id not in self.live]
            for job in jobs:
                if job is not None and job.id in self.live:
                    engine.release(self.session, job, WALL)
            engine.release(self.session, stays, WALL)
            engine.ack(self.session, fates[-3], WALL)
            engine.bury(self.session, fates[-2], WALL, b"later")
            engine.kick(tube, 1, WALL)
            engine.delete(fates[-2], WALL)
            engine.release(self.session, fates[-1], WALL)
            engine.move(self.session, fates[-1], engine.create_tube(b"other", policy.FIFOTTL, WALL), WALL)
            self.commit()
            self.live.append(stays.id)

    def put(self, tube: Tube) -> Job:
        return self.engine.put(tube, Draft(bytes(3_000)), WALL)

    def commit(self) -> None:
        self.log.commit(WALL, WALL)
        self.log.make_durable(self.log.written)

    def restart(self) -> None:
        self.log.close(WALL, WALL)
        self.open()

    def index(self) -> None:
        """Index the full segments, as maintenance does."""
        for name in segment_names(self.disk):
            if number_of(name) < self.log.segment and index_name(number_of(name)) not in self.disk.names():
                write_index(self.disk, name)

    def _tell(self, job: Job, tube: Tube, rule: int, now: int) -> None:
        self.told[job.id].append((s.EVENT_NAMES[s.TRANSITIONS[rule][0]], tube.name.decode()))


@pytest.fixture
def story() -> Story:
    """Return a log of three opens, two snapshots and several segments, all indexed except the newest."""
    story = Story(MemoryDisk())
    for _ in range(3):
        story.work(8)
        story.log.prepare()
        story.work(8)
        take_snapshot(story.disk, story.log, story.engine, WALL, WALL)
        story.restart()
    story.work(4)
    story.index()
    assert len(segment_names(story.disk)) > 8
    return story


def histories(reader: Reader, told: Told) -> Told:
    return {job: [(event.event, event.tube or "") for event in reader.history(job)] for job in told}


def index_names(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".idx")]


def index_of(disk: MemoryDisk, name: str) -> SegmentIndex:
    index = SegmentIndex()
    with FrameFile(disk, name) as file:
        for piece in file.pieces():
            index.add(piece)
    return index


def check_same(one: SegmentIndex, other: SegmentIndex, jobs: list[int]) -> None:
    assert (one.names.tubes, one.names.sessions) == (other.names.tubes, other.names.sessions)
    assert [one.newest(job) for job in jobs] == [other.newest(job) for job in jobs]
    places = range(5_000)
    assert [one.offset_of(position) for position in places] == [other.offset_of(position) for position in places]


def test_an_index_is_the_same_after_it_was_written_and_read(story: Story) -> None:
    jobs = [0, *story.told, 1 << 62]
    for name in segment_names(story.disk):
        made = index_of(story.disk, name)
        check_same(decode_index("x.idx", made.encode(lambda: None)), made, jobs)
    empty = decode_index("x.idx", SegmentIndex().encode(lambda: None))
    assert empty.newest(1) is None and empty.names.tubes == empty.names.sessions == {}


def test_an_index_has_the_newest_row_of_each_job_and_no_other(story: Story) -> None:
    for name in segment_names(story.disk):
        number = number_of(name)
        newest: dict[str, int] = {}
        for event in Reader(alone(story.disk, name)).events():
            if event.job is not None:
                newest[event.job] = event.position
        ids = Reader(story.disk)._ids
        found = decode_index("x.idx", index_of(story.disk, name).encode(lambda: None))
        for job in story.told:
            expected = [position for long, position in newest.items() if ids.parse_long(long.encode()) == job]
            assert [found.newest(job)] == (expected or [None]), f"segment {number}"


def test_an_index_that_is_truncated_or_has_a_flipped_bit_is_refused(story: Story) -> None:
    data = story.disk.read(index_name(2))
    good = decode_index("x.idx", data)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        try:
            other = decode_index("x.idx", bytes(flipped))
        except DamagedJournal as error:
            assert "x.idx" in str(error)
        else:
            # Reserved fields are not read.
            check_same(other, good, list(story.told))
    for size in range(len(data)):
        with pytest.raises(DamagedJournal, match=r"x\.idx"):
            decode_index("x.idx", data[:size])


def test_the_history_of_each_job_equals_the_changes_sent_to_subscribers(story: Story) -> None:
    assert histories(Reader(story.disk), story.told) == story.told


def test_the_history_of_a_job_that_is_there_can_begin_with_its_newest_row(story: Story) -> None:
    reader = Reader(story.disk)
    for job in story.engine.jobs.scan(0, 1_000):
        assert reader.history(job.id, newest=job.position) == reader.history(job.id)


def test_looking_up_an_event_reads_little_more_than_one_mark_distance(story: Story) -> None:
    disk = ChangingDisk(story.disk)
    reader = Reader(disk)
    job = next(iter(story.told))
    reader.history(job)  # The indexes are in memory from now on.
    newest = story.engine.jobs.find(job)
    assert newest is not None
    before = disk.read_bytes
    events = reader.history(job, newest.position)
    # A row is at most a mark and a frame after a position in the index. Headers are read to identify files.
    assert len(events) > 10 and (disk.read_bytes - before) / len(events) < 1.5 * MARK_BYTES + 3 * SEGMENT_HEADER_BYTES


def test_history_is_the_same_without_indexes(story: Story) -> None:
    for name in index_names(story.disk):
        story.disk.remove(name)
    assert histories(Reader(story.disk), story.told) == story.told


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"x" + data[1:],
        lambda data: data[:8] + b"\x01" + data[9:],
        lambda data: bytes(len(data)),
    ],
    ids=["empty", "a piece of header", "cut", "flipped", "no magic", "another version", "zeros"],
)
def test_history_is_the_same_with_indexes_that_are_damaged(story: Story, spoil: object) -> None:
    assert callable(spoil)
    for name in index_names(story.disk):
        story.disk.files[name] = bytearray(spoil(story.disk.read(name)))
    assert histories(Reader(story.disk), story.told) == story.told


def test_history_starts_later_after_old_segments_were_removed(story: Story) -> None:
    first = 4
    for number in range(1, first):
        story.disk.remove(segment_name(number))
        story.disk.remove(index_name(number))
    kept = [event for event in Reader(story.disk).events() if event.job is not None]
    ids = Reader(story.disk)._ids
    for job in story.told:
        expected = [event for event in kept if event.job and ids.parse_long(event.job.encode()) == job]
        assert Reader(story.disk).history(job) == expected


@pytest.mark.parametrize("indexed", [True, False])
def test_events_from_any_position_are_the_end_of_all_events(story: Story, indexed: bool) -> None:
    if not indexed:
        for name in index_names(story.disk):
            story.disk.remove(name)
    reader = Reader(story.disk)
    everything = list(reader.events())
    assert [event.position for event in everything] == list(range(1, len(everything) + 1))
    for start in range(1, len(everything) + 3):
        first = list(reader.events(start, start + 5))
        assert first == everything[start - 1 : start + 4]
    for start in range(1, len(everything), 97):
        assert list(reader.events(start)) == everything[start - 1 :]


@pytest.mark.parametrize("bodies", [True, False])
def test_events_from_before_the_oldest_kept_begin_with_that_one(story: Story, bodies: bool) -> None:
    everything = list(Reader(story.disk).events())
    trim(story.disk, story.log, Retention(bytes_max=3 * SEGMENT), WALL)
    while not bodies and without_bodies(story.disk, story.log):
        pass
    reader = Reader(story.disk)
    kept = list(reader.events())
    horizon = kept[0].position
    assert 1 < horizon < len(everything)
    assert [_bare(event) for event in kept] == [_bare(event) for event in everything[horizon - 1 :]]
    if bodies:
        assert kept == everything[horizon - 1 :]
    for start in range(1, len(everything), 31):
        assert list(reader.events(start)) == kept[max(0, start - horizon) :]


def _bare(event: Event) -> Event:
    return dataclasses.replace(event, body=None)


def alone(disk: MemoryDisk, name: str) -> MemoryDisk:
    """Return a disk with only one segment of the log."""
    only = disk.copy()
    for other in only.names():
        if other not in (name, NODE_FILE):
            only.remove(other)
    return only


def test_each_segment_contains_the_names_of_its_tubes(story: Story) -> None:
    tubes = {event.position: event.tube for event in Reader(story.disk).events()}
    seen = 0
    for name in segment_names(story.disk):
        with FrameFile(story.disk, name) as file:
            if not file.header.position:
                continue
        only = alone(story.disk, name)
        for event in Reader(only).events():
            assert event.tube == tubes[event.position]
            seen += event.tube is not None
            first = next(Reader(only).events(event.position))
            assert first.tube == tubes[event.position]
    assert seen > 500
    assert {tube for tube in tubes.values() if tube} == {"tube-0", "tube-1", "tube-2", "other"}


@pytest.mark.parametrize("made_ahead", [True, False])
def test_the_frame_that_begins_a_segment_names_its_tubes(made_ahead: bool) -> None:
    """The frame was made for the previous segment, which has the names of its tubes. They must be written again."""
    story = Story(MemoryDisk())
    engine = story.engine
    tubes = [engine.create_tube(b"tube-%d" % number, policy.FIFO, WALL) for number in range(5)]
    dropped = engine.create_tube(b"dropped", policy.FIFO, WALL)
    for tube in [*tubes, dropped]:
        story.put(tube)
    story.commit()
    if made_ahead:
        story.log.prepare()
    for tube in tubes:
        engine.put(tube, Draft(bytes(SEGMENT // 5)), WALL)
    engine.drop(dropped, WALL)
    engine.create_tube(b"made", policy.FIFO, WALL)
    story.commit()
    assert story.log.segment == 2
    events = list(Reader(alone(story.disk, segment_name(2))).events())
    assert [event.tube for event in events if event.event == "put"] == [f"tube-{number}" for number in range(5)]
    assert [event.tube for event in events if event.event == "truncated"] == ["dropped"]
    assert [event.tube for event in events if event.event == "tube made"] == ["made"]


def test_tubes_keep_their_names_when_the_segment_in_which_they_were_made_is_gone(story: Story) -> None:
    trim(story.disk, story.log, Retention(bytes_max=0), WALL)
    story.restart()
    story.work(6)
    events = [event for event in Reader(story.disk).events() if event.job is not None]
    assert {event.tube for event in events} == {"tube-0", "tube-1", "tube-2", "other"}
    by_job = {job: tube for job, told in story.told.items() for _, tube in told[:1]}
    ids = Reader(story.disk)._ids
    for event in events:
        if event.event == "put" and event.job is not None:
            assert event.tube == by_job[ids.parse_long(event.job.encode())]


def test_a_reader_that_is_kept_sees_segments_that_were_rewritten_without_bodies(story: Story) -> None:
    reader = Reader(story.disk)
    before = histories(reader, story.told)
    while without_bodies(story.disk, story.log):
        pass
    assert histories(reader, story.told) == before
    everything = list(reader.events())
    for start in range(1, len(everything), 13):
        assert list(reader.events(start)) == everything[start - 1 :]


def test_an_index_of_rows_that_a_power_cut_lost_is_not_used() -> None:
    disk = MemoryDisk()
    story = Story(disk)
    first = story.put(story.engine.create_tube(b"t", policy.FIFO, WALL))
    story.commit()
    while story.log.segment == 1:
        # Written, but not synced.
        lost = story.put(story.engine.tubes[b"t"])
        story.log.commit(WALL, WALL)
    story.index()
    cut = next(crashes(disk, len(disk.effects)))
    assert index_name(1) in cut.names()
    opened = reopen(cut)
    tube = opened.engine.tubes[b"t"]
    kept = [opened.engine.put(tube, Draft(b"new"), WALL).id for _ in range(40)]
    opened.log.commit(WALL, WALL)
    reader = Reader(cut)
    for job in [first.id, *kept]:
        assert [event.event for event in reader.history(job)] == ["put"]
    for job in range(first.id + 1, lost.id + 1):
        assert reader.history(job) == []


def test_an_index_of_a_segment_that_a_power_cut_has_lost_is_not_the_index_of_the_next_one() -> None:
    disk = MemoryDisk()
    story = Story(disk)
    tube = story.engine.create_tube(b"t", policy.FIFO, WALL)
    story.put(tube)
    story.commit()
    while story.log.segment < 3:
        story.put(tube)
        story.log.commit(WALL, WALL)
    story.index()
    cut = next(crashes(disk, len(disk.effects)))
    opened = reopen(cut)
    again = opened.engine.tubes[b"t"]
    kept = []
    for _ in range(100):
        kept.append(opened.engine.put(again, Draft(bytes(1_000)), WALL).id)
        opened.log.commit(WALL, WALL)
    reader = Reader(cut)
    for job in kept:
        assert [event.event for event in reader.history(job)] == ["put"]
    everything = list(reader.events())
    for start in range(1, len(everything) + 1):
        assert [event.position for event in reader.events(start)] == list(range(start, len(everything) + 1))


def test_a_job_that_was_in_a_temporary_tube_keeps_the_history_from_before() -> None:
    story = Story(MemoryDisk())
    engine = story.engine
    logged = engine.create_tube(b"logged", policy.FIFO, WALL)
    temporary = engine.create_tube(b"temporary", dataclasses.replace(policy.FIFO, temporary=True), WALL)
    job = story.put(logged)
    engine.move(story.session, job, temporary, WALL)
    engine.move(story.session, job, logged, WALL)
    story.commit()
    assert [event.event for event in Reader(story.disk).history(job.id)] == ["put", "moved out", "moved in"]
