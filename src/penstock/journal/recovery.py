"""Reading a log back: the last row of each job wins, and what the log cannot have meant is refused.

A frame that cannot be read is the *torn tail* of a log that was cut off while being written, or it is *damage*. It is
damage if something after it proves that it had been durable: a later frame that says so, or one written under the same
boot of the machine (then no power cut can have reordered the writes). A tail is cut, with a warning that says how many
bytes; damage is refused by file and offset.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from penstock.core import restore
from penstock.core import states as s
from penstock.core.claims import Consumer
from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal, NoJournal, NoSpace
from penstock.core.job import NO_KEY, Job
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry
from penstock.core.tube import Tube
from penstock.journal import frame as f
from penstock.journal.disk import UNFINISHED, Disk, ReadableDisk
from penstock.journal.log import (
    ALWAYS,
    SEGMENT_BYTES,
    SEGMENT_HEADER_BYTES,
    Log,
    SegmentHeader,
    frame_seed,
    read_header,
    segment_name,
)

NODE_FILE: Final = "node.json"

Progress = Callable[[int, int], None]  # Bytes read, bytes in all.


@dataclass
class Opened:
    """A log that was read back, and is open for more."""

    engine: Engine
    log: Log
    node: str
    key: bytes  # Of the ids.
    warnings: list[str]


@dataclass
class _Segment:
    name: str
    header: SegmentHeader
    data: bytes
    end: int = SEGMENT_HEADER_BYTES  # Where its frames end.


@dataclass
class _Rebuild:
    """What the rows read so far say."""

    jobs: dict[int, Job] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    sessions: dict[int, bytes] = field(default_factory=dict)  # Token by number.
    held: dict[int, int] = field(default_factory=dict)  # Session number by job id.
    tubes: dict[int, dict[str, Any]] = field(default_factory=dict)
    tube_of: dict[int, int] = field(default_factory=dict)  # Tube number by job id.
    counts: dict[int, list[int]] = field(default_factory=dict)
    next_local: dict[int, int] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    dedups: list[tuple[int, bytes, int, int, int]] = field(default_factory=list)
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    open_claims: dict[bytes, list[int]] = field(default_factory=dict)
    claimed_at: dict[int, int] = field(default_factory=dict)  # Position of the claim, by job id.
    leaving: set[int] = field(default_factory=set)  # Jobs that moved out of a tube, and into none yet.
    highest_id: int = 0
    lowest_order: int = 0
    highest_number: int = 0
    latest_ms: int = 0
    position: int = 1
    stopped: bool = True


def open_log(
    disk: Disk,
    wall: int,
    boot: str,
    *,
    fsync: str = "always",
    entropy: int = 1,
    grace_ms: int = 0,
    segment_bytes: int = SEGMENT_BYTES,
    progress: Progress | None = None,
) -> Opened:
    """Read the log of a directory back into an engine, and open it for more."""
    if NODE_FILE not in disk.names():
        _make_identity(disk)
    node, key = identity(disk)
    warnings: list[str] = []
    for name in disk.names():
        if name == "spare" or name.endswith(UNFINISHED):
            disk.remove(name)
    segments = _read_segments(disk, node)
    rebuild = _Rebuild()
    _read_frames(disk, segments, rebuild, boot, warnings, progress)
    epoch = restore.next_epoch(rebuild.highest_id, segments[-1].header.epoch if segments else 0)
    number = segments[-1].header.segment + 1 if segments else 1
    now = max(wall, rebuild.latest_ms)
    try:
        log = Log(disk, node, boot, epoch, number, rebuild.position, fsync, wall, segment_bytes)
    except OSError as error:
        raise NoSpace(f"the log cannot be opened: {error}") from error
    engine = Engine(epoch, now, log.writer, entropy)
    engine.session_grace_ms = grace_ms
    log.writer.attach(engine._session_slots)
    _fill(engine, rebuild, now)
    _fill_holders(engine, rebuild, now, lambda: _commit_some(log, now, wall))
    if segments and not rebuild.stopped and segments[-1].header.fsync != ALWAYS and segments[-1].header.boot != boot:
        _doubt(engine, rebuild, now)
    log.commit(now, wall)
    log.make_durable(log.written)
    return Opened(engine, log, node, key, warnings)


def _commit_some(log: Log, now: int, wall: int) -> None:
    """Do not let one frame grow without bound."""
    if log.writer.frame_bytes() > 16 * 1024 * 1024:
        log.commit(now, wall)


def _make_identity(disk: Disk) -> None:
    """Make a node's id and the secret of its ids, at its first open."""
    if segment_names(disk):
        raise DamagedJournal(f"{NODE_FILE} is missing, and without it the ids of this log mean nothing; restore it")
    told = {"node": secrets.token_hex(20), "key": secrets.token_hex(32)}
    disk.replace(NODE_FILE, json.dumps(told).encode())


