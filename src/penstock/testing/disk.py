"""A disk in memory that records all operations, and from which every state after a power cut can be derived.

`crashes` enumerates the states that a power cut can leave after some of the operations. Synced data survives. Of the
unsynced writes, none survive, all survive, one is lost, or the last one survives in part: up to some byte, without one
sector, or in one sector only. Of the renames since the last sync of the directory, none or all survive. If a sync
fails, its data stays readable until the power is cut, and no later sync writes it, as on current operating systems.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from penstock.core.errors import InUse
from penstock.journal.disk import UNFINISHED, File

SECTOR_BYTES = 512

_numbers = count(1)  # Inode numbers. A file keeps its number when it is renamed.


@dataclass(frozen=True)
class Effect:
    """One operation on the disk."""

    what: str  # create, write, sync, fail (to sync), extend, truncate, rename, names, remove
    file: int = 0
    name: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass
class MemoryDisk:
    """One directory in memory."""

    files: dict[str, bytearray] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    # The contents, and in the next field the names, before the first operation.
    base: dict[int, bytes] = field(default_factory=dict)
    base_numbers: dict[str, int] = field(default_factory=dict)
    capacity: int | None = None  # In bytes. Writing more raises ENOSPC.
    sync_error: OSError | None = None  # The error that the next sync raises.
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
        self._check(name)
        return bytes(self.files[name])

    def size(self, name: str) -> int:
        self._check(name)
        return len(self.files[name])

    def create(self, name: str, size: int, head: bytes) -> MemoryFile:
        self.check_room(size)
        return self._create(name, head.ljust(size, b"\0"))

    def begin(self, name: str) -> MemoryFile:
        file = self._create(name + UNFINISHED, b"")
        file.grows = True
        return file

    def finish(self, name: str, file: File) -> None:
        file.sync()
        self.rename(name + UNFINISHED, name)

    def abandon(self, name: str, file: File) -> None:
        if name + UNFINISHED in self.files:
            self.remove(name + UNFINISHED)

    def open(self, name: str) -> MemoryFile:
        self._check(name)
        return MemoryFile(self, self.files[name], self.numbers[name])

    def open_to_read(self, name: str) -> MemoryFile:
        return self.open(name)

    def replace(self, name: str, data: bytes) -> None:
        self.check_room(len(data))
        self._create(name, data)

    def rename(self, name: str, target: str) -> None:
        self._check(name)
        self.files[target] = self.files.pop(name)
        self.numbers[target] = self.numbers.pop(name)
        self.effects += [Effect("rename", self.numbers[target], target), Effect("names")]

    def remove(self, name: str) -> None:
        self._check(name)
        del self.files[name]
        self.effects.append(Effect("remove", self.numbers.pop(name), name))

    def free(self) -> int:
        return sys.maxsize if self.capacity is None else self.capacity - sum(map(len, list(self.files.values())))

    def check_room(self, size: int) -> None:
        """Raise ENOSPC if `size` more bytes do not fit."""
        if size > self.free():
            raise OSError(errno.ENOSPC, "no space left on this disk")

    def copy(self) -> MemoryDisk:
        """Return another disk with the same files and no recorded operations."""
        return _disk_of({name: bytes(data) for name, data in self.files.items()})

    def _create(self, name: str, data: bytes) -> MemoryFile:
        number = self.numbers[name] = next(_numbers)
        self.files[name] = bytearray(data)
        self.effects.append(Effect("create", number, name, data=data))
        return MemoryFile(self, self.files[name], number)

    def _check(self, name: str) -> None:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)


class MemoryFile:
    """One file in memory. It stays open when it is renamed or removed."""

    grows = False

    def __init__(self, disk: MemoryDisk, data: bytearray, number: int) -> None:
        self._disk = disk
        self._data = data
        self._number = number

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def size(self) -> int:
        return len(self._data)

    def will_read(self, offset: int, length: int) -> None: ...

    def write(self, offset: int, data: bytes) -> None:
        more = offset + len(data) - len(self._data)
        if more > 0:
            assert self.grows, "a log never grows a file"
            self._disk.check_room(more)
        self._disk.effects.append(Effect("write", self._number, offset=offset, data=data))
        _write(self._data, offset, data)

    def sync(self) -> None:
        if self._disk.sync_error is not None:
            self._disk.effects.append(Effect("fail", self._number))
            raise self._disk.sync_error
        self._disk.effects.append(Effect("sync", self._number))

    def fill(self, offset: int, length: int) -> None:
        assert not any(self._data[offset : offset + length]), "what is filled with zeros is zeros"

    def extend(self, size: int) -> None:
        self._disk.check_room(size - len(self._data))
        self._disk.effects.append(Effect("extend", self._number, offset=size))
        self._data.extend(bytes(size - len(self._data)))

    def truncate(self, size: int) -> None:
        self._disk.effects.append(Effect("truncate", self._number, offset=size))
        del self._data[size:]

    def close(self) -> None: ...


def killed(disk: MemoryDisk, count: int) -> MemoryDisk:
    """Return the disk of a process that was killed after `count` operations. All of these operations survive."""
    return _play(disk, disk.effects[:count])


def crashes(disk: MemoryDisk, count: int, every_byte: bool = False) -> Iterator[MemoryDisk]:
    """Yield the disks that a power cut after `count` operations can leave. The first disk has synced data only."""
    sure, renames, writes = _split(disk.effects[:count])
    for names in [[], renames] if renames else [[]]:
        for survived in _survivors(writes, every_byte):
            yield _play(disk, [*sure, *survived, *names])


def _survivors(writes: list[Effect], every_byte: bool) -> Iterator[list[Effect]]:
    """Yield the combinations of unsynced writes that can survive."""
    yield []
    if not writes:
        return
    yield writes
    last, before = writes[-1], writes[:-1]
    for size in range(1, len(last.data)) if every_byte else range(8, len(last.data), 101):
        yield [*before, replace(last, data=last.data[:size])]
    sectors = _sectors(last)
    for index in range(len(sectors)):
        # One sector is missing, or only one is present, because the disk reorders writes.
        yield [*before, *sectors[:index], *sectors[index + 1 :]]
        yield [*before, sectors[index]]
    for index in range(len(before)):
        yield [*writes[:index], *writes[index + 1 :]]


def _split(done: list[Effect]) -> tuple[list[Effect], list[Effect], list[Effect]]:
    """Split operations into durable ones, uncertain renames and uncertain writes."""
    sure: list[Effect] = []
    renames: list[Effect] = []
    writes: list[Effect] = []
    for effect in done:
        if effect.what == "write":
            writes.append(effect)
        elif effect.what == "rename":
            renames.append(effect)
        elif effect.what == "fail":
            writes = [write for write in writes if write.file != effect.file]
        elif effect.what in ("sync", "extend", "truncate"):
            sure += [write for write in writes if write.file == effect.file]
            writes = [write for write in writes if write.file != effect.file]
            sure.append(effect)
        else:
            # All of these sync the directory.
            sure += renames
            renames = []
            sure.append(effect)
    return sure, renames, writes


def _write(file: bytearray, offset: int, data: bytes) -> None:
    """Write at an offset. A shorter file is filled with zeros."""
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


def _sectors(write: Effect) -> list[Effect]:
    found = []
    start = 0
    while start < len(write.data):
        end = min(len(write.data), start + SECTOR_BYTES - (write.offset + start) % SECTOR_BYTES)
        found.append(replace(write, offset=write.offset + start, data=write.data[start:end]))
        start = end
    return found


def _disk_of(files: dict[str, bytes]) -> MemoryDisk:
    numbers = {name: next(_numbers) for name in files}
    base = {numbers[name]: data for name, data in files.items()}
    return MemoryDisk({name: bytearray(data) for name, data in files.items()}, [], dict(numbers), base, numbers)


def _play(disk: MemoryDisk, effects: list[Effect]) -> MemoryDisk:
    """Apply `effects` to the content that the disk had before its recorded operations. Return the resulting disk."""
    names = dict(disk.base_numbers)
    contents = {number: bytearray(data) for number, data in disk.base.items()}
    for effect in effects:
        number = effect.file
        if effect.what == "create":
            names[effect.name] = number
            contents[number] = bytearray(effect.data)
        elif effect.what == "write":
            _write(contents[number], effect.offset, effect.data)
        elif effect.what == "extend":
            _write(contents[number], effect.offset, b"")
        elif effect.what == "truncate":
            del contents[number][effect.offset :]
        elif effect.what == "rename":
            names = {name: of for name, of in names.items() if of != number}
            names[effect.name] = number
        elif effect.what == "remove":
            names.pop(effect.name, None)
    return _disk_of({name: bytes(contents[number]) for name, number in names.items()})
