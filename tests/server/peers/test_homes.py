"""Tubes with a home in a cluster of real processes, used through any node."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.core.errors import NoHome

from ..bus_peers import SECRET
from ..bus_proxy import Proxy
from ..clustering import MISSED_MS, Cluster, Node, cluster_of
from ..iproto_wire import CALL_16, PING, IprotoWire, pack
from ..iproto_wire import Refusal as CallRefusal
from ..serving import Refusal, Wire, command, configured, decoded, pairs, wait_for


@pytest.fixture
def wires(three: Cluster) -> Iterator[list[Wire]]:
    """A connection to each of the three nodes."""
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
    # The owner is the session of the client on the other node.
    second = taken[1][b"id"]
    with pytest.raises(Refusal, match=r"^NOTOWNER"):
        third.call("ACK", second)
    assert other.call("BURY", second) == b"OK"
    assert third.call("KICK", "any", 5) == 1
    assert jobs(third.call("TAKE", "any", "TIMEOUT", "5s"))[0][b"id"] == second
    assert third.call("JOB", "HELD") == [second]
    assert third.call("RELEASE", second) == b"OK"
    assert other.call("JOB", "DELETE", "any#1") == 1
    assert other.call("TUBE", "DROP", "any") == b"OK"
    with pytest.raises(Refusal, match=r"^NOTUBE"):
        third.call("TAKE", "any")


def test_headers_pass_through_any_node(wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "traced", "TYPE", "fifo")
    other.call("PUT", "traced", "body", "HEADER", "trace", "abc")
    (job,) = jobs(third.call("TAKE", "traced", "HEADERS"))
    assert job[b"headers"] == [b"trace", b"abc"]
    assert third.call("ACK", job[b"id"]) == 1
    assert home.call("TUBE", "DROP", "traced") == b"OK"


def test_a_take_through_one_node_is_woken_by_a_put_through_another(three: Cluster, wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "woken", "TYPE", "fifottl")
    other.send("TAKE", "woken", "TIMEOUT", "20s")
    other.send("PING")
    wait_for(lambda: pairs(home.call("TUBE", "STATS", "woken"))[b"waiting"] == 1)
    listed = home.call("CLIENT", "LIST").decode()
    assert f"via={three.nodes[1].id.decode()}" in listed and "flags=b" in listed
    assert other.is_silent(third)
    id = third.call("PUT", "woken", "body")
    answer = decoded(other.read())
    assert jobs(answer)[0][b"id"] == id
    assert other.read() == b"+PONG\r\n"
    # A client that sends no more does not wait, and its commands are answered.
    other.send("TAKE", "woken", "TIMEOUT", "20s")
    other.socket.shutdown(socket.SHUT_WR)
    assert other.read() == b"*0\r\n" and other.read() == b""
    # The client is gone, and so is its session.
    assert jobs(third.call("TAKE", "woken", "TIMEOUT", "20s"))[0][b"id"] == id
    assert third.call("ACK", id) == 1


def test_acks_of_jobs_on_several_nodes_are_added_up(wires: list[Wire]) -> None:
    ids = [wire.call("PUT", f"sum{number}", "body") for number, wire in enumerate(wires) for _ in range(2)]
    third = wires[2]
    for number in range(3):
        assert len(third.call("TAKE", f"sum{number}", "COUNT", 2)) == 2
    assert sorted(third.call("JOB", "HELD")) == sorted(ids)
    assert third.call("ACK", *ids[:5]) == 5
    assert third.call("ACK", *ids[3:]) == 1
    assert third.call("ACK", ids[0], ids[5]) == 0
    assert third.call("JOB", "DELETE", *ids) == 0
    with pytest.raises(Refusal, match=r"^CROSSHOME tubes 'sum2' and 'sum0' are not on one node"):
        third.call("TAKE", "sum2", "AND", "sum0")


def test_disques_commands_work_on_tubes_of_other_nodes(wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "words", "TYPE", "fifottl")
    ids = [other.call("ADDJOB", "words", body, 0) for body in ("a", "b", "c")]
    assert third.call("QLEN", "words") == 3
    assert third.call("QPEEK", "words", -1)[0][1] == ids[2]
    taken = third.call("GETJOB", "COUNT", 3, "FROM", "words")
    assert [job[1] for job in taken] == ids
    assert third.call("ACKJOB", ids[0]) == 1 and third.call("NACK", *ids[1:]) == 2
    # A client that never took a job there acks as before: jobs of Disque's tubes, wherever they are.
    assert other.call("ACKJOB", ids[1]) == 0
    assert home.call("QLEN", "words") == 2


def test_sessions_and_their_grace_are_the_same_on_both_nodes(three: Cluster, wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "grace", "TYPE", "fifottl")
    id = home.call("PUT", "grace", "body")
    token = pairs(other.call("IDENTIFY", "GRACE", "20s"))[b"token"]
    assert len(other.call("TAKE", "grace")) == 1
    other.close()
    again = three.nodes[1].connect()
    assert pairs(again.call("IDENTIFY", token))[b"token"] == token
    assert again.call("JOB", "HELD") == [id]
    # The client closes its session, so its jobs go back at once on all nodes.
    again.call("IDENTIFY", "GRACE", "0")
    again.close()
    assert jobs(third.call("TAKE", "grace", "TIMEOUT", "10s"))[0][b"id"] == id


def test_long_bodies_are_forwarded_and_slow_readers_delay_no_other_client(three: Cluster, wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "long")
    body = bytes(range(256)) * 8 * 1024  # 2 MiB, which is more than the window of a tunnel.
    for _ in range(6):
        third.call("PUT", "long", body)
    slow = three.nodes[1].connect()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    slow.send("TAKE", "long", "COUNT", 6)
    wait_for(lambda: home.call("QLEN", "long") == 0)
    # This uses the same link, while the other client's reply waits.
    for number in range(100):
        other.call("PUT", "long", number)
    waits = [int(found) for found in re.findall(r" omem=(\d+) .* via=", home.call("CLIENT", "LIST").decode())]
    assert max(waits) > 0
    assert [job[b"body"] for job in jobs(decoded(slow.read()))] == [body] * 6
    slow.send_raw(b"".join(command("PUT", "long", number) for number in range(500)))
    assert len({slow.read() for _ in range(500)}) == 500


def test_stages_and_consumers_are_found_on_whichever_node_they_are(wires: list[Wire]) -> None:
    home, other, third = wires
    home.call("TUBE", "CREATE", "staged")
    third.call("TUBE", "CREATE", "elsewhere")
    assert other.call("STAGE", "s1", "staged", "JOB", "a", "JOB", "b") == 2
    with pytest.raises(Refusal, match=r"^CROSSHOME stage 's1' has jobs on another node"):
        other.call("STAGE", "s1", "elsewhere", "JOB", "c")
    assert third.call("PUBLISHONCE", "mark", "s1") == 2
    assert other.call("PUBLISHONCE", "mark", "s2") == 2
    assert other.call("DISCARD", "nosuch") == 0
    with pytest.raises(Refusal, match=r"^NOSTAGE"):
        other.call("PUBLISH", "nosuch")
    assert other.call("CLAIM", "TAKE", "staged", "reader", 1, "SIZE")[0] == 2
    assert len(third.call("CLAIM", "READ", "reader", 1)) == 2
    assert third.call("CLAIM", "ACK", "reader", 1) == 2
    assert pairs(other.call("CLAIM", "INFO", "reader"))[b"acked"] == 1
    assert pairs(other.call("CLAIM", "INFO", "nobody"))[b"acked"] == 0


def test_the_python_client_uses_any_node(three: Cluster, wires: list[Wire]) -> None:
    wires[0].call("TUBE", "CREATE", "python", "TYPE", "fifottl")
    urls = [f"penstock://127.0.0.1:{node.port}" for node in three.nodes]
    with penstock.connect(urls[1]) as producer, penstock.connect(urls[2]) as consumer:
        jobs = [producer.tube("python").put(str(number)) for number in range(5)]
        tube = consumer.tube("python")
        for number in range(4):
            with tube.take(timeout=10) as job:
                assert job is not None and job.body == str(number)
        last = tube.take(timeout=10)
        assert last is not None and last.id == jobs[-1].id
    # The client has closed its session, so its job is available at once.
    assert len(wires[1].call("TAKE", "python", "TIMEOUT", "10s")) == 1


# ---- Functions by name -----------------------------------------------------------------------------------------------


def test_calls_over_iproto_go_to_the_home_and_many_at_a_time(three: Cluster, wires: list[Wire]) -> None:
    wires[0].call("TUBE", "CREATE", "calls", "TYPE", "fifottl")
    other, third = (IprotoWire(node.iproto_port) for node in three.nodes[1:])
    assert other.call("queue.tube", "calls") == [True]
    takes = [other.start("queue.tube.calls:take", 20) for _ in range(3)]
    assert other.ask(PING)[0] == 0
    wait_for(lambda: pairs(wires[0].call("TUBE", "STATS", "calls"))[b"waiting"] == 3)
    puts = [third.call("queue.tube.calls:put", {"n": number})[0] for number in range(3)]
    assert puts == [[number, "r", {"n": number}] for number in range(3)]
    assert [other.result(sync) for sync in takes] == [[[number, "t", {"n": number}]] for number in range(3)]
    assert other.call("queue.tube.calls:ack", 0) == [[0, "-", {"n": 0}]]
    with pytest.raises(CallRefusal, match="Task was not taken"):
        third.call("queue.tube.calls:ack", 1)
    assert other.call("queue.tube.calls:bury", 1)[0][1] == "!"
    assert third.call("queue.tube.calls:kick", 1) == [1]
    assert third.call("queue.statistics", "calls")[0]["tasks"]["taken"] == 1
    assert [row[0] for row in third.call("box.space.calls:select", [1], {"iterator": "GE"})[0]] == [1, 2]
    assert [row[0] for row in third.call("box.space.calls.index.status:select", ["t"])[0]] == [2]
    # RESP has the same functions. This is the old form of a call.
    assert msgpack.unpackb(wires[1].call("CALL", "queue.tube.calls:peek", pack(2))[0])[0][1] == "t"
    assert other.call("queue.tube.calls:release", 2, code=CALL_16) == [[2, "r", {"n": 2}]]
    # More concurrent calls than the window of a tunnel holds.
    syncs = [other.start("queue.tube.calls:put", bytes([number]) * 1_000_000) for number in range(6)]
    assert [other.result(sync)[0][1] for sync in reversed(syncs)] == ["r"] * 6
    assert other.call("queue.tube.calls:take", 20)[0][1] == "t"
    other.close()
    assert len(wires[2].call("TAKE", "calls", "COUNT", 3, "TIMEOUT", "10s")) > 0
    third.close()


def test_a_field_is_added_to_a_space_through_any_node(three: Cluster) -> None:
    """The home of the space decides about its format."""
    format = [{"name": "id", "type": "unsigned"}, {"name": "status", "type": "string"}, {"name": "data"}]
    first, other, third = (IprotoWire(node.iproto_port) for node in three.nodes)
    first.call("xqueue.upgrade", "rows", {"format": format, "fields": {"status": "status"}})
    other.call("box.space.rows:put", {"data": {"note": 1}})
    other.call("box.space.rows:format", [*format, {"name": "note", "is_nullable": True}])
    third.call("box.space.rows:put", {"data": 2, "note": 3})
    told, changed = third.call("xqueue.upgrade", "rows", {"format": other.call("box.space.rows:format")[0]})
    assert [field["name"] for field in told["format"]] == ["id", "status", "data", "note"] and changed == {}
    for wire in (first, other, third):
        assert wire.call("box.space.rows:select") == [[[1, "R", {"note": 1}, None], [2, "R", 2, 3]]]
        with pytest.raises(CallRefusal, match="Can't modify space 'rows': field 'note' is missing"):
            wire.call("xqueue.upgrade", "rows", {"format": format})
        wire.close()


def test_a_client_that_half_closes_still_creates_its_tube(three: Cluster) -> None:
    with socket.create_connection(("127.0.0.1", three.nodes[1].port), timeout=20) as connection:
        connection.sendall(b"PUT piped body\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile("rb").read().startswith(b"$40\r\nD-")


def test_a_tube_is_made_by_the_first_put_and_by_create_tube_through_any_node(three: Cluster) -> None:
    other = IprotoWire(three.nodes[1].iproto_port)
    assert other.call("queue.create_tube", "made", "utube", {"if_not_exists": True})[0]["type"] == "utube"
    third = IprotoWire(three.nodes[2].iproto_port)
    assert third.call("queue.create_tube", "made", "utube", {"if_not_exists": True})[0]["name"] == "made"
    with pytest.raises(CallRefusal, match="already exists"):
        third.call("queue.create_tube", "made", "utube")
    assert third.call("queue.tube.made:put", "x", {"utube": "a"})[0][0] == 0
    assert other.call("queue.tube.made:take", 0) == [[0, "t", "x"]]
    old = IprotoWire(three.nodes[0].iproto15_port)
    task = old.call("queue.put", 0, "old", 0, 0, 0, 128, "data")[0]
    other_old = IprotoWire(three.nodes[1].iproto15_port)
    assert other_old.call("queue.take", 0, "old", 20)[0][:3] == [task[0], "old", "taken"]
    assert other_old.call("queue.ack", 0, task[0])[0][0] == task[0]
    for wire in (other, third, old, other_old):
        wire.close()


# ---- Faults ----------------------------------------------------------------------------------------------------------


def test_without_its_home_a_tube_is_refused_by_name_and_with_it_all_is_as_before(three: Cluster) -> None:
    home, entry, third = three.nodes
    id_of_home = home.id.decode()
    where = f"lives on node {id_of_home} at 127.0.0.1:{home.port}, which "
    home.ask("TUBE", "CREATE", "lost", "TYPE", "fifottl")
    id = home.ask("PUT", "lost", "body")
    wire, waiting = entry.connect(), entry.connect()
    call = IprotoWire(entry.iproto_port)
    assert len(wire.call("TAKE", "lost")) == 1
    waiting.send("TAKE", "lost", "TIMEOUT", "60s")
    sync = call.start("queue.tube.lost:take", 60)
    wait_for(lambda: pairs(home.ask("TUBE", "STATS", "lost"))[b"waiting"] == 2)  # type: ignore[arg-type]
    # Another tube is being created there, and waits for the third node's vote.
    known = int(entry.cluster_info()["cluster_homes_elsewhere"])
    third.stand_still()
    home.connect().send("TUBE", "CREATE", "never")
    wait_for(lambda: entry.cluster_info()["cluster_homes_elsewhere"] == known + 1)
    home.kill()
    third.go_on()
    with pytest.raises(
        Refusal, match=f"^NOHOME tube 'lost' {where}cannot be reached; the command may have been executed$"
    ):
        raise decoded(waiting.read())
    with pytest.raises(CallRefusal, match=f"tube 'lost' {where}cannot be reached"):
        call.result(sync)
    for words in (["PUT", "lost", "more"], ["ACK", id], ["TUBE", "CREATE", "lost"], ["ADDJOB", "lost", "more", 0]):
        with pytest.raises(Refusal, match=f"^NOHOME (tube 'lost'|job '{id[:8].decode()}.*) {where}cannot be reached$"):  # type: ignore[index]
            wire.call(*words)
    perhaps = f"tube 'never' may not exist: node {id_of_home} at 127.0.0.1:{home.port}, which was creating it, "
    with pytest.raises(Refusal, match=f"{perhaps}cannot be reached; .* penstock cluster forget {id_of_home}$"):
        wire.call("PUT", "never", "more")
    # A node that was started meanwhile refuses it, too. No node creates it again unless its home is lost for good.
    third.kill()
    third.start_again()
    with pytest.raises(Refusal, match=f"^NOHOME tube 'lost' {where}cannot be reached"):
        third.connect().call("PUT", "lost", "more")
    home.start_again()
    three.gather()
    wait_for(lambda: _is_there(wire, "lost"))
    assert jobs(wire.call("TAKE", "lost", "TIMEOUT", "20s"))[0][b"id"] == id
    assert call.call("queue.tube.lost:put", 1)[0][1] == "r"
    assert wire.call("ACK", id) == 1
    assert wire.call("PUT", "never", "made now")
    call.close()


def _is_there(wire: Wire, tube: str) -> bool:
    return wire.ask("TUBE", "INFO", tube)[:1] != b"-"


def test_commands_to_a_suspended_home_fail_in_time(three: Cluster) -> None:
    home, entry, _ = three.nodes
    home.ask("TUBE", "CREATE", "still")
    wire = entry.connect()
    assert _is_there(wire, "still")
    home.stand_still()
    try:
        # The timeout is shortened while the command is running, because the link has to be up at its start.
        wire.send("PUT", "still", "perhaps")
        with configured(entry.connect(), "cluster-node-timeout", MISSED_MS):
            began = time.monotonic()
            assert re.match(
                rb"-NOHOME tube 'still' lives on node .*, which cannot be reached; the command may have been executed",
                wire.read(),
            )
            assert time.monotonic() - began < 3 * MISSED_MS / 1000
    finally:
        home.go_on()
    three.gather()
    wait_for(lambda: _is_there(wire, "still"))
    # The command was run once, or not at all.
    assert wire.call("QLEN", "still") <= 1


def test_a_leaving_home_does_not_redirect_clients_of_other_nodes(three: Cluster) -> None:
    home, entry, _ = three.nodes
    home.ask("TUBE", "CREATE", "left")
    why = f"^NOHOME the tube lives on node {home.id.decode()}, which is leaving the cluster"
    wire, call = entry.connect(), IprotoWire(entry.iproto_port)
    wire.send("TAKE", "left", "TIMEOUT", "60s")
    wait_for(lambda: pairs(home.ask("TUBE", "STATS", "left"))[b"waiting"] == 1)  # type: ignore[arg-type]
    try:
        home.ask("CLUSTER", "LEAVING", "yes")
        with pytest.raises(Refusal, match=why):
            raise decoded(wire.read())
        for words in (["PUT", "left", "more"], ["TAKE", "left", "TIMEOUT", "60s"], ["GETJOB", "FROM", "left"]):
            with pytest.raises(Refusal, match=why):
                wire.call(*words)
        for function, argument in (("put", "more"), ("take", 60)):
            with pytest.raises(CallRefusal, match=why.removeprefix("^NOHOME ")):
                call.call(f"queue.tube.left:{function}", argument)
        with pytest.raises(Refusal, match=r"^LEAVING This node is leaving the cluster"):
            home.ask("PUT", "left", "more")
        url = f"penstock://127.0.0.1:{home.port}"
        said = CliRunner().invoke(app, ["cluster", "leave", "--url", url, "--json"], prog_name="penstock").stdout
        assert "left" in json.loads(said)["tubes"]
        # A client that gets this error goes to another node, and no further.
        with penstock.connect(url) as queue, pytest.raises(NoHome):
            queue.tube("left").put("more")
    finally:
        home.ask("CLUSTER", "LEAVING", "no")
        call.close()
        wire.close()
    three.gather()


def test_a_command_whose_reply_cannot_arrive_is_refused(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        proxies = [Proxy() for _ in range(2)]
        for proxy in proxies:
            stack.callback(proxy.close)
        entry, home = stack.enter_context(cluster_of(tmp_path, 2, proxies=proxies)).nodes
        to_entry = proxies[0]
        home.ask("TUBE", "CREATE", "strict")
        wire = entry.connect()
        wait_for(lambda: _is_there(wire, "strict"))
        muted = entry.connect()
        muted.send("CLIENT", "REPLY", "SKIP")
        for each in (muted, wire):
            each.send("TAKE", "strict", "TIMEOUT", "60s")
        wait_for(lambda: pairs(home.ask("TUBE", "STATS", "strict"))[b"waiting"] == 2)  # type: ignore[arg-type]
        # The home can receive, but cannot answer, so nothing is forwarded.
        to_entry.cut()
        assert b"cannot be reached; the command may have been executed" in wire.read()
        with pytest.raises(Refusal, match=r"^NOHOME tube 'strict' lives on node .*, which cannot be reached$"):
            wire.call("PUT", "strict", "body")
        # A client with replies switched off gets no error either.
        assert muted.call("PING") == b"PONG"
        to_entry.mend()
        wait_for(lambda: _is_there(wire, "strict"))
        assert home.ask("QLEN", "strict") == 0
        # The same, but the entry node has not noticed. This ends when the home connects again.
        to_entry.cut(quietly=True)
        wait_for(lambda: home.cluster_info()["cluster_tunnels_in"] == 0)
        other = entry.connect()
        other.send("PUT", "strict", "body")
        wait_for(lambda: home.ask("QLEN", "strict") == 1)
        to_entry.mend()
        assert b"cannot be reached; the command may have been executed" in other.read()
        wait_for(lambda: home.cluster_info()["cluster_tunnels_in"] == 0)
        wait_for(lambda: _is_there(other, "strict"))


def test_homes_are_listed_and_counted(three: Cluster, wires: list[Wire]) -> None:
    first, second, _ = three.nodes
    wires[0].call("TUBE", "CREATE", "listed")
    listed = [b"listed", first.id, 0]
    for wire in wires:
        # The other nodes have voted for it before, and now learn that it was created.
        wait_for(lambda wire=wire: listed in wire.call("CLUSTER", "HOMES"))
    assert second.cluster_info()["cluster_homes_elsewhere"] > 0
    url = f"penstock://127.0.0.1:{second.port}"
    shown = CliRunner().invoke(app, ["cluster", "homes", "--url", url, "--json"], prog_name="penstock")
    row = {"tube": "listed", "node": first.id.decode(), "epoch": 0, "address": f"127.0.0.1:{first.port}"}
    assert row in [json.loads(line) for line in shown.stdout.splitlines()]


# ---- Strangers -------------------------------------------------------------------------------------------------------


def test_permissions_hold_through_other_nodes_and_two_homes_are_reported(tmp_path: Path) -> None:
    users = ["--user", "ann", "password:a", "commands:read,write", "tubes:mail*", "--requirepass", "r"]
    users += ["--cluster-secret", SECRET]
    with contextlib.ExitStack() as stack:
        nodes = [Node(tmp_path / name, *users) for name in ("n0", "n1")]
        for node in nodes:
            node._password = "r"
            stack.callback(node.stop)
        roots = [node.connect() for node in nodes]
        for root in roots:
            root.call("TUBE", "CREATE", "mail both")
        roots[0].call("PUT", "mail", "body")
        roots[0].call("PUT", "secret", "body")
        roots[0].call("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1].bus_port)
        # Homes are announced on a link in one direction. Commands need links in both.
        wait_for(lambda: all(b"cluster_reachable_nodes:1\r\n" in root.call("CLUSTER", "INFO") for root in roots))
        wait_for(lambda: all(len(root.call("CLUSTER", "HOMES")) == 4 for root in roots))
        ann = nodes[1].connect()
        ann.call("AUTH", "ann", "a")
        assert ann.call("HELLO", 3)[b"proto"] == 3
        assert ann.call("TAKE", "mail")[0][b"body"] == b"body"
        assert b"user=ann " in roots[0].call("CLIENT", "LIST")
        for words in (["TAKE", "secret"], ["TUBE", "DROP", "mail"]):
            with pytest.raises(Refusal, match=r"^NOPERM"):
                ann.call(*words)
        # Both nodes keep the tubes that they created before they met, and report it.
        for node, root in zip(nodes, roots, strict=True):
            assert b"cluster_homes_disputed:1\r\n" in root.call("CLUSTER", "INFO")
            warning = "warning tube has two homes, because it was created before the nodes met: tube='mail both' "
            assert f"{warning}other_home=node" in node.log()
        url = f"penstock://:r@127.0.0.1:{nodes[0].port}"
        checked = CliRunner().invoke(app, ["cluster", "check", "--url", url], prog_name="penstock")
        assert checked.exit_code == 1 and "also have a home on another node" in checked.stdout
