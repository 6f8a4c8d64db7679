"""Tubes that live on one node of a cluster, used through any other: real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .clustering import Cluster, cluster_of
from .iproto_wire import IprotoWire
from .iproto_wire import Refusal as CallRefusal
from .iproto_wire import pack
from .serving import Refusal, Wire, pairs, wait_for


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that tests share. Whoever stops one starts it again, and waits until all is well."""
    with cluster_of(tmp_path_factory.mktemp("homes"), 3, "--appendfsync", "everysec") as cluster:
        yield cluster


@pytest.fixture
def wires(three: Cluster) -> Iterator[list[Wire]]:
    """A connection to each of the three."""
    made = [Wire(node.port) for node in three.nodes]
    yield made
    for wire in made:
        wire.close()


def jobs(answer: list[list[object]]) -> list[dict[bytes, object]]:
    return [pairs(job) for job in answer]


def test_a_tube_is_used_through_any_node(wires: list[Wire]) -> None:
    home, other, third = wires
    id = home.call("PUT", "any", "first")
    assert other.call("PUT", "any", "second")[2:10] == id[2:10]
    assert third.call("TUBE", "INFO", "any")[:2] == [b"name", b"any"]
    taken = jobs(other.call("TAKE", "any", "COUNT", 2))
    assert [job[b"body"] for job in taken] == [b"first", b"second"]
    assert other.call("ACK", id) == 1
    # It is the session that counts: here, of the client of another node.
    second = taken[1][b"id"]
    with pytest.raises(Refusal, match="^NOTOWNER"):
        third.call("ACK", second)
    assert other.call("BURY", second) == b"OK"
    assert third.call("KICK", "any", 5) == 1
    assert jobs(third.call("TAKE", "any", "TIMEOUT", "5s"))[0][b"id"] == second
    assert third.call("JOB", "HELD") == [second]
    assert third.call("RELEASE", second) == b"OK"
    assert other.call("JOB", "DELETE", "any#1") == 1
    assert other.call("TUBE", "DROP", "any") == b"OK"
    with pytest.raises(Refusal, match="^NOTUBE"):
        third.call("TAKE", "any")
