"""Memory of labels: names of jobs, keys, unique values and dedup ids, each up to 64 KB.

All tubes of an engine share one counter, because each put checks the memory limit and there may be a million tubes.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(acyclic=True)
class LabelBytes:
    """The total length of all labels in bytes."""

    total: i64

    def __init__(self) -> None:
        self.total = 0
