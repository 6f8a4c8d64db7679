"""The disk of a simulated node. Synced data survives a power cut; written data survives the end of the process.

`testing/disk.py` records every operation, so that all crash states can be enumerated. This disk records unsynced data
only, so that a node can write to it for days.
"""

from __future__ import annotations

import errno
import sys
from random import Random

from penstock.core.errors import InUse
from penstock.journal.disk import UNFINISHED, File
from penstock.testing.disk import SECTOR_BYTES


class SimDisk:
    """One directory. Changes of file names are durable immediately, as in `journal/real_disk.py`."""

    def __init__(self) -> None:
        self._files: dict[str, SimFile] = {}
        self._locked = False
        self.sync_error: OSError | None = None  # The error that the next sync raises.
        self.full = False  # Whether there is no space left.

    # Faults

    def process_ended(self) -> None:
        """Release the directory lock of a process that was killed. Written data is kept."""
        self._locked = False

    def power_cut(self, random: Random) -> int:
        """Remove a random part of the unsynced data. Return how many sectors were lost."""
        self._locked = False
        lost = 0
        for file in self._files.values():
            lost += file.power_cut(random)
        return lost

    def wipe(self) -> None:
        """Remove all files."""
        self._files.clear()
        self._locked = False

    def durable_copy(self) -> SimDisk:
        """Return another disk with the durable data, as a standby has it."""
        copy = SimDisk()
        for name, file in self._files.items():
            copy._files[name] = SimFile(copy, file.durable(), file.size())
        return copy

    # The interface of `journal.disk.Disk`

    def lock(self) -> None:
        if self._locked:
            raise InUse()
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def forget_lock(self) -> None: ...

    def names(self) -> list[str]:
        return sorted(self._files)

    def read(self, name: str) -> bytes:
        file = self._find(name)
        return file.read(0, file.size())

    def size(self, name: str) -> int:
        return self._find(name).size()

    def create(self, name: str, size: int, head: bytes) -> SimFile:
        self.check_room()
        file = self._files[name] = SimFile(self, head, size)
        return file

    def begin(self, name: str) -> SimFile:
        self.check_room()
        file = self._files[name + UNFINISHED] = SimFile(self, b"", 0)
        return file

    def finish(self, name: str, file: File) -> None:
        file.sync()
        self.rename(name + UNFINISHED, name)

    def abandon(self, name: str, file: File) -> None:
        self._files.pop(name + UNFINISHED, None)

    def open(self, name: str) -> SimFile:
        return self._find(name)

    def open_to_read(self, name: str) -> SimFile:
        return self._find(name)

    def replace(self, name: str, data: bytes) -> None:
        self._files[name] = SimFile(self, data, len(data))

    def rename(self, name: str, target: str) -> None:
        self._files[target] = self._find(name)
        del self._files[name]

    def remove(self, name: str) -> None:
        self._find(name)
        del self._files[name]

    def free(self) -> int:
        return 0 if self.full else sys.maxsize

    def _find(self, name: str) -> SimFile:
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return file

    def check_room(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on this disk")


class SimFile:
    """One file. Zeros at its end are not stored, because most of a segment of the log is zeros."""

    def __init__(self, disk: SimDisk, data: bytes, size: int) -> None:
        self._disk = disk
        self._data = bytearray(data)
        self._size = size
        self._durable = bytearray(data)
        self._unsynced: list[tuple[int, bytes]] = []

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self._size - offset))
        return bytes(self._data[offset : offset + length]).ljust(length, b"\0")

    def size(self) -> int:
        return self._size

    def durable(self) -> bytes:
        return bytes(self._durable)

    def will_read(self, offset: int, length: int) -> None: ...

    def write(self, offset: int, data: bytes) -> None:
        self._unsynced.append((offset, data))
        _write(self._data, offset, data)
        self._size = max(self._size, len(self._data))

    def sync(self) -> None:
        if self._disk.sync_error is not None:
            # Data that a failed sync did not write stays readable until the power is cut, and no later sync writes it.
            self._unsynced.clear()
            raise self._disk.sync_error
        for offset, data in self._unsynced:
            _write(self._durable, offset, data)
        self._unsynced.clear()

    def fill(self, offset: int, length: int) -> None: ...

    def extend(self, size: int) -> None:
        self._disk.check_room()
        self._size = size

    def truncate(self, size: int) -> None:
        self.sync()
        del self._data[size:]
        del self._durable[size:]
        self._size = size

    def close(self) -> None: ...

    def power_cut(self, random: Random) -> int:
        """Remove none of the unsynced data, all of it, all sectors after a random one, or random sectors.

        Return how many sectors were lost.
        """
        sectors = [sector for offset, data in self._unsynced for sector in _sectors(offset, data)]
        kept = random.choice((0, len(sectors), random.randint(0, len(sectors)), -1))
        survivors = sectors[:kept] if kept >= 0 else [sector for sector in sectors if random.random() < 0.5]
        for offset, data in survivors:
            _write(self._durable, offset, data)
        self._data = bytearray(self._durable)
        self._size = max(self._size, len(self._data))
        self._unsynced.clear()
        return len(sectors) - len(survivors)


def _write(file: bytearray, offset: int, data: bytes) -> None:
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    found = []
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        found.append((offset + start, data[start:end]))
        start = end
    return found
