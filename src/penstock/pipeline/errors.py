"""Turns errors of Spark into errors of the pipeline."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.lake.errors import PipelineError
from penstock.spark.errors import sentence_of


@contextmanager
def as_pipeline_error() -> Iterator[None]:
    """Turn every error of Spark in the block into a PipelineError of one sentence, without the Java stack trace."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # py4j would also log errors of calls from Java with a traceback. They are raised here.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(sentence_of(error) or f"Spark: {_first_line(str(error))}") from None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "failed without a message")
