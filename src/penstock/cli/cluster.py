"""`penstock cluster`: what one node can tell of its cluster."""

from __future__ import annotations

import typer

from penstock.cli.bundles import bundled
from penstock.cli.output import Column, Output, Record, column
from penstock.cli.records import total
from penstock.cli.target import Place, Target, ask

app = typer.Typer(help="Look at the cluster, as one node sees it.", no_args_is_help=True)


@app.command()
@bundled
def info(*, target: Target, out: Output) -> None:
    """Show the node that answers: who it is, how many others it knows, and what it holds."""
    known = _nodes(target)
    with target.open() as queue:
        overview = queue.overview()
    out.record(
        {
            "node": known[0]["node"],
            "place": target.place().shown(),
            "nodes": len(known),
            "tubes": len(overview),
            "jobs": sum(total(row) for row in overview),
        }
    )


@app.command()
@bundled
def nodes(*, target: Target, out: Output) -> None:
    """List the nodes that the one that answers knows, itself first."""
    out.table(
        _nodes(target),
        [column("node"), column("address"), Column("flags", lambda node: ", ".join(node["flags"])), column("state")],
        "",
    )


def _nodes(target: Target) -> list[Record]:
    """Every node that is known; the one that answers comes first."""
    place = target.place()
    if place.directory is not None:
        with target.open():
            return [_node_in(place)]
    lines = [line.split() for line in ask(target, "CLUSTER", "NODES").decode().splitlines()]
    found: list[Record] = [
        {"node": words[0], "address": words[1], "flags": words[2].split(","), "state": words[5]}
        for words in lines
        if len(words) >= 6
    ]
    return sorted(found, key=lambda node: "myself" not in node["flags"])


def _node_in(place: Place) -> Record:
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.identity import identity

    known = identity(ReadOnlyDisk(str(place.directory)))
    return {"node": known.node, "address": place.shown(), "flags": ["myself"], "state": "embedded"}
