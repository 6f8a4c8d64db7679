"""Examines the disk of a queue: its file system, free space, speed, and whether a sync reaches the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.cli.doctor.finding import OK, PROBLEM, WARNING, Finding
from penstock.report.units import bytes_text

_FREE_WANTED: Final = 1024 * 1024 * 1024
_SYNCS: Final = 100
_PAGE: Final = bytes(4096)
_BULK_BYTES: Final = 64 * 1024 * 1024
# Even the fastest disks with their own battery need longer. A shorter sync is answered from memory.
_SYNC_HONEST_S: Final = 15e-6
_SYNC_SLOW_S: Final = 20e-3
_IN_MEMORY: Final = ("tmpfs", "ramfs")
_OVER_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")


def examine_disk(directory: Path) -> Iterator[Finding]:
    """Yield findings about the disk of a directory, or of its nearest existing parent. Write a temporary file there."""
    place = next(each for each in (directory, *directory.parents) if each.is_dir())
    yield _file_system(place)
    yield _free_space(place)
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=place) as made:
            yield from _speed(Path(made, "file"))
    except OSError as error:
        advice = f"The queue needs a directory that it can write to: {error.strerror}."
        yield Finding("disk", "writing", f"not possible in {place}", PROBLEM, advice)


def file_system_of(place: Path) -> str:
    """Return the type of the file system of a directory, or "" if it cannot be found."""
    mounts: list[tuple[str, str]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mounted, kind = line.split()[:3]
            mounts.append((mounted.replace("\\040", " "), kind))
    absolute = place.resolve()
    # The last mount at a point hides the earlier ones.
    above = [(len(at), number, kind) for number, (at, kind) in enumerate(mounts) if absolute.is_relative_to(at)]
    return max(above)[2] if above else ""


def _file_system(place: Path) -> Finding:
    kind = file_system_of(place)
    value = f"{kind or 'unknown'} ({place})"
    if kind in _IN_MEMORY:
        advice = "This file system is in memory: a restart of the machine loses all jobs. Choose another --dir."
        return Finding("disk", "file system", value, PROBLEM, advice)
    if kind in _OVER_NETWORK:
        advice = "Locks and syncs of network file systems can be unreliable. Use a local disk or a block device."
        return Finding("disk", "file system", value, WARNING, advice)
    return Finding("disk", "file system", value)


def _free_space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    if free >= _FREE_WANTED:
        return Finding("disk", "free space", bytes_text(free))
    advice = "When the disk is full, puts are refused. The history alone uses up to 1 GiB; see --history-bytes."
    return Finding("disk", "free space", bytes_text(free), WARNING, advice)


def _speed(file: Path) -> Iterator[Finding]:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        yield _sync_time(descriptor)
        yield _bulk_speed(descriptor)
    finally:
        os.close(descriptor)


def _sync_time(descriptor: int) -> Finding:
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync.
    # The file gets its size first, like a segment of the journal.
    os.pwrite(descriptor, bytes(len(_PAGE) * _SYNCS), 0)
    os.fsync(descriptor)
    spent = []
    for number in range(_SYNCS):
        os.pwrite(descriptor, _PAGE, number * len(_PAGE))
        began = time.perf_counter()
        sync(descriptor)
        spent.append(time.perf_counter() - began)
    spent.sort()
    median, slowest = statistics.median(spent), spent[-2]
    value = f"median {median * 1e3:.3g} ms, 99 of 100 within {slowest * 1e3:.3g} ms"
    if median < _SYNC_HONEST_S:
        advice = (
            "No disk is this fast, so a sync does not reach the disk: the file system, the virtual machine or the "
            "container ignores it. A power cut can lose acknowledged jobs, whatever --fsync says."
        )
        return Finding("disk", "sync", value, PROBLEM, advice)
    if median > _SYNC_SLOW_S:
        advice = "Each put waits for a sync. Put many jobs at a time, or accept to lose a second: --fsync everysec."
        return Finding("disk", "sync", value, WARNING, advice)
    return Finding("disk", "sync", value, OK)


def _bulk_speed(descriptor: int) -> Finding:
    block = bytes(1024 * 1024)
    began = time.perf_counter()
    for offset in range(0, _BULK_BYTES, len(block)):
        os.pwrite(descriptor, block, offset)
    os.fsync(descriptor)
    return Finding("disk", "writing", f"{bytes_text(int(_BULK_BYTES / (time.perf_counter() - began)))}/s")
