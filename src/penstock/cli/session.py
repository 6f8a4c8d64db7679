"""The session of the command line: what one `penstock take` took, the next `penstock ack` may finish.

A process ends and its session would with it. So a take says how long its session is held, and leaves the session's
token in a file of the user's, one for each place; whoever comes next with the token is the same session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.contexts import read_private, state_home, write_private
from penstock.cli.target import HOLD_S, Target
from penstock.core.errors import UnknownSession

if TYPE_CHECKING:
    from penstock.api import Queue


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


def resume(queue: Queue, target: Target) -> float:
    """Be the session of the take before, if that is still held; tell for how long it is, or 0."""
    kept = read_private(token_file(target))
    if isinstance(kept, dict) and isinstance(kept.get("token"), str):
        with suppress(UnknownSession):  # Its time is over: its jobs went back.
            # As long as it was held before: a command more makes it neither longer nor shorter.
            seconds = kept.get("hold", HOLD_S)
            queue.identify(kept["token"], grace=seconds)
            return float(seconds)
    return 0.0


def keep(queue: Queue, target: Target, seconds: float) -> None:
    """Let the next command be this session."""
    write_private(token_file(target), {"place": target.place().shown(), "token": queue.token, "hold": seconds})


def hold(queue: Queue, target: Target, seconds: float) -> float:
    """Be the session of the take before, or a new one, and let it outlive this process by so long; tell how long.

    What the take before was promised stays: its worker may be at it still.
    """
    longest = max(seconds, resume(queue, target))
    queue.identify(grace=longest)
    return longest
