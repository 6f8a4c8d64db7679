"""A cluster of real processes: meeting, failing, coming back, leaving, and replicated jobs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.cluster_nodes import connect_to_node, list_nodes
from penstock.cli.commands.cluster.rehome import RemainingNodes
from penstock.cli.main import app
from penstock.cli.targets import Target
from tests.ports import free_port

from ..bus_peers import SECRET
from ..bus_proxy import Proxy
from ..clustering import Cluster, Node, cluster_of
from ..forked_servers import Forked
from ..serving import PATIENCE_S, Refusal, Wire, configured, decoded, wait_for


@pytest.fixture
def wires(three: Cluster) -> Iterator[list[Wire]]:
    """A connection to each of the three nodes."""
    made = [Wire(node.port) for node in three.nodes]
    yield made
    for wire in made:
        wire.close()


# ---- Nodes -----------------------------------------------------------------------------------------------------------


def test_nodes_and_info_show_all_nodes(three: Cluster) -> None:
    first = three.nodes[0]
    info = first.cluster_info()
    assert (info["cluster_known_nodes"], info["cluster_reachable_nodes"], info["cluster_size"]) == (3, 2, 3)
    assert info["cluster_stats_messages_received"] > 0
    lines = first.ask("CLUSTER", "NODES").decode().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 3 and all(len(line.split()) == 6 for line in lines)
    assert lines[0] == f"{first.id.decode()} 127.0.0.1:{first.port}@{first.bus_port} myself 0 0 connected"
    for node in three.nodes[1:]:
        assert any(
            line.startswith(f"{node.id.decode()} 127.0.0.1:{node.port}@{node.bus_port} noflags ") for line in lines
        )


def test_hello_lists_all_nodes_with_their_priorities(three: Cluster) -> None:
    def priorities() -> dict[bytes, bytes]:
        return {node[0]: node[3] for node in three.nodes[0].ask("HELLO")[2:]}  # type: ignore[index]

    assert three.nodes[0].ask("HELLO")[:2] == [1, three.nodes[0].id]  # type: ignore[index]
    assert priorities() == {node.id: b"1" for node in three.nodes}
    leaver = three.nodes[2]
    leaver.ask("CLUSTER", "LEAVING", "yes")
    wait_for(lambda: priorities()[leaver.id] == b"100")
    assert three.nodes[0].flags_of(leaver.id) == "leaving"
    leaver.ask("CLUSTER", "LEAVING", "no")
    three.gather()


def test_a_killed_node_is_suspected_and_has_its_peers_and_jobs_after_a_restart(three: Cluster) -> None:
    victim, others = three.nodes[2], three.nodes[:2]
    name = victim.id
    victim.ask("CLUSTER", "LEAVING", "yes")
    wait_for(lambda: [node.flags_of(name) for node in others] == ["leaving", "leaving"])
    with three.missing_soon():
        victim.kill()
        wait_for(lambda: [node.flags_of(name) for node in others] == ["fail,leaving", "fail,leaving"])
        # A failure report expires unless it is repeated in time, and it is repeated.
        wait_for(lambda: others[0].ask("CLUSTER", "COUNT-FAILURE-REPORTS", name) == 1)
    victim.start_again()
    assert victim.id == name and victim.ask("CLUSTER", "LEAVING") == b"yes"
    wait_for(lambda: victim.reaches() == 2 and others[0].flags_of(name) == "leaving")
    victim.ask("CLUSTER", "LEAVING", "no")
    three.gather()


def test_a_suspended_node_is_suspected_until_it_continues(three: Cluster) -> None:
    victim = three.nodes[1]
    name = victim.id
    with three.missing_soon():
        victim.stand_still()
        try:
            wait_for(lambda: three.nodes[0].flags_of(name) == "fail")
        finally:
            victim.go_on()
    three.gather()


def test_addresses_that_cannot_be_met_are_refused(three: Cluster) -> None:
    node = three.nodes[0]
    for words, refusal in (
        (["nowhere", 7711], "ERR Invalid node address specified: nowhere:7711"),
        (["0.0.0.0", 7711], "ERR Invalid node address specified: 0.0.0.0:7711"),
        (["127.0.0.1", 55_536], "ERR Invalid node address specified: 127.0.0.1:55536"),
        (["127.0.0.1", 7711, 65_536], "ERR Invalid node address specified: 127.0.0.1:7711 65536"),
        (["127.0.0.1", "-1"], "ERR Invalid TCP port specified: -1"),
        (
            ["10.0.0.1", 7711],
            "ERR without cluster-secret or tls-cluster, only nodes on the same machine can connect; set one of them",
        ),
    ):
        with pytest.raises(Refusal, match=refusal):
            node.ask("CLUSTER", "MEET", *words)
    with pytest.raises(Refusal, match="ERR Unknown node " + "f" * 40):
        node.ask("CLUSTER", "FORGET", "f" * 40)


# ---- Jobs ------------------------------------------------------------------------------------------------------------


def test_a_job_is_on_three_nodes_and_an_ack_on_any_removes_it_from_all(wires: list[Wire]) -> None:
    id = wires[0].add("three")
    assert all(wire.show(id)[b"repl"] == 3 and len(wire.show(id)[b"nodes-delivered"]) == 3 for wire in wires)
    assert [wire.state(id) for wire in wires] == [b"queued", b"active", b"active"]
    assert wires[0].get("three") == [id]
    assert wires[2].call("ACKJOB", id) == 1
    wait_for(lambda: [wire.state(id) for wire in wires] == [None, None, None])


def test_more_copies_than_nodes_are_refused(wires: list[Wire]) -> None:
    with pytest.raises(Refusal, match="NOREPL Not enough reachable nodes"):
        wires[0].call("ADDJOB", "q", "b", 0, "REPLICATE", 4)


def test_copies_are_made_for_a_producer_that_waits_for_a_millisecond(wires: list[Wire]) -> None:
    """This holds most of the time. A busy machine may take longer, so the test repeats it."""

    def made() -> int:
        answers = [wires[0].ask("ADDJOB", "hasty", "b", 1, "REPLICATE", 3) for _ in range(20)]
        return sum(answer.startswith(b"+D-") for answer in answers)

    wait_for(lambda: made() > 10)


def test_a_body_that_a_node_does_not_allow_costs_its_copy_and_no_link(three: Cluster, wires: list[Wire]) -> None:
    home, other, _ = wires
    before = int(three.nodes[1].cluster_info()["cluster_stats_refused"])
    with configured(other, "max-body", 1_000_000):
        with pytest.raises(Refusal, match="NOREPL"):
            home.call("ADDJOB", "large", bytes(2_000_000), 200, "REPLICATE", 3)
        id = home.add("large", bytes(2_000_000), "REPLICATE", 2)
        assert home.show(id)[b"state"] == b"queued"
        assert home.add("large", "small", "REPLICATE", 3)
    assert three.nodes[1].cluster_info()["cluster_stats_refused"] == before


def test_a_body_that_the_home_of_a_tube_does_not_allow_is_refused_through_another_node(
    three: Cluster, wires: list[Wire]
) -> None:
    home, other, _ = wires
    home.call("PUT", "small-bodies", "x")
    with configured(home, "max-body", 1_000_000):
        with pytest.raises(Refusal, match=r"^TOOBIG .* 1000000 bytes \(max_body\)"):
            other.call("PUT", "small-bodies", bytes(2_000_000))
        assert other.call("PUT", "small-bodies", "y")
    assert home.call("TUBE", "DROP", "small-bodies") == b"OK"


def test_copies_on_other_nodes_have_the_headers_of_the_job(three: Cluster, wires: list[Wire]) -> None:
    id = wires[0].call(
        "ADDJOB", "traced", "body", 1000, "REPLICATE", 3, "HEADER", "trace", b"\xff", "HEADER", "tenant", "ann"
    )
    for wire in wires:
        shown = wire.call("SHOW", id)
        assert dict(zip(shown[::2], shown[1::2]))[b"headers"] == [b"trace", b"\xff", b"tenant", b"ann"]
    taken = wires[1].call("GETJOB", "WITHHEADERS", "FROM", "traced")
    assert taken == [[b"traced", id, b"body", b"headers", [b"trace", b"\xff", b"tenant", b"ann"]]]
    assert wires[2].call("ACKJOB", id) == 1


def test_the_history_of_a_job_is_read_on_the_node_that_created_it(three: Cluster) -> None:
    first, second = three.nodes[:2]
    id = first.ask("ADDJOB", "history", "body", 1000, "REPLICATE", 1)
    # Rows are read when they are durable.
    wait_for(lambda: [event[5] for event in second.ask("JOB", "HISTORY", id)] == [b"put"])  # type: ignore
    assert second.ask("ACK", id) == 1  # type: ignore[arg-type]
    assert first.ask("SHOW", id) is None  # type: ignore[arg-type]


def test_all_messages_of_a_turn_to_a_peer_are_one_write(three: Cluster, wires: list[Wire]) -> None:
    before = three.nodes[0].cluster_info()
    for _ in range(200):
        wires[0].send("ADDJOB", "pipelined", "body", 0, "REPLICATE", 3, "ASYNC")
    for _ in range(200):
        assert wires[0].read().startswith(b"+D-")
    after = three.nodes[0].cluster_info()
    assert after["cluster_stats_sent_repljob"] - before.get("cluster_stats_sent_repljob", 0) >= 400
    assert after["cluster_stats_writes"] - before["cluster_stats_writes"] < 100


@pytest.mark.parametrize(("word", "expected"), [("ACKJOB", [2, 2, 2]), ("FASTACK", [0, 0, 2])])
def test_acks_take_as_many_messages_as_are_promised(
    three: Cluster, wires: list[Wire], word: str, expected: list[int]
) -> None:
    """The messages are SETACK, GOTACK and DELJOB, at three copies."""

    def said() -> list[int]:
        infos = [node.cluster_info() for node in three.nodes]
        kinds = [f"cluster_stats_sent_{kind}" for kind in ("setack", "gotack", "deljob")]
        return [sum(int(info.get(kind, 0)) for info in infos) for kind in kinds]

    def registered() -> list[int]:
        return [int(wire.info("jobs")["registered_jobs"]) for wire in wires]

    def count() -> list[int]:
        """Return the messages about one job, or nothing if it took so long that some may have been repeated."""
        there = registered()
        id = wires[0].add("counted")
        before, began = said(), time.monotonic()
        assert wires[0].call(word, id) == 1
        wait_for(lambda: all(wire.state(id) is None for wire in wires))
        wait_for(lambda: sum(said()) - sum(before) >= sum(expected))
        after, spent = said(), time.monotonic() - began
        # Messages that are still to come must not be counted with the next job.
        wait_for(lambda: all(now <= then for now, then in zip(registered(), there, strict=True)))
        return [now - then for now, then in zip(after, before, strict=True)] if spent < 1 else []

    assert wait_for(count) == expected


def test_a_rolling_restart_loses_nothing(three: Cluster) -> None:
    added: set[bytes] = set()
    for number, victim in enumerate(three.nodes):
        alive = three.nodes[number - 1]
        wire = Wire(alive.port)
        added |= {wire.add("rolling", f"{number}-{each}", "REPLICATE", 3) for each in range(20)}
        victim.kill()
        added |= {wire.add("rolling", f"{number}+{each}", "REPLICATE", 2) for each in range(20)}
        victim.start_again()
        wire.close()
        three.gather()
    assert all(sum(node.ask("SHOW", id) is not None for node in three.nodes) >= 2 for id in added)


def test_a_job_reaches_a_consumer_that_waits_on_another_node(wires: list[Wire]) -> None:
    """The median is within 100 ms while jobs come and go."""
    spent = []
    for number in range(21):
        wires[2].send("GETJOB", "TIMEOUT", 20_000, "FROM", "elsewhere")
        began = time.monotonic()
        id = wires[0].add("elsewhere", f"{number}", "REPLICATE", number % 3 + 1)
        (job,) = decoded(wires[2].read())
        spent.append(time.monotonic() - began)
        assert job == [b"elsewhere", id, b"%d" % number]
        assert wires[2].call("ACKJOB", id) == 1
        wait_for(lambda id=id: all(wire.state(id) is None for wire in wires))
    assert sorted(spent)[10] < 0.1


def test_a_node_that_leaves_under_load_hands_over_all_jobs(three: Cluster) -> None:
    leaver, others = three.nodes[2], three.nodes[:2]
    added, producers = [], [Wire(node.port) for node in three.nodes]
    for number in range(60):
        wire = producers[number % 3]
        added.append(
            wire.add("leaving", f"{number}", *(["RETRY", 0, "REPLICATE", 1] if number % 2 else ["REPLICATE", 2]))
        )
    leaver.ask("CLUSTER", "LEAVING", "yes")
    wait_for(lambda: [node.flags_of(leaver.id) for node in others] == ["leaving"] * 2)
    added += [wire.add("leaving", f"more {each}") for each in range(10) for wire in producers]
    wait_for(lambda: producers[2].info("jobs")["registered_jobs"] == "0")
    with pytest.raises(Refusal, match="LEAVING"):
        producers[2].call("GETJOB", "FROM", "leaving")
    found: list[bytes] = []
    while len(set(found)) < len(added):
        jobs = [
            job
            for wire in producers[:2]
            for job in wire.call("GETJOB", "TIMEOUT", 100, "COUNT", 50, "FROM", "leaving") or []
        ]
        found += [job[1] for job in jobs]
        for _, id, _ in jobs:
            producers[0].call("ACKJOB", id)
    assert sorted(found) == sorted(added), "each once"
    leaver.ask("CLUSTER", "LEAVING", "no")
    for wire in producers:
        wire.close()
    three.gather()


# ---- Clients ---------------------------------------------------------------------------------------------------------


def test_a_client_goes_to_another_node_when_its_own_leaves(three: Cluster) -> None:
    leaver = three.nodes[2]
    for node in three.nodes:
        with penstock.connect(f"penstock://127.0.0.1:{node.port}") as queue:
            queue.tube("followed", "disque")
    with penstock.connect(f"penstock://127.0.0.1:{leaver.port}") as queue:
        tube = queue.tube("followed", "disque")
        tube.put("first")
        held = tube.take()
        leaver.ask("CLUSTER", "LEAVING", "yes")
        taken: list[Any] = []
        waiting = threading.Thread(target=lambda: taken.append(tube.take(timeout=PATIENCE_S)))
        waiting.start()
        held.ack()  # The client finishes its job on this node.
        wait_for(lambda: queue.execute("CLUSTER", "MYID") != leaver.id)
        tube.put("second")
        waiting.join()
        assert [job.body for job in taken] == ["second"]
        taken[0].ack()
        leaver.ask("CLUSTER", "LEAVING", "no")
    three.gather()


def test_a_pipeline_goes_to_another_node_when_its_own_leaves(three: Cluster) -> None:
    leaver = three.nodes[2]
    for node in three.nodes:
        with penstock.connect(f"penstock://127.0.0.1:{node.port}") as queue:
            queue.tube("pipelined", "disque")
    try:
        with penstock.connect(f"penstock://127.0.0.1:{leaver.port}") as queue:
            tube = queue.tube("pipelined", "disque")
            tube.put("held")
            held = tube.take()
            leaver.ask("CLUSTER", "LEAVING", "yes")
            with queue.pipeline() as pipe:
                first = pipe.put(tube, "first")
                acked = pipe.ack(held)
                others = [pipe.put(tube, number) for number in range(2_000)]
            assert acked.value is None and queue.execute("CLUSTER", "MYID") != leaver.id
            assert len({first.value, *(answer.value for answer in others)}) == 2_001
            assert first.value[2:10] == queue.execute("CLUSTER", "MYID")[:8].decode()
            tube.truncate()
    finally:
        leaver.ask("CLUSTER", "LEAVING", "no")
    three.gather()


def where_it_goes(three: Cluster, tube: str, url: str) -> bytes:
    """Let a client of the first node take jobs that are put on the last one. Return the node that it ends up on."""
    maker = Wire(three.nodes[-1].port)
    for _ in range(200):
        maker.send("ADDJOB", tube, "body", 1000, "REPLICATE", 1)
    assert all(maker.read() for _ in range(200))
    with penstock.connect(url) as queue:
        taking = queue.tube(tube, "disque")
        assert queue.execute("CLUSTER", "MYID") == three.nodes[0].id
        for _ in range(105):
            job = taking.take(timeout=PATIENCE_S)
            assert job is not None
            job.ack()
        node: bytes = queue.execute("CLUSTER", "MYID")
    maker.call("GLOBAL", "EMPTY", tube)
    maker.close()
    return node


def test_a_client_goes_to_the_node_that_most_of_its_jobs_come_from(three: Cluster) -> None:
    all_of_them = "penstock://" + ",".join(f"127.0.0.1:{node.port}" for node in three.nodes)
    assert where_it_goes(three, "far", all_of_them) == three.nodes[-1].id
    assert where_it_goes(three, "named", f"penstock://127.0.0.1:{three.nodes[0].port}") == three.nodes[0].id


def test_a_client_for_asyncio_goes_there_too_and_not_while_it_holds_a_job(three: Cluster) -> None:
    last = three.nodes[-1]
    last.ask("TUBE", "CREATE", "later", "TYPE", "disque")

    async def take(holds: bool) -> bytes:
        async with penstock.connect_async(
            "penstock://" + ",".join(f"127.0.0.1:{node.port}" for node in three.nodes)
        ) as queue:
            tube = await queue.tube("later", "disque")
            for number in range(105):
                job = await tube.take(timeout=PATIENCE_S)
                assert job is not None
                if number or not holds:
                    await job.ack()
            node: bytes = await queue.execute("CLUSTER", "MYID")
            return node

    for holds, node in ((True, three.nodes[0]), (False, last)):
        with penstock.connect(f"penstock://127.0.0.1:{last.port}") as queue:
            queue.tube("later", "disque").put_many(["body"] * 200)
        assert asyncio.run(take(holds)) == node.id
    last.ask("GLOBAL", "EMPTY", "later")


def test_a_client_finds_another_node_when_its_own_is_gone(three: Cluster) -> None:
    async def go_on() -> bytes:
        async with penstock.connect_async(f"penstock://127.0.0.1:{three.nodes[1].port}") as queue:
            await queue.tubes()
            three.nodes[1].kill()
            await queue.tubes()
            return await queue.execute("CLUSTER", "MYID")

    try:
        assert asyncio.run(go_on()) in {three.nodes[0].id, three.nodes[2].id}
    finally:
        three.nodes[1].start_again()
    three.gather()


def test_the_command_line_sees_and_changes_the_cluster(three: Cluster, tmp_path: Path) -> None:
    first = three.nodes[0]
    # The node announces another address than the one at which it is met.
    announced = free_port()
    newcomer = Node(tmp_path / "newcomer", "--appendonly", "no", "--cluster-announce-port", str(announced))

    def penstock(*words: str, code: int = 0) -> str:
        url = f"penstock://127.0.0.1:{first.port}"
        result = CliRunner().invoke(app, ["cluster", *words, "--url", url], prog_name="penstock")
        assert result.exit_code == code, result.output
        return result.output

    try:
        assert penstock("check", "--json").count('"problem": ""') == 3
        met_at = f"127.0.0.1:{newcomer.port}@{newcomer.bus_port}"
        where = f"127.0.0.1:{announced}@{newcomer.bus_port}"
        assert penstock("meet", "--wait", "20s", met_at) == "the cluster has 4 nodes\n"
        assert penstock("nodes").count("connected") == 4
        name = newcomer.id.decode()
        wait_for(lambda: all(node.reaches() == 3 for node in (*three.nodes, newcomer)))
        newcomer.kill()
        problems = [line for line in penstock("check", code=1).splitlines() if "cannot be asked" in line]
        assert [line.split()[:2] for line in problems] == [[name, where]]
        # A node that refuses the command line is a separate problem. The other nodes are still asked.
        second = three.nodes[1].connect()
        with configured(second, "requirepass", "another password"):
            problems = [line for line in penstock("check", code=1).splitlines() if "cannot be asked" in line]
            assert len(problems) == 2 and "requires a password" in problems[0]
            asked = penstock("forget", name[:8], code=2)
            assert f"Remove {name} at {where}, which is unreachable, the home of 0 tubes?" in asked
            assert "confirm with --yes" in asked
            said = penstock("forget", name[:8], "--yes", code=1)
            assert f"2 nodes have removed {name}" in said and f"127.0.0.1:{three.nodes[1].port}" in said
        # A node with a password and without cluster-secret has no links.
        three.gather()
        assert f"3 nodes have removed {name}" in penstock("forget", name, "--yes")
        assert [node.cluster_info()["cluster_known_nodes"] for node in three.nodes] == [3, 3, 3]
        penstock("forget", name, "--yes", code=3)
        penstock("forget", name[:8], "--yes", code=3)
        other = three.nodes[1].id.decode()
        assert f"Remove {other} at " in (asked := penstock("forget", other, code=2))
        assert "which is running" in asked
        penstock("meet", "nowhere:7711", code=2)
        assert "127.0.0.1:9 did not join" in penstock("meet", "127.0.0.1:9@9", "--wait", "0s", code=5)
        assert "the node leaves" in penstock("leave", "--wait", "20s")
        assert "the node stays" in penstock("leave", "--stay")
        three.gather()
    finally:
        newcomer.stop()


def test_a_standby_gets_an_epoch_greater_than_every_nodes(three: Cluster) -> None:
    target, lost = Target(url=f"127.0.0.1:{three.nodes[0].port}"), "f" * 40
    with connect_to_node(target, {"flags": ["myself"]}) as queue:
        known = {node["node"]: node for node in list_nodes(queue) if "handshake" not in node["flags"]}
    # The last node that is asked has given this epoch to another standby.
    assert max(three.nodes, key=lambda node: node.id).ask("CLUSTER", "EPOCH", lost, 5) == 5
    epoch = RemainingNodes(target, lost, known).agree_on_next(1)
    assert epoch > 5 and [node.ask("CLUSTER", "EPOCH", lost) for node in three.nodes] == [epoch] * 3


# ---- Other clusters --------------------------------------------------------------------------------------------------


def test_seven_nodes_in_a_chain_become_a_mesh_and_two_may_go(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 7, "--appendonly", "no", chain=True) as seven:
        wires = [Wire(node.port) for node in seven.nodes]
        ids = [wire.add("seven", f"{number}", "REPLICATE", 7, "RETRY", 1) for number, wire in enumerate(wires)]
        assert all(len(wires[0].show(id)[b"nodes-delivered"]) == 7 for id in ids)
        for node in seven.nodes[5:]:
            node.kill()
        found: set[bytes] = set()
        while found != set(ids):
            for _, id, _ in wires[4].call("GETJOB", "TIMEOUT", 5_000, "COUNT", 7, "FROM", "seven") or []:
                found.add(id)
                wires[4].call("ACKJOB", id)
        for wire in wires:
            wire.close()


def test_two_nodes_with_copies_of_one_directory_are_reported(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2) as two:
        first, second = two.nodes
        first.kill()
        shutil.copytree(first.home, tmp_path / "copy")
        first.start_again()
        copy = Node(tmp_path / "copy")
        try:
            wait_for(lambda: f"node moved: node={first.id.decode()} address=127.0.0.1:" in second.log())
            wait_for(lambda: f"node id used twice: node={first.id.decode()} " in second.log())
        finally:
            copy.stop()
        two.gather()


def test_a_large_job_has_its_copies_though_logs_need_another_segment_for_it(three: Cluster) -> None:
    first, second, third = (node.connect() for node in three.nodes)
    id = first.call("ADDJOB", "long", bytes(40 << 20), 20_000, "REPLICATE", 3)
    assert [wire.state(id) for wire in (first, second, third)] == [b"queued", b"active", b"active"]
    assert first.call("FASTACK", id) == 1


def test_a_body_of_the_maximum_size_is_replicated(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2, "--max-body", "100mb", "--no-journal") as two:
        first, second = (node.connect() for node in two.nodes)
        body = bytes(90 << 20)
        id = first.call("ADDJOB", "huge", body, 30_000, "REPLICATE", 2)
        assert second.call("ACKJOB", id) == 1
        first.call("ADDJOB", "wanted", body, 0, "REPLICATE", 1)
        [[_, id, got]] = second.call("GETJOB", "TIMEOUT", 30_000, "FROM", "wanted")
        assert got == body and second.call("ACKJOB", id) == 1
        assert not any("unread messages exceed the limit" in node.log() for node in two.nodes)


def test_a_network_partition_loses_copies_but_no_jobs(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        proxies = [Proxy() for _ in range(3)]
        for proxy in proxies:
            stack.callback(proxy.close)
        three = stack.enter_context(cluster_of(tmp_path, 3, "--appendonly", "no", proxies=proxies))
        names = [node.id for node in three.nodes]
        wires = [stack.enter_context(contextlib.closing(Wire(node.port))) for node in three.nodes]
        before = wires[0].add("cut", "before", "REPLICATE", 3, "RETRY", 1)

        with three.missing_soon():
            proxies[0].silenced = {names[1], names[2]}
            proxies[1].silenced = proxies[2].silenced = {names[0]}
            wait_for(lambda: three.nodes[1].flags_of(names[0]) == "fail" and three.nodes[0].reaches() == 0)
        # If the machine was slow, the other node was suspected, too.
        wait_for(lambda: three.nodes[1].reaches() == 1)
        with pytest.raises(Refusal, match="NOREPL"):
            wires[0].call("ADDJOB", "cut", "body", 0, "REPLICATE", 2)
        alone = wires[0].add("cut", "alone")
        pair = wires[1].add("cut", "pair")
        assert [wires[0].show(alone)[b"repl"], wires[1].show(pair)[b"repl"]] == [1, 2], "as many as can be reached"

        for proxy in proxies:
            proxy.silenced = set()
        three.gather()
        found: set[bytes] = set()
        while found != {before, alone, pair}:
            for _, id, _ in wires[2].call("GETJOB", "TIMEOUT", 5_000, "COUNT", 10, "FROM", "cut") or []:
                found.add(id)
                wires[2].call("ACKJOB", id)
        wait_for(lambda: all(wire.state(id) is None for wire in wires for id in found))


def test_nodes_meet_over_ipv6_and_a_hard_reset_changes_the_id(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2, "--appendonly", "no", "--bind", "127.0.0.1 ::1", host="::1") as pair:
        first, second = pair.nodes
        before = second.id
        wire = Wire(first.port)
        id = wire.add("q", "body", "REPLICATE", 2)
        # Until the node has answered, its entry is the one that was made by CLUSTER MEET.
        shown = b"%s ::1:%d@%d noflags 0 " % (before, second.port, second.bus_port)
        wait_for(lambda: shown in first.ask("CLUSTER", "NODES"))  # type: ignore[operator]
        assert second.ask("CLUSTER", "RESET", "HARD") == b"OK"
        assert second.id != before and second.cluster_info()["cluster_known_nodes"] == 1
        assert second.ask("SHOW", id) is None and second.ask("INFO", "jobs") == b"# Jobs\r\nregistered_jobs:0\r\n"
        wait_for(lambda: first.flags_of(before) == "noaddr")
        url = ["--url", f"127.0.0.1:{first.port}"]
        checked = CliRunner().invoke(app, ["cluster", "check", *url])
        assert checked.exit_code == 1 and "cannot be asked: its address is not known" in checked.stdout
        other = f"[0:0:0:0:0:0:0:1]:{second.port}@{second.bus_port}"
        met = CliRunner().invoke(app, ["cluster", "meet", other, "--wait", "20s", *url])
        assert met.exit_code == 0, met.output
        wait_for(lambda: first.flags_of(second.id) == "noflags" and first.reaches() == 1)
        assert second.ask("SHOW", wire.add("q", "body", "REPLICATE", 2)) is not None
        wire.close()


def test_nodes_with_a_secret_talk_over_tls_and_others_do_not(tmp_path: Path, certificate: Path) -> None:
    tls = ["--tls-cluster", "yes", "--tls-cluster-ca-cert-file", str(certificate / "cert.pem")]
    tls += ["--tls-cluster-name", "localhost"]
    tls += ["--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem")]
    words = ["--cluster-secret", SECRET, "--appendonly", "no"]
    with cluster_of(tmp_path, 2, *words, *tls) as pair:
        plain = Node(tmp_path / "plain", *words)
        try:
            pair.nodes[0].meet(plain, plain.bus_port)
            wire = Wire(pair.nodes[0].port)
            id = wire.add("q", "body", "REPLICATE", 2)
            assert pair.nodes[1].ask("SHOW", id) is not None
            wire.close()
            # Connections are tried again and again without success.
            wait_for(lambda: plain.cluster_info()["cluster_stats_refused"] > 2)
            assert pair.nodes[0].cluster_info()["cluster_size"] == 2
            assert plain.cluster_info()["cluster_known_nodes"] == 1
        finally:
            plain.stop()


def test_the_first_steps_of_disque_work_with_redis_cli(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    """The set-up in Disque's documentation, line by line, with other ports."""
    needs(shutil.which("redis-cli"), "redis-cli is not installed")
    ports = [free_port() for _ in range(3)]
    servers = []
    for port in ports:
        home = tmp_path / str(port)
        home.mkdir()
        (home / "disque.conf").write_text(f"port {port}\ndir {home}\n")
        servers.append(Forked(["serve", "disque.conf"], home, home / "stdout", home / "stderr"))
    try:

        def disque(*words: object, typed: str = "") -> str:
            run = subprocess.run(
                ["redis-cli", *map(str, words)], input=typed, stdout=subprocess.PIPE, text=True, check=False
            )
            return run.stdout

        for port in ports:
            wait_for(lambda port=port: disque("-p", port, "ping") == "PONG\n")
        first, second, third = ports
        assert disque("-p", first, "cluster", "meet", "127.0.0.1", second) == "OK\n"
        assert disque("-p", first, "cluster", "meet", "127.0.0.1", third) == "OK\n"
        wait_for(lambda: "cluster_reachable_nodes:2" in disque("-p", second, "cluster", "info"))
        wait_for(lambda: "cluster_reachable_nodes:2" in disque("-p", first, "cluster", "info"))
        id = disque("-p", first, typed="ADDJOB queue body 0\n").strip()
        assert re.fullmatch(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-05a1", id)
        assert disque("-p", first, typed="GETJOB FROM queue\n").split() == ["queue", id, "body"]
        assert "repl\n3\n" in disque("-p", third, "show", id)
        assert disque("-p", second, "ackjob", id) == "1\n"
        wait_for(lambda: [disque("-p", port, "show", id).strip() for port in ports] == ["", "", ""])
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_S) == 0


