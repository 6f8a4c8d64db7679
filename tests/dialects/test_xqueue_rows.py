"""Rows and jobs: how a task is stored, how it is returned, and how other dialects see it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT, Draft
from penstock.core.tube import key_of
from penstock.dialects.xqueue.options import XqueueError
from penstock.dialects.xqueue.rows import encode
from penstock.wire.bodies import to_plain, to_python
from penstock.wire.msgpack import Ext, pack

from .spaces import NOW, Client, SpaceEngine, options, refused

ONE_FIELD = [{"name": "id", "type": "unsigned"}, ["status", "string"], ["payload", "any"]]


def one_field(stand: SpaceEngine) -> Client:
    return stand.upgrade({"format": ONE_FIELD, "fields": {"status": "status"}})


def body(stand: SpaceEngine, at: int = -1) -> tuple[bytes, int]:
    job = stand.engine.jobs.scan(0, 1_000)[at]
    assert isinstance(job.body, bytes)
    return job.body, job.body_kind


# Forms of a task


def test_a_table_an_array_and_a_tuple_are_the_same_task() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(id="required"))
    forms: list[Any] = [
        {"id": 1, "name": "xxx", "data": "yyy", "priority": 3, "tube": "A"},
        [2, None, None, 3, "A", "xxx", "yyy"],
        (3, "R", 0, 3, "A", "xxx", "yyy"),
    ]
    for number, form in enumerate(forms, 1):
        row = {"id": number, "status": "R", "runat": 0, "priority": 3, "tube": "A", "name": "xxx", "data": "yyy"}
        assert space.put(form) == space.get(number) == row
    jobs = stand.engine.jobs.scan(0, 99)
    assert {(job.priority, key_of(stand.space().tube, job)) for job in jobs} == {(3, b"A")}
    assert {to_plain(*body(stand, at)) for at in range(3)} == {b'{"name":"xxx","data":"yyy"}'}


def test_an_array_may_be_shorter_and_status_and_runat_are_the_queues() -> None:
    space = SpaceEngine().upgrade(options())
    assert space.put([None, "Z", 99, None, None, "x"]) == {
        **{"id": 1, "status": "R", "runat": 0, "priority": 0, "tube": None},
        **{"name": "x", "data": None},
    }


REFUSED: list[tuple[Any, str]] = [
    (None, "Wrong argument to put. Expected table or tuple"),
    (5, "Wrong argument to put. Expected table or tuple"),
    ("row", "Wrong argument to put. Expected table or tuple"),
    ((1, None, None, 0, "A", "x"), "Can't use id generation with tuple."),
    ({"name": "x", "colour": 1}, "Unknown field 'colour' of space 'space'; use one of id, status, runat, priority, "
                                 "tube, name, data"),
    ({}, "Tuple field 6 (name) required by space format is missing"),
    ([None, None], "Tuple field 6 (name) required by space format is missing"),
    ({"name": 5}, "Tuple field 6 (name) type does not match one required by operation: expected string, got unsigned"),
    ({"name": "x", "priority": 1.5},
     "Tuple field 4 (priority) type does not match one required by operation: expected integer, got double"),
    ({"name": "x", "priority": "high"},
     "Tuple field 4 (priority) type does not match one required by operation: expected integer, got string"),
    ({"name": "x", "tube": 5},
     "Tuple field 5 (tube) type does not match one required by operation: expected string, got unsigned"),
    ([None, None, None, 0, "A", "x", 1, 2], "Tuple field count 8 does not match space field count 7"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "words"), REFUSED)
def test_an_invalid_task_is_refused_with_these_errors(task: Any, words: str) -> None:
    stand = SpaceEngine()
    assert refused(stand.upgrade(options()).put, task) == words
    assert not stand.engine.jobs.count


STRICT = {
    **options(),
    "format": [
        *({"name": "id", "type": "unsigned"}, {"name": "status", "type": "string"}),
        *({"name": "priority", "type": "integer"}, {"name": "tube", "type": "string"}, {"name": "data"}),
    ],
    "fields": {"status": 2, "priority": 3, "tube": 4},
    "features": {},
}


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"tube": "A"}, "Tuple field 3 (priority) type does not match one required by operation: expected integer"),
        ({"priority": 1}, "Tuple field 4 (tube) type does not match one required by operation: expected string"),
        ([None, None, 1], "Tuple field 4 (tube) type does not match one required by operation: expected string"),
        ({"priority": 1, "tube": None}, "Tuple field 4 (tube) type does not match one required by operation"),
    ],
)
def test_a_put_without_a_tube_or_a_priority_that_may_not_be_nil_is_refused(task: Any, words: str) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(STRICT)
    with pytest.raises(XqueueError) as refusal:
        space.put(task)
    assert refusal.value.number == 23 and str(refusal.value).startswith(words)
    assert str(refusal.value).endswith("got nil")
    assert not stand.engine.jobs.count
    assert space.put({"tube": "A", "priority": 0})["status"] == "R"


def test_a_job_of_another_dialect_can_stay_without_a_tube_but_a_tube_cannot_be_removed() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(STRICT)
    stand.engine.put(stand.space().tube, Draft(b"x"), stand.now)
    assert space.take()["tube"] is None
    assert space.release(1, {"update": [["=", "data", "y"]]})["data"] == "y"
    space.take()
    assert space.release(1, {"update": [["=", "tube", "A"]]})["tube"] == "A"
    space.take()
    assert refused(space.release, 1, {"update": [["=", "tube", None]]}).endswith("expected string, got nil")
    assert space.ack(1)["tube"] == "A"


TYPES: list[tuple[str, list[Any], list[Any]]] = [
    ("unsigned", [0, 2**64 - 1, 2.0], [-1, 1.5, "1", True]),
    ("integer", [-1, 5], [1.5, "1"]),
    ("number", [-1, 1.5], ["1", True]),
    ("double", [1.5], ["1"]),
    ("string", ["", "x", b"x"], [5, ["x"]]),
    ("varbinary", [b"x"], ["x"]),
    ("boolean", [True, False], [0, "true"]),
    ("array", [[], [1]], [{}, "x"]),
    ("map", [{}, {"a": 1}], [[], "x"]),
    ("scalar", [1, "x", True, b""], [[], {}]),
    ("any", [1, "x", [1], {"a": 1}], []),
    ("uuid", [Ext(2, b"u" * 16)], ["x", 5, b"x", Ext(1, b"u")]),
    ("decimal", [Ext(1, b"\0\x1c"), 5], ["5", Ext(2, b"x")]),
]


@pytest.mark.parametrize(("type", "good", "bad"), TYPES, ids=[row[0] for row in TYPES])
def test_a_field_accepts_values_of_its_type(type: str, good: list[Any], bad: list[Any]) -> None:
    space = SpaceEngine().upgrade({"format": [["id", "unsigned"], "status", ["x", type]], "fields": {"status": 2}})
    for value in good:
        assert space.put({"x": value})["x"] == value
    for value in bad:
        assert f"Tuple field 3 (x) type does not match one required by operation: expected {type}, got" in refused(
            space.put, {"x": value}
        )


# The contents of the body


@pytest.mark.parametrize(
    ("payload", "raw", "kind"),
    [
        ("text", b"text", BODY_TEXT),
        (b"\0\xff", b"\0\xff", BODY_BYTES),
        ({"a": [1, None]}, b"\x91\x81\xa1a\x92\x01\xc0", BODY_MSGPACK),
        (7, b"\x91\x07", BODY_MSGPACK),
        ({"a": b"\xff"}, b"\x91\x81\xa1a\xc4\x01\xff", BODY_MSGPACK),
        ({1: 2}, b"\x91\x81\x01\x02", BODY_MSGPACK),
    ],
)
def test_one_payload_field_is_the_body_as_it_is(payload: Any, raw: bytes, kind: int) -> None:
    stand = SpaceEngine()
    space = one_field(stand)
    assert space.put({"payload": payload})["payload"] == payload == space.get(1)["payload"]
    assert body(stand) == (raw, kind)


def test_several_payload_fields_are_a_map_by_their_names() -> None:
    stand = SpaceEngine()
    stand.upgrade(options()).put({"name": "n", "data": {"x": 1}})
    assert body(stand)[1] == BODY_MSGPACK
    assert to_python(*body(stand)) == {"name": "n", "data": {"x": 1}}
    assert to_plain(*body(stand)) == b'{"name":"n","data":{"x":1}}'


def test_several_payload_fields_without_a_format_are_an_array() -> None:
    stand = SpaceEngine()
    space = stand.upgrade({"fields": {"status": 2}, "features": {"id": "required"}})
    rows: list[Any] = [["a", None, "x"], ["b", None, 1, 2], ["c", None, ["x"]], ["d", None], ["e", None, {"k": 1}]]
    for row in rows:
        assert space.put(row) == space.get(row[0]) == [row[0], "R", *row[2:]]
    assert [to_plain(*body(stand, at)) for at in range(5)] == [b"x", b"[1,2]", b'[["x"]]', b"", b'[{"k":1}]']
    assert refused(space.put, {"id": 1}) == "Task from table requires space format; put an array"


@pytest.mark.parametrize(
    ("draft", "shown"),
    [
        (Draft(b"raw"), {"name": b"raw", "data": None}),
        (Draft(b"text", body_kind=BODY_TEXT), {"name": "text", "data": None}),
        (Draft(b'{"name":"n","data":5}', body_kind=BODY_JSON), {"name": "n", "data": 5}),
        (Draft(b'{"data":5}', body_kind=BODY_JSON), {"name": None, "data": 5}),
        (Draft(b'{"colour":5}', body_kind=BODY_JSON), {"name": {"colour": 5}, "data": None}),
        (Draft(b'{"id":5}', body_kind=BODY_JSON), {"name": {"id": 5}, "data": None}),
        (Draft(b"[1,2]", body_kind=BODY_JSON), {"name": [1, 2], "data": None}),
        (Draft(b"\x90", body_kind=BODY_MSGPACK), {"name": None, "data": None}),
        (Draft(b"\x92\x01\x02", body_kind=BODY_MSGPACK), {"name": [1, 2], "data": None}),
    ],
)
def test_a_job_of_another_dialect_is_a_row(draft: Draft, shown: dict[str, Any]) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    stand.engine.put(stand.space().tube, draft, stand.now)
    row = {"id": 1, "status": "T", "runat": 0, "priority": 0, "tube": None, **shown}
    assert space.take() == row
    assert space.ack(1) == row


@pytest.mark.parametrize("depth", [10, 64, 65, 66, 500, 100_000])
def test_a_body_of_another_dialect_that_is_nested_too_deep_is_shown_as_text(depth: int) -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options(), "deep")
    text = b"[" * depth + b"]" * depth
    bodies = [Draft(text, body_kind=BODY_JSON)]
    if depth <= 66:
        bodies.append(Draft(b"\x91" * depth + b"\x90", body_kind=BODY_MSGPACK))
    for draft in bodies:
        stand.engine.put(stand.space("deep").tube, draft, stand.now)
        task = space.take()
        assert isinstance(task["name"], list if depth <= 65 else str)
        pack([task])
        space.ack(task)


def test_a_job_of_another_dialect_has_its_id_as_uuid_if_keys_are_text() -> None:
    stand = SpaceEngine()
    space = stand.upgrade({"format": [["id", "string"], "status", "x"], "fields": {"status": 2}})
    job = stand.engine.put(stand.space().tube, Draft(b"raw"), stand.now)
    task = space.take()
    assert task["id"] == str(uuid.UUID(hex=stand.context.ids.hex(job.id).decode()))
    assert space.ack(task)["x"] == b"raw"


# Keys


def test_ids_that_the_queue_makes() -> None:
    stand = SpaceEngine()
    numbers = stand.upgrade(options(id="auto_increment"), "numbers")
    assert [numbers.put({"name": "x", "id": 77})["id"] for _ in range(3)] == [1, 2, 3]
    times = stand.upgrade(options(id="time64"), "times")
    assert [times.put({"name": "x"})["id"] for _ in range(3)] == [NOW * 10**6, NOW * 10**6 + 1, NOW * 10**6 + 2]
    texts = stand.upgrade({"format": [["id", "string"], "status"], "fields": {"status": 2}}, "texts")
    made = {texts.put([None])["id"] for _ in range(3)}
    assert len(made) == 3 and all(str(uuid.UUID(each)) == each for each in made)
    assert all(texts.get(each)["id"] == each for each in made)
    assert not stand.space("numbers").tube.names and not stand.space("texts").tube.names


def test_ids_that_a_function_makes() -> None:
    stand = SpaceEngine()
    made = iter([5, 7, 5, "x"])
    space = stand.upgrade(options(id=lambda: next(made)))
    assert [space.put({"name": "x"})["id"] for _ in range(2)] == [5, 7]
    assert refused(space.put, {"name": "x"}) == "Duplicate key exists in unique index 'primary' in space 'space'"
    words = "Supplied key type of part 1 does not match index part type: expected unsigned"
    assert refused(space.put, {"name": "x"}) == words
    stand.space().make_id = None  # As after a restart.
    words = "features.id is a function of the process that made the space; upgrade it again"
    assert refused(space.put, {"name": "x"}) == words


def test_a_required_key_must_be_given_and_new() -> None:
    space = SpaceEngine().upgrade(options(id="required"))
    assert refused(space.put, {"name": "x"}) == "Primary key is mandatory"
    space.put({"id": 5, "name": "x"})
    assert refused(space.put, {"id": 5.0, "name": "x"}).startswith("Duplicate key exists")
    for bad in ("5", -1, 1.5, True, [5]):
        words = "Supplied key type of part 1 does not match index part type: expected unsigned"
        assert refused(space.put, {"id": bad, "name": "x"}) == words


COMPOSITE = {
    "format": [["shard", "unsigned"], ["status", "string"], ["name", "string"], ["data", "any"]],
    "fields": {"status": "status"},
    "primary_key": ["shard", "name"],
}


def test_a_composite_key_is_given_as_a_map_an_array_of_its_parts_or_a_row() -> None:
    space = SpaceEngine().upgrade(COMPOSITE)
    for shard, name in ((1, "a"), (1, "b"), (2, "a")):
        space.put({"shard": shard, "name": name, "data": f"{shard}{name}"})
    assert refused(space.put, {"shard": 1, "name": "b", "data": 0}).startswith("Duplicate key exists")
    assert refused(space.put, {"shard": 1, "data": 0}) == "Primary key is mandatory"
    for form in ({"shard": 2, "name": "a"}, [2, "a"], [2, "R", "a", "2a"], (2, "a"), {"shard": 2, "name": "a", "x": 1}):
        assert space.get(form)["data"] == "2a"
    assert space.get([3, "a"]) is None
    assert refused(space.kill, [3, "a"]) == 'Task by [3, "a"] not found to kill'
    assert refused(space.ack, [3, "a"]) == 'Task {[3, "a"]} was not found'
    for bad in (1, "a", [1], {"shard": 1}, [1, None, None, 0]):
        assert refused(space.get, bad) == "Wrong key/task argument. Expected table or tuple or key"
    task = space.take()
    assert space.ack(task) == {"shard": 1, "status": "T", "name": "a", "data": "1a"}


@pytest.mark.parametrize("bad", [None, True, {}, {"name": "x"}, [], [None, 2], object()])
def test_an_invalid_key_is_refused(bad: Any) -> None:
    space = SpaceEngine().upgrade(options())
    for method in ("get", "ack", "release", "bury", "kill", "snatch", "restart", "wait"):
        assert refused(getattr(space, method), bad) == "Wrong key/task argument. Expected table or tuple or key"


def test_all_forms_of_a_key_find_the_same_task() -> None:
    stand = SpaceEngine()
    numbers, texts = (
        stand.upgrade(options(), "n"),
        stand.upgrade(
            {"format": [["id", "string"], "status"], "fields": {"status": 2}, "features": {"id": "required"}}, "t"
        ),
    )
    numbers.put({"name": "x"})
    assert numbers.get(1.0) == numbers.get([1]) == numbers.get({"id": 1}) != None  # noqa: E711
    texts.put(["é"])
    assert texts.get("é") == texts.get("é".encode()) == texts.get(["é"])
    assert texts.get("é")["id"] == "é"


# All values are returned as they were put

PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUE = st.recursive(
    PLAIN, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3), max_leaves=8
)


@settings(max_examples=60)
@given(VALUE)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert to_python(*encode(value)) == value


@settings(max_examples=60)
@given(st.lists(st.tuples(VALUE, VALUE), max_size=4), st.booleans())
def test_a_row_comes_back_as_it_was(rows: list[tuple[Any, Any]], has_format: bool) -> None:
    asked: dict[str, Any] = {"fields": {"status": 2}, "features": {"id": "required", "retval": "tuple"}}
    if has_format:
        nullable = [{"name": name, "is_nullable": True} for name in ("a", "b")]
        asked["format"] = [["id", "unsigned"], "status", *nullable]
    space = SpaceEngine().upgrade(asked)
    for number, (a, b) in enumerate(rows):
        assert space.put([number, None, a, b]) == space.get([number]) == [number, "R", a, b]


def test_invalid_bodies_are_refused() -> None:
    space = one_field(SpaceEngine())
    deep: list[Any] = []
    for _ in range(70):
        deep = [deep]
    for bad in (deep, 2**64, {"x": object()}, "\ud800", ["\ud800"]):
        with pytest.raises(Exception, match=r"nested|64 bits|cannot be written|surrogate"):
            space.put({"payload": bad})
    assert space.len() == 0
