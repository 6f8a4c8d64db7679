"""A Parquet file with the columns of `penstock_events` contains everything that the digests of the journal cover."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.journal.history.columns import batches
from penstock.journal.history.reader import Reader
from penstock.spark.events.columns import spark_batch
from penstock.spark.events.schema import arrow_schema
from penstock.testing.disk import MemoryDisk
from tests.journal.history.arrow_digests import block_of
from tests.journal.history.test_digests import new_log, put_many
from tests.journal.maintenance.test_snapshot import Life


def test_the_digests_of_a_node_can_be_computed_from_a_file_of_its_events(tmp_path: Path) -> None:
    disk = MemoryDisk()
    life = Life(disk, 3)
    life.work(300)
    life.opened.log.close(life.now, life.now)
    put_many(new_log(disk), 4_000)
    schema = arrow_schema()
    found = [spark_batch(batch, "0" * 40, schema) for batch in batches(disk)]
    pq.write_table(pa.Table.from_batches(found, schema), tmp_path / "events.parquet")
    table = pq.read_table(tmp_path / "events.parquet")
    blocks = list(Reader(disk).blocks(1))
    assert len(blocks) > 2 and sum(block.rows for block in blocks) == len(table)
    assert blocks == [block_of(table, block.first, block.end) for block in blocks]
