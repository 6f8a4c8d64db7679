"""The id map of an import: a JSON lines file with the old and new ids of jobs that could not keep their ids.

    {"tube": "emails", "old": 17, "id": "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1", "number": 4}

Lines are only appended. After an interruption a job may have two equal lines.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO


class IdMap:
    """The file of the id map. It is created with its first line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self.count = 0

    def add(self, tube: str, old: Any, id: str, number: int | None) -> None:
        """Append a line with the old and the new id of a job."""
        if self._file is None:
            self._file = self.path.open("ab+")
            _drop_torn_line(self._file)
        line = json.dumps({"tube": tube, "old": old, "id": id, "number": number}, ensure_ascii=False)
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        self.count += 1

    def sync(self) -> None:
        """Write the lines to disk. The state file must not count a job as done before that."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _drop_torn_line(file: BinaryIO) -> None:
    """Remove the last line if it is incomplete, because an earlier run was killed."""
    file.seek(0)
    whole = 0
    for line in file:
        if line.endswith(b"\n"):
            whole += len(line)
    file.truncate(whole)
