"""Refusals in the very words of a protocol. Not compiled: the class stands on those of core/errors.py."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import PenstockError

# What many commands refuse.
SYNTAX: Final = b"ERR syntax error"
NOT_AN_INTEGER: Final = b"ERR value is not an integer or out of range"


class Refused(PenstockError):
    """A refusal whose whole line is given, code and all, because clients know it in just these words."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "backslashreplace"))
        self.line = line
