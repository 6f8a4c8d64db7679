"""Reader of Disque's append-only file.

The file contains two kinds of commands, as clients send them: `LOADJOB <job>` when a job was added, `DELJOB <id>` when
it was acked, deleted or expired. The jobs that remain after all commands are the content of the queue. A job is one
string, little endian:

    +--------+----+-------+-------+------+-------+-------+-------+-------+-------+------------+-------+------+-------+
    | length | id | state | flags | repl | etime | ctime | delay | retry | nacks | deliveries | queue | body | nodes |
    | 4      | 40 | 1     | 1     | 2    | 4     | 8     | 4     | 4     | 2     | 2          | 4 + n | 4 + n| 4 + 40 n
    +--------+----+-------+-------+------+-------+-------+-------+-------+-------+------------+-------+------+-------+

`length` counts the bytes after it. The state is in the low four bits of its byte. `etime` is the expiry in seconds
since 1970. `ctime` is the creation time in milliseconds times a million, plus a counter within the millisecond. `delay`
and `retry` are seconds. A retry of 0 means that the job is delivered at most once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final

_HEAD: Final = struct.Struct("<I40sBBHIQIIHH")
_LENGTH: Final = struct.Struct("<I")
_NODE_BYTES: Final = 40
_CTIMES_PER_MS: Final = 1_000_000

_ACKED: Final = 3
_DELIVERED_FLAG: Final = 4

# The longest string that Disque accepts, and a bound that no command of this file reaches.
_WORD_BYTES_MAX: Final = 512 * 1024 * 1024
_WORDS_MAX: Final = 1024 * 1024
_LINE_BYTES_MAX: Final = 32


class DamagedAof(Exception):
    """The file is not an append-only file of Disque, or it is damaged."""


@dataclass(frozen=True, slots=True)
class AofJob:
    """One job of the file."""

    id: bytes
    state: int
    flags: int
    expires_ms: int
    created: int  # Disque's ctime: milliseconds times a million, plus a counter.
    delay_ms: int
    retry_s: int
    nacks: int
    queue: bytes
    body: bytes

    def delay_left_ms(self, now_ms: int) -> int:
        """Return the remaining delay. It is at most the whole delay, even if the clock of the node was wrong."""
        return min(self.delay_ms, max(0, self.created // _CTIMES_PER_MS + self.delay_ms - now_ms))

    @property
    def is_once(self) -> bool:
        return self.retry_s == 0

    @property
    def was_delivered(self) -> bool:
        """Return whether the file records that the job was delivered. Most deliveries are not recorded."""
        return self.flags & _DELIVERED_FLAG != 0


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a file after all commands."""

    offsets: list[int]  # Offsets of the commands with the remaining jobs, oldest job first.
    gone: int  # Jobs that were acked, deleted or expired before the file ended.
    torn_bytes: int  # Bytes of an incomplete command at the end.


def contents(file: BinaryIO, size: int, progress: Callable[[int, int], None]) -> Contents:
    """Read the whole file and return the remaining jobs."""
    left: dict[bytes, tuple[int, int]] = {}  # By id: ctime of the job, and offset of its command.
    gone = 0
    count = 0
    offset = 0
    while offset < size:
        words = _command(file, offset, size)
        if words is None:
            break
        name = words[0].upper()
        if name == b"LOADJOB" and len(words) == 2:
            job = decode(words[1], offset)
            if job.state == _ACKED:
                left.pop(job.id, None)
                gone += 1
            else:
                left[job.id] = job.created, offset
        elif name == b"DELJOB":
            for id in words[1:]:
                gone += left.pop(id, None) is not None
        else:
            raise DamagedAof(
                f"the command at byte {offset} is neither LOADJOB nor DELJOB; this is not an append-only file of Disque"
            )
        offset = file.tell()
        count += 1
        if count % 4_096 == 0:
            progress(offset, size)
    return Contents([place for _, place in sorted(left.values())], gone, size - offset)


def job_at(file: BinaryIO, offset: int, size: int) -> AofJob:
    words = _command(file, offset, size)
    if words is None:
        raise DamagedAof(f"the job at byte {offset} is gone: the file changed meanwhile")
    return decode(words[1], offset)


def decode(raw: bytes, offset: int = 0) -> AofJob:
    """Decode a job. Errors name `offset` as the position of the damage."""
    if len(raw) < _HEAD.size or _LENGTH.unpack_from(raw)[0] != len(raw) - _LENGTH.size:
        raise _damaged_job(offset)
    _, id, state, flags, _, expires, created, delay, retry, nacks, _ = _HEAD.unpack_from(raw)
    queue, at = _string(raw, _HEAD.size, offset)
    body, at = _string(raw, at, offset)
    nodes, at = _number(raw, at, offset)
    if at + nodes * _NODE_BYTES != len(raw):
        raise _damaged_job(offset)
    return AofJob(
        id=id,
        state=state & 15,
        flags=flags,
        expires_ms=expires * 1_000,
        created=created,
        delay_ms=delay * 1_000,
        retry_s=retry,
        nacks=nacks,
        queue=queue,
        body=body,
    )


def _string(raw: bytes, at: int, offset: int) -> tuple[bytes, int]:
    length, at = _number(raw, at, offset)
    if at + length > len(raw):
        raise _damaged_job(offset)
    return raw[at : at + length], at + length


def _number(raw: bytes, at: int, offset: int) -> tuple[int, int]:
    if at + _LENGTH.size > len(raw):
        raise _damaged_job(offset)
    return _LENGTH.unpack_from(raw, at)[0], at + _LENGTH.size


def _damaged_job(offset: int) -> DamagedAof:
    return DamagedAof(f"the job at byte {offset} is damaged")


# ---- Commands in a file ----------------------------------------------------------------------------------------------


def _command(file: BinaryIO, offset: int, size: int) -> list[bytes] | None:
    """Return the words of the command at an offset, or None if the file ends within it."""
    file.seek(offset)
    count = _line(file, b"*", offset, _WORDS_MAX)
    if count == 0:
        raise _damaged_command(offset)
    words = []
    for _ in range(count or 0):
        length = _line(file, b"$", offset, _WORD_BYTES_MAX)
        if length is None or file.tell() + length + 2 > size:
            return None
        word = file.read(length + 2)
        if not word.endswith(b"\r\n"):
            raise _damaged_command(offset)
        words.append(word[:-2])
    return words or None


def _line(file: BinaryIO, begin: bytes, offset: int, most: int) -> int | None:
    """Return the number on the next line, or None if the file ends within it."""
    line = file.readline(_LINE_BYTES_MAX)
    digits = line[1:-2]
    if not line.endswith(b"\r\n"):
        # Only the last line of the file can be incomplete. A longer line is damage.
        if len(line) < _LINE_BYTES_MAX and not line.endswith(b"\n") and line[:1] in (begin, b""):
            return None
        raise _damaged_command(offset)
    if line[:1] != begin or not digits.isdigit() or int(digits) > most:
        raise _damaged_command(offset)
    return int(digits)


def _damaged_command(offset: int) -> DamagedAof:
    return DamagedAof(f"the command at byte {offset} is damaged, or this is not an append-only file of Disque")
