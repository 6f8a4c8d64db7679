"""The arguments of the methods of spaces, and the errors for wrong ones."""

from __future__ import annotations

import math

import pytest

from penstock.core import states as s
from penstock.core.limits import NEVER
from penstock.dialects.spaces.arguments import read_iterator, read_key
from penstock.dialects.spaces.indexes import Index, read_fields
from penstock.dialects.xqueue import arguments as a
from penstock.dialects.xqueue.options import XqueueError
from penstock.wire.errors import BoxError, LuaError

INDEX = Index(0, "primary", [0], read_fields("id:unsigned"))


@pytest.mark.parametrize(
    ("given", "key"),
    [(None, []), ({}, []), ([], []), (5, [5]), ("x", ["x"]), ([1, "a"], [1, "a"]), ((1,), [1]), (b"x", [b"x"])],
)
def test_a_key_is_a_value_or_a_list(given: object, key: list[object]) -> None:
    assert read_key(given) == key


def test_a_key_with_names_is_refused() -> None:
    with pytest.raises(LuaError, match="not a table with names"):
        read_key({"id": 1})


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (None, 42),
        *((name, number) for number, name in enumerate(["EQ", "REQ", "ALL", "LT", "LE", "GE", "GT"])),
        ("ge", 5),
        *((number, number) for number in range(7)),
    ],
)
def test_an_iterator_is_given_by_its_name_or_number(given: object, number: int) -> None:
    assert read_iterator(given, INDEX, "space", 42) == number


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("", "Unknown iterator type ''"),
        ("nope", "Unknown iterator type 'nope'"),
        ("x" * 1_000, f"Unknown iterator type '{'x' * 64}'"),
        (-1, "Illegal parameters, Invalid iterator type"),
        (12, "Illegal parameters, Invalid iterator type"),
        (True, "Illegal parameters, Invalid iterator type"),
        (1.5, "Illegal parameters, Invalid iterator type"),
        ([], "Illegal parameters, Invalid iterator type"),
        (7, "Index 'primary' (TREE) of space 'space' does not support requested iterator type"),
        ("neighbor", "Index 'primary' (TREE) of space 'space' does not support requested iterator type"),
    ],
)
def test_another_iterator_is_refused(given: object, error: str) -> None:
    with pytest.raises(BoxError) as refusal:
        read_iterator(given, INDEX, "space", 0)
    assert str(refusal.value).startswith(error)


# ---- xqueue ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("args", "at", "value"), [([], 0, None), ([1], 0, 1), ([1], 1, None), ([1, None], 1, None)])
def test_a_missing_argument_is_nil(args: list[object], at: int, value: object) -> None:
    assert a.argument(args, at) == value


@pytest.mark.parametrize("given", [None, {}, []])
def test_missing_attributes_are_an_empty_table(given: object) -> None:
    assert a.attributes([1, given], 1, "put", ("delay",)) == a.attributes([1], 1, "put", ("delay",)) == {}


def test_attributes_are_checked_by_name() -> None:
    assert a.attributes([{"delay": 1}], 0, "put", ("delay", "ttl")) == {"delay": 1}
    with pytest.raises(XqueueError, match="unknown attribute 'delai' of put; use one of delay, ttl"):
        a.attributes([{"delai": 1}], 0, "put", ("delay", "ttl"))
    with pytest.raises(XqueueError, match="attr must be a table, not number"):
        a.attributes([5], 0, "put", ("delay",))


@pytest.mark.parametrize(("given", "count"), [(None, NEVER), (math.inf, NEVER), (0, 0), (3, 3), (3.0, 3)])
def test_a_count_is_a_number_infinity_or_nil(given: object, count: int) -> None:
    assert a.count_of(given) == count


@pytest.mark.parametrize("given", [-1, 1.5, True, "3", [], -math.inf, math.nan])
def test_another_count_is_refused(given: object) -> None:
    with pytest.raises(XqueueError, match="Wrong number of tasks to dig"):
        a.count_of(given)


@pytest.mark.parametrize(("given", "ms"), [(0, 0), (1.5, 1_500), (math.inf, NEVER)])
def test_a_timeout_is_a_number_of_seconds(given: object, ms: int) -> None:
    assert a.timeout_ms_of(given) == ms


@pytest.mark.parametrize("given", [None, -1, "1", True, [], math.nan])
def test_another_timeout_is_refused(given: object) -> None:
    with pytest.raises(XqueueError, match="timeout required"):
        a.timeout_ms_of(given)


def test_a_finite_time_is_a_number_of_seconds_below_infinity() -> None:
    assert a.seconds_ms(2, "delay") == 2_000
    with pytest.raises(XqueueError, match="delay must be finite"):
        a.seconds_ms(math.inf, "delay")
    for given, type in [(None, "nil"), ("1", "string"), (True, "boolean"), ({}, "table")]:
        with pytest.raises(XqueueError, match=f"delay must be a number of seconds, not {type}"):
            a.duration_of(given, "delay")


@pytest.mark.parametrize(
    ("given", "state"),
    [("R", s.READY), ("W", s.DELAYED), ("B", s.BURIED), ("D", s.DONE), ("Z", s.ZOMBIE)],
)
def test_a_status_is_a_letter(given: str, state: int) -> None:
    assert a.state_of(given) == state


@pytest.mark.parametrize("given", [None, "", "X", "RR", 5, True, [], {}])
def test_another_status_is_refused(given: object) -> None:
    with pytest.raises(XqueueError, match="Wrong status"):
        a.state_of(given)


def test_a_task_cannot_be_switched_to_taken() -> None:
    with pytest.raises(XqueueError, match="cannot be switched to T; use take"):
        a.state_of("T")


@pytest.mark.parametrize(("delay_ms", "state"), [(0, s.READY), (1, s.DELAYED), (NEVER, s.DELAYED)])
def test_a_returned_task_is_ready_or_delayed(delay_ms: int, state: int) -> None:
    assert a.state_back(delay_ms) == state