def test_an_add_without_a_number_of_copies_does_not_wait_for_a_node_that_was_killed(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 3, "--fsync", "never") as three:
        wire = three.nodes[0].connect()
        wire.add("q")
        three.nodes[2].kill()
        began = time.monotonic()
        for _ in range(3):
            wire.add("q")
        # The node timeout of these tests is 10 s, so the killed node still counts as reachable.
        assert time.monotonic() - began < 5
        assert three.nodes[0].cluster_info()["cluster_adds_below_default"] >= 1
        assert len(wire.show(wire.add("q"))[b"nodes-delivered"]) == 2


def test_a_queue_that_is_named_first_gets_jobs_of_other_nodes(three: Cluster, wires: list[Wire]) -> None:
    """20 jobs of `first` are on another node, and `second` is never empty on this one."""
    consumer, other = wires[0], wires[1]
    wanted = {other.add("first of two", "body", "REPLICATE", 1, "RETRY", 600) for _ in range(20)}
    for _ in range(100):
        consumer.add("second of two", "body", "REPLICATE", 1, "RETRY", 600)

    def took_all() -> bool:
        [[queue, id, _]] = consumer.call("GETJOB", "FROM", "first of two", "second of two")
        consumer.call("ACKJOB", id)
        wanted.discard(id)
        if queue == b"second of two":
            consumer.add("second of two", "body", "REPLICATE", 1, "RETRY", 600)
        return not wanted

    wait_for(took_all)
    consumer.call("DEBUG", "FLUSHALL")


def test_a_node_without_consumers_forwards_jobs_pushed_by_a_leaving_node(tmp_path: Path) -> None:
    """One GETJOB was sent to node 1 before. The consumers wait on node 2."""
    with cluster_of(tmp_path, 3, "--fsync", "never") as nodes:
        leaving, between, last = nodes.nodes
        producer, idle, consumer = leaving.connect(), between.connect(), last.connect()
        assert idle.get("q", "TIMEOUT", 100) == []
        leaving.ask("CLUSTER", "LEAVING", "yes")
        wait_for(lambda: all("leaving" in (node.flags_of(leaving.id) or "") for node in (between, last)))
        added = set()
        for number in range(150):
            once = ["RETRY", 0] if number % 3 == 0 else ["RETRY", 600]
            added.add(producer.call("ADDJOB", "q", number, 0, "REPLICATE", 1, *once))
        while added:
            [[_, id, _]] = consumer.call("GETJOB", "TIMEOUT", 20_000, "FROM", "q")
            consumer.call("ACKJOB", id)
            added.discard(id)
        assert between.ask("QLEN", "q") == 0
        leaving.ask("CLUSTER", "LEAVING", "no")
