"""A node that was replaced archives its jobs and restarts as a new node.

test_standby_takeover.py tests how the node learns that it was replaced.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.cluster.peers import HANDSHAKE, Peer
from penstock.cluster.roster import first_text, read_file
from penstock.core.errors import Superseded
from penstock.journal.identity import NODE_FILE, identity
from penstock.journal.real_disk import RealDisk
from penstock.server.config.configuration import load
from penstock.server.main import open_host
from penstock.server.peers.step_down import restart_as_new_node


def bodies(directory: Path, tube: str) -> list[bytes]:
    """Return the bodies of all jobs that can be taken from a tube."""
    with penstock.open(directory) as queue:
        found = []
        while (job := queue.tube(tube).take(timeout=0)) is not None:
            found.append(job.body)
        return found


def test_an_interrupted_step_down_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """If it is killed at any step after it has recorded that it was replaced, it serves none of its old jobs."""
    home = tmp_path / "node"
    with penstock.open(home) as queue:
        queue.tube("orders").put(b"order")
    disk = RealDisk(str(home))
    before = identity(disk)
    replace(before, superseded=3, node_epoch=2).write(disk)
    peer = Peer(b"b" * 40, "127.0.0.1", 1, 2)
    met = Peer(b"d" * 40, "127.0.0.1", 3, 4, HANDSHAKE)
    (home / "nodes.conf").write_text(first_text(before.node.encode(), [peer, met], {b"c" * 40: 4}))
    config = load(None, ["--dir", str(home)], {}, tmp_path)
    with pytest.raises(Superseded, match="moved aside"):
        open_host(config)
    aside = home / f"superseded-{before.node[:8]}-2"
    disk.move_to("segment-0000000001.log", disk.subdirectory(aside.name))
    restart_as_new_node(config)
    after = identity(disk)
    assert after.node != before.node and after.key != before.key and after.node_epoch == after.superseded == 0
    assert disk.names() == ["lock", NODE_FILE, "nodes.conf"]
    known = read_file((home / "nodes.conf").read_text())
    assert known.myself == after.node.encode()
    assert [(each.id, each.invited, each.flags) for each in known.peers] == [
        (peer.id, True, 0),
        (met.id, True, HANDSHAKE),
    ]
    assert known.past == {b"c" * 40: 4, before.node.encode(): 3}
    assert bodies(aside, "orders") == [b"order"]
    assert identity(RealDisk(str(aside))).node_epoch == 2


def test_a_node_with_a_new_id_goes_on_with_its_log_after_a_restart(tmp_path: Path) -> None:
    config = load(None, ["--dir", str(tmp_path)], {}, tmp_path)
    host = open_host(config)
    before = host.node
    with host.lock:
        host.rename()
        host.close()
    with penstock.open(tmp_path) as queue:
        queue.tube("orders").put(b"order")
    again = open_host(config)
    assert again.node == host.node != before
    assert again.engine.jobs.count == 1
    with again.lock:
        again.close()
