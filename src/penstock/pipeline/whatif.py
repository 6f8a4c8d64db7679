"""Estimates the wait times of a tube with another number of workers, or another limit of running jobs per key.

The jobs of a tube are simulated (simulation.py) with their real arrival and run times. To show how accurate the
simulation is, the result has the measured wait times next to the estimate for the real number of workers, and the error
on days that were held out. A tube that the model does not fit is refused (model_fit.py).
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.errors import PipelineError
from penstock.lake.lake import Lake
from penstock.lake.merging import merge_parts
from penstock.lake.tables import JOBS
from penstock.pipeline.model_fit import HELD_OUT_DAYS_MAX, HeldOut, bulk_share, misfit_of
from penstock.pipeline.simulation import Arrivals, Progress, WorkerPool, max_concurrent, percentile, waits

ASSUMPTIONS: Final = (
    "An estimate: every job arrives when it did and runs as long as its last run, jobs are served in order of arrival, "
    "and workers start with the first take, work only on this tube, and need as long between two jobs as they did. "
    "To see how accurate it is, compare the measured times with the estimate for the same number of workers."
)


@dataclass(frozen=True)
class History:
    """The jobs of a tube that were taken and finished."""

    tube: str
    arrivals: Arrivals
    waited_ms: list[float]
    pool: WorkerPool  # The real workers, inferred from the greatest number of jobs that ran at the same time.
    misfit: str  # A sentence why the model does not fit, or "".
    jobs: Any = field(compare=False, repr=False)  # The jobs as a pyarrow Table.

    def busy_share(self, workers: int, waited: Sequence[float]) -> float:
        """Return the share of the time that `workers` workers are busy. `waited` has the wait time of each job."""
        arrivals = self.arrivals
        end = max(map(sum, zip(arrivals.at_ms, waited, arrivals.run_ms)))
        return min(1.0, sum(arrivals.run_ms) / (workers * max(1.0, end - self.pool.begin_ms)))


@dataclass(frozen=True)
class Outcome:
    """The wait times of a tube, measured or estimated."""

    tube: str
    measured: bool
    workers: int
    per_key: int | None
    jobs: int
    wait_p50_ms: int
    wait_p95_ms: int
    wait_p99_ms: int
    busy_share: float


def histories(lake: Lake, tube: str | None, since: datetime.date | None, until: datetime.date | None) -> list[History]:
    """Return the histories of all tubes in which jobs were finished in these days, or of the given tube."""
    wanted = None if tube is None else pc.field("tube") == tube
    table = merge_parts(lake.require_exists().pin().read(JOBS, only=wanted)).filter(_finished(since, until))
    if not table.num_rows and tube is not None:
        # The error names the tubes that have such jobs.
        table = merge_parts(lake.read(JOBS)).filter(_finished(since, until))
    if not table.num_rows:
        raise PipelineError(f"{lake} has no job that was taken and finished in these days")
    names = sorted(pc.unique(table["tube"]).to_pylist())
    if tube is not None and tube not in names:
        raise PipelineError(
            f"no job of {tube} was taken and finished in these days; tubes with such jobs: {', '.join(names)}"
        )
    return [history_of(name, table.filter(pc.equal(table["tube"], name))) for name in ([tube] if tube else names)]


def _finished(since: datetime.date | None, until: datetime.date | None) -> pc.Expression:
    """Return the filter for jobs that were taken and finished in these days, and whose put is in the lake."""
    wanted = pc.field("finished_at").is_valid()
    for column in ("ready_at", "wait_ms", "run_ms"):
        wanted &= pc.field(column).is_valid()
    day = pc.field("finished_at").cast(pa.date32())
    if since is not None:
        wanted &= day >= since
    return wanted & (day <= until) if until is not None else wanted


def history_of(tube: str, table: pa.Table) -> History:
    """Return the history of a tube from its rows of the table `jobs`."""
    table = table.sort_by("ready_at")
    keys = table["key"].to_pylist()
    runs = table["run_ms"].to_pylist()
    spans = [(end - run, end) for end, run in zip(_ms(table["finished_at"]), runs)]
    crew = WorkerPool(
        max(1, max_concurrent(spans)), _per_key(keys, spans), min(_ms(table["first_take_at"])), _pause_ms(table, spans)
    )
    takers = list(zip(table["node"].to_pylist(), table["session"].to_pylist()))
    misfit = misfit_of(tube, bulk_share(takers, [begin for begin, _ in spans]))
    arrivals = Arrivals(_ms(table["ready_at"]), runs, keys)
    return History(tube, arrivals, table["wait_ms"].to_pylist(), crew, misfit, table)


def _per_key(keys: list[Any], spans: list[tuple[int, int]]) -> int | None:
    """Return the greatest number of jobs of one key that ran at the same time, or None if there is at most one key."""
    by_key: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, span in zip(keys, spans):
        if key is not None:
            by_key[key].append(span)
    return max(1, *map(max_concurrent, by_key.values())) if len(by_key) > 1 else None


def _pause_ms(table: pa.Table, spans: list[tuple[int, int]]) -> float:
    """Return the mean pause of a worker between two jobs. A pause counts only if the second job was already ready."""
    pauses: list[int] = []
    done_at: dict[tuple[str, int], int] = {}
    turns = zip(spans, table["node"].to_pylist(), table["session"].to_pylist(), _ms(table["ready_at"]))
    for (began, ended), node, session, ready in sorted(turns, key=lambda turn: turn[0]):
        last = done_at.get((node, session))
        if last is not None and ready <= last <= began:
            pauses.append(began - last)
        done_at[node, session] = ended
    return fmean(pauses) if pauses else 0.0


def _ms(moments: pa.ChunkedArray) -> list[int]:
    return [round(value / 1_000) for value in moments.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()]


def estimates(
    history: History,
    workers: Sequence[int],
    per_key: Sequence[int],
    progress: Progress = lambda done, total: None,
) -> list[Outcome]:
    """Return the measured wait times, the estimate for the real number of workers, and one for each of `workers`.

    Without `workers`, estimate for half and twice the real number.
    """
    there = history.pool
    asked = list(workers) or [max(1, there.workers // 2), there.workers, 2 * there.workers]
    limits: list[int | None] = list(per_key) or [there.per_key]
    crews = [replace(there, workers=count, per_key=limit) for limit in limits for count in asked]
    found = [_outcome(history, True, there, history.waited_ms)]
    for crew in dict.fromkeys([there, *crews]):
        found.append(_outcome(history, False, crew, waits(history.arrivals, crew, progress)))
    return found


def held_out_days(history: History) -> list[HeldOut]:
    """Return the error of the model for each of the last days. The workers are those of the other days.

    The result is empty if the history has one day only.
    """
    ended = history.jobs["finished_at"].cast(pa.date32())
    days = sorted(pc.unique(ended).to_pylist())
    found = []
    for day in days[-HELD_OUT_DAYS_MAX:] if len(days) > 1 else []:
        is_held_out = pc.equal(ended, pa.scalar(day, pa.date32()))
        known = history_of(history.tube, history.jobs.filter(pc.invert(is_held_out)))
        unseen = history_of(history.tube, history.jobs.filter(is_held_out))
        pool = replace(known.pool, begin_ms=unseen.pool.begin_ms)
        measured = _outcome(unseen, True, pool, unseen.waited_ms)
        estimate = _outcome(unseen, False, pool, waits(unseen.arrivals, pool))
        found.append(
            HeldOut(
                *(history.tube, day.isoformat(), pool.workers, measured.jobs),
                *(measured.wait_p50_ms, measured.wait_p95_ms, measured.wait_p99_ms),
                *(estimate.wait_p50_ms, estimate.wait_p95_ms, estimate.wait_p99_ms),
            )
        )
    return found


def _outcome(history: History, measured: bool, crew: WorkerPool, waited: list[float]) -> Outcome:
    ordered = sorted(waited)
    p50, p95, p99 = (round(percentile(ordered, share)) for share in (0.50, 0.95, 0.99))
    busy = history.busy_share(crew.workers, waited)
    return Outcome(history.tube, measured, crew.workers, crew.per_key, len(ordered), p50, p95, p99, busy)
