"""The 1.5 API of Tarantool's queue: numbers as strings, spaces, fields, and its statistics on the second port."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..iproto_wire import IprotoWire, Refusal
from ..serving import Server, Wire, configured, wait_for

Connect = Callable[[], IprotoWire]


@pytest.fixture
def q(queue: bytes) -> str:
    return queue.decode().translate({ord(mark): "_" for mark in "[].:-/"})


def refused(call: Callable[..., Any], *args: Any) -> tuple[int, str]:
    """Return the number and the text of a refused call."""
    with pytest.raises(Refusal) as caught:
        call(*args)
    return caught.value.args[0], caught.value.args[1]


def test_a_task_goes_through_its_life(iproto: IprotoWire, q: str) -> None:
    call = iproto.call
    ((id, tube, status, *data),) = call("queue.put", 0, q, 0, 100, 60, 127, "first", 2, b"third")
    assert len(id) == 32 and int(id, 16) >= 0
    assert (tube, status, data) == (q, "ready", ["first", 2, b"third"])
    fields = ["first", 2, b"third"]
    assert call("queue.peek", 0, id) == [[id, q, "ready", *fields]]
    assert call("queue.take", 0, q, 0) == [[id, q, "taken", *fields]]
    assert call("queue.touch", 0, id) == [[id, q, "taken", *fields]]
    assert call("queue.release", 0, id) == [[id, q, "ready", *fields]]
    assert call("queue.take", 0, q) == [[id, q, "taken", *fields]]
    assert call("queue.requeue", 0, id) == [[id, q, "ready", *fields]]
    assert call("queue.take", 0, q) == [[id, q, "taken", *fields]]
    assert call("queue.bury", 0, id) == [[id, q, "buried", *fields]]
    assert call("queue.dig", 0, id) == [[id, q, "ready", *fields]]
    assert call("queue.take", 0, q) == [[id, q, "taken", *fields]]
    assert call("queue.ack", 0, id) == [[id, q, "taken", *fields]]
    assert call("queue.take", 0, q, 0) == []
    assert refused(call, "queue.peek", 0, id) == (32, "Task not found")


def test_numbers_may_be_strings_as_old_clients_send_them(iproto: IprotoWire, q: str) -> None:
    call = iproto.call
    ((id, *rest),) = call("queue.put", "0", q, "0", "100", "60", "5", b"packed")
    assert rest == [q, "ready", b"packed"]
    assert call("queue.take", "0", q, "1.5") == [[id, q, "taken", b"packed"]]
    assert call("queue.release", "0", id, "30.5", "60") == [[id, q, "delayed", b"packed"]]
    assert call("queue.kick", "0", q, "10") == [0]
    assert call("queue.delete", "0", id) == [[id, q, "delayed", b"packed"]]


@pytest.mark.parametrize("fields", [[], ["one"], [b""], [""], [None], [1, None], [[1, 2]], [{"a": 1}, "b"]])
def test_data_is_none_one_or_several_fields(iproto: IprotoWire, q: str, fields: list[Any]) -> None:
    ((id, *rest),) = iproto.call("queue.put", 0, q, 0, 0, 0, 127, *fields)
    assert rest == [q, "ready", *fields]
    assert iproto.call("queue.take", 0, q, 0) == [[id, q, "taken", *fields]]
    assert iproto.call("queue.done", 0, id, *fields, "result") == [[id, q, "done", *fields, "result"]]
    assert iproto.call("queue.peek", 0, id) == [[id, q, "done", *fields, "result"]]


def test_spaces_are_names_of_their_own_and_zero_is_none(iproto: IprotoWire, wire: Wire, q: str) -> None:
    call = iproto.call
    ((five, *_),) = call("queue.put", 5, q, 0, 0, 0, 127, "in five")
    call("queue.put", 0, q, 0, 0, 0, 127, "in zero")
    assert call("queue.take", "5", q, 0)[0][1:] == [q, "taken", "in five"]
    assert refused(call, "queue.ack", 6, five) == (32, "Task not found")
    assert call("queue.ack", 5, five)
    assert [job[2] for job in wire.call("GETJOB", "NOHANG", "FROM", q)] == [b"in zero"]
    assert call("queue.tube", f"5/{q}") == [True]


def test_higher_priorities_come_first_urgent_ones_before_all_and_requeued_ones_last(iproto: IprotoWire, q: str) -> None:
    call = iproto.call
    for pri in (127, 255, 0, None):
        call("queue.put", 0, q, 0, 0, 0, pri, f"pri {pri}")
    call("queue.urgent", 0, q, 0, 0, 0, 0, "urgent")
    call("queue.urgent", 0, q, 0, 0, 0, 0, "more urgent")
    assert call("queue.urgent", 0, q, 100, 0, 0, 0, "later")[0][2] == "delayed"
    ((first, *_),) = call("queue.take", 0, q, 0)
    call("queue.requeue", 0, first)
    order = ["urgent", "pri 255", "pri 127", "pri None", "pri 0", "more urgent"]
    assert [call("queue.take", 0, q, 0)[0][3] for _ in order] == order


def test_priorities_may_be_added_to_127_as_the_original_code_does(iproto: IprotoWire, wire: Wire, q: str) -> None:
    with configured(wire, "queue15-pri-mode", "offset"):
        for pri in (-200, 0, 50, 200):
            ((id, *_),) = iproto.call("queue.put", 0, q, 0, 0, 0, pri, pri)
        assert iproto.call("queue.meta", 0, id)[0][5] == "255"
        assert [iproto.call("queue.take", 0, q, 0)[0][3] for _ in range(4)] == [200, 50, 0, -200]
    assert refused(iproto.call, "queue.put", 0, q, 0, 0, 0, -1, 1) == (
        32,
        "pri must be 0 to 255; higher values are served first",
    )


def test_put_unique_finds_the_ready_task_of_the_same_data(iproto: IprotoWire, q: str) -> None:
    call = iproto.call
    ((first, *_),) = call("queue.put_unique", 0, q, 0, 0, 0, 127, "same")
    ((again, *_),) = call("queue.put_unique", 0, q, 0, 0, 0, 127, "same")
    ((other, *_),) = call("queue.put_unique", 0, q, 0, 0, 0, 127, "other")
    assert first == again != other
    call("queue.take", 0, q, 0)
    ((new, *_),) = call("queue.put_unique", 0, q, 0, 0, 0, 127, "same")
    assert new != first
    assert refused(call, "queue.put_unique", 0, q, 0, 0, 0, 127) == (32, "Can not put unique task without data")
    call("queue.create_tube", f"{q}_fifo", "fifo")
    words = refused(call, "queue.put_unique", 0, f"{q}_fifo", 0, 0, 0, None, "x")[1]
    assert "have to be configured" in words and "is a fifo tube; put_unique needs a queue15 tube" in words


def test_a_negative_timeout_waits_without_limit_and_tubes_are_created(iproto: IprotoWire, q: str) -> None:
    assert iproto.call("queue.take", 0, q, 0) == []
    waiting = [iproto.start("queue.take", 0, q, timeout) for timeout in (-1, None)]
    assert iproto.call("queue.take", 0, q, 0.01) == []
    for body in "ab":
        assert iproto.call("queue.put", 0, q, 0, 0, 0, 127, body)[0][2] == "ready"
    assert [iproto.result(sync)[0][3] for sync in waiting] == ["a", "b"]


def test_meta_has_13_fields_in_seconds(iproto: IprotoWire, q: str) -> None:
    before = time.time()
    ((id, *_),) = iproto.call("queue.put", 0, q, 0, 100, 10, 200, "x")
    (meta,) = iproto.call("queue.meta", 0, id)
    after = time.time()
    assert [type(field) for field in meta] == [
        str,
        str,
        str,
        float,
        str,
        str,
        type(None),
        *[float] * 3,
        int,
        int,
        float,
    ]
    assert meta[:3] == [id, q, "ready"] and meta[4:7] == ["55", "200", None]
    assert before - 1 <= meta[7] <= meta[12] <= after + 1
    assert meta[3] == pytest.approx(meta[7] + 100) and meta[8:12] == [100.0, 10.0, 0, 0]
    iproto.call("queue.take", 0, q)
    iproto.call("queue.bury", 0, id)
    iproto.call("queue.dig", 0, id)
    before = time.time()
    iproto.call("queue.take", 0, q)
    after = time.time()
    (meta,) = iproto.call("queue.meta", 0, id)
    assert meta[2] == "taken" and before + 9 <= meta[3] <= after + 11
    assert isinstance(meta[6], int) and meta[10:12] == [1, 2]


def test_only_the_consumer_that_took_a_task_may_finish_it(iproto: IprotoWire, iprotos: Connect, q: str) -> None:
    other = iprotos().call
    ((id, *_),) = iproto.call("queue.put", 0, q, 0, 0, 0, 127, "x")
    for method in ("ack", "release", "requeue", "bury", "done", "touch"):
        assert refused(other, f"queue.{method}", 0, id) == (32, "Task is not taken")
        assert refused(other, f"queue.{method}", 0, "0" * 32) == (32, "Task not found")
    iproto.call("queue.take", 0, q)
    for method, word in {
        "ack": "ack",
        "release": "release",
        "requeue": "release",
        "done": "done",
        "touch": "touch",
    }.items():
        text = f"Only consumer that took the task can it {word}"
        assert refused(other, f"queue.{method}", 0, id) == (32, text)
    assert refused(other, "queue.bury", 0, id) == (32, "Only consumer that took the task can it done")
    assert refused(other, "queue.dig", 0, id) == (32, "Task is not buried")
    assert other("queue.delete", 0, id)[0][0] == id


def test_kick_digs_the_given_number(iproto: IprotoWire, q: str) -> None:
    call = iproto.call
    for number in range(5):
        call("queue.put", 0, q, 0, 0, 0, 127, number)
    for _ in range(5):
        call("queue.bury", 0, call("queue.take", 0, q)[0][0])
    waiting = iproto.start("queue.take", 0, q, 100)
    assert call("queue.kick", 0, q) == [1]
    assert iproto.result(waiting)[0][3] == 0, "who waits is woken"
    assert call("queue.kick", 0, q, 2) == [2]
    assert call("queue.kick", 0, q, 0) == call("queue.kick", 0, q, -5) == call("queue.kick", 0, "nope") == [0]
    assert call("queue.kick", 0, q, float("inf")) == [2]
    assert call("queue.truncate", 0, q) == [5]
    assert call("queue.truncate", 0, "nope") == [0]


@pytest.mark.parametrize(
    "args",
    [
        ("queue.put",),
        ("queue.put", "x", "q"),
        ("queue.put", -1, "q"),
        ("queue.put", 1.5, "q"),
        ("queue.put", 2**40, "q"),
        ("queue.put", 0),
        ("queue.put", 0, 5),
        ("queue.put", 0, "q", "x"),
        ("queue.put", 0, "q", [], 0, 0, 0),
        ("queue.put", 0, "q", 0, float("nan"), 0, 0),
        ("queue.put", 0, "q", 0, "nan", 0, 0),
        ("queue.put", 0, "q", 0, "1_0", 0, 0),
        ("queue.put", 0, "q", 0, 1e300, 0, 0),
        ("queue.put", 0, "q", float("inf"), 0, 0, 0),
        ("queue.put", 0, "q", 0, 0, 0, 256),
        ("queue.put", 0, "q", 0, 0, 0, 1.5),
        ("queue.put", 0, "q", 0, 0, 0, True),
        ("queue.take", 0, "q", "x"),
        ("queue.take", 0, "q", float("nan")),
        ("queue.ack", 0),
        ("queue.ack", 0, 5),
        ("queue.meta", 0, "short"),
        ("queue.kick", 0, "q", "x"),
        ("queue.kick", 0, "q", 1.5),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_put(iproto: IprotoWire, q: str, args: tuple[Any, ...]) -> None:
    named = [q if arg == "q" else arg for arg in args]
    if args[0] == "queue.kick":
        iproto.call("queue.put", 0, q)
        iproto.call("queue.truncate", 0, q)
    assert refused(iproto.call, *named)[0] == 32
    assert iproto.call("queue.take", 0, q, 0) == []


# ---- The second port -------------------------------------------------------------------------------------------------


@pytest.fixture
def second(server: Server) -> Iterator[IprotoWire]:
    wire = IprotoWire(server.iproto15_port)
    yield wire
    wire.close()


def test_statistics_are_a_flat_list_of_strings_on_the_second_port(second: IprotoWire) -> None:
    call = second.call
    call("queue.put", 41, "q", 0, 0, 0, 127, "x")
    ((id, *_),) = call("queue.take", 41, "q")
    call("queue.take", 41, "q", 0)
    call("queue.peek", 41, id)
    call("queue.meta", 41, id)
    call("queue.put", 47, "q", 0, 0.01, 0, 127, "x")
    wait_for(lambda: "space47.q.ttl.total" in call("queue.statistics")[0])
    (flat,) = call("queue.statistics", 41, "q")
    assert all(isinstance(each, str) for each in flat)
    told = dict(zip(flat[::2], flat[1::2], strict=True))
    assert told == {f"space41.q.{name}": "1" for name in ("put", "take", "take_timeout", "peek", "meta")} | {
        f"space41.q.tasks.{name}": count
        for name, count in {
            "total": "1",
            "ready": "0",
            "delayed": "0",
            "taken": "1",
            "buried": "0",
            "done": "0",
        }.items()
    }
    (seven,) = call("queue.statistics", 47)
    assert all(name.startswith("space47.q.") for name in seven[::2])
    assert {*flat[::2], *seven[::2]} <= {*call("queue.statistics")[0][::2]}
    assert call("queue.statistics", 49) == call("queue.statistics", 41, "nope") == [[]]
    assert call("queue.stats")[0]["41/q"]["tasks"]["taken"] == 1


def test_statistics_of_a_tube_with_a_binary_name_are_text(second: IprotoWire, wire: Wire) -> None:
    wire.call("PUT", b"43/\xff", b"x")
    assert second.call("queue.statistics", 43)[0][:2] == ["space43.\\xff.put", "1"]
    assert second.call("queue.statistics", 43, b"\xff") == second.call("queue.statistics", 43)
    assert second.call("queue.take", 43, b"\xff", 0)[0][1:] == [b"\xff", "taken", b"x"]
