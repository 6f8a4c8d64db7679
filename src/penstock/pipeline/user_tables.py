"""Tables that users define: a folder of SQL files, one for each table.

A file has a header of comments and a query:

    -- How many jobs were put in each hour?
    -- keys: tube string, hour timestamp
    -- measures: puts longest_ms_max
    SELECT date, tube, date_trunc('HOUR', time) AS hour,
           count_if(kind = 'put') AS puts, coalesce(max(ms), 0) AS longest_ms_max
    FROM steps GROUP BY ALL

The query reads the view `steps` (sql/silver/steps.sql) or `fresh` (the new events) and returns the keys, the measures
and `date`. Like a gold table, the table is a tally: a turn adds the rows of its new events. A table that is defined
later starts with the next turn; `backfill --again` computes it for all days. The same holds for turns of a run without
`--tables`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.lake.errors import PipelineError
from penstock.lake.lake import Lake
from penstock.lake.tables import ALL, TURNS, USER, USER_KEYS, USER_MEASURES, USER_QUESTION, Table, tally
from penstock.spark.column_types import arrow_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("penstock.pipeline")

# Names of views that the queries of a turn use.
_VIEWS: Final = ("fresh", "parts_without_gaps", "steps", "summary", "verdicts")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class UserTable:
    """A table that a user has defined."""

    file: str  # For errors.
    question: str
    keys: str
    measures: str
    query: str
    table: Table


def load_tables(folder: str | Path) -> list[UserTable]:
    """Read the definitions in a folder. Raise PipelineError if one of them is not valid."""
    path = Path(folder)
    if not path.is_dir():
        raise PipelineError(f"{folder} is not a folder; --tables needs a folder of SQL files")
    found = [_load(file) for file in sorted(path.glob("*.sql"))]
    if not found:
        raise PipelineError(f"{folder} has no file *.sql; see `penstock pipeline init`")
    return found


def _load(path: Path) -> UserTable:
    name, text = path.stem, path.read_text()
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{path}: the name of a table has lower-case letters, digits and _, and starts with a letter"
        )
    if name in {*(table.name for table in (*ALL, TURNS)), *_VIEWS}:
        raise PipelineError(f"{path}: {name} is the name of a table of the lake; choose another name")
    comments = [line.strip()[2:].strip() for line in text.splitlines() if line.strip().startswith("--")]
    header = {
        word: each.partition(":")[2].strip()
        for each in comments
        for word in ("keys", "measures")
        if each.lower().startswith(f"{word}:")
    }
    for word, example in (("keys", "tube string, hour timestamp"), ("measures", "count ms_max")):
        if not header.get(word):
            raise PipelineError(f"{path}: the header has no {word}; add a line like `-- {word}: {example}`")
    question = comments[0] if not comments[0].lower().startswith(("keys:", "measures:")) else ""
    keys = ", ".join(" ".join(each.split()) for each in header["keys"].split(","))
    measures = " ".join(header["measures"].replace(",", " ").split())
    _check_header(path, keys, measures)
    return UserTable(str(path), question, keys, measures, text, tally(name, keys, measures, USER))


def _check_header(path: Path, keys: str, measures: str) -> None:
    names = []
    for each in keys.split(", "):
        name, _, kind = each.partition(" ")
        if kind not in arrow_types():
            raise PipelineError(
                f"{path}: the key {each!r} has no valid type; write `name type`, for example `tube string`"
            )
        names.append(name)
    names += measures.split()
    twice = {name for name in names if names.count(name) > 1} | ({"date"} & set(names))
    if twice:
        raise PipelineError(f"{path}: the column {min(twice)} is there twice; `date` is always a key")


def prepare_tables(spark: SparkSession, lake: Lake, tables: Sequence[UserTable]) -> None:
    """Check the queries, and create the tables that the lake lacks. The views of a turn exist. The caller writes."""
    for each in tables:
        _check_query(spark, each)
        log_of = lake.log(each.table)
        settings = {USER_KEYS: each.keys, USER_MEASURES: each.measures, USER_QUESTION: each.question}
        stored = {name: log_of.settings.get(name) for name in (USER_KEYS, USER_MEASURES)}
        if log_of.exists and stored != {name: settings[name] for name in stored}:
            raise PipelineError(
                f"{each.file}: the lake has this table with the keys {stored[USER_KEYS]} and the measures "
                f"{stored[USER_MEASURES]}; choose another name"
            )
        log_of.create(settings)


def _check_query(spark: SparkSession, each: UserTable) -> None:
    from pyspark.errors import PySparkException

    try:
        schema = spark.sql(each.query).schema
    except PySparkException as error:
        raise PipelineError(f"{each.file}: {_first_line(error)}") from None
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = dict(each.table.columns)
    if missing := sorted(wanted.keys() - kinds.keys()):
        raise PipelineError(f"{each.file}: the query does not return the column {missing[0]}")
    if extra := sorted(kinds.keys() - wanted.keys()):
        raise PipelineError(f"{each.file}: the column {extra[0]} is neither a key nor a measure of the header")
    for name, kind in wanted.items():
        if name in each.table.measures:
            if kinds[name] not in _WHOLE:
                raise PipelineError(f"{each.file}: the measure {name} is a {kinds[name]}; measures are whole numbers")
        elif kinds[name] != kind:
            raise PipelineError(f"{each.file}: the query returns {name} as {kinds[name]}, and the header says {kind}")


def rows_of(spark: SparkSession, each: UserTable) -> DataFrame:
    """Return the new rows of a table, with the types of its columns."""
    rows = spark.sql(each.query)
    return rows.selectExpr(*(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in each.table.columns))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
