"""Shell completion of tube names and job ids, and suggestions for misspelt tube names.

Completion connects to the server that the options typed so far select. It opens no directory, because opening one
locks and recovers it. If the server does not answer within a second, nothing is completed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.targets import Target, connect
from penstock.core.errors import CommandError, PenstockError, UnknownTube

if TYPE_CHECKING:
    from penstock.api import Queue, Tube

# Ids are completed only if the queue has fewer jobs than this.
_JOBS_MAX: Final = 50

# Completion waits at most this long for the server, because the user waits after pressing Tab.
_ANSWER_S: Final = 1

# Similarity from which a name is suggested. Two exchanged letters reach it, half a name does not.
_CLOSE: Final = 0.75

# Names are chosen by other users. Only names without characters that a shell interprets are completed.
_SAFE: Final = re.compile(r"[\w.@%+,/=#][\w.@%+,/=#:-]*")


def complete_tubes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _ask(ctx, lambda queue: queue.tubes(), incomplete)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the job ids that begin with the typed text. Return none if the queue has many jobs."""
    return _ask(ctx, _ids, incomplete)


def find_tube(queue: Queue, name: str) -> Tube:
    """Return the tube of this name. If there is none, raise UnknownTube with the most similar name or other help."""
    try:
        return queue.find_tube(name)
    except UnknownTube as error:
        near: list[str] = []
        with contextlib.suppress(CommandError):  # The user may not list tubes.
            near = get_close_matches(name, queue.tubes(), 1, _CLOSE)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else "`penstock tube ls` lists the tubes, and `penstock put` creates one"
        )
        raise UnknownTube(f"{str(error).partition(';')[0]}; {hint}") from None


def _ask(ctx: typer.Context, names: Callable[[Queue], list[str]], incomplete: str) -> list[str]:
    given = {name: ctx.params.get(name) for name in ("url", "directory", "context")}
    try:
        place = Target(**given).address()
        if place.directory is not None:
            return []
        with contextlib.closing(connect(place.url, connect_timeout=_ANSWER_S, timeout=_ANSWER_S, retry_for=0)) as queue:
            found = names(queue)
    except (PenstockError, OSError, typer.Exit):
        return []
    # Words that are already on the command line are not completed again.
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
