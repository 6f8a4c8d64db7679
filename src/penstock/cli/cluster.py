"""`penstock cluster`: whom a node knows, and what it is told about them.

What one node says is asked of that one; what has to be so on every node (`forget`, `check`) is asked of each in turn,
at the addresses that the first one knows, with its user and password.
"""

from __future__ import annotations

import re
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import ERROR, NOT_FOUND, NOTHING, fail, reading_answers, sentence_of
from penstock.cli.nodes import NODES_FILE, NOT_ASKED, address_of, node_at, nodes_of, where
from penstock.cli.output import Column, Output, Record, column, confirm, jobs_text
from penstock.cli.records import total
from penstock.cli.spans import span
from penstock.cli.target import Place, Target, ask
from penstock.cli.values import Yes, duration_option

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(help="See the cluster, and change it.", no_args_is_help=True)

# How often something is asked that is waited for, seconds.
_ASK_S: Final = 0.05

# How many tubes are told of by name.
_SHOWN: Final = 5

# A node that shows one of these was not met, or is lost.
_NOT_THERE: Final = {"handshake", "noaddr", "fail", "fail?"}

# Why a node does not accept copies of jobs, by its flag, and what to do.
_CONDITIONS: Final = {
    "nodisk": "out of disk, so it takes no new jobs: free space on its disk",
    "nomem": "above its memory threshold, so it takes no copies: consume jobs, raise maxmemory, or use a journal",
    "paused": "takes no jobs of {queues}: see `penstock tube ls` there, and end it with `penstock tube resume`",
}

_ID: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)

_COLUMNS: Final = [
    column("node"),
    column("address"),
    Column("flags", lambda node: ", ".join(node["flags"])),
    column("epoch"),
    column("state"),
]


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
def secret(*, out: Output) -> None:
    """Print a new random secret for `cluster-secret`. All nodes of a cluster must have the same one."""
    made = secrets.token_hex(32)
    out.done(made, secret=made)


@app.command()
@bundled
def nodes(*, target: Target, out: Output) -> None:
    """List the nodes that the one that answers knows, itself first."""
    out.table(_nodes(target), _COLUMNS, "")


@app.command()
@bundled
def homes(*, target: Target, out: Output) -> None:
    """List the tubes that are on one node, and that node, as the one that answers knows them."""
    addresses = {node["node"]: node["address"].partition("@")[0] for node in _nodes(target)}
    rows = _homes(target)
    for row in rows:
        row["address"] = addresses.get(row["node"], "")
    out.table(rows, [column("tube"), column("node"), column("address"), column("epoch")], "no tube is on one node only")


@app.command()
@bundled
def meet(
    others: Annotated[
        list[str],
        typer.Argument(metavar="ADDRESS...", help="Where they are: 10.0.0.2:7711; an unusual port for nodes behind @."),
    ],
    *,
    wait: Annotated[
        float, duration_option("--wait", "-w", help="How long to wait until they have met.", default="15s")
    ] = 15.0,
    target: Target,
    out: Output,
) -> None:
    """Let a node meet others. Each learns of all that the others know: one of a cluster is enough."""
    addresses = [address_of(other) for other in others]
    before = {node["node"] for node in _nodes(target)}
    for host, port, bus_port in addresses:
        ask(target, "CLUSTER", "MEET", host, port, *bus_port)
    wanted = {f"{host}:{port}": _names_of(target, host, port) for host, port, _ in addresses}

    def missing() -> list[str]:
        there = [node for node in _nodes(target) if not _NOT_THERE & set(node["flags"])]
        if len(wanted) == 1 and any(node["node"] not in before for node in there):
            # Whoever it is by now, and wherever: nobody else has led to it.
            return []
        found = {node["node"] for node in there} | {node["address"].partition("@")[0] for node in there}
        return [address for address, names in wanted.items() if not names & found]

    if not _wait_for(lambda: not missing(), wait):
        who, within = ", ".join(missing()), span(round(wait * 1000))
        fail(f"{who} was not met within {within}; see whether its port for nodes is open, and the logs", NOTHING)
    known = _nodes(target)
    out.done(f"the cluster has {len(known)} nodes", nodes=len(known))


