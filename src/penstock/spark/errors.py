"""What goes wrong in a source, as one sentence: Spark would show a stack of Python in a stack of Java.

Spark's Python processes report an exception as text, and this text is all that reaches the driver. So in them ours are
told without a traceback, and `sentence_of` finds the sentence again in whatever Spark has wrapped around it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import CommandError, PenstockError

# Spark's own switch: its Python processes then report an exception as its last line. Each of them ends right after it
# has reported one, so nobody else's tracebacks are lost.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"

_TOLD: Final = re.compile(r"penstock\.spark\.SourceError: (?:\[\w+\] )?(.*)")


class SourceError(PenstockError):
    """A source could not do what it was asked to."""

    __module__ = "penstock.spark"  # As it is told, and found again.


@contextmanager
def told() -> Iterator[None]:
    """Around everything that Spark calls: what Penstock refuses becomes a SourceError, in one line."""
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
    """The sentence in an exception that Spark raises because a source of Penstock's did; None: it is about another."""
    found = _TOLD.search(str(error))
    return None if found is None else found.group(1).strip()
