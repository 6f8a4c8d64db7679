"""Connector for Apache Spark: the sources `penstock` and `penstock_events`, and a session that needs no set-up.

Needs `pip install 'penstock-queue[spark]'`. Spark finds the sources by name, in `pyspark_penstock.py` and
`pyspark_penstock_events.py`; this package implements them. Names are imported on first use, because every Python
process of Spark imports this package and most of them need only one source. In this package, the words driver, task and
partition have the meaning of Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.errors import SourceError, sentence_of
    from penstock.spark.lag import LagListener
    from penstock.spark.launch import session

__all__ = ["LagListener", "SourceError", "sentence_of", "session"]

_MODULES = {"LagListener": "lag", "SourceError": "errors", "sentence_of": "errors", "session": "launch"}

# Hidden from type checkers: with a module-level __getattr__ they would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"penstock.spark.{_MODULES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return list(__all__)
