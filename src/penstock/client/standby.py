"""A standby: a copy of the log of a node, which can replace the node when it is lost.

A standby fetches the files of the node as a client and stores them in a directory of its own
(`journal/maintenance/mirror.py`). First comes the log, up to the last durable position. Then comes the newest snapshot,
which replaces everything before it. Then the standby removes the files that the node has removed. After an
interruption it continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.client.commands import REPEAT, Call, Reply, duration
from penstock.client.reconnecting_connection import ReconnectingConnection
from penstock.client.url import Target
from penstock.core.errors import CommandError, DamagedJournal, Trimmed
from penstock.journal.frame import parse_sent_frames
from penstock.journal.identity import Identity
from penstock.journal.maintenance.mirror import FrameFacts, Mirror
from penstock.journal.segment import (
    SEGMENT_HEADER_BYTES,
    is_snapshot,
    number_of,
    read_header,
    segment_name,
)

# The number of bytes of the log that are asked for at a time.
_READ_BYTES: Final = 4 * 1024 * 1024

# The number of bytes of a file that are asked for at a time.
_FETCH_BYTES: Final = 4 * 1024 * 1024

# The list of files is asked for at this interval, and whenever the node begins a segment.
_REFRESH_S: Final = 5.0

# The number of attempts if the node removes files while they are fetched.
_TRIES: Final = 10

T = TypeVar("T")


@dataclass(frozen=True)
class NodeFile:
    """A file of the node's log."""

    name: str
    bytes: int
    bodies: bool


@dataclass(frozen=True)
class Files:
    """The identity and the files of the node."""

    who: Identity
    end: int  # The position after the last durable row.
    written: int  # The position after the last row.
    files: list[NodeFile]

    @property
    def snapshot(self) -> NodeFile | None:
        """The newest snapshot; None if there is none."""
        return next((file for file in reversed(self.files) if is_snapshot(file.name)), None)

    def is_history(self, segment: int) -> bool:
        """Return whether a segment is older than the newest snapshot."""
        return self.snapshot is not None and segment < number_of(self.snapshot.name)

    def bytes_behind(self, segment: int, offset: int) -> int:
        """Return how many bytes the log has after this offset in this segment."""
        log = [file for file in self.files if not is_snapshot(file.name)]
        here = sum(file.bytes - offset for file in log if file.name == segment_name(segment))
        return here + sum(file.bytes for file in log if file.name > segment_name(segment))


@dataclass(frozen=True)
class Lag:
    """How far a standby is behind its node."""

    position: int  # The last position that the standby has.
    rows: int
    bytes: int
    seconds: float  # Time since the standby last had everything.


