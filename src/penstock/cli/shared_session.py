"""The session that the user's commands share, so that `penstock ack` can finish a job of `penstock take`.

A session normally ends with its process. `take` therefore sets a grace time and writes the session's token to a file
of the user, one file per queue. The next command resumes the session with this token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.contexts import read_private, state_home, write_private
from penstock.cli.targets import SESSION_GRACE_S, Target
from penstock.core.errors import UnknownSession

if TYPE_CHECKING:
    from penstock.api import Queue


def token_file(target: Target) -> Path:
    name = hashlib.sha256(str(target.address()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return state_home() / "sessions" / f"{name}.json"


@contextmanager
def open_session(target: Target) -> Iterator[Queue]:
    """Open the queue and resume the session of the last take, if its grace time has not passed."""
    with target.open() as queue:
        resume(queue, target)
        yield queue


def resume(queue: Queue, target: Target) -> float:
    """Resume the session of the last take. Return its grace time in seconds, or 0 if it has ended."""
    kept = read_private(token_file(target))
    if isinstance(kept, dict) and isinstance(kept.get("token"), str):
        with suppress(UnknownSession):  # The grace time has passed and the jobs were returned.
            # Keep the grace time. Further commands neither extend nor shorten it.
            seconds = kept.get("hold", SESSION_GRACE_S)
            queue.identify(kept["token"], grace=seconds)
            return float(seconds)
    return 0.0


def store_token(queue: Queue, target: Target, seconds: float) -> None:
    """Store the session's token, so that the next command can resume the session."""
    write_private(
        token_file(target), {"place": target.address().without_password(), "token": queue.token, "hold": seconds}
    )


def hold(queue: Queue, target: Target, seconds: float) -> float:
    """Resume the session of the last take, or start one, with a grace time of `seconds`. Return the grace time.

    A longer grace time of the last take is kept, because its worker may still be running.
    """
    longest = max(seconds, resume(queue, target))
    queue.identify(grace=longest)
    return longest