def identity(disk: ReadableDisk) -> tuple[str, bytes]:
    """The node's id and the secret of its ids."""
    if NODE_FILE not in disk.names():
        raise NoJournal("there is no log of a queue in this directory")
    try:
        told = json.loads(disk.read(NODE_FILE))
        return told["node"], bytes.fromhex(told["key"])
    except (ValueError, KeyError, TypeError):
        raise DamagedJournal(f"{NODE_FILE} is damaged; restore it from a backup") from None


def segment_names(disk: ReadableDisk) -> list[str]:
    """The files of the log, in order."""
    return [name for name in disk.names() if name.startswith("segment-") and name.endswith(".log")]


def _read_segments(disk: Disk, node: str) -> list[_Segment]:
    found = []
    for name in segment_names(disk):
        data = disk.read(name)
        header = read_header(name, data)
        if header.node != node:
            raise DamagedJournal(f"{name} belongs to another node ({header.node}); it was copied here by mistake")
        if segment_name(header.segment) != name:
            raise DamagedJournal(f"{name} says that it is segment {header.segment}; it was renamed by mistake")
        found.append(_Segment(name, header, data))
    if found and (found[0].header.segment != 1 or found[0].header.position != 1):
        raise DamagedJournal(f"{segment_name(1)} is missing: the log begins with {found[0].name}")
    for before, after in pairwise(found):
        if after.header.segment != before.header.segment + 1:
            raise DamagedJournal(f"{segment_name(before.header.segment + 1)} is missing between its neighbours")
    return found


def _read_frames(
    disk: Disk,
    segments: list[_Segment],
    rebuild: _Rebuild,
    boot: str,
    warnings: list[str],
    progress: Progress | None,
) -> None:
    total = sum(len(segment.data) for segment in segments)
    done = 0
    for index, segment in enumerate(segments):
        at = SEGMENT_HEADER_BYTES
        if index > 0 and segment.header.epoch != segments[index - 1].header.epoch and not rebuild.stopped:
            _use_up_integers(rebuild)
        if segment.header.position != rebuild.position and index > 0:
            raise DamagedJournal(f"{segment.name} begins at position {segment.header.position}, not {rebuild.position}")
        rebuild.position = segment.header.position
        rebuild.stopped = False
        while True:
            try:
                found = f.read_frame(segment.data, at, frame_seed(segment.header.node, segment.header.segment, at))
                if found is None and len(segment.data.rstrip(b"\0")) > at:
                    raise f.DamagedFrame("zeros, and more behind them")
            except f.DamagedFrame as why:
                _judge(segments, index, at, rebuild.position, boot, str(why))
                cut = len(segment.data.rstrip(b"\0")) - at
                warnings.append(f"{segment.name}: cut a torn tail of {cut} bytes at offset {at} ({why})")
                found = None
            if found is None:
                break
            if found.position != rebuild.position:
                wrong = f"position {found.position}, not {rebuild.position}"
                raise DamagedJournal(f"{segment.name} is damaged at offset {at}: {wrong}")
            _apply(segment.data, found, rebuild)
            at += found.length
        segment.end = at
        done += len(segment.data)
        if progress is not None:
            progress(done, total)
    # Only now that all of it was read and judged: what is refused stays as it is.
    for segment in segments:
        _cut(disk, segment, last=segment is segments[-1])