@app.command()
@bundled
def leave(
    *,
    stay: Annotated[bool, typer.Option("--stay", help="Do not leave after all.")] = False,
    wait: Annotated[
        float, duration_option("--wait", "-w", help="How long to wait until it holds nothing any more.")
    ] = 0.0,
    target: Target,
    out: Output,
) -> None:
    """Let a node leave: it takes no new jobs, and hands over what it holds. It can be stopped when it holds nothing.

    Tubes that live on one node, which is this one, do not go to another; it says which these are.
    """
    known = _nodes(target)
    ask(target, "CLUSTER", "LEAVING", "no" if stay else "yes")
    if stay:
        out.done("it stays", leaving=False)
        return

    def held() -> int:
        with reading_answers():
            lines = ask(target, "INFO", "jobs").decode().split()
            return int(next(line.partition(":")[2] for line in lines if line.startswith("registered_jobs:")))

    _wait_for(lambda: held() == 0, wait)
    left = held()
    tubes = [row["tube"] for row in _homes(target) if row["node"] == known[0]["node"]]
    words = f"it leaves, and still holds {jobs_text(left)}" if left else "it leaves, and holds nothing"
    if tubes:
        more = f" and {len(tubes) - _SHOWN} more" if len(tubes) > _SHOWN else ""
        words += f"; tubes that live on it stay there, with their jobs: {', '.join(tubes[:_SHOWN])}{more}"
    elif not left:
        words += ": it can be stopped"
    out.done(words, leaving=True, jobs=left, tubes=tubes)
    if left and wait:
        raise typer.Exit(NOTHING)


