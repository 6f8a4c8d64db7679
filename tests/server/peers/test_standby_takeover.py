"""The home of tubes is lost, and its standby becomes the same node with the same jobs. There are never two of it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.journal.identity import identity
from penstock.journal.real_disk import RealDisk
from penstock.journal.segment import segment_names

from ..clustering import LastingNode, Node, cluster_of
from ..forked_servers import Forked
from ..serving import PATIENCE_S, Refusal, wait_for


@contextlib.contextmanager
def followed(node: Node, home: Path) -> Iterator[None]:
    """Let a standby follow a node until it has all of the log."""
    words = ["standby", "--of", f"127.0.0.1:{node.port}", "--dir", str(home)]
    said, wrong = home.with_suffix(".stdout"), home.with_suffix(".stderr")
    process = Forked(words, home.parent, said, wrong)
    try:
        yield
        wait_for(lambda: home.exists() and has_all(node, home))
        # The message is printed after the write.
        wait_for(lambda: "has everything up to position" in said.read_text())
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    assert not wrong.read_text()


def has_all(node: Node, home: Path) -> bool:
    """Return whether the log in a directory is the complete log of a node."""
    names = segment_names(RealDisk(str(home)))
    there = (node.home / names[-1]).read_bytes() if names else b""
    data = (home / names[-1]).read_bytes() if names else b""
    return len(data) > 4_096 and there.startswith(data) and not there[len(data) :].strip(b"\0")


def rehome(home: Path, via: Node | None, *words: str) -> Result:
    others = [] if via is None else ["--via", f"127.0.0.1:{via.port}"]
    return CliRunner().invoke(app, ["cluster", "rehome", "--dir", str(home), *others, *words])


def fill(node: Node) -> tuple[dict[str, bytes], bytes]:
    """Put a job of every kind on a node. Return their ids, and the session that has taken one."""
    client = node.connect()
    session = client.call("IDENTIFY", "GRACE", "10m")[1]
    client.call("TUBE", "CREATE", "orders", "TYPE", "fifottl")
    put: dict[str, bytes] = {}
    for name, options in {
        "buried": (),
        "taken": (),
        "ready": (),
        "named": ("NAME", "by name"),
        "delayed": ("DELAY", "1h"),
    }.items():
        put[name] = client.call("PUT", "orders", name, *options)
        if name in ("buried", "taken"):
            client.call("TAKE", "orders")
    client.call("BURY", put["buried"])
    put["once"] = client.add("mail", "once", "RETRY", 0, "REPLICATE", 1)
    return put, session


def states(node: Node, jobs: dict[str, bytes]) -> dict[str, Any]:
    client = node.connect()
    found = {}
    for name, id in jobs.items():
        shown = client.call("SHOW", id)
        found[name] = None if shown is None else shown[shown.index(b"state") + 1]
    return found


def test_a_standby_becomes_the_node_and_the_old_one_steps_down(tmp_path: Path) -> None:
    home = tmp_path / "standby"
    with cluster_of(tmp_path, 2) as cluster, contextlib.ExitStack() as stack:
        first, second = cluster.nodes
        old = LastingNode(tmp_path / "old", "--appendfsync", "always")
        stack.callback(old.stop)
        first.meet(old, old.bus_port)
        wait_for(lambda: all(node.reaches() == 2 for node in (first, second, old)))
        with followed(old, home):
            jobs, session = fill(old)
            before, id = states(old, jobs), old.id
        while_there = rehome(home, first)
        assert while_there.exit_code == 4 and "sees it as reachable, connected; " in while_there.stderr
        assert "it answers. Use --force to continue anyway" in while_there.stderr
        # This job is not on the standby.
        tail = old.connect().call("PUT", "orders", "tail")
        old.kill()
        with cluster.missing_soon():
            wait_for(lambda: {node.flags_of(id) for node in (first, second)} == {"fail"})
        would = rehome(home, second, "--dry-run")
        assert would.exit_code == 0
        assert f"would become node {id.decode()}, after epoch 0, with the state of" in would.stdout
        assert identity(RealDisk(str(home))).standby and first.ask("CLUSTER", "EPOCH", id) == 0
        done = rehome(home, second)
        assert done.exit_code == 0, done.stderr
        epoch = first.ask("CLUSTER", "EPOCH", id)
        assert epoch > 0 and f"is node {id.decode()}, in epoch {epoch}, with the state of" in done.stdout
        assert re.search(rf"penstock serve --dir \S+ --port {old.port} --cluster-port {old.bus_port}", done.stdout)

        # Even before the new node starts, the old one does not serve as a member.
        old.start_again()
        wait_for(lambda: "This node restarts without jobs: new_node=" in old.log() and old.answers())
        assert old.id != id
        [aside] = old.home.glob("superseded-*")
        assert aside.name == f"superseded-{id[:8].decode()}-0" and aside.stat().st_mode & 0o777 == 0o700
        assert f"{aside.name}`. This node restarts" in old.log()
        with penstock.open(aside) as queue:
            assert queue.job(tail.decode()).body == b"tail"

        new = Node(home, "--appendfsync", "always")
        stack.callback(new.stop)
        assert new.id == id
        wait_for(lambda: all(node.reaches() == 3 for node in (first, second, old, new)))
        assert {node.flags_of(id) for node in (first, second, old)} == {f"epoch={epoch}"}
        # It is unknown whether the job was delivered, so it is buried, which Disque calls active.
        assert states(new, jobs) == before | {"once": b"active"}
        client = new.connect()
        assert states(new, {"tail": tail}) == {"tail": None}
        # The session is the same, so it still owns the job that it took.
        client.call("IDENTIFY", session)
        client.call("ACK", jobs["taken"])
        assert [job[1] for job in client.call("TAKE", "orders", "COUNT", 9)] == [jobs["ready"], jobs["named"]]
        assert client.call("JOB", "NAMED", "orders", "by name") is not None
        # Other nodes find the tube at its new place, and so does the old node.
        for node in (first, old):
            wait_for(lambda node=node: [b"orders", id, epoch] in node.ask("CLUSTER", "HOMES"))
            assert node.ask("PUT", "orders", "through another").startswith(b"D-" + id[:8])
        # The ids that it creates differ from those of the old node.
        assert client.call("PUT", "orders", "new") != tail
        # A running node that learns that it was replaced answers no client any more.
        waiting = old.connect()
        waiting.send("GETJOB", "FROM", "elsewhere")
        wait_for(lambda: old.ask("QSTAT", "elsewhere"))  # Otherwise the link is closed before a message is read.
        assert first.ask("CLUSTER", "EPOCH", old.id, 1) == 1
        assert waiting.read() == b""
        old.kill()


def test_a_backup_becomes_its_node_where_that_one_was_forgotten(tmp_path: Path) -> None:
    home = tmp_path / "backup"
    with contextlib.ExitStack() as stack:
        other, old = (Node(tmp_path / name) for name in ("other", "backup"))
        stack.callback(other.stop)
        stack.callback(old.stop)
        old.ask("PUT", "orders", "order")
        id = old.id.decode()
        # A node that never had an entry of this node has not forgotten it.
        old.stop()
        stranger = rehome(home, other)
        assert stranger.exit_code == 4 and "no node of this cluster knows it" in stranger.stderr
        old.start_again()
        other.meet(old, old.bus_port)
        wait_for(lambda: other.reaches() == 1)
        old.stop()
        assert other.ask("CLUSTER", "FORGET") == []
        assert other.ask("CLUSTER", "FORGET", id) == b"OK"
        other.stop()
        other.start_again()
        assert other.ask("CLUSTER", "FORGET") == [id.encode()]
        words = ("--cluster-config-file", "others.conf")
        done = [json.loads(rehome(home, other, "--json", *words).stdout) for _ in range(2)]
        # Every request gets another epoch.
        epochs = [each["epoch"] for each in done]
        assert 0 < epochs[0] < epochs[1] == other.ask("CLUSTER", "EPOCH", id)
        assert done[0]["node"] == id and done[0]["position"] > 1
        assert done[0]["start"] == f"penstock serve --dir {home} {' '.join(words)}"
        assert f"127.0.0.1:{other.port}@{other.bus_port} invited" in (home / "others.conf").read_text()
        assert done[0]["missed"] == []
        with pytest.raises(Refusal, match=f"is already in epoch {epochs[1]}; choose a greater one"):
            other.ask("CLUSTER", "EPOCH", id, epochs[1])
        for wrong in ("0", "-1", str(1 << 53)):
            with pytest.raises(Refusal, match="an epoch must be 1 to"):
                other.ask("CLUSTER", "EPOCH", id, wrong)
        itself = rehome(other.home, other)
        assert itself.exit_code == 75 and "is open in another process" in itself.stderr
        log = home / segment_names(RealDisk(str(home)))[-1]
        log.write_bytes(log.read_bytes()[:4_000])
        damaged = rehome(home, other, "--force")
        assert damaged.exit_code == 1 and "the queue cannot be opened" in damaged.stderr
        assert identity(RealDisk(str(home))).node_epoch == epochs[1]


def test_one_of_two_successors_of_the_same_node_steps_down(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        old = Node(tmp_path / "one")
        stack.callback(old.stop)
        old.ask("PUT", "orders", "order")
        id = old.id
        old.kill()
        shutil.copytree(old.home, tmp_path / "other")
        heirs = {}
        for home in (old.home, tmp_path / "other"):
            epoch = json.loads(rehome(home, None, "--force", "--json").stdout)["epoch"]
            heirs[epoch] = LastingNode(home)
            stack.callback(heirs[epoch].stop)
        assert len(heirs) == 2
        lesser, greater = (heirs[epoch] for epoch in sorted(heirs))
        assert lesser.id == greater.id == id
        # This node has to restart itself.
        lesser.kill()
        lesser.start_again()
        lesser.meet(greater, greater.bus_port)
        wait_for(
            lambda: (
                "This node restarts without jobs: new_node=" in lesser.log() and lesser.answers() and lesser.id != id
            )
        )
        assert greater.id == id and greater.ask("TUBE", "INFO", "orders")
