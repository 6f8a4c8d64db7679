"""Events that are made up, for what a real server shows rarely, or only together with others."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from penstock.pipeline import bronze
from penstock.pipeline.digest import digest
from penstock.pipeline.lake import Lake
from penstock.spark.events_schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
HERE, THERE = "a" * 40, "b" * 40

# A place in a tube whose jobs are in the order of their creation, as `disque` tubes are.
BY_CREATION = 1_794_843_021_663_000_000


class History:
    """What happened, in its order: a node counts its own positions, and every event names the one of its job before."""

    def __init__(self, **known: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known = known
        self._last: dict[tuple[str, int], dict[str, Any]] = {}

    def tell(self, job: int, event: str, after: str, at_s: float = 0, node: str = HERE, **fields: Any) -> None:
        """An event of a job, so many seconds after noon. What is not said is as it was."""
        last = self._last.get((node, job)) or {
            **dict.fromkeys(name for name, _ in COLUMNS),
            **{"node": node, "job": job, "after": "gone", "created": NOON, "position": 0, "origin": 0, "body_kind": 0},
            **{"priority": 0, "order": job, "deliveries": 0, "nacks": 0, "returns": 0, "ttl_minutes": 0, "once": False},
            **self._known,
        }
        row = {**last, "event": event, "before": last["after"], "after": after, "session": None, **fields}
        before = max((each["position"] for each in self.rows if each["node"] == node), default=0)
        row["position"] = fields.get("position", before + 1)
        row["before_position"] = fields.get("before_position", last["position"])
        row["time"] = NOON + datetime.timedelta(seconds=at_s)
        self._last[node, job] = row
        self.rows.append(row)


def take_in(spark: SparkSession, lake: Lake, rows: list[dict[str, Any]], digests: bool = True) -> None:
    """A turn of the pipeline, with these events."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
    events = spark.createDataFrame([tuple(row[name] for name, _ in COLUMNS) for row in rows], ddl)
    with lake.writing():
        bronze.append(lake, events)
        if digests:
            digest(spark, lake)