def _use_up_integers(rebuild: _Rebuild) -> None:
    """An open did not end in order, so integers up to the ceilings may have been seen by somebody."""
    for number, ceiling in rebuild.reserved.items():
        rebuild.next_local[number] = max(rebuild.next_local[number], ceiling)


def _judge(segments: list[_Segment], index: int, at: int, position: int, boot: str, why: str) -> None:
    """Refuse a frame that cannot be read, unless it is the torn tail of the log."""
    damaged = DamagedJournal(
        f"{segments[index].name} is damaged at offset {at} ({why}), and what follows shows that it was durable; "
        "restore a backup; the files are left as they are"
    )
    for segment, found in _later_frames(segments, index, at + 8):
        if found.durable > position or segment.header.boot == boot:
            raise damaged
    # The next open began after this one's tail, and knew where it ended.
    if any(segment.header.position > position for segment in segments[index + 1 :]):
        raise damaged


def _later_frames(segments: list[_Segment], index: int, at: int) -> Iterator[tuple[_Segment, f.Frame]]:
    """Every frame that is good after a place, wherever it begins."""
    magic = f.FRAME_MAGIC.to_bytes(4, "little")
    for segment in segments[index:]:
        data = segment.data
        place = data.find(magic, at)
        while place >= 0:
            if place % 8 == 0:
                try:
                    seed = frame_seed(segment.header.node, segment.header.segment, place)
                    found = f.read_frame(data, place, seed)
                    if found is not None:
                        yield segment, found
                except f.DamagedFrame:
                    pass
            place = data.find(magic, place + 1)
        at = SEGMENT_HEADER_BYTES


def _cut(disk: Disk, segment: _Segment, last: bool) -> None:
    """End a segment of an earlier open where its frames end: no torn tail, no unused room; and all of it durable."""
    if len(segment.data) > segment.end or last:
        file = disk.open(segment.name)
        try:
            if len(segment.data) > segment.end:
                file.truncate(segment.end)
            else:
                file.sync()
        finally:
            file.close()


def _apply(data: bytes, found: f.Frame, rebuild: _Rebuild) -> None:
    """Let the rows of a frame be the last word on what they are about."""
    at = found.rows_at
    position = found.position
    for _ in range(found.rows):
        event = data[at + 112]
        rebuild.stopped = event == f.STOPPED
        if event >= f.TUBE_MADE:
            _apply_other(data, at, found, event, rebuild)
        else:
            _apply_job(data, at, found, event, position, rebuild)
        at += found.row_bytes
        position += 1
    # A job that left a tube for one that is not logged has left the log. Moves within it end in the same frame.
    for job_id in rebuild.leaving:
        _drop(job_id, rebuild)
    rebuild.leaving.clear()
    rebuild.position = position
    rebuild.latest_ms = max(rebuild.latest_ms, found.engine_ms)


