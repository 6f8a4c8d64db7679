"""A standby has the same bytes as its node, and can be opened at any time after it was made the node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.client.standby import Standby
from penstock.client.url import target
from penstock.core.errors import CommandError, DamagedJournal, InUse, StandbyOnly
from penstock.host.boot import boot_id
from penstock.journal.identity import Identity, identity
from penstock.journal.maintenance.mirror import Mirror
from penstock.journal.real_disk import RealDisk
from penstock.journal.recovery.check import check_log
from penstock.journal.segment import segment_names, snapshot_names

from ..clustering import Node
from ..serving import Refusal, wait_for


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node that keeps little history, without bodies."""
    node = Node(tmp_path / "node", "--appendfsync", "always", "--history-bytes", "1mb", "--history-bodies", "no")
    yield node
    node.stop()


@contextmanager
def following(node: Node, home: Path) -> Iterator[Standby]:
    mirror = Mirror(RealDisk(str(home)))
    try:
        standby = Standby(target(f"penstock://127.0.0.1:{node.port}", retry_for=0), mirror)
        try:
            yield standby
        finally:
            standby.close()
    finally:
        mirror.close()


def put(node: Node, count: int, body: str = "body") -> list[bytes]:
    client = node.connect()
    return [client.call("PUT", "orders", f"{body} {number}") for number in range(count)]


def snapshot(node: Node) -> None:
    client = node.connect()
    client.call("BGREWRITEAOF")
    wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == "0")


def assert_alike(node: Node, home: Path) -> None:
    """Check that a standby has the first bytes of the node's files, or all of them, and can be opened."""
    disk = RealDisk(str(home))
    for name in [*segment_names(disk), *snapshot_names(disk)]:
        data = (home / name).read_bytes()
        there = (node.home / name).read_bytes()
        assert there.startswith(data) and not there[len(data) :].strip(b"\0")
    checked = check_log(disk, boot_id())
    assert not checked.damaged and not checked.cuts
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600} and home.stat().st_mode & 0o777 == 0o700


def test_a_standby_continues_after_a_restart_of_either_side(node: Node, tmp_path: Path) -> None:
    home = tmp_path / "standby"
    put(node, 20)
    with following(node, home) as standby:
        standby.catch_up()
        assert_alike(node, home)
        put(node, 20)
        standby.fetch_next(1_000)
        assert_alike(node, home)
        assert standby.lag.rows == standby.lag.bytes == 0
        with pytest.raises(InUse):
            Mirror(RealDisk(str(home)))
        put(node, 5)
    with pytest.raises(StandbyOnly, match="cluster rehome"):
        penstock.open(home)
    # Killed in the middle of a write.
    tail = sorted(home.glob("segment-*"))[-1]
    tail.write_bytes(tail.read_bytes() + b"torn")
    node.kill()
    node.start_again()
    put(node, 5)
    with following(node, home) as standby:
        standby.catch_up()
        assert_alike(node, home)
        # A snapshot replaces the segments before it. Its own segment is empty, and is another one after a crash.
        snapshot(node)
        standby.catch_up()
        assert_alike(node, home)
        assert snapshot_names(RealDisk(str(home))) == snapshot_names(RealDisk(str(node.home)))
    node.kill()
    node.start_again()
    put(node, 5)
    with following(node, home) as standby:
        standby.catch_up()
        assert_alike(node, home)
    # The same node in an earlier state: the files that it would overwrite may be the only copy.
    node.kill()
    last = node.home / segment_names(RealDisk(str(home)))[-1]
    last.write_bytes(last.read_bytes()[:4_096])
    node.start_again()
    with following(node, home) as standby, pytest.raises(DamagedJournal, match="restored to an earlier state"):
        standby.catch_up()


def test_a_standby_that_has_fallen_behind_starts_over(node: Node, tmp_path: Path) -> None:
    home = tmp_path / "standby"
    put(node, 5, "x" * 400_000)
    with following(node, home) as standby:
        standby.catch_up()
    for _ in range(3):
        put(node, 2, "x" * 400_000)
        snapshot(node)
    wait_for(lambda: not (node.home / "segment-0000000001.log").exists())
    # The old files stay until the new copy is complete.
    mirror = Mirror(RealDisk(str(home)))
    mirror.start_rebuild()
    mirror.close()
    with following(node, home) as standby:
        assert not check_log(RealDisk(str(home)), boot_id()).damaged
        assert (home / "segment-0000000001.log").exists()
        standby.catch_up()
        assert_alike(node, home)
        put(node, 1)
        standby.fetch_next(1_000)
    assert_alike(node, home)
    assert not (home / "anew").exists() and not (home / "segment-0000000001.log").exists()


