"""Rows become jobs. Tasks put them into stages, which nobody sees; the driver publishes all stages together.

So a task that is tried again, or twice at once, adds nothing: only stages of tasks that Spark counts are published. A
batch of a stream that Spark does again after a crash is published under the mark of its query and number, and so once.
Rows with a `unique` or `dedup` value are put at once, since a stage cannot hold them: their values keep them single.
Those whose value is null are staged like all others.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client import commands
from penstock.client.commands import AGAIN, Call
from penstock.core.limits import STAGES_PER_COMMAND_MAX
from penstock.spark.errors import SourceError, told
from penstock.spark.jobs_options import WriteOptions
from penstock.spark.jobs_stage import Filled
from penstock.spark.node import Node

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

# Where Spark tells a task of a stream which query and which batch it is of.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task has done."""

    stage: Filled | None  # None: no row of it was staged.
    mark: str  # Of the batch of a stream; empty: of none.
    refused: bytes  # Rows that were refused and why, as Arrow; empty: none.


class _Putting:
    """What writers of batches and of streams share."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @property
    def _prefix(self) -> str:
        """What names of stages begin with: a user may be allowed those alone that begin like its tubes."""
        return f"{self._options.tube}/spark" if self._options.tube else "spark"

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """A task: put its rows into a stage of its own. If that fails, the stage is discarded."""
        from penstock.spark.jobs_rows import Rows

        with told(), Node(self._options.url) as node:
            rows = Rows(node, self._options, self._columns, f"{self._prefix}/{uuid.uuid4().hex}".encode())
            try:
                for batch in iterator:
                    rows.put(batch)
            except BaseException:
                if rows.filled is not None:
                    rows.filled.discard(node)
                raise
            return Staged(rows.filled, self._mark(), rows.refused_rows())

    def _mark(self) -> str:
        """Which batch of which stream this task is of."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        return f"{self._prefix}/{query}/{context.getLocalProperty(_BATCH)}" if context is not None and query else ""

    def _publish(self, messages: list[Any], marked: bool) -> None:
        stages = [message.stage for message in messages if message.stage is not None]
        refused = [message.refused for message in messages if message.refused]
        mark = messages[0].mark if marked and messages else ""
        with told(), self._keeping(refused, mark):
            if len(stages) > STAGES_PER_COMMAND_MAX:
                # More could not be published in one command, and so not all or none.
                most = STAGES_PER_COMMAND_MAX
                raise SourceError(f"{len(stages)} tasks have rows, and a write may be of {most}; use coalesce")
            if stages:
                with Node(self._options.url) as node:
                    for stage in stages:
                        stage.check(node)
                    words = [b"PUBLISHONCE", mark.encode()] if mark else [b"PUBLISH"]
                    node.call(Call([*words, *(stage.name for stage in stages)], commands.number, AGAIN))

    def _discard(self, messages: list[Any]) -> None:
        """Drop what tasks have staged. What those did that never answered expires."""
        stages = [message.stage for message in messages if message is not None and message.stage is not None]
        if stages:
            with told(), Node(self._options.url) as node:
                for stage in stages:
                    stage.discard(node)

    @contextmanager
    def _keeping(self, refused: list[bytes], mark: str) -> Iterator[None]:
        """Around the publication: rows that were refused are written before it, which may fail, and shown after it.

        Those of a batch of a stream are in a file that is called by its mark: if the batch is done again, there are no
        more of them.
        """
        if not refused or self._options.errors is None:
            yield
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        directory = self._options.errors
        table: Table = pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in refused])
        made = directory / f".{uuid.uuid4().hex}.parquet"
        name = hashlib.sha256(mark.encode()).hexdigest()[:32] if mark else uuid.uuid4().hex
        try:
            try:
                # Bodies are in it.
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                pq.write_table(table, made)
            except OSError as error:
                why = error.strerror or error
                raise SourceError(f"errors: {directory}: {why}; nothing was published") from None
            yield
            made.replace(directory / f"part-{name}.parquet")
        finally:
            with suppress(OSError):
                made.unlink()


class JobsWriter(_Putting, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: let everybody see the jobs."""
        self._publish(messages, marked=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good: drop the jobs."""
        self._discard(messages)


class JobsStreamWriter(_Putting, DataSourceStreamArrowWriter):
    """Writes a stream, batch by batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a batch are done: let everybody see the jobs, unless they are there since a try before."""
        self._publish(messages, marked=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed for good: drop the jobs of this batch."""
        self._discard(messages)
