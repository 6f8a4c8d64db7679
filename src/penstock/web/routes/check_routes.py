"""Checks for monitoring systems, with the same rules as `penstock check`."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.errors import NoJournal
from penstock.report.thresholds import LEVELS, BadThreshold, Metric, judge, parse_thresholds
from penstock.server.config.kinds import read_size
from penstock.web.exchange import Exchange
from penstock.web.node_replies import STATES, sections, tube_row
from penstock.web.refusals import bad_request
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Map, Null, Number, Record, Text, Whole

_THRESHOLDS: Final = {
    "warn": Items(Text(length=(1, 100)), "The level is 1 if one of these is true.", most=20, example=["ready>1000"]),
    "crit": Items(Text(length=(1, 100)), "The level is 2 if one of these is true.", most=20, example=["oldest>5m"]),
}


def _report(exchange: Exchange, metrics: list[Metric], problem: str = "") -> dict[str, Any]:
    query = exchange.query
    try:
        asked = parse_thresholds(metrics, query.get("warn", []), query.get("crit", []), read_size)
    except BadThreshold as error:
        raise bad_request(str(error)) from None
    level, words = judge(metrics, asked, problem)
    return {
        "status": LEVELS[level].lower(),
        "code": level,
        "message": words,
        "metrics": {metric.name: metric.value for metric in metrics},
    }


async def _tube(exchange: Exchange) -> dict[str, Any]:
    row = tube_row(await exchange.ask(b"TUBE", b"STATS", exchange.params["tube"]))
    oldest = row["oldest_ms"]
    return _report(
        exchange,
        [
            *(Metric(state, row[state]) for state in STATES),
            Metric("jobs", sum(row[state] for state in STATES)),
            Metric("waiting", row["consumers"]),
            Metric("oldest", None if oldest is None else oldest / 1_000, "s"),
        ],
    )


async def _journal(exchange: Exchange) -> dict[str, Any]:
    info = sections(await exchange.ask(b"INFO", b"persistence"))
    if info["aof_enabled"] != 1:
        raise NoJournal("the server keeps no journal")
    return _report(
        exchange,
        [
            Metric("size", info["aof_current_size"], "B"),
            Metric("behind", info["journal_written"] - info["journal_durable"]),
            Metric("sync", info["journal_sync_ms"] / 1_000, "s"),
        ],
        "" if info["aof_last_write_status"] == "ok" else "the server cannot write its log",
    )


_RESULT: Final = Record(
    {
        "status": Text(choices=("ok", "warning", "critical"), example="ok"),
        "code": Whole("0 ok, 1 warning, 2 critical, as for monitoring plugins.", most=2, example=0),
        "message": Text("The reason for the level, or the metrics.", example="ready 12, taken 1"),
        "metrics": Map(Null(Number()), "Times are in seconds.", example={"ready": 12}),
    },
    title="Check",
)

ROUTES: Final = [
    Route(
        method="GET",
        path="/checks/tubes/{tube}",
        group="Server",
        summary="Compare the numbers of a tube with thresholds.",
        about="Metrics: ready, taken, delayed, buried, done, zombie, staged, jobs, waiting and oldest (a duration).",
        handler=_tube,
        query=_THRESHOLDS,
        returns=_RESULT,
        errors=("NOTUBE",),
    ),
    Route(
        method="GET",
        path="/checks/journal",
        group="Server",
        summary="Compare the figures of the journal with thresholds.",
        about="Metrics: size (bytes), behind (rows that are not on disk yet) and sync (a duration).",
        handler=_journal,
        query=_THRESHOLDS,
        returns=_RESULT,
        errors=("NOJOURNAL",),
    ),
]
