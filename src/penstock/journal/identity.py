"""Who a node is: its id, the secret behind the ids of its jobs, and the first epoch that it may use."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace
from typing import Final

from penstock.core.errors import DamagedJournal, NoJournal
from penstock.journal.disk import Disk, ReadableDisk
from penstock.journal.segment import FrameFile, segment_names

NODE_FILE: Final = "node.json"

_NODE_BYTES: Final = 20
_KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Identity:
    """Who a node is."""

    node: str  # Its id, 40 hex digits.
    key: bytes  # The secret behind the ids of its jobs.
    epoch: int = 0  # The first one, of those in ids, that this directory may use.
    leaving: bool = False  # The node was told to leave its cluster.
    doubtful: bool = False  # The log may lack its newest rows, and no open has dealt with that to its end.
    node_epoch: int = 0  # How often a standby has become this node: of two directories of one node, the greater counts.

    def write(self, disk: Disk) -> None:
        """Be the identity of a directory."""
        told = {**asdict(self), "key": self.key.hex()}
        disk.replace(NODE_FILE, json.dumps(told).encode())


def new_identity(node: str | None = None) -> Identity:
    """An identity with a secret that nobody has, of a new node or of one that is known."""
    return Identity(node or secrets.token_hex(_NODE_BYTES), secrets.token_bytes(_KEY_BYTES))


def next_opening(disk: Disk) -> Identity:
    """The identity for an opening that keeps no log; its epoch is one that no other opening has."""
    if NODE_FILE not in disk.names() and not segment_names(disk):
        new_identity().write(disk)
    opening = replace(identity(disk), epoch=_next_epoch(disk))
    replace(opening, epoch=opening.epoch + 1).write(disk)
    return opening


def forsake(disk: Disk) -> None:
    """Say that the node goes on without its log, which will lack whatever happens then."""
    replace(identity(disk), epoch=_next_epoch(disk), doubtful=True).write(disk)


def _next_epoch(disk: ReadableDisk) -> int:
    """The first epoch that neither the log of a directory nor an opening without one has used."""
    newest = 0
    for name in segment_names(disk)[-1:]:
        with FrameFile(disk, name) as file:
            newest = file.header.epoch
    return max(identity(disk).epoch, newest + 1)


def identity(disk: ReadableDisk) -> Identity:
    """The identity of a directory."""
    if NODE_FILE not in disk.names():
        if segment_names(disk):
            raise DamagedJournal(f"{NODE_FILE} is missing, and without it the ids of this log mean nothing; restore it")
        raise NoJournal("there is no log of a queue in this directory")
    try:
        told = json.loads(disk.read(NODE_FILE))
        flags = bool(told.get("leaving", False)), bool(told.get("doubtful", False))
        epochs = told.get("epoch", 0), told.get("node_epoch", 0)
        found = Identity(told["node"], bytes.fromhex(told["key"]), epochs[0], *flags, node_epoch=epochs[1])
        sizes = len(found.node), len(bytes.fromhex(found.node)), len(found.key)
        if sizes == (2 * _NODE_BYTES, _NODE_BYTES, _KEY_BYTES) and min(epochs) >= 0:
            return found
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DamagedJournal(f"{NODE_FILE} is damaged; restore it from a backup")
