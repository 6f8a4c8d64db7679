"""A scan of everything ends, and is refused before its reply is too long."""

from __future__ import annotations

import pytest

from penstock.core.job import Draft
from penstock.core.policy import DISQUE
from penstock.dialects.disque_scans import JobScan, QueueScan, parse_query
from penstock.dialects.pages import PAGE_BYTES_MAX, SCAN_BYTES_MAX, SCAN_SLICE

from .command_engine import NOW, CommandEngine


def test_a_long_scan_is_refused_before_it_is_too_long(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    body = b"x" * (4 * PAGE_BYTES_MAX)
    for _ in range(16):
        shop.engine.put(tube, Draft(body), NOW)
    scan = JobScan(shop.engine, shop.disque, parse_query([b"JSCAN", b"BUSYLOOP", b"REPLY", b"all"], jobs=True))
    while not shop.dispatcher.step(shop.caller, scan, NOW):
        pass
    # The entry that would exceed the limit was not written.
    assert scan.found == SCAN_BYTES_MAX // len(body) - 1
    assert shop.caller.reply.take().startswith(b"-ERR the reply would be longer than ")


@pytest.mark.parametrize("words", [(), (b"STATE", b"acked"), (b"QUEUE", b"queue"), (b"REPLY", b"all")], ids=str)
def test_a_scan_of_everything_ends_however_fast_jobs_come(shop: CommandEngine, words: tuple[bytes, ...]) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    for _ in range(3 * SCAN_SLICE):
        shop.engine.put(tube, Draft(b""), NOW)
    scan = JobScan(shop.engine, shop.disque, parse_query([b"JSCAN", b"BUSYLOOP", *words], jobs=True))
    there = 0 if b"acked" in words else 3 * SCAN_SLICE
    for _ in range(40):
        if shop.dispatcher.step(shop.caller, scan, NOW):
            break
        for _ in range(2 * SCAN_SLICE):
            shop.engine.put(tube, Draft(b""), NOW)
    # Jobs that arrived in the meantime may be found, but need not be.
    assert shop.caller.reply.take().startswith(b"*2\r\n$1\r\n0\r\n*%d\r\n" % there)


def test_a_scan_of_all_queues_ends_however_fast_queues_come(shop: CommandEngine) -> None:
    made = 0
    scan = None
    for _ in range(40):
        for _ in range(2 * SCAN_SLICE):
            made += 1
            shop.engine.create_tube(b"%d" % made, DISQUE, NOW)
        if scan is None:
            scan = QueueScan(shop.engine, shop.disque, parse_query([b"QSCAN", b"BUSYLOOP"], jobs=False))
        if shop.dispatcher.step(shop.caller, scan, NOW):
            break
    assert shop.caller.reply.take().startswith(b"*2\r\n$1\r\n0\r\n*%d\r\n" % (2 * SCAN_SLICE))


def test_collected_pages_of_a_scan_count_as_unsent_reply_bytes(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    for _ in range(8):
        shop.engine.put(tube, Draft(bytes(PAGE_BYTES_MAX // 2)), NOW)
    words = [b"JSCAN", b"BUSYLOOP", b"REPLY", b"all"]
    scan = JobScan(shop.engine, shop.disque, parse_query(words, jobs=True))
    found = 0
    while not shop.dispatcher.step(shop.caller, scan, NOW):
        if not shop.caller.reply.length:
            assert shop.caller.owed >= scan.found * (PAGE_BYTES_MAX // 2) > found
            found = shop.caller.owed
    assert found > 2 * PAGE_BYTES_MAX and shop.caller.owed == 0


def test_a_refused_scan_has_no_unsent_reply_bytes(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    for _ in range(SCAN_BYTES_MAX // (4 * PAGE_BYTES_MAX) + 1):
        shop.engine.put(tube, Draft(bytes(4 * PAGE_BYTES_MAX)), NOW)
    scan = JobScan(shop.engine, shop.disque, parse_query([b"JSCAN", b"BUSYLOOP", b"REPLY", b"all"], jobs=True))
    owed = 0
    while not shop.dispatcher.step(shop.caller, scan, NOW):
        owed = shop.caller.owed
    assert shop.caller.reply.take().startswith(b"-ERR") and owed > 0 and shop.caller.owed == 0
