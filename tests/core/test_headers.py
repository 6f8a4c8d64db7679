"""Headers: their encoding, their limits, and how they count in memory and on disk."""

from __future__ import annotations

import pytest

from penstock.core.errors import BadHeaders, NoMemory, NoSpace
from penstock.core.job import Draft
from penstock.core.limits import HEADER_BYTES_MAX, HEADERS_MAX
from penstock.core.policy import FIFOTTL
from penstock.wire.headers import add_header, decode_headers, encode_headers

from .engine_harness import EngineHarness

HEADERS = encode_headers([("trace", b"x" * 500)])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("n", b"")],
        [("n", b"v"), ("ü🜁", bytes(range(256))), ("a", b"\0")],
        [(f"{number}", b"x") for number in range(HEADERS_MAX)],
        [("n", b"x" * (HEADER_BYTES_MAX - 1))],
        [("n" * HEADER_BYTES_MAX, b"")],
    ],
    ids=lambda headers: f"{len(headers)} headers",
)
def test_encoded_headers_decode_to_the_same_names_values_and_order(headers: list[tuple[str, bytes]]) -> None:
    assert list(decode_headers(encode_headers(headers)).items()) == headers


def test_a_job_without_headers_stores_no_bytes() -> None:
    assert encode_headers([]) == b"" and decode_headers(b"") == {}


@pytest.mark.parametrize(
    "headers",
    [
        [("", b"v")],
        [("n", b"1"), ("n", b"2")],
        [("\ud800", b"v")],
        [(f"{number}", b"") for number in range(HEADERS_MAX + 1)],
        [("n", b"x" * HEADER_BYTES_MAX)],
        [("n" * 40_000, b"v" * 70_000)],
    ],
    ids=["empty name", "twice", "no UTF-8", "too many", "too long", "far too long"],
)
def test_headers_beyond_the_limits_are_refused(headers: list[tuple[str, bytes]]) -> None:
    with pytest.raises(BadHeaders):
        encode_headers(headers)


@pytest.mark.parametrize("name", [b"n", b"\xff"])
def test_a_header_from_a_protocol_needs_a_new_name_in_utf_8(name: bytes) -> None:
    with pytest.raises(BadHeaders):
        add_header({"n": b""}, name, b"v")


def test_no_more_headers_are_collected_than_a_job_can_have() -> None:
    headers: dict[str, bytes] = {}
    with pytest.raises(BadHeaders):
        for number in range(1_000):
            add_header(headers, b"%d" % number, b"")
    assert len(headers) == HEADERS_MAX


def test_headers_count_in_memory_until_the_job_ends() -> None:
    desk = EngineHarness()
    tube, other = desk.tube(FIFOTTL), desk.tube(FIFOTTL, b"other")
    before = desk.engine.memory_used()
    plain = desk.put(tube)
    each = desk.engine.memory_used() - before
    with_headers = desk.put(tube, headers=HEADERS)
    assert desk.engine.memory_used() == before + 2 * each + len(HEADERS)
    desk.engine.move(desk.me.session, desk.job(with_headers), other, desk.clock.ms)
    assert desk.engine.memory_used() == before + 2 * each + len(HEADERS)
    for id in (plain, with_headers):
        desk.engine.delete(desk.job(id), desk.clock.ms)
    assert desk.engine.memory_used() == before


@pytest.mark.parametrize("spills", [False, True], ids=["bodies in memory", "bodies on disk"])
def test_headers_count_against_the_memory_limit(spills: bool) -> None:
    desk = EngineHarness()
    tube = desk.tube(FIFOTTL)
    desk.engine.spills = spills
    desk.engine.memory_max = 100_000
    fitting = 0
    with pytest.raises(NoMemory):
        while True:
            desk.put(tube, b"", headers=HEADERS)
            fitting += 1
    assert 100_000 - 2 * (desk.engine.memory_used() // fitting) < desk.engine.memory_used() <= 101_000
    assert desk.engine.labels.headers == fitting * len(HEADERS)
    with pytest.raises(NoMemory):
        desk.engine.put_many(tube, [Draft(b"", headers=HEADERS)] * 2, desk.clock.ms)


def test_a_put_whose_headers_do_not_fit_on_the_disk_is_refused() -> None:
    desk = EngineHarness()
    tube = desk.tube(FIFOTTL)
    desk.engine.room_bytes = len(HEADERS) + 3
    with pytest.raises(NoSpace):
        desk.put(tube, b"four", headers=HEADERS)
    assert desk.engine.jobs.count == 0
    desk.put(tube, b"any", headers=HEADERS)
