"""`penstock import tarantool` imports every task of tarantool/queue and xqueue exactly once, even if it is killed."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tarantool
from tarantool.msgpack_ext.unpacker import ext_hook
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.wire.msgpack import Ext, pack
from tests.cli.tarantool_instance import BINARY, BINARY_ID, Tarantool
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, Server, environment

FOREVER_US = 3_153_600_000 * 1_000_000
STATES = {b"r": "ready", b"t": "ready", b"!": "buried", b"~": "delayed"}
STATUSES = {b"R": "ready", b"T": "ready", b"B": "buried", b"W": "delayed"}
# Tolerance for clock differences and the duration of the import. The times in the spaces are hours or more.
ABOUT_S = 600


@pytest.fixture(scope="module")
def instance(needs: Callable[[object, str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tarantool]:
    needs(shutil.which("tarantool"), "tarantool is not installed (Debian: apt-get install tarantool)")
    running = Tarantool(tmp_path_factory.mktemp("tarantool") / "home", 10_000)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a new directory, because imports from servers write state files into the current directory."""
    monkeypatch.chdir(tmp_path)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["import", "tarantool", *map(str, words)])


def told(*words: object) -> dict[str, Any]:
    result = run(*words, "--json")
    assert isinstance(result.exception, SystemExit | None), result.output
    return dict(json.loads(result.stdout))


# ---- Comparing -------------------------------------------------------------------------------------------------------


def about(expected: float | None, found: float | None) -> bool:
    return expected is found if expected is None or found is None else abs(expected - found) < ABOUT_S


def jobs_of(queue: penstock.Queue, tube: str) -> list[tuple[dict[str, Any], Any]]:
    """Return the jobs of a tube with their bodies, per state in the order of delivery."""
    place = queue.find_tube(tube)
    found = [job for state in ("ready", "delayed", "buried", "taken", "done") for job in place.jobs(state, 100_000)]
    return [(job.meta(), job.body) for job in found]


def plain(value: Any) -> Any:
    """Convert a value to the form that Tarantool's client returns if strings are bytes."""
    if isinstance(value, Ext):
        return ext_hook(value.code, value.data)
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def is_alive(row: list[Any]) -> bool:
    """Return whether a task with a ttl has not expired."""
    return row[3] == FOREVER_US or row[6] + row[3] > time.time() * 1e6


def compare_queue(instance: Tarantool, queue: penstock.Queue, tube: str, utube: int, data: int) -> int:
    """Compare the tasks of a tube with its jobs. Return their number."""
    rows = [row for row in instance.rows(tube) if data < 7 or is_alive(row)]
    found = {meta["number"]: (meta, body) for meta, body in jobs_of(queue, tube)}
    assert sorted(found) == [row[0] for row in rows]
    ready = sorted((row[5] if data >= 7 else 0, row[0]) for row in rows if STATES[row[1]] == "ready")
    assert [number for number, (meta, _) in found.items() if meta["state"] == "ready"] == [id for _, id in ready]
    for row in rows:
        meta, body = found[row[0]]
        assert meta["state"] == STATES[row[1]], row
        assert (plain(body), type(plain(body))) == (row[data], type(row[data])), row
        if utube:
            assert meta["key"] == row[utube].decode()
        if data >= 7:
            assert meta["priority"] == row[5]
            assert meta["ttr"] == (None if row[4] == FOREVER_US else row[4] / 1e6)
            assert about(None if row[3] == FOREVER_US else (row[6] + row[3]) / 1e6, meta["expires"])
            assert about(row[2] / 1e6 if row[1] == b"~" else None, meta["wakes"])
    return len(rows)


def compare_numbered(instance: Tarantool, queue: penstock.Queue) -> int:
    """Compare the tasks of the xqueue space with numeric ids. Return their number."""
    rows = [row for row in instance.rows("numbered") if row[1] not in (b"Z", b"D")]
    found = {meta["number"]: (meta, body) for meta, body in jobs_of(queue, "numbered")}
    assert sorted(found) == [row[0] for row in rows]
    ready = sorted((row[3], row[0]) for row in rows if STATUSES[row[1]] == "ready")
    assert [number for number, (meta, _) in found.items() if meta["state"] == "ready"] == [id for _, id in ready]
    for id, status, runat, priority, tube, payload, note in rows:
        meta, body = found[id]
        assert meta["state"] == STATUSES[status] and meta["priority"] == priority and meta["key"] == tube.decode()
        assert about(runat if status == b"W" else None, meta["wakes"])
        assert about(runat if status == b"R" and runat else None, meta["expires"])
        # The body omits null fields.
        fields = {b"payload": payload, b"note": note}
        assert plain(body) == {name: value for name, value in fields.items() if value is not None}
    return len(rows)


