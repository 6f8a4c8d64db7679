"""A scan of everything is refused before it is longer than it may be."""

from __future__ import annotations

from penstock.core.job import Draft
from penstock.core.policy import DISQUE
from penstock.dialects.pages import PAGE_BYTES_MAX, SCAN_BYTES_MAX
from penstock.dialects.scans import JobScan, parse_query

from .shop import NOW, Shop


def test_a_long_scan_is_refused_before_it_is_too_long(shop: Shop) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    body = b"x" * (4 * PAGE_BYTES_MAX)
    for _ in range(16):
        shop.engine.put(tube, Draft(body), NOW)
    scan = JobScan(shop.engine, shop.disque, parse_query([b"JSCAN", b"BUSYLOOP", b"REPLY", b"all"], jobs=True))
    while not shop.desk.step(shop.caller, scan, NOW):
        pass
    # The one that would be too much was not written.
    assert scan.found == SCAN_BYTES_MAX // len(body) - 1
    assert shop.caller.reply.take().startswith(b"-ERR the answer would be longer than ")
