"""Frames: sealing, reading and decoding them. Pure and compiled. See layout.py."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le
from librt.vecs import vec
from mypy_extensions import i32, i64, mypyc_attr

from penstock.core.errors import PenstockError
from penstock.core.job import Job
from penstock.journal import layout
from penstock.journal.checksum import crc32

# Distance of two marks in the index of a segment. A mark is the position and the offset of a frame.
MARK_BYTES: Final = 64 * 1024

# A longer length in a header is damage. It is checked before the frame is read.
FRAME_BYTES_MAX: Final = 1 << 30


class DamagedFrame(PenstockError):
    """These bytes are not a frame of this file at this offset."""


class NewerFrame(PenstockError):
    """A newer version has written this frame. It is valid, so it must not be treated as damage."""


def signed_crc(data: bytes, seed: int) -> i32:
    """Return the checksum of some bytes as a signed 32-bit integer."""
    return _signed(crc32(data, seed))


def _signed(crc: int) -> i32:
    return i32(crc - (1 << 32) if crc >= 1 << 31 else crc)


def seal_frame(
    words: vec[i64],
    view: memoryview,
    rows: i64,
    var: BytesWriter,
    kind: i64,
    position: i64,
    now: i64,
    wall: i64,
    durable: i64,
    seed: int,
    version: i64 = layout.FRAME_VERSION,
    row_bytes: i64 = layout.ROW_BYTES,
) -> bytes:
    """Return a frame with its header and checksum, from `rows` rows and their fields of variable length, `var`.

    `words` starts with free space for the header, and the rows follow. `view` is a memoryview of `words`.
    """
    var_bytes: i64 = len(var)
    while len(var) & 7:
        var.append(0)
    end = var.getvalue()
    used = layout.FRAME_HEADER_BYTES // 8 + rows * (row_bytes // 8)
    words[layout.VERSION_AT // 8] = version | (kind << 8) | ((used * 8 + len(end)) << 32)
    words[layout.POSITION_AT // 8] = position
    words[layout.ENGINE_MS_AT // 8] = now
    words[layout.WALL_MS_AT // 8] = wall
    words[layout.ROWS_AT // 8] = rows | (row_bytes << 32)
    words[layout.VAR_BYTES_AT // 8] = var_bytes
    words[layout.DURABLE_AT // 8] = durable
    crc = crc32(view[1:used], seed)
    if end:
        crc = crc32(end, crc)
    words[0] = layout.FRAME_MAGIC | (i64(_signed(crc)) << 32)
    return b"".join([view[:used], end]) if end else bytes(view[:used])


@mypyc_attr(acyclic=True)
class Frame:
    """A decoded frame header, with the offsets of the frame's parts in the bytes that it was read from."""

    at: i64  # Offset of the frame.
    version: i64
    kind: i64
    length: i64
    position: i64
    engine_ms: i64
    wall_ms: i64
    rows: i64
    row_bytes: i64
    rows_at: i64
    var_at: i64
    var_bytes: i64
    durable: i64

    def __init__(self, data: bytes, at: i64) -> None:
        """Decode a header whose magic, version and length were checked."""
        self.at = at
        self.version = i64(data[at + layout.VERSION_AT])
        self.kind = i64(data[at + layout.KIND_AT])
        self.length = i64(read_i32_le(data, at + layout.LENGTH_AT))
        self.position = read_i64_le(data, at + layout.POSITION_AT)
        self.engine_ms = read_i64_le(data, at + layout.ENGINE_MS_AT)
        self.wall_ms = read_i64_le(data, at + layout.WALL_MS_AT)
        self.rows = i64(read_i32_le(data, at + layout.ROWS_AT))
        self.row_bytes = i64(read_i32_le(data, at + layout.ROW_BYTES_AT)) & 0xFFFF
        self.rows_at = at + layout.FRAME_HEADER_BYTES
        self.var_at = self.rows_at + self.rows * self.row_bytes
        self.var_bytes = i64(read_i32_le(data, at + layout.VAR_BYTES_AT))
        self.durable = read_i64_le(data, at + layout.DURABLE_AT)


