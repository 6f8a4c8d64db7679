"""A connection to one server for the Spark sources: its URL, the ends of its log, and reads of the log."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.client.reconnecting_connection import ReconnectingConnection
from penstock.client.url import DEFAULT_URL, Target, pieces, target
from penstock.core.errors import BadUrl
from penstock.journal.segment import is_segment

T = TypeVar("T")

# Separates two URLs. A comma that is not followed by a URL separates two addresses of one server.
_URL_SEPARATOR: Final = re.compile(r"\s*,\s*(?=penstock://)", re.IGNORECASE)


def parse_urls(urls: str | None, user: str | None, password: str | None) -> tuple[str, ...]:
    """Split the option `url` into the URLs of the servers. A given user or password replaces those in the URLs."""
    found = _URL_SEPARATOR.split((urls or DEFAULT_URL).strip())
    if len(set(found)) < len(found):
        raise BadUrl("one URL is named twice; name each node once")
    for url in found:
        target(url)
    if user is None and password is None:
        return tuple(found)
    who = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}"
    return tuple(str(replace(pieces(url), who=who)) for url in found)


@dataclass(frozen=True)
class Head:
    """The range of positions that a node's log has."""

    node: str
    epoch: int
    first: int  # The oldest position that is kept.
    end: int  # One more than the newest durable position.


@dataclass(frozen=True)
class Piece:
    """A part of a log: whole frames, as they are on disk."""

    next: int  # The position to continue from.
    frames: bytes
    names: dict[int, bytes]  # Names of tubes by number. Empty unless requested.


@dataclass(frozen=True)
class Location:
    """The file of a log that has a position."""

    file: str
    offset: int  # Where the frame that contains the position starts.
    frames: bytes  # This frame, and perhaps later ones.


class Node:
    """A connection to a server, for one Spark task or for the driver."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._target: Target = target(url, name="spark")
        self._link = ReconnectingConnection(self._target)

    def __str__(self) -> str:
        return str(self._target)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close()

    def call(self, call: Call[T]) -> T:
        """Send a command and return its result. If the reply is lost and it is safe, send the command again."""
        return self._link.call(call)

    def head(self) -> Head:
        """Return the first and the end position of the log."""
        return self.call(Call([b"JOURNAL", b"HEAD"], _head, REPEAT))

    def wait(self, position: int, wait_ms: int) -> None:
        """Wait up to `wait_ms` until the log has the position `position`."""
        words = [b"JOURNAL", b"READ", b"%d" % position, b"BYTES", b"1", b"TIMEOUT", commands.duration(wait_ms)]
        self.call(Call(words, commands.ignored, REPEAT, wait_ms))

    def read(self, position: int, bytes_max: int, names: bool) -> Piece:
        """Return frames, starting with the one that contains `position`, and the names of tubes if `names` is set."""
        words = [b"JOURNAL", b"READ", b"%d" % position, b"BYTES", b"%d" % bytes_max]
        return self.call(Call([*words, b"NAMES"] if names else words, _piece, REPEAT))

    def locate(self, position: int) -> Location | None:
        """Return where a position is in the files of the log, or None if it is the end of the log."""
        words = [b"JOURNAL", b"READ", b"%d" % position, b"BYTES", b"1", b"PLACE"]
        return self.call(Call(words, _location, REPEAT))

    def segments(self) -> dict[str, int]:
        """Return the bytes of each file with frames of the log, by name. The names are in the order of positions."""
        return self.call(Call([b"JOURNAL", b"FILES"], _segments, REPEAT))


def _head(answer: Any) -> Head:
    epoch, first, durable = (commands.number(answer[name]) for name in (b"epoch", b"first", b"durable"))
    return Head(commands.octets(answer[b"node"]).decode(), epoch, first, durable + 1)


def _piece(answer: Any) -> Piece:
    position, frames, *named = commands.items(answer)
    names = named[0] if named else {}
    return Piece(
        commands.number(position),
        commands.octets(frames),
        {commands.number(tube): commands.octets(name) for tube, name in names.items()},
    )


def _location(answer: Any) -> Location | None:
    _, frames, file, offset = commands.items(answer)
    if not commands.octets(frames):
        return None
    return Location(commands.octets(file).decode(), commands.number(offset), commands.octets(frames))


def _segments(answer: Any) -> dict[str, int]:
    listed = ((commands.octets(name).decode(), commands.number(size)) for name, size, _ in answer[b"files"])
    return {name: size for name, size in sorted(listed) if is_segment(name)}
