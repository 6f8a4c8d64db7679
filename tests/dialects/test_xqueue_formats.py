"""Fields that are added to a space in use: which changes are refused, and that old rows keep their meaning."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compat.xqueue import BadFormat
from penstock.core.errors import OutOfRange, Unsupported
from penstock.core.ids import IdForms
from penstock.core.job import BODY_JSON, Draft
from penstock.core.limits import ROW_FORMATS_MAX
from penstock.dialects.xqueue.options import options_of
from penstock.dialects.xqueue.spaces import XqueueSpaces
from penstock.journal.maintenance.backup import copy_log
from penstock.journal.maintenance.snapshot import take_snapshot
from penstock.journal.recovery.opening import open_log
from penstock.node.context import CommandContext
from penstock.options import encode_body
from penstock.testing.disk import MemoryDisk

from .spaces import FORMAT, NODE, Client, SpaceEngine, options, refused

ID: dict[str, Any] = {"name": "id", "type": "unsigned"}
STATUS: dict[str, Any] = {"name": "status", "type": "string"}
DATA: dict[str, Any] = {"name": "data", "type": "any", "is_nullable": True}


def nullable(name: str, type: str = "any") -> dict[str, Any]:
    return {"name": name, "type": type, "is_nullable": True}


def made(stand: SpaceEngine, *payload: dict[str, Any]) -> Client:
    """Return a client of a new space with these fields after `id` and `status`."""
    return stand.upgrade({"format": [ID, STATUS, *payload], "fields": {"status": "status"}})


def extended(stand: SpaceEngine, *payload: dict[str, Any]) -> dict[str, list[Any]]:
    return stand.spaces.upgrade(b"space", {"format": [ID, STATUS, *payload]}, stand.now).changed


def task(key: int, status: str = "R", **payload: Any) -> dict[str, Any]:
    return {"id": key, "status": status, **payload}


# Which changes are possible

REFUSED: list[tuple[list[Any], str]] = [
    ([ID, STATUS, {**DATA, "name": "body"}], "field 'data' cannot be renamed to 'body'"),
    ([ID, STATUS, {**DATA, "type": "map"}], "field 'data' has the type any, and its type cannot be changed to map"),
    ([ID, STATUS, {**DATA, "is_nullable": False}], "field 'data' cannot change is_nullable"),
    ([ID, STATUS], "field 'data' is missing, and fields cannot be removed"),
    ([ID, DATA], "field 'status' is missing, and fields cannot be removed"),
    ([], "field 'id' is missing, and fields cannot be removed"),
    ([ID, DATA, STATUS], "field 'status' is at another place, and fields cannot be reordered"),
    (
        [ID, STATUS, nullable("note"), DATA],
        "new field 'note' is before 'data', and fields can be added only at the end",
    ),
    (
        [ID, STATUS, DATA, nullable("note"), {"name": "size", "type": "unsigned"}],
        "new field 'size' needs is_nullable = true, because old rows have no value for it",
    ),
    # A field of type any accepts nil, but users must say that they know it.
    (
        [ID, STATUS, DATA, "note"],
        "new field 'note' needs is_nullable = true, because old rows have no value for it",
    ),
]


@pytest.mark.parametrize(("format", "words"), REFUSED)
def test_other_changes_of_a_format_are_refused_and_change_nothing(format: list[Any], words: str) -> None:
    stand = SpaceEngine()
    space = made(stand, DATA)
    before = stand.space().options
    with pytest.raises(BadFormat) as refusal:
        stand.upgrade({"format": format, "features": {"keep": True}})
    assert (refusal.value.code, refusal.value.number) == ("BADFORMAT", 12)
    assert str(refusal.value) == f"Can't modify space 'space': {words}"
    assert stand.space().options == before and stand.space().tube.policy.row_format == 0
    assert space.put({"data": 1}) == task(1, data=1)


def test_a_space_without_a_format_gets_none_later() -> None:
    stand = SpaceEngine()
    stand.upgrade({"fields": {"status": 2}})
    words = "Can't modify space 'space': it was made without a format, and a space keeps this choice"
    assert refused(stand.upgrade, {"format": [ID, STATUS]}) == words
    stand.upgrade({"format": []})


def test_a_new_field_cannot_be_one_of_the_queue() -> None:
    stand = SpaceEngine()
    made(stand, DATA)
    runat = nullable("runat", "number")
    given = {"format": [ID, STATUS, DATA, runat], "fields": {"status": "status", "runat": "runat"}}
    words = "fields and primary_key of space 'space' are fixed; make another space and move the tasks"
    assert refused(stand.upgrade, given) == words
    assert stand.space().options.lengths == (3,)


def test_an_upgrade_reports_the_fields_that_it_added() -> None:
    stand = SpaceEngine()
    made(stand, DATA)
    assert extended(stand, DATA) == {}
    changed = extended(stand, DATA, nullable("note", "str"))
    old = [{**ID, "is_nullable": False}, {**STATUS, "is_nullable": False}, DATA]
    assert changed == {"format": [old, [*old, nullable("note", "string")]]}
    assert stand.space().tube.policy.row_format == 1
    assert extended(stand, DATA, nullable("note", "string")) == {}
    assert extended(stand, DATA, nullable("note", "string"), nullable("a"), nullable("b")).keys() == {"format"}
    assert stand.space().options.lengths == (3, 4, 6)


def test_a_space_has_at_most_255_formats() -> None:
    stand = SpaceEngine()
    space = made(stand)
    fields = [nullable(f"field {number}") for number in range(1, ROW_FORMATS_MAX + 1)]
    for count in range(1, ROW_FORMATS_MAX):
        space.put({} if count == 1 else {f"field {count - 1}": count})
        extended(stand, *fields[:count])
    with pytest.raises(BadFormat) as refusal:
        extended(stand, *fields)
    words = "it has 255 formats, which is the maximum; make another space and move the tasks"
    assert str(refusal.value) == f"Can't modify space 'space': {words}"
    assert extended(stand, *fields[:-1]) == {}
    space.put({"field 254": "last"})
    jobs = stand.engine.jobs.scan(0, 1_000)
    assert [int(job.format) for job in jobs] == list(range(255))
    for key in (2, 100, 254):
        values = {name: value for name, value in space.get(key).items() if value is not None}
        assert values == {"id": key, "status": "R", f"field {key - 1}": key}
    assert space.get(255)["field 254"] == "last"


def test_the_number_of_a_format_is_never_used_again() -> None:
    stand = SpaceEngine()
    made(stand, DATA)
    extended(stand, DATA, nullable("note"))
    tube = stand.space().tube
    with pytest.raises(Unsupported, match="row_format cannot be lowered"):
        stand.engine.alter(tube, dataclasses.replace(tube.policy, row_format=0), stand.now)
    with pytest.raises(OutOfRange, match="row_format must be 0 to 254"):
        stand.engine.alter(tube, dataclasses.replace(tube.policy, row_format=255), stand.now)
    # A policy that was written by hand and contradicts itself is not that of a space.
    assert options_of(dataclasses.replace(tube.policy, row_format=2)) is None
    assert options_of(tube.policy) == stand.space().options


# Old and new rows


def test_old_rows_show_nil_and_new_rows_show_the_value() -> None:
    stand = SpaceEngine()
    space = stand.upgrade(options())
    space.put({"name": "old", "tube": "A"})
    stand.upgrade({"format": [*FORMAT, nullable("note", "string")]})
    space.put({"name": "new", "note": "n"})
    rest = {"runat": 0, "priority": 0, "data": None}
    old = {"id": 1, "status": "R", "tube": "A", "name": "old", "note": None, **rest}
    new = {"id": 2, "status": "R", "tube": None, "name": "new", "note": "n", **rest}
    assert [space.get(1), space.get(2)] == [old, new]
    assert space.select() == [list(each) for each in ([1, "R", 0, 0, "A", "old", None, None],
                                                     [2, "R", 0, 0, None, "new", None, "n"])]  # fmt: skip
    assert [space.take(), space.take()] == [{**old, "status": "T"}, {**new, "status": "T"}]
    assert refused(space.put, {"name": "x", "note": 5}).startswith("Tuple field 8 (note) type does not match")


@pytest.mark.parametrize("first", [{"note": 1}, {"data": 1}, {"data": 1, "note": 2}, {}, "text", b"\xff", None, [1]])
def test_an_old_value_with_the_name_of_the_new_field_keeps_its_meaning(first: Any) -> None:
    stand = SpaceEngine()
    space = made(stand, DATA)
    space.put({"data": first})
    extended(stand, DATA, nullable("note"))
    assert space.get(1) == task(1, data=first, note=None)
    space.put({"data": first})
    assert space.get(2) == task(2, data=first, note=None)
    space.put({"data": first, "note": first})
    assert space.get(3) == task(3, data=first, note=first)


def test_an_old_job_of_another_dialect_keeps_its_meaning_and_a_new_one_fills_the_new_field() -> None:
    stand = SpaceEngine()
    space = made(stand, DATA, nullable("note"))
    body = b'{"data":1,"extra":2}'
    for _ in range(2):
        stand.engine.put(stand.space().tube, Draft(body, body_kind=BODY_JSON), stand.now)
        extended(stand, DATA, nullable("note"), nullable("extra"))
    assert space.get(1) == task(1, data={"data": 1, "extra": 2}, note=None, extra=None)
    assert space.get(2) == task(2, data=1, note=None, extra=2)


@pytest.mark.parametrize("method", ["release", "ack", "bury"])
def test_an_update_writes_the_row_with_the_newest_format(method: str) -> None:
    stand = SpaceEngine()
    space = stand.upgrade({"format": [ID, STATUS, DATA], "fields": {"status": "status"}, "features": {"keep": True}})
    space.put({"data": {"note": "inner"}})
    space.put({"data": {"note": "inner"}})
    extended(stand, DATA, nullable("note"))
    job = stand.engine.jobs.scan(0, 9)[0]
    space.take()
    # Without an update, the body and its format stay.
    space.release(1)
    assert job.format == 0 and space.get(1) == task(1, data={"note": "inner"}, note=None)
    space.take()
    result = getattr(space, method)(1, {"update": [["=", "note", "outer"]]})
    status = {"release": "R", "ack": "D", "bury": "B"}[method]
    after = task(1, status, data={"note": "inner"}, note="outer")
    assert result == (after if result is not None else None)
    assert job.format == 1 and space.get(1) == after
    assert space.get(2) == task(2, data={"note": "inner"}, note=None)


def test_a_wait_shows_the_row_of_a_space_that_changed_meanwhile() -> None:
    stand = SpaceEngine()
    space = made(stand, DATA)
    other = Client(stand, "space")
    waits = space.put({"data": {"note": 1}}, {"wait": 50})
    untouched = space.put({"data": {"note": 2}}, {"wait": 50})
    extended(stand, DATA, nullable("note"))
    for key in (1, 2):
        other.take()
        other.ack(key, {"update": [["=", "note", "n"]]} if key == 1 else {})
    assert stand.end(waits) == (task(1, "T", data={"note": 1}, note="n"), True)
    assert stand.end(untouched) == (task(2, "T", data={"note": 2}, note=None), True)


def test_a_job_that_comes_from_a_space_with_more_formats_is_read_with_the_newest() -> None:
    stand = SpaceEngine()
    made(stand, DATA)
    extended(stand, DATA, nullable("note"))
    space = stand.upgrade({"format": [ID, STATUS, DATA, nullable("x")], "fields": {"status": "status"}}, "other")
    job = stand.engine.put(stand.space().tube, Draft(b'{"data":1,"x":2}', body_kind=BODY_JSON), stand.now)
    stand.engine.move(space.caller.connection.session, job, stand.space("other").tube, stand.now)
    assert space.get(1) == task(1, data=1, x=2)


def test_a_job_that_returns_from_another_tube_keeps_its_meaning() -> None:
    stand = SpaceEngine()
    space = made(stand, DATA)
    space.put({"data": {"note": 1}})
    failed = stand.upgrade({"fields": {"status": 2}}, "failed")
    [job] = stand.engine.jobs.scan(0, 9)
    session = space.caller.connection.session
    stand.engine.move(session, job, stand.space("failed").tube, stand.now)
    extended(stand, DATA, nullable("note"))
    assert failed.len() == 1
    stand.engine.move(session, job, stand.space().tube, stand.now)
    [row] = space.select()
    assert row[1:] == ["R", {"note": 1}, None]


# A model of a space: the expected rows, by key

SEGMENT_BYTES = 16_384
NAMES = ["data", "a", "b", "c", "d"]
maps = st.dictionaries(st.sampled_from(NAMES[:3]), st.integers(0, 3), max_size=2)
others: st.SearchStrategy[Any] = st.sampled_from([None, 1, -1.5, "", "text", "{}", b"", b"\xff", [], [1], {"id": 1}])
values = st.one_of(maps, maps, others)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(values, max_size=2)),
        st.tuples(st.just("put_native"), values.filter(lambda value: value is not None)),
        st.tuples(st.just("add"), st.integers(1, 2)),
        st.tuples(st.just("update"), st.integers(0, 9), st.integers(0, 9), values),
        st.tuples(st.just("release")),
        st.tuples(st.just("refused")),
        st.tuples(st.just("snapshot")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("restore")),
    ),
    min_size=2,
    max_size=12,
)


class Model(SpaceEngine):
    """A space that is in a journal, and the rows that it has to show."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.names = NAMES[:count]
        self.expected: dict[int, dict[str, Any]] = {}
        self.open()
        self.client = self.upgrade({"format": self.format(), "fields": {"status": "status"}})
        self.log.commit(self.now, self.now)

    def open(self) -> None:
        opened = open_log(self.disk, lambda: self.now, "boot", segment_bytes=SEGMENT_BYTES)
        self.log, self.engine = opened.log, opened.engine
        body_of = self.engine.outbox.body_of
        self.site = CommandContext(self.engine, IdForms(NODE[:8], b"k" * 32), NODE, body_of, lambda length: None)
        self.spaces = XqueueSpaces(self.site)

    def format(self) -> list[Any]:
        return [ID, STATUS, *(nullable(name) for name in self.names)]

    def put(self, values: list[Any]) -> None:
        row = dict(zip(self.names, values, strict=False))
        self.expected[self.client.put(row)["id"]] = row

    def put_native(self, value: Any) -> None:
        """Put a job through another API. A map of the present fields of the space is a row."""
        body, kind = encode_body(value)
        job = self.engine.put(self.space().tube, Draft(body, body_kind=kind), self.now)
        is_row = len(self.names) > 1 and isinstance(value, dict) and set(value) <= set(self.names)
        self.expected[int(job.local)] = value if is_row else {self.names[0]: value} if self.names else {}

    def add(self, count: int) -> None:
        self.names = NAMES[: len(self.names) + count]
        self.upgrade({"format": self.format()})

    def update(self, at: int, field: int, value: Any) -> None:
        if self.expected and self.names:
            key, name = list(self.expected)[at % len(self.expected)], self.names[field % len(self.names)]
            self.client.switch(key, "B")
            assert self.client.dig(key, {"update": [["=", name, value]]})[name] == value
            self.expected[key] = {**self.expected[key], name: value}

    def release(self) -> None:
        if self.expected:
            self.client.release(self.client.take())

    def refused(self) -> None:
        now = self.format()
        for format in (now[:-1], [*now, "must"], [ID, nullable("new"), *now[1:]]):
            with pytest.raises(BadFormat):
                self.upgrade({"format": format})

    def snapshot(self) -> None:
        take_snapshot(self.disk, self.log, self.engine, self.now, self.now)

    def restart(self) -> None:
        self.open()
        self.client = Client(self, "space")

    def restore(self) -> None:
        """Continue with a copy of the journal."""
        source, self.disk = self.disk, MemoryDisk()
        copy_log(source, self.disk)
        self.restart()

    def step(self, name: str, args: list[Any]) -> None:
        getattr(self, name)(*args)
        self.log.commit(self.now, self.now)
        wanted = {key: task(key, **{name: row.get(name) for name in self.names}) for key, row in self.expected.items()}
        assert {key: self.client.get(key) for key in wanted} == wanted
        assert {row[0]: row for row in self.client.select()} == {key: [*row.values()] for key, row in wanted.items()}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3), steps)
def test_every_row_keeps_its_values_through_changes_restarts_and_restores(count: int, steps: list[Any]) -> None:
    model = Model(count)
    for name, *args in steps:
        model.step(name, args)
