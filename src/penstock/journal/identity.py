"""The identity of a node: its id, the secret of its job ids, and the first epoch that it is allowed to use."""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from penstock.core.errors import DamagedJournal, NoJournal, NotAQueue, StandbyOnly, Superseded, Unsupported
from penstock.journal.disk import UNFINISHED, Disk, ReadableDisk
from penstock.journal.segment import FrameFile, is_segment, is_snapshot, segment_names

NODE_FILE: Final = "node.json"

# The journal epoch is part of job ids. The old node may have been restarted up to this many times since the copy was
# made without assigning an id that the new node assigns, too.
_EPOCHS_APART: Final = 1_000

_NODE_BYTES: Final = 20
_KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Identity:
    """The contents of node.json."""

    node: str  # Id of the node, 40 hex digits.
    key: bytes  # Secret of the job ids.
    epoch: int = 0  # First epoch that this directory may use in job ids.
    leaving: bool = False  # Whether the node is leaving its cluster.
    # Whether the newest rows of the log may be missing, and no open has completed the handling of that.
    doubtful: bool = False
    # Grows each time that a standby becomes this node. Of two directories, the one with the greater epoch is the node.
    node_epoch: int = 0
    log: str = ""  # Node id in the files of the log, if it differs: a node that got a new id keeps the old one there.
    standby: bool = False  # Whether the directory belongs to a standby, which follows a node. It cannot be opened.
    # Epoch in which another directory became this node, or 0. The log must be archived and cannot be opened.
    superseded: int = 0

    @property
    def of_log(self) -> str:
        """Return the node id that the files of the log contain."""
        return self.log or self.node

    def write(self, disk: Disk) -> None:
        fields = {**asdict(self), "key": self.key.hex()}
        disk.replace(NODE_FILE, json.dumps(fields).encode())


_FIELDS: Final = {each.name for each in fields(Identity)}


# Files that may be in the directory of a new queue before its identity is written. The file system makes lost+found.
_OUR_FILES: Final = {"lock", NODE_FILE + UNFINISHED, "lost+found"}


def check_system() -> None:
    """Raise Unsupported on a system without the calls that make a queue durable."""
    if sys.platform == "win32":
        raise Unsupported(
            "a queue in a directory needs Linux or macOS; here, use a queue in memory (penstock.open(':memory:')) or a "
            "server on another machine (penstock.connect)"
        )


def check_directory(path: str) -> None:
    """Raise NotAQueue for a file, or for a directory with other files and without a queue. Nothing is changed."""
    check_system()
    from penstock.journal.real_disk import ReadOnlyDisk

    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise NotAQueue(f"{path} is a file, but a queue is a directory; choose a new or empty directory")
    names = sorted(os.listdir(path))
    strangers = [name for name in names if name not in _OUR_FILES]
    if strangers and NODE_FILE not in names and not _has_log(ReadOnlyDisk(path)):
        raise NotAQueue(
            f"{path} contains no queue but other files, such as {strangers[0]}; choose a new or empty directory, "
            "or one with a queue"
        )


def new_identity(node: str | None = None) -> Identity:
    """Return an identity with a new secret, for the node id `node` or, if it is None, for a new node."""
    return Identity(node or secrets.token_hex(_NODE_BYTES), secrets.token_bytes(_KEY_BYTES))


def identity_to_open(disk: Disk) -> Identity:
    """Return the identity of a directory that is being opened. Create it for a new queue.

    Raise an error for the directory of a standby, or of a node that a standby has replaced.
    """
    if NODE_FILE not in disk.names() and not _has_log(disk):
        new_identity().write(disk)
    who = identity(disk)
    if who.standby:
        raise StandbyOnly()
    if who.superseded:
        raise Superseded()
    return who


def next_opening(disk: Disk) -> Identity:
    """Return the identity for a node that starts without a log, with an epoch that no other start uses."""
    opening = replace(identity_to_open(disk), epoch=next_epoch(disk))
    replace(opening, epoch=opening.epoch + 1).write(disk)
    return opening


def abandon_log(disk: Disk) -> None:
    """Record that the node continues without its log. The log will then lack the newest changes."""
    replace(identity(disk), epoch=next_epoch(disk), doubtful=True).write(disk)


def take_over(disk: Disk, who: Identity, node_epoch: int) -> None:
    """Give the directory of a standby or a backup the identity `who`, so that it replaces this node.

    `node_epoch` is greater than the epoch of the old node. The directory may lack the last events of the old node,
    including deliveries. The new identity records this as `doubtful`.
    """
    epoch = next_epoch(disk) + _EPOCHS_APART
    replace(who, epoch=epoch, node_epoch=node_epoch, doubtful=True, standby=False, superseded=0).write(disk)


def next_epoch(disk: ReadableDisk) -> int:
    """Return the first epoch of job ids that was used neither by the log nor by a start without a log."""
    newest = 0
    for name in segment_names(disk)[-1:]:
        with FrameFile(disk, name) as file:
            newest = file.header.epoch
    return max(identity(disk).epoch, newest + 1)


def _has_log(disk: ReadableDisk) -> bool:
    """Return whether a directory has files of a log. If it has, it must also have an identity.

    A new queue gets its identity before the first file of its log.
    """
    names = [name.removesuffix(UNFINISHED) for name in disk.names()]
    return any(is_segment(name) or is_snapshot(name) for name in names)


def identity(disk: ReadableDisk) -> Identity:
    if NODE_FILE not in disk.names():
        if _has_log(disk):
            raise DamagedJournal(
                f"{NODE_FILE} is missing, and without it no job id of this log is valid; if a backup or a restore "
                "was interrupted here, repeat it with a new directory"
            )
        raise NoJournal("this directory contains no queue")
    try:
        fields = json.loads(disk.read(NODE_FILE))
        known = {name: value for name, value in fields.items() if name in _FIELDS}
        found = Identity(**known | {"key": bytes.fromhex(fields["key"])})
        sizes = len(found.node), len(bytes.fromhex(found.node)), len(found.key)
        numbers = found.epoch, found.node_epoch, found.superseded
        if sizes == (2 * _NODE_BYTES, _NODE_BYTES, _KEY_BYTES) and min(numbers) >= 0 and isinstance(found.log, str):
            return found
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DamagedJournal(f"{NODE_FILE} is damaged; restore it from a backup")
