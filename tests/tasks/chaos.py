"""Kill workers and the server at random moments, and check that every task ran and that keys never overlapped.

    make chaos-tasks ROUNDS=20

The checker reads only the files that the tasks write. With one server and two workers, each round puts tasks for some
seconds while a worker process or the server is killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import penstock
from tests.server.serving import Server, wait_for
from tests.tasks.worker_program import WORKBENCH, WorkerProgram

KEYS = 20
TASKS = 2_000
KILLS = 3


def main(rounds: int, seed: int) -> int:
    """Run some rounds. Return the exit code."""
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            told = one_round(Path(directory), random.Random(seed + number))
        print(f"round {number + 1} of {rounds}, seed {seed + number}: {told}", flush=True)
    return 0


def one_round(home: Path, chance: random.Random) -> str:
    with Server(home, "--dir", "data", "--fsync", "everysec") as server:
        url = f"penstock://127.0.0.1:{server.port}?retry_for=60"
        os.environ["TASKS_URL"] = url
        sys.path.insert(0, str(WORKBENCH))
        app = penstock.App(url)
        keyed = app.task(
            tube="keyed",
            key=lambda number, keys: f"key {number % keys}",
            limit_per_key=1,
            ttr=20,
            name="keyed",
            retry="100x then bury",
        )(_keyed)
        begin = time.monotonic()
        with WorkerProgram(url, home) as first, WorkerProgram(url, home, "--processes", "2") as second:
            workers = [first.wait_until_ready(), second.wait_until_ready()]
            put = 0
            kills_at = sorted(chance.randrange(TASKS) for _ in range(KILLS))
            while put < TASKS:
                count = min(100, TASKS - put)
                keyed.put_many(
                    keyed.with_options(dedup=f"{number}").call(number, KEYS) for number in range(put, put + count)
                )
                put += count
                while kills_at and kills_at[0] < put:
                    kills_at.pop(0)
                    _kill(server, workers, chance)
            tube = app.queue.find_tube("keyed")
            wait_for(lambda: not any(tube.stats()[state] for state in ("ready", "taken", "delayed")))
            seconds = time.monotonic() - begin
            assert tube.stats()["buried"] == 0
            app.close()
        repeated = check(home / "keyed")
        return f"{TASKS} tasks in {seconds:.1f} s, {repeated} of them more than once"


def _keyed(number: int, keys: int) -> None: ...


def _kill(server: Server, workers: list[WorkerProgram], chance: random.Random) -> None:
    if chance.random() < 0.4:
        server.kill()
        server.start_again()
        return
    children = chance.choice(workers).children()
    if children:
        os.kill(chance.choice(children), signal.SIGKILL)


def check(marks: Path) -> int:
    """Check that every task began and ended, and that tasks of one key never overlapped. Return the repeated ones.

    A task that began in a process that was killed has no end. Its key is free when the process is dead.
    """
    begun: dict[int, int] = defaultdict(int)
    ended: set[int] = set()
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    open_at: dict[tuple[str, int], int] = {}
    for line in marks.read_text().splitlines():
        what, key, number, at = line.split()
        if what == "begin":
            begun[int(number)] += 1
            open_at[key, int(number)] = int(at)
        else:
            ended.add(int(number))
            spans[key].append((open_at.pop((key, int(number))), int(at)))
    missing = set(range(TASKS)) - ended
    assert not missing, f"tasks that never ended: {sorted(missing)[:10]}"
    for key, some in spans.items():
        some.sort()
        for (_, end), (begin, _) in pairwise(some):
            assert end <= begin, f"tasks of key {key} overlap"
    return sum(count - 1 for count in begun.values())


if __name__ == "__main__":
    sys.exit(main(int(os.environ.get("ROUNDS", "20")), int(os.environ.get("SEED", "1"))))
