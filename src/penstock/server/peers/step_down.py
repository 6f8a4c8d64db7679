"""Stepping down: a node that was replaced archives its jobs and restarts as a new node with the same peers.

A running node that learns from a peer that it was replaced records this and restarts. At the next start, it archives
its jobs before any client is served. So no client is served by both nodes, even if a step is interrupted.
"""

from __future__ import annotations

import logging

from penstock.cluster.roster import Roster, read_file, successor_text
from penstock.journal.identity import NODE_FILE, identity, new_identity
from penstock.journal.maintenance.archive import archive_superseded_log
from penstock.journal.real_disk import RealDisk
from penstock.server.config import text_file
from penstock.server.config.configuration import Config

_log = logging.getLogger("penstock")


def restart_as_new_node(config: Config) -> None:
    """If another process has replaced the node of this directory, archive its files and create a new node id."""
    disk = RealDisk(str(config.dir))
    if NODE_FILE not in disk.names() or not identity(disk).superseded:
        return
    disk.lock()
    try:
        before, fresh = identity(disk), new_identity()
        path = config.within_dir(config.cluster_config_file)
        known = _known(config)
        known.myself = before.node.encode()
        text_file.replace(path, successor_text(known, before.superseded, fresh.node.encode()))
        aside = archive_superseded_log(disk, fresh)
    finally:
        disk.unlock()
    _log.warning(
        "node replaced: node=%s epoch=%d archive=%s; the archive may have jobs that the other node lacks; "
        "read it with `penstock journal export %s`. This node restarts without jobs: new_node=%s",
        before.node,
        before.superseded,
        aside.path,
        aside.path,
        fresh.node,
    )


def _known(config: Config) -> Roster:
    """Return the peers of the replaced node and their addresses."""
    path = config.within_dir(config.cluster_config_file)
    if not path.exists():
        return Roster(b"")
    try:
        return read_file(text_file.read(path, str(path)))
    except ValueError as error:
        _log.warning("peers not loaded: file=%s error=%s; meet them again with CLUSTER MEET", path, error)
        return Roster(b"")
