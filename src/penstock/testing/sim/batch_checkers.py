"""Checkers of the promises about batches of jobs, for the workload `tubes`.

W10  The jobs of a stage are delivered after its publication was requested, all of them or none. If
     several stages are published with the same mark, the jobs of only one of them are delivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.limits import NEVER
from penstock.testing.sim.history import DONE, UNKNOWN
from penstock.testing.sim.tube_history import StageRecord, TubeHistory


def check_stages(history: TubeHistory) -> Iterator[tuple[bytes, str]]:
    """Check W10: see the docstring of this module. Return the tube and the text of each violation."""
    delivered = {lease.body for lease in history.leases}
    marked: dict[bytes, list[bytes]] = {}
    for lease in history.leases:
        put = history.puts.get(lease.body)
        if put is not None and put.batch and lease.sent < put.invoked:
            when = "was not" if put.invoked == NEVER else "was later"
            yield (
                lease.tube.name,
                f"W10: {lease.body!r} was delivered, but the publication of its stage {when} requested",
            )
    for stage in history.stages:
        found = [put for put in stage.puts() if put.body in delivered]
        if not found:
            continue
        if stage.mark:
            marked.setdefault(stage.mark, []).append(stage.name)
        for missing in _missing(stage, delivered):
            yield stage.tube.name, f"W10: {found[0].body!r} of {stage.name!r} was delivered, and {missing!r} was not"
        if len(marked.get(stage.mark, [])) > 1:
            yield stage.tube.name, f"W10: {marked[stage.mark]} were published with the same mark"


def _missing(stage: StageRecord, delivered: set[bytes]) -> Iterator[bytes]:
    """Return jobs that were not delivered, although others of their group or stage were."""
    for group, outcome in zip(stage.groups, stage.outcomes, strict=True):
        is_staged = outcome == DONE or (outcome == UNKNOWN and any(put.body in delivered for put in group))
        if is_staged:
            yield from (put.body for put in group if put.body not in delivered)
