"""A model of silver and gold in plain Python. It walks through the events of a log in order, one job at a time.

It computes waits and runs from the events before, and levels one event at a time, so it shares no method with the
queries of the pipeline.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from penstock.spark.events.columns import batches
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.ranges import EventsRange
from penstock.spark.node import Node

PUTS = {"put", "put delayed", "put urgent", "published", "published delayed"}
TAKES = {"taken", "claimed"}
RETURNS = {
    **{"nacked": "nacked", "ttr passed": "ttr_passed", "disconnected": "disconnected", "claim ended": "claim_ended"},
    **{"released": "released", "requeued": "released", "postponed": "released"},
    **{"snatched": "snatched", "snatched delayed": "snatched", "undelivered": "undelivered"},
}
ENDS = {"expired", "deleted", "truncated", "withdrawn"}
_AT_LAST = re.compile("^failed [0-9]+ times?, at last: ")

Row = dict[str, Any]
Sums = dict[tuple[Any, ...], Counter[str]]


def events_of(url: str) -> list[Row]:
    """Return all events of a node's log, without Spark and without a lake."""
    with Node(url) as node:
        head = node.head()
    options = EventsOptions.read({"url": url}, streaming=False)
    found = [batch.to_pylist() for batch in batches(EventsRange(url, head.node, head.first, head.end), options)]
    return [row for some in found for row in some]


class Model:
    """The tables for the events of whole jobs, with the grain of a second."""

    def __init__(self, events: list[Row]) -> None:
        self.rates: Sums = defaultdict(Counter)  # By tube and second.
        self.redeliveries: Sums = defaultdict(Counter)
        self.transitions: Sums = defaultdict(Counter)
        self.failures: Sums = defaultdict(Counter)
        self.fairness: Sums = defaultdict(Counter)
        self.workers: Sums = defaultdict(Counter)
        self.durations: Sums = defaultdict(Counter)
        self.levels: dict[str, Counter[str]] = defaultdict(Counter)  # By tube: the number of jobs in each state.
        self.peaks: dict[tuple[str, str], int] = defaultdict(int)  # By tube and state.
        self.jobs: dict[tuple[str, int], Row] = {}
        self._since: dict[tuple[str, int], datetime] = {}  # When the job entered its state.
        for row in sorted(events, key=lambda row: (row["node"], row["position"])):
            self._add(row)

    def _add(self, row: Row) -> None:
        key = (row["node"], row["job"])
        ms = round((row["time"] - self._since.get(key, row["time"])).total_seconds() * 1000)
        event, before, after, tube = row["event"], row["before"], row["after"], row["tube"]
        minute = row["time"].replace(microsecond=0)
        ends_run = before == "taken" and after != "taken"
        is_take = event in TAKES
        is_ack = event in {"acked", "kept", "lingered"}
        is_fail = event in {"nacked", "ttr passed", "disconnected"} or (event == "buried" and before == "taken")
        for name, is_it in (("puts", event in PUTS), ("takes", is_take), ("acks", is_ack), ("fails", is_fail)):
            self.rates[tube, minute][name] += is_it
        self.redeliveries[tube, minute]["takes"] += is_take
        self.redeliveries[tube, minute]["redeliveries"] += is_take and row["deliveries"] > 1
        if before == "taken" and after in ("ready", "delayed"):
            self.redeliveries[tube, minute][RETURNS[event]] += 1
        if before != after:
            ends = (
                "elsewhere" if event.startswith("moved in") else before,
                "elsewhere" if event == "moved out" else after,
            )
            self.transitions[(tube, *ends)]["count"] += 1
        self._count_failure(row, is_fail)
        if row["key"] is not None:
            of_key = self.fairness[tube, row["key"].decode()]
            of_key.update(jobs=event in PUTS, deliveries=is_take, acks=is_ack, wait_ms=ms if is_take else 0)
            of_key["wait_ms_max"] = max(of_key["wait_ms_max"], ms if is_take else 0)
        if row["session"] and (is_take or ends_run):
            self.workers[row["node"], row["session"]].update(
                taken=is_take, acked=is_ack, failed=is_fail, busy_ms=ms if ends_run else 0
            )
        if is_take or (is_ack and before == "taken"):
            self.durations[tube, minute, "wait" if is_take else "run", bucket(ms)]["count"] += 1
        for state, change in ((before, -1), (after, 1)):
            level = "kept" if state in ("done", "zombie") else state
            self.levels[tube][level] += change
            self.peaks[tube, level] = max(self.peaks[tube, level], self.levels[tube][level])
        self._follow(key, row, ms)
        if before != after:
            self._since[key] = row["time"]

    def _count_failure(self, row: Row, is_fail: bool) -> None:
        """A job is given up by the event after its last failure, or buried by a user."""
        event, last = row["event"], self.jobs.get((row["node"], row["job"]), {}).get("event")
        is_moved_after_failure = event == "moved out" and last in ("nacked", "ttr passed", "disconnected")
        given_up = event in ("buried", "exhausted", "discarded") or is_moved_after_failure
        if is_fail or given_up:
            reason = event if event in ("ttr passed", "disconnected") else _AT_LAST.sub("", row["reason"] or "")
            found = self.failures[row["tube"], reason or "no reason given"]
            found.update(count=is_fail, dead_letters=given_up)
            found["example_max"] = max(found["example_max"], row["job"])

    def _follow(self, key: tuple[str, int], row: Row, ms: int) -> None:
        job = self.jobs.setdefault(
            key,
            {
                **{"put_at": row["created"], "ready_at": None, "first_take_at": None, "last_take_at": None},
                **{"wait_ms": None, "run_ms": None, "finished_at": None, "session": None, "outcome": "open"},
                **{"body_bytes": None, "whole": not row["event"].startswith("moved in")},
            },
        )
        before, after, time = row["before"], row["after"], row["time"]
        if after == "ready" and before != "ready":
            job["ready_at"] = job["ready_at"] or time
        if after == "taken" and before != "taken":
            if job["first_take_at"] is None:
                job |= {"first_take_at": time, "wait_ms": ms}
            job |= {"last_take_at": time, "session": row["session"]}
        outcome = outcome_of(row)
        if outcome is not None:
            run_ms = ms if before == "taken" else None
            ended = (
                {"finished_at": time, "run_ms": run_ms} if outcome != "open" else {"finished_at": None, "run_ms": None}
            )
            job |= {"outcome": outcome, "outcome_position": row["position"], **ended}
        if row["body"] is not None:
            job["body_bytes"] = max(job["body_bytes"] or 0, len(row["body"]))
        names = ("node", "job", "tube", "key", "reason", "deliveries", "nacks", "returns", "once", "event", "position")
        job |= {name: row[name] for name in names} | {"state": after, "date": time.date()}


def outcome_of(row: Row) -> str | None:
    """Return the outcome of a job after an event, or None if the event does not change it."""
    before, after, event = row["before"], row["after"], row["event"]
    if before in ("done", "zombie", "buried") and after == "gone" and event not in ("acked", "moved out"):
        return None
    if event in ENDS:
        return str(event)
    ends = {"discarded": "dropped", "moved out": "moved", "acked": "acked"}
    if event in ends:
        return ends[event]
    if after == "buried":
        return "buried"
    return "acked" if after in ("done", "zombie") else "open"


def bucket(ms: int) -> int:
    """Return the first bucket whose limit is not less than a duration."""
    limits = (1.02**number for number in range(10_000))
    return 0 if ms <= 0 else 1 + next(number for number, limit in enumerate(limits) if limit >= ms * (1 - 1e-12))
