"""The methods of a space: all transitions, errors and results, and the effects of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import DamagedJournal, OutOfRange, PenstockError, Unsupported
from penstock.core.job import Draft
from penstock.dialects.xqueue.options import as_upgrade_options
from penstock.dialects.xqueue.space import METHODS, Waits
from penstock.testing import check
from penstock.wire.msgpack import Ext, pack, unpack
from tests.spilled_bodies import spill

from .spaces import FORMAT, NOW, Client, SpaceEngine, options, refused

Story = Callable[[SpaceEngine, Client], object]

TASK = {"name": "n"}


def task(space: Client, status: str) -> Any:
    """Return the key of a task that reached a status by ordinary calls."""
    key = space.put(TASK, {"delay": 50} if status == "W" else {})["id"]
    if status in "TBDZ":
        assert space.take()["id"] == key
    if status == "B":
        space.bury(key)
    elif status in "DZ":
        space.ack(key)
    assert space.get(key)["status"] == status
    return key


# For each transition: the calls that cause it, and the features that it needs.
TRANSITIONS: list[tuple[str, dict[str, Any], Story]] = [
    ("X-R", {}, lambda stand, space: space.put(TASK)),
    ("X-W", {}, lambda stand, space: space.put(TASK, {"delay": 5})),
    ("W-R", {}, lambda stand, space: (space.put(TASK, {"delay": 5}), stand.pass_s(5))),
    ("R-T", {}, lambda stand, space: (space.put(TASK), space.take())),
    ("T-R", {}, lambda stand, space: space.release(task(space, "T"))),
    ("T-R", {"ttr": 5}, lambda stand, space: (task(space, "T"), stand.pass_s(5))),
    ("T-R", {}, lambda stand, space: (task(space, "T"), stand.leave(space))),
    ("T-R", {}, lambda stand, space: space.snatch(task(space, "T"))),
    ("T-W", {}, lambda stand, space: space.release(task(space, "T"), {"delay": 5})),
    ("T-W", {}, lambda stand, space: space.snatch(task(space, "T"), {"delay": 5})),
    ("T-X", {}, lambda stand, space: space.ack(task(space, "T"))),
    ("T-X", {"zombie": True}, lambda stand, space: space.ack(task(space, "T"))),
    ("T-Z", {"zombie": 5}, lambda stand, space: space.ack(task(space, "T"))),
    ("T-Z", {"zombie": True}, lambda stand, space: space.ack(task(space, "T"), {"delay": 5})),
    ("T-D", {"keep": True}, lambda stand, space: space.ack(task(space, "T"))),
    ("T-B", {}, lambda stand, space: space.bury(task(space, "T"))),
    ("B-R", {}, lambda stand, space: space.dig(task(space, "B"))),
    ("B-R", {}, lambda stand, space: (task(space, "B"), space.plow())),
    ("B-R", {}, lambda stand, space: (task(space, "B"), space.kick(1))),
    ("B-R", {}, lambda stand, space: space.kick([task(space, "B")])),
    ("B-W", {}, lambda stand, space: space.dig(task(space, "B"), {"delay": 5})),
    ("R-X", {}, lambda stand, space: (space.put(TASK, {"ttl": 5}), stand.pass_s(5))),
    ("R-X", {"ttl": 5}, lambda stand, space: (space.put(TASK), stand.pass_s(5))),
    ("Z-X", {"zombie": 5}, lambda stand, space: (task(space, "Z"), stand.pass_s(5))),
    ("Z-R", {"zombie": 5}, lambda stand, space: space.restart(task(space, "Z"))),
    ("Z-W", {"zombie": 5}, lambda stand, space: space.restart(task(space, "Z"), {"delay": 5})),
    ("D-R", {"keep": True}, lambda stand, space: space.restart(task(space, "D"))),
    ("D-W", {"keep": True}, lambda stand, space: space.restart(task(space, "D"), {"delay": 5})),
    ("W-R", {}, lambda stand, space: space.restart(task(space, "W"))),
    *[
        (f"{status}-X", {"keep": True} if status == "D" else {"zombie": 5}, _kill)
        for status in "RTWBDZ"
        for _kill in [lambda stand, space, status=status: space.kill(task(space, status))]
    ],
    *[
        (f"{status}-X", {"keep": True} if status == "D" else {"zombie": 5}, _truncate)
        for status in "RTWBDZ"
        for _truncate in [lambda stand, space, status=status: (task(space, status), space.truncate())]
    ],
    *[
        (f"{source}-{target}", {"keep": True} if "D" in source + target else {"zombie": 5}, _switch)
        for source in "RWBDZ"
        for target in "RWBDZ"
        if source != target and {source, target} != {"D", "Z"}
        for _switch in [
            lambda stand, space, source=source, target=target: space.switch(
                task(space, source), target, {"delay": 5} if target in "WZ" else {}
            )
        ]
    ],
]


@pytest.mark.parametrize(("transition", "features", "story"), TRANSITIONS)
def test_a_transition_is_counted_once(transition: str, features: dict[str, Any], story: Story) -> None:
    stand = SpaceEngine()
    story(stand, stand.upgrade(options(**features)))
    counted = stand.transitions()
    assert counted[transition] == 1
    first = "X-W" if transition[0] == "W" or "X-W" in counted else "X-R"
    ways = {first: 1, "R-T": 1, "T-B": 1, "T-D": 1, "T-Z": 1, transition: 1}
    assert counted.items() <= ways.items()


def test_every_transition_of_xqueue_is_covered() -> None:
    wanted = {"X-R", "X-W", "W-R", "R-T", "T-W", "T-R", "T-X", "T-Z", "T-D"}
    assert wanted <= {transition for transition, _, _ in TRANSITIONS}


BETWEEN_TUBES: list[tuple[str, str, dict[str, Any], Story]] = [
    ("T-S", "S-R", {}, lambda stand, space: space.release(1, {"update": [["=", "tube", "B"]]})),
    ("T-S", "S-W", {}, lambda stand, space: space.release(1, {"update": [["=", "tube", "B"]], "delay": 5})),
    ("T-S", "S-D", {"keep": True}, lambda stand, space: space.ack(1, {"update": [["=", "tube", "B"]]})),
    ("T-S", "S-Z", {"zombie": 5}, lambda stand, space: space.ack(1, {"update": [["=", "tube", "B"]]})),
    ("T-S", "S-B", {}, lambda stand, space: space.bury(1, {"update": [["=", "tube", "B"]]})),
    ("B-S", "S-R", {}, lambda stand, space: (space.bury(1), space.dig(1, {"update": [["=", "tube", "B"]]}))),
    ("B-S", "S-W", {}, lambda stand, space: (space.bury(1), space.plow(1, {"update": [["=", 5, "B"]], "delay": 5}))),
]


@pytest.mark.parametrize(("out", "into", "features", "story"), BETWEEN_TUBES)
def test_a_task_that_changes_its_tube_counts_as_s_in_both(
    out: str, into: str, features: dict[str, Any], story: Story
) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(**features))
    space.put({"name": "x", "tube": "A"})
    space.take()
    story(stand, space)
    tubes = space.stats()["tube"]
    assert tubes["A"]["transition"][out] == 1 and tubes["B"]["transition"] == {into: 1}
    assert sum(tubes["A"]["counts"].values()) == 0 and tubes["B"]["counts"][into[-1]] == 1
    assert tubes["C"] == {"counts": dict.fromkeys("RTWBDZ", 0), "transition": {}}
    assert f"{out[0]}-{into[-1]}" in space.stats()["transition"] and "S" not in "".join(space.stats()["transition"])
    assert space.get(1)["tube"] == "B"


# Ownership

HOLDERS = ("ack", "release", "bury")


@pytest.mark.parametrize("method", HOLDERS)
def test_only_the_session_that_took_a_task_may_finish_it(method: str) -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options()), Client(stand, "space")
    mine, yours = (each.caller.connection.session.number for each in (space, other))
    assert refused(getattr(space, method), 1) == "Task {1} was not found"
    space.put(TASK)
    assert refused(getattr(space, method), 1) == "Task 1 not taken by any"
    space.take()
    assert refused(getattr(other, method), 1) == f"Task 1 taken by {mine}. Not you ({yours})"
    assert refused(other.touch, 1, {"increment": 5}) == f"Task 1 taken by {mine}. Not you ({yours})"
    getattr(space, method)(1)


def test_with_not_check_session_any_client_may_finish_and_a_disconnect_releases_nothing() -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options(ttr=60, not_check_session=True)), Client(stand, "space")
    for method in HOLDERS:
        key = space.put(TASK)["id"]
        assert refused(getattr(other, method), key) == f"Task {key} not taken by any"
        space.take()
        getattr(other, method)(key)
        if method == "release":
            space.ack(space.take())
    key = task(space, "T")
    stand.leave(space)
    assert other.get(key)["status"] == "T"
    stand.pass_s(60)
    assert other.take()["id"] == key


def test_the_status_of_a_taken_task_cannot_be_changed_by_other_clients() -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options()), Client(stand, "space")
    key = task(space, "T")
    number = space.caller.connection.session.number
    assert refused(other.switch, key, "B") == f"Task {key} taken by {number}. Snatch it first"
    assert refused(other.restart, key) == f"Task {key} taken by {number}. Snatch it first"
    assert refused(other.dig, key) == f"Task {key} is not buried"
    assert other.snatch(key)["status"] == "R"
    assert refused(other.snatch, key) == f"Task {key} not taken by any"
    assert refused(space.ack, key) == f"Task {key} not taken by any"
    assert refused(other.restart, key) == f"Task {key} is not in W, D or Z status"
    assert other.kill(key)["status"] == "R"
    assert refused(other.kill, key) == f"Task by {key} not found to kill"


# Features

NEEDED: list[tuple[str, dict[str, Any], Story]] = [
    ("delayed", {"delayed": False}, lambda stand, space: space.put(TASK, {"delay": 5})),
    ("delayed", {"delayed": False}, lambda stand, space: space.release(task(space, "T"), {"delay": 0})),
    ("delayed", {"delayed": False}, lambda stand, space: space.snatch(task(space, "T"), {"delay": 5})),
    ("delayed", {"delayed": False}, lambda stand, space: space.restart(1, {"delay": 5})),
    ("delayed", {"delayed": False}, lambda stand, space: space.dig(1, {"delay": 5})),
    ("delayed", {"delayed": False}, lambda stand, space: space.plow(1, {"delay": 5})),
    ("delayed", {"delayed": False}, lambda stand, space: space.switch(1, "W", {"delay": 5})),
    ("ttl", {"ttl": False}, lambda stand, space: space.put(TASK, {"ttl": 5})),
    ("ttl", {"ttl": False}, lambda stand, space: space.release(task(space, "T"), {"ttl": 5})),
    ("ttl", {"ttl": False}, lambda stand, space: space.bury(task(space, "T"), {"ttl": 5})),
    ("ttl", {"ttl": False}, lambda stand, space: space.touch(task(space, "R"), {"increment": 5})),
    ("ttr", {"ttr": False}, lambda stand, space: space.take(0, {"ttr": 5})),
    ("ttr", {"ttr": False}, lambda stand, space: space.touch(task(space, "T"), {"increment": 5})),
    ("zombie", {}, lambda stand, space: space.ack(task(space, "T"), {"delay": 5})),
    ("zombie", {"keep": True}, lambda stand, space: space.ack(task(space, "T"), {"delay": 5})),
    ("zombie", {}, lambda stand, space: space.switch(task(space, "R"), "Z", {"delay": 5})),
    ("keep", {}, lambda stand, space: space.switch(task(space, "R"), "D")),
    ("buried", {"buried": False}, lambda stand, space: space.bury(task(space, "T"))),
    ("buried", {"buried": False}, lambda stand, space: space.switch(task(space, "R"), "B")),
]


@pytest.mark.parametrize(("feature", "features", "story"), NEEDED)
def test_calls_that_need_a_missing_feature_are_refused(feature: str, features: dict[str, Any], story: Story) -> None:
    stand = SpaceEngine()
    assert refused(story, stand, stand.upgrade(options(**features))) == f"Feature {feature} is not enabled"


def test_a_take_from_a_tube_needs_the_tube_field() -> None:
    space = SpaceEngine().upgrade({"format": FORMAT, "fields": {"status": "status"}})
    assert refused(space.take, 0, {"tube": "A"}) == "Feature tube is not enabled"


BAD: list[tuple[str, list[Any], str]] = [
    ("put", [TASK, {"colour": 1}], "unknown attribute 'colour' of put; use one of delay, ttl, wait"),
    ("put", [TASK, 5], "attr must be a table, not number"),
    ("put", [TASK, {"delay": "5"}], "attr.delay must be a number of seconds, not string"),
    ("put", [TASK, {"delay": float("inf")}], "attr.delay must be finite"),
    ("put", [TASK, {"ttl": True}], "attr.ttl must be a number of seconds, not boolean"),
    ("put", [TASK, {"wait": 5, "delay": 5}], "wait and delay are mutually exclusive"),
    ("put", [TASK, {"wait": -5}], "timeout required"),
    ("take", [-1], "timeout required"),
    ("take", ["5"], "timeout required"),
    ("take", [float("nan")], "timeout required"),
    ("take", [{"timeout": True}], "timeout required"),
    ("take", [0, {"ttr": 0}], "attr.ttr must be above 0"),
    ("take", [0, {"ttr": "x"}], "attr.ttr must be a number of seconds, not string"),
    ("take", [0, {"pipe": "x"}], "unknown attribute 'pipe' of take; use one of timeout, tube, ttr"),
    (
        "take",
        [0, {"tube": 5}],
        "Tuple field 5 (tube) type does not match one required by operation: expected string, got unsigned",
    ),
    ("ack", [1, {"ttl": 5}], "unknown attribute 'ttl' of ack; use one of update, delay"),
    ("touch", [1], "attr.increment must be number"),
    ("touch", [1, {"increment": "5"}], "attr.increment must be number"),
    ("touch", [1, {"increment": float("nan")}], "attr.increment must be number"),
    ("touch", [1, {"increment": -1}], "attr.increment can't be negative"),
    ("touch", [1, {"increment": float("inf")}], "attr.increment must be finite"),
    ("plow", ["all"], "Wrong number of tasks to dig. Expected a number, infinity or nil"),
    ("plow", [-1], "Wrong number of tasks to dig. Expected a number, infinity or nil"),
    ("plow", [1.5], "Wrong number of tasks to dig. Expected a number, infinity or nil"),
    ("wait", [1, -1], "timeout required"),
    ("switch", [1, "T"], "A task cannot be switched to T; use take"),
    ("switch", [1, "X"], "Wrong status 'X', may be [R, W, B, D, Z]"),
    ("switch", [1, None], "Wrong status nil, may be [R, W, B, D, Z]"),
    ("switch", [1, "W"], "switch to W or Z requires attr.delay; other statuses must not have it"),
    ("switch", [1, "R", {"delay": 5}], "switch to W or Z requires attr.delay; other statuses must not have it"),
    ("wait", [99], "Task {99} was not found"),
    ("touch", [99, {"increment": 1}], "Task {99} was not found"),
]


@pytest.mark.parametrize(("method", "args", "words"), BAD)
def test_invalid_arguments_are_refused_with_these_errors(method: str, args: list[Any], words: str) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    space.put(TASK)
    before = space.stats()
    assert refused(getattr(space, method), *args) == words
    assert space.stats() == before


@pytest.mark.parametrize("seconds", [-1, 10**15, float("-inf")])
def test_times_out_of_range_are_refused(seconds: float) -> None:
    space = SpaceEngine().upgrade(options())
    for attr in ({"delay": seconds}, {"ttl": seconds}):
        with pytest.raises(OutOfRange):
            space.put(TASK, attr)


# Results


@pytest.mark.parametrize("retval", ["table", "tuple"])
def test_every_method_that_returns_a_task_obeys_retval(retval: str) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(retval=retval, zombie=60))
    kind = dict if retval == "table" else list
    returned = [space.put(TASK), space.take(), space.touch(1, {"increment": 1}), space.release(1, {"delay": 5})]
    returned += [space.restart(1), space.take(), space.snatch(1), space.take(), space.wait(1, 0)[0]]
    assert space.bury(1) is None
    returned += [space.dig(1), space.switch(1, "B"), space.get(1), space.kick([1]), space.take(), space.ack(1)]
    returned += [space.kill(1)]
    assert {type(each) for each in returned} == {kind}
    statuses = [each["status"] if retval == "table" else each[1] for each in returned]
    assert "".join(statuses) == "RTTWRTRTTRBBRTZZ"
    assert space.take() is None and space.truncate() is None and space.plow() == 0


def test_an_ended_task_is_returned_in_its_last_state() -> None:
    space = SpaceEngine().upgrade(options())
    key = task(space, "T")
    assert space.ack(key) == {
        **{"id": 1, "status": "T", "runat": 0, "priority": 0, "tube": None},
        **{"name": "n", "data": None},
    }
    assert space.kill(task(space, "B"))["status"] == "B"


def test_the_number_of_dig_is_a_key_if_keys_are_numbers_and_otherwise_a_count() -> None:
    stand = SpaceEngine()
    numbers = stand.upgrade(options(), "numbers")
    texts = stand.upgrade({**options(id="required"), "format": [["id", "string"], *FORMAT[1:]]}, "texts")
    for key in ("a", "b", "c"):
        for space in (numbers, texts):
            space.put({"id": key if space is texts else 0, "name": key})
            space.bury(space.take())
    assert numbers.dig(3)["id"] == 3
    assert texts.dig(2) == 2 and texts.dig("c")["id"] == "c"
    assert numbers.plow(1) == 1 and numbers.get(1)["status"] == "R"
    assert numbers.dig(None) == 1
    assert numbers.plow(float("inf")) == 0


def test_the_number_of_kick_is_always_a_count() -> None:
    space = SpaceEngine().upgrade(options())
    for _ in range(5):
        task(space, "B")
    assert space.kick(2.0) == 2 and [space.get(key)["status"] for key in range(1, 6)] == ["R", "R", "B", "B", "B"]
    assert space.kick({"id": 4})["id"] == 4
    assert space.kick() == 2


def test_stats_have_a_pretty_form() -> None:
    space = SpaceEngine().upgrade(options())
    task(space, "T")
    space.put({"name": "n", "tube": "A"}, {"delay": 5})
    told = space.stats(True)
    assert told["counts"] == {"Ready": 0, "Taken": 1, "Waiting": 1, "Buried": 0, "Done": 0, "Zombie": 0}
    assert told["transition"] == {"X-R": 1, "R-T": 1, "X-W": 1}
    assert told["tube"]["A"]["counts"]["Waiting"] == 1 and told["tube"]["A"]["transition"] == {"X-W": 1}
    assert space.queue_stats() == space.stats()


def test_priorities_lower_first_and_equal_ones_as_they_came() -> None:
    stand = SpaceEngine()
    space = stand.upgrade({**options(id="uuid"), "format": [["id", "string"], *FORMAT[1:]]})
    for name, priority in (("a", 5), ("b", 1), ("c", 5), ("d", -1), ("e", None)):
        space.put({"name": name, "priority": priority})
    assert [space.take()["name"] for _ in range(5)] == ["d", "e", "b", "a", "c"]


def test_take_gives_the_tasks_of_a_tube_or_any() -> None:
    space = SpaceEngine().upgrade(options())
    for name, tube in (("1", "A"), ("2", "B"), ("3", None), ("4", "B")):
        space.put({"name": name, "tube": tube})
    assert space.take(0, {"tube": "B"})["name"] == "2"
    assert space.take({"tube": "B", "timeout": 0})["name"] == "4"
    assert space.take(0, {"tube": "B"}) is None
    assert [space.take(0, [])["name"] for _ in range(2)] == ["1", "3"]


# Time


def test_runat_is_when_something_happens_next() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(ttr=10, zombie=30))
    at = NOW / 1000
    assert space.put(TASK)["runat"] == 0
    assert space.take()["runat"] == at + 10
    assert space.touch(1, {"increment": 5})["runat"] == at + 15
    assert space.release(1, {"delay": 2.5, "ttl": 100})["runat"] == at + 2.5
    stand.pass_s(2.5)
    assert space.get(1)["runat"] == at + 102.5  # Its ttl began when its delay ended.
    assert space.touch(1, {"increment": 7})["runat"] == at + 109.5
    space.take(0, {"ttr": 1})
    assert space.ack(1)["runat"] == at + 32.5
    assert space.restart(1)["runat"] == at + 109.5


def test_touch_of_a_task_without_an_end_leaves_it_without_one() -> None:
    space = SpaceEngine().upgrade(options())
    space.put(TASK)
    assert space.touch(1, {"increment": 5})["runat"] == 0
    space.take()
    assert space.touch(1, {"increment": 5})["runat"] == 0


def test_with_ttr_true_only_takes_with_a_ttr_have_one_and_the_ttl_is_none() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    space.put(TASK, {"ttl": 5})
    space.take()
    stand.pass_s(60)
    assert space.get(1)["status"] == "T"
    space.put(TASK)
    space.take(0, {"ttr": 5})
    stand.pass_s(5)
    assert space.get(2)["status"] == "R"


# Waiting


def test_a_take_that_waits_is_served_by_a_put_a_dig_and_a_release() -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options()), Client(stand, "space")
    waits = space.take(5)
    assert isinstance(waits, Waits) and stand.end(waits) == "waiting"
    assert other.put(TASK)["status"] == "R"
    assert stand.end(waits)["status"] == "T"
    waits = other.take(5, {"tube": "B"})
    assert space.release(1, {"update": [["=", "tube", "B"]]})["status"] == "R"
    assert stand.end(waits)["tube"] == "B"
    other.bury(1)
    waits = space.take(5)
    other.plow()
    assert stand.end(waits)["id"] == 1
    waits = other.take(5)
    stand.pass_s(5)
    assert stand.end(waits) is None


ENDS: list[tuple[str, dict[str, Any], Story, str, bool]] = [
    ("ack", {}, lambda stand, space: (space.take(), space.ack(1)), "T", True),
    ("ack keep", {"keep": True}, lambda stand, space: (space.take(), space.ack(1)), "D", True),
    ("ack zombie", {"zombie": 5}, lambda stand, space: (space.take(), space.ack(1)), "Z", True),
    ("kill", {}, lambda stand, space: space.kill(1), "R", False),
    ("kill taken", {}, lambda stand, space: (space.take(), space.kill(1)), "T", False),
    ("truncate", {}, lambda stand, space: space.truncate(), "R", False),
    ("bury", {}, lambda stand, space: (space.take(), space.bury(1)), "B", False),
    ("switch to B", {}, lambda stand, space: space.switch(1, "B"), "B", False),
    ("ttl", {"ttl": 5}, lambda stand, space: stand.pass_s(5), "R", False),
    ("timeout", {}, lambda stand, space: stand.pass_s(10), "R", False),
    ("timeout taken", {}, lambda stand, space: (space.take(), stand.pass_s(10)), "T", False),
]


@pytest.mark.parametrize(
    ("features", "story", "status", "processed"), [row[1:] for row in ENDS], ids=[r[0] for r in ENDS]
)
def test_wait_returns_how_a_task_ended(features: dict[str, Any], story: Story, status: str, processed: bool) -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options(**features)), Client(stand, "space")
    space.put({"name": "n", "tube": "A"})
    waits = other.wait(1, 10)
    assert stand.end(waits) == "waiting"
    story(stand, space)
    row, was_processed = stand.end(waits)
    assert (row["status"], row["name"], row["tube"], was_processed) == (status, "n", "A", processed)


def test_wait_returns_at_once_for_a_kept_task_and_with_timeout_zero() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(keep=True))
    row, processed = space.wait(task(space, "D"), 10)
    assert (row["status"], processed) == ("D", True)
    for timeout in (0, 10, None):
        row, processed = space.wait(task(space, "B"), timeout)
        assert (row["status"], processed) == ("B", False), "a buried task is not waited for"
    row, processed = space.wait(task(space, "R"), 0)
    assert (row["status"], processed) == ("R", False)


def test_a_put_can_wait_for_the_end_of_its_task() -> None:
    stand = SpaceEngine()
    space, worker = stand.upgrade(options()), Client(stand, "space")
    waits = space.put(TASK, {"wait": 5})
    worker.ack(worker.take())
    assert stand.end(waits) == (
        {"id": 1, "status": "T", "runat": 0, "priority": 0, "tube": None, "name": "n", "data": None},
        True,
    )
    waits = space.put(TASK, {"wait": 5})
    stand.pass_s(5)
    row, processed = stand.end(waits)
    assert (row["status"], processed) == ("R", False)


# Many tasks


def test_many_tasks_are_plowed_and_truncated_in_slices() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    for _ in range(2_500):
        stand.engine.put(stand.space().tube, Draft(b""), stand.now)
        job = stand.engine.take(space.caller.connection.session, stand.space().tube, stand.now)
        assert job is not None
        stand.engine.bury(space.caller.connection.session, job, stand.now)
    plow = stand.space().plow(space.caller, [2_200], stand.now, None)
    steps = 1
    while plow.step(stand.now) is None:  # type: ignore[union-attr]
        steps += 1
    assert steps == 3 and space.stats()["counts"]["R"] == 2_200
    truncate = stand.space().truncate(space.caller, [], stand.now, None)
    assert truncate.step(stand.now) is None  # type: ignore[union-attr]
    assert space.len() == 1_500
    while truncate.step(stand.now) is None:  # type: ignore[union-attr]
        pass
    assert space.len() == 0


# Switching features on a live space


def test_features_are_switched_on_a_live_space_and_tasks_owners_and_statistics_stay() -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options(delayed=False, ttl=None, ttr=None)), Client(stand, "space")
    ready, held = task(space, "R"), 0
    held = space.take()["id"]
    ready = space.put(TASK)["id"]
    before = space.stats()
    stand.upgrade(options(keep=True, retval="tuple"))
    assert space.stats() == before
    assert refused(other.ack, held).startswith(f"Task {held} taken by")
    assert space.release(held, {"delay": 5})[1] == "W"
    assert space.take()[0] == ready
    assert space.ack(ready)[1] == "D"
    stand.upgrade(options(keep=False, zombie=5, retval="table"))
    assert space.get(ready)["status"] == "D"
    assert space.restart(held)["status"] == "R"
    space.take()
    assert space.ack(held)["status"] == "Z"
    assert space.stats()["counts"] == {"R": 0, "T": 0, "W": 0, "B": 0, "D": 1, "Z": 1}


def test_a_task_taken_before_not_check_session_stays_with_its_session() -> None:
    stand = SpaceEngine()
    space, other = stand.upgrade(options()), Client(stand, "space")
    mine = task(space, "T")
    stand.upgrade(options(not_check_session=True))
    anyones = task(space, "T")
    assert refused(other.ack, mine).startswith(f"Task {mine} taken by")
    other.ack(anyones)
    stand.upgrade(options())
    stand.leave(space)
    assert other.get(mine)["status"] == "R"


def test_the_ttr_of_a_take_is_the_present_default_of_the_space() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(ttr=None))
    space.put(TASK)
    stand.upgrade(options(ttr=5))
    assert space.take()["runat"] == NOW / 1000 + 5


def test_tube_stats_can_be_switched_on_and_off() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    space.put({"name": "x", "tube": "A"})
    stand.upgrade({**options(), "tube_stats": ["A", "new"]})
    tubes = space.stats()["tube"]
    assert list(tubes) == ["A", "new"] and tubes["A"]["transition"] == {"X-R": 1}


def test_a_second_upgrade_keeps_omitted_row_options_and_refuses_different_ones() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    stand.upgrade({"features": {"ttl": 5}})
    assert stand.space().options.delayed is True and stand.space().options.ttl == 5
    assert space.put(TASK)["name"] == "n"
    words = "fields and primary_key of space 'space' are fixed; make another space and move the tasks"
    assert refused(stand.upgrade, {**options(), "primary_key": ["id", "name"], "features": {}}) == words
    assert refused(stand.upgrade, {"fields": {"status": "status"}}) == words
    words = "Can't modify space 'space': field 'data' is missing, and fields cannot be removed"
    assert refused(stand.upgrade, {"format": FORMAT[:-1]}) == words


def test_a_second_upgrade_keeps_omitted_features_and_reports_the_changed_ones() -> None:
    stand = SpaceEngine()
    stand.upgrade(options(keep=True))
    before = stand.space().options

    def changed(given: Any) -> dict[str, Any]:
        return stand.spaces.upgrade(b"space", given, stand.now).changed

    for nothing in (
        {},
        None,
        {"features": {}},
        {"features": {"ttl": None}, "tube_stats": None},
        as_upgrade_options(before),
    ):
        assert changed(nothing) == {} and stand.space().options == before
    assert changed({"tube_stats": ["new"]}) == {"tube_stats": [["A", "B", "C"], ["new"]]}
    assert changed({"tube_stats": []}) == {"tube_stats": [["new"], []]}
    assert changed({"features": {"ttl": False, "ttr": 5}}) == {"features.ttl": [True, False], "features.ttr": [True, 5]}
    assert "mutually exclusive" in refused(stand.upgrade, {"features": {"zombie": 5}})
    assert changed({"features": {"zombie": 5, "keep": False}}) == {
        "features.keep": [True, False],
        "features.zombie": [False, 5],
    }
    assert stand.space().options.delayed is True


def test_a_function_that_makes_ids_stays_when_an_upgrade_leaves_it_out() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(id=lambda: 77))
    stand.upgrade({"tube_stats": []})
    assert space.put(TASK)["id"] == 77
    stand.upgrade({"features": {"id": "required"}})
    assert stand.space().make_id is None


def test_features_id_can_be_switched_if_keys_cannot_collide() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    space.put(TASK)
    stand.upgrade(options(id="required"))
    assert refused(space.put, {"id": 1, "name": "x"}).startswith("Duplicate key exists")
    space.put({"id": 2, "name": "x"})
    assert [space.take()["id"], space.take()["id"]] == [1, 2]
    words = refused(stand.upgrade, options())
    assert words.startswith("features.id of space 'space' cannot be switched from required to auto_increment while it")
    space.kill(2)
    stand.upgrade(options())
    assert space.put(TASK)["id"] == 3


def test_a_tube_that_is_no_space_does_not_become_one_while_it_has_jobs_or_another_type() -> None:
    stand = SpaceEngine()
    for policy in (p.DISQUE, p.FIFO):
        tube = stand.engine.create_tube(policy.type.encode(), policy, stand.now)
        with pytest.raises(Unsupported, match="tube with jobs or options of its own; choose another name"):
            stand.upgrade(options(), policy.type)
        assert tube.policy == policy
    stand.engine.create_tube(b"plain", p.XQUEUE, stand.now)
    space = stand.upgrade({"fields": {"status": 2}}, "plain")
    assert space.put([None])[1] == "R"


def test_a_space_whose_tube_was_dropped_no_longer_exists() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    stand.engine.drop(stand.space().tube, stand.now)
    assert stand.spaces.find(b"space") is None
    stand.upgrade({"fields": {"status": 2}})
    assert space.put([None])[1] == "R"


def test_every_method_of_xqueue_exists() -> None:
    wanted = "put take ack release bury wait dig plow kick kill touch stats queue_stats truncate switch snatch restart"
    assert {*wanted.split(), "get"} <= set(METHODS)


# Arbitrary calls

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats()
    | st.sampled_from(["id", "name", "A", "R", "W", "=", "\udcff", "\ud800", b"\xff", "x" * 70_000])
    | st.just(Ext(2, b"u" * 16)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["id", "name", "data", "tube", "priority", "delay", "ttl", "ttr", "wait", "timeout", "update"]
            )
            | st.sampled_from(["increment", 1, "\ud800"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
CALLS = st.lists(st.tuples(st.sampled_from(sorted(METHODS)), st.lists(ANYTHING, max_size=3)), max_size=8)


@settings(max_examples=150)
@given(CALLS, st.sampled_from([{}, {"zombie": 5}, {"keep": True, "retval": "tuple"}, {"id": "required"}]))
def test_any_call_is_answered_or_refused_and_every_answer_can_be_sent(
    calls: list[tuple[str, list[Any]]], features: dict[str, Any]
) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(**features))
    space.put({"id": 1, "name": "n", "tube": "A"})
    space.take()
    for method, args in calls:
        try:
            answer = getattr(space, method)(*args)
        except PenstockError as refusal:
            assert str(refusal)
        else:
            pack(stand.end(answer) if isinstance(answer, Waits) else answer)
    check(stand.engine)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(["format", "fields", "features", "primary_key", "tube_stats"]), ANYTHING))
def test_any_options_are_accepted_or_refused(asked: dict[str, Any]) -> None:
    stand = SpaceEngine()
    for given_options in (asked, {"fields": {"status": 2}, **asked}, {**options(), **asked}):
        try:
            stand.upgrade(given_options)
        except PenstockError as refusal:
            assert str(refusal)


def test_every_accepted_value_can_be_returned_at_any_depth() -> None:
    space = SpaceEngine().upgrade(options())
    for depth in range(1, 80):
        deep: Any = "x"
        for _ in range(depth):
            deep = [deep]
        try:
            row = space.put({"name": "n", "data": deep})
        except PenstockError:
            break
        assert unpack(pack([row])) == [row] == [space.get(row["id"])]
    assert depth == 65


@pytest.mark.parametrize(("buried", "states"), [(True, [s.BURIED, s.TAKEN]), (False, [s.READY, s.READY])])
def test_a_take_of_damaged_data_is_an_error_and_no_client_holds_the_task(buried: bool, states: list[int]) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(buried=buried))
    for _ in range(2):
        space.put(TASK)
    tube = stand.space().tube
    damaged, good = sorted(tube.jobs_in(s.READY), key=lambda job: job.local)
    spill(stand.engine, damaged, 1, 10)
    answers = []
    for _ in range(2):
        try:
            answers.append(space.take()["id"])
        except DamagedJournal:
            answers.append("damaged")
    # In a space without bury, the next take finds the task again; but no client holds a task that it never got.
    assert answers == (["damaged", good.local] if buried else ["damaged"] * 2)
    assert [damaged.state, good.state] == states
    check(stand.engine)


def test_a_damaged_job_among_several_is_left_out_even_if_a_waiting_client_gets_it() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(buried=False))
    waiting = Client(stand, "space")
    for _ in range(3):
        space.put(TASK)
    tube = stand.space().tube
    jobs = sorted(tube.jobs_in(s.READY), key=lambda job: job.local)
    spill(stand.engine, jobs[1], 1, 10)
    taken = stand.engine.take_many(space.caller.connection.session, [tube], 3, NOW)
    waits = waiting.take(10)
    assert len(stand.context.bodies(space.caller, taken, NOW)) == 2 and taken == [jobs[0], jobs[2]]
    assert waits.wait.jobs == [jobs[1]]
    with pytest.raises(DamagedJournal):
        stand.end(waits)
    assert [job.state for job in jobs] == [s.TAKEN, s.READY, s.TAKEN]
