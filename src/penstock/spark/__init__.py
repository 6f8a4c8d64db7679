"""Penstock and Apache Spark: a session that needs no set-up, and what the sources `penstock` and `penstock_events` do.

Needs `pip install 'penstock-queue[spark]'`. Spark finds the sources by name, in `pyspark_penstock.py` and
`pyspark_penstock_events.py`; their code is here. A name is imported when it is asked for first: every Python process
of Spark imports the sources, most of them for one of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.errors import SourceError, sentence_of
    from penstock.spark.launch import session

__all__ = ["SourceError", "sentence_of", "session"]

_HOMES = {"SourceError": "errors", "sentence_of": "errors", "session": "launch"}

# A type checker sees the imports above, and would take any name for one of ours if it saw this.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.spark.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return list(__all__)
