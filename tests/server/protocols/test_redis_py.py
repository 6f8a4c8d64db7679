"""redis-py with RESP3, its default, and RESP2: threads, asyncio, pipelines, pools and passwords."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..serving import PATIENCE_S, Server, Wire, pairs, wait_for

NO_SUCH_JOB = "D-deadbeef-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"

# The default version of RESP in redis-py, and the explicit ones.
PROTOCOLS = [{}, {"protocol": 2}, {"protocol": 3}]


@pytest.fixture(params=PROTOCOLS, ids=["default", "RESP2", "RESP3"])
def options(request: pytest.FixtureRequest) -> dict[str, int]:
    return dict(request.param)


@pytest.fixture
def client(server: Server, options: dict[str, Any]) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, socket_timeout=PATIENCE_S, **options) as client:
        yield client
        client.connection_pool.disconnect()


def test_every_command_about_jobs(client: redis.Redis, queue: bytes) -> None:
    call = client.execute_command
    id = call("ADDJOB", queue, "hello", 200, "RETRY", 5, "TTL", 60)
    assert isinstance(id, bytes) and id[:2] == b"D-" and len(id) == 40
    assert call("QLEN", queue) == 1
    assert call("QPEEK", queue, 1) == [[queue, id, b"hello"]]
    assert call("QPEEK", queue, -1) == [[queue, id, b"hello"]]
    got = call("GETJOB", "WITHCOUNTERS", "FROM", queue)
    assert got == [[queue, id, b"hello", b"nacks", 0, b"additional-deliveries", 0]]
    assert call("NACK", id) == 1
    assert call("GETJOB", "NOHANG", "TIMEOUT", 100, "COUNT", 5, "FROM", queue) == [[queue, id, b"hello"]]
    assert call("WORKING", id) == 5
    shown = pairs(call("SHOW", id))
    assert (shown[b"state"], shown[b"nacks"], shown[b"nodes-confirmed"]) == (b"active", 1, [])
    assert call("ENQUEUE", id) == 1
    assert call("DEQUEUE", id) == 1
    assert pairs(call("SHOW", id))[b"next-requeue-within"] > 0
    assert call("ACKJOB", id) == 1
    assert call("FASTACK", call("ADDJOB", queue, "", 0)) == 1
    once = call("ADDJOB", queue, "", 0, "RETRY", 0, "REPLICATE", 1, "MAXLEN", 5, "DELAY", 0, "ASYNC")
    assert pairs(call("SHOW", once))[b"next-requeue-within"] is None
    assert call("DELJOB", once, NO_SUCH_JOB) == 1


def test_missing_jobs_and_queues_are_none(client: redis.Redis, queue: bytes) -> None:
    """redis-py waits forever for more bytes if a null has the wrong form."""
    call = client.execute_command
    assert call("SHOW", NO_SUCH_JOB) is None
    assert call("GETJOB", "NOHANG", "FROM", queue) is None
    assert call("GETJOB", "TIMEOUT", 1, "FROM", queue + b"2") is None
    assert call("QSTAT", queue) is None
    assert call("QPEEK", queue, 1) == []
    assert client.client_getname() is None


def test_every_command_about_queues(client: redis.Redis, queue: bytes) -> None:
    call = client.execute_command
    id = call("ADDJOB", queue, "", 0)
    assert pairs(call("QSTAT", queue))[b"len"] == 1
    assert call("PAUSE", queue, "in", "bcast") == b"in"
    assert call("PAUSE", queue, "none") == b"none"
    cursor, names = call("QSCAN", 0, "COUNT", 1_000, "MINLEN", 1)
    assert cursor == b"0" and queue in names
    assert call("JSCAN", 0, "QUEUE", queue) == [b"0", [id]]
    [job] = call("JSCAN", 0, "QUEUE", queue, "STATE", "queued", "REPLY", "all")[1]
    assert pairs(job)[b"id"] == id


def test_refusals_are_errors_with_their_code(client: redis.Redis, queue: bytes) -> None:
    call = client.execute_command
    for words, message in [
        (["ACKJOB", "x"], "BADID Invalid Job ID format."),
        (["WORKING", NO_SUCH_JOB], "NOJOB Job not known in the context of this node."),
        (["ADDJOB", queue, "", 0, "REPLICATE", 3], "NOREPL Not enough reachable nodes for the requested replication"),
        (["GETJOB", "FROM"], "syntax error"),
        (["NOSUCH"], "unknown command 'NOSUCH'"),
    ]:
        with pytest.raises(redis.ResponseError, match=message):
            call(*words)
    assert client.ping()


def test_replies_that_redis_py_parses(server: Server, client: redis.Redis) -> None:
    assert client.ping() is True
    seconds, us = client.time()
    assert abs(seconds - time.time()) < 5 and 0 <= us < 1_000_000
    told = client.info()
    assert (told["tcp_port"], told["loading"], told["errors_internal"]) == (server.port, 0, 0)
    assert client.info("all")["cmdstat_info"]["calls"] >= 1
    assert client.info("clients")["connected_clients"] >= 1
    assert client.config_get("maxclients") == {"maxclients": "10000"}
    assert client.config_get("nosuch") == {}
    before = client.config_get("latency-monitor-threshold")["latency-monitor-threshold"]
    # So high that no command counts as slow, even if the server is suspended for a while.
    assert client.config_set("latency-monitor-threshold", 100_000)
    assert client.config_get("latency-*") == {"latency-monitor-threshold": "100000"}
    assert client.config_set("latency-monitor-threshold", before)
    assert client.config_resetstat()
    assert client.execute_command("CLUSTER INFO")["cluster_size"] == "1"
    assert client.execute_command("CLUSTER MYID") == client.execute_command("HELLO")[1]
    wait_for(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    assert client.bgrewriteaof()
    assert client.latency_history("command") == []
    with pytest.raises(redis.ResponseError, match="without a config file"):
        client.config_rewrite()


def test_clients_of_redis_py(client: redis.Redis, wires: Callable[[], Wire]) -> None:
    assert client.client_setname("tester")
    assert client.client_getname() in ("tester", b"tester")
    [me] = [each for each in client.client_list() if each["name"] == "tester"]
    assert (int(me["id"]), me["cmd"], me["flags"]) == (client.client_id(), "client", "N")
    assert (me["lib-name"], me["lib-ver"]) == ("redis-py", redis.__version__)
    other = wires()
    assert client.client_kill_filter(_id=str(other.call("CLIENT", "ID"))) == 1
    assert other.read() == b""
    with pytest.raises(redis.ResponseError, match="No such client"):
        client.client_kill("127.0.0.1:1")
    assert client.client_pause(1)


def test_the_table_of_commands_as_redis_py_reads_it(client: redis.Redis) -> None:
    assert client.command_count() == len(client.command()) == len(client.command_list())
    addjob = client.command()["addjob"]
    assert (addjob["arity"], set(addjob["flags"])) == (-4, {"write", "denyoom", "fast"})


def test_the_slow_log_as_redis_py_reads_it(client: redis.Redis) -> None:
    client.config_set("slowlog-log-slower-than", 0)
    client.execute_command("QLEN", "slow")
    client.config_set("slowlog-log-slower-than", -1)
    entries = client.slowlog_get(1_000)
    assert entries[0]["command"] == b"QLEN slow"
    assert client.slowlog_len() == len(entries)
    assert all(entry["duration"] >= 0 and entry["start_time"] > 0 for entry in entries)
    assert client.slowlog_reset()
    assert client.slowlog_get() == []
    client.config_set("slowlog-log-slower-than", 10_000)


def test_a_pipeline_answers_each_command_in_its_order(client: redis.Redis, queue: bytes) -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(500):
        pipe.execute_command("ADDJOB", queue, str(number), 0)
    ids = pipe.execute()
    assert len(set(ids)) == 500
    pipe.execute_command("GETJOB", "COUNT", 1_000, "FROM", queue)
    pipe.execute_command("ACKJOB", "bad")
    pipe.execute_command("ACKJOB", *ids)
    pipe.execute_command("GETJOB", "NOHANG", "FROM", queue)
    jobs, refused, acked, nothing = pipe.execute(raise_on_error=False)
    assert [job[1:] for job in jobs] == [[id, str(number).encode()] for number, id in enumerate(ids)]
    assert isinstance(refused, redis.ResponseError)
    assert (acked, nothing) == (500, None)


def test_a_transaction_is_refused_and_harms_nothing(client: redis.Redis, queue: bytes) -> None:
    with pytest.raises(redis.ResponseError, match="unknown command 'EXEC'"):
        client.pipeline(transaction=True).execute_command("QLEN", queue).execute()
    assert client.ping()


def test_unknown_commands_are_refused_and_the_connection_stays_open(client: redis.Redis) -> None:
    me = client.client_id()
    # GET, HEAD, OPTIONS and PRI are also the first words of browsers.
    for ask in (client.get, client.delete, client.incr):
        with pytest.raises(redis.ResponseError, match="unknown command"):
            ask("key")
    for word in ("HEAD", "OPTIONS", "PRI", "SUBSCRIBE", "SELECT"):
        with pytest.raises(redis.ResponseError, match=f"unknown command '{word}'"):
            client.execute_command(word, "0")
    assert client.client_id() == me


def test_text_instead_of_bytes(server: Server, options: dict[str, Any]) -> None:
    with redis.Redis.from_url(f"redis://localhost:{server.port}", decode_responses=True, **options) as client:
        id = client.execute_command("ADDJOB", "text", "ä", 0)
        assert client.execute_command("GETJOB", "FROM", "text") == [["text", id, "ä"]]
        client.connection_pool.disconnect()


def test_a_pool_of_connections_serves_many_threads(server: Server, options: dict[str, Any], queue: bytes) -> None:
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=4, timeout=PATIENCE_S, **options)
    client = redis.Redis(connection_pool=pool)
    finished: list[bytes] = []

    def work(number: int) -> None:
        for _ in range(10):
            client.execute_command("ADDJOB", queue, number, 0)
            [[_, id, _]] = client.execute_command("GETJOB", "TIMEOUT", 10_000, "FROM", queue)
            finished.append(id)
            assert client.execute_command("ACKJOB", id) == 1

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(finished)) == 80
    assert client.execute_command("QLEN", queue) == 0
    pool.disconnect()


def test_a_client_of_a_server_that_was_restarted_connects_again(wire: Wire, client: redis.Redis) -> None:
    """The server closes the connection here, as a restart would."""
    number = client.client_id()
    assert wire.call("CLIENT", "KILL", "ID", number) == 1
    wait_for(lambda: b"id=%d " % number not in wire.call("CLIENT", "LIST"))
    assert client.ping()
    assert client.client_id() != number


def test_asyncio(server: Server, options: dict[str, Any], queue: bytes) -> None:
    async def scenario() -> None:
        async with redis.asyncio.Redis(port=server.port, **options) as client:
            call = client.execute_command
            waiting = [asyncio.create_task(call("GETJOB", "TIMEOUT", 10_000, "FROM", queue)) for _ in range(5)]
            while len(pairs(await call("QSTAT", queue) or [])) == 0 or (await call("QSTAT", queue))[9] < 5:
                await asyncio.sleep(0.01)
            ids = [await call("ADDJOB", queue, str(number), 0) for number in range(5)]
            got = await asyncio.gather(*waiting)
            assert sorted(job[0][1] for job in got) == sorted(ids)
            assert await call("ACKJOB", *ids) == 5
            assert await call("GETJOB", "NOHANG", "FROM", queue) is None
            assert (await client.info())["tcp_port"] == server.port
            assert await client.config_get("maxclients") == {"maxclients": "10000"}
            pipe = client.pipeline(transaction=False)
            for number in range(100):
                pipe.execute_command("ADDJOB", queue, str(number), 0)
            assert len(set(await pipe.execute())) == 100
            with pytest.raises(redis.ResponseError, match="BADID"):
                await call("SHOW", "x")

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_passwords(start: Callable[..., Server]) -> None:
    server = start("--requirepass", "s3cret", "--journal", "no", password="s3cret")
    at_once: dict[str, Any] = {"port": server.port, "retry": Retry(NoBackoff(), 0)}
    for options in PROTOCOLS:
        for login in ({"password": "s3cret"}, {"username": "default", "password": "s3cret"}):
            with redis.Redis(**at_once, **login, **options) as client:
                assert client.ping()
                assert client.execute_command("GETJOB", "NOHANG", "FROM", "q") is None
                client.connection_pool.disconnect()
        for wrong in ({"password": "wrong"}, {"username": "nobody", "password": "s3cret"}, {}):
            with redis.Redis(**at_once, **wrong, **options) as client, pytest.raises(redis.AuthenticationError):
                client.ping()

    async def scenario() -> None:
        async with redis.asyncio.Redis(port=server.port, password="s3cret") as client:
            assert await client.ping()

    asyncio.run(scenario())
