"""What if there were more workers, or fewer, or another limit of jobs a key? An estimate, from what jobs did.

The jobs of a tube are played through again (simulation.py). How far to trust it can be seen: what was measured stands
beside the estimate for just as many workers as there were.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.gold_reader import days_between
from penstock.pipeline.lake import NO_DAY, Lake
from penstock.pipeline.simulation import Arrivals, Crew, Progress, most_at_a_time, percentile, waits
from penstock.pipeline.tables import JOBS

ASSUMPTIONS: Final = (
    "An estimate: every job comes when it came and takes as long as its last run took, jobs are served in the order "
    "they came, and workers are there from the first take on, do nothing else, and need as long between two jobs as "
    "they did. How good it is, you see from what was measured and the estimate for as many workers as there were."
)

_COLUMNS: Final = ("tube", "key", "ready_at", "first_take_at", "finished_at", "wait_ms", "run_ms", "node", "session")


@dataclass(frozen=True)
class History:
    """What is known of the jobs of a tube: those that were taken and finished."""

    tube: str
    arrivals: Arrivals
    waited_ms: list[float]
    crew: Crew  # Who worked, as far as can be seen: how many jobs were worked on at a time, and of one key.

    def busy_share(self, workers: int, waited: Sequence[float]) -> float:
        """How much of their time so many workers work, if jobs wait so long."""
        arrivals = self.arrivals
        end = max(map(sum, zip(arrivals.at_ms, waited, arrivals.run_ms)))
        return min(1.0, sum(arrivals.run_ms) / (workers * max(1.0, end - self.crew.begin_ms)))


@dataclass(frozen=True)
class Outcome:
    """The waits of a tube: as they were, or as they would have been."""

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
    """The tubes in which jobs were finished in these days, or one of them."""
    # Jobs that were kept or buried are finished, but have no day of their end, or a later one.
    days = [*days_between(lake.must_be_there(), JOBS, since, None), NO_DAY]
    files = [str(lake.path(JOBS, name)) for name in lake.files(JOBS, days)]
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
    spans = [(end - run, end) for end, run in zip(_ms(table["finished_at"]), runs)]
    crew = Crew(
        max(1, most_at_a_time(spans)), _per_key(keys, spans), min(_ms(table["first_take_at"])), _pause_ms(table, spans)
    )
    return History(tube, Arrivals(_ms(table["ready_at"]), runs, keys), table["wait_ms"].to_pylist(), crew)


def _per_key(keys: list[Any], spans: list[tuple[int, int]]) -> int | None:
    """How many jobs of one key were worked on at a time; None if they have none, or only one."""
    by_key: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, span in zip(keys, spans):
        if key is not None:
            by_key[key].append(span)
    return max(1, *map(most_at_a_time, by_key.values())) if len(by_key) > 1 else None


def _pause_ms(table: pa.Table, spans: list[tuple[int, int]]) -> float:
    """What workers needed from one job to the next, on average, where the next was waiting for them."""
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
    """What was measured, the estimate for the same, and estimates for what is asked: half and twice as many workers."""
    there = history.crew
    asked = list(workers) or [max(1, there.workers // 2), there.workers, 2 * there.workers]
    limits: list[int | None] = list(per_key) or [there.per_key]
    crews = [replace(there, workers=count, per_key=limit) for limit in limits for count in asked]
    found = [_outcome(history, True, there, history.waited_ms)]
    for crew in dict.fromkeys([there, *crews]):
        found.append(_outcome(history, False, crew, waits(history.arrivals, crew, progress)))
    return found


def _outcome(history: History, measured: bool, crew: Crew, waited: list[float]) -> Outcome:
    ordered = sorted(waited)
    p50, p95, p99 = (round(percentile(ordered, share)) for share in (0.50, 0.95, 0.99))
    busy = history.busy_share(crew.workers, waited)
    return Outcome(history.tube, measured, crew.workers, crew.per_key, len(ordered), p50, p95, p99, busy)
