"""`penstock cluster gather`: an archive of what all nodes report, for a bug report. It contains no bodies of jobs."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.cluster_nodes import NODE_ERRORS, address_or_id, connect_to_node, list_nodes
from penstock.cli.errors import ERROR, USAGE, fail, message_of
from penstock.cli.output import Output, Record
from penstock.cli.targets import Target

# The commands that each node runs, by file name. None of them returns a body, a key or a header of a job.
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "info": ("INFO",),
    "config": ("CONFIG", "GET", "*"),  # Passwords and secrets are shown as ***.
    "cluster-info": ("CLUSTER", "INFO"),
    "cluster-nodes": ("CLUSTER", "NODES"),
    "cluster-homes": ("CLUSTER", "HOMES"),
    "clients": ("CLIENT", "LIST"),
    "latency": ("LATENCY", "LATEST"),
    "journal-head": ("JOURNAL", "HEAD"),
}
# Slow commands are reduced to their names, because their arguments can be bodies.
_SLOWLOG_ENTRIES: Final = 100


def gather(
    file: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write the archive here. Default: penstock-support-TIME.tar.gz."),
    ] = None,
    *,
    target: Target,
    out: Output,
) -> None:
    """Collect facts of all nodes in an archive for a bug report, without job bodies.

    The archive has settings without secrets, statistics, the policies of tubes, clients, slow commands without their
    arguments, and the results of `penstock doctor` on this machine. Names of tubes, users and addresses are in it: look
    at the files before you publish them.
    """
    from penstock.cli.doctor.environment import examine_environment
    from penstock.cli.doctor.machine import examine_machine

    path = file or Path(time.strftime("penstock-support-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    if path.exists():
        fail(f"{path} exists; choose another file with --to", USAGE)
    with target.open() as queue:
        nodes = list_nodes(queue)
    content: dict[str, Any] = {"doctor.json": [vars(each) for each in (*examine_environment(), *examine_machine())]}
    failed = []
    for node in nodes:
        folder = f"node-{node['node'][:8]}"
        content[f"{folder}/node.json"] = node
        try:
            with connect_to_node(target, node) as connected:
                content |= {f"{folder}/{name}": answer for name, answer in _of_node(connected).items()}
        except NODE_ERRORS as error:
            failed.append(address_or_id(node))
            content[f"{folder}/error.json"] = message_of(error)
    _write(path, content)
    out.report_done(
        f"{path} has the facts of {len(nodes) - len(failed)} of {len(nodes)} nodes, and no bodies of jobs. Look at its "
        "files before you publish them.",
        file=str(path),
        nodes=len(nodes),
        unreachable=failed,
    )
    if failed:
        typer.echo(f"penstock: unreachable: {', '.join(failed)}", err=True)
        raise typer.Exit(ERROR)


def _of_node(queue: Any) -> Record:
    """Return the answers of one node, by file name. A refused command is represented by its error."""
    found: Record = {}
    for name, words in _COMMANDS.items():
        try:
            found[f"{name}.json"] = _plain(queue.execute(*words))
        except NODE_ERRORS as error:
            found[f"{name}.json"] = {"error": message_of(error)}
    try:
        found["tubes.json"] = _plain(queue.overview())
        found["slow-commands.json"] = [
            {"at": _plain(entry[1]), "microseconds": entry[2], "command": _plain(entry[3][0])}
            for entry in queue.execute("SLOWLOG", "GET", _SLOWLOG_ENTRIES)
        ]
    except NODE_ERRORS as error:
        found["slow-commands.json"] = {"error": message_of(error)}
    return found


def _plain(value: Any) -> Any:
    """Return an answer as a value that JSON has. Text of several lines becomes a list of lines."""
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        lines = text.splitlines()
        return lines if len(lines) > 1 else text
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _write(path: Path, content: Record) -> None:
    # Only this user may read it, because it shows addresses and names.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, value in content.items():
            data = (json.dumps(value, indent=2) + "\n").encode()
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mtime = len(data), int(time.time())
            archive.addfile(entry, io.BytesIO(data))
