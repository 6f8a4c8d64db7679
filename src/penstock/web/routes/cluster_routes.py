"""The cluster: its nodes and the homes of tubes."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import octets
from penstock.web.exchange import Exchange
from penstock.web.node_replies import sections
from penstock.web.route_table import ADMIN, Route
from penstock.web.shapes import Items, Map, Record, Shape, Text, Yes


async def _nodes(exchange: Exchange) -> list[dict[str, Any]]:
    text = octets(await exchange.ask(b"CLUSTER", b"NODES")).decode("utf-8", "replace")
    found = []
    for line in text.splitlines():
        id, address, flags, *rest = line.split(" ")
        words = flags.split(",")
        found.append(
            {
                "id": id,
                "address": address,
                "flags": words,
                "is_connected_to": "myself" in words,
                "reachable": bool(rest) and rest[-1] == "connected",
            }
        )
    return found


async def _show(exchange: Exchange) -> dict[str, Any]:
    info = sections(await exchange.ask(b"CLUSTER", b"INFO"))
    return {
        "size": info["cluster_size"],
        "reachable": info["cluster_reachable_nodes"],
        "nodes": await _nodes(exchange),
        "info": info,
    }


_NODE: Final = Record(
    {
        "id": Text(example="77764aa047a51c809a0fc3bb5d40cca7699e4033"),
        "address": Text(example="127.0.0.1:7711"),
        "flags": Items(Text(), example=["myself"]),
        "is_connected_to": Yes("The API is connected to this node.", example=True),
        "reachable": Yes("The node that the API is connected to reaches it.", example=True),
    },
    open=True,
    title="Node",
)

ROUTES: Final = [
    Route(
        method="GET",
        path="/cluster",
        group="Cluster",
        summary="Show the cluster as the connected node sees it.",
        handler=_show,
        access=ADMIN,
        returns=Record(
            {
                "nodes": Items(_NODE),
                "info": Map(Shape(), "All fields of CLUSTER INFO.", example={"cluster_size": 1}),
            },
            open=True,
            title="Cluster",
        ),
    ),
]
