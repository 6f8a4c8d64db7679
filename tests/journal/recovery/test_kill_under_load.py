"""A process that is killed under load, again and again, loses no acknowledged change and invents none.

PENSTOCK_KILLS is the number of kills: a few in every run of the tests, many before a release.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

import penstock
from penstock.journal.segment import number_of

KILLS = int(os.environ.get("PENSTOCK_KILLS", "8"))

# A kill can end a write at the end of a page. The next open reports that and cuts the tail, which was not acknowledged.
TORN = "cut a torn tail"

# Puts, takes and acks for ever, and prints a line after each acknowledged change.
WORKER = textwrap.dedent(
    """
    import sys, threading
    import penstock

    directory, start, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
    checkpoints = options.pop("checkpoints")
    with penstock.open(directory, **options) as queue:
        tube = queue.tube("work", "fifottl")

        def shorten():
            while True:
                queue.checkpoint()

        if checkpoints:
            threading.Thread(target=shorten, daemon=True).start()
        number = start
        while True:
            job = tube.put(str(number).ljust(3_000, "."))
            print("put", number, flush=True)
            print("integer", job.meta()["number"], flush=True)
            number += 1
            if number % 3:
                job = tube.take()
                print("try", job.body.strip("."), flush=True)
                job.ack()
                print("ack", job.body.strip("."), flush=True)
            if checkpoints and number % 25 == 0:
                # Under this load the thread above seldom gets to the end of one.
                queue.checkpoint()
    """
)


def live_and_die(directory: Path, start: int, options: dict[str, object], lines_max: int) -> list[tuple[str, str]]:
    """Let a worker run until it has printed some lines, kill it, and return all its lines."""
    command = [sys.executable, "-c", WORKER, str(directory), str(start), repr(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if len(said) == lines_max:
                process.send_signal(signal.SIGKILL)
        complaints = [line for line in process.stderr.read().splitlines() if TORN not in line]
        assert complaints == []
    assert process.returncode == -signal.SIGKILL
    # The last line may be incomplete.
    words = [line.split() for line in said if line.endswith("\n")]
    return [(what, number) for what, number in words]


@pytest.mark.filterwarnings(f"ignore:.*{TORN}:RuntimeWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"checkpoints": False},
        {"checkpoints": True, "history_bytes": 0, "memory_limit": 1024 * 1024},
        {"checkpoints": True, "history_bytes": 40 * 1024 * 1024, "history_bodies": False, "fsync": "everysec"},
    ],
    ids=["plain", "no history and little memory", "history without bodies"],
)
def test_a_killed_process_loses_nothing_it_acknowledged_and_invents_nothing(
    tmp_path: Path, options: dict[str, object]
) -> None:
    said: dict[str, list[str]] = defaultdict(list)
    for life in range(KILLS):
        for what, number in live_and_die(tmp_path / "queue", life * 10_000, options, 50 + 35 * (life % 10)):
            said[what].append(number)
    if options["checkpoints"]:
        # Each open starts a segment, and so does each snapshot. Some snapshots were finished and read.
        assert number_of(max(path.name for path in (tmp_path / "queue").glob("snapshot-*.log"))) > KILLS
    put, tried, acked = set(said["put"]), set(said["try"]), set(said["ack"])
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("work")
        bodies = [job.body for job in tube.take_many(100_000)]
        assert tube.events()["put"] >= len(put)
    left = [body.strip(".") for body in bodies]
    assert all(len(body) == 3_000 for body in bodies)
    assert len(left) == len(set(left)), "no job exists twice"
    # The put after the last line and the ack after the last "try" may have happened or not: one of each per life.
    assert put - acked - tried <= set(left)
    assert acked.isdisjoint(left)
    assert len(set(left) - put) <= KILLS
    assert len(said["integer"]) == len(set(said["integer"])), "no integer is issued twice"