def test_an_interrupted_fresh_copy_can_be_opened(tmp_path: Path) -> None:
    """The process is killed between any two moves of files."""
    with penstock.open(tmp_path / "node") as queue:
        for _ in range(2):
            queue.tube("orders").put("order")
            queue.checkpoint()
    who = identity(RealDisk(str(tmp_path / "node")))
    source = RealDisk(str(tmp_path / "node"))
    newest = snapshot_names(source)[-1]
    whole = [*(name for name in segment_names(source) if name[-9:] >= newest[-9:]), newest]
    assert len(whole) == 2
    for moved in range(len(whole) + 1):
        home = RealDisk(str(tmp_path / f"standby {moved}"))
        replace(who, standby=True).write(home)
        if moved == 0:
            # This file is moved first.
            home.replace("segment-0000000001.log", source.read("segment-0000000001.log"))
        below = home.subdirectory("anew")
        for number, name in enumerate(whole):
            (home if number < moved else below).replace(name, source.read(name))
        mirror = Mirror(home)
        mirror.close()
        assert mirror.position > 1, "it would be fetched again"
        assert [*segment_names(home), *snapshot_names(home)] == whole and not home.has_subdirectory("anew")
        assert not check_log(home, boot_id()).damaged


def test_the_standbys_history_has_no_bodies_that_the_node_removed(node: Node, tmp_path: Path) -> None:
    home = tmp_path / "standby"
    put(node, 1, "a secret")
    first = "segment-0000000001.log"
    with following(node, home) as standby:
        standby.catch_up()
        assert b"a secret" in (home / first).read_bytes()
        client = node.connect()
        [job] = client.call("TAKE", "orders")
        client.call("ACK", job[1])
        standby.catch_up()
        snapshot(node)
        wait_for(lambda: b"a secret" not in (node.home / first).read_bytes())
        standby.catch_up()
        assert b"a secret" not in (home / first).read_bytes()
        assert_alike(node, home)


def test_files_of_the_log_are_read_as_they_are_and_no_others(node: Node) -> None:
    client = node.connect()
    told = client.call("JOURNAL", "FILES")
    names = [name for name, _, _ in told[told.index(b"files") + 1]]
    assert names == [b"segment-0000000001.log"]
    assert client.call("JOURNAL", "FETCH", names[0], 0, "BYTES", 8) == b"PENSTOCK"
    for wrong, why in [
        (("../node.json", 0), "is not a file of the log"),
        (("node.json", 0), "is not a file of the log"),
        (("segment-0000000009.log", 0), "not kept any more"),
        ((names[0], -1), "0 or more"),
        ((names[0], 0, "BYTES", 0), "BYTES must be"),
    ]:
        with pytest.raises(Refusal, match=why):
            client.call("JOURNAL", "FETCH", *wrong)


def test_frames_of_another_log_are_not_written(tmp_path: Path) -> None:
    """The frames are of another node, of another place, or were changed in transit."""
    with penstock.open(tmp_path / "node") as queue:
        for number in range(3):
            queue.tube("orders").put(f"order {number}")
    source, name = RealDisk(str(tmp_path / "node")), "segment-0000000001.log"
    data = source.read(name)

    def fetch(name: str, offset: int, length: int) -> bytes:
        return source.read(name)[offset : offset + length]

    who = identity(source)
    mirror = Mirror(RealDisk(str(tmp_path / "standby")))
    mirror.follow(who)
    mirror.begin_at(1, 1, fetch)
    frames = data[4_096:]
    for wrong in (frames[:-1], frames[8:], b"", frames[:-9] + b"x" + frames[-8:], frames + frames):
        with pytest.raises(DamagedJournal):
            mirror.append(name, 4_096, wrong, fetch)
    with pytest.raises(DamagedJournal, match="continues at offset"):
        mirror.append(name, 4_104, frames, fetch)
    assert mirror.end == 4_096 and mirror.position == 1
    mirror.append(name, 4_096, frames, fetch)
    with pytest.raises(CommandError, match="follows node"):
        mirror.follow(Identity("f" * 40, who.key))
    mirror.follow(replace(who, node_epoch=2))
    with pytest.raises(CommandError, match="was replaced"):
        mirror.follow(replace(who, node_epoch=1))
    mirror.close()
    with pytest.raises(CommandError, match="belongs to a node"):
        Mirror(source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("mine")
    with pytest.raises(CommandError, match="neither empty"):
        Mirror(RealDisk(str(tmp_path / "other")))
