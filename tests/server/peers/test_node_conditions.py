"""A node without disk space, short of memory or with paused queues is shown as such on every node until that ends."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

from ..clustering import Cluster, Node, cluster_of
from ..serving import Refusal, Wire, wait_for


def flags(nodes: list[Node], shown: Node) -> list[str]:
    """Return the flags of a node, as each node shows them."""
    return [str(node.flags_of(shown.id)).removeprefix("myself").strip(",") or "noflags" for node in nodes]


def priorities(nodes: list[Node], shown: Node) -> list[bytes]:
    """Return the priority of a node, as each node shows it in Disque's HELLO."""
    told = [node.ask("HELLO") for node in nodes]
    assert all(len(each) == 4 for answer in told for each in answer[2:])  # type: ignore[index]
    return [each[3] for answer in told for each in answer[2:] if each[0] == shown.id]  # type: ignore[index]


def checked(node: Node, *words: str) -> str:
    """Return the output of `penstock cluster check`. A condition is no problem, so the exit code is 0."""
    url = f"penstock://127.0.0.1:{node.port}"
    result = CliRunner().invoke(app, ["cluster", "check", "--url", url, *words], prog_name="penstock")
    assert result.exit_code == 0, result.output
    return result.output


def rows(node: Node) -> dict[bytes, dict[str, object]]:
    return {row["node"].encode(): row for row in map(json.loads, checked(node, "--json").splitlines())}


def see(nodes: list[Node], shown: Node, flag: str, priority: bytes, warning: str) -> None:
    """Wait until every node shows the condition of this node, and of no other, in every place."""
    wait_for(lambda: flags(nodes, shown) == [flag] * len(nodes))
    assert priorities(nodes, shown) == [priority] * len(nodes)
    told = rows(nodes[0])
    for node in nodes:
        condition = told[node.id]["conditions"], told[node.id]["problem"]
        assert condition == (([flag] if node is shown else []), "")
    assert warning in str(told[shown.id]["warning"])
    [line] = [line for line in checked(nodes[-1]).splitlines() if warning in line]
    assert line.startswith(shown.id.decode())


def see_no_more(nodes: list[Node], shown: Node) -> None:
    wait_for(lambda: flags(nodes, shown) == ["noflags"] * len(nodes))
    assert priorities(nodes, shown) == [b"1"] * len(nodes)
    assert [row["conditions"] for row in rows(nodes[0]).values()] == [[]] * len(nodes)
    assert {row["warning"] for row in rows(nodes[0]).values()} == {""}


def test_a_node_with_paused_queues_is_shown_until_they_go_on(three: Cluster) -> None:
    nodes = three.nodes
    second = nodes[1]
    for queue in ("paused-1", "paused-2"):
        second.ask("PAUSE", queue, "in")
    see(nodes, second, "paused", b"2", "accepts no jobs of 2 paused queues")
    assert rows(nodes[2])[second.id]["paused_queues"] == 2
    assert nodes[0].ask("ADDJOB", "paused-1", "body", 0).startswith(b"D-")  # type: ignore[attr-defined]
    second.ask("PAUSE", "paused-1", "none")
    wait_for(lambda: rows(nodes[0])[second.id]["paused_queues"] == 1)
    second.ask("PAUSE", "paused-2", "out")
    see_no_more(nodes, second)
    second.ask("PAUSE", "paused-2", "none")


def test_a_condition_does_not_survive_in_the_file_of_nodes(three: Cluster) -> None:
    first, second = three.nodes[:2]
    second.ask("PAUSE", "in-no-file", "in")
    wait_for(lambda: first.flags_of(second.id) == "paused")
    for node in (first, second):
        assert node.ask("CLUSTER", "SAVECONFIG") == b"OK"
        assert "paused" not in (node.home / "nodes.conf").read_text()
    second.ask("PAUSE", "in-no-file", "none")
    see_no_more(three.nodes, second)


def test_a_node_above_its_memory_threshold_is_shown_until_there_is_memory(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3, "--no-journal") as cluster:
        nodes = cluster.nodes
        last = nodes[2]
        assert last.ask("CONFIG", "SET", "maxmemory", 4 << 20) == b"OK"
        see_no_more(nodes, last)
        with closing(Wire(last.port)) as wire:
            ids = [wire.add("q", bytes(100_000), "REPLICATE", 1, "RETRY", 60) for _ in range(29)]
            assert flags(nodes, last) == ["noflags"] * 3, "at three quarters it takes copies"
            ids += [wire.add("q", bytes(100_000), "REPLICATE", 1, "RETRY", 60) for _ in range(3)]
            see(nodes, last, "nomem", b"8", "above its memory threshold")
            assert nodes[0].ask("ADDJOB", "other", "body", 0).startswith(b"D-")  # type: ignore[attr-defined]
            wire.call("DELJOB", *ids)
        see_no_more(nodes, last)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Fill the disk, as another program would."""
    path = disk / "filling"
    with path.open("wb") as file:
        size = 0
        while True:
            try:
                os.posix_fallocate(file.fileno(), size, 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
            size += 4096
        yield
    path.unlink()


def test_an_unused_node_without_disk_space_is_shown_until_there_is_space(tmp_path: Path, small_disk: Path) -> None:
    with cluster_of(tmp_path, 2, "--appendfsync", "everysec") as cluster:
        first = cluster.nodes[0]
        full = Node(tmp_path / "full", "--appendfsync", "everysec", "--dir", str(small_disk / "data"))
        cluster.nodes.append(full)
        first.meet(full, full.bus_port)
        cluster.gather()
        nodes = cluster.nodes
        see_no_more(nodes, full)
        with closing(Wire(full.port)) as wire, filled(small_disk):
            with pytest.raises(Refusal, match=r"^NOSPACE "):
                while True:
                    wire.add("q", bytes(2_000), "REPLICATE", 1)
            see(nodes, full, "nodisk", b"8", "out of disk")
            assert first.ask("ADDJOB", "other", "body", 0).startswith(b"D-")  # type: ignore[attr-defined]
        see_no_more(nodes, full)
        assert full.ask("ADDJOB", "other", "body", 0, "REPLICATE", 3).startswith(b"D-")  # type: ignore[attr-defined]


def test_a_node_that_is_alone_shows_its_own_condition(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1, "--no-journal") as cluster:
        [node] = cluster.nodes
        assert (flags([node], node), priorities([node], node)) == (["noflags"], [b"1"])
        node.ask("PAUSE", "q", "in")
        assert (flags([node], node), priorities([node], node)) == (["paused"], [b"2"])
        assert node.cluster_info()["cluster_paused_queues"] == 1
        node.ask("PAUSE", "q", "none")
        assert (flags([node], node), priorities([node], node)) == (["noflags"], [b"1"])
