"""Examines the machine: limits of the system, memory and the clock."""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.cli.doctor.finding import PROBLEM, WARNING, Finding
from penstock.report.units import bytes_text
from penstock.server.machine import memory_bytes

# A server uses a descriptor per client, and some for its own files.
_DESCRIPTORS_WANTED: Final = 10_000
_BACKLOG_WANTED: Final = 511
_MEMORY_WANTED: Final = 512 * 1024 * 1024
# The clock of a machine that shows an earlier time was never set. (2026-01-01 UTC)
_RELEASED_S: Final = 1_767_225_600
# The return value of adjtimex for a clock that no time server keeps correct.
_TIME_ERROR: Final = 5


def examine_machine() -> Iterator[Finding]:
    """Yield findings about limits, memory and the clock."""
    yield _descriptors()
    if sys.platform == "linux":
        yield _backlog()
    yield _memory()
    yield from _clock()


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,} (hard limit {_limit_text(hard)})"
    # A server raises its soft limit to the hard limit.
    if hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS_WANTED:
        return Finding("machine", "open files", value)
    advice = (
        f"A server cannot accept {_DESCRIPTORS_WANTED:,} clients. Raise the hard limit: LimitNOFILE=65536 for systemd."
    )
    return Finding("machine", "open files", value, WARNING, advice)


def _limit_text(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _backlog() -> Finding:
    try:
        backlog = int(Path("/proc/sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return Finding("machine", "connection backlog", "unknown")
    if backlog >= _BACKLOG_WANTED:
        return Finding("machine", "connection backlog", f"{backlog:,}")
    advice = f"Bursts of new connections can be refused. Set it: sysctl -w net.core.somaxconn={_BACKLOG_WANTED}"
    return Finding("machine", "connection backlog", f"{backlog:,}", WARNING, advice)


def _memory() -> Finding:
    usable = memory_bytes()
    if usable >= _MEMORY_WANTED:
        return Finding("machine", "memory", bytes_text(usable))
    advice = "By default, jobs use half of the memory. With this little memory, bodies soon stay on disk only."
    return Finding("machine", "memory", bytes_text(usable), WARNING, advice)


def _clock() -> Iterator[Finding]:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _RELEASED_S:
        advice = "The clock is wrong. Delays and the history would have wrong times: set the clock before you start."
        yield Finding("machine", "clock", shown, PROBLEM, advice)
        return
    yield Finding("machine", "clock", shown)
    synchronised = _is_synchronised()
    if synchronised is None:
        yield Finding("machine", "time server", "unknown")
    elif synchronised:
        yield Finding("machine", "time server", "the clock is synchronised")
    else:
        advice = (
            "Absolute times (put --at, the history, a cluster's lake) are only as exact as this clock. Start a time "
            "service, for example chrony or systemd-timesyncd. In a container, check its host."
        )
        yield Finding("machine", "time server", "the kernel knows of no synchronisation", WARNING, advice)


def _is_synchronised() -> bool | None:
    """Return whether the kernel knows that the clock is kept correct, or None if it cannot be asked."""
    state = -1
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    return None if state < 0 else state != _TIME_ERROR
