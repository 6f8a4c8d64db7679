"""Writes rows as jobs. Spark tasks put them into stages, and the driver publishes all stages atomically.

A task that is retried, or that runs twice, adds no duplicates, because only the stages of tasks that Spark has accepted
are published. A batch of a stream that Spark repeats after a crash is published once, because PUBLISHONCE gets a mark
made of the query's id and the batch number. A stage cannot hold rows with a `unique` or `dedup` value. They are put
directly, and their values prevent duplicates. Rows in which these values are null are staged like all others.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core.limits import STAGES_PER_COMMAND_MAX
from penstock.spark.errors import SourceError, as_source_error
from penstock.spark.jobs.options import WriteOptions
from penstock.spark.jobs.refused_rows import saved
from penstock.spark.jobs.stage import FilledStage
from penstock.spark.node import Node
from penstock.spark.versions import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table

# Local properties in which Spark gives a task of a stream the ids of its query and batch.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class TaskResult(WriterCommitMessage):
    """The result of a Spark task, which Spark passes to the driver."""

    stage: FilledStage | None  # None: the task staged no rows.
    mark: str  # Identifies the batch of a stream. Empty outside streams.
    refused: bytes  # Refused rows and their errors, as an Arrow stream. Empty: none.


class _StagedWriter:
    """Base class of the writers of batches and of streams."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @property
    def _prefix(self) -> str:
        """The prefix of stage names. It starts with the tube, because a user may be allowed only names of this tube."""
        return f"{self._options.tube}/spark" if self._options.tube else "spark"

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResult:
        """Put the rows of a Spark task into a stage of its own. If this fails, discard the stage."""
        from penstock.spark.jobs.rows import RowWriter

        with as_source_error(), Node(self._options.url) as node:
            rows = RowWriter(node, self._options, self._columns, f"{self._prefix}/{uuid.uuid4().hex}".encode())
            try:
                for batch in iterator:
                    rows.put(batch)
            except BaseException:
                if rows.stage is not None:
                    rows.stage.discard(node)
                raise
            return TaskResult(rows.stage, self._mark(), rows.refused_rows())

    def _mark(self) -> str:
        """Return the mark of the query and batch of this Spark task (for PUBLISHONCE), or "" outside streams."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        return f"{self._prefix}/{query}/{context.getLocalProperty(_BATCH)}" if context is not None and query else ""

    def _publish(self, messages: list[Any], marked: bool) -> None:
        stages = [message.stage for message in messages if message.stage is not None]
        refused = [message.refused for message in messages if message.refused]
        mark = messages[0].mark if marked and messages else ""
        with as_source_error(), self._saving_refused_rows(refused, mark):
            if len(stages) > STAGES_PER_COMMAND_MAX:
                # A publication is atomic only if it is one command.
                most = STAGES_PER_COMMAND_MAX
                raise SourceError(f"{len(stages)} tasks have rows, but a write can have at most {most}; use coalesce")
            if stages:
                with Node(self._options.url) as node:
                    for stage in stages:
                        stage.check(node)
                    words = [b"PUBLISHONCE", mark.encode()] if mark else [b"PUBLISH"]
                    node.call(Call([*words, *(stage.name for stage in stages)], commands.number, REPEAT))

    def _discard(self, messages: list[Any]) -> None:
        """Discard the stages that tasks have reported. Other stages expire."""
        stages = [message.stage for message in messages if message is not None and message.stage is not None]
        if stages:
            with as_source_error(), Node(self._options.url) as node:
                for stage in stages:
                    stage.discard(node)

    @contextmanager
    def _saving_refused_rows(self, refused: list[bytes], mark: str) -> Iterator[None]:
        """Save the refused rows in a file. The block publishes the other rows as jobs.

        The file has a hidden name until the block has ended. If it cannot be written, nothing is published. In a
        stream, its name is derived from the mark of the batch, so a repeated batch replaces the file.
        """
        if not refused or self._options.errors is None:
            yield
            return
        import pyarrow as pa

        table: Table = pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in refused])
        name = hashlib.sha256(mark.encode()).hexdigest()[:32] if mark else uuid.uuid4().hex
        with saved(table, self._options.errors, f"part-{name}.parquet"):
            yield


class JobsWriter(_StagedWriter, DataSourceArrowWriter):
    """Writes a batch of rows as jobs."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the jobs. Spark calls this when all tasks have succeeded."""
        self._publish(messages, marked=False)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the jobs. Spark calls this when a task has failed after all its attempts."""
        self._discard(messages)


class JobsStreamWriter(_StagedWriter, DataSourceStreamArrowWriter):
    """Writes a stream of rows as jobs, batch by batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the jobs of a batch, unless an earlier attempt has published them."""
        self._publish(messages, marked=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard the jobs of a batch. Spark calls this when a task has failed after all its attempts."""
        self._discard(messages)