def read_frame(data: bytes, at: i64, seed: int) -> Frame | None:
    """Return the frame at offset `at`, or None if there are only zeros.

    Raise DamagedFrame if there are other bytes, and NewerFrame for a valid frame of a newer version.
    """
    left = len(data) - at
    if left < layout.FRAME_HEADER_BYTES:
        if any(data[at:]):
            raise DamagedFrame("the frame header is truncated")
        return None
    magic = i64(read_i32_le(data, at))
    if magic == 0 and not any(data[at : at + layout.FRAME_HEADER_BYTES]):
        return None
    if magic != layout.FRAME_MAGIC:
        raise DamagedFrame("no frame begins here")
    length = i64(read_i32_le(data, at + layout.LENGTH_AT))
    if length < layout.FRAME_HEADER_BYTES or length > FRAME_BYTES_MAX or length & 7 or length > left:
        raise DamagedFrame("the frame's length is wrong, or the frame is truncated")
    crc = i64(read_i32_le(data, at + layout.CRC_AT)) & 0xFFFFFFFF
    if i64(crc32(data[at + layout.VERSION_AT : at + length], seed)) != crc:
        raise DamagedFrame("the frame's checksum is wrong")
    _check_version(data, at)
    frame = Frame(data, at)
    if frame.rows < 0 or frame.row_bytes < _row_bytes_min(frame) or frame.var_at > at + length:
        raise DamagedFrame("the frame's number of rows is wrong")
    return frame


def _check_version(data: bytes, at: i64) -> None:
    version = i64(data[at + layout.VERSION_AT])
    if version < 1 or version > layout.FRAME_VERSION:
        raise NewerFrame(f"frame version {version} is not known; use the newer Penstock that wrote it")


def _row_bytes_min(frame: Frame) -> i64:
    return layout.ROW_BYTES_V1 if frame.version == 1 else layout.ROW_BYTES


def decode_v1(row: bytes) -> bytes:
    """Return a row of version 1 as a row of this version: the fields that it lacks are 0, which means unknown."""
    return row[: layout.ROW_BYTES_V1] + bytes(layout.ROW_BYTES - layout.ROW_BYTES_V1)


def read_frames(data: bytes, at: i64, base: i64, seed: int, last: bool) -> list[Frame]:
    """Return the consecutive complete frames of a piece of a file.

    `base` is the offset of the piece in the file, `seed` is the seed of the file's checksums, and `last` says that no
    bytes follow the piece. The list ends before the first frame that is invalid or newer. `read_frame` raises the error
    for that frame.
    """
    found: list[Frame] = []
    while len(data) - at >= layout.FRAME_HEADER_BYTES:
        length = i64(read_i32_le(data, at + layout.LENGTH_AT))
        if length > len(data) - at and not last:
            break
        try:
            frame = read_frame(data, at, seed_at(seed, base + at))
        except (DamagedFrame, NewerFrame):
            break
        if frame is None:
            break
        found.append(frame)
        at += frame.length
    return found


def parse_sent_frames(data: bytes) -> list[Frame]:
    """Return the frames that a server has sent one after the other.

    Raise DamagedFrame if one of them is invalid, and NewerFrame if a newer version has written one.
    The checksums are not checked, because they depend on the offset in the file. The server has checked them.
    """
    found: list[Frame] = []
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        if end - at < layout.FRAME_HEADER_BYTES or i64(read_i32_le(data, at)) != layout.FRAME_MAGIC:
            raise DamagedFrame("no frame begins here")
        _check_version(data, at)
        frame = Frame(data, at)
        if frame.length < layout.FRAME_HEADER_BYTES or frame.length > end - at:
            raise DamagedFrame("the frame's length is wrong, or the frame is truncated")
        if (
            frame.rows < 0
            or frame.row_bytes < _row_bytes_min(frame)
            or frame.var_at + frame.var_bytes > at + frame.length
        ):
            raise DamagedFrame("the frame's number of rows is wrong")
        found.append(frame)
        at += frame.length
    return found


