"""Clients of Tarantool as people install them: tarantool, asynctnt, asynctnt-queue, and Tarantool's own net.box."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asynctnt
import asynctnt_queue
import pytest
import tarantool
from asynctnt.exceptions import TarantoolDatabaseError
from asynctnt_queue.task import Status

from tests.ports import free_port

from .serving import PATIENCE_S, Server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    user = "bob password:b commands:read,write,admin"
    server = Server(tmp_path_factory.mktemp("guarded"), "--requirepass", "main", "--user", user, password="main")
    yield server
    server.stop()


def test_tarantool_python_calls_everything(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        call = connection.call
        assert connection.ping() > 0
        assert call("queue.create_tube", ("py", "fifottl", {"ttr": 60})).data[0]["name"] == "py"
        assert call("queue.tube.py:put", ({"a": [1, b"\xff"]}, {"pri": 2})).data == [[0, "r", {"a": [1, b"\xff"]}]]
        assert call("queue.tube.py:take", (0,)).data == [[0, "t", {"a": [1, b"\xff"]}]]
        assert call("queue.tube.py:release", (0, {"delay": 0})).data[0][1] == "r"
        assert call("queue.tube.py:take", ()).data[0][1] == "t"
        assert call("queue.tube.py:touch", (0, 10)).data[0][1] == "t"
        assert call("queue.tube.py:bury", (0,)).data[0][1] == "!"
        assert call("queue.tube.py:kick", (1,)).data == [1]
        assert call("queue.tube.py:peek", (0,)).data[0][1] == "r"
        assert call("queue.tube.py:delete", (0,)).data[0][1] == "-"
        assert call("queue.tube.py:take", (0,)).data == []
        assert call("queue.statistics", ("py",)).data[0]["calls"]["put"] == 1
        assert len(call("queue.identify").data[0]) == 16
        assert connection.eval("return queue.tube(...)", ("py",)).data == [True]
        with pytest.raises(tarantool.DatabaseError, match="Task was not taken"):
            call("queue.tube.py:ack", (0,))
        with pytest.raises(tarantool.DatabaseError) as refused:
            call("queue.tube.nope:ack", (0,))
        assert refused.value.args == (33, "Procedure 'queue.tube.nope:ack' is not defined")
        assert call("queue.tube.py:truncate").data == [] and call("queue.tube.py:drop").data == [True]


def test_a_pool_of_tarantool_python_finds_that_the_server_can_be_written_to(server: Server) -> None:
    with closing(tarantool.ConnectionPool(addrs=[{"host": "127.0.0.1", "port": server.iproto_port}])) as pool:
        assert pool.call("queue.state", mode=tarantool.Mode.RW).data == ["RUNNING"]
        [info] = pool.call("box.info", mode=tarantool.Mode.ANY).data
        assert (info["status"], info["ro"], info["package"]) == ("running", False, "Penstock")


def test_tubes_are_also_found_in_box_where_the_queue_was_once(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        connection.call("queue.create_tube", ("box.queue.tube.old", "fifo"))
        connection.call("queue.create_tube", ("old", "fifo"))
        assert connection.call("box.queue.tube.old:put", ("body",)).data == [[0, "r", "body"]]
        assert connection.call("queue.tube.old:take", (0,)).data == [[0, "t", "body"]]
        assert connection.call("queue.tube.box.queue.tube.old:take", (0,)).data == []


def test_no_wait_ends_before_its_time(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        connection.call("queue.create_tube", ("waits", "fifo"))
        for _ in range(20):
            began = time.perf_counter()
            assert connection.call("queue.tube.waits:take", (0.003,)).data == []
            assert time.perf_counter() - began >= 0.003


def test_tarantool_python_speaks_the_1_5_api(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        (id, *rest), *_ = connection.call("queue.put", ("0", "holy", "0", "100", "60", "127", b"data")).data
        assert rest == ["holy", "ready", b"data"]
        assert connection.call("queue.take", ("0", "holy", "1")).data == [[id, "holy", "taken", b"data"]]
        assert connection.call("queue.ack", ("0", id)).data[0][0] == id
        assert connection.call("queue.take", ("0", "holy", "0")).data == []


def test_tarantool_python_logs_in_and_is_told_when_it_cannot(guarded: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", guarded.iproto_port, user="bob", password="b")) as connection:
        assert connection.call("queue.tube").data == [[]]
    for password in ("wrong", None):
        with pytest.raises(tarantool.DatabaseError, match="User not found or supplied credentials are invalid"):
            tarantool.Connection("127.0.0.1", guarded.iproto_port, user="bob", password=password)
    with (
        closing(tarantool.Connection("127.0.0.1", guarded.iproto_port)) as connection,
        pytest.raises(tarantool.DatabaseError, match="denied for user 'guest'"),
    ):
        connection.call("queue.tube")


def test_tarantool_python_speaks_tls_at_both_doors(start: Callable[..., Server], certificate: Path) -> None:
    ports = {"--iproto-tls-port": free_port(), "--iproto15-tls-port": free_port()}
    files = ("--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem"))
    start(*files, *(str(word) for option in ports.items() for word in option), "--requirepass", "x", password="x")
    login = {"user": "default", "password": "x", "transport": "ssl", "ssl_ca_file": str(certificate / "cert.pem")}
    kinds = []
    for port in ports.values():
        with closing(tarantool.Connection("localhost", port, **login)) as connection:
            body = "x" * 100_000  # Longer than one record of TLS, and than one read.
            assert connection.call("queue.put", (0, "tls", 0, 0, 0, None, body)).data[0][3] == body
            assert connection.call("queue.take", (0, "tls", 1)).data[0][3] == body
            kinds.append(type(connection.call("queue.statistics").data[0]))
    assert kinds == [dict, list]
    with pytest.raises(tarantool.NetworkError):
        tarantool.Connection("localhost", ports["--iproto-tls-port"], socket_timeout=0.2, reconnect_max_attempts=0)


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[asynctnt.Connection]:
    connection = asynctnt.Connection(host="127.0.0.1", port=server.iproto_port, **options)
    await connection.connect()
    try:
        yield connection
    finally:
        await connection.disconnect()


def test_asynctnt_queue_calls_everything_and_takes_concurrently_on_one_connection(server: Server) -> None:
    async def scenario() -> None:
        async with connected(server) as connection:
            await connection.call("queue.create_tube", ["atnt", "fifottl"])
            queue = asynctnt_queue.Queue(connection)
            tube = queue.tube("atnt")
            takes = [asyncio.create_task(tube.take(10)) for _ in range(50)]
            forever = asyncio.create_task(tube.take())
            puts = await asyncio.gather(*(tube.put({"n": number}, pri=1) for number in range(51)))
            assert [task.task_id for task in puts] == list(range(51))
            tasks = await asyncio.gather(*takes, forever)
            assert sorted(task.data["n"] for task in tasks) == list(range(51))
            await asyncio.gather(*(task.ack() for task in tasks[:45]))
            released, touched, buried, deleted, *_ = tasks[45:]
            assert (await released.release(delay=100)).status == Status.DELAYED
            await touched.touch(5)
            await buried.bury()
            assert await tube.kick(10) == 1
            assert (await tube.peek(buried.task_id)).status == Status.READY
            await deleted.delete()
            assert await tube.take(0) is not None
            assert await tube.take(0.01) is None
            assert (await queue.statistics())["atnt"]["calls"]["put"] == 51
            with pytest.raises(TarantoolDatabaseError, match="Task was not taken"):
                await tube.ack(9_999)

    asyncio.run(scenario())


def test_asynctnt_logs_in_reconnects_and_resumes_its_session(start: Callable[..., Server]) -> None:
    async def before(server: Server) -> str:
        async with connected(server, username="default", password="main") as connection:
            await connection.call("queue.create_tube", ["q", "fifo"])
            await connection.call("queue.tube.q:put", ["x"])
            await connection.call("queue.tube.q:take", [])
            (token,) = await connection.call("queue.identify")
            return str(token)

    async def after(server: Server, token: str) -> None:
        async with connected(server, username="default", password="main") as connection:
            with pytest.raises(TarantoolDatabaseError, match="Task was not taken"):
                await connection.call("queue.tube.q:ack", [0])
            await connection.call("queue.identify", [token])
            assert (await connection.call("queue.tube.q:ack", [0])).body[0][1] == "-"

    options = ("--requirepass", "main", "--session-grace", "60")
    server = start(*options, password="main")
    token = asyncio.run(before(server))
    # Also when the server was away meanwhile.
    server.stop()
    asyncio.run(after(start(*options, password="main"), token))


def test_net_box_calls_takes_and_reconnects(guarded: Server, needs: Callable[[object, str], None]) -> None:
    program = shutil.which("tarantool")
    needs(program, "tarantool is not installed, so its net.box is not tried (Debian: apt-get install tarantool)")
    assert program is not None
    script = Path(__file__).with_name("netbox.lua")
    command = [program, str(script), str(guarded.iproto_port), "default", "main"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["fifottl"],
        [[0, "r", {"key": [1, 2]}]],
        [[1, "r", "text"]],
        [[0, "t", {"key": [1, 2]}]],
        [[0, "-", {"key": [1, 2]}]],
        ["text"],
        [["first", "second"]],
        [3],
        [True],
        [16],
        ["Task was not taken"],
        [33],
        ["t"],
    ]