def _apply_job(data: bytes, at: int, found: f.Frame, event: int, position: int, rebuild: _Rebuild) -> None:
    job_id = f.integer_at(data, at)
    tube = f.integer_at(data, at + 88)
    rebuild.counts[tube][s.rule_of(event, data[at + 113])] += 1
    local = f.integer_at(data, at + 80)
    if local >= rebuild.next_local[tube]:
        rebuild.next_local[tube] = local + 1
    if job_id > rebuild.highest_id:
        rebuild.highest_id = job_id
    if event == s.MOVED_OUT:
        rebuild.leaving.add(job_id)
        return
    rebuild.leaving.discard(job_id)
    if data[at + 114] == s.GONE:
        _drop(job_id, rebuild)
        return
    if event == s.CLAIMED:
        rebuild.claimed_at[job_id] = position
    job = rebuild.jobs.get(job_id)
    if job is None:
        job = rebuild.jobs[job_id] = Job(job_id, 0, b"", 0, 0)
    f.load_row(job, data, at, position)
    s.restore(job, data[at + 114])
    rebuild.tube_of[job_id] = tube
    if job.order < rebuild.lowest_order:
        rebuild.lowest_order = job.order
    session = f.integer_at(data, at + 72)
    if session:
        rebuild.held[job_id] = session
        rebuild.highest_number = max(rebuild.highest_number, session)
    else:
        rebuild.held.pop(job_id, None)
    _load_vars(job, data, at, found, rebuild, tube)


def _drop(job_id: int, rebuild: _Rebuild) -> None:
    rebuild.jobs.pop(job_id, None)
    for known in (rebuild.keys, rebuild.held, rebuild.tube_of, rebuild.claimed_at):
        known.pop(job_id, None)


def _load_vars(job: Job, data: bytes, at: int, found: f.Frame, rebuild: _Rebuild, tube: int) -> None:
    job.extra = None
    for tag, value in f.var_fields(data, at, found):
        if tag == f.TAG_BODY:
            job.body = value
        elif tag == f.TAG_KEY:
            rebuild.keys[job.id] = value
        elif tag == f.TAG_REASON:
            job.rare().reason = value
        elif tag == f.TAG_RETRY:
            job.rare().retry = parse_retry(value.decode())
        elif tag == f.TAG_NAME:
            job.rare().name = value
        elif tag == f.TAG_UNIQUE:
            job.rare().unique = value
        elif tag == f.TAG_DEDUP:
            rebuild.dedups.append((tube, value, job.id, job.ttl_minutes, f.integer_at(data, at + 48)))
        elif tag == f.TAG_CONSUMER:
            job.rare().consumer = value
        elif tag == f.TAG_CLAIM:
            job.rare().claim = int(value)
        elif tag == f.TAG_PRIORITY_GIVEN:
            job.rare().priority_given = int(value)
        elif tag == f.TAG_BURIES:
            job.rare().buries = int(value)
    if data[at + 115] & f.FLAG_DOOMED:
        job.rare().doomed = True


def _apply_other(data: bytes, at: int, found: f.Frame, event: int, rebuild: _Rebuild) -> None:
    """A row about a tube, a session or a consumer."""
    number = f.integer_at(data, at)
    fields = dict(f.var_fields(data, at, found))
    rebuild.highest_number = max(rebuild.highest_number, number)
    if event in (f.TUBE_MADE, f.TUBE_CHANGED):
        rebuild.tubes[number] = {"name": fields[f.TAG_NAME], **json.loads(fields[f.TAG_JSON])}
        rebuild.counts.setdefault(number, [0] * s.RULES_COUNT)
        rebuild.next_local.setdefault(number, rebuild.tubes[number]["policy"]["first_integer"])
    elif event == f.TUBE_DROPPED:
        for known in (rebuild.tubes, rebuild.counts, rebuild.next_local, rebuild.reserved):
            known.pop(number, None)
        rebuild.dedups = [entry for entry in rebuild.dedups if entry[0] != number]
    elif event == f.INTEGERS_RESERVED:
        rebuild.reserved[number] = f.integer_at(data, at + 80)
    elif event == f.SESSION_MADE:
        rebuild.sessions[number] = fields[f.TAG_NAME]
    elif event == f.CONSUMER_CHANGED:
        told = json.loads(fields[f.TAG_JSON])
        consumer = Consumer(fields[f.TAG_NAME], told["token"])
        consumer.acked, consumer.newest, consumer.lease_ms = told["acked"], told["newest"], told["lease_ms"]
        rebuild.consumers[consumer.name] = consumer
        rebuild.open_claims[consumer.name] = told["open"]


