"""Update operations in the form of `space:update`."""

from __future__ import annotations

from typing import Any

import pytest

from .spaces import Client, SpaceEngine, options, refused

DONE: list[tuple[list[Any], dict[str, Any]]] = [
    ([], {}),
    ([["=", "data", "new"]], {"data": "new"}),
    ([["=", 7, "new"]], {"data": "new"}),
    ([["=", -1, "new"]], {"data": "new"}),
    ([["=", "name", "a"], ["=", "name", "b"]], {"name": "b"}),
    ([["+", "data", 5]], {"data": 12}),
    ([["-", "data", 10]], {"data": -3}),
    ([["+", "data", 0.5]], {"data": 7.5}),
    ([["&", "data", 3]], {"data": 3}),
    ([["|", "data", 8]], {"data": 15}),
    ([["^", "data", 5]], {"data": 2}),
    ([[":", "name", 2, 2, "XYZ"]], {"name": "nXYZe"}),
    ([[":", "name", -1, 0, "!"]], {"name": "name!"}),
    ([[":", "name", 1, -1, ""]], {"name": "e"}),
    ([[":", "name", 99, 5, "+"]], {"name": "name+"}),
    ([["#", "data", 1]], {"data": None}),
    ([["#", "data", 1], ["!", 7, "again"]], {"data": "again"}),
    ([("=", "priority", 9), [b"=", b"tube", "C"]], {"priority": 9, "tube": "C"}),
]

NOT_FOUND = "was not found in the tuple"
REFUSED: list[tuple[Any, str, int]] = [
    (5, "attr.update must be a list, not number", 32),
    ([5], "update operation must be an array {op,..}", 1),
    ([[]], "update operation must be an array {op,..}", 1),
    ([["?", "data", 1]], "Unknown UPDATE operation #1: wrong operation type", 28),
    ([["=", "data", 1], [None, "data", 1]], "Unknown UPDATE operation #2: wrong operation type", 28),
    ([["=", "data"]], "Unknown UPDATE operation #1: wrong number of arguments, expected 3, got 2", 28),
    ([[":", "name", 1]], "Unknown UPDATE operation #1: wrong number of arguments, expected 5, got 3", 28),
    ([["=", "colour", 1]], f"Field 'colour' {NOT_FOUND}", 37),
    ([["=", 99, 1]], f"Field 99 {NOT_FOUND}", 37),
    ([["=", 0, 1]], f"Field 0 {NOT_FOUND}", 37),
    ([["+", -99, 1]], f"Field -99 {NOT_FOUND}", 37),
    ([["=", None, 1]], "field id must be a number or a name", 1),
    (
        [["+", "name", 1]],
        "Argument type in operation '+' on field 'name' does not match field type: expected a number",
        26,
    ),
    ([["-", 7, "1"]], "Argument type in operation '-' on field 7 does not match field type: expected a number", 26),
    (
        [["&", "data", -1]],
        "Argument type in operation '&' on field 'data' does not match field type: expected a positive integer",
        26,
    ),
    (
        [[":", "data", 1, 1, "x"]],
        "Argument type in operation ':' on field 'data' does not match field type: expected a string",
        26,
    ),
    (
        [[":", "name", "1", 1, "x"]],
        "Argument type in operation ':' on field 'name' does not match field type: expected an integer",
        26,
    ),
    ([[":", "name", 0, 1, "x"]], "SPLICE error on field 'name': offset is out of bound", 25),
    ([["+", "data", 2**64 - 1]], "Integer overflow when performing '+' operation on field 'data'", 95),
    ([["#", "data", 0]], "Field 'data' UPDATE error: cannot delete 0 fields", 29),
    (
        [["=", "id", 5]],
        "Attempt to modify a tuple field which is part of primary index in space 'space'",
        94,
    ),
    ([["=", "status", "D"]], "Field 2 UPDATE error: only the queue changes status", 29),
    ([["=", "runat", 5]], "Field 3 UPDATE error: only the queue changes runat", 29),
    (
        [["=", "name", 5]],
        "Tuple field 6 (name) type does not match one required by operation: expected string, got unsigned",
        23,
    ),
    ([["=", "name", None]], "Tuple field 6 (name) required by space format is missing", 39),
    ([["!", -1, 5]], "Tuple field count 8 does not match space field count 7", 38),
    ([["=", "data", 1]] * 4_001, "too many operations for update", 1),
]


def taken(stand: SpaceEngine) -> Client:
    space = stand.upgrade(options())
    space.put({"name": "name", "data": 7, "tube": "A", "priority": 1})
    space.take()
    return space


@pytest.mark.parametrize(("update", "changes"), DONE)
@pytest.mark.parametrize("method", ["ack", "release", "bury", "dig", "plow"])
def test_an_update_changes_the_task_of_a_call(method: str, update: list[Any], changes: dict[str, Any]) -> None:
    stand = SpaceEngine()
    space = taken(stand)
    before = space.get(1)
    wanted = {**before, **changes}
    if method in ("dig", "plow"):
        space.bury(1)
    told = getattr(space, method)(1, {"update": update})
    now = space.get(1)
    for row in (told, now):
        if isinstance(row, dict):
            assert row == {**wanted, "status": row["status"]}
    assert (now is None) == (method == "ack")


@pytest.mark.parametrize(("update", "words", "number"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_an_invalid_update_changes_nothing(update: Any, words: str, number: int) -> None:
    stand = SpaceEngine()
    space = taken(stand)
    before = space.get(1)
    for method in ("ack", "release", "bury"):
        assert refused(getattr(space, method), 1, {"update": update}) == words
    assert space.get(1) == before and before["status"] == "T"
    try:
        space.ack(1, {"update": update})
    except Exception as error:
        assert getattr(error, "number", None) == number


def test_a_row_without_a_format_can_grow_and_shrink() -> None:
    space = SpaceEngine().upgrade({"fields": {"status": 2}, "features": {"id": "required"}})
    space.put(["k", None, 1])
    space.take()
    assert space.release("k", {"update": [["=", 4, "new"], ["!", 4, "between"]]}) == ["k", "R", 1, "between", "new"]
    space.take()
    assert space.release("k", {"update": [["#", 3, 2]]}) == ["k", "R", "new"]
    space.take()
    assert refused(space.release, "k", {"update": [["#", 1, 1]]}).startswith("Attempt to modify a tuple field")
