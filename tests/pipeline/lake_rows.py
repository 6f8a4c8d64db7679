"""Creates a lake with given rows of gold or silver, without Spark."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.gold_reader import schema_of
from penstock.pipeline.lake import Lake, Manifest
from penstock.pipeline.tables import JOBS, gold_table

Rows = list[dict[str, Any]]


def make_lake(root: Path, days: dict[str, dict[str, Rows]], grain: str = "minute") -> Lake:
    """Return a lake with these rows by day and table. A table is one of gold, or jobs."""
    manifest = Manifest(commits=1, grain=grain)
    for day, tables in days.items():
        for name, rows in tables.items():
            table = JOBS if name == JOBS.name else gold_table(name)
            file = f"{table.by}={day}/00000001-0.parquet"
            path = Lake(root).path(table, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows, schema_of(table)), path)
            manifest.files.setdefault(table.path, {})[file] = len(rows)
    (root / "_state").mkdir(exist_ok=True)
    (root / "_state" / "manifest.json").write_text(json.dumps(dataclasses.asdict(manifest)))
    return Lake(root)
