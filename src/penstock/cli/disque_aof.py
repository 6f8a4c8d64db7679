"""The append-only file of Disque: which jobs it comes to, and what each of them says.

The file holds commands as clients send them, of two kinds: `LOADJOB <job>` when a job came, `DELJOB <id>` when it was
acked, deleted or expired. What is left when all are read is what the queue held. A job is one string, little endian:

    +--------+----+-------+-------+------+-------+-------+-------+-------+-------+------------+-------+------+-------+
    | length | id | state | flags | repl | etime | ctime | delay | retry | nacks | deliveries | queue | body | nodes |
    | 4      | 40 | 1     | 1     | 2    | 4     | 8     | 4     | 4     | 2     | 2          | 4 + n | 4 + n| 4 + 40 n
    +--------+----+-------+-------+------+-------+-------+-------+-------+-------+------------+-------+------+-------+

`length` counts what follows it. The state is in the low four bits of its byte. `etime` is when the job expires, in
seconds since 1970; `ctime` when it was made, in milliseconds times a million, and a counter within the millisecond;
`delay` and `retry` are seconds; a retry of 0 means that the job may be delivered once at most.
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

# The longest string that Disque takes, and more words than any line of this file has.
_WORD_BYTES_MAX: Final = 512 * 1024 * 1024
_WORDS_MAX: Final = 1024 * 1024
_LINE_BYTES_MAX: Final = 32


class DamagedAof(Exception):
    """What is no append-only file of Disque, or is one no more."""


@dataclass(frozen=True, slots=True)
class AofJob:
    """One job as the file has it."""

    id: bytes
    state: int
    flags: int
    expires_ms: int
    created: int  # As Disque counts: milliseconds times a million, and a counter.
    delay_ms: int
    retry_s: int
    nacks: int
    queue: bytes
    body: bytes

    def delay_left_ms(self, now_ms: int) -> int:
        """What is left of its delay; never more than all of it, whatever the clock of its node said."""
        return min(self.delay_ms, max(0, self.created // _CTIMES_PER_MS + self.delay_ms - now_ms))

    @property
    def is_once(self) -> bool:
        return self.retry_s == 0

    @property
    def was_delivered(self) -> bool:
        """Whether it is known to have been handed out. Mostly it is not: the file does not follow the queue."""
        return self.flags & _DELIVERED_FLAG != 0


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file comes to."""

    offsets: list[int]  # Where the commands are that hold the jobs which are left, oldest job first.
    gone: int  # Jobs that were acked, deleted or expired before the file ended.
    torn_bytes: int  # At its end, of a command that was not written whole.


def contents(file: BinaryIO, size: int, progress: Callable[[int, int], None]) -> Contents:
    """Read a whole file, and tell what is left of it."""
    left: dict[bytes, tuple[int, int]] = {}  # By id: when the job was made, and where its command is.
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
            raise DamagedAof(f"at byte {offset} is no LOADJOB and no DELJOB; this is no append-only file of Disque")
        offset = file.tell()
        count += 1
        if count % 4_096 == 0:
            progress(offset, size)
    return Contents([place for _, place in sorted(left.values())], gone, size - offset)


def job_at(file: BinaryIO, offset: int, size: int) -> AofJob:
    """The job that the command at this offset holds."""
    words = _command(file, offset, size)
    if words is None:
        raise DamagedAof(f"the job at byte {offset} is gone: the file changed meanwhile")
    return decode(words[1], offset)


def decode(raw: bytes, offset: int = 0) -> AofJob:
    """The job that a string holds; `offset` is where to say that the damage is."""
    _, id, state, flags, _, expires, created, delay, retry, nacks, _ = _head(raw, offset)
    queue, at = _string(raw, _HEAD.size, offset)
    body, at = _string(raw, at, offset)
    nodes, at = _number(raw, at, offset)
    if at + nodes * _NODE_BYTES != len(raw):
        raise _no_job(offset)
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


def _head(raw: bytes, offset: int) -> tuple[int, bytes, int, int, int, int, int, int, int, int, int]:
    if len(raw) < _HEAD.size or _LENGTH.unpack_from(raw)[0] != len(raw) - _LENGTH.size:
        raise _no_job(offset)
    return _HEAD.unpack_from(raw)


def _string(raw: bytes, at: int, offset: int) -> tuple[bytes, int]:
    length, at = _number(raw, at, offset)
    if at + length > len(raw):
        raise _no_job(offset)
    return raw[at : at + length], at + length


def _number(raw: bytes, at: int, offset: int) -> tuple[int, int]:
    if at + _LENGTH.size > len(raw):
        raise _no_job(offset)
    return _LENGTH.unpack_from(raw, at)[0], at + _LENGTH.size


def _no_job(offset: int) -> DamagedAof:
    return DamagedAof(f"the job at byte {offset} is damaged")


# ---- Commands in a file ----------------------------------------------------------------------------------------------


def _command(file: BinaryIO, offset: int, size: int) -> list[bytes] | None:
    """The words of the command at an offset; None if the file ends within it."""
    file.seek(offset)
    count = _line(file, b"*", offset, _WORDS_MAX)
    if count == 0:
        raise _not_written_so(offset)
    words = []
    for _ in range(count or 0):
        length = _line(file, b"$", offset, _WORD_BYTES_MAX)
        if length is None or file.tell() + length + 2 > size:
            return None
        word = file.read(length + 2)
        if not word.endswith(b"\r\n"):
            raise _not_written_so(offset)
        words.append(word[:-2])
    return words or None


def _line(file: BinaryIO, begin: bytes, offset: int, most: int) -> int | None:
    """The number on the next line; None if the file ends within it."""
    line = file.readline(_LINE_BYTES_MAX)
    digits = line[1:-2]
    if not line.endswith(b"\r\n"):
        # At the end of a file this is all that there is; anywhere else no line is that long.
        if len(line) < _LINE_BYTES_MAX and not line.endswith(b"\n") and line[:1] in (begin, b""):
            return None
        raise _not_written_so(offset)
    if line[:1] != begin or not digits.isdigit() or int(digits) > most:
        raise _not_written_so(offset)
    return int(digits)


def _not_written_so(offset: int) -> DamagedAof:
    return DamagedAof(f"the command at byte {offset} is damaged, or this is no append-only file of Disque")
