"""What a queue in a directory costs beside one in memory, what it adds to a bare disk, and how long its long work is.

Each file measures one thing, and has `trials`. Directories are made where Python's `tempfile` makes them: TMPDIR says
which disk is measured. A disk in memory takes a sync for nothing, and makes the rows about syncs meaningless.
"""

from __future__ import annotations

from bench.journal import columns, cost, history, recovery, snapshots, spill, syncs
from bench.scale import Scale
from bench.trial import Trial

_PARTS = (cost, syncs, recovery, snapshots, spill, history, columns)


def trials(scale: Scale) -> list[Trial]:
    """The rows of all parts."""
    return [trial for part in _PARTS for trial in part.trials(scale)]
