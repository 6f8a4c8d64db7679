"""Who a node is: its id, the secret behind the ids of its jobs, and the first epoch that it may use."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from penstock.core.errors import DamagedJournal, NoJournal, NotAQueue, StandbyOnly, Superseded
from penstock.journal.disk import UNFINISHED, Disk, ReadableDisk, ReadOnlyDisk
from penstock.journal.segment import FrameFile, is_segment, is_snapshot, segment_names

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
    node_epoch: int = 0  # Greater each time that a standby becomes this node: of two directories, that one counts.
    log: str = ""  # What the files of the log call their node: the one that it was before its id was changed.
    standby: bool = False  # The directory follows that of a node, and is not to be opened.
    superseded: int = 0  # In which epoch another is this node: what is here is to be put aside, not to be opened.

    @property
    def of_log(self) -> str:
        """The node that the files of the log are of."""
        return self.log or self.node

    def write(self, disk: Disk) -> None:
        """Be the identity of a directory."""
        told = {**asdict(self), "key": self.key.hex()}
        disk.replace(NODE_FILE, json.dumps(told).encode())


_FIELDS: Final = {each.name for each in fields(Identity)}


# Files that a new queue has before its identity, and what a file system has of its own.
_NO_STRANGERS: Final = {"lock", NODE_FILE + UNFINISHED, "lost+found"}


def check_directory(path: str) -> None:
    """Refuse a path where no queue can be: a file, or a directory with other files and no queue. Nothing is changed."""
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise NotAQueue(f"{path} is a file, and a queue is a directory; name a new or empty directory")
    names = sorted(os.listdir(path))
    strangers = [name for name in names if name not in _NO_STRANGERS]
    if strangers and NODE_FILE not in names and not _has_log(ReadOnlyDisk(path)):
        raise NotAQueue(
            f"{path} has no queue in it, but other files, like {strangers[0]}; name a new or empty directory, "
            "or one with a queue"
        )


def new_identity(node: str | None = None) -> Identity:
    """An identity with a secret that nobody has, of a new node or of one that is known."""
    return Identity(node or secrets.token_hex(_NODE_BYTES), secrets.token_bytes(_KEY_BYTES))


def opened_by(disk: Disk) -> Identity:
    """Who opens a directory: whoever it is of, or somebody new. One that is not to be opened is refused."""
    if NODE_FILE not in disk.names() and not _has_log(disk):
        new_identity().write(disk)
    who = identity(disk)
    if who.standby:
        raise StandbyOnly()
    if who.superseded:
        raise Superseded()
    return who


def next_opening(disk: Disk) -> Identity:
    """The identity for an opening that keeps no log; its epoch is one that no other opening has."""
    opening = replace(opened_by(disk), epoch=next_epoch(disk))
    replace(opening, epoch=opening.epoch + 1).write(disk)
    return opening


def forsake(disk: Disk) -> None:
    """Say that the node goes on without its log, which will lack whatever happens then."""
    replace(identity(disk), epoch=next_epoch(disk), doubtful=True).write(disk)


def next_epoch(disk: ReadableDisk) -> int:
    """The first epoch that neither the log of a directory nor an opening without one has used."""
    newest = 0
    for name in segment_names(disk)[-1:]:
        with FrameFile(disk, name) as file:
            newest = file.header.epoch
    return max(identity(disk).epoch, newest + 1)


def _has_log(disk: ReadableDisk) -> bool:
    """Return whether a directory has files of a log, or parts of them. A new queue has its identity before those."""
    names = [name.removesuffix(UNFINISHED) for name in disk.names()]
    return any(is_segment(name) or is_snapshot(name) for name in names)


def identity(disk: ReadableDisk) -> Identity:
    """The identity of a directory."""
    if NODE_FILE not in disk.names():
        if _has_log(disk):
            raise DamagedJournal(
                f"{NODE_FILE} is missing, and without it the ids of this log mean nothing; if a backup or a restore "
                "was interrupted here, do it again in a new directory"
            )
        raise NoJournal("there is no log of a queue in this directory")
    try:
        told = json.loads(disk.read(NODE_FILE))
        known = {name: value for name, value in told.items() if name in _FIELDS}
        found = Identity(**known | {"key": bytes.fromhex(told["key"])})
        sizes = len(found.node), len(bytes.fromhex(found.node)), len(found.key)
        numbers = found.epoch, found.node_epoch, found.superseded
        if sizes == (2 * _NODE_BYTES, _NODE_BYTES, _KEY_BYTES) and min(numbers) >= 0 and isinstance(found.log, str):
            return found
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DamagedJournal(f"{NODE_FILE} is damaged; restore it from a backup")
