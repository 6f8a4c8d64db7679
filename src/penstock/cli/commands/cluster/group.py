"""`penstock cluster`: show and change a cluster.

Most commands use only the connected node. `forget` and `check` also connect to all others, at the addresses that the
connected node has for them, with the same user and password.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.cluster_nodes import (
    NODE_ERRORS,
    NODES_FILE,
    address_of,
    address_or_id,
    connect_to_node,
    list_nodes,
    wait_for,
)
from penstock.cli.commands.cluster.gather import gather
from penstock.cli.errors import ERROR, NOT_FOUND, NOTHING, fail, message_of, parsing_answer
from penstock.cli.option_values import Yes, duration_option
from penstock.cli.options import CommandGroup
from penstock.cli.output import Column, Output, Record, column, confirm, jobs_text
from penstock.cli.records import job_count
from penstock.cli.targets import QueueAddress, Target, execute
from penstock.report.units import duration_text

if TYPE_CHECKING:
    pass

app = CommandGroup(help="Show and change a cluster.")
app.command()(gather)

# Maximum number of tube names in a message.
_NAMES_MAX: Final = 5

# Flags of a node that has not joined yet, or is lost.
_ABSENT_FLAGS: Final = {"handshake", "noaddr", "fail", "fail?"}

# Flags of a node that does not accept copies of jobs: the reason, and what to do.
_CONDITIONS: Final = {
    "nodisk": "out of disk space, so it accepts no new jobs: free space on its disk",
    "nomem": "above its memory threshold, so it accepts no copies: consume jobs, raise maxmemory, or use a journal",
    "paused": "accepts no jobs of {queues}: see `penstock tube ls` there, and resume them with `penstock tube resume`",
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
def info(*, target: Target, out: Output) -> None:
    """Show the connected node: its id, the number of nodes it knows, its tubes and jobs."""
    known = _nodes(target)
    with target.open() as queue:
        overview = queue.overview()
    out.record(
        {
            "node": known[0]["node"],
            "place": target.address().without_password(),
            "nodes": len(known),
            "tubes": len(overview),
            "jobs": sum(job_count(row) for row in overview),
        }
    )


@app.command()
def secret(*, out: Output) -> None:
    """Print a new random secret for `cluster-secret`. All nodes of a cluster must have the same one."""
    made = secrets.token_hex(32)
    out.report_done(made, secret=made)


@app.command()
def nodes(*, target: Target, out: Output) -> None:
    """List the nodes that the connected node knows, itself first."""
    out.table(_nodes(target), _COLUMNS, "")


@app.command()
def homes(*, target: Target, out: Output) -> None:
    """List the tubes that live on a single node (their home), with the id and address of that node.

    The list contains the tubes that the connected node knows.
    """
    addresses = {node["node"]: node["address"].partition("@")[0] for node in _nodes(target)}
    rows = _homes(target)
    for row in rows:
        row["address"] = addresses.get(row["node"], "")
    out.table(rows, [column("tube"), column("node"), column("address"), column("epoch")], "no tube has a home node")


@app.command()
def meet(
    others: Annotated[
        list[str],
        typer.Argument(
            metavar="ADDRESS...", help="Addresses, like 10.0.0.2:7711, or 10.0.0.2:7711@PORT for another cluster port."
        ),
    ],
    *,
    wait: Annotated[
        float, duration_option("--wait", "-w", help="Wait this long until the nodes have joined.", default="15s")
    ] = 15.0,
    target: Target,
    out: Output,
) -> None:
    """Join other nodes to the cluster of the connected node. To merge another cluster, name one of its nodes."""
    addresses = [address_of(other) for other in others]
    before = {node["node"] for node in _nodes(target)}
    for host, port, bus_port in addresses:
        execute(target, "CLUSTER", "MEET", host, port, *bus_port)
    wanted = {f"{host}:{port}": _names_of(target, host, port) for host, port, _ in addresses}

    def missing() -> list[str]:
        there = [node for node in _nodes(target) if not _ABSENT_FLAGS & set(node["flags"])]
        if len(wanted) == 1 and any(node["node"] not in before for node in there):
            # The new node must be the one that was named, even if its id or address has changed.
            return []
        found = {node["node"] for node in there} | {node["address"].partition("@")[0] for node in there}
        return [address for address, names in wanted.items() if not names & found]

    if not wait_for(lambda: not missing(), wait):
        who, within = ", ".join(missing()), duration_text(round(wait * 1000))
        fail(f"{who} did not join within {within}; check that its cluster port is open, and read the logs", NOTHING)
    known = _nodes(target)
    out.report_done(f"the cluster has {len(known)} nodes", nodes=len(known))


@app.command()
def leave(
    *,
    stay: Annotated[bool, typer.Option("--stay", help="Cancel: stay in the cluster.")] = False,
    wait: Annotated[float, duration_option("--wait", "-w", help="Wait this long until the node holds no jobs.")] = 0.0,
    target: Target,
    out: Output,
) -> None:
    """Let a node leave the cluster. It accepts no new jobs and hands over its jobs. Stop it when it has no jobs.

    Tubes that live only on this node do not move to another node. The output lists them.
    """
    known = _nodes(target)
    execute(target, "CLUSTER", "LEAVING", "no" if stay else "yes")
    if stay:
        out.report_done("the node stays", leaving=False)
        return

    def held() -> int:
        with parsing_answer():
            lines = execute(target, "INFO", "jobs").decode().split()
            return int(next(line.partition(":")[2] for line in lines if line.startswith("registered_jobs:")))

    wait_for(lambda: held() == 0, wait)
    left = held()
    tubes = [row["tube"] for row in _homes(target) if row["node"] == known[0]["node"]]
    words = f"the node leaves, and still holds {jobs_text(left)}" if left else "the node leaves, and holds no jobs"
    if tubes:
        more = f" and {len(tubes) - _NAMES_MAX} more" if len(tubes) > _NAMES_MAX else ""
        words += f"; tubes whose home it is stay there, with their jobs: {', '.join(tubes[:_NAMES_MAX])}{more}"
    elif not left:
        words += ": it can be stopped"
    out.report_done(words, leaving=True, jobs=left, tubes=tubes)
    if left and wait:
        raise typer.Exit(NOTHING)


@app.command()
def forget(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Id of the node, or the beginning of it.")],
    yes: Yes = False,
    *,
    target: Target,
    out: Output,
) -> None:
    """Remove a lost node from all other nodes. It can only return through `penstock cluster meet`.

    Tubes whose home it was can then be created on another node. If the lost node is still running, such a tube then
    exists on both nodes.
    """
    known = _nodes(target)
    gone = _id_of(node, known)
    confirm(f"Remove {_described(gone, known, target)}?", yes)
    removed, knew, missed = 0, 0, {}
    for each in known:
        if each["node"] == gone:
            continue
        try:
            with connect_to_node(target, each) as queue:
                if gone in [other["node"] for other in list_nodes(queue)]:
                    queue.execute("CLUSTER", "FORGET", gone)
                    knew += 1
                removed += 1
        except NODE_ERRORS as error:
            missed[address_or_id(each)] = message_of(error)
    if not knew and not missed:
        fail(f"no node knows {gone}", NOT_FOUND)
    out.report_done(f"{removed} nodes have removed {gone}", node=gone, told=removed, missed=list(missed))
    if missed:
        who = ", ".join(f"{at} ({why})" for at, why in missed.items())
        fail(
            f"not reached: {who}; repeat this within a minute, with the whole id, or these nodes announce it again",
            ERROR,
        )


@app.command()
def check(*, target: Target, out: Output) -> None:
    """Ask every node which nodes it knows and reaches. Exit with 1 if they disagree or one is unreachable.

    Warn about nodes that accept no copies of jobs, because they are out of disk space, short of memory or paused.
    """
    rows = [_checked(target, each) for each in _nodes(target)]
    everybody = sorted({row["node"] for row in rows})
    for row in rows:
        if row["problem"] == "" and row.pop("knows") != everybody:
            row["problem"] = "does not know all other nodes"
        row.pop("knows", None)
    out.table(rows, [column(name) for name in ("node", "address", "reaches", "problem", "warning")], "")
    if any(row["problem"] for row in rows):
        raise typer.Exit(ERROR)


@app.command()
def rehome(
    *,
    directory: Annotated[
        str, typer.Option("--dir", "-d", metavar="DIR", help="Directory of the node's standby or backup.")
    ],
    via: Annotated[
        str | None,
        typer.Option("--via", metavar="URL", help="Any other node of the cluster. Omit it if the node was alone."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Continue even if the node may still run. It stops when another node reports the change."
        ),
    ] = False,
    nodes_file: Annotated[
        str,
        typer.Option("--cluster-config-file", metavar="FILE", help="Value of this setting on the lost node."),
    ] = NODES_FILE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show whether it is possible.")] = False,
    out: Output,
) -> None:
    """Replace a lost node by its standby or its backup.

    The remaining nodes must list the node as failed, or it must have been removed with `forget`. After this command
    all nodes refuse the old node. If it comes back, it sets its data aside and continues as a new node. Jobs that are
    delivered at most once are buried, because the old node may have delivered them. The new node runs when you start
    `penstock serve` on DIR.
    """
    from penstock.cli.commands.cluster.rehome import run

    run(directory, via, nodes_file, force, dry_run, out)


@app.command()
def demo(
    count: Annotated[int, typer.Argument(min=2, max=9, metavar="[NODES]", help="Number of nodes.")] = 3,
) -> None:
    """Start a cluster on this machine, kill one node, and show that no job is lost."""
    from penstock.cli.demos.cluster_demo import run

    raise typer.Exit(run(count))


def _names_of(target: Target, host: str, port: str) -> set[str]:
    """Return the texts that identify a node in a list of nodes: its address, and its id if the node answers."""
    from penstock.wire.bus import address

    names = {f"{address(host)}:{port}"}
    asked = connect_to_node(target, {"flags": [], "address": f"[{host}]:{port}"}, retry_for="0s")
    with suppress(*NODE_ERRORS), asked as queue, parsing_answer():
        names.add(queue.execute("CLUSTER", "MYID").decode())
    return names


def _id_of(word: str, known: list[Record]) -> str:
    """Return the id of the known node whose id begins with `word`. A full id is accepted even if it is unknown."""
    found = [each["node"] for each in known if each["node"].startswith(word)]
    if not found and _ID.fullmatch(word):
        return word
    if len(found) != 1:
        fail(f"no node {word!r} is known" if not found else f"{len(found)} nodes begin with {word!r}", NOT_FOUND)
    return str(found[0])


def _described(gone: str, known: list[Record], target: Target) -> str:
    """Describe a node, so that the user notices if it is the wrong one."""
    tubes = sum(row["node"] == gone for row in _homes(target))
    home = f", the home of {tubes} tube{'' if tubes == 1 else 's'}"
    for each in known:
        if each["node"] == gone:
            lost = _ABSENT_FLAGS & set(each["flags"]) or each["state"] != "connected"
            there = "which is unreachable" if lost else "which is running"
            return f"{gone} at {address_or_id(each)}, {there}{home}"
    return f"{gone}, which is not known here{home}"


def _checked(target: Target, node: Record) -> Record:
    """Ask a node about the other nodes. Return its row in the table of `check`."""
    row: Record = {"node": node["node"], "address": node["address"], "reaches": None, "problem": "", "knows": []}
    # If the node cannot be asked, these are the last flags that the first node has received.
    row |= _warned(node, 0)
    try:
        with connect_to_node(target, node) as queue:
            known = list_nodes(queue)
            info = _info_of(queue)
    except NODE_ERRORS as error:
        return row | {"problem": f"cannot be asked: {message_of(error)}"}
    others = [each for each in known if "myself" not in each["flags"]]
    away = [each for each in others if each["state"] != "connected" or {"fail", "fail?"} & set(each["flags"])]
    row |= {"reaches": len(others) - len(away), "knows": sorted(each["node"] for each in known)}
    disputed = info.get("cluster_homes_disputed", 0)
    if known[0]["node"] != node["node"]:
        return row | {"problem": f"another node answers there: {known[0]['node']}"}
    row |= _warned(known[0], info.get("cluster_paused_queues", 0))
    if away:
        row["problem"] = f"cannot reach {', '.join(address_or_id(each) for each in away)}"
    elif disputed:
        row["problem"] = f"{disputed} of its tubes also have a home on another node: see its log"
    return row


def _warned(node: Record, paused_queues: int) -> Record:
    """Return why a node accepts no copies of jobs: a list of flags, and a text that explains them."""
    queues = "1 paused queue" if paused_queues == 1 else f"{paused_queues or 'some'} paused queues"
    found = [flag for flag in node["flags"] if flag in _CONDITIONS]
    words = "; ".join(_CONDITIONS[flag].format(queues=queues) for flag in found)
    return {"conditions": found, "paused_queues": paused_queues, "warning": words}


# Asking nodes


def _nodes(target: Target) -> list[Record]:
    place = target.address()
    if place.directory is not None:
        with target.open():
            return [_node_in(place)]
    with target.open() as queue:
        return list_nodes(queue)


def _homes(target: Target) -> list[Record]:
    with parsing_answer():
        return [
            {"tube": tube.decode("utf-8", "backslashreplace"), "node": node.decode(), "epoch": int(epoch)}
            for tube, node, epoch in execute(target, "CLUSTER", "HOMES")
        ]


def _info_of(queue: Any) -> dict[str, int]:
    with parsing_answer():
        lines = [line.partition(":") for line in queue.execute("CLUSTER", "INFO").decode().split()]
    return {name: int(value) for name, _, value in lines if value.isdigit()}


def _node_in(place: QueueAddress) -> Record:
    from penstock.journal.identity import identity
    from penstock.journal.real_disk import ReadOnlyDisk

    known = identity(ReadOnlyDisk(str(place.directory)))
    return {
        "node": known.node,
        "address": place.without_password(),
        "flags": ["myself"],
        "epoch": known.node_epoch,
        "state": "embedded",
    }
