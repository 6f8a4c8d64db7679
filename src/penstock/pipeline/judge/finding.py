"""The results of the judge: one finding for each promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KEPT = "kept"
BROKEN = "broken"
CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Finding:
    """One promise and its violations."""

    name: str
    promise: str
    broken: int  # Number of violations that were found.
    # The first violations: node, tube, job, position, time and what happened.
    examples: list[dict[str, Any]] = field(default_factory=list)
    unjudged: str = ""  # Which events or tubes could not be judged, and why.
    judged: bool = True  # False: no event could be judged.

    @property
    def kept(self) -> bool | None:
        """True if no violation was found, False otherwise, or None if nothing could be judged."""
        if self.broken:
            return False
        return True if self.judged else None

    @property
    def verdict(self) -> str:
        return BROKEN if self.broken else KEPT if self.judged else CANNOT_TELL
