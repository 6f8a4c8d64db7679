"""`penstock.open` and `penstock.open_async`: a queue in this process, or on a server.

A URL is connected to; everything else is opened in this process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final, Literal, TypedDict, Unpack, cast

from penstock import embedded, embedded_async
from penstock.api import Queue
from penstock.api_async import AsyncQueue
from penstock.core.errors import BadUrl, Unsupported
from penstock.keywords import check_keywords
from penstock.options import Duration, Seconds


class OpenOptions(TypedDict, total=False):
    """What a queue in this process may be given beside its grace. A server has settings of its own for these."""

    fsync: Literal["always", "everysec", "never"]  # When a call returns: it is on disk, or will be. Default: always.
    max_body: int  # How many bytes a body may have.
    memory_limit: int | None  # How many bytes the jobs may take in memory. Default: any number.
    history: Duration  # How long what happened is kept as history. Default: a week.
    history_bytes: int | None  # How many bytes of history are kept. Default: 1 GiB.
    history_bodies: bool  # Keep the bodies of jobs in the history. Default: yes.
    progress: Callable[[int, int], None] | None  # Called with how many bytes of how many have been read back.


# A host, or an IPv6 address in brackets, and a port.
_ADDRESS: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")

_KEYWORDS: Final = frozenset(OpenOptions.__annotations__)


def open(
    path: str | os.PathLike[str] = ":memory:", *, grace: Seconds | None = None, **options: Unpack[OpenOptions]
) -> Queue:
    """Open a queue: in memory, in a directory of its own, which is made if it is not there, or on a server by its URL.

    `fsync`: when a call returns, what it did is on disk (always), will be within a second (everysec), or when the
    system pleases (never). `grace`: how long the jobs of a session that ended wait for `identify`, in seconds: 0, or
    10 on a server. `max_body`: how many bytes a body may have. `memory_limit`: how many bytes the jobs may take in
    memory; in a directory, bodies beyond it are left on disk until their turn comes, otherwise puts are refused.

    In a directory, what happened is kept as history for `history` seconds and up to `history_bytes` (None: without
    limit), with the bodies of jobs or, unless `history_bodies`, without. `progress` is called with how many bytes of
    how many have been read back while the queue is being opened.

    With a URL, this is `connect(url, grace=grace)`. A server has settings for the other options, so they are refused.
    """
    check_keywords("open", options, _KEYWORDS, "path", "grace")
    if not _is_url(path):
        return embedded.open(path, grace=0 if grace is None else grace, **options)
    from penstock.client.queue import connect

    return connect(_url(path, options), grace=grace)


def open_async(
    path: str | os.PathLike[str] = ":memory:", *, grace: Seconds | None = None, **options: Unpack[OpenOptions]
) -> AsyncQueue:
    """Open a queue for asyncio, in this process or on a server: see `open`."""
    check_keywords("open_async", options, _KEYWORDS, "path", "grace")
    if not _is_url(path):
        return embedded_async.AsyncQueue._of(embedded.open(path, grace=0 if grace is None else grace, **options))
    from penstock.client.async_queue import connect_async

    return connect_async(_url(path, options), grace=grace)


def _is_url(path: object) -> bool:
    """Return whether a path is the URL of a server. An address without a scheme is refused: it could mean either."""
    if not isinstance(path, str):
        return False
    if _ADDRESS.fullmatch(path) and not os.path.exists(path):
        raise BadUrl(f"{path} looks like the address of a server; open penstock://{path}, or ./{path} for a directory")
    return "://" in path


def _url(path: object, options: OpenOptions) -> str:
    """Return the URL of a server, unless options are given that only a queue in this process has."""
    for name in options:
        raise Unsupported(f"{name} is a setting of the server; give it to `penstock serve`, not with a URL")
    return cast(str, path)
