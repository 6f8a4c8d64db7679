"""Reading a log back: the newest snapshot, then the last row of each job wins, and what cannot be meant is refused.

A frame that cannot be read is the *torn tail* of a log that was cut off while being written, or it is *damage*. It is
damage if something after it proves that it had been durable: a later frame that says so, or one written under the same
boot of the machine (then no power cut can have reordered the writes). A tail is cut, with a warning that says how many
bytes; damage is refused by file and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Final

from penstock.core import policy as p
from penstock.core import restore
from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal, NoSpace
from penstock.core.job import Job
from penstock.core.limits import NEVER
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.journal import frame as f
from penstock.journal.disk import UNFINISHED, Disk, ReadableDisk
from penstock.journal.identity import NODE_FILE, epoch_floor, identity, make_identity
from penstock.journal.log import ALWAYS, SEGMENT_BYTES, Kept, Log
from penstock.journal.replay import Replay, TubeSoFar
from penstock.journal.segment import (
    NOT_BEGUN,
    SEGMENT_HEADER_BYTES,
    Found,
    FrameFile,
    Piece,
    SegmentHeader,
    index_name,
    number_of,
    segment_name,
    segment_names,
    snapshot_names,
)
from penstock.journal.snapshot import read_snapshot

# How much may be replayed before it is committed: one frame must not grow without bound.
_COMMIT_BYTES: Final = 16 * 1024 * 1024

Progress = Callable[[int, int], None]  # Bytes read, bytes in all.


@dataclass
class Opened:
    """A log that was read back, and is open for more."""

    engine: Engine
    log: Log
    node: str
    key: bytes  # Of the ids.
    warnings: list[str]


def open_log(
    disk: Disk,
    wall: int,
    boot: str,
    *,
    fsync: str = ALWAYS,
    entropy: int = 1,
    grace_ms: int = 0,
    segment_bytes: int = SEGMENT_BYTES,
    memory_max: int = NEVER,
    progress: Progress | None = None,
    salvage: list[str] | None = None,
) -> Opened:
    """Read the log of a directory back into an engine, and open it for more.

    With a `memory_max`, bodies are left on disk. With `salvage`, whatever can be read is used, and what could not be is
    told there.
    """
    if NODE_FILE not in disk.names():
        make_identity(disk)
    node, key = identity(disk)
    for name in disk.names():
        if name.endswith(UNFINISHED):
            disk.remove(name)
    reading = _Reading(disk, node, boot, wall, memory_max != NEVER, progress, salvage)
    replay = reading.read()
    reading.cut(disk)
    last = reading.headers[-1] if reading.headers else reading.snapshot
    # A directory that was restored from a copy must not give out ids that the original gave out afterwards.
    epoch = max(restore.next_epoch(replay.highest_id, last.epoch if last else 0), epoch_floor(disk))
    now = max(wall, replay.latest_ms)
    try:
        log = Log(disk, node, boot, epoch, reading.next_segment, replay.position, fsync, wall, segment_bytes)
    except OSError as error:
        raise NoSpace(f"the log cannot be opened: {error}") from error
    log.kept = Kept(reading.first_segment, reading.first_created, reading.snapshot_bytes, reading.log_bytes)
    engine = Engine(epoch, now, log.writer, entropy)
    engine.session_grace_ms = grace_ms
    log.attach(engine)
    if salvage is not None:
        _make_do(replay, now)
    _fill(engine, replay)
    _fill_holders(engine, replay, now, log, wall)
    in_doubt = last is not None and not replay.stopped and last.fsync != ALWAYS and last.boot != boot
    if in_doubt or salvage:
        _doubt(engine, now)
    log.commit(now, wall)
    log.make_durable(log.written)
    return Opened(engine, log, node, key, reading.warnings)


def examine(disk: ReadableDisk, boot: str, progress: Progress | None = None) -> list[str]:
    """What of a directory could not be read, if it were to be salvaged now; nothing is changed."""
    problems: list[str] = []
    _Reading(disk, identity(disk)[0], boot, 0, True, progress, problems).read()
    return problems


def check_log(disk: ReadableDisk, boot: str, progress: Progress | None = None) -> list[str]:
    """Read what an open would read: raise what it would refuse, and tell what it would warn of. Nothing is changed."""
    reading = _Reading(disk, identity(disk)[0], boot, 0, True, progress, None)
    reading.read()
    return reading.warnings


class _Reading:
    """One reading of a directory: the newest snapshot that is whole, and the log from there on."""

    def __init__(
        self,
        disk: ReadableDisk,
        node: str,
        boot: str,
        wall: int,
        leave_bodies: bool,
        progress: Progress | None,
        salvage: list[str] | None,
    ) -> None:
        self.warnings: list[str] = []
        self.headers: list[SegmentHeader] = []  # Of the segments that are needed.
        self.first_segment = 1  # That is read.
        self.first_created = wall
        self.log_bytes = 0  # Of those that were read.
        self.snapshot: SegmentHeader | None = None
        self.snapshot_bytes = 0
        self._disk = disk
        self._node = node
        self._boot = boot
        self._leave_bodies = leave_bodies
        self._progress = progress
        self._salvage = salvage
        self._done = 0
        self._total = 0
        self._cuts: list[tuple[str, int]] = []  # Where segments end, if before their end.
        self._lost: list[str] = []  # Segments that were made ahead, or that follow a tail which is lost.
        self._epoch = 0  # Of what was read last.

    def read(self) -> Replay:
        """Read everything that is needed."""
        replay = self._read_snapshot()
        self._read_headers()
        if self.headers:
            self.first_created = self.headers[0].created
        self._total += sum(self._disk.size(header.name) for header in self.headers)
        for index, header in enumerate(self.headers):
            if header.position == NOT_BEGUN:
                # It has no frame to begin with: nothing was written to it, or all that was is lost.
                if self._proves(None, [header], replay):
                    self._refuse(f"{header.name} is damaged at offset {SEGMENT_HEADER_BYTES}")
            elif self._follows(index, replay):
                self._read_segment(index, replay)
            else:
                self._lose(index)
                break
        while self.headers and self.headers[-1].position == NOT_BEGUN:
            self._lose(len(self.headers) - 1)
        self._check(replay)
        return replay

    def _lose(self, index: int) -> None:
        """The log ends before a segment."""
        self._lost = [*(header.name for header in self.headers[index:]), *self._lost]
        del self.headers[index:]

    @property
    def next_segment(self) -> int:
        """The number of the segment with which the log goes on."""
        return self.headers[-1].segment + 1 if self.headers else self.first_segment

    def cut(self, disk: Disk) -> None:
        """End the log where what was read ends, once none of it was refused."""
        for name in reversed(self._lost):
            # The first of them stays until the next segment takes its place: a snapshot must not stand alone.
            if number_of(name) != self.next_segment:
                disk.remove(name)
        for name, end in self._cuts:
            _cut(disk, name, end)
        cut = [*self._lost, *(name for name, _ in self._cuts)]
        for index in {index_name(number_of(name)) for name in cut} & set(disk.names()):
            # It may tell of rows that are lost.
            disk.remove(index)

    def _refuse(self, why: str) -> None:
        """What cannot be meant is refused, unless everything that can be read is to be salvaged."""
        if self._salvage is None:
            raise DamagedJournal(f"{why}; restore a backup, or see `penstock journal repair`. Nothing was changed")
        self._salvage.append(why)

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _open(self, name: str) -> FrameFile:
        file = FrameFile(self._disk, name)
        if file.header.node != self._node:
            file.close()
            raise DamagedJournal(f"{name} belongs to another node ({file.header.node}); it was copied here by mistake")
        return file

    def _read_headers(self) -> None:
        """Look at the segments that are needed; those before are history, and whether it can be read is not asked."""
        for name in segment_names(self._disk):
            if number_of(name) < self.first_segment:
                continue
            try:
                with self._open(name) as file:
                    self.headers.append(file.header)
            except DamagedJournal as error:
                if self._salvage is None:
                    raise
                self._salvage.append(str(error))
        numbers = [self.first_segment - 1, *(header.segment for header in self.headers)]
        for before, after in pairwise(numbers):
            if after != before + 1:
                self._refuse(f"{segment_name(before + 1)} is missing")
        if self.snapshot is not None and not self.headers:
            self._refuse(f"{segment_name(self.first_segment)} is missing")

    def _read_snapshot(self) -> Replay:
        """What the newest snapshot says that is whole; nothing, if there is none, and the log is all there."""
        for name in reversed(snapshot_names(self._disk)):
            replay = Replay(self._leave_bodies)
            self._done, self._total = 0, self._disk.size(name)
            try:
                with self._open(name) as file:
                    read_snapshot(file, replay, self._tell)
                    self.snapshot, self.snapshot_bytes = file.header, file.size
                    self.first_segment, self._epoch = file.header.segment, file.header.epoch
                    replay.position = file.header.position
                    return replay
            except DamagedJournal as error:
                self.warnings.append(f"{name} cannot be used: {error}")
                if self._salvage is not None:
                    self._salvage.append(self.warnings[-1])
        self._done = self._total = 0
        names = segment_names(self._disk)
        if names and number_of(names[0]) != 1:
            why = [f"{segment_name(1)} is missing, and no snapshot can be used in its place", *self.warnings]
            self._refuse("; ".join(why))
            self.first_segment = number_of(names[0])
        return Replay(self._leave_bodies)

    def _follows(self, index: int, replay: Replay) -> bool:
        """Whether the log goes on with a segment, or ended before it: in a power cut the older of two may be lost."""
        header, later = self.headers[index], self.headers[index:]
        if header.position != replay.position:
            wrong = f"{header.name} begins at position {header.position}, not {replay.position}"
            if header.position > replay.position and self._salvage is None and not self._proves(None, later, replay):
                self.warnings.append(f"{wrong}: cut {', '.join(lost.name for lost in later)}")
                return False
            self._refuse(wrong)
        return True

    def _read_segment(self, index: int, replay: Replay) -> None:
        """Let the rows of one segment be the last word; where it ends too early, judge why."""
        header = self.headers[index]
        if header.epoch != self._epoch and not replay.stopped:
            replay.use_up_integers()
        self._epoch = header.epoch
        replay.position = header.position
        replay.stopped = False
        with self._open(header.name) as file:
            end = SEGMENT_HEADER_BYTES
            pieces = file.pieces()
            while True:
                try:
                    piece = next(pieces, None)
                    if piece is None and file.used(end) > end:
                        raise f.DamagedFrame("zeros, and more behind them")
                except f.DamagedFrame as why:
                    resume = self._judge(file, self.headers[index + 1 :], end, replay, str(why))
                    if resume is None:
                        break
                    end = resume
                    pieces = file.pieces(resume)
                    continue
                if piece is None:
                    break
                end = self._apply(file, piece, replay)
            self.log_bytes += end
            if file.size > end or index + 1 == len(self.headers):
                self._cuts.append((file.name, end))
            self._tell(file.size)

    def _apply(self, file: FrameFile, piece: Piece, replay: Replay) -> int:
        """Let a piece of a segment be the last word; tell where its frames end."""
        data, frames, base = piece
        while (stranger := replay.apply_all(data, frames, file.header.segment, base)) is not None:
            lost = f"the events at positions {replay.position} to {stranger.position - 1} are lost"
            self._refuse(f"{file.name} is damaged before offset {base + stranger.at}: {lost}")
            replay.position = stranger.position
            frames = frames[frames.index(stranger) :]
        return base + piece.frames[-1].at + piece.frames[-1].length

    def _judge(self, file: FrameFile, later: list[SegmentHeader], end: int, replay: Replay, why: str) -> int | None:
        """A frame cannot be read: damage is refused, a torn tail is cut. Who salvages goes on where this tells."""
        if self._salvage is not None:
            self._salvage.append(f"{file.name}: nothing could be read from offset {end} on ({why})")
            found = next(file.frames_anywhere(end + 8), None)
            return None if found is None else found.base
        if self._proves((file, end + 8), later, replay):
            durable = "and what follows shows that it was durable"
            self._refuse(f"{file.name} is damaged at offset {end} ({why}), {durable}")
        cut = file.used(end) - end
        self.warnings.append(f"{file.name}: cut a torn tail of {cut} bytes at offset {end} ({why})")
        return None

    def _proves(self, rest: tuple[FrameFile, int] | None, later: list[SegmentHeader], replay: Replay) -> bool:
        """Whether the rest of a segment, or a later one, proves that what is missing before it had been on disk."""
        position = replay.position
        if any(header.durable > position for header in later):
            return True
        return any(
            found.frame.durable > position or header.boot == self._boot
            for header, found in self._later_frames(rest, later)
        )

    def _later_frames(
        self, rest: tuple[FrameFile, int] | None, later: list[SegmentHeader]
    ) -> Iterator[tuple[SegmentHeader, Found]]:
        """Every frame that is good after a place, wherever it begins."""
        if rest is not None:
            file, start = rest
            for found in file.frames_anywhere(start):
                yield file.header, found
        for header in later:
            with self._open(header.name) as other:
                for found in other.frames_anywhere(SEGMENT_HEADER_BYTES):
                    yield header, found

    def _check(self, replay: Replay) -> None:
        """Whether what was read can be all of it."""
        upto = replay.counters.get("upto", 0)
        if upto > replay.position:
            self._refuse(f"the log ends at position {replay.position}, and the snapshot was taken at {upto}")
        if replay.bodiless:
            self._refuse(f"the bodies of {len(replay.bodiless)} jobs are missing")
            replay.drop_bodiless()


def _cut(disk: Disk, name: str, end: int) -> None:
    """End a segment of an earlier open where its frames end: no torn tail, no unused room; and all of it durable."""
    file = disk.open(name)
    try:
        if file.size() > end:
            file.truncate(end)
        else:
            file.sync()
    finally:
        file.close()


# How a job that is there may have come to be in its state, as far as anybody knows.
_ARRIVALS: Final = {
    s.READY: [s.MOVED_IN_READY],
    s.DELAYED: [s.MOVED_IN_DELAYED],
    s.BURIED: [s.MOVED_IN_BURIED],
    s.DONE: [s.MOVED_IN_DONE],
    s.TAKEN: [s.MOVED_IN_READY, s.TOOK],
    s.ZOMBIE: [s.MOVED_IN_READY, s.SWITCHED_ZOMBIE],
}


def _make_do(replay: Replay, now: int) -> None:
    """Where rows are lost, let every job have a tube, and let statistics begin anew with the jobs that are there."""
    jobs_of = restore.by_tube(replay.jobs, replay.late, len(replay.tubes))
    names: set[bytes] = set()
    for number in sorted(replay.tube_at, reverse=True):
        at = replay.tube_at[number]
        tube, jobs = replay.tubes[at], jobs_of[at]
        assert tube is not None
        if jobs and not tube.told:
            ids = p.ID_INTEGER if all(job.local >= 0 for job in jobs) else p.ID_LONG
            policy = asdict(replace(p.FIFOTTL, ids=ids))
            tube.told = {"policy": policy, "created": now, "paused_in": False, "paused_out": False}
        if not tube.name or tube.name in names:
            # It was dropped, and made anew, and the row that said so is lost.
            tube.name = (tube.name[:60] + b" tube %d" % number).strip()
        names.add(tube.name)
        tube.reserved = max(tube.reserved, tube.next_local)
        tube.counts = [0] * s.RULES_COUNT
        tube.key_counts = {key: [0] * s.RULES_COUNT for key in tube.key_counts}
        for job in jobs:
            state = s.GONE
            for event in _ARRIVALS[job.state]:
                rule = s.rule_of(event, state)
                tube.counts[rule] += 1
                state = s.TARGET_OF[rule]


def _fill(engine: Engine, replay: Replay) -> None:
    """Give the engine what the log says."""
    restore.restore_table(engine, replay.jobs, replay.late)
    jobs_of = restore.by_tube(replay.jobs, replay.late, len(replay.tubes))
    creation = replay.counters.get("last_creation", 0)
    for number in sorted(replay.tube_at):
        at = replay.tube_at[number]
        told, jobs = replay.tubes[at], jobs_of[at]
        if told is None or not told.told:
            if jobs:
                raise DamagedJournal(f"{len(jobs)} jobs are in a tube that no row tells of")
            continue
        tube = _fill_tube(engine, told, jobs, replay)
        if tube.by_creation:
            creation = max(creation, restore.creation_of(jobs))
    restore.used_number(engine, max(replay.highest_number, replay.counters.get("next_number", 0) - 1))
    restore.used_orders(engine, min(replay.lowest_order, replay.counters.get("next_front", 0)), creation)
    for number, dedup, job_id, ttl_minutes, when in replay.dedups:
        known = engine._tubes_by_number.get(number)
        if known is not None:
            restore.restore_dedup(known, dedup, job_id, ttl_minutes, when)


def _fill_tube(engine: Engine, so_far: TubeSoFar, jobs: list[Job], replay: Replay) -> Tube:
    told = so_far.told
    fields = told["policy"]
    policy = TubePolicy(**{**fields, "key_stats": tuple(fields["key_stats"])})
    tube = restore.restore_tube(engine, so_far.number, so_far.name, policy, told["created"])
    tube.paused_in, tube.paused_out = told["paused_in"], told["paused_out"]
    tube.counts_before = so_far.counts
    for key, stats in tube.key_stats.items():
        stats.counts_before = so_far.key_counts[key]
    # After a stop that was not in order, integers up to the ceiling may have been seen by somebody.
    tube.promised = tube.reserved = max(so_far.reserved, tube.reserved)
    tube.next_local = so_far.next_local if replay.stopped else max(so_far.next_local, tube.reserved)
    if tube.ready_bodies is not None:
        for job in jobs:
            # It is looked up by its body.
            job.body = engine.outbox.body_of(job)
    restore.restore_jobs(engine, tube, jobs, replay.keys)
    return tube


def _fill_holders(engine: Engine, replay: Replay, now: int, log: Log, wall: int) -> None:
    """Taken jobs: of a claim they stay claimed, of a session with grace they wait for it, of another they go back."""
    claimed: dict[bytes, list[Job]] = {name: [] for name in replay.consumers}
    held: dict[int, list[Job]] = {}
    orphans: list[Job] = []
    for tube in engine.tubes.values():
        for job in tube.taken.items:
            if job.extra is not None and job.extra.consumer:
                claimed[job.extra.consumer].append(job)
            elif tube.owned:
                session = replay.held.get(job.id, 0)
                if engine.session_grace_ms > 0 and session in replay.sessions:
                    held.setdefault(session, []).append(job)
                else:
                    orphans.append(job)
    for name, jobs in claimed.items():
        jobs.sort(key=lambda job: (job.rare().claim, job.rare().claim_place))
        restore.restore_claims(engine, replay.consumers[name], jobs, now)
        restore.end_claims(engine, replay.consumers[name], replay.open_claims[name], now)
    for session, jobs in held.items():
        restore.restore_session(engine, session, replay.sessions[session], jobs, now)
    # By their ids, so that the same log is always continued in the same way.
    for orphan in sorted(orphans, key=lambda job: job.id):
        restore.release_orphan(engine, orphan, now)
        if log.writer.frame_bytes() > _COMMIT_BYTES:
            log.commit(now, wall)


def _doubt(engine: Engine, now: int) -> None:
    """The newest rows may be lost: also that of a take. At most once is at most once."""
    doubtful = [
        job
        for tube in engine.tubes.values()
        for state in (s.READY, s.DELAYED)
        for job in tube.jobs_in(state)
        if job.once and (state == s.READY or job.wake <= now)
    ]
    restore.bury_doubtful(engine, sorted(doubtful, key=lambda job: job.id), now)
