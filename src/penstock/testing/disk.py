"""A disk in memory that remembers every write and can be cut off at any moment, with every loss a real one allows.

`MemoryDisk` does what it is told and keeps the list of it. `crashes` enumerates what a power cut may leave of a prefix
of that list: what was synced is there; of what was written since, nothing, everything, any prefix of the last write, or
any of its sectors without the others.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.core.errors import InUse
from penstock.journal.disk import UNFINISHED, File

SECTOR_BYTES = 512


@dataclass(frozen=True)
class Effect:
    """One thing that was done to the disk."""

    what: str  # create, write, sync, truncate, rename, remove, replace
    name: str
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass
class MemoryDisk:
    """One directory in memory."""

    files: dict[str, bytearray] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    base: dict[str, bytes] = field(default_factory=dict)  # What was there before the first of them.
    capacity: int | None = None  # Bytes; more is ENOSPC.
    sync_error: OSError | None = None  # What the next sync raises.
    locked: bool = False

    def lock(self) -> None:
        if self.locked:
            raise InUse()
        self.locked = True

    def unlock(self) -> None:
        self.locked = False

    def forget_lock(self) -> None: ...

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        return bytes(self.files[name])

    def size(self, name: str) -> int:
        return len(self.files[name])

    def create(self, name: str, size: int, head: bytes) -> MemoryFile:
        assert name not in self.files
        self.check_room(size)
        self.files[name] = bytearray(head.ljust(size, b"\0"))
        self.effects.append(Effect("create", name, size, head))
        return MemoryFile(self, name)

    def begin(self, name: str) -> MemoryFile:
        self.files[name + UNFINISHED] = bytearray()
        self.effects.append(Effect("create", name + UNFINISHED))
        return MemoryFile(self, name + UNFINISHED, grows=True)

    def finish(self, name: str, file: File) -> None:
        file.sync()
        self.rename(name + UNFINISHED, name)

    def abandon(self, name: str, file: File) -> None:
        self.remove(name + UNFINISHED)

    def open(self, name: str) -> MemoryFile:
        assert name in self.files
        return MemoryFile(self, name)

    def open_to_read(self, name: str) -> MemoryFile:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return MemoryFile(self, name)

    def replace(self, name: str, data: bytes) -> None:
        self.files[name] = bytearray(data)
        self.effects.append(Effect("replace", name, 0, data))

    def rename(self, name: str, target: str) -> None:
        self.files[target] = self.files.pop(name)
        self.effects.append(Effect("rename", name, target=target))

    def remove(self, name: str) -> None:
        del self.files[name]
        self.effects.append(Effect("remove", name))

    def check_room(self, size: int) -> None:
        """Raise ENOSPC if so many bytes more do not fit."""
        if self.capacity is not None and sum(map(len, self.files.values())) + size > self.capacity:
            raise OSError(errno.ENOSPC, "no space left on this disk")

    def copy(self) -> MemoryDisk:
        """The same files on another disk, with nothing done to it yet."""
        return _disk_of({name: bytes(data) for name, data in self.files.items()})


class MemoryFile:
    """One file in memory. A rename moves it along, as an open file descriptor is."""

    def __init__(self, disk: MemoryDisk, name: str, grows: bool = False) -> None:
        self._disk = disk
        self._data = disk.files[name]
        self._grows = grows

    @property
    def _name(self) -> str:
        return next(name for name, data in self._disk.files.items() if data is self._data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def size(self) -> int:
        return len(self._data)

    def will_read(self, offset: int, length: int) -> None: ...

    def write(self, offset: int, *parts: bytes) -> None:
        data = b"".join(parts)
        end = offset + len(data)
        if end > len(self._data):
            assert self._grows, "a log never grows a file"
            self._disk.check_room(end - len(self._data))
        self._disk.effects.append(Effect("write", self._name, offset, data))
        _write(self._data, offset, data)

    def sync(self) -> None:
        if self._disk.sync_error is not None:
            raise self._disk.sync_error
        self._disk.effects.append(Effect("sync", self._name))

    def truncate(self, size: int) -> None:
        self._disk.effects.append(Effect("truncate", self._name, size))
        del self._data[size:]

    def close(self) -> None: ...


def crashes(disk: MemoryDisk, count: int, every_byte: bool = False) -> Iterator[MemoryDisk]:
    """What a power cut after the first `count` effects may leave behind; first of all, only what was synced."""
    synced, pending = _split(disk.effects[:count])
    yield _play(disk.base, synced)
    if not pending:
        return
    yield _play(disk.base, synced, pending)
    last = pending[-1]
    before = pending[:-1]
    steps = range(1, len(last.data)) if every_byte else range(8, len(last.data), 101)
    for size in steps:
        yield _play(disk.base, synced, [*before, Effect("write", last.name, last.offset, last.data[:size])])
    sectors = _sectors(last)
    for index in range(len(sectors)):
        # One sector is missing, or only one is there: written in another order than we did.
        yield _play(disk.base, synced, [*before, *sectors[:index], *sectors[index + 1 :]])
        yield _play(disk.base, synced, [*before, sectors[index]])
    for index in range(len(before)):
        yield _play(disk.base, synced, [*pending[:index], *pending[index + 1 :]])


def _split(done: list[Effect]) -> tuple[list[Effect], list[Effect]]:
    """What is on disk for sure, and the writes of which nobody knows."""
    sure: list[Effect] = []
    pending: list[Effect] = []
    for effect in done:
        if effect.what == "write":
            pending.append(effect)
        elif effect.what in ("sync", "truncate"):
            sure += [write for write in pending if write.name == effect.name]
            pending = [write for write in pending if write.name != effect.name]
            sure.append(effect)
        elif effect.what == "rename":
            # The name is durable; what is in the file is not yet.
            pending = [
                replace(write, name=effect.target) if write.name == effect.name else write
                for write in pending
                if write.name != effect.target
            ]
            sure.append(effect)
        elif effect.what == "remove":
            pending = [write for write in pending if write.name != effect.name]
            sure.append(effect)
        else:
            sure.append(effect)
    return sure, pending


def _write(file: bytearray, offset: int, data: bytes) -> None:
    """Write at a place; a file that is shorter is filled up with zeros, as disks do."""
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


def _sectors(write: Effect) -> list[Effect]:
    """A write, cut where the sectors of the disk are."""
    found = []
    start = 0
    while start < len(write.data):
        end = min(len(write.data), start + SECTOR_BYTES - (write.offset + start) % SECTOR_BYTES)
        found.append(Effect("write", write.name, write.offset + start, write.data[start:end]))
        start = end
    return found


def _disk_of(files: dict[str, bytes]) -> MemoryDisk:
    """A disk with these files, to which nothing was done yet."""
    return MemoryDisk({name: bytearray(data) for name, data in files.items()}, base=files)


def _play(base: dict[str, bytes], *parts: list[Effect]) -> MemoryDisk:
    """A disk on which these things were done."""
    disk = _disk_of(base)
    for effect in (effect for part in parts for effect in part):
        if effect.what == "create":
            disk.files[effect.name] = bytearray(effect.data.ljust(effect.offset, b"\0"))
        elif effect.what == "write":
            _write(disk.files[effect.name], effect.offset, effect.data)
        elif effect.what == "truncate":
            disk.open(effect.name).truncate(effect.offset)
        elif effect.what == "rename":
            disk.rename(effect.name, effect.target)
        elif effect.what == "remove":
            disk.remove(effect.name)
        elif effect.what == "replace":
            disk.replace(effect.name, effect.data)
    return disk.copy()
