"""Real Tarantool clients: tarantool, asynctnt, asynctnt-queue, and Tarantool's own net.box."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import uuid
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

from ..serving import PATIENCE_S, Server


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


def test_tarantool_python_gets_the_values_of_the_original(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        call = connection.call

        def refused(function: str, *args: Any) -> tuple[Any, ...]:
            with pytest.raises(tarantool.DatabaseError) as caught:
                call(function, args)
            return caught.value.args

        assert call("queue.create_tube", ("vfifo", "fifo", {"capacity": 100, "if_not_exist": True})).data
        assert refused("queue.create_tube", "vfifo", "fifo") == (32, "Space 'vfifo' already exists")
        assert call("queue.tube.vfifo:put", ("x", {"pri": "1"})).data == [[0, "r", "x"]]
        assert call("queue.tube.vfifo:take", (0, {"stube": "s"})).data == [[0, "t", "x"]]
        assert call("queue.tube.vfifo:touch", (0,)).data == []
        assert call("queue.tube.vfifo:bury", (0,)).data == [[0, "!", "x"]]
        assert call("queue.tube.vfifo:kick", (-1,)).data == [-1]
        assert call("queue.tube.vfifo:kick", ("1",)).data == [1]
        assert refused("queue.tube.vfifo:put") == (39, "Tuple field 3 (data) required by space format is missing")
        call("queue.create_tube", ("vttl", "fifottl"))
        assert call("queue.tube.vttl:put", ("x", {"pri": -3, "ttr": 0})).data == [[0, "r", "x"]]
        token = uuid.uuid4()
        assert refused("queue.identify", token.bytes) == (32, f"The UUID {token} is unknown.")
        deep: Any = "x"
        for _ in range(64):
            deep = [deep]
        assert call("queue.tube.vfifo:put", (deep,)).data == [[1, "r", deep]]
        assert refused("queue.tube.vfifo:put", [deep])[0] == 20
        assert connection.ping() > 0


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


def test_tarantool_python_logs_in_or_gets_an_error(guarded: Server) -> None:
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


def test_tarantool_python_uses_tls_on_both_ports(start: Callable[..., Server], certificate: Path) -> None:
    ports = {"--iproto-tls-port": free_port(), "--iproto15-tls-port": free_port()}
    files = ("--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem"))
    start(*files, *(str(word) for option in ports.items() for word in option), "--requirepass", "x", password="x")
    login = {"user": "default", "password": "x", "transport": "ssl", "ssl_ca_file": str(certificate / "cert.pem")}
    kinds = []
    for port in ports.values():
        with closing(tarantool.Connection("localhost", port, **login)) as connection:
            body = "x" * 100_000  # Longer than a TLS record, and longer than one read.
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
            # A client that sends the same options for every type.
            await connection.call("queue.create_tube", ["atnt_fifo", "fifo", {"capacity": 100, "ttl": 5}])
            plain = queue.tube("atnt_fifo")
            assert (await plain.put("x", pri="1", ttl=5, ttr=5, delay=5)).status == Status.READY
            assert (await plain.take(0)).data == "x"
            assert (await plain.release(0, delay=5)).status == Status.READY
            await plain.bury(0)
            assert await plain.kick(-1) == -1 and await plain.kick(1.5) == 1
            assert (await tube.put("first", pri=-3)).status == Status.READY
            assert (await tube.take(0)).data == "first"

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
    # This also holds after the server was down meanwhile.
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
        ["fifo", "fifottl"],
        ["x"],
        [-1, 1, 1],
        [0],
        [32, "Space 'fifo' already exists"],
        ["The UUID 00000000-0000-0000-0000-000000000000 is unknown."],
        ["Cannot create temporary tube in replicaset mode"],
        [["mail"], {"tube_stats": [[], ["mail"]]}],
        [23, "Tuple field 4 (tube) type does not match one required by operation: expected string, got nil"],
        [{"Buried": 1, "Done": 0, "Ready": 0, "Taken": 0, "Waiting": 0, "Zombie": 0}],
        ["B", False],
        [64, 20],
    ]


def jobs_and_a_tube(port: int, name: str) -> None:
    """Create a space `NAME_jobs` with four tasks, two of them waiting, and a tube `NAME_tube` with three, one taken."""
    format = [{"name": "id", "type": "unsigned"}, {"name": "status", "type": "string"}]
    format += [{"name": "runat", "type": "number"}, {"name": "tube", "type": "string"}, {"name": "data"}]
    fields = {"status": "status", "runat": "runat", "tube": "tube"}
    options = {"format": format, "fields": fields, "features": {"id": "auto_increment", "delayed": True}}
    with closing(tarantool.Connection("127.0.0.1", port)) as connection:
        connection.call("xqueue.upgrade", (f"{name}_jobs", options))
        for number in range(4):
            attributes = {"delay": 100 - number} if number > 1 else {}
            connection.call(f"box.space.{name}_jobs:put", ({"tube": "ab"[number % 2], "data": number}, attributes))
        connection.call("queue.create_tube", (f"{name}_tube", "fifo"))
        for number in range(3):
            connection.call(f"queue.tube.{name}_tube:put", (f"body {number}",))


def test_tarantool_python_selects_from_spaces_by_name(server: Server) -> None:
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        # They were created after the schema was loaded.
        jobs_and_a_tube(server.iproto_port, "py")
        select = connection.select
        assert [row[0] for row in select("py_jobs", 2, iterator=tarantool.const.ITERATOR_GE)] == [2, 3, 4]
        assert [row[0] for row in select("py_jobs", ["b"], index="tube_status")] == [2, 4]
        assert [row[0] for row in select("py_jobs", [0], index="runat", iterator=tarantool.const.ITERATOR_GT)] == [4, 3]
        assert [row[0] for row in select("py_jobs", limit=2, offset=1)] == [2, 3]
        assert [list(row)[4] for row in select("py_jobs", 1)] == [0]
        assert select("py_jobs", 99).data == []
        assert select("_queue", "py_tube")[0][3] == "fifo"
        connection.call("queue.tube.py_tube:take", (0,))
        [row] = select("_queue_taken", index="task", key=[select("_queue", "py_tube")[0][1]])
        assert row[2] == 0 and select("py_tube", ["t"], index="status").data == [[0, "t", "body 0"]]
        with pytest.raises(tarantool.SchemaError):
            select("py_nope")
        with pytest.raises(tarantool.DatabaseError, match="Supplied key type of part 2 does not match"):
            select("py_tube", ["r", "x"], index="status")
        with pytest.raises(tarantool.DatabaseError):
            connection.insert("py_tube", (9, "r", "x"))


def test_asynctnt_selects_from_spaces_by_name_and_gets_named_fields(server: Server) -> None:
    asyncio.run(select_with_asynctnt(server))


async def select_with_asynctnt(server: Server) -> None:
    connection = await asynctnt.connect(host="127.0.0.1", port=server.iproto_port)
    await asyncio.to_thread(jobs_and_a_tube, server.iproto_port, "aio")
    with pytest.raises(asynctnt.exceptions.TarantoolSchemaError):
        await connection.select("aio_jobs")
    await connection.refetch_schema()
    rows = await connection.select("aio_jobs", [2], iterator="GE")
    assert [(row["id"], row["status"], row["tube"]) for row in rows] == [(2, "R", "b"), (3, "W", "a"), (4, "W", "b")]
    rows = await connection.select("aio_jobs", {"tube": "a", "status": "W"}, index="tube_status")
    assert [row["data"] for row in rows] == [2]
    rows = await connection.select("aio_tube", [2], iterator="LE", limit=2)
    assert [row["data"] for row in rows] == ["body 2", "body 1"]
    assert (await connection.select("_queue", ["aio_tube"]))[0]["tube_type"] == "fifo"
    # A request by number needs no schema.
    number = (await connection.select("_vspace", ["aio_tube"], index="name"))[0]["id"]
    assert len(await connection.select(number, [1])) == 1
    await connection.disconnect()


def test_net_box_selects_from_spaces_by_name(server: Server, needs: Callable[[object, str], None]) -> None:
    program = shutil.which("tarantool")
    needs(program, "tarantool is not installed, so its net.box is not tried (Debian: apt-get install tarantool)")
    assert program is not None
    jobs_and_a_tube(server.iproto_port, "netbox")
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as taker:
        taker.call("queue.tube.netbox_tube:take", (0,))
        script = Path(__file__).with_name("netbox_spaces.lua")
        command = [program, str(script), str(server.iproto_port)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 0, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines()]
    [after], [before], one, [of_b], *rest = told
    assert [row[0] for row in after] == [2, 3, 4] and [row[0] for row in before] == [2]
    assert one == [[1, "R", 0, "a", 0], True, "R"] and [row[0] for row in of_b] == [2, 4]
    text = "Supplied key type of part 1 does not match index part type: expected unsigned"
    assert rest == [
        *([4], [4], [2, 1, 4], ["body 1", 2], ["netbox_tube", "fifo", "netbox_tube"]),
        *([0], [0, 0], [text], [True, 0], [[]]),
    ]
