"""What a node leaves behind that was replaced: its log, put aside whole, so that what only it knew can be looked at."""

from __future__ import annotations

from dataclasses import replace

from penstock.journal.disk import RealDisk
from penstock.journal.identity import Identity, identity


def put_aside(disk: RealDisk, fresh: Identity) -> RealDisk:
    """Move the log to a directory of its own, which can be opened, and let this one be of somebody else.

    It can be interrupted anywhere, and is then done to its end when it is called again.
    """
    who = identity(disk)
    assert who.superseded
    aside = disk.below(f"superseded-{who.node[:8]}-{who.node_epoch}")
    for name in disk.names():
        # Whatever is said about them beside them, too: indexes, files that a repair has set aside.
        if name.startswith(("segment-", "snapshot-")):
            disk.hand(name, aside)
    replace(who, superseded=0).write(aside)
    fresh.write(disk)
    return aside
