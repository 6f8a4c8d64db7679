"""Runs the simulations of many seeds, and reports failures, speed, and whether all expected events occurred."""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from penstock.testing.sim.options import TUBES, options_of
from penstock.testing.sim.simulation import Report, Simulation
from penstock.testing.sim.tube_simulation import TubeSimulation

# Events that must occur in a few hundred seeds. A guarantee about an event that never occurs is not tested.
EXPECTED: Final = (
    "a consumer dropped a job",
    "an at-most-once job was handed over",
    "a job was delivered after its ack",
    "a job was delivered by another node than it was added at",
    "a job was delivered though its add had failed or was unknown",
    "a job was redelivered",
    "a job was redelivered by another node",
    "a node was started again",
    "a partition healed",
    "a power cut lost a write",
    "an ack of an unknown job was kept",
    "an ack was collected",
    "an add was given up for want of copies",
    "ENQUEUE was sent",
    "HOLDERS was sent",
    "QUEUED was sent",
    "WILLQUEUE was sent",
)

# The events that must occur with the workload `tubes`.
EXPECTED_OF_TUBES: Final = (
    "a call was answered before an earlier one",
    "a claim had ended before its ack",
    "a claim was read again",
    "a client that sent no more got its reply",
    "a command was forwarded",
    "a command was completed after its node had loaded",
    "a command was refused because its node was loading",
    "a delivery was taken back",
    "a forwarded take waited and was served",
    "a job returned because its session ended",
    "a job returned because its ttr passed",
    "a job was acked by a resumed session",
    "a link broke",
    "a link was crowded",
    "a link was lost while a forwarded command ran",
    "a node was lost when it had created a tube",
    "a node was started again",
    "a node that was replaced stepped down",
    "a partition healed",
    "a power cut lost a write",
    "a put was forwarded",
    "a reader that was replaced was refused",
    "a session ended with jobs",
    "a session had expired",
    "a session was resumed through another node",
    "a session was resumed with jobs",
    "a snapshot was written while jobs were taken",
    "a stage expired",
    "a standby replaced its node",
    "a stage was published through another node",
    "a user was refused a job by its id",
    "an ack of another session was refused",
    "an at-most-once job was delivered",
    "an IPROTO call was forwarded",
    "nemesis leave",
    "the home of a tube was elected",
    "two nodes wanted to create a tube at the same time",
    "work that was done twice was published once",
)

# `penstock sim` fails if an expected event did not occur in this many seeds or more.
EXPECTED_AFTER: Final = 1_000

# Seeds per task of a worker process.
_CHUNK: Final = 10


@dataclass
class Tally:
    """The results of many seeds."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    events: int = 0
    simulated_s: float = 0.0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    workload: str = ""

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.workload = report.options.workload
        self.events += report.events
        self.simulated_s += report.simulated_s
        self.counts.update(report.counts)
        self.sometimes.update(report.sometimes)
        if not report.passed:
            self.failed.append(report.seed)

    def missing(self) -> list[str]:
        """Return the expected events that did not occur."""
        expected = EXPECTED_OF_TUBES if self.workload == TUBES else EXPECTED
        return [what for what in expected if not self.sometimes[what]]

    def shown(self) -> list[str]:
        """Return the summary as lines of text."""
        seconds = max(self.seconds, 0.001)
        lines = [
            f"{self.seeds:,} seeds, {len(self.failed):,} failed; {self.seeds * 60 / seconds:,.0f} seeds a minute, "
            f"{self.events / seconds:,.0f} events/s, {self.simulated_s / seconds:,.0f} times as fast as real time",
            ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items())),
        ]
        return [*lines, "sometimes:", *(f"  {count:>9,}  {what}" for what, count in sorted(self.sometimes.items()))]


def simulate(seed: int, settings: list[str] | None = None) -> Report:
    """Run the simulation of a seed. `settings` override some of its options."""
    options = options_of(seed, settings or [])
    return (TubeSimulation if options.workload == TUBES else Simulation)(seed, options).run()


def run_seed(seed: int, settings: list[str]) -> Report:
    """Run the simulation of a seed. An exception counts as a violation, because a real node would have stopped."""
    try:
        return simulate(seed, settings)
    except Exception:
        where = traceback.format_exc(limit=-8)
        return Report(seed, options_of(seed, settings), [f"it stopped: {where}"], "", 0, 0.0, {})


def _run_chunk(first: int, count: int, settings: list[str]) -> list[Report]:
    return [run_seed(seed, settings) for seed in range(first, first + count)]


def run_seeds(
    first: int, count: int, settings: list[str], workers: int, on_report: Callable[[Report], object]
) -> Tally:
    """Run seeds in `workers` processes. Call `on_report` for each seed, in order."""
    tally = Tally()
    began = time.perf_counter()
    for report in _reports(first, count, settings, workers):
        tally.add(report)
        tally.seconds = time.perf_counter() - began
        on_report(report)
    return tally


def _reports(first: int, count: int, settings: list[str], workers: int) -> Iterator[Report]:
    if workers == 1:
        for seed in range(first, first + count):
            yield run_seed(seed, settings)
        return
    with ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        starts = range(first, first + count, _CHUNK)
        counts = [min(_CHUNK, first + count - start) for start in starts]
        for reports in pool.map(_run_chunk, starts, counts, [settings] * len(counts)):
            yield from reports
