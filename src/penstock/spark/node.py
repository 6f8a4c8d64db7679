"""One server as the sources see it: where it is, how far its log goes, and pieces of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import quote

from penstock.client import commands
from penstock.client.commands import AGAIN, Call
from penstock.client.link import Link
from penstock.client.url import DEFAULT_URL, Target, pieces, target
from penstock.core.errors import BadUrl

T = TypeVar("T")

# Between two URLs; a comma that no URL follows is between two addresses of one server.
_BETWEEN: Final = re.compile(r"\s*,\s*(?=penstock://)", re.IGNORECASE)


def addresses(urls: str | None, user: str | None, password: str | None) -> tuple[str, ...]:
    """The URLs in an option, each of a server of its own, with who we are in it."""
    found = _BETWEEN.split((urls or DEFAULT_URL).strip())
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
    """How far a log goes."""

    node: str
    epoch: int
    first: int  # The oldest position that is kept,
    end: int  # and the one behind the newest that is durable.


@dataclass(frozen=True)
class Piece:
    """Some of a log: whole frames, as they are on disk."""

    next: int  # The position to go on from.
    frames: bytes
    names: dict[int, bytes]  # Of tubes; only if they were asked for.


class Node:
    """A connection to a server, for one task or for the driver of a stream."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._target: Target = target(url, name="spark")
        self._link = Link(self._target)

    def __str__(self) -> str:
        return str(self._target)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._link.close()

    def call(self, call: Call[T]) -> T:
        """Send a command, again if its answer was lost and that is safe."""
        return self._link.call(call)

    def head(self) -> Head:
        """How far the log goes."""
        return self.call(Call([b"JOURNAL", b"HEAD"], _head, AGAIN))

    def wait(self, position: int, wait_ms: int) -> None:
        """Sleep until the log has reached a position, or the time is over."""
        words = [b"JOURNAL", b"READ", b"%d" % position, b"BYTES", b"1", b"TIMEOUT", commands.duration(wait_ms)]
        self.call(Call(words, commands.ignored, AGAIN, wait_ms))

    def read(self, position: int, bytes_max: int, names: bool) -> Piece:
        """The frames that hold a position or follow it."""
        words = [b"JOURNAL", b"READ", b"%d" % position, b"BYTES", b"%d" % bytes_max]
        return self.call(Call([*words, b"NAMES"] if names else words, _piece, AGAIN))


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
