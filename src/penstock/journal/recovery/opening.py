"""Opens a log: reads a directory back into an engine, and continues the log.

`reading.py` reads and checks the files, `filling.py` fills the engine, and `salvage.py` repairs the result for a
damaged log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.core import restore
from penstock.core.engine import Engine
from penstock.core.errors import JournalFailed, NoSpace
from penstock.core.limits import NEVER
from penstock.core.outbox import INCARNATION_NOTE
from penstock.journal.disk import UNFINISHED, Disk
from penstock.journal.identity import identity_to_open
from penstock.journal.log import ALWAYS, Log, RecoveryRange, suitable_segment_bytes
from penstock.journal.recovery.filling import bury_doubtful, fill, fill_holders, queue_held
from penstock.journal.recovery.reading import RecoveryReader
from penstock.journal.recovery.replay import Replay
from penstock.journal.recovery.salvage import make_consistent
from penstock.journal.segment import Progress, SegmentHeader


@dataclass
class Opened:
    """A recovered engine and its log, which is open for appending."""

    engine: Engine
    log: Log
    node: str
    key: bytes  # Secret of the job ids.
    warnings: list[str]


def open_log(
    disk: Disk,
    clock: Callable[[], int],
    boot: str,
    *,
    fsync: str = ALWAYS,
    entropy: int = 1,
    grace_ms: int = 0,
    segment_bytes: int = 0,
    memory_max: int = NEVER,
    progress: Progress | None = None,
    salvage: list[str] | None = None,
) -> Opened:
    """Read the log of a directory into an engine, and open it for appending.

    `clock` returns the wall clock in ms. It is called after the log was read, which can take seconds. Engine time and
    all grace times start at the returned time, or at the last time in the log if that is later.

    If `segment_bytes` is 0, the segment size depends on the size of the disk. With a `memory_max`, bodies are left on
    disk. If `salvage` is a list, all readable data is used, and descriptions of the damage are added to the list.
    """
    who = identity_to_open(disk)
    for name in disk.names():
        if name.endswith(UNFINISHED):
            disk.remove(name)
    reading = RecoveryReader(
        disk, who.of_log, boot, leave_bodies=memory_max != NEVER, progress=progress, salvage=salvage
    )
    replay = reading.read()
    try:
        reading.cut(disk)
        if not replay.stopped:
            reading.rewrite_doubtful(disk)
    except OSError as error:
        raise JournalFailed(f"the log cannot be opened: {error}") from error
    wall = clock()
    last = reading.newest
    # A directory that was restored from a copy must not issue ids that the original has issued since.
    epoch = max(restore.next_epoch(replay.highest_id, last.epoch if last else 0), who.epoch)
    now = max(wall, replay.latest_ms)
    doubtful = who.doubtful or bool(salvage) or _may_lack_rows(last, replay, boot)
    try:
        if doubtful:
            # Store this before the log continues, because afterwards the log no longer shows that an earlier boot ended
            # early.
            replace(who, doubtful=True).write(disk)
        size = segment_bytes or suitable_segment_bytes(disk)
        log = Log(disk, who.of_log, boot, epoch, reading.next_segment, replay.position, fsync, wall, size)
    except OSError as error:
        raise NoSpace(f"the log cannot be opened: {error}") from error
    since = reading.parts[0].header.created if reading.parts else wall
    log.recovery_range = RecoveryRange(reading.first_segment, since, reading.snapshot_bytes, reading.log_bytes)
    engine = Engine(epoch, now, log.writer, entropy)
    engine.session_grace_ms = grace_ms
    log.attach(engine)
    if salvage:
        make_consistent(replay, now)
    fill(engine, replay, reading.report)
    fill_holders(engine, replay, now, log, wall)
    queue_held(engine, now)
    if doubtful:
        bury_doubtful(engine, now, log, wall)
        engine.note(INCARNATION_NOTE, b"", now)
    log.commit(now, wall)
    log.make_durable(log.written)
    if doubtful:
        replace(who, doubtful=False).write(disk)
    return Opened(engine, log, who.node, who.key, [*reading.unusable, *map(str, reading.cuts)])


def _may_lack_rows(last: SegmentHeader | None, replay: Replay, boot: str) -> bool:
    """Return whether a power cut may have lost rows whose effects clients have seen."""
    return last is not None and not replay.stopped and last.fsync != ALWAYS and last.boot != boot
