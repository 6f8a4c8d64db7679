"""What the pipeline refuses, in sentences."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import PenstockError
from penstock.spark.errors import sentence_of


class PipelineError(PenstockError):
    """The pipeline cannot go on."""


class NoLake(PipelineError):
    """There is no lake where one was to be read."""


class BadLake(PipelineError):
    """What is there is no lake that this version can read."""


class LakeInUse(PipelineError):
    """Another process writes the lake."""


@contextmanager
def spoken() -> Iterator[None]:
    """Around Spark: what goes wrong there becomes one sentence, not a stack of Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # It would log what goes wrong in a call from Java, with a traceback; here that is told once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(sentence_of(error) or f"Spark: {_first_line(str(error))}") from None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it failed, and did not say why")