def _fill(engine: Engine, rebuild: _Rebuild, now: int) -> None:
    """Give the engine what the log says, and let happen what the restart causes."""
    jobs_of: dict[int, list[Job]] = {}
    for job_id in sorted(rebuild.jobs):
        job = rebuild.jobs[job_id]
        engine.jobs.add(job)
        jobs_of.setdefault(rebuild.tube_of[job_id], []).append(job)
    for number in sorted(rebuild.tubes):
        _fill_tube(engine, number, rebuild, jobs_of.get(number, []))
    restore.used_number(engine, rebuild.highest_number)
    restore.used_orders(engine, rebuild.lowest_order, _highest_creation(engine))
    for tube, dedup, job_id, ttl_minutes, when in rebuild.dedups:
        restore.restore_dedup(engine._tubes_by_number[tube], dedup, job_id, ttl_minutes, when)


def _fill_tube(engine: Engine, number: int, rebuild: _Rebuild, jobs: list[Job]) -> None:
    told = rebuild.tubes[number]
    fields = told["policy"]
    policy = TubePolicy(**{**fields, "key_stats": tuple(fields["key_stats"])})
    tube: Tube = restore.restore_tube(engine, number, told["name"], policy, told["created"])
    tube.paused_in, tube.paused_out = told["paused_in"], told["paused_out"]
    tube.counts_before = rebuild.counts[number]
    # After a stop that was not in order, integers up to the ceiling may have been seen by somebody.
    tube.reserved = rebuild.reserved.get(number, tube.reserved)
    tube.next_local = rebuild.next_local[number] if rebuild.stopped else max(tube.reserved, rebuild.next_local[number])
    restore.restore_jobs(engine, tube, jobs, {job.id: rebuild.keys.get(job.id, NO_KEY) for job in jobs})


def _doubt(engine: Engine, rebuild: _Rebuild, now: int) -> None:
    """The power was cut, and the newest rows may be lost with it: also that of a take. At most once is at most once."""
    doubtful = [
        job
        for job in rebuild.jobs.values()
        if job.once and (job.state == s.READY or (job.state == s.DELAYED and job.wake <= now))
    ]
    restore.bury_doubtful(engine, doubtful, now)


def _highest_creation(engine: Engine) -> int:
    return max(
        (job.order for tube in engine.tubes.values() if tube.by_creation for state in range(1, s.STATES_COUNT)
         for job in tube.jobs_in(state)),
        default=0,
    )  # fmt: skip


def _fill_holders(engine: Engine, rebuild: _Rebuild, now: int, commit: Callable[[], None]) -> None:
    """Taken jobs: of a claim they stay claimed, of a session with grace they wait for it, of another they go back."""
    claimed: dict[bytes, list[Job]] = {name: [] for name in rebuild.consumers}
    held: dict[int, list[Job]] = {}
    orphans: list[Job] = []
    for job in rebuild.jobs.values():
        if job.state != s.TAKEN:
            continue
        if job.extra is not None and job.extra.consumer:
            claimed[job.extra.consumer].append(job)
        elif engine.tube_of(job).owned:
            session = rebuild.held.get(job.id, 0)
            if engine.session_grace_ms > 0 and session in rebuild.sessions:
                held.setdefault(session, []).append(job)
            else:
                orphans.append(job)
    for name, jobs in claimed.items():
        jobs.sort(key=lambda job: rebuild.claimed_at[job.id])
        restore.restore_claims(engine, rebuild.consumers[name], jobs, now)
        restore.end_claims(engine, rebuild.consumers[name], rebuild.open_claims[name], now)
    for session, jobs in held.items():
        restore.restore_session(engine, session, rebuild.sessions[session], jobs, now)
    for orphan in orphans:
        restore.release_orphan(engine, orphan, now)
        commit()
