"""Archives the log of a node that its standby has replaced. Jobs that only this log contains can then be examined."""

from __future__ import annotations

from dataclasses import replace

from penstock.journal.identity import Identity, identity
from penstock.journal.real_disk import RealDisk


def archive_superseded_log(disk: RealDisk, fresh: Identity) -> RealDisk:
    """Move the log to a subdirectory, and give this directory the identity `fresh`.

    The subdirectory is returned and can be opened as a queue.

    The call may be interrupted at any point. Repeating it completes the work.
    """
    who = identity(disk)
    assert who.superseded
    aside = disk.subdirectory(f"superseded-{who.node[:8]}-{who.node_epoch}")
    for name in disk.names():
        # Files beside a segment move, too: indexes, and damaged files that a repair has renamed.
        if name.startswith(("segment-", "snapshot-")):
            disk.move_to(name, aside)
    replace(who, superseded=0).write(aside)
    fresh.write(disk)
    return aside
