"""The session of the command line: what one `penstock take` took, the next `penstock ack` may finish.

A process ends and its session would with it. So a take says how long its session is held, and leaves the session's
token in a file of the user's, one for each place; whoever comes next with the token is the same session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.contexts import read_private, state_home, write_private
from penstock.cli.target import Target
from penstock.core.errors import UnknownSession

if TYPE_CHECKING:
    from penstock.embedded import Queue


def token_file(target: Target) -> Path:
    """Where the token of a place is kept."""
    name = hashlib.sha256(str(target.place()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return state_home() / "sessions" / f"{name}.json"


@contextmanager
def open_session(target: Target) -> Iterator[Queue]:
    """The queue, as the session of the take before, if that is still held."""
    with target.open() as queue:
        resume(queue, target)
        yield queue


def resume(queue: Queue, target: Target) -> bool:
    """Be the session of the take before; tell whether it is still held."""
    kept = read_private(token_file(target))
    if not isinstance(kept, dict) or not isinstance(kept.get("token"), str):
        return False
    try:
        queue.identify(kept["token"])
    except UnknownSession:
        return False  # Its time is over: its jobs went back.
    return True


def keep(queue: Queue, target: Target) -> None:
    """Let the next command be this session."""
    path = token_file(target)
    write_private(path, {"place": target.place().shown(), "token": queue.token})


def hold(queue: Queue, target: Target, seconds: float) -> None:
    """Be the session of the take before, or a new one, and let it outlive this process by so long."""
    resume(queue, target)
