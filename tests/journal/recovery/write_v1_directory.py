"""Writes the directory of version 1 that test_upgrade.py opens, with the last code that wrote version 1.

    git worktree add ../version-1 526bc98b
    PYTHONPATH=../version-1/src:. python -m tests.journal.recovery.write_v1_directory

The result is tests/data/log/upgrade-v1.tar.xz: the directory of a queue that was killed, and `engine.json`, the engine
that the same code got when it opened a copy of the directory. It is written once.

The directory contains each type of tube with jobs in all states, tubes that were changed, paused and dropped, a
temporary tube, sessions with grace times, claims, stages, names, unique values, dedup ids, copies and notes. There is a
snapshot in the middle, and the rows of most jobs are partly before it and partly after it. Its last frame is torn.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from penstock.core import claims, copy_commands, stages
from penstock.core import policy as p
from penstock.core.engine import Engine
from penstock.core.job import Copy, Draft, Job
from penstock.core.retry import parse_retry
from penstock.core.sessions import Session
from penstock.core.tube import Tube
from penstock.journal.history.index import SegmentIndex
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_VERSION,
    FrameFile,
    index_name,
    number_of,
    segment_names,
)
from tests.journal.recovery.engine_fields import engine_fields

ARCHIVE = Path(__file__).parents[2] / "data" / "log" / "upgrade-v1.tar.xz"
START = 1_790_000_000_000
OPENED = START + 1_000_000  # When the copy was opened.
SEGMENT = 48 * 1024
GRACE_MS = 3_600_000
LEASE_MS = 3_600_000

POLICIES = {
    **p.PRESETS,
    "kept": dataclasses.replace(p.XQUEUE, after_ack=p.KEPT),
    "lingers": dataclasses.replace(p.FIFOTTL, after_ack=p.LINGERS, zombie_ms=3_600_000),
    "counted": dataclasses.replace(p.UTUBE, key_stats=("red",), dedup_count=3),
    "fair": dataclasses.replace(p.UTUBETTL, key_limit=2, key_order=p.FAIR),
}


class Writer:
    """One life of the queue. Each command is one commit, 7 ms after the one before."""

    def __init__(self, opened: Opened) -> None:
        self.engine: Engine = opened.engine
        self.log = opened.log
        self.now = self.engine.now
        self.connection = self.engine.connect(b"plain session %03d" % self.engine.next_number)
        self.session: Session = self.connection.session

    def commit(self) -> None:
        self.log.commit(self.now, self.now + 3)
        self.now += 7
        self.engine.advance(self.now)

    def tube(self, name: str) -> Tube:
        tube = self.engine.create_tube(name.encode(), POLICIES[name], self.now)
        self.commit()
        return tube

    def put(self, tube: Tube, body: bytes, **options: object) -> None:
        draft = Draft(body, **options)  # type: ignore[arg-type]
        if tube.keys is not None and draft.key is None:
            draft.key = b"red"
        self.engine.put(tube, draft, self.now)
        self.commit()

    def take(self, tube: Tube, key: bytes | None = None, session: Session | None = None) -> Job:
        key = b"red" if tube.requires_key and key is None else key
        job = self.engine.take(session or self.session, tube, self.now, key)
        assert job is not None, tube.name
        self.commit()
        return job

    def fill_tube(self, name: str) -> None:
        """Leave jobs in each state that the type has, and some that ended."""
        tube = self.tube(name)
        engine, session = self.engine, self.session
        for number in range(6):
            self.put(tube, b"%s %d" % (tube.name, number), key=None if tube.keys is None else b"key %d" % number)
        key = b"key 0" if tube.requires_key else None
        engine.ack(session, self.take(tube, key), self.now)
        self.commit()
        engine.release(session, self.take(tube, b"key 1" if key else None), self.now)
        self.commit()
        engine.bury(session, self.take(tube, b"key 2" if key else None), self.now, b"broken")
        self.commit()
        engine.nack(session, self.take(tube, b"key 3" if key else None), self.now, b"no answer")
        self.commit()
        if tube.policy.has_delay:
            self.put(tube, b"later", delay_ms=600_000)
        if tube.policy.has_ttl:
            self.put(tube, b"with a ttl", ttl_ms=7_200_000, **({"priority": 3} if tube.by_priority else {}))
        if tube.policy.after_ack != p.GOES:
            engine.ack(session, self.take(tube), self.now)
            self.commit()
        if tube.policy.type == "disque":
            self.put(tube, b"once", once=True)

    def fill_before(self) -> None:
        """Write the rows before the snapshot."""
        engine = self.engine
        for name in POLICIES:
            self.fill_tube(name)
        plain = engine.tubes[b"fifottl"]
        self.put(plain, b"named", name=b"a name", retry=parse_retry("5x exp(1s..10m) then bury"))
        self.put(plain, b"unique", unique=b"a value")
        self.put(plain, b"urgent", urgent=True)
        counted = engine.tubes[b"counted"]
        for number in range(4):
            self.put(counted, b"seen", dedup=b"dedup %d" % number)
        self.put(plain, b"\0\xff" * 300, body_kind=0)
        stages.stage_jobs(engine, b"open stage", plain, [Draft(b"staged 1"), Draft(b"staged 2")], 3_600_000, self.now)
        self.commit()
        stages.stage_jobs(engine, b"published", plain, [Draft(b"published")], 3_600_000, self.now)
        self.commit()
        stages.publish(engine, [b"published"], self.now)
        self.commit()
        stages.stage_jobs(engine, b"discarded", plain, [Draft(b"discarded")], 3_600_000, self.now)
        self.commit()
        stages.discard(engine, [b"discarded"], self.now)
        self.commit()
        shared = engine.tubes[b"disque"]
        holders = [b"a" * 40, b"b" * 40]
        copy_commands.put(engine, shared, Draft(b"with copies"), Copy(b"", 3, holders, 0), self.now)
        self.commit()
        copy_commands.hold(engine, shared, Draft(b"waits for copies"), Copy(b"", 2, holders[:1], 0), self.now)
        self.commit()
        engine.note(b"kept note", b"value", self.now)
        engine.note(b"changed note", b"before", self.now)
        engine.note(b"removed note", b"value", self.now)
        self.commit()
        dropped = engine.create_tube(b"dropped", p.FIFO, self.now)
        self.put(dropped, b"gone with its tube")
        engine.delete(engine.jobs.find(engine.next_id - 1), self.now)
        engine.drop(dropped, self.now)
        self.commit()
        temporary = engine.create_tube(b"temporary", dataclasses.replace(p.FIFO, temporary=True), self.now)
        self.put(temporary, b"not in the log")
        self.put(plain, b"leaves the log")
        engine.move(self.session, engine.jobs.find(engine.next_id - 1), temporary, self.now)
        self.commit()

    def fill_after(self) -> None:
        """Write the rows after the snapshot: jobs from before it go on, and sessions and claims hold jobs."""
        engine = self.engine
        for name in ("fifo", "fifottl", "utube", "limfifottl", "queue15"):
            self.take(engine.tubes[name.encode()])
        engine.kick(engine.tubes[b"fifottl"], 1, self.now)
        self.commit()
        held = self.take(engine.tubes[b"fifottl"])
        engine.touch(self.session, held, self.now, 100_000)
        self.commit()
        engine.release(self.session, self.take(engine.tubes[b"fifottl"]), self.now, body=b"changed body")
        self.commit()
        for number in range(2):
            connection = engine.connect(b"graced session %d" % number)
            engine.identify(connection, connection.session.token, self.now, GRACE_MS * (number + 1))
            self.commit()
            self.take(engine.tubes[b"lingers"], session=connection.session)
            if number == 0:
                self.take(engine.tubes[b"counted"], session=connection.session)
        plain = engine.tubes[b"fifottl"]
        claims.claim(engine, b"reader", 1, 1, plain, 2, LEASE_MS, self.now)
        self.commit()
        claims.claim(engine, b"reader", 1, 2, plain, 2, LEASE_MS, self.now)
        self.commit()
        claims.ack_claims(engine, b"reader", 1, 1, self.now)
        self.commit()
        claimed = next(iter(engine.consumers[b"reader"].claims.values())).jobs[0]
        engine.delete(claimed, self.now)  # It ends with its claim.
        self.commit()
        engine.note(b"changed note", b"after", self.now)
        engine.note(b"removed note", b"", self.now)
        self.commit()
        engine.pause(engine.tubes[b"fifo"], True, False, self.now)
        self.commit()
        engine.alter(plain, dataclasses.replace(plain.policy, default_ttr_ms=90_000), self.now)
        self.commit()
        engine.move(self.session, engine.tubes[b"fifo"].first_ready(None), plain, self.now)
        self.commit()


def opened(directory: Path, life: int) -> Opened:
    return open_log(RealDisk(str(directory)), lambda: START + 100_000 * life, f"boot {life}", segment_bytes=SEGMENT)


def write(directory: Path) -> None:
    """Write the directory: a life that was closed, a life with a snapshot, and one that was killed."""
    life = Writer(opened(directory, 0))
    life.fill_tube("fifo")
    life.log.close(life.now, life.now)
    life = Writer(opened(directory, 1))
    life.fill_before()
    disk = RealDisk(str(directory))
    take_snapshot(disk, life.log, life.engine, life.now, life.now)
    life.fill_after()
    life.log.close(life.now, life.now)
    life = Writer(opened(directory, 2))
    life.put(life.engine.tubes[b"fifottl"], b"the last life")
    life.take(life.engine.tubes[b"utubettl"], b"key 4")
    connection = life.engine.connect(b"a graced session")
    life.engine.identify(connection, connection.session.token, life.now, GRACE_MS)
    life.take(life.engine.tubes[b"utubettl"], b"key 5", session=connection.session)
    life.put(life.engine.tubes[b"fifottl"], b"torn")
    life.log.make_durable(life.log.written)
    names = segment_names(disk)
    for name in names[:-1]:
        index = SegmentIndex()
        with FrameFile(disk, name) as file:
            for piece in file.pieces():
                index.add(piece)
        disk.replace(index_name(number_of(name)), index.encode(lambda: None))
    # Remove the zeros at the end, and the last byte of the last frame.
    for name in names:
        with FrameFile(disk, name) as file:
            end = SEGMENT_HEADER_BYTES + sum(found.frame.length for found in file.frames())
        os.truncate(directory / name, end - 1 if name == names[-1] else end)
    for name in ("lock", "ballast"):
        (directory / name).unlink(missing_ok=True)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uname = member.gname = ""
    member.uid = member.gid = member.mtime = 0
    return member


def main() -> None:
    if SEGMENT_VERSION != 1:
        sys.exit("run this with the last code that wrote version 1: see the first lines of this file")
    with tempfile.TemporaryDirectory() as temporary:
        directory, copy = Path(temporary, "queue"), Path(temporary, "copy")
        write(directory)
        shutil.copytree(directory, copy)
        engine = open_log(RealDisk(str(copy)), lambda: OPENED, "another boot", segment_bytes=SEGMENT).engine
        text = json.dumps(engine_fields(engine), indent=1).encode()
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for path in sorted(directory.iterdir()):
                archive.add(path, path.name, filter=_anonymous)
            described = tarfile.TarInfo("engine.json")
            described.size = len(text)
            archive.addfile(described, io.BytesIO(text))


if __name__ == "__main__":
    main()
