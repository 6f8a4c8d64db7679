"""Chance for those who have none of their own: a generator of 32 bits, the same compiled and interpreted."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_MASK32: Final = 0xFFFFFFFF


class Chance:
    """Numbers that follow from what the shell gave at the start."""

    _state: i64

    def __init__(self, entropy: int) -> None:
        self._state = (entropy & _MASK32) or 1

    def next32(self) -> i64:
        """The next 32 bits."""
        x = self._state
        x ^= (x << 13) & _MASK32
        x ^= x >> 17
        x ^= (x << 5) & _MASK32
        self._state = x
        return x

    def below(self, limit: i64) -> i64:
        """A number from 0 to below a limit, which is at least 1."""
        return self.next32() % limit

    def name(self) -> bytes:
        """Forty hex digits, as nodes have for an id."""
        words = [b"%08x" % int(self.next32()) for _ in range(5)]
        return b"".join(words)
