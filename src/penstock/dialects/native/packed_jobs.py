"""Jobs as columns, for clients that read thousands of jobs. Each column is one bulk with values of all jobs.

    ids │ tube: ends, bytes │ states │ kinds │ once │ numbers │ created │ deliveries │ nacks
        │ body: present, ends, bytes │ key: present, ends, bytes │ headers: present, ends, bytes (only if asked for)
        │ since │ sessions (both only if asked for)

An id has 40 bytes. State, kind, once and present are one byte each. Number (-1: none), created (ms), since (ms, when
the job entered its state) and session (number of the session that holds the job; 0: none) are i64, deliveries and nacks
i32, all little-endian. Tube, body and key have any length: `bytes` has the values of all jobs, one
after the other. `ends` has i32 offsets into `bytes`: first 0, then the end of each value. Headers are encoded as in
wire/headers.py.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, u8

from penstock.core.job import NO_KEY, Job
from penstock.core.tube import key_of
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.wire.columns import VarColumn
from penstock.wire.reply import Reply

# The number of bulks in the array, and of those that the headers and the times with the sessions add.
PACKED_BULKS: Final = 16
HEADER_BULKS: Final = 3
SINCE_BULKS: Final = 2


def write_packed(
    native: DeliveryCommands, reply: Reply, jobs: list[Job], with_bodies: bool, with_headers: bool, with_since: bool
) -> None:
    """Write jobs as columns. If `with_bodies` is not set, all bodies are marked as not present."""
    context = native.context
    since, sessions = BytesWriter(), BytesWriter()
    ids, states, kinds, once = BytesWriter(), BytesWriter(), BytesWriter(), BytesWriter()
    numbers, created, deliveries, nacks = BytesWriter(), BytesWriter(), BytesWriter(), BytesWriter()
    tubes, bodies, keys, headers = VarColumn(), VarColumn(), VarColumn(), VarColumn()
    for job in jobs:
        tube = context.engine.tube_of(job)
        ids.write(context.id_of(job))
        states.append(u8(job.state))
        kinds.append(u8(job.user_body_kind()))
        once.append(1 if job.once else 0)
        write_i64_le(numbers, job.local)
        write_i64_le(created, job.created)
        write_i32_le(deliveries, i32(job.deliveries))
        write_i32_le(nacks, i32(job.nacks))
        tubes.add_all(tube.name)
        tubes.end_row()
        if with_bodies:
            body = context.body_or_none(job)
            if body is not None:
                bodies.add_all(body)
        bodies.end_row()
        if tube.keys is not None and (key := key_of(tube, job)) != NO_KEY:
            keys.add_all(key)
        keys.end_row()
        if with_headers:
            encoded = job.headers()
            if encoded:
                headers.add_all(encoded)
            headers.end_row()
        if with_since:
            write_i64_le(since, job.since)
            holder = context.engine.session_slots[job.holder] if job.holder >= 0 else None
            write_i64_le(sessions, 0 if holder is None else holder.number)
    bulks = PACKED_BULKS
    if with_headers:
        bulks += HEADER_BULKS
    if with_since:
        bulks += SINCE_BULKS
    reply.array(bulks)
    reply.bulk(ids.getvalue())
    _write_var(reply, tubes, False)
    for fixed in (states, kinds, once, numbers, created, deliveries, nacks):
        reply.bulk(fixed.getvalue())
    _write_var(reply, bodies, True)
    _write_var(reply, keys, True)
    if with_headers:
        _write_var(reply, headers, True)
    if with_since:
        reply.bulk(since.getvalue())
        reply.bulk(sessions.getvalue())


def _write_var(reply: Reply, column: VarColumn, missing: bool) -> None:
    there, ends, data = column.buffers()
    if missing:
        reply.bulk(there)
    reply.bulk(ends)
    reply.bulk(data)
