"""xqueue over IPROTO: created by CALL or by the configuration, used by real clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asynctnt
import pytest
import tarantool

from penstock.server.config.configuration import ConfigError, load

from ..iproto_wire import CALL_16, IprotoWire, Refusal
from ..serving import Server, Wire, refusals, wait_for

Connect = Callable[[], IprotoWire]
Dial = Callable[[Server], IprotoWire]

FORMAT = [
    {"name": "id", "type": "unsigned"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "tube", "type": "string", "is_nullable": True},
    {"name": "data", "type": "any", "is_nullable": True},
]
OPTIONS: dict[str, Any] = {
    "format": FORMAT,
    "fields": {"status": "status", "runat": "runat", "tube": "tube"},
    "features": {"id": "auto_increment", "delayed": True, "ttl": True, "ttr": True, "keep": True},
    "tube_stats": ["A", "B"],
}
READY = {"id": 1, "status": "R", "runat": 0, "tube": "A", "data": "x"}


@pytest.fixture
def name(queue: bytes) -> str:
    """The name of a new space."""
    return queue.decode().translate({ord(mark): "_" for mark in "[].:-"})


@pytest.fixture
def space(iproto: IprotoWire, name: str) -> Callable[..., list[Any]]:
    """A new space, whose methods are called on one connection."""
    iproto.call("xqueue.upgrade", name, OPTIONS)
    return lambda method, *args: iproto.call(f"box.space.{name}:{method}", *args)


Space = Callable[..., list[Any]]


def test_upgrade_returns_the_description_of_the_space(iproto: IprotoWire, name: str) -> None:
    told, changed = iproto.call("xqueue.upgrade", name, OPTIONS)
    assert told["primary_key"] == [1] and told["features"]["retval"] == "table" and changed == {}
    assert iproto.call("xqueue.upgrade", name, told) == [told, {}]
    told, changed = iproto.call("xqueue.upgrade", name, {"features": {"zombie": 5, "keep": False}})
    assert changed == {"features.keep": [True, False], "features.zombie": [False, 5]}
    assert told["features"]["zombie"] == 5 and not told["features"]["keep"] and told["features"]["ttr"] is True
    assert iproto.call("xqueue.upgrade", name.encode(), {"features": []}) == [told, {}]
    told, changed = iproto.call("xqueue.upgrade", name, {"tube_stats": ["B", "C"]})
    assert told["tube_stats"] == ["B", "C"] and changed == {"tube_stats": [["A", "B"], ["B", "C"]]}


def test_every_method_by_call(space: Space) -> None:
    assert space("put", {"data": "x", "tube": "A"}) == [READY]
    assert space("put", [None, None, None, "B", {"k": b"\xff"}], {"delay": 100})[0]["status"] == "W"
    assert space("take", 0, {"tube": "B"}) == []
    assert space("take") == [{**READY, "status": "T"}]
    assert space("touch", 1, {"increment": 5})[0]["runat"] == 0
    assert space("release", 1, {"update": [["=", "data", "y"]]}) == [{**READY, "data": "y"}]
    space("take")
    assert space("bury", [1]) == []
    assert space("dig", {"id": 1})[0]["status"] == "R"
    assert space("switch", 1, "B")[0]["status"] == "B"
    assert space("plow") == [1]
    space("switch", 1, "B", [])
    assert space("kick", 1) == [1]
    space("take", {"timeout": 0})
    assert space("snatch", 1)[0]["status"] == "R"
    space("take")
    assert space("ack", 1)[0]["status"] == "D"
    assert space("wait", 1, 5) == [{**READY, "status": "D", "data": "y"}, True]
    assert space("restart", 1)[0]["status"] == "R"
    assert space("get", 2)[0]["data"] == {"k": b"\xff"} and space("get", 99) == []
    assert space("stats")[0]["counts"] == {"R": 1, "T": 0, "W": 1, "B": 0, "D": 0, "Z": 0}
    assert space("queue_stats") == space("stats") and space("stats", True)[0]["counts"]["Ready"] == 1
    assert space("kill", 2)[0]["id"] == 2
    assert space("len") == space("count") == [1]
    assert space("truncate") == [] and space("len") == [0]


def test_refusals_have_tarantools_numbers_and_xqueues_words(space: Space, iproto: IprotoWire, name: str) -> None:
    space("put", {"data": "x"})
    refusals = [
        ("ack", [1], 32, "Task 1 not taken by any"),
        ("ack", [99], 32, "Task {99} was not found"),
        ("ack", ["1"], 18, "Supplied key type of part 1 does not match index part type: expected unsigned"),
        ("ack", [], 32, "Wrong key/task argument. Expected table or tuple or key"),
        ("put", [], 32, "Wrong argument to put. Expected table or tuple"),
        ("put", [[None] * 9], 38, "Tuple field count 9 does not match space field count 5"),
        ("take", [-1], 32, "timeout required"),
        ("take", [float("nan")], 32, "timeout required"),
        ("bury", [1, 5], 32, "attr must be a table, not number"),
    ]
    for method, args, number, words in refusals:
        with pytest.raises(Refusal) as refusal:
            space(method, *args)
        assert refusal.value.args == (number, words)
    for function, number, words in [
        (f"box.space.{name}:fly", 33, f"Procedure 'box.space.{name}:fly' is not defined"),
        ("box.space.nowhere:put", 33, "Procedure 'box.space.nowhere:put' is not defined"),
        ("xqueue.downgrade", 33, "Procedure 'xqueue.downgrade' is not defined"),
    ]:
        with pytest.raises(Refusal) as refusal:
            iproto.call(function, 1)
        assert refusal.value.args == (number, words)
    for args, words in [
        ([], "space must be the name of a space, not nil"),
        (["s", {}], "opts.fields required"),
        (["s", {"fields": {"status": 2}, "worker": 1}], "workers run only in your process; use penstock.compat.xqueue"),
    ]:
        with pytest.raises(Refusal) as refusal:
            iproto.call("xqueue.upgrade", *args)
        assert refusal.value.args == (32, words)


def test_the_old_form_of_a_call_has_its_own_form_of_answer(space: Space, iproto: IprotoWire, name: str) -> None:
    assert iproto.call(f"box.space.{name}:put", {"data": "x", "tube": "A"}, code=CALL_16) == [[READY]]
    assert iproto.call(f"box.space.{name}:plow", code=CALL_16) == [[0]]


def test_takes_and_waits_of_one_connection_wait_side_by_side(space: Space, iproto: IprotoWire, name: str) -> None:
    takes = [iproto.start(f"box.space.{name}:take", 20, {"tube": tube}) for tube in ("B", "A", "B")]
    [task] = space("put", {"data": 1, "tube": "A"})
    assert iproto.result(takes[1])[0]["id"] == task["id"]
    wait = iproto.start(f"box.space.{name}:wait", task["id"])
    put = iproto.start(f"box.space.{name}:put", {"data": 2, "tube": "B"}, {"wait": 20})
    assert iproto.result(takes[0])[0]["data"] == 2
    space("ack", 1)
    space("ack", 2)
    assert iproto.result(wait)[1] is True and iproto.result(put)[1] is True
    late = iproto.start(f"box.space.{name}:wait", space("put", {"data": 3})[0]["id"], 0.02)
    assert iproto.result(late)[1] is False


def test_jobs_of_a_disconnected_client_go_back(space: Space, iprotos: Connect, name: str) -> None:
    space("put", {"data": "x"})
    other = iprotos()
    other.call(f"box.space.{name}:take")
    other.start(f"box.space.{name}:take", 60)
    with pytest.raises(Refusal, match="Task 1 taken by"):
        space("ack", 1)
    other.close()
    wait_for(lambda: space("get", 1)[0]["status"] == "R")
    assert space("take")[0]["id"] == 1


def test_many_tasks_are_plowed_and_truncated(space: Space, wire: Wire, name: str) -> None:
    for start in range(0, 3_000, 500):
        words = [word for number in range(start, start + 500) for word in ("JOB", f"{number}")]
        wire.call("MPUT", name, *words)
    for _ in range(3):
        taken = wire.call("TAKE", name, "COUNT", "1000")
        for job in taken:
            wire.send("BURY", job[job.index(b"id") + 1])
        for _ in taken:
            wire.read()
    assert space("plow") == [3_000]
    assert space("truncate") == [] and space("len") == [0]


def test_a_task_put_over_one_protocol_can_be_taken_over_the_other(space: Space, wire: Wire, name: str) -> None:
    for body in ("text", b"\xff\0", {"a": [1, None]}, 5):
        space("put", {"data": body})
    wanted = [b"text", b"\xff\0", b'{"a":[1,null]}', b"5"]
    assert [job[2] for job in wire.call("GETJOB", "COUNT", 9, "FROM", name)] == wanted
    wire.call("ADDJOB", name, "from disque", 0)
    assert space("take")[0]["data"] == b"from disque"


NOTE = {"name": "note", "type": "string", "is_nullable": True}


def test_a_field_is_added_to_a_space_in_use(space: Space, iproto: IprotoWire, wire: Wire, name: str) -> None:
    space("put", {"data": {"note": "inner"}, "tube": "A"})
    told, changed = iproto.call("xqueue.upgrade", name, {"format": [*FORMAT, NOTE]})
    assert told["format"][-1] == NOTE and [each[-1]["name"] for each in changed["format"]] == ["data", "note"]
    old = {**READY, "data": {"note": "inner"}, "note": None}
    new = {**READY, "id": 2, "tube": None, "data": {"note": "inner"}, "note": "outer"}
    assert space("put", {"data": {"note": "inner"}, "note": "outer"}) == [new]
    assert [space("get", 1), space("get", 2)] == [[old], [new]]
    row = [1, "R", 0, "A", {"note": "inner"}, None]
    assert space("select") == [[row, [2, "R", 0, None, {"note": "inner"}, "outer"]]]
    assert iproto.call(f"box.space.{name}.index.tube_status:select", ["A", "R"]) == [[row]]
    # A client of another API gets the body as it was written, and puts rows of the newest format.
    bodies = [job[2] for job in wire.call("GETJOB", "COUNT", 9, "FROM", name)]
    assert bodies == [b'{"note":"inner"}', b'{"data":{"note":"inner"},"note":"outer"}']
    wire.call("PUT", name, '{"data":1,"note":"resp"}', "AS", "json")
    assert space("take") == [{**new, "id": 3, "status": "T", "data": 1, "note": "resp"}]
    assert space("release", 3, {"update": [["=", "note", "again"]]})[0]["note"] == "again"


def test_format_reads_and_changes_the_format_as_in_tarantool(space: Space, iproto: IprotoWire, name: str) -> None:
    full = [{"is_nullable": False, **field} for field in FORMAT]
    assert space("format") == [full]
    space("put", {"data": "x", "tube": "A"})
    assert space("format", [*FORMAT, NOTE]) == [] and space("format") == [[*full, NOTE]]
    assert space("get", 1) == [{**READY, "note": None}]
    for format, words in [
        (FORMAT, "field 'note' is missing, and fields cannot be removed"),
        ([*FORMAT, {**NOTE, "type": "map"}], "field 'note' has the type string, and its type cannot be changed to map"),
    ]:
        with pytest.raises(Refusal) as refusal:
            space("format", format)
        assert refusal.value.args == (12, f"Can't modify space '{name}': {words}")
    iproto.call("queue.create_tube", f"{name}_tube", "fifo")
    with pytest.raises(Refusal, match="does not support writing space"):
        iproto.call(f"box.space.{name}_tube:format", [])


USERS = """
[users.worker]
password = "secret"
tubes = ["mail*"]

