"""Who a node is: its id, the secret behind the ids of its jobs, and the first epoch that it may use."""

from __future__ import annotations

import json
import secrets
from typing import Final

from penstock.core.errors import DamagedJournal, NoJournal
from penstock.journal.disk import Disk, ReadableDisk
from penstock.journal.segment import FrameFile, segment_names

NODE_FILE: Final = "node.json"


def make_identity(disk: Disk) -> None:
    """Make a node's id and the secret of its ids, at its first open."""
    if segment_names(disk):
        raise DamagedJournal(f"{NODE_FILE} is missing, and without it the ids of this log mean nothing; restore it")
    told = {"node": secrets.token_hex(20), "key": secrets.token_hex(32)}
    disk.replace(NODE_FILE, json.dumps(told).encode())


def epoch_floor(disk: ReadableDisk) -> int:
    """The first epoch that this directory may use."""
    return int(json.loads(disk.read(NODE_FILE)).get("epoch", 0))


def next_opening(disk: Disk) -> tuple[str, bytes, int]:
    """The node's id, the secret of its ids and an epoch that none had before, for an opening that keeps no log."""
    if NODE_FILE not in disk.names():
        make_identity(disk)
    node, key = identity(disk)
    names = segment_names(disk)
    logged = 0
    if names:
        with FrameFile(disk, names[-1]) as newest:
            logged = newest.header.epoch
    epoch = max(epoch_floor(disk), logged + 1)
    amend(disk, epoch=epoch + 1)
    return node, key, epoch


def amend(disk: Disk, **told: object) -> None:
    """Let the file that says who the node is say something else too, durably."""
    disk.replace(NODE_FILE, json.dumps({**json.loads(disk.read(NODE_FILE)), **told}).encode())


def forsake(disk: Disk) -> None:
    """Say that the log of a directory goes no further although its node does: what it holds is out of date."""
    with FrameFile(disk, segment_names(disk)[-1]) as newest:
        amend(disk, epoch=max(epoch_floor(disk), newest.header.epoch + 1), forsaken=True)


def is_leaving(disk: ReadableDisk) -> bool:
    """Whether the node was told to leave its cluster."""
    return bool(json.loads(disk.read(NODE_FILE)).get("leaving", False))


def identity(disk: ReadableDisk) -> tuple[str, bytes]:
    """The node's id and the secret of its ids."""
    if NODE_FILE not in disk.names():
        raise NoJournal("there is no log of a queue in this directory")
    try:
        told = json.loads(disk.read(NODE_FILE))
        return told["node"], bytes.fromhex(told["key"])
    except (ValueError, KeyError, TypeError):
        raise DamagedJournal(f"{NODE_FILE} is damaged; restore it from a backup") from None
