"""The nodes of a cluster, as the command line asks them: one after the other, in the same way."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.exits import USAGE, fail, reading_answers
from penstock.cli.output import Record
from penstock.cli.target import Target, connect, server_url
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where a node keeps whom it knows, unless `cluster-config-file` says otherwise.
NODES_FILE: Final = "nodes.conf"

# Why a node does not tell what it is asked: it is not there, nobody knows where it is, or it refuses this user.
NOT_ASKED: Final = (OSError, CommandError)

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Fa-f:.]+)):([0-9]{1,5})(?:@([0-9]{1,5}))?", re.ASCII)


def nodes_of(queue: Any) -> list[Record]:
    """The nodes that the one that answers knows, itself first."""
    with reading_answers():
        lines = [line.split() for line in queue.execute("CLUSTER", "NODES").decode().splitlines()]
        found: list[Record] = [
            {"node": words[0], "address": words[1], **_flags(words[2]), "state": words[5]}
            for words in lines
            if len(words) >= 6
        ]
        if not found:
            raise ValueError("a node knows itself at least")
    return sorted(found, key=lambda node: "myself" not in node["flags"])


def _flags(word: str) -> Record:
    """What is known of a node, and its epoch, which is told among the flags unless it is the first."""
    words = [] if word == "noflags" else word.split(",")
    epochs = [int(each.removeprefix("epoch=")) for each in words if each.startswith("epoch=")]
    return {"flags": [each for each in words if not each.startswith("epoch=")], "epoch": sum(epochs)}


@contextmanager
def node_at(target: Target, node: Record, retry_for: str = "2s") -> Iterator[Any]:
    """Another node of the cluster of a target, asked in the same way; `NOT_ASKED` if it cannot be."""
    from penstock.client.url import pieces

    url = server_url(target)
    if "myself" in node["flags"]:
        queue: Any = connect(url)
    elif not is_found(node):
        raise ConnectionError("its address is not known")
    else:
        host, port, _ = address_of(node["address"])
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        found = pieces(url)
        options = f"{found.query}&retry_for={retry_for}" if found.query else f"retry_for={retry_for}"
        queue = connect(str(replace(found, hosts=where, query=options)))
    try:
        yield queue
    finally:
        queue.close()


def is_found(node: Record) -> bool:
    """Whether it is known where a node is: not if somebody else answers at its address."""
    return not node["address"].startswith(":")


def where(node: Record) -> str:
    """Where a node is, for people; if that is not known, which one it is."""
    return str(node["address"] if is_found(node) else node["node"])


def address_of(text: str) -> tuple[str, str, list[str]]:
    """Host, port, and the port for nodes if that is said."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        fail(f"{text!r} is no address of a node; write 10.0.0.2:7711, or [::1]:7711", USAGE)
    return found[1] or found[2], found[3], [found[4]] if found[4] else []
