"""Tubes read as spaces, and what is no space here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from .iproto_wire import IprotoWire, Refusal

CENTURY_US = 3_153_600_000_000_000


def refused(call: Callable[..., Any], *args: Any) -> tuple[int, str]:
    """The number and the text of the refusal of a call."""
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
    assert call("box.space.rows_fifo:get", 99) == [None]


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
    for wrong in ({"limit": -1}, {"nope": 1}, {"iterator": "LT"}, {"offset": 1.5}, 5):
        assert refused(call, "box.space.many_rows:select", None, wrong)[0] == 32
    assert refused(call, "box.space.many_rows:select", "x")[0] == 18
    assert refused(call, "box.space.many_rows:get")[0] == refused(call, "box.space.many_rows:get", [1, 2])[0] == 19


def test_tubes_who_waits_and_what_is_taken_can_be_read(iproto: IprotoWire, iprotos: Callable[[], IprotoWire]) -> None:
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
    # The same in the order of today's releases. Whoever knows the uuid of a session may join it: only its own is told.
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
