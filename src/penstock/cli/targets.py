"""The queue that a command uses: a server, or a directory that is opened in this process.

Both have the interface of the embedded queue, so commands use them in the same way. The first of these that is set
selects the queue: an option (`--url`, `--dir` or `--context`), PENSTOCK_URL, PENSTOCK_CONTEXT, the selected context. If
none is set, the server on this machine is used.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from penstock.cli.errors import NOT_FOUND, USAGE, fail, print_error
from penstock.cli.output import naming_directory

if TYPE_CHECKING:
    from penstock.api import Queue

DEFAULT_URL: Final = "penstock://127.0.0.1:7711"

_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True)
class QueueAddress:
    """The address of a queue: a server's URL, or a directory."""

    url: str = ""
    directory: Path | None = None

    def __str__(self) -> str:
        return self.url if self.directory is None else str(self.directory)

    def without_password(self) -> str:
        from penstock.client.url import pieces

        if self.directory is not None:
            return str(self)
        found = pieces(self.url)
        if "@" in (found.query or ""):
            # The query may be part of a password with an unescaped "?". Hide too much rather than too little.
            found = pieces(self.url.replace("?", "/"))
        user, colon, _ = (found.who or "").partition(":")
        return str(replace(found, who=f"{user}:***") if colon else found)


def parse_address(url: str) -> QueueAddress:
    """Return the address that a URL names. A path and file:PATH name directories."""
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            fail(f"{url} names a file on another machine; name a local directory, for example file:./jobs", USAGE)
        return QueueAddress(directory=Path(unquote(parts.path)).expanduser().absolute())
    if "://" in url:
        return QueueAddress(url)
    if _HOST_AND_PORT.fullmatch(url):
        return QueueAddress(f"penstock://{url}")
    path = Path(url).expanduser()
    if "@" in url and not path.exists():
        # The message does not cite the URL, because it may contain a password.
        fail("write a server with a user as penstock://user:password@host:7711, and a directory as ./jobs", USAGE)
    if os.sep not in url and url not in (".", "..", "~") and not path.exists():
        # If the user meant a server, jobs would otherwise go into a new directory.
        fail(f"{url!r} can be a server or a directory; write {url}:7711 or ./{url}", USAGE)
    return QueueAddress(directory=path.absolute())


@dataclass(frozen=True)
class Target:
    """The options that select the queue of a command."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            "-u",
            metavar="URL",
            help=f"Use this server, or the queue directory at this path. [env: PENSTOCK_URL; default: {DEFAULT_URL}]",
        ),
    ] = None
    directory: Annotated[
        str | None, typer.Option("--dir", "-d", metavar="DIR", help="Open this queue directory in this process.")
    ] = None
    context: Annotated[
        str | None,
        typer.Option("--context", "-c", metavar="NAME", help="Use the context of this name. [env: PENSTOCK_CONTEXT]"),
    ] = None

    def address(self) -> QueueAddress:
        from penstock.cli.contexts import Contexts

        given = [each for each in (self.url, self.directory, self.context) if each is not None]
        if len(given) > 1:
            fail("use only one of --url, --dir and --context", USAGE)
        if self.directory is not None:
            return QueueAddress(directory=Path(self.directory).expanduser().absolute())
        if self.url is not None:
            return parse_address(self.url)
        if self.context is not None:
            return parse_address(Contexts.load().url_of(self.context))
        if url := os.environ.get("PENSTOCK_URL"):
            return parse_address(url)
        if context := os.environ.get("PENSTOCK_CONTEXT"):
            return parse_address(Contexts.load().url_of(context))
        return parse_address(Contexts.load().selected_url() or DEFAULT_URL)

    @contextmanager
    def open(self, makes: bool = False) -> Iterator[Queue]:
        """Open the queue. If the target is a directory without a queue, create one if `makes` is set, else exit."""
        place = self.address()
        if place.directory is None:
            queue = connect(place.url)
        else:
            queue = open_directory(place.directory, makes)
        try:
            yield queue
        finally:
            queue.close()


def connect(url: str, **options: Any) -> Queue:
    """Return a queue on a server. `options` are those of `penstock.connect`."""
    import penstock

    silence_client_log()
    return penstock.connect(url, **options)


def silence_client_log() -> None:
    """Discard the client's log. Commands report lost servers themselves, and `top` uses the whole screen."""
    log = logging.getLogger("penstock")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def server_url(target: Target) -> str:
    """Return the URL of a target. Exit if the target is a directory."""
    place = target.address()
    if place.directory is not None:
        fail(
            f"{place.directory} is a directory, but this command needs a server; name one with --url, or "
            f"start one with `penstock serve --dir {place.directory}`",
            USAGE,
        )
    return place.url


def execute(target: Target, *words: str) -> Any:
    server_url(target)
    with target.open() as queue:
        return queue.execute(*words)  # type: ignore[attr-defined]


def open_directory(directory: Path, makes: bool = False) -> Queue:
    """Open the queue in a directory, with a progress bar. Print the warnings of its recovery."""
    import penstock
    from penstock.cli.progress import bytes_bar

    if not makes and not (directory / "node.json").exists():
        fail(f"{directory}: there is no queue here; check the path, or put a job to create a queue", NOT_FOUND)
    with naming_directory(str(directory)), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with bytes_bar("opening") if sys.stderr.isatty() else nullcontext() as progress:
            queue = penstock.open(directory, progress=progress)
    for warning in warned:
        print_error(f"warning: {warning.message}")
    return queue


# Seconds for which the jobs of `take` stay reserved for the user's next command.
SESSION_GRACE_S: Final = 60
