"""A xorshift generator of 32 bits. It returns the same numbers in the compiled and the interpreted build."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_MASK32: Final = 0xFFFFFFFF


class Xorshift32:
    """Pseudo-random numbers that depend only on the seed, so that the pure packages need no source of randomness."""

    def __init__(self, entropy: int) -> None:
        self._state: i64 = (entropy & _MASK32) or 1

    def next32(self) -> i64:
        x = self._state
        x ^= (x << 13) & _MASK32
        x ^= x >> 17
        x ^= (x << 5) & _MASK32
        self._state = x
        return x

    def below(self, limit: i64) -> i64:
        """Return a number from 0 to `limit` - 1. `limit` is at least 1."""
        return self.next32() % limit

    def node_id(self) -> bytes:
        """Return forty hex digits, the form of a node id."""
        words = [b"%08x" % int(self.next32()) for _ in range(5)]
        return b"".join(words)