def compare_named(instance: Tarantool, queue: penstock.Queue) -> int:
    """Compare the tasks of the xqueue space with uuids. Return their number."""
    rows = instance.rows("named")
    found = {meta["name"]: (meta, body) for meta, body in jobs_of(queue, "named")}
    assert sorted(found) == [row[0].decode() for row in rows]
    ready = [row[0].decode() for row in rows if STATUSES[row[1]] == "ready"]
    assert [name for name, (meta, _) in found.items() if meta["state"] == "ready"] == ready
    for key, status, payload in rows:
        meta, body = found[key.decode()]
        assert meta["state"] == STATUSES[status] and plain(body) == payload
    return len(rows)


def compare_all(instance: Tarantool, target: Path) -> int:
    """Compare all tasks. Return their number."""
    with penstock.open(target) as queue:
        count = compare_queue(instance, queue, "fifo", 0, 2)
        count += compare_queue(instance, queue, "micro", 2, 3)
        count += compare_queue(instance, queue, "timed", 0, 7)
        count += compare_queue(instance, queue, "limited", 0, 7)
        count += compare_queue(instance, queue, "microtimed", 7, 8)
        assert queue.find_tube("timed").policy.default_ttr_ms == 60_000
        assert queue.find_tube("limited").policy.capacity == 1_000_000
        # Bytes that are valid UTF-8 stay bytes.
        assert queue.job(f"fifo#{BINARY_ID}").body == BINARY
        return count + compare_numbered(instance, queue) + compare_named(instance, queue)


# ---- Killed ----------------------------------------------------------------------------------------------------------

# An import that kills itself before or after its nth put, or before or after its nth write of the state file. Puts of a
# batch share commits, so after the first put of a batch others are done, too.
KILLED = """
import os, signal, sys
from penstock.cli.imports.import_state import ImportState
from penstock.cli.main import main
from penstock.embedded_async import AsyncTube

moment, left = sys.argv.pop(1).split(":")
left = int(left)
save, put = ImportState.save, AsyncTube.put

def reached(what):
    global left
    left -= what == moment
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def saved(state, path):
    reached("save")
    save(state, path)
    reached("saved")

async def counted(tube, body, **options):
    reached("put")
    job = await put(tube, body, **options)
    reached("done")
    return job

ImportState.save, AsyncTube.put = saved, counted
main()
"""

# The state file is written before a tube is created, and after each batch of 500.
KILLS = ["saved:1", "put:1", "done:1", "save:1", "save:2", "done:450", "saved:2", "save:3", "put:1700", "save:4"]


def test_ten_thousand_tasks_arrive_once_although_the_import_is_killed(instance: Tarantool, tmp_path: Path) -> None:
    target = tmp_path / "queue"
    words = ["import", "tarantool", instance.url, "--into", str(target)]
    for at in KILLS:
        command = [sys.executable, "-c", KILLED, at, *words]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as killed:
            killed.communicate(timeout=PATIENCE_S)
        assert killed.returncode == -signal.SIGKILL
    done = told(instance.url, "--into", target)
    assert 0 < done["imported_now"] < done["imported"]
    assert compare_all(instance, target) == done["imported"]


