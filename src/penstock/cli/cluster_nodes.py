"""Queries to the nodes of a cluster, one after the other, with the credentials and options of the target's URL."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.errors import USAGE, fail, parsing_answer
from penstock.cli.output import Record
from penstock.cli.targets import Target, connect, server_url
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The file in which a node stores the nodes it knows. The setting `cluster-config-file` changes it.
NODES_FILE: Final = "nodes.conf"

# Errors of a node that cannot be asked: it is unreachable, its address is unknown, or it refuses this user.
NODE_ERRORS: Final = (OSError, CommandError)

# Seconds between two polls of a condition.
_POLL_S: Final = 0.05

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Fa-f:.]+)):([0-9]{1,5})(?:@([0-9]{1,5}))?", re.ASCII)


def list_nodes(queue: Any) -> list[Record]:
    """Return the nodes that the connected node knows, itself first."""
    with parsing_answer():
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
    """Split the flags of a node from its epoch. The server lists the epoch among the flags unless it is 0."""
    words = [] if word == "noflags" else word.split(",")
    epochs = [int(each.removeprefix("epoch=")) for each in words if each.startswith("epoch=")]
    return {"flags": [each for each in words if not each.startswith("epoch=")], "epoch": sum(epochs)}


@contextmanager
def connect_to_node(target: Target, node: Record, retry_for: str = "2s") -> Iterator[Any]:
    """Connect to another node of the target's cluster. Raise one of `NODE_ERRORS` if that fails."""
    from penstock.client.url import address, pieces

    url = server_url(target)
    if "myself" in node["flags"]:
        queue: Any = connect(url)
    elif not has_address(node):
        raise ConnectionError("its address is not known")
    else:
        host, port, _ = address_of(node["address"])
        found = pieces(url)
        options = f"{found.query}&retry_for={retry_for}" if found.query else f"retry_for={retry_for}"
        queue = connect(str(replace(found, hosts=address(host, port), query=options)))
    try:
        yield queue
    finally:
        queue.close()


def has_address(node: Record) -> bool:
    """Return whether the address of a node is known. Its last address does not count if another node has it now."""
    return not node["address"].startswith(":")


def address_or_id(node: Record) -> str:
    """Return the address of a node, or its id if the address is unknown."""
    return str(node["address"] if has_address(node) else node["node"])


def address_of(text: str) -> tuple[str, str, list[str]]:
    """Split an address into host, port and, if present, the cluster port."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        fail(f"{text!r} is not the address of a node; write 10.0.0.2:7711 or [::1]:7711", USAGE)
    return found[1] or found[2], found[3], [found[4]] if found[4] else []


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition is true. Return False after the timeout."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True
