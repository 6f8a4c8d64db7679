"""pydisque, a Disque client that uses redis-py: all of its methods."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pydisque.client
import pytest
import redis

from ..serving import Server, is_left

# pydisque retries a refused command twice, and logs it with the root logger each time.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pydisque")


@pytest.fixture
def client(server: Server) -> Iterator[pydisque.client.Client]:
    client = pydisque.client.Client([f"127.0.0.1:{server.port}"])
    client.connect()
    yield client
    client.get_connection().connection_pool.disconnect()


Client = pydisque.client.Client


@pytest.fixture
def name(queue: bytes) -> str:
    return queue.decode()


def test_pydisque_connects_and_has_the_node(server: Server, client: Client) -> None:
    client.execute_command("DEBUG", "FLUSHALL")  # Queues that other tests have paused would be shown.
    hello = client.hello()
    assert client.connected_node.node_id == hello[1]
    assert hello == [1, hello[1], [hello[1], b"127.0.0.1", str(server.port).encode(), b"1"]]


def test_add_get_and_ack(client: Client, name: str) -> None:
    id = client.add_job(name, "hello")
    assert client.qlen(name) == 1
    # pydisque calls the first element the queue's name.
    assert client.get_job([name]) == [(name.encode(), id, b"hello")]
    assert client.ack_job(id) is None
    assert client.get_job([name], nohang=True) == []
    assert client.get_job([name], timeout=1) == []
    assert client.show(id) is None


def test_all_options_of_add_and_get(client: Client, name: str) -> None:
    began = time.monotonic()
    id = client.add_job(name, "a", timeout=100, replicate=1, retry=7, ttl=70, maxlen=5, asynchronous=True)
    shown = client.show(id, return_dict=True)
    assert (shown[b"retry"], shown[b"repl"]) == (7, 1) and is_left(shown[b"ttl"] * 1000, 70, began)
    delayed = client.add_job(name, "b", delay=60)
    assert client.show(delayed, return_dict=True)[b"delay"] == 60
    more = client.add_job(name, "c")
    got = client.get_job([name, name + "2"], timeout=100, count=5, nohang=True, withcounters=True)
    assert got == [(name.encode(), id, b"a", 0, 0), (name.encode(), more, b"c", 0, 0)]


def test_nack_working_and_fast_ack(client: Client, name: str) -> None:
    id = client.add_job(name, "", retry=9)
    client.get_job([name])
    assert client.working(id) == 9
    client.nack_job(id)
    assert client.get_job([name], withcounters=True) == [(name.encode(), id, b"", 1, 0)]
    client.fast_ack(id)
    assert client.show(id) is None


def test_enqueue_dequeue_and_del(client: Client, name: str) -> None:
    ids = [client.add_job(name, str(number)) for number in range(3)]
    assert client.dequeue(*ids) == 3
    assert client.enqueue(*ids) == 3
    assert client.del_job(*ids) == 3
    assert client.qlen(name) == 0


def test_qstat_qpeek_show(client: Client, name: str) -> None:
    ids = [client.add_job(name, str(number)) for number in range(3)]
    stat = client.qstat(name, return_dict=True)
    assert (stat[b"name"], stat[b"len"], stat[b"pause"], stat[b"import-from"]) == (name.encode(), 3, b"none", [])
    assert len(client.qstat(name)) == 20
    assert [job[1] for job in client.qpeek(name, 2)] == ids[:2]
    assert [job[1] for job in client.qpeek(name, -2)] == ids[:0:-1]
    assert len(client.show(ids[0])) == 30
    assert client.show(ids[0], return_dict=True)[b"body"] == b"0"


def test_pause(client: Client, name: str) -> None:
    assert client.pause(name, kw_in=True) == b"in"
    with pytest.raises(redis.ResponseError, match="PAUSED"):
        client.add_job(name, "")
    assert client.pause(name, kw_out=True) == b"out"
    assert client.pause(name, kw_all=True, kw_bcast=True) == b"all"
    assert client.pause(name, kw_state=True) == b"all"
    assert client.pause(name, kw_none=True) == b"none"
    client.add_job(name, "")


def test_scans(client: Client, name: str) -> None:
    ids = [client.add_job(name, str(number)) for number in range(3)]
    cursor, names = client.qscan(count=1_000, busyloop=True, minlen=3, maxlen=3)
    assert cursor == b"0" and name.encode() in names
    assert client.qscan(importrate=1)[1] == []
    cursor, found = client.jscan(count=1_000, queue=name, state=["queued", "active"], reply="id")
    assert (cursor, sorted(found)) == (b"0", sorted(ids))
    assert len(client.jscan(queue=name, busyloop=True, reply="all")[1]) == 3
    cursor, seen = 0, []
    while True:
        cursor, page = client.jscan(cursor, count=1, queue=name)
        seen += page
        if cursor == b"0":
            break
    assert set(seen) == set(ids)


def test_info(server: Server, client: Client) -> None:
    told = client.info()
    assert told["tcp_port"] == server.port
    assert told["registered_jobs"] >= 0


def test_a_refusal_comes_through(client: Client, name: str) -> None:
    with pytest.raises(redis.ResponseError, match="NOREPL"):
        client.add_job(name, "", replicate=3)
    with pytest.raises(redis.ResponseError, match="BADID"):
        client.ack_job("x")
    assert client.qlen(name) == 0
