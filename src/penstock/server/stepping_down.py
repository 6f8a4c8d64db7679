"""Stepping down: a node that was replaced keeps what it has aside, and goes on as a new one that knows the same nodes.

It hears of it in the middle of its work, notes that it was replaced, and starts again; what remains to be done is done
then, before anything is served. So wherever it is interrupted, nobody is served by two.
"""

from __future__ import annotations

import logging

from penstock.cluster.peers import NOADDR
from penstock.cluster.roster import Roster, first_text, read_file
from penstock.journal.aside import put_aside
from penstock.journal.disk import RealDisk
from penstock.journal.identity import NODE_FILE, identity, new_identity
from penstock.server import text_file
from penstock.server.config import Config

_log = logging.getLogger("penstock")


def go_on_as_another(config: Config) -> None:
    """If the node of a directory was replaced, put what it has aside, and let the directory be of a new node."""
    disk = RealDisk(str(config.dir))
    if NODE_FILE not in disk.names() or not identity(disk).superseded:
        return
    disk.lock()
    try:
        before, fresh = identity(disk), new_identity()
        path = config.within_dir(config.cluster_config_file)
        known = _known(config)
        # The one before is nobody's peer in the epoch that it had, and who was replaced earlier still is.
        lost = {peer.id: peer.epoch for peer in known.peers if peer.flags & NOADDR and peer.epoch}
        past = {**known.past, **lost, before.node.encode(): before.superseded}
        peers = [peer for peer in known.peers if not peer.flags & NOADDR]
        text_file.replace(path, first_text(fresh.node.encode(), peers, past))
        aside = put_aside(disk, fresh)
    finally:
        disk.unlock()
    _log.warning(
        "node %s was replaced, in epoch %d: what was here, with everything that the other does not have, is in %s; "
        "`penstock journal export %s` shows it. This node goes on as %s, with no jobs",
        before.node,
        before.superseded,
        aside.path,
        aside.path,
        fresh.node,
    )


def _known(config: Config) -> Roster:
    """Whom the node knew, and where they are."""
    path = config.within_dir(config.cluster_config_file)
    if not path.exists():
        return Roster(b"")
    try:
        return read_file(text_file.read(path, str(path)))
    except ValueError as error:
        _log.warning("%s: %s; meet the others again", path, error)
        return Roster(b"")
