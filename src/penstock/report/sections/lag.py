"""Section: how far the lake is behind the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from penstock.report.section import Section, Status, column, count_column
from penstock.report.source import NodeLag
from penstock.report.units import duration_text, moment_text


def lag(nodes: Sequence[NodeLag] | None, now: datetime) -> Section:
    """Return the section that lists for each node how many events the lake lacks. `now` is the time of the report."""
    rows = [{"node": each.node[:8], "unread": each.unread, "newest": each.newest} for each in nodes or ()]
    return Section(
        "lag",
        "Lag",
        "How far is the lake behind the nodes?",
        [column("node"), count_column("unread", "events not read"), column("newest", "newest event in the lake, UTC")],
        rows,
        "The lag is not known, because no node was asked.",
        status=_status(nodes or (), now),
    )


def _status(nodes: Sequence[NodeLag], now: datetime) -> Status:
    newest = max((each.newest for each in nodes if each.newest is not None), default=None)
    detail = "" if newest is None else f"The newest event is from {moment_text(newest)} UTC{_age(newest, now)}."
    unread = sum(each.unread or 0 for each in nodes)
    silent = sum(each.unread is None for each in nodes)
    if unread:
        return Status("late", f"{unread:,} {'event is' if unread == 1 else 'events are'} not in the lake yet", detail)
    if silent or not nodes:
        named = f"{silent} of {len(nodes)} nodes did not answer." if silent < len(nodes) else "No node was asked."
        return Status("unknown", "The lag is not known", f"{named} {detail}".strip())
    return Status("good", "The lake has all events", detail)


def _age(newest: datetime, now: datetime) -> str:
    ms = round((now - newest).total_seconds() * 1000)
    return f", {duration_text(ms)} before this report" if ms > 0 else ""
