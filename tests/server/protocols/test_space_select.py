"""Spaces are read as Tarantool reads them: by index, iterator, key, limit and offset.

The rows of one of Penstock's spaces are copied into a space of a real Tarantool with the same indexes. Then the same
client sends the same requests to both.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ports import free_port

from ..iproto_wire import EVAL, SELECT, IprotoWire, Refusal
from ..serving import Server

EQ, REQ, ALL, LT, LE, GE, GT = range(7)

TUBES = {"fifo": "sel_fifo", "fifottl": "sel_fifottl", "utube": "sel_utube", "utubettl": "sel_utubettl"}
FORMAT = [
    {"name": "id", "type": "unsigned"},
    {"name": "tube", "type": "string"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "pri", "type": "integer"},
    {"name": "payload", "type": "any", "is_nullable": True},
]
XQUEUES: dict[str, dict[str, Any]] = {
    "sel_numbered": {
        "format": FORMAT,
        "fields": {"status": "status", "runat": "runat", "priority": "pri", "tube": "tube"},
        "features": {"id": "auto_increment", "delayed": True, "buried": True, "keep": True, "ttl": True},
    },
    "sel_named": {
        "format": [{"name": "id", "type": "string"}, *FORMAT[1:]],
        "fields": {"status": "status", "runat": "runat", "tube": "tube"},
        "features": {"id": "required", "delayed": True},
    },
    "sel_composite": {
        "format": [{"name": "id", "type": "unsigned"}, *FORMAT[1:], {"name": "part", "type": "integer"}],
        "primary_key": ["id", "part"],
        "fields": {"status": "status", "runat": "runat", "priority": "pri"},
        "features": {"id": "required", "delayed": True},
    },
}
SPACES = [*TUBES.values(), *XQUEUES, "_queue", "_queue_taken", "_queue_taken_2", "_queue_consumers"]

LUA = """
local name, format, indexes, rows = ...
local space = box.schema.space.create(name, {format = format})
for _, index in ipairs(indexes) do
    space:create_index(index[1], {unique = index[2], parts = index[3]})
end
for _, row in ipairs(rows) do space:insert(row) end
return space.id
"""


class Pair:
    """One of Penstock's spaces, and its copy in Tarantool."""

    def __init__(self, name: str, number: int, copy: int, indexes: list[Any], rows: list[Any]) -> None:
        self.name, self.number, self.copy, self.indexes, self.rows = name, number, copy, indexes, rows


def fill(iproto: IprotoWire, other: IprotoWire, chance: random.Random) -> None:
    """Create tasks in all states, with every kind of key."""
    call = iproto.call
    for type, name in TUBES.items():
        call("queue.create_tube", name, type, {"if_not_exists": True})
        for _ in range(40):
            options: dict[str, Any] = {"utube": chance.choice("abc")} if "utube" in type else {}
            if "ttl" in type:
                options |= {"pri": chance.randrange(3), "ttl": 1_000, "ttr": 500}
                options |= {"delay": 300} if chance.random() < 0.2 else {}
            id = call(f"queue.tube.{name}:put", "x", options)[0][0]
            if chance.random() < 0.2:
                call(f"queue.tube.{name}:bury", id)
        for number in range(6):
            (iproto if number % 2 else other).call(f"queue.tube.{name}:take", 0)
    for name, options in XQUEUES.items():
        call("xqueue.upgrade", name, options)
        for number in range(40):
            row: dict[str, Any] = {"tube": chance.choice(["a", "b", "ü"]), "payload": [1], "runat": 0, "pri": 0}
            if options["fields"].get("priority"):
                row["pri"] = chance.randrange(-2, 3)
            if options["features"]["id"] == "required":
                row["id"] = f"{chance.choice('abc')}{number}" if name == "sel_named" else chance.randrange(8)
            if name == "sel_composite":
                row["part"] = chance.randrange(-100, 100)
            try:
                call(f"box.space.{name}:put", row, {"delay": 50 + number % 3} if chance.random() < 0.3 else {})
            except Refusal as refusal:
                assert refusal.args[0] == 3  # The key already exists.
        for number in range(8):
            (key,) = [_key(name, row) for row in call(f"box.space.{name}:take", 0)]
            if number % 3 == 0:
                call(f"box.space.{name}:bury", key)
            elif number % 3 == 1:
                call(f"box.space.{name}:ack", key)
    for name in ("sel_empty_a", "sel_empty_b"):
        call("queue.create_tube", name, "fifo", {"if_not_exists": True})
        for wire in (iproto, other, other):
            wire.start(f"queue.tube.{name}:take", 500 + chance.randrange(3))
    other.call("queue.state")


def _key(name: str, row: dict[str, Any]) -> Any:
    return [row["id"], row["part"]] if name == "sel_composite" else [row["id"]]


