"""After any crash, the log contains a prefix of the changes, and all changes that were acknowledged."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from penstock.core import policy
from penstock.core import states as s
from penstock.core.errors import DamagedJournal
from penstock.core.job import Draft
from penstock.journal.recovery.opening import Opened, open_log
from penstock.journal.segment import SEGMENT_HEADER_BYTES, FrameFile
from penstock.testing.disk import MemoryDisk, crashes
from penstock.testing.invariants import check
from tests.journal.engine_state import picture
from tests.journal.random_commands import Script

WALL = 1_700_000_000_000
SEGMENT = 64 * 1024


def reopen(disk: MemoryDisk, boot: str = "another boot") -> Opened:
    return open_log(disk, lambda: WALL, boot, segment_bytes=SEGMENT)


class Known(NamedTuple):
    """The state of an engine after `effects` effects on the disk, and whether all of it was acknowledged."""

    effects: int
    state: dict[str, Any]
    acknowledged: bool


def run(seed: int, steps: int, restarts: int = 1) -> tuple[MemoryDisk, list[Known]]:
    """Work on a disk, and record the state of the engine before and after each sync."""
    disk = MemoryDisk()
    known: list[Known] = []
    now = WALL
    for life in range(restarts):
        opened = reopen(disk, f"boot {life}")
        known.append(Known(len(disk.effects), picture(opened.engine, restarted=True), True))
        script = Script(opened.engine, seed + life)
        for _ in range(steps):
            now += script.chance.choice([0, 0, 1, 100])
            opened.engine.advance(now)
            script.step(now)
            opened.log.commit(now, now)
            written = picture(opened.engine, restarted=True)
            known.append(Known(len(disk.effects), written, False))
            opened.log.make_durable(opened.log.written)
            known.append(Known(len(disk.effects), written, True))
    return disk, known


def end_of_frames(disk: MemoryDisk, name: str) -> int:
    """Return the offset at which the frames of a segment end. A frame may end in zeros."""
    return SEGMENT_HEADER_BYTES + sum(found.frame.length for found in FrameFile(disk, name).frames())


@pytest.mark.parametrize("seed", range(12))
def test_all_changes_survive_a_restart(seed: int) -> None:
    disk, known = run(seed, 150, restarts=3)
    opened = reopen(disk.copy())
    assert picture(opened.engine, restarted=False) == known[-1].state
    assert opened.warnings == []
    check(opened.engine)


def test_reading_a_log_back_twice_gives_the_same() -> None:
    disk, _ = run(3, 200)
    once = reopen(disk)
    first = picture(once.engine, restarted=True)
    assert picture(reopen(disk).engine, restarted=False) == first


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_moment_leaves_a_prefix_that_holds_everything_acknowledged(seed: int) -> None:
    disk, known = run(seed, 40, restarts=2)
    cases = 0
    for count in range(1, len(disk.effects) + 1):
        done = [index for index, moment in enumerate(known) if moment.effects <= count]
        least = max((index for index in done if known[index].acknowledged), default=0)
        allowed = [moment.state for moment in known[least : len(done) + 1]]
        for crashed in crashes(disk, count):
            found = picture(reopen(crashed).engine, restarted=False)
            assert found in allowed, f"after effect {count}"
            cases += 1
    assert cases > 300


def test_a_log_cut_at_every_byte_is_a_prefix() -> None:
    disk, known = run(1, 10)
    states = [moment.state for moment in known]
    name = disk.names()[-1]
    data = disk.read(name)
    end = end_of_frames(disk, name)
    seen = -1
    for size in range(SEGMENT_HEADER_BYTES, end + 1):
        cut = disk.copy()
        cut.files[name] = bytearray(data[:size])
        found = picture(reopen(cut).engine, restarted=False)
        index = max(i for i, state in enumerate(states) if state == found)
        assert index >= seen, "more bytes never mean less history"
        seen = index
    assert seen == len(states) - 1


def test_a_flipped_bit_is_cut_as_a_torn_tail_or_refused_with_file_and_offset(compiled: bool) -> None:
    disk, known = run(3, 4)
    states = [moment.state for moment in known]
    name = disk.names()[-1]
    end = end_of_frames(disk, name)
    refused = cut = 0
    # Test every bit, or every fifth in the interpreted build, which is ten times slower.
    for place in range(8 * SEGMENT_HEADER_BYTES, 8 * end, 1 if compiled else 5):
        flipped = disk.copy()
        flipped.files[name][place // 8] ^= 1 << place % 8
        try:
            opened = reopen(flipped)
        except DamagedJournal as error:
            assert name in str(error) and "offset" in str(error)
            refused += 1
        else:
            assert picture(opened.engine, restarted=False) in states
            assert opened.warnings
            cut += 1
    assert refused > cut > 0


def test_a_torn_tail_is_cut_with_a_warning_that_says_how_many_bytes() -> None:
    disk, _ = run(4, 10)
    name = disk.names()[-1]
    end = len(disk.read(name).rstrip(b"\0"))
    disk.files[name][end - 20 : end] = bytes(20)
    opened = reopen(disk)
    assert len(opened.warnings) == 1
    assert "torn tail of" in opened.warnings[0] and name in opened.warnings[0]
    assert reopen(disk).warnings == []


def test_damage_in_the_middle_is_refused_also_if_it_was_written_under_the_present_boot() -> None:
    """Under `never`, no row is marked durable. But without a power cut, no row can be missing."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "this boot", fsync="never", segment_bytes=SEGMENT)
    script = Script(opened.engine, 5)
    for step in range(20):
        script.step(WALL + step)
        opened.log.commit(WALL + step, WALL)
    name = disk.names()[-1]
    disk.files[name][SEGMENT_HEADER_BYTES + 80] ^= 1
    with pytest.raises(DamagedJournal, match=f"{name} is damaged at offset {SEGMENT_HEADER_BYTES}"):
        reopen(disk.copy(), "this boot")


