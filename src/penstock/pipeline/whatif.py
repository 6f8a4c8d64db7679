"""What if there were more workers, or fewer, or another limit of jobs a key? An estimate, from what jobs did.

The jobs of a tube are played through again (simulation.py). How far to trust it can be seen: what was measured stands
beside the estimate for just as many workers as there were.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.gold_reader import days_between
from penstock.pipeline.lake import NO_DAY, Lake
from penstock.pipeline.simulation import Arrivals, Progress, most_at_a_time, percentile, waits
from penstock.pipeline.tables import JOBS

ASSUMPTIONS: Final = (
    "An estimate: every job comes when it came and takes as long as its last run took, jobs are served in the order "
    "they came, and the workers are there from the first take on and do nothing else. How good it is, you see from "
    "what was measured and the estimate for as many workers as there were."
)

_COLUMNS: Final = ("tube", "key", "ready_at", "first_take_at", "finished_at", "wait_ms", "run_ms")


@dataclass(frozen=True)
class History:
    """What is known of the jobs of a tube: those that were taken and finished."""

    tube: str
    arrivals: Arrivals
    waited_ms: list[float]
    begin_ms: int  # When the first of them was taken, and so somebody was there to work.
    workers: int  # So many jobs were worked on at a time, at most,
    per_key: int | None  # and of one key. None: the jobs have no keys, or the keys no limit that can be seen.

    def busy_share(self, workers: int, waited: Sequence[float]) -> float:
        """How much of their time so many workers work, if jobs wait so long."""
        arrivals = self.arrivals
        end = max(map(sum, zip(arrivals.at_ms, waited, arrivals.run_ms)))
        return sum(arrivals.run_ms) / (workers * max(1.0, end - self.begin_ms))


@dataclass(frozen=True)
class Outcome:
    """The waits of a tube: as they were, or as they would have been."""

    tube: str
    measured: bool
    workers: int
    per_key: int | None
    jobs: int
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    wait_p99_ms: float | None
    busy_share: float


def histories(lake: Lake, tube: str | None, since: datetime.date | None, until: datetime.date | None) -> list[History]:
    """The tubes in which jobs were finished in these days, or one of them."""
    # Jobs that are kept or buried are finished, but have no day of their end.
    days = [*days_between(lake.must_be_there(), JOBS, since, until), NO_DAY]
    files = [str(lake.root / JOBS.path / name) for name in lake.files(JOBS, days)]
    table = ds.dataset(files).to_table(columns=list(_COLUMNS), filter=_finished(since, until)) if files else None
    if table is None or not table.num_rows:
        raise PipelineError(f"no job that {lake.root} knows was taken and finished in these days")
    names = sorted(pc.unique(table["tube"]).to_pylist())
    if tube is not None and tube not in names:
        raise PipelineError(f"no job of {tube} was taken and finished in these days; there are {', '.join(names)}")
    return [_history(name, table.filter(pc.equal(table["tube"], name))) for name in ([tube] if tube else names)]


def _finished(since: datetime.date | None, until: datetime.date | None) -> pc.Expression:
    """Which jobs were taken and finished in these days, and seen from their put on."""
    wanted = pc.field("finished_at").is_valid()
    for column in ("ready_at", "wait_ms", "run_ms"):
        wanted &= pc.field(column).is_valid()
    day = pc.field("finished_at").cast(pa.date32())
    if since is not None:
        wanted &= day >= since
    return wanted & (day <= until) if until is not None else wanted


def _history(tube: str, table: pa.Table) -> History:
    table = table.sort_by("ready_at")
    keys = table["key"].to_pylist()
    runs = table["run_ms"].to_pylist()
    ends = _ms(table["finished_at"])
    spans = [(end - run, end) for end, run in zip(ends, runs)]
    workers = max(1, most_at_a_time(spans))
    by_key: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for key, span in zip(keys, spans):
        if key is not None:
            by_key[key].append(span)
    per_key = max((most_at_a_time(of_key) for of_key in by_key.values()), default=0)
    limited = 0 < per_key < workers and len(by_key) > 1
    return History(
        tube,
        Arrivals(_ms(table["ready_at"]), runs, keys),
        table["wait_ms"].to_pylist(),
        min(_ms(table["first_take_at"])),
        workers,
        max(1, per_key) if limited else None,
    )


def _ms(moments: pa.ChunkedArray) -> list[int]:
    return [round(value / 1_000) for value in moments.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()]


def estimates(
    history: History,
    workers: Sequence[int],
    per_key: Sequence[int],
    progress: Progress = lambda done, total: None,
) -> list[Outcome]:
    """What was measured, the estimate for the same, and estimates for what is asked: half and twice as many workers."""
    there = history.workers
    asked = list(workers) or [max(1, there // 2), there, 2 * there]
    limits: list[int | None] = list(per_key) or [history.per_key]
    cases = dict.fromkeys([(there, history.per_key), *((count, limit) for limit in limits for count in asked)])
    found = [_outcome(history, True, there, history.per_key, history.waited_ms)]
    for count, limit in cases:
        waited = waits(history.arrivals, count, limit, history.begin_ms, progress)
        found.append(_outcome(history, False, count, limit, waited))
    return found


def _outcome(history: History, measured: bool, workers: int, per_key: int | None, waited: list[float]) -> Outcome:
    ordered = sorted(waited)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.50, 0.95, 0.99))
    busy = min(1.0, history.busy_share(workers, waited))
    return Outcome(history.tube, measured, workers, per_key, len(ordered), p50, p95, p99, busy)
