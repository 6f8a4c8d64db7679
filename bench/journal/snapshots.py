"""A snapshot of a million jobs while a thread puts as fast as possible: its duration, and how long it blocks others."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import penstock
from bench.clock import clock
from bench.journal.directory import body, copy_of, filled
from bench.rows import Goal, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.embedded import Tube
from penstock.host.maintenance.maintained_queue import MaintainedQueue
from penstock.host.maintenance.pacing import Pacing
from penstock.journal.maintenance.snapshot import Snapshot

_SLICE_MS_MAX = 5


def trials(scale: Scale) -> list[Trial]:
    """Return a trial with one snapshot, and the same time without a snapshot."""
    jobs = scale.jobs(1_000_000, 50_000)
    return [
        Trial(
            (
                Spec(
                    "journal/slice",
                    f"the longest slice of a snapshot of {jobs:,} jobs, under the lock",
                    Unit.MS,
                    goal=Goal(_SLICE_MS_MAX),
                ),
                Spec("journal/held", "the longest time that the snapshot held the lock", Unit.MS),
                Spec("journal/snapshot", "duration of the snapshot while a thread puts", Unit.SECONDS),
                Spec("journal/put-quiet", "the longest put in the same time without a snapshot", Unit.MS),
                Spec("journal/put-beside", "the longest put during the snapshot", Unit.MS, "journal/put-quiet"),
            ),
            partial(_prepare, jobs),
            scale.rounds_long,
        )
    ]


def _prepare(jobs: int) -> Sample:
    template = filled(jobs)

    def sample() -> list[float]:
        directory = copy_of(template)
        watch = _Watch()
        with penstock.open(directory.name, fsync="never") as queue, watch.watching():
            tube = queue.tube("bench")
            beside = _put_until(tube, _in_a_thread(queue.checkpoint).is_set)
            end = clock() + watch.took_ns
            quiet = _put_until(tube, lambda: clock() > end)
        return [max(watch.slices_ns) / 1e6, max(watch.held_ns) / 1e6, watch.took_ns / 1e9, quiet, beside]

    return sample


def _in_a_thread(work: Callable[[], None]) -> threading.Event:
    """Run a function in a thread. Return an event that is set when it has ended."""
    done = threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    threading.Thread(target=run).start()
    return done


def _put_until(tube: Tube, is_over: Callable[[], bool]) -> float:
    """Put jobs until `is_over` returns True. Return the time of the longest put in ms."""
    times = array("q")
    while not is_over():
        job = body()
        began = clock()
        tube.put(job)
        times.append(clock() - began)
    return max(times) / 1e6


class _Watch:
    """Measures how long the maintenance of queues holds the lock."""

    def __init__(self) -> None:
        self.slices_ns: list[int] = []
        self.held_ns: list[int] = []
        self._began = 0
        self.took_ns = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure the maintenance of every queue of this process."""
        slice_of, finish, locked = Snapshot.slice, Snapshot.finish, Pacing.locked

        def timed_slice(snapshot: Snapshot, now: int, wall: int) -> bool:
            began = clock()
            more = slice_of(snapshot, now, wall)
            self.slices_ns.append(clock() - began)
            return more

        def timed_finish(snapshot: Snapshot) -> None:
            finish(snapshot)
            self.took_ns = clock() - self._began

        @contextmanager
        def timed_lock(pacing: Pacing, queue: MaintainedQueue) -> Iterator[None]:
            with locked(pacing, queue):
                began = clock()
                self._began = self._began or began
                try:
                    yield
                finally:
                    self.held_ns.append(clock() - began)

        with (
            patch.object(Snapshot, "slice", timed_slice),
            patch.object(Snapshot, "finish", timed_finish),
            patch.object(Pacing, "locked", timed_lock),
        ):
            yield
