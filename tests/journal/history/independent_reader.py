"""A reader of the journal that was written from docs/explanation/journal.md alone, without Penstock's code.

It shows that the page is complete. It reads versions 1 and 2, and recovers the jobs of a directory.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEADER_BYTES = 4_096
MOVED_OUT = "moved out"


class Unknown(Exception):
    """A number that this reader does not know and must not skip."""


@dataclass
class Row:
    position: int
    version: int
    job: int  # Or the number of a tube or session.
    time: int
    created: int
    previous: int
    holder: int
    tube: int
    deliveries: int
    event: int
    before: int
    after: int
    format: int
    since: int  # 0 in version 1.
    actor: int  # 0 in version 1.
    fields: dict[int, list[bytes]] = field(default_factory=dict)

    def get(self, tag: int) -> bytes | None:
        return self.fields[tag][0] if tag in self.fields else None


@dataclass
class Frame:
    version: int
    kind: int
    position: int
    rows: list[Row]


def read_file(path: Path) -> tuple[dict[str, Any], list[Frame]]:
    """Return the text of the header of a segment or snapshot, and its frames."""
    data = path.read_bytes()
    magic, version, bits, length, crc = struct.unpack_from("<8sHHII", data)
    if magic != b"PENSTOCK" or not 1 <= version <= 2 or bits:
        raise Unknown(f"{path.name}: version {version}, bits {bits}")
    text = data[20 : 20 + length]
    assert zlib.crc32(text) == crc
    header: dict[str, Any] = json.loads(text)
    kind = "snapshot " if header["kind"] == "snapshot" else ""
    seed = zlib.crc32(f"{header['node']} {kind}{header['segment']} ".encode())
    frames, at = [], HEADER_BYTES
    while at + 64 <= len(data) and any(data[at : at + 64]):
        frame, length = read_frame(data, at, seed)
        if frame is None:
            break
        frames.append(frame)
        at += length
    return header, frames


def read_frame(data: bytes, at: int, seed: int) -> tuple[Frame | None, int]:
    """Return a frame and its length, or None for a torn end."""
    magic, crc, version, kind, _, length, position, _, _, rows, row_bytes = struct.unpack_from(
        "<4sIBBHIQqqIH", data, at
    )
    if magic != b"PENF" or length % 8 or at + length > len(data):
        return None, 0
    if zlib.crc32(data[at + 8 : at + length], seed ^ (at // 8)) != crc:
        return None, 0
    if version > 2:
        raise Unknown(f"frame version {version}")
    var_at = at + 64 + rows * row_bytes
    found = [read_row(data, at + 64 + n * row_bytes, var_at, version, position + n) for n in range(rows)]
    return Frame(version, kind, position, found), length


def read_row(data: bytes, at: int, var_at: int, version: int, position: int) -> Row:
    job, _, _, _, _, _, time, created, previous, holder, _, tube = struct.unpack_from("<12q", data, at)
    (deliveries,) = struct.unpack_from("<I", data, at + 96)
    event, before, after = data[at + 112 : at + 115]
    offset, length = struct.unpack_from("<II", data, at + 120)
    since, actor = struct.unpack_from("<qq", data, at + 128) if version > 1 else (0, 0)
    if 141 <= event < 192:
        raise Unknown(f"event {event}")
    row = Row(
        position, version, job, time, created, previous, holder, tube, deliveries, event, before, after, data[at + 117],
        since, actor,
    )  # fmt: skip
    place = var_at + offset
    while place < var_at + offset + length:
        tag, size = struct.unpack_from("<BI", data, place)
        if tag == 0 or (19 <= tag < 192 and tag != 20):
            raise Unknown(f"tag {tag}")
        row.fields.setdefault(tag, []).append(data[place + 5 : place + 5 + size])
        place += 5 + size
    return row


def read_headers(encoded: bytes) -> dict[str, bytes]:
    found, at = {}, 0
    while at < len(encoded):
        name, value = struct.unpack_from("<HH", encoded, at)
        found[encoded[at + 4 : at + 4 + name].decode()] = encoded[at + 4 + name : at + 4 + name + value]
        at += 4 + name + value
    return found


@dataclass
class KnownJob:
    """The last row of a job, and the fields that are only in some rows."""

    row: Row
    at: int  # Position of its newest row in the log.
    body: bytes
    headers: dict[str, bytes]
    since: int


class Recovered:
    """The jobs of a directory."""

    def __init__(self, directory: Path, event_numbers: dict[str, int]) -> None:
        self.jobs: dict[int, KnownJob] = {}
        self.tubes: dict[int, bytes] = {}
        self.sessions: dict[int, tuple[bytes, bytes]] = {}
        self.rows: list[Row] = []
        self._moved_out = event_numbers[MOVED_OUT]
        first = 1
        snapshots = sorted(directory.glob("snapshot-*.log"))
        if snapshots:
            header, frames = read_file(snapshots[-1])
            assert frames[-1].kind == 3
            first = header["segment"]
            for frame in frames:
                self._apply_snapshot(frame)
        for path in sorted(directory.glob("segment-*.log")):
            header, frames = read_file(path)
            self.rows += [row for frame in frames for row in frame.rows]
            for frame in frames if header["segment"] >= first else []:
                self._apply(frame)

    def _apply_snapshot(self, frame: Frame) -> None:
        for row in frame.rows:
            if row.event == 127:
                since = row.since if row.version > 1 else row.created
                headers = read_headers(row.get(16) or b"")
                self.jobs[row.job] = KnownJob(row, row.previous, row.get(1) or b"", headers, since)
            else:
                self._other(row)

    def _apply(self, frame: Frame) -> None:
        leaving: set[int] = set()
        for row in frame.rows:
            if row.event >= 127:
                self._other(row)
                continue
            known = self.jobs.get(row.job)
            if known is not None and row.position <= known.at:
                continue
            if row.event == self._moved_out:
                leaving.add(row.job)
                continue
            leaving.discard(row.job)
            if row.after == 0:
                self.jobs.pop(row.job, None)
                continue
            body = row.get(1)
            if known is None and body is None:
                continue  # It ended while the snapshot was written.
            changed = row.before != row.after
            old = row.since if row.version > 1 else row.created if known is None else known.since
            self.jobs[row.job] = KnownJob(
                row,
                row.position,
                body if body is not None else known.body if known else b"",
                read_headers(row.get(16) or b"") or (known.headers if known else {}),
                row.time if changed else old,
            )
        for job in leaving:
            self.jobs.pop(job, None)

    def _other(self, row: Row) -> None:
        if row.event in (128, 129, 131, 137):
            self.tubes[row.job] = row.get(5) or b""
        elif row.event == 130:
            self.tubes.pop(row.job, None)
        elif row.event == 140:
            self.sessions[row.job] = (row.get(5) or b"", row.get(17) or b"")


def waits(rows: list[Row], taken: int) -> Iterator[int]:
    """Yield how long each job waited before a take, in ms."""
    for row in rows:
        if row.event == taken and row.since:
            yield row.time - row.since
