"""The journal: cost compared with a queue in memory and with the bare disk, and duration of long operations.

Each file has `trials` for one subject. Directories are created with Python's `tempfile`, so TMPDIR selects the disk. On
a disk in memory, syncs cost nothing and the rows about syncs are meaningless.
"""

from __future__ import annotations

from bench.journal import columns, cost, history, recovery, snapshots, spill, syncs
from bench.scale import Scale
from bench.trial import Trial

_PARTS = (cost, syncs, recovery, snapshots, spill, history, columns)


def trials(scale: Scale) -> list[Trial]:
    """Return the trials of all files."""
    return [trial for part in _PARTS for trial in part.trials(scale)]
