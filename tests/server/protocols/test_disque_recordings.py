"""Recorded sessions of Disque clients that cannot be run today: disq, and a transcript."""

from __future__ import annotations

import re
import time

import pytest

from ..serving import Server, Wire, bulks, command, decoded

# A session with Disque itself, one exchange per line. A space stands for CRLF, # for any number, and names in capitals
# for values that differ between nodes. The recorded cluster had two nodes; replies that differ for one node are marked.
TRANSCRIPT = """
C *1 $5 HELLO
S *3 :1 $40 NODE *4 $40 NODE $9 127.0.0.1 PORT $1 1                                                        (one node)
C *8 $6 ADDJOB $2 pq $5 hello $3 200 $5 RETRY $1 5 $3 TTL $2 60
S +JOB
C *2 $4 QLEN $2 pq
S :1
C *3 $5 QPEEK $2 pq $1 1
S *1 *3 $2 pq $40 JOB $5 hello
C *4 $6 GETJOB $12 WITHCOUNTERS $4 FROM $2 pq
S *1 *7 $2 pq $40 JOB $5 hello $5 nacks :0 $21 additional-deliveries :0
C *2 $4 NACK $40 JOB
S :1
C *8 $6 GETJOB $6 NOHANG $7 TIMEOUT $3 100 $5 COUNT $1 5 $4 FROM $2 pq
S *1 *3 $2 pq $40 JOB $5 hello
C *2 $7 WORKING $40 JOB
S :5
C *2 $4 SHOW $40 JOB
S *30 $2 id $40 JOB $5 queue $2 pq $5 state $6 active $4 repl :1 $3 ttl :# $5 ctime :# $5 delay :0 $5 retry :5 \
$5 nacks :1 $21 additional-deliveries :0 $15 nodes-delivered *1 $40 NODE $15 nodes-confirmed *0 \
$19 next-requeue-within :# $17 next-awake-within :# $4 body $5 hello                                      (one node)
C *2 $5 QSTAT $2 pq
S *20 $4 name $2 pq $3 len :0 $3 age :# $4 idle :# $7 blocked :0 $11 import-from *0 $11 import-rate :0 \
$7 jobs-in :2 $8 jobs-out :2 $5 pause $4 none
C *2 $6 ACKJOB $40 JOB
S :1
C *3 $5 PAUSE $2 pq $2 in
S +in
C *2 $5 QSCAN $1 0
S *2 $1 0 *1 $2 pq                                                                                         (one node)
C *2 $5 JSCAN $1 0
S *2 $1 0 *0
C *5 $6 GETJOB $7 TIMEOUT $2 50 $4 FROM $2 pq
S *-1
C *2 $4 SHOW $40 D-deadbeef-AAAAAAAAAAAAAAAAAAAAAAAA-05a1
S $-1
"""


def test_a_session_with_disque_is_answered_byte_for_byte(server: Server, wire: Wire) -> None:
    wire.call("DEBUG", "FLUSHALL")
    port = str(server.port)
    known = {b"NODE": wire.call("CLUSTER", "MYID"), b"PORT": b"$%d %s" % (len(port), port.encode())}
    for line in TRANSCRIPT.strip().splitlines():
        who, said = line.partition("(one node)")[0].strip().encode().split(b" ", 1)
        for name, value in known.items():
            said = re.sub(rb"\b%s\b" % name, value, said)
        said = said.replace(b" ", b"\r\n") + b"\r\n"
        if who == b"C":
            wire.send_raw(said)
            continue
        answer = wire.read()
        if said == b"+JOB\r\n":
            known[b"JOB"] = answer[1:-2]
            assert re.fullmatch(rb"D-%s-[A-Za-z0-9+/]{24}-0001" % known[b"NODE"][:8], known[b"JOB"])
        else:
            assert re.fullmatch(re.escape(said).replace(rb"\#", rb"\d+"), answer), answer


def test_its_line_of_cluster_nodes_has_six_fields(server: Server, wire: Wire) -> None:
    wire.call("DEBUG", "FLUSHALL")  # Queues that other tests have paused would be shown.
    node = wire.call("CLUSTER", "MYID")
    # If the bus port is not the usual one, it follows the other port.
    line = b"%s 127.0.0.1:%d@%d myself 0 0 connected\n" % (node, server.port, server.bus_port)
    assert wire.ask("CLUSTER", "NODES") == b"$%d\r\n%s\r\n" % (len(line), line)


@pytest.fixture
def disq(wire: Wire) -> Wire:
    """The connection that disq opens in its constructor, to the address of the node in HELLO."""
    version, node, *nodes = wire.call("HELLO")
    assert version == 1
    pools = {id[:8]: (host.decode(), int(port)) for id, host, port, _ in nodes}
    host, port = pools[node[:8]]
    assert host == "127.0.0.1"
    return Wire(port)


def test_the_exchange_of_disq(disq: Wire, queue: bytes) -> None:
    """The requests of disq 0.0.4, over a redis-py that sends nothing when it connects, and how it reads the replies."""
    disq.send_raw(command("ADDJOB", queue, "job", "0"))
    id = disq.read()
    assert id[:1] == b"+" and len(id[1:-2].decode()) == 40
    id = id[1:-2]
    assert disq.ask("QLEN", queue) == b":1\r\n"
    disq.send_raw(command("GETJOB", "TIMEOUT", "200", "COUNT", "3", "FROM", queue))
    assert disq.read() == b"*1\r\n" + bulks(queue, id, "job")
    assert disq.ask("ACKJOB", id) == b":1\r\n"
    disq.send_raw(command("ADDJOB", queue, "job", "200", "RETRY", "1", "TTL", "60", "ASYNC"))
    id = disq.read()[1:-2]
    assert disq.ask("FASTACK", id) == b":1\r\n"
    disq.send_raw(command("GETJOB", "TIMEOUT", "1", "COUNT", "1", "FROM", queue))
    assert disq.read() == b"*-1\r\n"
    # disq chooses its node by the first characters of the ids that it gets.
    assert id[2:10] == disq.call("CLUSTER", "MYID")[:8]
    [line] = disq.call("CLUSTER", "NODES").decode().splitlines()
    assert len(line.split(" ")) == 6
    seconds, us = (int(each) for each in disq.call("TIME"))
    assert abs(seconds + us / 1e6 - time.time()) < 5
    names = decoded(disq.ask("CONFIG", "GET", "*"))
    assert len(names) % 2 == 0
    told = [line for line in disq.call("INFO").decode().splitlines() if line and not line.startswith("#")]
    assert all(":" in line for line in told)
    disq.close()
