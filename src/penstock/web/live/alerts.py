"""What needs the attention of an operator, from the numbers of the tubes and of the node.

An alert has a stable code, a level (`warning` or `critical`) and a sentence with the numbers. If it is about a tube, it
has its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Alert = dict[str, Any]
Row = dict[str, Any]

ALERTS_MAX: Final = 20
# Jobs of a new tube may wait this long for their first consumer.
_PATIENCE_MS: Final = 30_000
_MANY_JOBS: Final = 1_000
_MEMORY_SHARE: Final = 0.9


def alerts_of(rows: list[Row], info: dict[str, Any]) -> list[Alert]:
    """Return the alerts, the most severe first. `info` has the fields of INFO, which may be incomplete."""
    found = [*_of_node(info), *(alert for row in rows for alert in _of_tube(row))]
    found.sort(key=lambda alert: (alert["level"] != "critical", -alert["jobs"]))
    return found[:ALERTS_MAX]


def _of_tube(row: Row) -> Iterator[Alert]:
    name, ready = row["name"], row["ready"]
    waits_long = ready and (row["oldest_ms"] or 0) >= _PATIENCE_MS
    level = "critical" if ready >= _MANY_JOBS else "warning"
    if row["paused_out"] and ready:
        yield _alert("PAUSED", "warning", f"{_shown(name)}: takes are paused, and {_jobs(ready)} ready", ready, name)
    elif waits_long and not row["consumers"] and not row["taken"]:
        yield _alert("NOCONSUMERS", level, f"{_shown(name)}: {ready:,} ready, no consumers", ready, name)
    if row["buried"]:
        yield _alert("BURIED", "warning", f"{_shown(name)}: {_jobs(row['buried'])} buried", row["buried"], name)


def _of_node(info: dict[str, Any]) -> Iterator[Alert]:
    most, used = info.get("maxmemory", 0), info.get("used_memory", 0)
    if most and used >= most * _MEMORY_SHARE:
        yield _alert("MEMORY", "critical", f"memory: {used / most:.0%} of the limit are used; puts fail at 100%")
    if info.get("aof_last_write_status", "ok") != "ok":
        yield _alert("JOURNAL", "critical", "the last write to the journal failed; the log of the node has the reason")


def _alert(code: str, level: str, message: str, jobs: int = 0, tube: str | None = None) -> Alert:
    return {"code": code, "level": level, "message": message, "jobs": jobs, "tube": tube}


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count:,} jobs are"


def _shown(name: str) -> str:
    """Return a name of at most 80 characters for a sentence."""
    return name if len(name) <= 80 else f"{name[:79]}…"
