"""A clock that a test advances."""

from __future__ import annotations

from typing import Final

# A time in 2023, as large as a real one and easy to count from.
SOME_MOMENT_MS: Final = 1_700_000_000_000


class FakeClock:
    """A time in milliseconds that changes only when the test advances it.

    It never goes back, as engine time never does.
    """

    ms: int

    def __init__(self, ms: int = SOME_MOMENT_MS) -> None:
        self.ms = ms

    def __repr__(self) -> str:
        return f"FakeClock({self.ms})"

    def advance(self, ms: int) -> int:
        """Advance the clock by `ms` milliseconds, and return the new time."""
        assert ms >= 0, "time does not go back"
        self.ms += ms
        return self.ms

    def advance_to(self, ms: int) -> int:
        """Advance the clock to the time `ms`. Do nothing if the clock is later already. Return the new time."""
        self.ms = max(self.ms, ms)
        return self.ms