def test_a_server_gets_the_same_tasks_and_those_of_temporary_tubes(instance: Tarantool, tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendfsync", "never")
    try:
        url = f"penstock://127.0.0.1:{server.port}"
        counted = told(instance.url, "--into", url, "--dry-run")
        done = told(instance.url, "--into", url)
        assert counted["imported"] == done["imported"] == done["imported_now"]
        assert counted["passed_over"] == done["passed_over"]
        with penstock.connect(url) as queue:
            volatile = queue.find_tube("volatile")
            assert volatile.policy.temporary and volatile.take().body == "gone with the process"
        # Tarantool's client must find the same tasks on this server. It returns strings as bytes.
        with closing(tarantool.Connection("127.0.0.1", server.iproto_port, encoding=None)) as client:
            for row in instance.rows("micro")[:200]:
                task = client.call("queue.tube.micro:peek", row[0])[0]
                assert task == [row[0], b"r" if row[1] == b"t" else row[1], row[3]]
            for row in [row for row in instance.rows("numbered") if row[1] not in (b"Z", b"D")][:200]:
                task = client.call("box.space.numbered:get", row[0])[0]
                assert [task[name] for name in (b"id", b"tube", b"payload", b"note")] == [row[0], *row[4:]]
            for key, status, payload in instance.rows("named")[:200]:
                task = client.call("box.space.named:get", key.decode())[0]
                assert task == {b"key": key, b"status": b"R" if status == b"T" else status, b"payload": payload}
            # New ids continue after the imported ones.
            assert client.call("queue.tube.micro:put", "next")[0][0] == instance.rows("micro")[-1][0] + 1
            task = client.call("box.space.numbered:put", {"tube": "t", "priority": 0, "payload": "next"})[0]
            assert task[b"id"] == instance.rows("numbered")[-1][0] + 1
    finally:
        server.stop()


# ---- Ids -------------------------------------------------------------------------------------------------------------


def test_tasks_that_cannot_keep_their_ids_are_in_the_id_map(instance: Tarantool, tmp_path: Path) -> None:
    target, ids = tmp_path / "queue", tmp_path / "ids.jsonl"
    with penstock.open(target) as queue:
        queue.tube("fifo", "fifo").put("there before")
    done = told(instance.url, "--into", target, "--tube", "fifo", "--id-map", ids)
    lines = [json.loads(line) for line in ids.read_text().splitlines()]
    assert done["new_ids"] == done["imported"] == len(lines) and done["id_map"] == str(ids)
    assert [line["old"] for line in lines] == [row[0] for row in instance.rows("fifo")]
    with penstock.open(target) as queue:
        for line in lines:
            assert queue.job(line["id"]).meta()["number"] == queue.job(f"fifo#{line['number']}").meta()["number"]


def test_tasks_of_another_tarantool_do_not_replace_those_with_the_same_ids(tmp_path: Path) -> None:
    for number in (1, 2):
        dump(f"{number}.jsonl", ["_queue", ["t", 0, "t", "fifo", {}]], ["t", [7, "r", f"of {number}"]], id=f"u{number}")
        assert told(f"{number}.jsonl", "--into", tmp_path / "queue")["imported_now"] == 1
    assert json.loads((tmp_path / "2.jsonl.penstock-ids").read_text())["old"] == 7
    assert not (tmp_path / "1.jsonl.penstock-ids").exists()
    with penstock.open(tmp_path / "queue") as queue:
        assert [job.body for job in queue.find_tube("t").jobs("ready")] == ["of 1", "of 2"]
        assert queue.job("t#7").body == "of 1" and queue.job("t#8").body == "of 2"


def test_nothing_is_imported_twice_when_the_state_file_is_lost(instance: Tarantool, tmp_path: Path) -> None:
    words = (instance.url, "--into", tmp_path / "queue", "--tube", "named", "--tube", "fifo", "--state")
    first = told(*words, tmp_path / "first")
    second = told(*words, tmp_path / "second")
    assert second["imported_now"] == 0 and second["already_there"] == first["imported_now"] > 0
    assert not list(tmp_path.glob("*.penstock-ids"))


def test_tubes_can_be_imported_one_after_the_other(instance: Tarantool, tmp_path: Path) -> None:
    for tube in ("fifo", "named", "fifo"):
        assert run(instance.url, "--into", tmp_path / "queue", "--tube", tube).exit_code == 0
    server = f"tarantool-127.0.0.1-{instance.port}"
    assert sorted(path.name for path in tmp_path.glob("*.penstock-import")) == [
        f"{server}-fifo.penstock-import",
        f"{server}-named.penstock-import",
    ]


# ---- Dumps -----------------------------------------------------------------------------------------------------------


def dump(path: str, *rows: list[Any], id: str = "5535a256-0f7d-4b15-995f-7d12c3633040") -> Path:
    """Write a dump of rows, each a space and a tuple."""
    lines: list[dict[str, Any]] = [{"tarantool": id}, *({"space": space, "tuple": row} for space, row in rows)]
    Path(path).write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"end": len(rows)}]))
    return Path(path)