@pytest.fixture(scope="module")
def tarantool(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Iterator[int]:
    """The port of a Tarantool without access control."""
    program = shutil.which("tarantool")
    needs(program, "tarantool is not installed (Debian: apt-get install tarantool)")
    assert program is not None
    port, folder = free_port(), tmp_path_factory.mktemp("tarantool")
    script = folder / "init.lua"
    script.write_text(
        f"box.cfg{{listen = '127.0.0.1:{port}', wal_mode = 'none', log_level = 1}}\n"
        "box.schema.user.grant('guest', 'super')\nprint('ready') io.stdout:flush()\n"
    )
    with subprocess.Popen([program, str(script)], cwd=folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as run:
        assert run.stdout is not None and run.stdout.readline() == b"ready\n"
        yield port
        run.terminate()


@pytest.fixture(scope="module")
def wires(tmp_path_factory: pytest.TempPathFactory, tarantool: int) -> Iterator[tuple[IprotoWire, IprotoWire]]:
    """A connection to a server with tasks, and one to Tarantool."""
    server = Server(tmp_path_factory.mktemp("server"), "--appendfsync", "everysec")
    mine, other, theirs = IprotoWire(server.iproto_port), IprotoWire(server.iproto_port), IprotoWire(tarantool)
    fill(mine, other, random.Random(22))
    # Replies of waiting calls come later, so requests need a separate connection.
    asking = IprotoWire(server.iproto_port)
    yield asking, theirs
    for wire in (asking, mine, other, theirs):
        wire.close()
    server.stop()


@pytest.fixture(scope="module")
def pairs(wires: tuple[IprotoWire, IprotoWire]) -> list[Pair]:
    """All spaces, and their copies."""
    mine, theirs = wires
    found = []
    for name in SPACES:
        (described,) = select(mine, 281, 2, EQ, [name])
        indexes = select(mine, 289, 0, EQ, [described[0]])
        rows = select(mine, described[0], 0, ALL, [])
        assert rows, name
        parts = [[_part(part) for part in index[5]] for index in indexes]
        made = [[index[2], index[4]["unique"], parts[at]] for at, index in enumerate(indexes)]
        format = [{**field, "type": "any" if field["type"] == "map" else field["type"]} for field in described[6]]
        code, answer = theirs.ask(EVAL, {0x27: LUA, 0x21: [name, format, made, rows]})
        assert code == 0, answer
        numbers = [(row[1], at, [part[0] - 1 for part in parts[at]]) for at, row in enumerate(indexes)]
        found.append(Pair(name, described[0], answer[0x30][0], numbers, rows))
    return found


def _part(part: Any) -> list[Any]:
    """Return a part of an index in the form that `create_index` takes."""
    if isinstance(part, dict):
        return [part["field"] + 1, part["type"], {"is_nullable": True}][:2]
    return [part[0] + 1, part[1]]


def select(
    wire: IprotoWire, space: int, index: int, iterator: int, key: list[Any], limit: int = 2**32 - 1, offset: int = 0
) -> Any:
    """Return the rows of a SELECT request, or the number of its error."""
    body = {0x10: space, 0x11: index, 0x12: limit, 0x13: offset, 0x14: iterator, 0x20: key}
    code, answer = wire.ask(SELECT, body)
    return code & 0x7FFF if code else answer[0x30]


@settings(max_examples=1_000, deadline=None)
@given(data=st.data())
def test_select_returns_the_same_rows_as_tarantool(
    wires: tuple[IprotoWire, IprotoWire], pairs: list[Pair], data: st.DataObject
) -> None:
    mine, theirs = wires
    pair = data.draw(st.sampled_from(pairs))
    number, at, parts = data.draw(st.sampled_from(pair.indexes))
    row = data.draw(st.sampled_from(pair.rows))
    key = [row[part] for part in parts][: data.draw(st.integers(0, len(parts)))]
    for place in range(len(key)):
        change = data.draw(st.sampled_from(["", "", "", "more", "less", "other", "wrong"]))
        if change in ("more", "less") and isinstance(key[place], int):
            key[place] += 1 if change == "more" else -1
        elif change in ("more", "less") and isinstance(key[place], str):
            key[place] = key[place] + "a" if change == "more" else key[place][:-1]
        elif change == "other":
            key[place] = data.draw(st.sampled_from(pair.rows))[parts[place]]
        elif change == "wrong":
            key[place] = data.draw(st.sampled_from([None, "x", 7, -7, 1.5]))
    if data.draw(st.integers(0, 20)) == 0:
        key = [*key, *([1] * 5)]
    iterator = data.draw(st.integers(EQ, GT))
    limit, offset = (
        data.draw(st.sampled_from([0, 1, 2, 5, 50, 2**32 - 1])),
        data.draw(st.sampled_from([0, 0, 1, 3, 50])),
    )
    got = select(mine, pair.number, number, iterator, key, limit, offset)
    expected = select(theirs, pair.copy, at, iterator, key, limit, offset)
    assert got == expected, (pair.name, number, iterator, key, limit, offset)


def test_methods_of_spaces_return_the_same_as_in_tarantool(
    wires: tuple[IprotoWire, IprotoWire], pairs: list[Pair]
) -> None:
    mine, theirs = wires
    for pair in pairs:
        names = {row[1]: row[2] for row in select(mine, 289, 0, EQ, [pair.number])}
        for number, _, parts in pair.indexes:
            path = f"box.space.{pair.name}.index.{names[number]}"
            for row in pair.rows[::7]:
                for length in range(len(parts) + 1):
                    key = [row[part] for part in parts][:length]
                    calls = [(f"{path}:{method}", [key]) for method in ("min", "max", "count", "get", "select")]
                    for iterator in ("EQ", "req", "GE", "GT", "LE", "LT", "ALL"):
                        calls.append((f"{path}:count", [key, {"iterator": iterator}]))
                        calls.append((f"{path}:select", [key, {"iterator": iterator, "limit": 3, "offset": 1}]))
                        calls.append((f"box.space.{pair.name}:select", [key[:1], {"iterator": iterator, "limit": 3}]))
                    for name, args in calls:
                        got, expected = outcome(mine, name, args), outcome(theirs, name, args)
                        assert got == (expected if expected != [None] else []), (name, args)
            assert mine.call(f"{path}:len") == [len(pair.rows)]


def outcome(wire: IprotoWire, name: str, args: list[Any]) -> Any:
    try:
        return wire.call(name, *args)
    except Refusal as refusal:
        return refusal.args[0]
