"""Searching the jobs of an engine: what each field is, in slices, and with limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.engine import Engine
from penstock.core.errors import OutOfRange
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT, Draft, Job
from penstock.core.outbox import Outbox
from penstock.core.policy import FIFOTTL, UTUBETTL
from penstock.core.tube import Tube
from penstock.search.conditions import parse_condition
from penstock.search.job_fields import BODY_BYTES_READ_MAX
from penstock.search.job_search import EXAMINED_MAX, LASTS_MS_MAX, JobSearch, check_examined
from penstock.wire.headers import encode_headers
from penstock.wire.msgpack import pack

NOW = 1_000_000


@pytest.fixture
def engine() -> Engine:
    return Engine(1, NOW, Outbox())


def search(engine: Engine, where: str, now: int = NOW, cursor: int = 0, **options: Any) -> JobSearch:
    found = JobSearch(engine, parse_condition(where), cursor, now, lambda job: b"D-%d" % job.id, lambda job: job.body)
    for name, value in options.items():
        setattr(found, name, value)
    return found


def bodies(engine: Engine, where: str, now: int = NOW, **options: Any) -> list[bytes]:
    """Return the bodies of all jobs that match."""
    found: list[Job] = []
    running = search(engine, where, now, **options)
    while not running.is_over():
        found += running.step(1_000, NOW)
    return [job.body for job in found]


def put(engine: Engine, tube: Tube, body: bytes, kind: int = BODY_BYTES, **options: Any) -> Job:
    return engine.put(tube, Draft(body, body_kind=kind, **options), NOW)


@pytest.mark.parametrize(
    "where",
    [
        *("tube == 'q' and state == 'taken'", "key == 'k' and number == 0", "name == 'n'", "priority == 5"),
        *(
            "deliveries == 1 and nacks == 2 and returns == 0 and buries == 0",
            "name != null and reason == null",
            "age == 2.5",
        ),
        *(
            "created == 1000 and expires == 1060",
            "headers.trace == 'abc' and 'x' not in headers",
            "name and 'D-' in id",
        ),
        *("holder != null", "name and 'D-' in id", "as == 'json' and body.user == 42", "body.list[1] == 'b'"),
    ],
)
def test_every_field_has_the_value_of_the_job(engine: Engine, where: str) -> None:
    tube = engine.create_tube(b"q", UTUBETTL, NOW)
    headers = encode_headers([("trace", b"abc")])
    options = {"key": b"k", "name": b"n", "priority": 5, "nacks": 2, "ttl_ms": 60_000, "headers": headers}
    job = put(engine, tube, b'{"user": 42, "list": ["a", "b"]}', BODY_JSON, **options)
    session = engine.connect(b"token").session
    assert engine.take(session, tube, NOW) is job
    engine.put(tube, Draft(b"other", key=b"k"), NOW + 1)
    assert bodies(engine, where, NOW + 2_500) == [job.body]


def test_a_job_without_optional_fields_has_null(engine: Engine) -> None:
    put(engine, engine.create_tube(b"q", FIFOTTL, NOW), b"x")
    nothing = "key == null and name == null and reason == null and holder == null and expires == null"
    assert bodies(engine, nothing + " and headers == body.headers or headers != null") == [b"x"]


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        (b"plain", BODY_BYTES, "body == 'plain' and as == 'bytes'"),
        (b"\xff", BODY_BYTES, "body == null"),
        ("é".encode(), BODY_TEXT, "body == 'é' and as == 'text'"),
        (b"not json", BODY_JSON, "body == 'not json'"),
        (b"[" * 100_000, BODY_JSON, "'[' in body"),
        (b"\x91" + pack({"user": 1}), BODY_MSGPACK, "body.user == 1 and as == 'json'"),
        (b'{"a": NaN}', BODY_JSON, "body.a != body.a"),
    ],
)
def test_a_body_of_any_kind_has_a_value(engine: Engine, body: bytes, kind: int, where: str) -> None:
    put(engine, engine.create_tube(b"q", FIFOTTL, NOW), body, kind)
    assert bodies(engine, where) == [body]


def test_a_body_that_is_too_long_is_null_and_counted(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    put(engine, tube, json.dumps("x" * BODY_BYTES_READ_MAX).encode(), BODY_JSON)
    running = search(engine, "body == null and body == null")
    assert len(running.step(10, NOW)) == 1 and running.fields.skipped == 1
    # A condition that does not need the body does not read it.
    running = search(engine, "state == 'ready'")
    assert len(running.step(10, NOW)) == 1 and running.fields.skipped == 0


def test_tube_states_and_permissions_select(engine: Engine) -> None:
    mine, other = (engine.create_tube(name, FIFOTTL, NOW) for name in (b"mine", b"other"))
    put(engine, mine, b"1")
    put(engine, mine, b"2", delay_ms=1_000)
    put(engine, other, b"3")
    assert bodies(engine, "true", tube=mine) == [b"1", b"2"]
    assert bodies(engine, "true", states=1 << 3) == [b"2"]
    seen = search(engine, "true", may_use=lambda name: name == b"other")
    assert [job.body for job in seen.step(10, NOW)] == [b"3"] and seen.examined == 1


def test_a_search_continues_at_its_cursor_and_says_how_far_it_looked(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    jobs = [put(engine, tube, b"%d" % n) for n in range(2_000)]
    found, cursor, examined, calls = [], 0, 0, 0
    while True:
        running = search(engine, "number >= 1500", cursor=cursor, examined_max=300)
        while not running.is_over():
            found += running.step(1_000, NOW)
        calls += 1
        examined += running.examined
        cursor = running.cursor
        if cursor == 0:
            break
    assert found == jobs[1_500:] and examined == 2_000 and calls == 7


def test_a_page_ends_at_the_wanted_number(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    jobs = [put(engine, tube, b"") for _ in range(300)]
    running = search(engine, "true")
    assert running.step(7, NOW) == jobs[:7] and running.cursor == jobs[7].id
    assert search(engine, "true", cursor=running.cursor).step(2, NOW) == jobs[7:9]


def test_shards_are_disjoint_and_complete(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    for n in range(10_000):
        put(engine, tube, b"%d" % n)
    parts = [bodies(engine, "number < 9000", shard=shard, shards=3) for shard in range(3)]
    found = [body for part in parts for body in part]
    assert sorted(found) == sorted(b"%d" % n for n in range(9_000)) and all(parts)


def test_a_slice_is_short_for_long_conditions_and_bodies(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    for _ in range(5_000):
        put(engine, tube, b'"' + b"x" * 6_400 + b'"', BODY_JSON)
    for where, most in (("key == 1", 4_000), ("body == 'x'", 20), (" or ".join(["number == -1"] * 200), 30)):
        running = search(engine, where)
        running.step(10_000, NOW)
        assert 1 <= running.examined <= most, where


def test_a_call_ends_after_half_a_second_and_has_made_progress(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    for n in range(12_000):
        put(engine, tube, b"%d" % n)
    running = search(engine, "number == 1")
    running.step(10, NOW + LASTS_MS_MAX - 1)
    assert not running.is_over()
    running.step(10, NOW + LASTS_MS_MAX)
    assert running.is_over() and running.cursor != 0 and 4_000 <= running.examined < 12_000
    # Also if the first slice is late.
    late = search(engine, "number == 1")
    late.step(10, NOW + 60_000)
    assert late.is_over() and late.examined > 0


def test_a_dropped_tube_has_no_jobs(engine: Engine) -> None:
    tube = engine.create_tube(b"q", FIFOTTL, NOW)
    put(engine, tube, b"x")
    engine.drop(tube, NOW)
    running = search(engine, "true", tube=tube)
    assert running.step(10, NOW) == [] and running.is_over() and running.cursor == 0


def test_arguments_out_of_range_are_refused(engine: Engine) -> None:
    for wrong in (0, -1, EXAMINED_MAX + 1):
        with pytest.raises(OutOfRange):
            check_examined(wrong)
    for wrong in (-1, 1 << 63):
        with pytest.raises(OutOfRange):
            search(engine, "true", cursor=wrong)
