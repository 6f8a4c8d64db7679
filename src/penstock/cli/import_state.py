"""How far an import has come: a small file, replaced whole after every batch that is durable."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.server.text_file import replace


class OtherImport(Exception):
    """The file tells of another import."""


@dataclass(slots=True)
class ImportState:
    """What one import has done."""

    fingerprint: str
    into: str
    done: int = 0  # Items that need not be looked at again.
    cursor: Any = None  # Where a source goes on whose items have no fixed numbers.
    imported: int = 0  # Jobs of the source that are in the queue or were, put by this import or before.
    created: dict[str, float] = field(default_factory=dict)  # Tubes, with the dedup window that they are to have.
    passed: dict[str, int] = field(default_factory=dict)  # By reason.
    finished: bool = False

    def pass_over(self, reason: str) -> None:
        self.passed[reason] = self.passed.get(reason, 0) + 1

    def save(self, path: Path) -> None:
        replace(path, json.dumps(asdict(self), indent=2) + "\n")


def load(path: Path, fingerprint: str, into: str) -> ImportState:
    """What is known of this import; a new one if nothing is. Raises OtherImport."""
    try:
        told = json.loads(path.read_bytes())
        state = ImportState(**told)
    except FileNotFoundError:
        return ImportState(fingerprint, into)
    except (ValueError, TypeError, OSError) as error:
        raise OtherImport(f"{path} cannot be understood ({error}); give another file with --state") from None
    if state.fingerprint != fingerprint:
        raise OtherImport(
            f"{path} is of another source, or of this file before it changed; choose another with --state"
        )
    if state.into != into:
        raise OtherImport(f"{path} is of an import into {state.into}; give another file with --state")
    return state