def test_a_row_in_msgpack_keeps_binary_data_uuids_and_decimals(tmp_path: Path) -> None:
    values = [b"\x00\xff", Ext(2, bytes(16)), Ext(1, b"\x02\x01\x0c"), {"nested": [Ext(2, bytes(16)), b"bin"]}]
    lines = [{"tarantool": "u"}, {"space": "_queue", "tuple": ["t", 0, "t", "fifo"]}]
    for number, value in enumerate(values):
        encoded = base64.b64encode(pack([number, "r", value])).decode()
        lines.append({"space": "t", "tuple_base64": encoded})
    Path("d.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, {"end": 5}]))
    assert told("d.jsonl", "--into", tmp_path / "queue")["imported"] == 4
    with penstock.open(tmp_path / "queue") as queue:
        assert [queue.job(f"t#{number}").body for number in range(4)] == values


ROWS = [["_queue", ["t", 0, "t", "fifo", {}]], ["t", [0, "r", "x"]]]
DAMAGED = {
    "": "the dump is incomplete",
    "hello": "line 1 is not a JSON object",
    '{"body": 1}': "this is not a dump of Tarantool",
    '{"tarantool": "u"}\n{"space": "t", "tuple": [1]}\n': 'after line 2 there is no {"end": 1}',
    '{"tarantool": "u"}\n{"space": "t", "tup': "line 2 is not a JSON object; the dump ends within it",
    '{"tarantool": "u"}\n{"space": "t"}\n{"end": 1}': "line 2 is not a row",
    '{"tarantool": "u"}\n{"space": "t", "tuple_base64": "?"}\n{"end": 1}': "line 2 is not a row",
    '{"tarantool": "u"}\n{"space": "t", "tuple_base64": "wA=="}\n{"end": 1}': "line 2 is not a row",
    '{"tarantool": "u"}\n{"end": 7}': "the dump has 0 rows, but its last line says 7",
    '{"tarantool": "u"}\n{"end": 0}\n{"space": "t", "tuple": [1]}': "line 3 is after the end",
    '{"tarantool": "u"}\n{"space": "_space", "tuple": [1]}\n{"end": 1}': "the rows of _space or _index are not those",
}


@pytest.mark.parametrize("text", DAMAGED, ids=repr)
def test_a_damaged_dump_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    Path("d.jsonl").write_text(text)
    result = run("d.jsonl", "--into", tmp_path / "queue")
    assert result.exit_code == 1 and result.output.count("\n") == 1
    assert result.output.startswith("penstock: d.jsonl: ") and DAMAGED[text] in result.output
    assert not (tmp_path / "queue").exists()


def test_invalid_rows_are_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    dump(
        "d.jsonl",
        *ROWS,
        *(["t", row] for row in ([1], ["one", "r", 1], [2, "?", 1], [3, "r"], [4, "-", 1], [5, "r", 1])),
        ["_queue", ["timed", 1, "timed", "fifottl", {}]],
        ["timed", [0, "r", "soon", 1, 1, 1, 1, "x"]],
        ["timed", [1, "r", 0, FOREVER_US, 0, 1, 0, "ttr 0"]],
    )
    result = run("d.jsonl", "--into", tmp_path / "queue")
    assert result.exit_code == 1 and "3 jobs are imported" in result.output
    assert "5 were passed over: rows that are no tasks" in result.output
    assert "1 was passed over: acked already" in result.output
    for label in ("tube t:", "task one of tube t:", "task 2 of tube t:", "task 3 of tube t:", "task 0 of tube timed:"):
        assert f"penstock: {label}" in result.output


# ---- Bad sources -----------------------------------------------------------------------------------------------------


def test_unreadable_sources_are_refused_in_one_sentence(instance: Tarantool, tmp_path: Path) -> None:
    address = f"127.0.0.1:{instance.port}"
    cases: list[tuple[int, str, tuple[str, ...]]] = [
        (75, f"cannot connect to tarantool://127.0.0.1:{(closed := free_port())}", (f"tarantool://127.0.0.1:{closed}",)),
        (4, "Incorrect password supplied for user 'mover'", (f"tarantool://mover:wrong@{address}",)),
        (4, "User 'somebody' is not found", (f"tarantool://somebody:x@{address}",)),
        (3, "no queue was found", (f"tarantool://stranger:x@{address}",)),
        (3, "no queue was found", (f"tarantool://{address}",)),
        (2, "write the URL as tarantool://user:password@host:3301", ("http://127.0.0.1",)),
        (2, "write the URL as tarantool://user:password@host:3301", ("tarantool://127.0.0.1:99999",)),
        (2, "space plain is not a queue", (instance.url, "--tube", "plain")),
        (3, "there is no readable tube or space nothing", (instance.url, "--tube", "nothing")),
        (2, "tube odd has the type my_driver", (instance.url, "--tube", "odd")),
        (2, "--upgrade describes one space", (instance.url, "--upgrade", "{}")),
        (2, "--upgrade is not JSON", (instance.url, "--tube", "plain", "--upgrade", "{")),
        (2, "--upgrade must be a JSON object", (instance.url, "--tube", "plain", "--upgrade", "[]")),
        (2, "unknown field text1 for status", (
            instance.url, "--tube", "plain", "--upgrade", '{"fields": {"status": "text1"}}',
        )),
        (1, "No such file", ("nothing.jsonl",)),
    ]  # fmt: skip
    for code, text, words in cases:
        result = run(*words, "--into", tmp_path / "queue")
        assert result.exit_code == code, (words, result.output)
        assert text in result.output and result.output.count("\n") == 1 and "cret" not in result.output
    assert not (tmp_path / "queue").exists()


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n" * 20, b"Tarantool 2.6.0 (Binary) x", b""])
def test_a_server_other_than_tarantool_is_refused_in_one_sentence(tmp_path: Path, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        result = run(f"tarantool://127.0.0.1:{listening.getsockname()[1]}", "--into", tmp_path / "queue")
        thread.join()
    assert result.exit_code in (1, 75) and result.output.count("\n") == 1
    assert "is not a Tarantool server" in result.output or "lost the connection" in result.output


def test_tubes_of_unknown_types_are_reported_and_the_others_are_imported(instance: Tarantool, tmp_path: Path) -> None:
    result = run(instance.url, "--into", tmp_path / "queue", "--dry-run")
    assert result.exit_code == 1 and "1 was passed over: tubes that cannot be read" in result.output
    assert "tube odd has the type my_driver; the types that can be read are" in result.output
    assert not (tmp_path / "queue").exists()


def test_upgrade_options_describe_a_space_whose_fields_have_other_names(tmp_path: Path) -> None:
    format = [{"name": "id", "type": "unsigned"}, {"name": "s", "type": "string"}, {"name": "at", "type": "number"}]
    format.append({"name": "data", "type": "any"})
    dump(
        "d.jsonl",
        ["_space", [512, 1, "orders", "memtx", 0, {}, format]],
        ["_index", [512, 0, "primary", "tree", {}, [[0, "unsigned"]]]],
        *(["orders", [number, status, 0, {"n": number}]] for number, status in enumerate("RTWBD", 3)),
    )
    assert run("d.jsonl", "--into", tmp_path / "queue").exit_code == 3
    upgrade = {"fields": {"status": "s", "runat": "at"}, "features": {"keep": True, "delayed": True, "ttr": 30}}
    Path("upgrade.json").write_text(json.dumps(upgrade))
    done = told("d.jsonl", "--into", tmp_path / "queue", "--tube", "orders", "--upgrade", "@upgrade.json")
    assert done["imported_now"] == 5
    with penstock.open(tmp_path / "queue") as queue:
        orders = queue.find_tube("orders")
        assert {name: count for name, count in orders.stats().items() if count} == {"ready": 3, "buried": 1, "done": 1}
        assert orders.take().body == {"n": 3} and orders.policy.default_ttr_ms == 30_000
