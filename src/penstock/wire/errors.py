"""Refusals in the very words of a protocol. Not compiled: the class stands on those of core/errors.py."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class Refused(PenstockError):
    """A refusal whose whole line is given, code and all, because clients know it in just these words."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line
