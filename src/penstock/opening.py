"""`penstock.open` and `penstock.open_async`: open a queue in this process, or connect to a server if a URL is given."""

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
    """Options of a queue in this process, besides its grace time. On a server, they are settings of the server."""

    fsync: Literal["always", "everysec", "never"]  # When a change is on disk: see `open`. Default: always.
    max_body: int  # The maximum length of a body in bytes.
    memory_limit: int | None  # The maximum memory of all jobs in bytes. Default: no limit.
    history: Duration  # How long history is kept. Default: a week.
    history_bytes: int | None  # How many bytes of history are kept. Default: 1 GiB.
    history_bodies: bool  # Whether the history contains the bodies of jobs. Default: True.
    progress: Callable[[int, int], None] | None  # Called during recovery with the bytes read and their total.


# A host, or an IPv6 address in brackets, and a port.
_ADDRESS: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")

_KEYWORDS: Final = frozenset(OpenOptions.__annotations__)


def open(
    path: str | os.PathLike[str] = ":memory:", *, grace: Seconds | None = None, **options: Unpack[OpenOptions]
) -> Queue:
    """Open a queue: in memory (":memory:"), in a directory, or on a server by its URL. Return a session on it.

    A directory is created if it does not exist. It belongs to the queue, and one process at a time can open it.

    `fsync` decides when a change is on disk: before the call returns ("always"), within a second ("everysec"), or when
    the operating system writes it ("never"). `grace` is the grace time in seconds: how long the jobs of a session
    stay taken after it was closed or disconnected, so that `identify` can resume it. The default is 0, or 10 on a
    server. `max_body` is the maximum length of a body in bytes.
    `memory_limit` is the maximum memory of all jobs in bytes (None: no limit). In a directory, bodies beyond the limit
    stay on disk until they are needed. In memory, puts beyond it raise NoMemory.

    In a directory, history is kept for `history` seconds and up to `history_bytes` (None: no limit), with the bodies of
    jobs unless `history_bodies` is False. During recovery, `progress` is called with the number of bytes that have been
    read and their total.

    With a URL, this is `connect(url, grace=grace)`. The other options then raise Unsupported, because they are settings
    of the server.

    Raises InUse if another process has the directory open, NotAQueue if it contains other files, and DamagedJournal if
    its log cannot be read.
    """
    check_keywords("open", options, _KEYWORDS, "path", "grace")
    if not _is_url(path):
        return embedded.open(path, grace=0 if grace is None else grace, **options)
    from penstock.client.queue import connect

    return connect(_url(path, options), grace=grace)


def open_async(
    path: str | os.PathLike[str] = ":memory:", *, grace: Seconds | None = None, **options: Unpack[OpenOptions]
) -> AsyncQueue:
    """Open a queue for asyncio, in memory, in a directory or on a server. See `open` for the options."""
    check_keywords("open_async", options, _KEYWORDS, "path", "grace")
    if not _is_url(path):
        return embedded_async.wrap(embedded.open(path, grace=0 if grace is None else grace, **options))
    from penstock.client.async_queue import connect_async

    return connect_async(_url(path, options), grace=grace)


def _is_url(path: object) -> bool:
    """Return whether a path is the URL of a server. Raise BadUrl for an address without a scheme."""
    if not isinstance(path, str):
        return False
    if _ADDRESS.fullmatch(path) and not os.path.exists(path):
        raise BadUrl(f"{path} looks like the address of a server; open penstock://{path}, or ./{path} for a directory")
    return "://" in path


def _url(path: object, options: OpenOptions) -> str:
    """Return the URL of a server. Raise Unsupported for options that only a queue in this process has."""
    for name in options:
        raise Unsupported(f"{name} is a setting of the server; give it to `penstock serve`, not with a URL")
    return cast(str, path)
