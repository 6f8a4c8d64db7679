"""Writes verdicts: rows that decide what happens to jobs of a stream when their batch is finished.

A stream acks the claims of a batch when Spark has finished the batch. A verdict is stored on the server with the job
and executed by this ack (core/claims.py). Therefore it takes effect once per batch:

- Tasks only report their verdicts to the driver. The result of a task that Spark has replaced has no effect.
- The driver stores all verdicts when all tasks have succeeded. Storing a verdict again changes nothing, so it does not
  matter whether the driver is killed before, during or after this.
- A driver that runs a batch again first removes the verdicts of the earlier run (stream.py).
- The server refuses the verdicts of a driver whose consumer another driver has taken over, and verdicts on claims that
  have ended. The column `claim` has the claim and the fencing token. Rows without it are assigned to the claim that
  holds the job when the task writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core.errors import OutOfRange, WrongType
from penstock.core.limits import REASON_BYTES_MAX
from penstock.spark.errors import SourceError, as_source_error
from penstock.spark.jobs.claim_names import ClaimName, parse_claim
from penstock.spark.jobs.options import VerdictOptions
from penstock.spark.node import Node
from penstock.spark.versions import DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch

VERDICTS: Final = ("ack", "nack", "bury", "move")

# The maximum of CLAIM VERDICT and CLAIM FIND.
_JOBS_PER_COMMAND: Final = 1_000


@dataclass
class TaskVerdicts(WriterCommitMessage):
    """The verdicts of a Spark task, which Spark passes to the driver: the words of each job by its claim."""

    by_claim: dict[ClaimName, list[list[bytes]]]


class _VerdictWriter:
    """Base class of the writers of batches and of streams."""

    def __init__(self, options: VerdictOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskVerdicts:
        """Collect the verdicts of a Spark task. An ack is the default, so it is not collected."""
        import pyarrow.compute as pc

        with as_source_error():
            found: dict[ClaimName, list[list[bytes]]] = {}
            for batch in iterator:
                is_other = pc.fill_null(pc.not_equal(pc.utf8_lower(batch.column("verdict")), "ack"), False)
                rows = batch.filter(is_other).to_pylist()
                for row, claim in zip(rows, self._claims(rows), strict=True):
                    found.setdefault(claim, []).append(self._words(row))
            return TaskVerdicts(found)

    def _claims(self, rows: list[dict[str, Any]]) -> list[ClaimName]:
        """Return the claim of each row: from the column `claim`, or from the server if there is no such column."""
        for row in rows:
            if not row["id"]:
                raise WrongType(f"a row has the verdict {row['verdict']} but no id")
        if not rows or "claim" in rows[0]:
            return [_named(row["id"], row["claim"]) for row in rows]
        claims: list[ClaimName] = []
        with Node(self._options.urls[0]) as node:
            for at in range(0, len(rows), _JOBS_PER_COMMAND):
                ids = [row["id"] for row in rows[at : at + _JOBS_PER_COMMAND]]
                held = node.call(Call([b"CLAIM", b"FIND", *(id.encode() for id in ids)], _held, REPEAT))
                claims += [_required(id, claim) for id, claim in zip(ids, held, strict=True)]
        return claims

    def _words(self, row: dict[str, Any]) -> list[bytes]:
        from penstock.spark.jobs.rows import as_duration, as_word

        kind = row["verdict"].lower()
        if kind not in VERDICTS:
            raise OutOfRange(f"a verdict is one of {', '.join(VERDICTS)}, not {row['verdict'][:60]!r}")
        words = [b"JOB", row["id"].encode(), kind.encode()]
        if row.get("reason"):
            # Errors of parsers can be long. The server refuses longer reasons than this.
            words += [b"REASON", as_word(row["reason"])[:REASON_BYTES_MAX]]
        if row.get("delay") is not None:
            words += [b"DELAY", as_duration(row["delay"])]
        if kind == "move":
            tube = row.get("tube") or self._options.tube
            if not tube:
                raise WrongType(f"the verdict on job {row['id']} is move, but its row has no tube")
            words += [b"TUBE", tube.encode()]
        return words

    def _store(self, messages: list[Any]) -> None:
        """Store the verdicts of all tasks on the servers."""
        by_claim: dict[ClaimName, list[list[bytes]]] = {}
        for message in messages:
            for claim, jobs in message.by_claim.items():
                by_claim.setdefault(claim, []).extend(jobs)
        if not by_claim:
            return
        with as_source_error():
            nodes = [Node(url) for url in self._options.urls]
            try:
                homes = {consumer: _server_of(nodes, consumer) for consumer in {claim.consumer for claim in by_claim}}
                for claim, jobs in by_claim.items():
                    for at in range(0, len(jobs), _JOBS_PER_COMMAND):
                        homes[claim.consumer].call(verdict_call(claim, jobs[at : at + _JOBS_PER_COMMAND]))
            finally:
                for node in nodes:
                    node.close()


class VerdictsWriter(_VerdictWriter, DataSourceArrowWriter):
    """Writes the verdicts of a batch, for example in foreachBatch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store the verdicts. Spark calls this when all tasks have succeeded."""
        self._store(messages)


class VerdictsStreamWriter(_VerdictWriter, DataSourceStreamArrowWriter):
    """Writes the verdicts of a stream, batch by batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Store the verdicts of a batch. Spark calls this when all tasks have succeeded."""
        self._store(messages)


def verdict_call(claim: ClaimName, jobs: list[list[bytes]]) -> Call[int]:
    """Return the call that stores verdicts on jobs of a claim. If `jobs` is empty, it removes all its verdicts."""
    words = [b"CLAIM", b"VERDICT", claim.consumer.encode(), b"%d" % claim.number, b"TOKEN", b"%d" % claim.token]
    return Call(
        [*words, *(word for job in jobs for word in job)] if jobs else [*words, b"CLEAR"], commands.number, REPEAT
    )


def _named(id: str, claim: str | None) -> ClaimName:
    return _required(id, None if claim is None else parse_claim(claim))


def _required(id: str, claim: ClaimName | None) -> ClaimName:
    if claim is None:
        raise SourceError(f"job {id} is in no claim; verdicts are for the jobs of the current batch of a stream")
    return claim


def _held(answer: Any) -> list[ClaimName | None]:
    return [None if each is None else _claim_name(*commands.items(each)) for each in commands.items(answer)]


def _claim_name(consumer: Any, number: Any, token: Any) -> ClaimName:
    return ClaimName(commands.octets(consumer).decode(), commands.number(number), commands.number(token))


def _server_of(nodes: list[Node], consumer: str) -> Node:
    """Return the server that has the claims of a consumer."""
    for node in nodes[:-1]:
        if node.call(commands.claim_info(consumer)).newest:
            return node
    return nodes[-1]
