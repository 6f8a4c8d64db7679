"""The current API of Tarantool's queue: every function and method, with the replies of the original or better ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.core import policy as p
from penstock.dialects.tarantool.tube_options import has_put_option
from penstock.node.ignored_options import WARNINGS_MAX, IgnoredOptions

from ..iproto_wire import IprotoWire, Refusal
from ..serving import Server, Wire, wait_for

Connect = Callable[[], IprotoWire]
Make = Callable[..., "Tube"]


class Tube:
    """A tube and its methods."""

    def __init__(self, wire: IprotoWire, name: str) -> None:
        self.wire = wire
        self.name = name

    def __call__(self, method: str, *args: Any) -> Any:
        """Call a method. Return its only result, or all of them if there is not exactly one."""
        data = self.wire.call(f"queue.tube.{self.name}:{method}", *args)
        return data[0] if len(data) == 1 else data

    def on(self, wire: IprotoWire) -> Tube:
        return Tube(wire, self.name)


@pytest.fixture
def make(iproto: IprotoWire, queue: bytes) -> Make:
    count = 0

    def make(type: str = "fifottl", **options: Any) -> Tube:
        nonlocal count
        count += 1
        name = f"t{abs(hash(queue))}_{count}"
        iproto.call("queue.create_tube", name, type, options)
        return Tube(iproto, name)

    return make


def refused(call: Callable[..., Any], *args: Any) -> tuple[int, str]:
    """Return the number and the text of a refused call."""
    with pytest.raises(Refusal) as caught:
        call(*args)
    return caught.value.args[0], caught.value.args[1]


# ---- Tubes -----------------------------------------------------------------------------------------------------------


def test_create_tube_answers_the_description_of_the_tube(iproto: IprotoWire) -> None:
    options = {"temporary": True, "ttl": 60, "ttr": 5.5, "pri": 3, "capacity": 10, "engine": "memtx"}
    (told,) = iproto.call("queue.create_tube", "described", "limfifottl", options)
    assert isinstance(told.pop("tube_id"), int)
    assert told == {
        "name": "described",
        "type": "limfifottl",
        "opts": {"temporary": True, "ttl": 60.0, "ttr": 5.5, "pri": 3, "capacity": 10},
    }
    exists = (32, "Space 'described' already exists")
    assert refused(iproto.call, "queue.create_tube", "described", "fifo") == exists
    assert refused(iproto.call, "queue.create_tube", "described", "fifo", {"if_not_exist": True}) == exists
    (again,) = iproto.call("queue.schema.create_tube", "described", "fifo", {"if_not_exists": True})
    assert again["type"] == "limfifottl"
    assert iproto.call("queue.create_tube", "no_options", "fifo", None)
    assert iproto.call("queue.create_tube", "lua_table", "utube", [])


def test_invalid_tubes_are_refused(iproto: IprotoWire) -> None:
    create = partial(refused, iproto.call, "queue.create_tube")
    assert create("x", "nope") == (32, "Unknown tube type nope")
    assert create("x") == (32, "Unknown tube type nil")
    assert create(5, "fifo")[0] == create("", "fifo")[0] == create("x" * 65_536, "fifo")[0] == 32
    assert "a function cannot be sent over the network" in create("x", "fifo", {"on_task_change": 5})[1]
    for wrong in ({"ttl": "x"}, {"ttl": float("nan")}, {"ttl": -1}, {"pri": 1.5}, {"temporary": 1}, 5, "x"):
        assert create("x", "fifottl", wrong)[0] == 32, wrong
    assert create("x", "limfifottl", {"capacity": "5"})[0] == create("x", "utube", {"key_limit": "5"})[0] == 32
    assert iproto.call("queue.tube", "x") == [False]


@pytest.mark.parametrize("type", ["fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube"])
def test_options_that_a_type_does_not_have_are_ignored(make: Make, iproto: IprotoWire, type: str) -> None:
    every = {"ttl": 60.0, "ttr": 50.0, "delay": 20.0, "pri": 1}
    tube = make(type, temporary=True, if_not_exists=False, utube="u", if_not_exist=True, nope=[], **every)
    timed, keyed = type.endswith("ttl"), type[1:].startswith("tube")
    [told] = [row[4] for row in iproto.call("box.space._queue:select")[0] if row[0] == tube.name]
    defaults = {"ttl": 60.0, "ttr": 50.0, "pri": 1} if timed else {}
    assert {name: told.get(name) for name in defaults} == defaults and ("ttl" in told) == timed
    key, other = ("stube", "utube") if type == "stube" else ("utube", "stube")
    assert tube("put", "a", {key: "k", other: "no", **every}) == [0, "~" if timed else "r", "a"]
    assert tube("put", "b", {other: [], key: "k", "ttl": 60, "ttr": 50, "pri": 2}) == [1, "r", "b"]
    fields = iproto.call(f"box.space.{tube.name}:get", 0)[0]
    assert ("k" in fields) == keyed and (60_000_000 + 20_000_000 in fields) == timed
    taken = tube("take", 0, {"stube": "k" if type == "stube" else "other", "utube": "other", "nope": {}})
    assert taken[0] == (1 if timed else 0)
    delayed = tube("release", taken[0], {"delay": 5, "ttl": 70, "pri": 0})
    assert delayed[1] == ("~" if timed else "r")
    assert tube("put", "c", {"delya": 5, 1: 2})[1] == "r"
    if not timed:
        wrong = {"pri": "1", "ttl": "x", "ttr": [], "delay": {}, "timeout": "1"}
        assert tube("put", "d", wrong)[1] == "r"
        assert tube("release", tube("take", 0, {"stube": "k"})[0], wrong)[1] == "r"


@pytest.mark.parametrize("type", ["fifo", "utube", "stube"])
def test_defaults_that_a_type_does_not_have_are_ignored(make: Make, type: str) -> None:
    tube = make(
        type, capacity=100, ttl="x", ttr=-1, pri="1", delay=[], timeout={}, key_limit=1 if type == "utube" else "x"
    )
    assert [tube("put", number)[0] for number in range(3)] == [0, 1, 2]


def test_an_option_that_is_ignored_is_logged_once(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    server = start()
    first, second = dial(server), dial(server)
    for number, wire in enumerate((first, second)):
        name = f"fifo{number}"
        wire.call("queue.create_tube", name, "fifo", {"capacity": 100})
        wire.call("queue.create_tube", f"ttl{number}", "fifottl", {"if_not_exist": True})
        wire.call(f"queue.tube.{name}:put", "x", {"pri": "1", "utube": None})
        wire.call(f"queue.tube.{name}:put", "x", {"a\nb": 1})
        wire.call(f"queue.tube.{name}:take", 0, {"stube": "s"})
        wire.call(f"queue.tube.{name}:release", 0, {"delay": 5})
        wire.call(f"queue.tube.ttl{number}:put", "x", {"pri": 1, "ttl": 5, "ttr": 5, "delay": 0})
    logged = [line for line in server.log().splitlines() if "option ignored" in line]
    assert [line.partition("option ignored: ")[2] for line in logged] == [
        "function=create_tube type=fifo option='capacity'",
        "function=create_tube type=fifottl option='if_not_exist'",
        "function=put type=fifo option='pri'",
        "function=put type=fifo option='a\\nb'",
        "function=take type=fifo option='stube'",
        "function=release type=fifo option='delay'",
    ]


def test_warnings_about_options_are_bounded() -> None:
    logged: list[str] = []
    ignored = IgnoredOptions(logged.append)
    for number in range(3 * WARNINGS_MAX):
        assert ignored.supported("put", p.FIFO, {f"{'x' * 1_000}": 1, number: 2}, has_put_option) == {}
    assert len(logged) == WARNINGS_MAX + 1 and logged[-1].startswith("further ignored options are not logged")
    assert max(map(len, logged)) < 200


@pytest.mark.parametrize("type", ["fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube"])
def test_a_task_goes_through_its_life_in_every_type(make: Make, type: str) -> None:
    tube = make(type)
    assert tube("put", {"k": [1]}) == [0, "r", {"k": [1]}]
    assert tube("peek", 0) == [0, "r", {"k": [1]}]
    assert tube("take", 0) == [0, "t", {"k": [1]}]
    assert tube("release", 0) == [0, "r", {"k": [1]}]
    assert tube("take") == [0, "t", {"k": [1]}]
    assert tube("bury", 0) == [0, "!", {"k": [1]}]
    assert tube("bury", 0) == [0, "!", {"k": [1]}]
    assert tube("kick") == 1
    assert tube("kick", 10) == 0
    assert tube("take", 0.5) == [0, "t", {"k": [1]}]
    assert tube("ack", 0) == [0, "-", {"k": [1]}]
    assert tube("take", 0) == []
    assert tube("put", "next") == [1, "r", "next"], "ids are not used again"
    assert tube("delete", 1) == [1, "-", "next"]
    assert tube("drop") is True
    assert refused(tube, "put", 1) == (33, f"Procedure 'queue.tube.{tube.name}:put' is not defined")


def test_tubes_are_listed_and_asked_for(iproto: IprotoWire, make: Make) -> None:
    tube = make()
    (names,) = iproto.call("queue.tube")
    assert tube.name in names
    assert iproto.call("queue.tube", tube.name) == [True]
    assert iproto.call("queue.tube", "nope") == [False]
    assert refused(iproto.call, "queue.tube", 5) == (32, "argument #1 should be string or nil")


def test_unusual_names_can_be_used_and_binary_ones_are_returned_as_bytes(iproto: IprotoWire, wire: Wire) -> None:
    for name in ("a b.c:d", "é", "x" * 1_000):
        iproto.call("queue.create_tube", name, "fifo")
        assert iproto.call(f"queue.tube.{name}:put", 1) == [[0, "r", 1]]
    wire.call("PUT", b"\xff", b"x")
    assert b"\xff" in iproto.call("queue.tube")[0] and b"\xff" in iproto.call("queue.statistics")[0]
    assert b"\xff" in [row[0] for row in iproto.call("box.space._queue:select")[0]]


# ---- Order and time --------------------------------------------------------------------------------------------------


def test_lower_priorities_come_first_and_a_released_task_goes_back_to_its_place(make: Make) -> None:
    tube = make("fifottl", pri=5)
    for data, options in (("five", {}), ("nine", {"pri": 9}), ("one", {"pri": 1}), ("later", {})):
        tube("put", data, options)
    first = tube("take")
    assert first[2] == "one"
    tube("release", first[0])
    assert [tube("take")[2] for _ in range(4)] == ["one", "five", "later", "nine"]
    tube("put", "before", {"pri": -3})
    tube("put", "first", {"pri": -4.0})
    assert [tube("take")[2] for _ in range(2)] == ["first", "before"]
    words = "Tuple field 6 (pri) type does not match one required by operation: expected integer"
    assert refused(tube, "put", 1, {"pri": 1.5}) == refused(tube, "put", 1, {"pri": "1"}) == (23, words)


def test_delays_end_and_are_shown(make: Make) -> None:
    tube = make()
    assert tube("put", "x", {"delay": 100, "ttl": 100}) == [0, "~", "x"]
    assert tube("put", "y", {"delay": 0}) == [1, "r", "y"]
    assert tube("take", 0) == [1, "t", "y"]
    assert tube("take", 0) == []
    assert tube("put", "z", {"delay": 0.03, "ttl": 100}) == [2, "~", "z"]
    assert tube("take", 10) == [2, "t", "z"]
    assert tube("release", 2, {"delay": 100}) == [2, "~", "z"]


def test_a_task_whose_ttr_passes_goes_back_and_a_late_ack_is_refused(make: Make, iprotos: Connect) -> None:
    tube = make("fifottl", ttr=0.02)
    tube("put", "x")
    assert tube("take") == [0, "t", "x"]
    other = tube.on(iprotos())
    assert other("take", 10) == [0, "t", "x"]
    assert refused(tube, "ack", 0) == (32, "Task was not taken")


@pytest.mark.parametrize("ttr", [0, 0.0, -1])
@pytest.mark.parametrize("of_tube", [False, True])
def test_a_task_with_a_ttr_of_zero_is_delivered_and_goes_back_at_once(make: Make, ttr: float, of_tube: bool) -> None:
    tube = make("fifottl", **({"ttr": 0} if of_tube else {}))
    assert tube("put", "x", {} if of_tube else {"ttr": ttr}) == [0, "r", "x"]
    for count in range(1, 4):
        assert tube("take", 10) == [0, "t", "x"]
        wait_for(lambda count=count: tube.wire.call("queue.statistics", tube.name)[0]["calls"]["ttr"] == count)
    assert refused(tube, "ack", 0) == (32, "Task was not taken")
    assert tube("peek", 0) == [0, "r", "x"] and tube("delete", 0)[1] == "-"


def test_touch_extends_the_time_and_zero_does_nothing(make: Make) -> None:
    tube = make("fifottl", ttr=1_000)
    tube("put", "x")
    assert refused(tube, "touch", 0, 5) == (32, "Task was not taken")
    tube("take")
    assert tube("touch", 0, 5) == [0, "t", "x"]
    assert tube("touch", 0) == tube("touch", 0, 0) == tube("touch", 0, -1) == tube("touch", 0, None) == []
    for wrong in (float("nan"), "x", float("inf")):
        assert refused(tube, "touch", 0, wrong)[0] == 32
    for type in ("fifo", "utube"):
        plain = make(type)
        plain("put", "x")
        assert plain("touch", 0) == plain("touch", 0, None) == plain("touch", 0, 0) == plain("touch", 99) == []
    assert refused(make("fifo"), "touch", 0, 5) == (32, "fifo queue does not support touch")
    assert refused(make("utube"), "touch", 0, 5) == (32, "utube queue does not support touch")


def test_a_task_with_ttl_goes(make: Make) -> None:
    tube = make("fifottl")
    tube("put", "x", {"ttl": 0.01})
    wait_for(lambda: tube.wire.call("queue.statistics", tube.name)[0]["calls"]["ttl"] == 1)
    assert refused(tube, "peek", 0) == (32, "Task 0 not found")


# ---- Micro-queues, capacity ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["utube", "utubettl"])
def test_one_task_of_a_micro_queue_is_taken_at_a_time(make: Make, type: str) -> None:
    tube = make(type)
    for data, utube in (("a1", "a"), ("a2", "a"), ("n1", 5), ("n2", "5"), ("none1", None), ("none2", None)):
        tube("put", data, {"utube": utube} if utube is not None else {})
    assert [tube("take", 0)[2] for _ in range(3)] == ["a1", "n1", "none1"]
    assert tube("take", 0) == []
    tube("ack", 0)
    assert tube("take", 0)[2] == "a2"


def test_only_the_named_micro_queue_of_an_stube_is_taken_from(make: Make) -> None:
    tube = make("stube")
    tube("put", "a", {"stube": "a"})
    tube("put", "b", {"stube": "b"})
    tube("put", "none")
    assert tube("take", 0, {"stube": "b"})[2] == "b"
    assert tube("take", 0)[2] == "none"
    assert tube("take", 0) == []
    assert tube("take", 0, {"stube": "a"})[2] == "a"


def test_a_full_tube_answers_nil_at_once_or_when_the_time_is_over(make: Make) -> None:
    tube = make("limfifottl", capacity=1)
    tube("put", 1)
    assert tube("put", 2) is None
    assert tube("put", 2, {"timeout": 0.01}) is None
    waiting = tube.wire.start(f"queue.tube.{tube.name}:put", 3, {"timeout": 100})
    tube("take")
    tube("ack", 0)
    assert tube.wire.result(waiting)[0][1:] == ["r", 3]


# ---- Ownership -------------------------------------------------------------------------------------------------------


def test_only_the_owner_of_a_task_may_finish_it_and_any_client_may_bury_or_delete_it(
    make: Make, iprotos: Connect
) -> None:
    tube = make()
    other = tube.on(iprotos())
    tube("put", "x")
    tube("take")
    for method, args in (("ack", (0,)), ("release", (0,)), ("touch", (0, 5)), ("ack", (99,)), ("release", (99,))):
        assert refused(other, method, *args) == (32, "Task was not taken")
    assert other("bury", 0) == [0, "!", "x"]
    assert other("delete", 0) == [0, "-", "x"]
    for method in ("peek", "bury", "delete"):
        assert refused(other, method, 0) == (32, "Task 0 not found")


def test_ids_of_other_kinds_are_refused_as_by_the_original(make: Make) -> None:
    tube = make()
    tube("put", "x")
    for method in ("ack", "peek", "release", "bury", "delete", "touch"):
        more = [5] if method == "touch" else []
        for wrong in ("0", None, 1.5, -1, -1.0, float("nan"), float("inf"), True, [], {}, b"x"):
            assert refused(tube, method, wrong, *more)[0] == 18, (method, wrong)
        assert refused(tube, method)[0] == 19
        assert refused(tube, method, 2**63, *more)[0] == refused(tube, method, 2**64 - 1, *more)[0] == 32


def test_whole_numbers_may_arrive_as_floats(make: Make) -> None:
    tube = make("limfifottl", capacity=2.0, pri=3.0)
    assert tube("put", "x", {"pri": 1.0}) == [0, "r", "x"]
    assert tube("take", 0.0) == [0, "t", "x"]
    assert tube("release", 0.0) == [0, "r", "x"] == tube("peek", 0.0)
    assert tube("bury", 0.0) == [0, "!", "x"] and tube("kick", 1.0) == 1
    assert tube("delete", 0.0) == [0, "-", "x"]


def test_create_tube_finds_an_existing_tube_with_any_options(make: Make, iproto: IprotoWire) -> None:
    tube = make("fifo")
    for type in ("fifottl", "nope"):
        (told,) = iproto.call("queue.create_tube", tube.name, type, {"if_not_exists": True})
        assert (told["name"], told["type"]) == (tube.name, "fifo")
    for type, shown in (("nope", "nope"), (None, "nil")):
        with pytest.raises(Refusal, match=f"Unknown tube type {shown}"):
            iproto.call("queue.create_tube", tube.name, type)


def test_wrong_arguments_are_refused(make: Make) -> None:
    tube = make("utubettl")
    for wrong in (5, "x", {"ttl": "1"}, {"delay": []}, {"utube": {}}, {"ttl": float("nan")}, {"pri": 1 << 60}):
        assert refused(tube, "put", 1, wrong)[0] == 32, wrong
    assert refused(make("limfifottl"), "put", 1, {"timeout": True})[0] == 32
    for wrong in (1.5, "1", True, float("inf")):
        assert refused(tube, "put", 1, {"pri": wrong})[0] == 23, wrong
    for wrong in ("1", [], {}, True, float("nan")):
        assert refused(tube, "take", wrong)[0] == 32, wrong
    for wrong in ("one", "", "1_0", [], True, float("nan"), "nan"):
        assert refused(tube, "kick", wrong)[0] == 32
    assert refused(make("stube"), "take", 0, {"stube": []})[0] == 32
    assert refused(tube, "nope") == (33, f"Procedure 'queue.tube.{tube.name}:nope' is not defined")


@pytest.mark.parametrize(
    ("type", "field"),
    [("fifo", 3), ("fifottl", 8), ("limfifottl", 8), ("utube", 4), ("utubettl", 9), ("stube", 4)],
)
def test_missing_data_is_named_by_its_place_in_the_stored_row(
    make: Make, iproto: IprotoWire, type: str, field: int
) -> None:
    tube = make(type)
    assert refused(tube, "put") == (39, f"Tuple field {field} (data) required by space format is missing")
    tube("put", "data")
    assert iproto.call(f"box.space.{tube.name}:get", 0)[0].index("data") + 1 == field


# ---- Many tasks ------------------------------------------------------------------------------------------------------


def test_kick_digs_in_order_up_to_the_given_number(make: Make) -> None:
    tube = make()
    for number in range(5):
        tube("put", number)
        tube("bury", number)
    assert tube("kick", 2) == 2
    assert [tube("take", 0)[0] for _ in range(2)] == [0, 1]
    assert tube("kick", float("inf")) == 3
    assert tube("kick", 0) == tube("kick", 2**63) == 0
    assert tube("kick", -1) == tube("kick", "-1") == tube("kick", -1.0) == -1 and tube("kick", -1.5) == -1.5


def test_the_count_of_a_kick_is_coerced_as_lua_does(make: Make) -> None:
    tube = make()
    for number in range(6):
        tube("put", number)
        tube("bury", number)
    assert tube("kick", "1") == tube("kick", " 1.0 ") == tube("kick", b"1") == 1
    assert tube("kick", 1.5) == tube("kick", "1.9") == 1
    assert tube("kick", 0.5) == tube("kick", "0") == 0
    assert tube("kick", "inf") == 1


def test_a_long_tube_is_emptied_listed_and_released(make: Make) -> None:
    tube = make()
    count = 2_500
    for number in range(count):
        tube.wire.start(f"queue.tube.{tube.name}:put", number)
    for _ in range(1_200):
        tube.wire.start(f"queue.tube.{tube.name}:take", 0)
    assert [task[0] for task in tube("tasks_by_state", "t")] == list(range(1_200))
    assert tube("release_all") == []
    listed = tube("tasks_by_state", "r")
    assert listed == [[number, "r", number] for number in range(count)]
    assert tube("truncate") == []
    assert tube("tasks_by_state", "r") == []
    assert refused(tube, "tasks_by_state", "x")[0] == 32
    assert tube("drop") is True


def test_a_tube_in_use_is_not_dropped(make: Make) -> None:
    tube = make()
    waiting = tube.wire.start(f"queue.tube.{tube.name}:take")
    assert refused(tube, "drop") == (32, "There are consumers connected the tube")
    tube("put", 1)
    tube.wire.result(waiting)
    assert refused(tube, "drop") == (32, "There are taken tasks in the tube")
    tube("truncate")
    assert tube("drop") is True


# ---- The module ------------------------------------------------------------------------------------------------------


def test_statistics_count_each_event_once(iproto: IprotoWire, make: Make) -> None:
    tube = make()
    for _ in range(3):
        tube("put", 1)
    tube("take")
    tube("touch", 0, 1)
    tube("ack", 0)
    tube("delete", 1)
    told = {
        "tasks": {"ready": 1, "taken": 0, "buried": 0, "delayed": 0, "total": 1, "done": 2},
        "calls": dict.fromkeys(["release", "bury", "kick", "ttl", "ttr", "delay"], 0)
        | {"put": 3, "take": 1, "touch": 1, "ack": 1, "delete": 1},
    }
    assert iproto.call("queue.statistics", tube.name) == iproto.call("queue.stats", tube.name) == [told]
    assert iproto.call("queue.statistics")[0][tube.name] == told
    assert "attempt to index a nil value" in refused(iproto.call, "queue.statistics", "nope")[1]


def test_in_replicaset_refuses_temporary_tubes_and_is_a_setting_of_the_server(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    server = start()
    admin, other = dial(server), dial(server)
    admin.call("queue.create_tube", "before", "fifo", {"temporary": True})
    assert admin.call("queue.cfg", {"in_replicaset": True}) == []
    assert server.connect().call("CONFIG", "GET", "queue-in-replicaset")[1] == b"yes"
    words = (32, "Cannot create temporary tube in replicaset mode")
    assert refused(other.call, "queue.create_tube", "t", "fifo", {"temporary": True}) == words
    assert other.call("queue.create_tube", "before", "fifo", {"temporary": True, "if_not_exists": True})
    assert other.call("queue.create_tube", "t", "fifo", {"temporary": False})
    assert admin.call("queue.cfg", {"ttr": 5}) == [], "an option that is left out stays"
    assert refused(other.call, "queue.create_tube", "t2", "fifo", {"temporary": True}) == words
    assert admin.call("queue.cfg", {"in_replicaset": False}) == []
    assert other.call("queue.create_tube", "t2", "fifo", {"temporary": True})
    server.connect().call("CONFIG", "SET", "queue-in-replicaset", "yes")
    assert refused(other.call, "queue.create_tube", "t3", "fifo", {"temporary": True}) == words
    server.stop()
    again = dial(start("--queue-in-replicaset", "yes"))
    assert refused(again.call, "queue.create_tube", "t3", "fifo", {"temporary": True}) == words


def test_an_unknown_session_is_named_by_its_uuid(iproto: IprotoWire) -> None:
    token = uuid.UUID("00ff1234-5678-4abc-8def-0123456789ab")
    words = (32, "The UUID 00ff1234-5678-4abc-8def-0123456789ab is unknown.")
    assert refused(iproto.call, "queue.identify", token.bytes) == words
    assert refused(iproto.call, "queue.identify", str(token)) == (32, "Invalid UUID format.")


def test_truncate_can_be_granted_for_one_tube(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    users = ("--user", "bob password:b tubes:own,reads", "--user", "eve password:e tubes:own commands:read")
    server = start("--requirepass", "main", *users, password="main")
    admin, bob, eve = dial(server), dial(server), dial(server)
    admin.log_in("default", "main")
    bob.log_in("bob", "b")
    eve.log_in("eve", "e")
    for name in ("own", "reads", "star"):
        admin.call("queue.create_tube", name, "fifo")
        admin.call(f"queue.tube.{name}:put", "x")
    denied = (42, "Execute access to function 'queue.tube.own:truncate' is denied for this user")
    assert refused(bob.call, "queue.tube.own:truncate") == denied
    for options in (None, [], {}, {"call": True}, {"truncate": False}):
        admin.call("queue.tube.own:grant", "bob", options)
        assert refused(bob.call, "queue.tube.own:truncate") == denied
    assert refused(admin.call, "queue.tube.own:grant", "bob", 5)[0] == 32
    assert refused(admin.call, "queue.tube.own:grant", "nobody", {"truncate": True})[0] == 45
    # Connected users may truncate it at once, also users with the class read, but only this tube.
    for name in ("own", "star"):
        assert admin.call(f"queue.tube.{name}:grant", "bob", {"truncate": True}) == []
    assert bob.call("queue.tube.own:truncate") == bob.call("queue.tube.star:truncate") == []
    assert admin.call("queue.statistics", "own")[0]["tasks"]["total"] == 0
    assert refused(bob.call, "queue.tube.reads:truncate")[0] == refused(bob.call, "queue.tube.own:drop")[0] == 42
    assert refused(eve.call, "queue.tube.own:truncate") == denied
    admin.call("queue.tube.own:grant", "eve", {"truncate": True})
    assert eve.call("queue.tube.own:truncate") == []
    assert refused(eve.call, "queue.tube.own:put", "x")[0] == 42
    # The same over RESP.
    resp = server.connect()
    resp.call("AUTH", "bob", "b")
    assert resp.call("CALL", "queue.tube.own:truncate") == [b"\x90", []]
    assert resp.ask("CALL", "queue.tube.reads:truncate").startswith(b"-NOPERM ")


# ---- Headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["fifo", "fifottl", "utube", "limfifottl", "disque"])
def test_a_task_keeps_the_headers_of_its_put_and_its_form(make: Make, type: str) -> None:
    tube = make(type)
    headers = {"tenant": "äöü", "binary": b"\xff\0", "empty": ""}
    id, state, data = tube("put", "x", {"headers": headers})
    plain = tube("put", "y", {"headers": {}})[0]
    assert (state, data) == ("r", "x") and tube("headers", id) == headers and tube("headers", plain) == {}
    assert tube("take", 0) == [id, "t", "x"]
    assert tube("bury", id) == [id, "!", "x"] and tube("headers", id) == headers
    assert tube("kick", 1) == 1 and tube("headers", id) == headers
    assert tube("peek", id) == [id, "r", "x"]
    tube("delete", id)
    assert refused(tube, "headers", id) == (32, f"Task {id} not found")


@pytest.mark.parametrize(
    "headers",
    [
        5,
        "n=v",
        [["n", "v"]],
        {"n": 5},
        {"n": None},
        {"n": {}},
        {5: "n"},
        {"": "v"},
        {b"\xff": "v"},
        {"n": "x" * 8192},
        {str(number): "" for number in range(65)},
    ],
    ids=lambda headers: repr(headers)[:20],
)
def test_bad_headers_are_refused_and_nothing_is_stored(make: Make, headers: Any) -> None:
    tube = make()
    code, text = refused(tube, "put", "x", {"headers": headers})
    assert code == 32 and "header" in text
    assert tube("tasks_by_state", "r") == []


def test_a_put_that_waits_for_room_keeps_its_headers(make: Make) -> None:
    tube = make("limfifottl", capacity=1)
    first = tube("put", "x")[0]
    pending = tube.wire.start(f"queue.tube.{tube.name}:put", "y", {"timeout": 10, "headers": {"n": "v"}})
    tube("delete", first)
    ((id, *_),) = tube.wire.result(pending)
    assert tube("headers", id) == {"n": "v"}


def test_the_module_is_configured_and_tubes_are_granted(
    start: Callable[..., Server], dial: Callable[[Server], IprotoWire]
) -> None:
    server = start("--requirepass", "main", "--user", "bob password:b tubes:own", password="main")
    admin, other, bob = dial(server), dial(server), dial(server)
    admin.log_in("default", "main")
    other.log_in("default", "main")
    bob.log_in("bob", "b")
    assert admin.call("queue.state") == ["RUNNING"]
    assert admin.call("queue.cfg", {"ttr": 60, "in_replicaset": True}) == []
    assert server.connect().call("CONFIG", "GET", "session-grace")[1] == b"60"
    # Some clients send nanoseconds.
    assert admin.call("queue.cfg", {"ttr": 60 * 10**9}) == []
    assert admin.call("queue.cfg", {"ttr": 60}) == []
    for wrong in (-1, float("nan")):
        assert refused(admin.call, "queue.cfg", {"ttr": wrong}) == (32, f"Invalid value of ttr: {wrong}")
    assert refused(admin.call, "queue.cfg", {"in_replicaset": 5}) == (32, "Invalid value of in_replicaset: 5")
    assert refused(admin.call, "queue.cfg", {"nope": 5}) == (32, "Unknown option nope")
    assert "a function cannot be sent over the network" in refused(admin.call, "queue.register_driver", "x", {})[1]
    # Users get access to tubes outside of their patterns.
    admin.call("queue.create_tube", "s*ar", "fifo")
    assert refused(bob.call, "queue.tube.s*ar:put", 1)[0] == 42
    assert refused(bob.call, "queue.tube.own:grant", "bob")[0] == 42
    assert admin.call("queue.tube.s*ar:grant", "bob", {"call": True}) == []
    assert bob.call("queue.tube.s*ar:put", "x") == [[0, "r", "x"]]
    assert refused(bob.call, "queue.tube.star:put", 1)[0] == 42
    assert refused(admin.call, "queue.tube.s*ar:grant", "nobody") == (45, "User 'nobody' is not found")
    assert refused(admin.call, "queue.tube.s*ar:grant_role", "r")[0] == 82
    # From now on sessions outlive their connections, also present sessions.
    (token,) = admin.call("queue.identify")
    admin.call("queue.tube.s*ar:take")
    admin.close()
    other.call("queue.identify", token)
    assert other.call("queue.tube.s*ar:ack", 0) == [[0, "-", "x"]]


def test_grants_survive_a_password_change(start: Callable[..., Server], dial: Callable[[Server], IprotoWire]) -> None:
    server = start("--requirepass", "main", "--user", "bob password:b tubes:own", password="main")
    wire, admin = server.connect(), dial(server)
    admin.log_in("default", "main")
    admin.call("queue.create_tube", "star", "fifo")
    assert admin.call("queue.tube.star:grant", "bob") == []
    for password in ("other", "", "main"):
        assert wire.ask("CONFIG", "SET", "requirepass", password) == b"+OK\r\n"
        bob = dial(server)
        bob.log_in("bob", "b")
        assert bob.call("queue.tube.star:put", "x")[0][1] == "r"
