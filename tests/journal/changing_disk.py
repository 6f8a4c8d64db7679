"""A disk that changes between any two steps of a reader, as a disk in use does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.testing.disk import MemoryDisk, MemoryFile


@dataclass
class ChangingDisk:
    """A reader's view of a disk. A callback in `happens` runs before the step with its number."""

    disk: MemoryDisk
    happens: dict[int, Callable[[], None]] = field(default_factory=dict)
    steps: int = 0
    read_bytes: int = 0  # Bytes read from opened files.
    open_files: int = 0
    open_files_max: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps in self.happens:
            self.happens.pop(self.steps)()

    def names(self) -> list[str]:
        self.step()
        return self.disk.names()

    def read(self, name: str) -> bytes:
        self.step()
        return self.disk.read(name)

    def size(self, name: str) -> int:
        self.step()
        return self.disk.size(name)

    def open_to_read(self, name: str) -> ChangingFile:
        self.step()
        file = ChangingFile(self, self.disk.open_to_read(name))
        self.open_files += 1
        self.open_files_max = max(self.open_files_max, self.open_files)
        return file


class ChangingFile:
    """A file of such a disk."""

    def __init__(self, disk: ChangingDisk, file: MemoryFile) -> None:
        self._disk = disk
        self._file = file
        self._open = True

    def read(self, offset: int, length: int) -> bytes:
        self._disk.step()
        data = self._file.read(offset, length)
        self._disk.read_bytes += len(data)
        return data

    def size(self) -> int:
        self._disk.step()
        return self._file.size()

    def will_read(self, offset: int, length: int) -> None: ...

    def close(self) -> None:
        self._disk.open_files -= self._open
        self._open = False
