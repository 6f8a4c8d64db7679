"""Puts the rows of one Spark task as jobs, many per command. A refused command is split to find the refused rows."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core import errors as e
from penstock.core.limits import check_body
from penstock.spark.errors import SourceError
from penstock.spark.jobs.options import WriteOptions
from penstock.spark.jobs.schema import BODIES
from penstock.spark.jobs.stage import FilledStage
from penstock.spark.node import Node

# Jobs, and approximate bytes of bodies, per command.
_COMMAND_JOBS_MAX: Final = 2_000
_COMMAND_BYTES_MAX: Final = 1024 * 1024

_WORDS: Final = {
    "kind": b"AS",
    "key": b"KEY",
    "priority": b"PRIORITY",
    "delay": b"DELAY",
    "ttl": b"TTL",
    "ttr": b"TTR",
    "name": b"NAME",
    "unique": b"UNIQUE",
    "dedup": b"DEDUP",
}
_TIMES: Final = ("delay", "ttl", "ttr")

# Columns that prevent duplicates by themselves. Jobs with one of these values are put without a stage, because a stage
# cannot hold them.
_DEDUP_COLUMNS: Final = ("unique", "dedup")

# Errors that a row causes, as opposed to the present state of the server or the tube.
_ROW_ERRORS: Final = (
    *(e.BodyTooLarge, e.OutOfRange, e.WrongType, e.Unsupported, e.BadSyntax, e.BadName, e.BadHeaders, e.BadRetry),
    e.NameTaken,
    e.UnknownTube,
)


class _RowGroup(NamedTuple):
    """Rows of one tube that are all staged, or all put directly."""

    tube: bytes
    batch: pa.RecordBatch
    bodies: list[bytes | None]
    jobs: list[list[bytes]]  # The command words of each row.
    staged: bool  # Whether the rows are put into the stage.


class RowWriter:
    """Puts the rows of one Spark task as jobs."""

    def __init__(self, node: Node, options: WriteOptions, columns: tuple[str, ...], stage: bytes) -> None:
        self._node = node
        self._options = options
        self._body = next(name for name in BODIES if name in columns)
        self._option_columns = [name for name in _WORDS if name in columns]
        self._dedup_columns = [name for name in _DEDUP_COLUMNS if name in columns]
        self._by_tube = "tube" in columns
        self._has_headers = "headers" in columns
        self._stage = stage
        self._body_max: int = node.call(commands.max_body())
        self._refused: list[pa.RecordBatch] = []
        self._errors = 0
        self.stage: FilledStage | None = None  # The stage. None until it has a job.

    @property
    def _staged(self) -> int:
        return 0 if self.stage is None else self.stage.jobs

    def put(self, batch: pa.RecordBatch) -> None:
        """Put all rows of a batch."""
        if not self._by_tube:
            self._put_tube(self._tube(None), batch)
            return
        # The order of rows is kept within each tube. A queue has no order between tubes.
        tubes = batch.column("tube")
        for tube in pc.unique(tubes).to_pylist():
            chosen = pc.is_null(tubes) if tube is None else pc.equal(tubes, tube)
            self._put_tube(self._tube(tube), batch.filter(chosen))

    def _tube(self, tube: str | None) -> bytes:
        """Return the tube of a row. If its column is null (`tube` is None), use the option `tube`, or an empty name."""
        return ((tube if tube is not None else self._options.tube) or "").encode()

    def _put_tube(self, tube: bytes, batch: pa.RecordBatch) -> None:
        """Put rows of one tube: directly if they have a unique or dedup value, otherwise into the stage of the task."""
        if not self._dedup_columns:
            self._put_group(tube, batch, staged=True)
            return
        is_single = reduce(pc.or_, (pc.is_valid(batch.column(name)) for name in self._dedup_columns))
        for staged, chosen in ((False, is_single), (True, pc.invert(is_single))):
            self._put_group(tube, batch.filter(chosen), staged)

    def _put_group(self, tube: bytes, batch: pa.RecordBatch, staged: bool) -> None:
        bodies = [body.encode() if isinstance(body, str) else body for body in batch.column(self._body).to_pylist()]
        rows = _RowGroup(tube, batch, bodies, self._words(batch, bodies), staged)
        at = 0
        while at < len(bodies):
            end, size = at, 0
            while end < len(bodies) and end - at < _COMMAND_JOBS_MAX and (end == at or size < _COMMAND_BYTES_MAX):
                size += len(bodies[end] or b"")
                end += 1
            self._send(rows, at, end)
            at = end

    def _words(self, batch: pa.RecordBatch, bodies: list[bytes | None]) -> list[list[bytes]]:
        jobs = [[b"JOB", body or b""] for body in bodies]
        if self._options.kind is None and _is_text(batch.schema.field(self._body).type):
            kinds = batch.column("kind").to_pylist() if "kind" in self._option_columns else [None] * len(jobs)
            for job, kind in zip(jobs, kinds, strict=True):
                if kind is None:
                    job += (b"AS", b"text")
        for name in self._option_columns:
            word = _WORDS[name]
            for job, value in zip(jobs, batch.column(name).to_pylist(), strict=True):
                if value is not None:
                    job += (word, as_duration(value) if name in _TIMES else as_word(value))
        if self._has_headers:
            for job, headers in zip(jobs, batch.column("headers").to_pylist(), strict=True):
                for header, value in headers or ():
                    if value is not None:
                        job += (b"HEADER", header.encode(), as_word(value))
        return jobs

    def _send(self, rows: _RowGroup, at: int, end: int) -> None:
        """Put the rows from `at` to before `end`. If they are refused, try each half, to find the refused rows."""
        try:
            self._check(rows.tube, rows.bodies[at:end])
            self._node.call(self._command(rows, at, end))
            if rows.staged:
                self.stage = FilledStage(self._stage, rows.tube, self._staged + end - at)
        except _ROW_ERRORS as refused:
            if self._options.errors is None:
                raise
            if end - at == 1:
                self._refuse(rows.batch.slice(at, 1), refused)
                return
            middle = (at + end) // 2
            self._send(rows, at, middle)
            self._send(rows, middle, end)

    def _check(self, tube: bytes, bodies: list[bytes | None]) -> None:
        if not tube:
            raise e.BadName('a row has no tube; fill the column, or use .option("tube", …)')
        for body in bodies:
            if body is None:
                raise e.WrongType(f"the {self._body} of a row is null; a job needs a body, which may be empty")
            if len(body) > self._body_max:
                check_body(len(body), self._body_max)

    def _command(self, rows: _RowGroup, at: int, end: int) -> Call[Any]:
        """Return the command that puts the rows from `at` to before `end`.

        Repeating the command adds no duplicates. Jobs that are put directly have a unique or dedup value. For staged
        jobs, AFTER is the number of jobs that the stage must have before the command.
        """
        words = [b"MPUT", rows.tube, b"EXISTING"]
        if rows.staged:
            words = [b"STAGE", self._stage, rows.tube, b"EXPIRE", commands.duration(self._options.stage_expire_ms)]
            words += [b"EXISTING", b"AFTER", b"%d" % self._staged]
        if self._options.kind is not None:
            words += [b"AS", self._options.kind.encode()]
        for job in rows.jobs[at:end]:
            words += job
        return Call(words, commands.number if rows.staged else commands.items, REPEAT)

    def _refuse(self, row: pa.RecordBatch, refused: e.CommandError) -> None:
        self._errors += 1
        if self._errors > self._options.errors_max:
            raise SourceError(f"a task has more than {self._options.errors_max} refused rows; last error: {refused}")
        self._refused.append(row.append_column("error", pa.array([f"[{refused.code}] {refused}"])))

    def refused_rows(self) -> bytes:
        """Return the refused rows and their errors as an Arrow stream, or empty bytes if there are none."""
        if not self._refused:
            return b""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._refused[0].schema) as writer:
            for batch in self._refused:
                writer.write_batch(batch)
        return bytes(sink.getvalue())


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def as_word(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def as_duration(value: Any) -> bytes:
    """Return a duration in the syntax of the server. Numbers are seconds. The server refuses NaN and infinity."""
    if isinstance(value, str) or not math.isfinite(value):
        return str(value).encode()
    return b"%dms" % round(value * 1000)
