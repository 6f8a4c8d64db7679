"""A clock that a test turns by hand."""

from __future__ import annotations

from typing import Final

# Some moment of 2023: like a real one in size, and easy to count from.
SOME_MOMENT_MS: Final = 1_700_000_000_000


class FakeClock:
    """A moment in milliseconds, which passes only when it is told to. It never goes back, as engine time never does."""

    ms: int

    def __init__(self, ms: int = SOME_MOMENT_MS) -> None:
        self.ms = ms

    def __repr__(self) -> str:
        return f"FakeClock({self.ms})"

    def advance(self, ms: int) -> int:
        """Let so many milliseconds pass; tell what time it is then."""
        assert ms >= 0, "time does not go back"
        self.ms += ms
        return self.ms

    def advance_to(self, ms: int) -> int:
        """Let time pass up to this moment, or none if that is over already."""
        self.ms = max(self.ms, ms)
        return self.ms
