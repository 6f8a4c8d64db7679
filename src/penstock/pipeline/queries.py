"""The SQL of the pipeline: a file a question, each beginning with the question in one sentence."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """The text of a query: `gold/rates`."""
    return (files("penstock.pipeline") / "sql" / f"{name}.sql").read_text()


def question(name: str) -> str:
    """What a query answers, in a sentence."""
    return sql(name).partition("\n")[0].removeprefix("-- ")
