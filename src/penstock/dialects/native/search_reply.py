"""The reply of a JOB SCAN with a condition, and the map of a job that JOB SCAN and other commands write."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.job import Job
from penstock.dialects.native.delivery_commands import DeliveryCommands, write_headers
from penstock.dialects.pages import PAGE_BYTES_MAX, PagedReply
from penstock.node.caller import Caller
from penstock.search.job_search import JobSearch
from penstock.wire.reply import Reply

# The estimated bytes of a job in a reply, without its body, its tube and its key.
_JOB_BYTES: Final = 300


class SearchReply(PagedReply):
    """Runs JOB SCAN cursor WHERE condition.

    The reply has three parts: the next cursor, the jobs that were found, and a map that says how far the call looked.
    `examined` counts the jobs that were examined, and `skipped` those of them whose bodies could not be read.
    """

    def __init__(self, native: DeliveryCommands, search: JobSearch, count: int, ids: bool, bodies: bool) -> None:
        super().__init__()
        self._native = native
        self._search = search
        self._count = count
        self._ids = ids  # Reply only with ids.
        self._has_bodies = bodies  # Reply with bodies; otherwise they are empty.
        self._length: i64 = 0  # The estimated bytes of the jobs so far.

    def write_head(self, reply: Reply) -> None:
        reply.array(3)
        reply.bulk(b"%d" % self._search.cursor)
        reply.array(self.found)

    def scan(self, caller: Caller, now: i64) -> bool:
        native, search = self._native, self._search
        page = self.page(caller)
        is_full = False
        for job in search.step(self._count - self.found, now):
            name = native.context.engine.tube_of(job).name
            self._length += LONG_ID_BYTES if self._ids else estimated_bytes(job, name)
            if self.found > 0 and self._length > PAGE_BYTES_MAX:
                search.cursor = job.id
                is_full = True
                break
            if self._ids:
                page.bulk(native.context.id_of(job))
            else:
                write_job_and_state(native, page, job, None if self._has_bodies else b"")
            self.found += 1
        if not is_full and not search.is_over() and self.found < self._count:
            self.add(page)
            return False
        page.map(2)
        page.bulk(b"examined")
        page.integer(search.examined)
        page.bulk(b"skipped")
        page.integer(int(search.fields.skipped))
        self.add(page)
        return True


def write_job_and_state(native: DeliveryCommands, reply: Reply, job: Job, body: bytes | None = None) -> None:
    """Write a map with the fields that a take writes (`DeliveryCommands.write_job`), the state and the headers."""
    headers = job.headers()
    reply.map(12 if headers else 11)
    native.write_job(reply, job, body)
    reply.bulk(b"state")
    reply.bulk(s.STATE_NAMES[job.state].encode())
    if headers:
        write_headers(reply, headers)


def estimated_bytes(job: Job, tube: bytes) -> int:
    return _JOB_BYTES + len(tube) + job.reply_length()