def seed_at(seed: int, offset: i64) -> int:
    """Return the seed of a frame's checksum. It depends on file and offset, so that the frame is valid only there."""
    return seed ^ (offset >> 3)


def load_row(job: Job, data: bytes, at: i64, frame: Frame, position: i64) -> None:
    """Set the fields of a job from a row, except for its state and its var fields."""
    job.order = read_i64_le(data, at + layout.ORDER_AT)
    job.wake = read_i64_le(data, at + layout.WAKE_AT)
    job.expiry = read_i64_le(data, at + layout.EXPIRY_AT)
    job.ttr = read_i64_le(data, at + layout.TTR_AT)
    job.priority = read_i64_le(data, at + layout.PRIORITY_AT)
    job.created = read_i64_le(data, at + layout.CREATED_AT)
    job.position = position
    job.local = read_i64_le(data, at + layout.NUMBER_AT)
    job.deliveries = read_i32_le(data, at + layout.DELIVERIES_AT)
    job.nacks = read_i32_le(data, at + layout.NACKS_AT)
    job.returns = read_i32_le(data, at + layout.RETURNS_AT)
    job.ttl_minutes = read_i32_le(data, at + layout.TTL_MINUTES_AT)
    job.body_kind = data[at + layout.BODY_KIND_AT]
    job.format = data[at + layout.FORMAT_AT]
    job.once = (i64(data[at + layout.FLAGS_AT]) & layout.FLAG_ONCE) != 0
    if data[at + layout.FROM_AT] != data[at + layout.TO_AT]:
        job.since = read_i64_le(data, at + layout.TIME_AT)
    elif frame.version > 1:
        job.since = read_i64_le(data, at + layout.SINCE_AT)
    elif job.since == 0:
        # Version 1 has no time at which the state began, and no earlier row of the job was read.
        job.since = job.created


@mypyc_attr(acyclic=True)
class Row:
    """The fixed fields of a row about a job, for display."""

    job: i64
    wake: i64
    expiry: i64
    priority: i64
    holder: i64
    actor: i64  # 0 in version 1.
    since: i64  # 0 in version 1.
    local: i64
    tube: i64
    deliveries: i64
    nacks: i64
    returns: i64
    ttl_minutes: i64
    before: i64
    after: i64

    def __init__(self, data: bytes, at: i64, frame: Frame) -> None:
        self.job = read_i64_le(data, at)
        self.wake = read_i64_le(data, at + layout.WAKE_AT)
        self.expiry = read_i64_le(data, at + layout.EXPIRY_AT)
        self.priority = read_i64_le(data, at + layout.PRIORITY_AT)
        self.holder = read_i64_le(data, at + layout.HOLDER_AT)
        self.actor = read_i64_le(data, at + layout.ACTOR_AT) if frame.version > 1 else 0
        self.since = read_i64_le(data, at + layout.SINCE_AT) if frame.version > 1 else 0
        self.local = read_i64_le(data, at + layout.NUMBER_AT)
        self.tube = read_i64_le(data, at + layout.TUBE_AT)
        self.deliveries = i64(read_i32_le(data, at + layout.DELIVERIES_AT))
        self.nacks = i64(read_i32_le(data, at + layout.NACKS_AT))
        self.returns = i64(read_i32_le(data, at + layout.RETURNS_AT))
        self.ttl_minutes = i64(read_i32_le(data, at + layout.TTL_MINUTES_AT))
        self.before = i64(data[at + layout.FROM_AT])
        self.after = i64(data[at + layout.TO_AT])


def integer_at(data: bytes, at: i64) -> i64:
    """Return the 64-bit field of a row at offset `at`."""
    return read_i64_le(data, at)