[xqueue.mail]
format = [{name = "id", type = "string"}, {name = "status", type = "string"}, {name = "data"}]
fields = {status = "status"}
features = {id = "required"}

[xqueue.other]
fields = {status = 2}
"""


def test_spaces_of_the_configuration_are_there_from_the_start_and_users_keep_to_theirs(
    start: Callable[..., Server], dial: Dial, tmp_path: Path
) -> None:
    (tmp_path / "penstock.toml").write_text(f'requirepass = "main"\n{USERS}')
    server = start("penstock.toml", password="main")
    worker = dial(server)
    with pytest.raises(Refusal, match="denied"):
        worker.call("box.space.mail:put", {"id": "a", "data": 1})
    worker.log_in("worker", "secret")
    assert worker.call("box.space.mail:put", {"id": "a", "data": 1})[0]["id"] == "a"
    with pytest.raises(Refusal, match="permission"):
        worker.call("box.space.other:put", [None])
    with pytest.raises(Refusal, match="denied"):
        worker.call("xqueue.upgrade", "mail2", {"fields": {"status": 2}})
    with pytest.raises(Refusal, match="denied"):
        worker.call("box.space.mail:truncate")
    assert worker.call("box.space.mail:format")[0][2]["name"] == "data"
    with pytest.raises(Refusal, match="denied"):
        worker.call("box.space.mail:format", [NOTE])
    server.stop()
    again = start("penstock.toml", password="main")
    worker = dial(again)
    worker.log_in("worker", "secret")
    assert worker.call("box.space.mail:take") == [{"id": "a", "status": "T", "data": 1}]


LETTERS = """
[xqueue.letters]
format = [{{name = "id", type = "unsigned"}}, {{name = "status", type = "string"}}, {{name = "data"}}{more}]
fields = {{status = "status"}}
"""
MORE = ', {name = "note", type = "string", is_nullable = true}'


def test_a_field_is_added_by_the_configuration(start: Callable[..., Server], dial: Dial, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(LETTERS.format(more=""))
    server = start("penstock.toml")
    dial(server).call("box.space.letters:put", {"data": {"note": 1}})
    server.stop()
    config.write_text(LETTERS.format(more=MORE))
    server.start_again()
    wire = dial(server)
    assert "xqueue space changed: space=letters option=format" in server.log()
    assert wire.call("box.space.letters:put", {"data": 2, "note": "n"})[0]["note"] == "n"
    old = {"id": 1, "status": "R", "data": {"note": 1}, "note": None}
    assert wire.call("box.space.letters:get", 1) == [old]
    # A crash after a field was added over IPROTO: the server starts although its configuration lacks the field.
    wire.call("box.space.letters:format", [*wire.call("box.space.letters:format")[0], {**NOTE, "name": "more"}])
    server.kill()
    server.start_again()
    wire = dial(server)
    assert "warning configured xqueue space has more fields: space=letters add_to_format=more" in server.log()
    assert wire.call("box.space.letters:get", 1) == [{**old, "more": None}]
    assert wire.call("box.space.letters:get", 2)[0] | {"id": 2} == {
        **old,
        "id": 2,
        "data": 2,
        "note": "n",
        "more": None,
    }
    server.stop()
    words = ["penstock.toml", "--port", str(server.port), "--iproto-port", "0"]
    for more, why in [
        (', {name = "must"}', "field 'note' cannot be renamed to 'must'"),
        (MORE.replace("string", "map"), "field 'note' has the type string, and its type cannot be changed to map"),
    ]:
        config.write_text(LETTERS.format(more=more))
        [(code, text)] = refusals(tmp_path, words)
        assert code != 0 and f"space letters: Can't modify space 'letters': {why}" in text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("xqueue = 5", "xqueue must be"),
        ("[xqueue]\njobs = 5", "a table for each space"),
        ("[xqueue.jobs]\nfields = {status = 1}", "field 1 is part of the primary key, so it cannot be status"),
        ("[xqueue.jobs]\nfields = {status = 2}\nworkers = 5", "workers run only in your process"),
    ],
)
def test_spaces_that_cannot_be_are_refused_at_the_start(tmp_path: Path, lines: str, words: str) -> None:
    (tmp_path / "penstock.toml").write_text(lines)
    with pytest.raises(ConfigError, match=words):
        load("penstock.toml", [], {}, tmp_path)


def test_spaces_are_the_same_in_both_forms_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[xqueue.jobs]\nfields = {status = 2}\ntube_stats = []\n")
    (tmp_path / "b.conf").write_text("""xqueue jobs '{"fields": {"status": 2}, "tube_stats": []}'\n""")
    assert load("a.toml", [], {}, tmp_path).xqueue == load("b.conf", [], {}, tmp_path).xqueue


# Real clients


def test_with_tarantool_python(server: Server, name: str) -> None:
    with contextlib.closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        connection.call("xqueue.upgrade", name, OPTIONS)
        assert connection.call(f"box.space.{name}:put", {"data": "x", "tube": "A"}).data == [READY]
        task = connection.call(f"box.space.{name}:take", 1).data[0]
        assert task["status"] == "T"
        with pytest.raises(tarantool.DatabaseError, match="timeout required"):
            connection.call(f"box.space.{name}:take", -1)
        assert connection.call(f"box.space.{name}:ack", task).data[0]["status"] == "D"
        task, processed = connection.call(f"box.space.{name}:wait", 1, 1).data
        assert processed is True
        connection.call(f"box.space.{name}:put", {"data": b"\xff\0"})
        assert connection.call(f"box.space.{name}:take").data[0]["data"] == b"\xff\0"
        assert connection.call(f"box.space.{name}:take").data == []
        assert connection.call(f"box.space.{name}:stats").data[0]["transition"]["T-D"] == 1
        time64 = {"format": FORMAT, "fields": OPTIONS["fields"], "features": {"id": "time64"}}
        connection.call("xqueue.upgrade", f"{name}_64", time64)
        [made] = connection.call(f"box.space.{name}_64:put", {"data": 1}).data
        assert made["id"] > 2**53
        assert connection.select(name, 2).data == [[2, "T", 0, None, b"\xff\0"]]
        connection.call(f"box.space.{name}:format", [[*FORMAT, NOTE]])
        assert connection.select(name, 2).data == [[2, "T", 0, None, b"\xff\0", None]]
        connection.call(f"box.space.{name}_64:take")
        assert connection.call(f"box.space.{name}_64:ack", made["id"]).data[0]["id"] == made["id"]


def test_with_asynctnt(server: Server, name: str) -> None:
    async def talk() -> None:
        async with asynctnt.Connection(host="127.0.0.1", port=server.iproto_port) as connection:
            await connection.call("xqueue.upgrade", [name, OPTIONS])
            waiting = [asyncio.ensure_future(connection.call(f"box.space.{name}:take", [20])) for _ in range(10)]
            for number in range(10):
                await connection.call(f"box.space.{name}:put", [{"data": number}])
            tasks = [task for [task] in await asyncio.gather(*waiting)]
            assert sorted(task["data"] for task in tasks) == list(range(10))
            await asyncio.gather(*(connection.call(f"box.space.{name}:ack", [task["id"]]) for task in tasks))
            [stats] = await connection.call(f"box.space.{name}:stats")
            assert stats["counts"]["D"] == 10 and stats["transition"]["T-D"] == 10
            with pytest.raises(asynctnt.exceptions.TarantoolDatabaseError) as refusal:
                await connection.call(f"box.space.{name}:ack", [99])
            assert refusal.value.message == "Task {99} was not found"

    asyncio.run(talk())


def test_connections_of_one_client_work_in_threads(server: Server, space: Space, name: str) -> None:
    done: list[Any] = []

    def work() -> None:
        with contextlib.closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
            while task := connection.call(f"box.space.{name}:take", 0.5).data:
                connection.call(f"box.space.{name}:ack", task[0]["id"])
                done.append(task[0]["data"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for number in range(40):
        space("put", {"data": number})
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(40))
