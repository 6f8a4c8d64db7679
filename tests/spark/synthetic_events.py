"""Synthetic events for cases that a real server produces rarely, or only in a cluster."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from penstock.journal.layout import FLAG_ASIDE, FLAG_CLAIMED, FLAG_GIVEN_UP, FLAG_WAS_ASIDE
from penstock.lake.files import write_table
from penstock.lake.lake import Lake
from penstock.lake.tables import COVERAGE, EVENTS
from penstock.spark.events.schema import COLUMNS

NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
HERE, THERE = "a" * 40, "b" * 40

# The order of a job in a tube that is sorted by creation time, like `disque` tubes.
BY_CREATION = 1_794_843_021_663_000_000


class History:
    """A list of events. Each node has its own positions, and each event has the position of the job's previous one."""

    def __init__(self, **known: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known = known
        self._last: dict[tuple[str, int], dict[str, Any]] = {}
        self._since: dict[tuple[str, int], datetime.datetime] = {}  # When the job entered its state.
        self._holder: dict[tuple[str, int], int | None] = {}  # The session that has taken the job.

    def tell(self, job: int, event: str, after: str, at_s: float = 0, node: str = HERE, **fields: Any) -> None:
        """Add an event of a job, `at_s` seconds after noon. Columns that are not given keep their value.

        Given flags are completed by the one that a job aside has in its next event.
        """
        last = self._last.get((node, job)) or {
            **dict.fromkeys(name for name, _ in COLUMNS),
            **{"node": node, "job": job, "after": "gone", "created": NOON, "position": 0, "origin": 0, "body_kind": 0},
            **{"priority": 0, "order": job, "deliveries": 0, "nacks": 0, "returns": 0, "ttl_minutes": 0, "once": False},
            **{"tube_number": 1, "flags": 0, "format": 0, "time": NOON, **self._known},
        }
        row = {**last, "event": event, "before": last["after"], "after": after, "session": None, **fields}
        before = max((each["position"] for each in self.rows if each["node"] == node), default=0)
        row["position"] = fields.get("position", before + 1)
        row["before_position"] = fields.get("before_position", last["position"])
        row["flags"] = fields.get("flags", 0) | (FLAG_WAS_ASIDE if last["flags"] & FLAG_ASIDE else 0)
        row["time"] = NOON + datetime.timedelta(seconds=at_s)
        row["since"] = self._since.get((node, job), row["time"])
        row["actor"] = row["session"]
        if row["before"] == "taken":
            row["session"] = self._holder.get((node, job))
        if row["before"] != after:
            self._since[node, job] = row["time"]
            self._holder[node, job] = row["session"]
        self._last[node, job] = row
        self.rows.append(row)


def take_in(lake: Lake, rows: list[dict[str, Any]], after_gap: int = 0) -> None:
    """Add events to the bronze of a lake. The next turn adds them to silver and gold.

    `after_gap` is the first position that was read, if there is a gap before it.
    """
    ends = {node: max(row["position"] for row in rows if row["node"] == node) + 1 for node in {r["node"] for r in rows}}
    with lake.writing():
        lake.create()
        turn = lake.turn + 1
        covered = [
            {"turn": turn, "node": node, "start": after_gap or lake.position(node) or 1, "end": end, "events": end - 1}
            for node, end in ends.items()
        ]
        lake.set_facts(COVERAGE, turn, pa.Table.from_pylist(covered, COVERAGE.arrow))
        files = []
        for node in ends:
            dated = [{**row, "date": row["time"].date()} for row in rows if row["node"] == node]
            files += write_table(lake.place, EVENTS, pa.Table.from_pylist(dated, EVENTS.arrow), turn)
        lake.commit_events(turn, files, ends, dict.fromkeys(ends, after_gap or 1))


def first_turn(history: History) -> None:
    """Add the events of the first turn. Each tube is a separate case."""
    tell = history.tell
    shared = {"tube": "copied", "order": BY_CREATION, "ttr_ms": 300_000}
    for job in (1, 2, 3, 4):
        tell(job, "put staged", "staged", **shared)
        tell(job, "published", "ready")
        if job != 3:
            tell(
                job,
                "moved in delayed",
                "delayed",
                0,
                THERE,
                **shared,
                flags=FLAG_ASIDE,
                wake=NOON + datetime.timedelta(seconds=338),
            )
    # Job 3 moves to the other node, where a consumer waits, and stays here as a copy.
    tell(3, "switched to delayed", "delayed", 1, flags=FLAG_ASIDE, wake=NOON + datetime.timedelta(seconds=339))
    tell(3, "moved in", "ready", 1, THERE, **shared)
    tell(3, "taken", "taken", 2, THERE, deliveries=1)
    # Job 4 is queued again by the other node.
    tell(4, "delay passed", "ready", 340, THERE)
    tell(4, "switched to delayed", "delayed", 341, flags=FLAG_ASIDE, wake=NOON + datetime.timedelta(seconds=700))
    # Jobs that a user dequeues are delayed.
    tell(10, "put", "ready", tube="by hand", order=BY_CREATION, ttr_ms=300_000)
    tell(10, "switched to delayed", "delayed", 1, wake=NOON + datetime.timedelta(seconds=301))
    tell(11, "put", "ready", tube="by hand")
    tell(11, "switched to delayed", "delayed", 1, wake=NOON + datetime.timedelta(seconds=60))

    # Jobs whose first events are not in the lake.
    tell(20, "touched", "ready", 1, tube="met", before="ready", before_position=0)
    tell(21, "doomed", "taken", 1, tube="met", before="taken", before_position=0)
    tell(20, "taken", "taken", 2, session=5)
    tell(21, "acked", "gone", 2, session=5)

    # A claim takes a job that a session has released.
    tell(30, "put", "ready", tube="claimed")
    tell(30, "taken", "taken", 1, session=5, deliveries=1)
    tell(30, "released", "ready", 2)
    tell(30, "claimed", "taken", 3, deliveries=2, flags=FLAG_CLAIMED)
    tell(31, "put", "ready", tube="claimed")
    tell(31, "claimed", "taken", 1, deliveries=1)

    # Jobs that fail, and are given up in the end.
    tell(40, "put", "ready", tube="failed")
    tell(40, "taken", "taken", 1, session=5)
    tell(40, "nacked", "ready", 2, reason="no answer")
    tell(40, "taken", "taken", 3, session=5)
    tell(40, "ttr passed", "ready", 4)
    tell(40, "exhausted", "buried", 4, reason="failed 2 times, at last: ttr passed", flags=FLAG_GIVEN_UP)
    for job in (41, 42):
        tell(job, "put", "ready", tube="failed")
        tell(job, "taken", "taken", 1, session=5)
        tell(job, "nacked", "ready", 2, reason="no such street")

    # Several deliveries in one millisecond, in one turn and in two.
    for job in (50, 51):
        tell(job, "put", "ready", tube="hasty")
        tell(job, "taken", "taken", 1, session=9)
        tell(job, "released", "ready", 1)
    tell(50, "taken", "taken", 1, session=5)


def second_turn(history: History) -> None:
    """Add the events of the second turn, for the jobs of the first."""
    tell = history.tell
    tell(1, "taken", "taken", 342, deliveries=1)
    tell(1, "acked", "gone", 343, session=7)
    tell(1, "acked", "gone", 343, THERE)
    tell(3, "acked", "gone", 343, THERE, session=7)
    tell(3, "acked", "gone", 343)
    tell(4, "taken", "taken", 344, THERE, deliveries=1)
    tell(4, "acked", "gone", 345, session=7)
    tell(4, "acked", "gone", 345, THERE)

    tell(30, "acked", "gone", 40)
    tell(31, "claim ended", "ready", 60)
    tell(31, "claimed", "taken", 61, deliveries=2)
    tell(31, "undelivered", "ready", 62, deliveries=1)
    tell(31, "taken", "taken", 63, deliveries=2, session=5)
    tell(31, "snatched", "ready", 64)

    # The first turn ended between a failure and its consequence.
    tell(41, "moved out", "gone", 2, flags=FLAG_GIVEN_UP)
    tell(41, "moved in", "ready", 2, tube="graveyard")
    tell(42, "exhausted", "buried", 2, reason="failed 1 time, at last: no such street", flags=FLAG_GIVEN_UP)

    tell(51, "taken", "taken", 1, session=5)
