"""The cluster: its nodes and the homes of tubes."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.commands import NO_REPEAT, items, number, octets
from penstock.web.exchange import Exchange
from penstock.web.names import text_of
from penstock.web.node_replies import sections
from penstock.web.route_table import ADMIN, Route
from penstock.web.shapes import Items, Map, Record, Shape, Text, Whole, Yes

# CLUSTER NODES lists the epoch of a node among its flags, unless it is 0.
_EPOCH: Final = "epoch="
_NODE_ID: Final = "77764aa047a51c809a0fc3bb5d40cca7699e4033"


async def _nodes(exchange: Exchange) -> list[dict[str, Any]]:
    text = octets(await exchange.ask(b"CLUSTER", b"NODES")).decode("utf-8", "replace")
    return [node_of(line) for line in text.splitlines()]


def node_of(line: str) -> dict[str, Any]:
    """Return the node that a line of CLUSTER NODES describes."""
    id, address, flags, *rest = line.split(" ")
    words = flags.split(",")
    epochs = [int(word.removeprefix(_EPOCH)) for word in words if word.startswith(_EPOCH)]
    return {
        "id": id,
        "address": address,
        "flags": [word for word in words if not word.startswith(_EPOCH)],
        "epoch": epochs[0] if epochs else 0,
        "is_connected_to": "myself" in words,
        "reachable": bool(rest) and rest[-1] == "connected",
    }


async def _show(exchange: Exchange) -> dict[str, Any]:
    info = sections(await exchange.ask(b"CLUSTER", b"INFO"))
    return {
        "size": info["cluster_size"],
        "reachable": info["cluster_reachable_nodes"],
        "nodes": await _nodes(exchange),
        "info": info,
    }


async def _list_nodes(exchange: Exchange) -> dict[str, Any]:
    return {"nodes": await _nodes(exchange)}


async def _homes(exchange: Exchange) -> dict[str, Any]:
    answer = await exchange.ask(b"CLUSTER", b"HOMES", alone=True)
    homes = [items(each) for each in items(answer)]
    return {
        "homes": [
            {"tube": text_of(octets(tube)), "node": octets(node).decode("latin-1"), "epoch": number(epoch)}
            for tube, node, epoch in homes
        ]
    }


async def _meet(exchange: Exchange) -> None:
    request = exchange.body
    words = [b"CLUSTER", b"MEET", request["host"].encode("utf-8", "replace"), b"%d" % request["port"]]
    if "bus_port" in request:
        words.append(b"%d" % request["bus_port"])
    await exchange.ask(*words, repeat=NO_REPEAT)


async def _forget(exchange: Exchange) -> None:
    await exchange.ask(b"CLUSTER", b"FORGET", exchange.body["node"].encode("utf-8", "replace"), repeat=NO_REPEAT)


async def _leave(exchange: Exchange) -> None:
    await exchange.ask(b"CLUSTER", b"LEAVING", b"yes" if exchange.body.get("leaving", True) else b"no")


_NODE: Final = Record(
    {
        "id": Text(example=_NODE_ID),
        "address": Text(example="127.0.0.1:7711"),
        "flags": Items(Text(), example=["myself"]),
        "epoch": Whole(example=0),
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
    Route(
        method="GET",
        path="/cluster/nodes",
        group="Cluster",
        summary="List the nodes.",
        handler=_list_nodes,
        access=ADMIN,
        returns=Record({"nodes": Items(_NODE)}),
    ),
    Route(
        method="GET",
        path="/cluster/homes",
        group="Cluster",
        summary="List the tubes that live on one node, with their nodes.",
        handler=_homes,
        access=ADMIN,
        returns=Record(
            {
                "homes": Items(
                    Record(
                        {
                            "tube": Text(example="emails"),
                            "node": Text("The id of the node.", example=_NODE_ID),
                            "epoch": Whole(example=0),
                        }
                    ),
                    most=10_000_000,
                )
            }
        ),
    ),
    Route(
        method="POST",
        path="/cluster/meet",
        group="Cluster",
        summary="Join the cluster of another node.",
        handler=_meet,
        access=ADMIN,
        status=204,
        body=Record(
            {
                "host": Text("The address of the other node.", length=(1, 255), example="10.0.0.2"),
                "port": Whole("Its port.", least=1, most=65_535, example=7711),
            },
            {"bus_port": Whole("The port of its cluster bus. Default: port + 10,000.", least=1, most=65_535)},
        ),
        returns=None,
        errors=("ERR",),
    ),
    Route(
        method="POST",
        path="/cluster/forget",
        group="Cluster",
        summary="Remove a node that does not come back.",
        about="The connected node forgets it. Send the request to the other nodes, too.",
        handler=_forget,
        access=ADMIN,
        status=204,
        body=Record({"node": Text("The id of the node.", length=(1, 100), example=_NODE_ID)}),
        returns=None,
        errors=("ERR",),
    ),
    Route(
        method="POST",
        path="/cluster/leave",
        group="Cluster",
        summary="Let the connected node leave the cluster, or stay.",
        handler=_leave,
        access=ADMIN,
        status=204,
        body=Record({}, {"leaving": Yes("false: it stays. Default: true.", example=True)}),
        body_required=False,
        returns=None,
    ),
]