def var_fields(data: bytes, row_at: i64, frame: Frame) -> list[tuple[int, bytes]]:
    """Return the tags and values of the var fields of a row."""
    at = frame.var_at + i64(read_i32_le(data, row_at + layout.VAR_OFFSET_AT))
    end = at + i64(read_i32_le(data, row_at + layout.VAR_LENGTH_AT))
    found: list[tuple[int, bytes]] = []
    while at < end:
        length = i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT))
        value_at = at + layout.VAR_HEADER_BYTES
        found.append((data[at], data[value_at : value_at + length]))
        at = value_at + length
    return found


@mypyc_attr(acyclic=True)
class Names:
    """The names that a segment contains, by number. Tubes and sessions have different numbers."""

    tubes: dict[int, bytes]
    sessions: dict[int, tuple[bytes, bytes]]  # Name and user, each empty if the session has none.

    def __init__(self) -> None:
        self.tubes = {}
        self.sessions = {}

    def copy(self) -> Names:
        copy = Names()
        copy.tubes = self.tubes.copy()
        copy.sessions = self.sessions.copy()
        return copy

    def add(self, data: bytes, at: i64, frame: Frame) -> None:
        """Add the names in a row that is not about a job."""
        event = i64(data[at + layout.EVENT_AT])
        if event <= layout.INTEGERS_RESERVED or event == layout.TUBE_NAMED:
            self.tubes[read_i64_le(data, at)] = dict(var_fields(data, at, frame))[layout.TAG_NAME]
        elif event == layout.SESSION_NAMED:
            fields = dict(var_fields(data, at, frame))
            self.sessions[read_i64_le(data, at)] = (fields[layout.TAG_NAME], fields[layout.TAG_USER])


def index_frames(
    data: bytes, frames: list[Frame], base: i64, newest: dict[int, int], names: Names, marks: list[int]
) -> None:
    """Record the newest row of each job in `newest`, and the names of tubes and sessions in `names`.

    `marks` gets the position and the offset of one frame about every MARK_BYTES bytes.
    """
    for found in frames:
        if not marks or base + found.at - marks[-1] >= MARK_BYTES:
            marks.append(found.position)
            marks.append(base + found.at)
        at = found.rows_at
        position = found.position
        for _ in range(found.rows):
            event = i64(data[at + layout.EVENT_AT])
            if event < layout.TUBE_MADE:
                newest[read_i64_le(data, at)] = position
            else:
                names.add(data, at, found)
            at += found.row_bytes
            position += 1


def reseal_frame(data: bytes, found: Frame, bodies: bool, seed: int) -> bytes:
    """Return a copy of a frame for another file or offset. The copy has the bodies of jobs only if `bodies` is set."""
    header_words: i64 = layout.FRAME_HEADER_BYTES // 8
    row_words = found.row_bytes // 8
    words = vec[i64]([0] * (header_words + found.rows * row_words))
    var = BytesWriter()
    word = header_words
    row_at = found.rows_at
    while row_at < found.var_at:
        start: i64 = len(var)
        at = found.var_at + i64(read_i32_le(data, row_at + layout.VAR_OFFSET_AT))
        end = at + i64(read_i32_le(data, row_at + layout.VAR_LENGTH_AT))
        while at < end:
            length = i64(read_i32_le(data, at + layout.VAR_FIELD_LENGTH_AT)) + layout.VAR_HEADER_BYTES
            if bodies or data[at] != layout.TAG_BODY:
                var.write(data[at : at + length])
            at += length
        for i in range(row_words):
            words[word + i] = read_i64_le(data, row_at + 8 * i)
        words[word + layout.VAR_OFFSET_AT // 8] = start | ((len(var) - start) << 32)
        word += row_words
        row_at += found.row_bytes
    return seal_frame(
        words,
        memoryview(words),
        found.rows,
        var,
        layout.LOG_FRAME,
        found.position,
        found.engine_ms,
        found.wall_ms,
        found.durable,
        seed,
        found.version,
        found.row_bytes,
    )