class Standby:
    """One directory that follows one node."""

    def __init__(self, target: Target, mirror: Mirror) -> None:
        """Connect to the node. Retry an unreachable node only if the target has the option `retry_for`."""
        self._link = ReconnectingConnection(target)
        self._mirror = mirror
        self._files: Files | None = None
        self._refreshed_at = 0.0
        self._caught_up = time.monotonic()
        # Called with the number of bytes of a snapshot that were fetched, and its size.
        self.on_progress: Callable[[int, int], None] = lambda done, total: None

    def close(self) -> None:
        self._link.close()

    @property
    def lag(self) -> Lag:
        """How far this standby was behind when the node last listed its files."""
        mirror, files = self._mirror, self._files
        position = mirror.position - 1
        if files is None:
            return Lag(position, 0, 0, 0.0)
        rows = max(0, files.written - mirror.position)
        behind = files.bytes_behind(mirror.segment, mirror.end) if rows else 0
        return Lag(position, rows, behind, time.monotonic() - self._caught_up if rows else 0.0)

    def catch_up(self) -> None:
        """Fetch everything that the node has now."""
        for _ in range(_TRIES):
            if self._try_to_catch_up():
                return
        raise CommandError("the node removes files faster than they can be fetched; let it keep more history")

    def fetch_next(self, wait_ms: int) -> None:
        """Fetch the next piece of the log. If there is none, wait for it for up to `wait_ms`."""
        segment = self._mirror.segment
        try:
            self._read(wait_ms)
        except Trimmed:
            segment = 0
        if self._mirror.segment != segment or time.monotonic() - self._refreshed_at >= _REFRESH_S:
            self.catch_up()

    def _try_to_catch_up(self) -> bool:
        """Fetch everything that the node has now. Return False if the node removed some of it meanwhile."""
        files = self._refresh_files()
        mirror = self._mirror
        try:
            if mirror.segment == 0:
                self._begin(files)
            while mirror.position < files.end:
                self._read(0)
            newest = files.snapshot
            if newest is not None and mirror.needs_snapshot(newest.name):
                done = 0

                def on_progress(count: int) -> None:
                    nonlocal done
                    done += count
                    self.on_progress(done, newest.bytes)

                mirror.fetch_snapshot(newest.name, newest.bytes, self._fetch, on_progress)
        except Trimmed:
            if files.is_history(mirror.segment):
                mirror.start_rebuild()
            return False
        mirror.remove_obsolete(files.files)
        return True

    def _refresh_files(self) -> Files:
        """Ask the node for its files. Raise an error if it is another node, or its log does not continue the copy."""
        mirror = self._mirror
        self._files = files = self._ask([b"FILES"], _files)
        self._refreshed_at = time.monotonic()
        mirror.follow(files.who)
        if mirror.position > files.end or not self._is_the_same_log():
            raise DamagedJournal(
                f"node {files.who.node} has another log than this directory: the node was restored to an earlier "
                "state. If this directory has jobs that the node lost, keep it; start the standby in a new directory"
            )
        return files

    def _is_the_same_log(self) -> bool:
        """Return whether the node's log has the last commit of this standby.

        Bodies are not compared, because the node can have removed them from its history.
        """
        last = self._mirror.last_frame
        if last is None:
            return True
        try:
            _, data = self._ask([b"READ", b"%d" % last.position, b"BYTES", b"1"], list)
        except Trimmed:
            return True
        return bool(data) and FrameFacts.of(parse_sent_frames(data)[0]) == last

    def _begin(self, files: Files) -> None:
        """Begin at the newest snapshot, or with the first segment if there is none."""
        number, position = 1, 1
        if files.snapshot is not None:
            name = files.snapshot.name
            header = read_header(name, self._fetch(name, 0, SEGMENT_HEADER_BYTES))
            number, position = header.segment, header.position
        self._mirror.begin_at(number, position, self._fetch)

    def _read(self, wait_ms: int) -> None:
        mirror = self._mirror
        words = [b"READ", b"%d" % mirror.position, b"BYTES", b"%d" % _READ_BYTES, b"PLACE"]
        _, data, name, offset = self._ask([*words, b"TIMEOUT", duration(wait_ms)], list, wait_ms)
        if data:
            self._append(name.decode(), offset, data)
        files = self._files
        if files is None or not data or mirror.position >= files.written:
            self._caught_up = time.monotonic()

    def _append(self, name: str, offset: int, data: bytes) -> None:
        try:
            self._mirror.append(name, offset, data, self._fetch)
        except DamagedJournal:
            if not self._refresh_files().is_history(self._mirror.segment):
                raise
            # The node has rewritten the segment without bodies.
            raise Trimmed() from None

    def _fetch(self, name: str, offset: int, length: int) -> bytes:
        parts = []
        while length > 0:
            words = [b"FETCH", name.encode(), b"%d" % offset, b"BYTES", b"%d" % min(length, _FETCH_BYTES)]
            data = self._ask(words, bytes)
            if not data:
                break
            parts.append(data)
            offset += len(data)
            length -= len(data)
        return b"".join(parts)

    def _ask(self, words: list[bytes], read: Callable[[Reply], T], wait_ms: int = 0) -> T:
        return self._link.call(Call([b"JOURNAL", *words], read, REPEAT, wait_ms))


def _files(answer: Reply) -> Files:
    try:
        fields = {name.decode(): value for name, value in answer.items()}
        who = Identity(
            fields["node"].decode(),
            bytes.fromhex(fields["key"].decode()),
            node_epoch=fields["node_epoch"],
            log=fields["log"].decode(),
            standby=True,
        )
        files = [NodeFile(name.decode(), size, bool(bodies)) for name, size, bodies in fields["files"]]
        return Files(who, fields["durable"] + 1, fields["written"] + 1, files)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CommandError("the reply to JOURNAL FILES is malformed; check the version of the node") from None