def test_ids_and_integers_are_never_issued_twice_even_if_rows_were_lost() -> None:
    """Under `never`, a power cut may lose everything since the open. Ids that were issued stay used."""
    seen_ids: set[int] = set()
    seen_locals: set[int] = set()
    disk = MemoryDisk()
    for life in range(5):
        opened = open_log(disk, lambda: WALL, f"boot {life}", fsync="never", segment_bytes=SEGMENT)
        tube = opened.engine.create_tube(b"t", policy.FIFO, WALL)
        for _ in range(1_500 if life % 2 else 10):
            job = opened.engine.put(tube, Draft(b"x"), WALL)
            assert job.id not in seen_ids and job.local not in seen_locals
            seen_ids.add(job.id)
            seen_locals.add(job.local)
            opened.log.commit(WALL, WALL)
        # Everything that was not synced is lost.
        disk = next(crashes(disk, len(disk.effects)))


@pytest.mark.parametrize(
    ("fsync", "boot", "state"),
    [("never", "another boot", "buried"), ("never", "this boot", "ready"), ("always", "another boot", "ready")],
)
def test_an_at_most_once_job_that_may_have_been_delivered_is_buried_after_a_power_cut(
    fsync: str, boot: str, state: str
) -> None:
    """Without a power cut, no row can be missing. With `always`, no row of an answered call can be missing."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "this boot", fsync=fsync, segment_bytes=SEGMENT)
    tube = opened.engine.create_tube(b"t", policy.DISQUE, WALL)
    job = opened.engine.put(tube, Draft(b"x", once=True), WALL)
    retried = opened.engine.put(tube, Draft(b"y"), WALL)
    opened.log.commit(WALL, WALL)
    opened.log.make_durable(opened.log.written)
    opened.engine.take(opened.engine.connect(b"c" * 16).session, tube, WALL)
    # The take is answered under `never`, and its row is lost in the power cut.
    engine = open_log(next(crashes(disk, len(disk.effects))), lambda: WALL, boot, segment_bytes=SEGMENT).engine
    found = engine.find(job.id, WALL)
    assert found is not None and s.STATE_NAMES[found.state] == state
    if state == "buried":
        assert b"newest rows" in found.ensure_extra().reason
        assert engine.kick(engine.tubes[b"t"], 10, WALL) == 0
    other = engine.find(retried.id, WALL)
    assert other is not None and other.state == s.READY
    check(engine)
