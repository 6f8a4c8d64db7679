"""An audit names every forgery of a lake. Forgeries are made with deltalake, so that Delta's log is consistent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.lake.errors import PipelineError
from penstock.lake.lake import Lake
from penstock.lake.tables import COVERAGE, EVENTS
from penstock.pipeline.audit import Verdict, audit
from penstock.pipeline.run import Pipeline
from penstock.pipeline.source import Source
from penstock.pipeline.verify import bodies_digest, row_bytes, rows_digest
from tests.server.serving import Server, wait_for

from .conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = 150
FORGED = 100

Row = dict[str, Any]


class Made:
    """A lake of three turns: puts, work, and a tail of more puts."""

    def __init__(self, root: Path, source: Source) -> None:
        self.root = root
        self.source = source
        self.blocks = Lake(root).coverage()
        self.rows: list[Row] = sorted(Lake(root).read(EVENTS).to_pylist(), key=lambda row: row["position"])

    def copy(self, place: Path) -> Lake:
        return Lake(shutil.copytree(self.root, place))

    def found(self, event: str, tube: str) -> list[Row]:
        return [row for row in self.rows if row["event"] == event and row["tube"] == tube]

    def span(self, number: int) -> str:
        """Return the range of positions of a turn as the audit names it."""
        block = self.blocks[number]
        return f"positions {block['start']:,} to {block['end'] - 1:,}"


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    server = Server(tmp_path_factory.mktemp("forged"))
    root = tmp_path_factory.mktemp("lake")
    source = Source((url_of(server),))
    pipeline = Pipeline(spark, Lake(root), source)
    with penstock.connect(url_of(server)) as queue:
        bulk = queue.tube("bulk", "fifottl")
        bulk.put_many([b"job %d" % number for number in range(JOBS)])
        bulk.put("in a moment", delay=0.1)
        crawl = queue.tube("crawl", "utube")
        for number in range(4):
            crawl.put(f"page {number}", key="site")
        queue.execute("ADDJOB", "orders", "pay", "0", "RETRY", "0")
        pipeline.once()
        wait_for(lambda: bulk.stats()["ready"] == JOBS + 1)
        for job in bulk.take_many(JOBS):
            job.ack()
        crawl.take().ack()
        crawl.take().ack()
        queue.execute("GETJOB", "FROM", "orders")
        pipeline.once()
        bulk.put_many([b"tail %d" % number for number in range(20)])
        pipeline.once()
    made = Made(root, source)
    assert len(made.blocks) == 3
    yield made
    server.stop()


def broken(verdict: Verdict) -> dict[str, list[str]]:
    """Return what the audit found, by promise."""
    return {each.name: [row["what"] for row in each.examples] for each in verdict.findings if each.broken}


def rewrite(lake: Lake, change: Callable[[Row], Row]) -> None:
    """Replace all rows of bronze in one commit of deltalake."""
    rows = [change(row) for row in lake.read(EVENTS).to_pylist()]
    table = pa.Table.from_pylist(rows, EVENTS.arrow)
    write_deltalake(f"{lake.place}/{EVENTS.path}", table, mode="overwrite", partition_by=["date"])


def events_of(lake: Lake) -> DeltaTable:
    return DeltaTable(f"{lake.place}/{EVENTS.path}")


def test_rows_that_another_program_has_rewritten_unchanged_are_no_forgery(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    lake = made.copy(tmp_path / "lake")
    rewrite(lake, lambda row: row)
    assert events_of(lake).delete("position < 0")["num_deleted_rows"] == 0
    verdict = audit(spark, Lake(lake.place.uri))
    assert broken(verdict) == {} and verdict.events == len(made.rows)


def test_removed_events_are_named_with_their_positions(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    lake = made.copy(tmp_path / "lake")
    puts = [row["position"] for row in made.found("put", "bulk")][20 : 20 + FORGED]
    acks = [row["position"] for row in made.found("acked", "bulk")][20 : 20 + FORGED]
    tail = [row["position"] for row in made.rows][-7]
    gone = f"position IN ({', '.join(map(str, puts + acks))}) OR position >= {tail}"
    assert events_of(lake).delete(gone)["num_deleted_rows"] == 2 * FORGED + 7
    found = broken(audit(spark, Lake(lake.place.uri)))
    counts = [block["events"] for block in made.blocks]
    assert found["unchanged"] == [
        f"{made.span(0)}: {FORGED} of {counts[0]} events are missing",
        f"{made.span(1)}: {FORGED} of {counts[1]} events are missing",
        f"{made.span(2)}: 7 of {counts[2]} events are missing",
    ]
    # The judge notices that the takes of these jobs have no puts.
    assert len(found["lost"]) == 20 and set(found) <= {"unchanged", "lost"}


def test_changed_events_are_named_with_their_promise_and_position(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    lake = made.copy(tmp_path / "lake")
    acks = made.found("acked", "bulk")
    body, stranger, moved = made.found("put", "bulk")[5], acks[30], acks[60]
    delayed, passed = made.found("put delayed", "bulk")[0], made.found("delay passed", "bulk")[0]
    once = made.found("taken", "orders")[0]
    first_ack, second_take, second_ack = made.found("acked", "crawl")[0], *second(made)

    def forge(row: Row) -> Row:
        position = row["position"]
        changes = {
            body["position"]: {"body": b"JOB 5"},
            stranger["position"]: {"actor": 4711},
            # Of two jobs of one key, the second is taken before the first is acked.
            first_ack["position"]: {"position": second_take["position"], "time": second_take["time"]},
            second_take["position"]: {
                **{"position": first_ack["position"], "time": first_ack["time"], "since": row["created"]}
            },
            second_ack["position"]: {"before_position": first_ack["position"]},
            once["position"]: {"deliveries": 2},
        }
        return {**row, **changes.get(position, {})}

    rewrite(lake, forge)
    table = events_of(lake)
    table.update({"time": "time - interval '1 hour'"}, predicate=f"position = {moved['position']}")
    later = (delayed["wake"] + timedelta(hours=1)).isoformat()
    table.update({"wake": f"CAST('{later}' AS TIMESTAMP)"}, predicate=f"position = {delayed['position']}")
    verdict = audit(spark, Lake(lake.place.uri))
    found = broken(verdict)
    jobs = {each.name: {row.get("job") for row in each.examples} for each in verdict.findings}
    assert found["unchanged"] == [f"{made.span(0)}: events were changed", f"{made.span(1)}: events were changed"]
    assert jobs["strangers"] == {stranger["job"]} and "by session 4711" in found["strangers"][0]
    assert moved["job"] in jobs["time"] and any("ms older than" in what for what in found["time"])
    assert jobs["early"] == {passed["job"]} and " ms before its time" in found["early"][0]
    assert jobs["keys"] == {second_take["job"]} and "2 jobs of one key" in found["keys"][0]
    assert jobs["once"] == {once["job"]} and found["once"][0].startswith("delivery 2 of a job")


def second(made: Made) -> tuple[Row, Row]:
    """Return the take and the ack of the second job of the key."""
    return made.found("taken", "crawl")[1], made.found("acked", "crawl")[1]


def test_an_exchanged_body_is_named_although_nothing_else_differs(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    """Also if the forger knows how digests are computed, because the node has its own."""
    lake = made.copy(tmp_path / "lake")
    victim = made.found("put", "bulk")[5]
    rewrite(lake, lambda row: {**row, "body": b"JOB 5"} if row["position"] == victim["position"] else row)
    assert broken(audit(spark, Lake(lake.place.uri))) == {"unchanged": [f"{made.span(0)}: bodies were changed"]}
    forge_digests(lake)
    found = broken(audit(spark, Lake(lake.place.uri), made.source))
    assert list(found) == ["same"] and found["same"][0].endswith("bodies were changed")


def forge_digests(lake: Lake) -> None:
    """Make the recorded digests fit the events."""
    lake = Lake(lake.place.uri)
    events = lake.read(EVENTS).sort_by("position").combine_chunks()
    rows = []
    for block in lake.read(COVERAGE).to_pylist():
        inside = [at for at, p in enumerate(events["position"].to_pylist()) if block["start"] <= p < block["end"]]
        some = events.slice(inside[0], len(inside)) if inside else events.slice(0, 0)
        packed = row_bytes(some)
        digests = {"rows_digest": rows_digest(some, packed), "bodies_digest": bodies_digest(some, packed)}
        rows.append({**block, **digests, "events": len(some)})
    write_deltalake(f"{lake.place}/{COVERAGE.path}", pa.Table.from_pylist(rows, COVERAGE.arrow), mode="overwrite")


@pytest.mark.parametrize("damage", ["deleted", "changed"])
def test_a_damaged_file_is_an_error_of_one_sentence(
    spark: SparkSession, made: Made, tmp_path: Path, damage: str
) -> None:
    lake = made.copy(tmp_path / "lake")
    file = Path(lake.place.uri, EVENTS.path, lake.files(EVENTS)[0].path)
    if damage == "deleted":
        file.unlink()
    else:
        whole = file.read_bytes()
        file.write_bytes(whole[:1000] + bytes([whole[1000] ^ 0x55]) + whole[1001:])
    with pytest.raises(PipelineError) as refused:
        audit(spark, Lake(lake.place.uri))
    said = str(refused.value)
    assert file.name in said and "\n" not in said and "Traceback" not in said and len(said) < 500, said
