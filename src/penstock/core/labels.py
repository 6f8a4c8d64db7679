"""What names take of memory: those of jobs, their keys, unique values and dedup ids, each up to 64 KB.

One object counts for all tubes of an engine: a limit on memory is asked about with every put, and there may be a
million tubes.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(acyclic=True)
class LabelBytes:
    """How many bytes they are."""

    total: i64

    def __init__(self) -> None:
        self.total = 0