@app.command()
@bundled
def forget(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its id, or how that begins.")],
    yes: Yes = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Let every node forget one that will not come back; it is not heard of again unless it is met.

    The tubes that live on it can be made on another node then. If it works still, they are on both.
    """
    known = _nodes(target)
    gone = _id_of(node, known)
    confirm(f"Forget {_described(gone, known, target)}?", yes)
    told, knew, missed = 0, 0, {}
    for each in known:
        if each["node"] == gone:
            continue
        try:
            with node_at(target, each) as queue:
                if gone in [other["node"] for other in nodes_of(queue)]:
                    queue.execute("CLUSTER", "FORGET", gone)
                    knew += 1
                told += 1
        except NOT_ASKED as error:
            missed[where(each)] = sentence_of(error)
    if not knew and not missed:
        fail(f"nobody knows a node {gone}", NOT_FOUND)
    out.done(f"{told} nodes have forgotten {gone}", node=gone, told=told, missed=list(missed))
    if missed:
        who = ", ".join(f"{at} ({why})" for at, why in missed.items())
        fail(f"not told: {who}; say it again within a minute, with the whole id, or they tell the others", ERROR)


@app.command()
@bundled
def check(*, target: Target, out: Output) -> None:
    """Ask every node whom it knows and can reach; exit code 1 if they do not agree, or one cannot be reached.

    Warns of nodes that do not accept copies of jobs, because they are out of disk, short of memory or paused.
    """
    rows = [_checked(target, each) for each in _nodes(target)]
    everybody = sorted({row["node"] for row in rows})
    for row in rows:
        if row["problem"] == "" and row.pop("knows") != everybody:
            row["problem"] = "does not know all the others"
        row.pop("knows", None)
    out.table(rows, [column(name) for name in ("node", "address", "reaches", "problem", "warning")], "")
    if any(row["problem"] for row in rows):
        raise typer.Exit(ERROR)


@app.command()
@bundled
def rehome(
    *,
    directory: Annotated[
        str, typer.Option("--dir", "-d", metavar="DIR", help="What becomes the node: its standby, or a backup of it.")
    ],
    via: Annotated[
        str | None, typer.Option("--via", metavar="URL", help="Any other node of the cluster; none if it was alone.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it may still be there; it steps down as soon as it hears of it.")
    ] = False,
    nodes_file: Annotated[
        str,
        typer.Option(
            "--cluster-config-file", metavar="FILE", help="Where it is to keep whom it knows, if it had that setting."
        ),
    ] = NODES_FILE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say whether it would be done.")] = False,
    out: Output,
) -> None:
    """Let a standby, or a backup, become the node that it was made of, when that is lost.

    The cluster has to have given the node up: most nodes call it failed, or it was forgotten. From then on the old one
    is refused by everybody; if it comes back, it puts what it has aside and goes on as a new node. Jobs that may be
    delivered once only are buried, since nobody knows which of them were. Start `penstock serve` on the directory then.
    """
    from penstock.cli.rehome import run

    run(directory, via, nodes_file, force, dry_run, out)


@app.command()
def demo(
    count: Annotated[int, typer.Argument(min=2, max=9, metavar="[NODES]", help="How many nodes.")] = 3,
) -> None:
    """Start some nodes on this machine, and see them work, one of them die, and nothing get lost."""
    from penstock.cli.cluster_demo import run

    raise typer.Exit(run(count))


def _names_of(target: Target, host: str, port: str) -> set[str]:
    """By what a node at an address is known among others: its id, if it tells, and the address as nodes write it."""
    from penstock.wire.bus import address

    names = {f"{address(host)}:{port}"}
    asked = node_at(target, {"flags": [], "address": f"[{host}]:{port}"}, retry_for="0s")
    with suppress(*NOT_ASKED), asked as queue, reading_answers():
        names.add(queue.execute("CLUSTER", "MYID").decode())
    return names


def _id_of(word: str, known: list[Record]) -> str:
    """The id of the node that is meant. A whole one need not be known here any more."""
    found = [each["node"] for each in known if each["node"].startswith(word)]
    if not found and _ID.fullmatch(word):
        return word
    if len(found) != 1:
        fail(f"there is no node {word!r} here" if not found else f"{len(found)} nodes begin with {word!r}", NOT_FOUND)
    return str(found[0])


def _described(gone: str, known: list[Record], target: Target) -> str:
    """A node as somebody has to see it who may mean another one."""
    tubes = sum(row["node"] == gone for row in _homes(target))
    home = f", the home of {tubes} tube{'' if tubes == 1 else 's'}"
    for each in known:
        if each["node"] == gone:
            lost = _NOT_THERE & set(each["flags"]) or each["state"] != "connected"
            there = "which is not reached" if lost else "which is there and works"
            return f"{gone} at {where(each)}, {there}{home}"
    return f"{gone}, which is not known here{home}"


def _checked(target: Target, node: Record) -> Record:
    """What a node says of the others."""
    row: Record = {"node": node["node"], "address": node["address"], "reaches": None, "problem": "", "knows": []}
    # If it cannot be asked, this is the last that the first node has received from it.
    row |= _warned(node, 0)
    try:
        with node_at(target, node) as queue:
            known = nodes_of(queue)
            told = _info_of(queue)
    except NOT_ASKED as error:
        return row | {"problem": f"cannot be asked: {sentence_of(error)}"}
    others = [each for each in known if "myself" not in each["flags"]]
    away = [each for each in others if each["state"] != "connected" or {"fail", "fail?"} & set(each["flags"])]
    row |= {"reaches": len(others) - len(away), "knows": sorted(each["node"] for each in known)}
    disputed = told.get("cluster_homes_disputed", 0)
    if known[0]["node"] != node["node"]:
        return row | {"problem": f"somebody else is there: {known[0]['node']}"}
    row |= _warned(known[0], told.get("cluster_paused_queues", 0))
    if away:
        row["problem"] = f"cannot reach {', '.join(where(each) for each in away)}"
    elif disputed:
        row["problem"] = f"{disputed} of its tubes live on another node, too: see its log"
    return row


def _warned(node: Record, paused_queues: int) -> Record:
    """Return why a node does not accept copies of jobs, for programs and for people."""
    queues = "1 paused queue" if paused_queues == 1 else f"{paused_queues or 'some'} paused queues"
    found = [flag for flag in node["flags"] if flag in _CONDITIONS]
    words = "; ".join(_CONDITIONS[flag].format(queues=queues) for flag in found)
    return {"conditions": found, "paused_queues": paused_queues, "warning": words}


# Asking nodes


def _nodes(target: Target) -> list[Record]:
    """Every node that is known; the one that answers comes first."""
    place = target.place()
    if place.directory is not None:
        with target.open():
            return [_node_in(place)]
    with target.open() as queue:
        return nodes_of(queue)


def _homes(target: Target) -> list[Record]:
    """Every tube that is on one node, and that node."""
    with reading_answers():
        return [
            {"tube": tube.decode("utf-8", "backslashreplace"), "node": node.decode(), "epoch": int(epoch)}
            for tube, node, epoch in ask(target, "CLUSTER", "HOMES")
        ]


def _info_of(queue: Any) -> dict[str, int]:
    """What a node counts of the cluster."""
    with reading_answers():
        lines = [line.partition(":") for line in queue.execute("CLUSTER", "INFO").decode().split()]
    return {name: int(value) for name, _, value in lines if value.isdigit()}


def _wait_for(condition: Callable[[], bool], wait: float) -> bool:
    """Ask until something is so, or the time is over."""
    until = time.monotonic() + wait
    while not condition():
        if time.monotonic() >= until:
            return False
        time.sleep(_ASK_S)
    return True


def _node_in(place: Place) -> Record:
    from penstock.journal.disk import ReadOnlyDisk
    from penstock.journal.identity import identity

    known = identity(ReadOnlyDisk(str(place.directory)))
    epoch = known.node_epoch
    return {"node": known.node, "address": place.shown(), "flags": ["myself"], "epoch": epoch, "state": "embedded"}
