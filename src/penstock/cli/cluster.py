"""`penstock cluster`: what one node can tell of its cluster."""

from __future__ import annotations

import typer

from penstock.cli.bundles import bundled
from penstock.cli.output import Output, Record, column
from penstock.cli.target import Place, Target

app = typer.Typer(help="Look at the cluster, as one node sees it.", no_args_is_help=True)


@app.command()
@bundled
def info(*, target: Target, out: Output) -> None:
    """Show the node: who it is, and what it holds."""
    with target.open() as queue:
        overview = queue.overview()
        node = _node(target.place())
    states = ("ready", "taken", "delayed", "buried", "done", "zombie")
    out.record({**node, "tubes": len(overview), "jobs": sum(row[state] for row in overview for state in states)})


@app.command()
@bundled
def nodes(*, target: Target, out: Output) -> None:
    """List the nodes that this one knows."""
    with target.open():
        rows = [_node(target.place())]
    out.table(rows, [column("node"), column("place"), column("state")], "")


def _node(place: Place) -> Record:
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.identity import identity

    known = identity(ReadOnlyDisk(str(place.directory)))
    return {"node": known.node, "place": place.shown(), "state": "leaving" if known.leaving else "alone"}
