"""The journal on a platform without the calls of Linux: the calls are removed, the files are real."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

import penstock
from penstock.host import boot
from penstock.host.boot import boot_id
from penstock.journal import syscalls
from penstock.journal.real_disk import RealDisk

LINUX_ONLY = ("fdatasync", "posix_fallocate", "posix_fadvise", "POSIX_FADV_WILLNEED")
FULL_SYNC = 51  # The number on macOS.


@pytest.fixture
def no_linux_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LINUX_ONLY:
        monkeypatch.delattr(os, name, raising=False)


@pytest.fixture
def full_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the descriptors with a full sync. The Linux kernel has no full sync, so fsync is used."""
    asked = []
    real = fcntl.fcntl

    def noted(descriptor: int, command: int, argument: int = 0) -> object:
        if command != FULL_SYNC:
            return real(descriptor, command, argument)
        asked.append(descriptor)
        return os.fsync(descriptor)

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", noted)
    return asked


@pytest.mark.usefixtures("no_linux_calls")
def test_a_queue_keeps_its_jobs_without_the_calls_of_linux(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t").put_many([b"x" * 1000] * 100)
    with penstock.open(tmp_path / "queue") as queue:
        assert len(queue.tube("t").take_many(200)) == 100


@pytest.mark.usefixtures("no_linux_calls")
def test_room_that_cannot_be_allocated_is_written_as_zeros(tmp_path: Path) -> None:
    file = RealDisk(str(tmp_path)).create("file", 3_000_000, b"head")
    file.extend(5_000_001)
    assert (tmp_path / "file").read_bytes() == b"head" + bytes(5_000_001 - 4)
    assert os.stat(tmp_path / "file").st_blocks * 512 >= 5_000_001, "zeros that were written have their room"
    file.fill(0, 4)
    assert file.read(0, 10) == bytes(10)
    file.close()


@pytest.mark.usefixtures("no_linux_calls")
def test_what_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(str(tmp_path)).create("file", 4096, b"head")
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= 1 << 20:
            raise OSError(errno.ENOSPC, "no space left on device")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        file.extend(4 << 20)
    assert file.size() == 4096
    file.close()


def test_where_fsync_is_not_enough_every_sync_is_a_full_sync(
    tmp_path: Path, full_syncs: list[int], no_linux_calls: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.create("file", 4096, b"head")
    assert len(full_syncs) == 2, "the file, and the directory that has its name"
    file.write(0, b"body")
    file.sync()
    file.truncate(100)
    file.extend(200)
    assert len(full_syncs) == 5
    file.close()


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_full_sync_gets_an_ordinary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    synced = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    syscalls.sync_all(descriptor)
    os.close(descriptor)
    assert synced == [descriptor]


def test_a_full_sync_that_fails_is_not_taken_for_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fail)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="the disk is broken"):
        syscalls.sync_data(descriptor)
    os.close(descriptor)


@pytest.fixture
def no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a system without /proc, and use a folder as the whole PATH."""
    monkeypatch.setattr(boot, "_LINUX", tmp_path / "no such file")
    monkeypatch.setenv("PATH", str(tmp_path))
    boot_id.cache_clear()
    yield tmp_path
    boot_id.cache_clear()


def test_without_proc_the_boot_id_comes_from_sysctl(no_proc: Path) -> None:
    script = no_proc / "sysctl"
    script.write_text(f'#!{sys.executable}\nimport sys\nprint("uuid of", *sys.argv[1:])\n')
    script.chmod(0o755)
    assert boot_id() == "uuid of -n kern.bootsessionuuid"


@pytest.mark.usefixtures("no_proc")
def test_without_a_boot_id_every_process_has_its_own() -> None:
    first = boot_id()
    assert boot_id() == first
    boot_id.cache_clear()
    assert boot_id() != first
