"""A block of the log: some thousand positions, with the digests of their rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

# Number of positions in a block. A block ends before each multiple of this number, and with its segment.
BLOCK_ROWS: Final = 4_096

EMPTY_SHA256: Final = hashlib.sha256().digest()  # Of no rows, or no bodies.


@dataclass(frozen=True, slots=True)
class BlockDigest:
    """The digests of the rows at the positions from `first` up to `end`, which is the first position of the next block.

    Only rows about jobs are hashed. Two logs, or a log and a copy of its history, have the same rows at these positions
    if and only if they have the same digests.
    """

    first: int
    end: int
    rows: int  # Number of rows about jobs.
    rows_sha256: bytes  # Of the rows with their keys, reasons and headers, and without their bodies.
    bodies_sha256: bytes | None  # None if the bodies were removed from the history.

    def as_json(self) -> dict[str, Any]:
        """Return the block as a JSON object, with hexadecimal digests."""
        return {
            "first": self.first,
            "end": self.end,
            "rows": self.rows,
            "rows_sha256": self.rows_sha256.hex(),
            "bodies_sha256": None if self.bodies_sha256 is None else self.bodies_sha256.hex(),
        }
