"""The server as a whole: figures, totals and clients."""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.client.commands import NO_REPEAT, number, octets
from penstock.web.event_feed import totals
from penstock.web.exchange import Exchange
from penstock.web.live.alerts import ALERTS_MAX, alerts_of
from penstock.web.names import text_of
from penstock.web.node_replies import number_of, sections
from penstock.web.refusals import Refused, bad_request
from penstock.web.response_shapes import OVERVIEW, span
from penstock.web.route_table import ADMIN, READ, Route
from penstock.web.shapes import Items, Map, Null, Record, Shape, Text, Whole

_CLIENT_ID_MAX: Final = 2**62


async def _server(exchange: Exchange) -> dict[str, Any]:
    info = sections(await exchange.ask(b"INFO", b"default"))
    return {
        "version": str(info["penstock_version"]),
        "compiled": info["penstock_compiled"] == "yes",
        "python": str(info["python_version"]),
        "process_id": info["process_id"],
        "uptime_s": info["uptime_in_seconds"],
        "commands_per_s": info["instantaneous_ops_per_sec"],
        "clients": info["connected_clients"],
        "waiting_clients": info["blocked_clients"],
        "memory_bytes": info["used_memory"],
        "memory_rss_bytes": info["used_memory_rss"],
        "memory_bytes_max": info["maxmemory"],
        "journal": {
            "enabled": info["aof_enabled"] == 1,
            "fsync": info.get("journal_fsync"),
            "bytes": info.get("aof_current_size"),
            "written": info.get("journal_written"),
            "durable": info.get("journal_durable"),
            "sync_ms": info.get("journal_sync_ms"),
            "last_write_ok": info["aof_last_write_status"] == "ok",
        },
        "info": info,
    }


async def _overview(exchange: Exchange) -> dict[str, Any]:
    pool, who, client = exchange.state.pool, exchange.credentials, exchange.client
    sampler = exchange.state.feeds.sampler(who)
    rows = await sampler.read(pool, who, client)
    durations = await sampler.durations.read(pool, who, client, rows)
    info = sections(await exchange.ask(b"INFO", b"default"))
    return {
        "at_ms": time.time_ns() // 1_000_000,
        **totals(rows),
        **durations,
        "memory_bytes": info["used_memory"],
        "memory_bytes_max": info["maxmemory"],
        "alerts": alerts_of(rows, info),
    }


async def _clients(exchange: Exchange) -> dict[str, Any]:
    lines = octets(await exchange.ask(b"CLIENT", b"LIST")).decode("utf-8", "replace").splitlines()
    return {"clients": [_client(line) for line in lines]}


def _client(line: str) -> dict[str, Any]:
    told = dict(word.partition("=")[::2] for word in line.split(" "))
    return {
        "id": int(told["id"]),
        "address": told["addr"],
        "name": told["name"] or told["lib-name"],
        "user": told["user"],
        "age_s": int(told["age"]),
        "idle_s": int(told["idle"]),
        "held_jobs": number_of(told.get("held", "0")),
        "waits_for": told.get("waits", "no"),
        "command": told["cmd"],
        "via_node": told.get("via"),
    }


async def _kill(exchange: Exchange) -> None:
    id = exchange.params["id"]
    if not id.isdigit() or len(id) > 18 or not 0 < int(id) < _CLIENT_ID_MAX:
        raise Refused("NOTFOUND", "there is no such client")
    if number(await exchange.ask(b"CLIENT", b"KILL", b"ID", id, repeat=NO_REPEAT)) == 0:
        raise Refused("NOTFOUND", "there is no such client")


async def _settings(exchange: Exchange) -> dict[str, Any]:
    answer = await exchange.ask(b"CONFIG", b"GET", b"*")
    return {"settings": {text_of(name): text_of(value) for name, value in answer.items()}}


async def _change_settings(exchange: Exchange) -> None:
    settings = exchange.body["settings"]
    if len(settings) != 1:
        raise bad_request("change one setting at a time, because several are not changed together")
    for name, value in settings.items():
        words = [name.encode("utf-8", "replace"), value.encode("utf-8", "surrogateescape")]
        await exchange.ask(b"CONFIG", b"SET", *words, repeat=NO_REPEAT)


_SETTINGS: Final = Record({"settings": Map(Text(), "Values by name.", example={"maxclients": "10000"})})


ROUTES: Final = [
    Route(
        method="GET",
        path="/server",
        group="Server",
        summary="Show the figures of the connected node.",
        handler=_server,
        access=READ,
        returns=Record(
            {
                "version": Text(example="0.1.0"),
                "uptime_s": Whole(example=3_600),
                "commands_per_s": Whole(example=120),
                "clients": Whole(example=3),
                "memory_bytes": Whole(example=52_428_800),
                "journal": Record({}, open=True, example={"enabled": True, "fsync": "always"}),
                "info": Map(Shape(), "All fields of the command INFO.", example={"tcp_port": 7711}),
            },
            open=True,
            title="Server",
        ),
    ),
    Route(
        method="GET",
        path="/overview",
        group="Server",
        summary="Show the totals over all tubes, and alerts.",
        handler=_overview,
        returns=OVERVIEW.with_fields(
            {
                "wait_p95_ms": span("95 % of the jobs that were taken recently waited at most this long."),
                "run_p95_ms": span("95 % of the jobs that were acked recently ran at most this long."),
                "memory_bytes": Whole("Memory that jobs use.", example=52_428_800),
                "memory_bytes_max": Whole("The limit of this memory; 0: none.", example=0),
                "alerts": Items(
                    Record(
                        {
                            "code": Text(example="NOCONSUMERS"),
                            "level": Text(choices=("warning", "critical"), example="warning"),
                            "message": Text(example="emails: 12,000 ready, no consumers"),
                            "tube": Null(Text("The tube that it is about."), example="emails"),
                        },
                        open=True,
                    ),
                    "What needs attention, the most severe first.",
                    most=ALERTS_MAX,
                ),
            }
        ),
    ),
    Route(
        method="GET",
        path="/clients",
        group="Server",
        summary="List the connections to the node.",
        handler=_clients,
        access=ADMIN,
        returns=Record(
            {
                "clients": Items(
                    Record(
                        {
                            "id": Whole(example=8),
                            "address": Text(example="127.0.0.1:38760"),
                            "user": Text(example="default"),
                            "waits_for": Text("What it waits for: no, take, put or job.", example="take"),
                        },
                        open=True,
                    ),
                    most=1_000_000,
                )
            }
        ),
    ),
    Route(
        method="DELETE",
        path="/clients/{id}",
        group="Server",
        summary="Close a connection to the node.",
        handler=_kill,
        access=ADMIN,
        returns=None,
        status=204,
    ),
    Route(
        method="GET",
        path="/settings",
        group="Server",
        summary="Show the settings of the connected node. Passwords are hidden.",
        handler=_settings,
        access=ADMIN,
        returns=_SETTINGS,
        etag=True,
    ),
    Route(
        method="PATCH",
        path="/settings",
        group="Server",
        summary="Change a setting of the connected node until it stops.",
        handler=_change_settings,
        access=ADMIN,
        status=204,
        body=_SETTINGS,
        returns=None,
        errors=("ERR",),
    ),
]
