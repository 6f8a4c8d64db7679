"""Tubes that are read as spaces, and spaces that do not exist here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ..iproto_wire import SELECT, IprotoWire, Refusal

CENTURY_US = 3_153_600_000_000_000


def refused(call: Callable[..., Any], *args: Any) -> tuple[int, str]:
    """Return the number and the text of a refused call."""
    with pytest.raises(Refusal) as caught:
        call(*args)
    return caught.value.args[0], caught.value.args[1]


def test_rows_have_the_layout_of_the_original(iproto: IprotoWire) -> None:
    call = iproto.call
    for type, options in {"fifo": {}, "utube": {"utube": "m"}, "fifottl": {"ttl": 60, "ttr": 5, "pri": 3}}.items():
        call("queue.create_tube", f"rows_{type}", type)
        call(f"queue.tube.rows_{type}:put", {"a": 1}, options)
    call("queue.create_tube", "rows_utubettl", "utubettl")
    call("queue.tube.rows_utubettl:put", "x", {"utube": 7})
    assert call("box.space.rows_fifo:get", 0) == [[0, "r", {"a": 1}]]
    assert call("box.space.rows_utube:get", [0]) == [[0, "r", "m", {"a": 1}]]
    ((id, state, event, ttl, ttr, pri, created, data),) = call("box.space.rows_fifottl:get", 0)
    assert (id, state, ttl, ttr, pri, data) == (0, "r", 60_000_000, 5_000_000, 3, {"a": 1})
    assert event == created + ttl and abs(created / 1e6 - time.time()) < 60
    ((id, state, event, ttl, ttr, pri, created, utube, data),) = call("box.space.rows_utubettl:get", 0)
    assert (ttl, ttr, pri, utube, data) == (CENTURY_US, CENTURY_US, 0, "7", "x") and event == created + ttl
    assert call("box.space.rows_fifo:get", 99) == []


def test_rows_are_counted_and_selected(iproto: IprotoWire) -> None:
    call = iproto.call
    call("queue.create_tube", "many_rows", "fifo")
    count = 2_300
    for number in range(count):
        iproto.start("queue.tube.many_rows:put", number)
    assert call("box.space.many_rows:len") == call("box.space.many_rows:count") == [count]
    assert call("box.space.many_rows:count", 5) == [1] and call("box.space.many_rows:count", [count]) == [0]
    (rows,) = call("box.space.many_rows:select")
    assert rows == [[number, "r", number] for number in range(count)]
    assert call("box.space.many_rows:select", [], {"limit": 2, "offset": 1_500}) == [rows[1_500:1_502]]
    assert call("box.space.many_rows:select", 3) == call("box.space.many_rows:select", [3]) == [[[3, "r", 3]]]
    assert call("box.space.many_rows:select", 9_999) == [[]]
    for wrong in ({"limit": -1}, {"nope": 1}, {"offset": 1.5}, {"limit": "x"}, 5):
        assert refused(call, "box.space.many_rows:select", None, wrong)[0] == 32
    assert refused(call, "box.space.many_rows:select", "x")[0] == 18
    assert refused(call, "box.space.many_rows:get")[0] == refused(call, "box.space.many_rows:get", [1, 2])[0] == 19


def test_tubes_consumers_and_taken_tasks_can_be_read(iproto: IprotoWire, iprotos: Callable[[], IprotoWire]) -> None:
    call = iproto.call
    (told,) = call("queue.create_tube", "about", "fifottl", {"ttr": 60, "ttl": 600})
    opts = {"temporary": False, "ttl": 600.0, "ttr": 60.0, "pri": 0}
    (tubes,) = call("box.space._queue:select")
    assert ["about", told["tube_id"], "about", "fifottl", opts] in tubes
    assert call("box.space._queue:count") == [len(tubes)]
    before = time.time()
    call("queue.tube.about:put", "x")
    call("queue.tube.about:take")
    mine = [row for row in call("box.space._queue_taken:select")[0] if row[1] == told["tube_id"]]
    ((session, _, task, taken),) = mine
    assert task == 0 and before - 1 <= taken / 1e6 <= time.time() + 1
    other = iprotos()
    # The same in the order of newer releases. A session's uuid lets a client join it, so only its own is shown.
    (uuid,) = call("queue.identify")
    for reader, token in ((iproto, uuid), (other, None)):
        rows = [row for row in reader.call("box.space._queue_taken_2:select")[0] if row[0] == told["tube_id"]]
        assert rows == [[told["tube_id"], 0, session, token, taken]]
    assert call("box.space._queue_taken_2:count") == call("box.space._queue_taken:count")
    other.start("queue.tube.about:take", 100)
    other.start("queue.tube.about:take")
    other.call("queue.state")
    waiting = [row for row in call("box.space._queue_consumers:select")[0] if row[2] == told["tube_id"]]
    assert len(waiting) == 2 and {row[0] for row in waiting} != {session}
    assert [row[3] - row[4] for row in waiting] == [100_001_000, CENTURY_US]
    assert call("box.space._queue:select", None, {"limit": 1, "offset": 1}) == [tubes[1:2]]


def test_keys_and_iterators_are_obeyed_by_tubes_and_by_spaces_about_tubes(iproto: IprotoWire) -> None:
    call = iproto.call
    for name in ("keys_a", "keys_b"):
        (told,) = call("queue.create_tube", name, "fifo")
        for number in range(4):
            call(f"queue.tube.{name}:put", number)
        call(f"queue.tube.{name}:take", 0)
    select = "box.space.keys_b:select"
    for iterator, ids in {"EQ": [2], "REQ": [2], "GE": [2, 3], "GT": [3], "LE": [2, 1, 0], "LT": [1, 0]}.items():
        assert [row[0] for row in call(select, [2], {"iterator": iterator})[0]] == ids
        assert call("box.space.keys_b:count", [2], {"iterator": iterator}) == [len(ids)]
    assert [row[0] for row in call(select, [], {"iterator": "LE", "limit": 2, "offset": 1})[0]] == [2, 1]
    row = call("box.space._queue:get", "keys_b")
    assert row[0][:2] == ["keys_b", told["tube_id"]] and call("box.space._queue:select", ["keys_b"]) == [row]
    assert call("box.space._queue:count", "keys_b") == [1] and call("box.space._queue:get", "keys_nope") == []
    assert call("box.space._queue.index.tube_id:get", told["tube_id"]) == row
    assert [each[0] for each in call("box.space._queue:select", "keys_a", {"iterator": "GE", "limit": 2})[0]] == [
        *("keys_a", "keys_b")
    ]
    (taken,) = call("box.space._queue_taken.index.task:select", [told["tube_id"]])
    assert [each[1:3] for each in taken] == [[told["tube_id"], 0]]
    assert call("box.space._queue_taken:select", taken[0][:3]) == [taken]
    assert call("box.space._queue_taken:select", [taken[0][0], told["tube_id"], 1]) == [[]]
    assert call("box.space.keys_b.index.status:min", "r")[0][0] == 1
    assert call("box.space.keys_b.index.status:max", ["r"])[0][0] == 3
    assert call("box.space.keys_b.index.status:max", "!") == []


@pytest.mark.parametrize(
    ("method", "args", "code", "words"),
    [
        ("select", [["x"]], 18, "Supplied key type of part 1 does not match index part type: expected unsigned"),
        ("select", [[1, 2]], 31, "Invalid key part count (expected [0..1], got 2)"),
        ("index.status:select", [["r", -1]], 18, "Supplied key type of part 2 does not match"),
        ("index.status:get", [["r"]], 19, "Invalid key part count in an exact match (expected 2, got 1)"),
        ("select", [[1], {"iterator": "FOO"}], 72, "Unknown iterator type 'FOO'"),
        ("select", [[1], {"iterator": "NEIGHBOR"}], 112, "does not support requested iterator type"),
        ("count", [[1], {"iterator": 99}], 1, "Illegal parameters, Invalid iterator type"),
        ("select", [{"id": 1}], 32, "a key must be a value or a list of values"),
        ("count", [[1], {"limit": 1}], 32, "unknown option 'limit'; use one of iterator"),
        ("index.nope:select", [], 33, "Procedure 'box.space.wrong_keys.index.nope:select' is not defined"),
        ("index.status:put", [], 33, "is not defined"),
        ("pairs", [], 32, "use select with a limit"),
    ],
)
def test_wrong_keys_and_options_have_tarantools_errors(
    iproto: IprotoWire, method: str, args: list[Any], code: int, words: str
) -> None:
    iproto.call("queue.create_tube", "wrong_keys", "fifo", {"if_not_exists": True})
    path = f"box.space.wrong_keys.{method}" if method.startswith("index.") else f"box.space.wrong_keys:{method}"
    number, text = refused(iproto.call, path, *args)
    assert number == code and words in text


def test_wrong_select_requests_have_tarantools_errors(iproto: IprotoWire) -> None:
    for body, code in (
        ({0x10: 512, 0x11: 7, 0x20: []}, 35),
        ({0x10: 512, 0x14: 9, 0x20: []}, 112),
        ({0x10: 512, 0x14: 2**64 - 1, 0x20: []}, 1),
        ({0x10: 512, 0x20: [1]}, 18),
        ({0x10: 512, 0x20: ["a", "b"]}, 31),
        ({0x10: 516, 0x20: []}, 36),
        ({0x10: 512, 0x12: -1, 0x20: []}, 20),
        ({0x10: 512, 0x20: "a"}, 20),
    ):
        assert iproto.ask(SELECT, body)[0] == 0x8000 | code, body
    assert iproto.ask(SELECT, {0x10: 512, 0x12: 0, 0x20: []}) == (0, {0x30: []})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("box.space.nope:select", 36),
        ("box.space.nope:len", 36),
        ("box.space.about:insert", 5),
        ("box.space.about:delete", 5),
        ("box.space.about:put", 33),
        ("box.space._queue:replace", 5),
        ("box.schema.space.create", 5),
        ("box.schema.create_space", 5),
        ("box.schema.user.create", 5),
        ("box.execute", 5),
        ("box.cfg", 5),
        ("box.space.about:nope", 33),
        ("box.nope", 33),
        ("box.space.about", 33),
    ],
)
def test_other_spaces_are_refused_by_name(iproto: IprotoWire, name: str, code: int) -> None:
    assert refused(iproto.call, name)[0] == code
