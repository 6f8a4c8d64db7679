"""Errors of the sources as one sentence, instead of a Python traceback inside a Java stack trace.

Spark's Python processes report an exception as text, and only this text reaches the driver. Our errors are therefore
reported without a traceback, and `sentence_of` extracts the sentence from the text that Spark has wrapped around it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import CommandError, PenstockError

# Spark's own switch: a Python process that has it set reports only the last line of an exception. The process ends
# after the report, so no tracebacks of other errors are lost.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"

_REPORTED: Final = re.compile(r"penstock\.spark\.SourceError: (?:\[\w+\] )?(.*)")

# Spark refuses a write without a mode before it calls a Python source.
_NO_MODE: Final = re.compile(r'data source "?penstock"? cannot be written in the "?(ErrorIfExists|Ignore)"? mode')


class SourceError(PenstockError):
    """A Spark source or sink refused a request or failed."""

    __module__ = "penstock.spark"  # Part of the reported text, which sentence_of searches for.


@contextmanager
def as_source_error() -> Iterator[None]:
    """Turn a PenstockError of the block into a SourceError of one line. Every method that Spark calls uses this."""
    try:
        yield
    except SourceError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
    except PenstockError as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        code = f"[{error.code}] " if isinstance(error, CommandError) else ""
        raise SourceError(code + " ".join(str(error).split())) from None


def sentence_of(error: BaseException) -> str | None:
    """Return the sentence of the SourceError that caused an exception of Spark, or None if there is no SourceError."""
    text = str(error)
    if _NO_MODE.search(text):
        return 'a write adds jobs to a tube; write with .mode("append")'
    found = _REPORTED.search(text)
    return None if found is None else found.group(1).strip()
