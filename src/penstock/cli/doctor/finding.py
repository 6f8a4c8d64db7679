"""One result of an examination: a fact about the machine, and what to do if it is a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARNING: Final = "warning"  # Penstock works, but slower or less safely than it could.
PROBLEM: Final = "problem"  # Penstock does not work, or can lose jobs.


@dataclass(frozen=True)
class Finding:
    """A fact, how serious it is, and advice. A finding that is OK has no advice."""

    area: str
    name: str
    value: str
    level: str = OK
    advice: str = ""
