"""The state of a worker process, in memory that its supervisor shares.

The supervisor reads it to answer health checks, and when the process has died: then it contains the session of the
process and the jobs that were running. Writing it costs no system call.

     0  token of the session, 32 hexadecimal digits
    32  time of the last heartbeat, f64, monotonic clock
    40  1 if the worker takes jobs, else 0
    64  one slot of 40 bytes for each task that can run at the same time: the id of the job, or zeros
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from typing import Final

_TOKEN: Final = slice(0, 32)
_BEAT: Final = struct.Struct("d")
_BEAT_AT: Final = 32
_READY_AT: Final = 40
_SLOTS_AT: Final = 64
_ID_BYTES: Final = 40
_NO_ID: Final = bytes(_ID_BYTES)

# How often the event loop of a worker writes a heartbeat. Without one for twice as long, the loop hangs.
HEARTBEAT_S: Final = 2.0


class ProcessState:
    """The shared state of one worker process."""

    def __init__(self, fd: int, slots: int) -> None:
        size = _SLOTS_AT + slots * _ID_BYTES
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self._memory = mmap.mmap(fd, size)
        self._free: deque[int] = deque(range(slots))
        self._slots = slots

    # Written by the worker

    def begin(self, token: str) -> None:
        """Record the session of the worker, and that nothing runs."""
        self._memory[_SLOTS_AT:] = bytes(len(self._memory) - _SLOTS_AT)
        self.set_token(token)

    def set_token(self, token: str) -> None:
        """Record the session of the worker."""
        self._memory[_TOKEN] = token.encode().ljust(32, b"\0")[:32]

    def beat(self) -> None:
        """Record that the event loop is alive."""
        _BEAT.pack_into(self._memory, _BEAT_AT, time.monotonic())

    def set_ready(self, ready: bool) -> None:
        """Record whether the worker takes jobs."""
        self._memory[_READY_AT] = ready

    def started(self, job_id: str) -> int:
        """Record that a job runs. Return its slot, or -1 if all slots are in use."""
        try:
            slot = self._free.popleft()
        except IndexError:
            return -1
        start = _SLOTS_AT + slot * _ID_BYTES
        self._memory[start : start + _ID_BYTES] = job_id.encode().ljust(_ID_BYTES, b"\0")[:_ID_BYTES]
        return slot

    def ended(self, slot: int) -> None:
        """Record that the job in a slot no longer runs."""
        if slot >= 0:
            start = _SLOTS_AT + slot * _ID_BYTES
            self._memory[start : start + _ID_BYTES] = _NO_ID
            self._free.append(slot)

    # Read by the supervisor

    @property
    def token(self) -> str:
        """The token of the worker's session; empty if it has not begun one."""
        return self._memory[_TOKEN].rstrip(b"\0").decode()

    @property
    def running(self) -> list[str]:
        """The ids of the jobs that run, or ran when the process died."""
        ids = (self._memory[_SLOTS_AT + at * _ID_BYTES :][:_ID_BYTES] for at in range(self._slots))
        return [id.rstrip(b"\0").decode() for id in ids if id != _NO_ID]

    def is_alive(self) -> bool:
        """Return whether the event loop has written a heartbeat in time."""
        (beat,) = _BEAT.unpack_from(self._memory, _BEAT_AT)
        return bool(time.monotonic() - beat < 2 * HEARTBEAT_S)

    def is_ready(self) -> bool:
        """Return whether the worker takes jobs."""
        return self._memory[_READY_AT] == 1
