"""The state file of an import, with its progress. It is replaced atomically after every durable batch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.server.config.text_file import replace


class StateMismatch(Exception):
    """The state file belongs to another import."""


@dataclass(slots=True)
class ImportState:
    """The progress of one import."""

    fingerprint: str
    into: str
    done: int = 0  # Number of finished items.
    cursor: Any = None  # Position of the source, if its items have no fixed numbers.
    imported: int = 0  # Jobs of the source that are or were in the queue, put by this import or before.
    created: dict[str, float] = field(default_factory=dict)  # Created tubes, with their final dedup window.
    passed: dict[str, int] = field(default_factory=dict)  # Counts of skipped items, by reason.
    finished: bool = False

    def pass_over(self, reason: str) -> None:
        self.passed[reason] = self.passed.get(reason, 0) + 1

    def save(self, path: Path) -> None:
        replace(path, json.dumps(asdict(self), indent=2) + "\n")


def load(path: Path, fingerprint: str, into: str) -> ImportState:
    """Read the state file, or return a new state if there is none.

    Raise StateMismatch if the file belongs to another import or cannot be read.
    """
    try:
        fields = json.loads(path.read_bytes())
        state = ImportState(**fields)
    except FileNotFoundError:
        return ImportState(fingerprint, into)
    except (ValueError, TypeError, OSError) as error:
        raise StateMismatch(f"{path} cannot be read ({error}); choose another file with --state") from None
    if state.fingerprint != fingerprint:
        raise StateMismatch(
            f"{path} belongs to another source, or the file has changed since; choose another with --state"
        )
    if state.into != into:
        raise StateMismatch(f"{path} belongs to an import into {state.into}; choose another file with --state")
    return state
