"""The clock of a node. Pure code gets the time from it; the server has a real clock, and the simulation a fake one."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Engine time, which never goes back, and wall time, which an operator can set."""

    def now(self) -> i64:
        """Return the engine time in ms."""
        raise NotImplementedError

    def wall(self) -> i64:
        """Return the wall time in ms since 1970."""
        raise NotImplementedError
