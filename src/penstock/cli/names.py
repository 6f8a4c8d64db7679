"""Names of tubes and ids of jobs: what the Tab key completes, and the closest name to one that does not exist.

The Tab key asks the server that the command line names so far. It opens no directory, because opening one locks and
recovers it. A server that does not answer within a second completes nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.target import Target, connect
from penstock.core.errors import CommandError, PenstockError, UnknownTube

if TYPE_CHECKING:
    from penstock.api import Queue, Tube

# If there are more jobs, their ids are not offered.
_JOBS_MAX: Final = 50

# A server may not be slower than this when a key is pressed.
_ANSWER_S: Final = 1

# How similar a name has to be to be suggested. Two letters that were exchanged are; half a name is not.
_CLOSE: Final = 0.75

# Other users choose names. Only those are offered that a shell does not interpret.
_SAFE: Final = re.compile(r"[\w.@%+,/=#][\w.@%+,/=#:-]*")


def complete_tubes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tubes that begin like this."""
    return _ask(ctx, lambda queue: queue.tubes(), incomplete)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of jobs that begin like this, if there are few jobs."""
    return _ask(ctx, _ids, incomplete)


def find_tube(queue: Queue, name: str) -> Tube:
    """Return the tube of this name. If there is none, the error names the closest one."""
    try:
        return queue.find_tube(name)
    except UnknownTube as error:
        near: list[str] = []
        with contextlib.suppress(CommandError):  # The user may not list tubes.
            near = get_close_matches(name, queue.tubes(), 1, _CLOSE)
        if not near:
            raise
        raise UnknownTube(f"{str(error).partition(';')[0]}; did you mean {near[0]!r}?") from None


def _ask(ctx: typer.Context, names: Callable[[Queue], list[str]], incomplete: str) -> list[str]:
    given = {name: ctx.params.get(name) for name in ("url", "directory", "context")}
    try:
        place = Target(**given).place()
        if place.directory is not None:
            return []
        with contextlib.closing(connect(place.url, connect_timeout=_ANSWER_S, timeout=_ANSWER_S, retry_for=0)) as queue:
            found = names(queue)
    except (PenstockError, OSError, typer.Exit):
        return []
    # A word that was typed already is not offered again.
    typed = {word for value in ctx.params.values() for word in _words(value)}
    return [name for name in found if name.startswith(incomplete) and name not in typed and _SAFE.fullmatch(name)]


def _words(value: Any) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, (list, tuple)) else []


def _ids(queue: Queue) -> list[str]:
    found: list[str] = []
    cursor = 0
    while True:
        jobs, cursor = queue.scan(cursor, count=_JOBS_MAX)
        found += [job.id for job in jobs]
        if len(found) >= _JOBS_MAX:
            return []
        if cursor == 0:
            return found
