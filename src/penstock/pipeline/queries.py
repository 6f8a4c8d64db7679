"""The SQL queries of the pipeline, one per file. The first line of a file is the question that the query answers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Return the text of a query such as `gold/rates`."""
    return (files("penstock.pipeline") / "sql" / f"{name}.sql").read_text()


def question(name: str) -> str:
    return sql(name).partition("\n")[0].removeprefix("-- ")
