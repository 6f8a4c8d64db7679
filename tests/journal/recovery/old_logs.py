"""Logs that earlier versions wrote, and the states that they must always lead to.

Run as a script, it writes such a log with the present version: `python -m tests.journal.recovery.old_logs v1`. This is
done once for each version of the format, before it is released, and never again.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from penstock.core.engine import Engine
from penstock.journal.history.index import SegmentIndex
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import FrameFile, index_name, number_of, segment_names
from tests.journal.engine_state import picture
from tests.journal.random_commands import Script

LOGS = Path(__file__).parents[2] / "data" / "log"
WALL = 1_790_000_000_000


def told(engine: Engine) -> dict[str, Any]:
    """Return the state that a log leads to as JSON. Policies are given by name, because they may get more fields."""
    # Values of stages are tuples.
    plain = {
        name: {**value, "policy": value["policy"].type} if isinstance(value, dict) else value
        for name, value in picture(engine, restarted=False).items()
    }
    found: dict[str, Any] = json.loads(json.dumps(_plain(plain)))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def write(directory: Path) -> None:
    """Write a log with everything in it: three opens, the last one cut off, a snapshot, an index."""
    shutil.rmtree(directory, ignore_errors=True)
    disk = RealDisk(str(directory))
    for life in range(3):
        opened = open_log(disk, lambda life=life: WALL + 100_000 * life, f"boot {life}", segment_bytes=64 * 1024)
        script = Script(opened.engine, 40 + life)
        for step in range(80):
            now = opened.engine.now + step % 3
            opened.engine.advance(now)
            script.step(now)
            opened.log.commit(now, now)
            if life == 1 and step == 40:
                take_snapshot(disk, opened.log, opened.engine, now, now)
        if life < 2:
            opened.log.close(opened.engine.now, WALL)
        else:
            opened.log.make_durable(opened.log.written)
    for name in segment_names(disk)[:-1]:
        with FrameFile(disk, name) as file:
            index = SegmentIndex(file.header)
            for piece in file.pieces():
                index.add(piece)
        disk.replace(index_name(number_of(name)), index.encode(lambda: None))
    last = directory / segment_names(disk)[-1]
    # Drop the segment that was created ahead, and add a torn tail.
    last.write_bytes(last.read_bytes().rstrip(b"\0") + b"torn")


if __name__ == "__main__":
    version = sys.argv[1]
    write(LOGS / version)
    shutil.copytree(LOGS / version, LOGS / "copy")
    opened = open_log(RealDisk(str(LOGS / "copy")), lambda: WALL + 300_000, "boot 3")
    shutil.rmtree(LOGS / "copy")
    (LOGS / f"{version}.json").write_text(json.dumps(told(opened.engine), indent=1) + "\n")
