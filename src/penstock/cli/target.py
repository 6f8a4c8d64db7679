"""Where a command goes: to a server, or into a directory that is opened in this process.

Both have one interface, that of the embedded queue, so no command knows which it is. In order: what the command line
says (`--url`, `--dir`, `--context`), PENSTOCK_URL, PENSTOCK_CONTEXT, the context that was selected, and at last the
server on this machine.
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

from penstock.cli.exits import NOT_FOUND, USAGE, complain, fail
from penstock.cli.output import told

if TYPE_CHECKING:
    from penstock.api import Queue

DEFAULT_URL: Final = "penstock://127.0.0.1:7711"

_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True)
class Place:
    """A server's address, or a directory."""

    url: str = ""
    directory: Path | None = None

    def __str__(self) -> str:
        return self.url if self.directory is None else str(self.directory)

    def shown(self) -> str:
        """As it may be shown: without its password."""
        from penstock.client.url import pieces

        if self.directory is not None:
            return str(self)
        found = pieces(self.url)
        if "@" in (found.query or ""):
            # Perhaps a password with a ? in it, which nobody can connect with. Rather too much is hidden than that.
            found = pieces(self.url.replace("?", "/"))
        user, colon, _ = (found.who or "").partition(":")
        return str(replace(found, who=f"{user}:***") if colon else found)


def place_of(url: str) -> Place:
    """What a URL names; a path is a directory, and so is file:PATH."""
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            fail(f"{url} names a file on another machine; name a directory of this one, like file:./jobs", USAGE)
        return Place(directory=Path(unquote(parts.path)).expanduser().absolute())
    if "://" in url:
        return Place(url)
    if _HOST_AND_PORT.fullmatch(url):
        return Place(f"penstock://{url}")
    path = Path(url).expanduser()
    if "@" in url and not path.exists():
        # Not cited: it may have a password in it.
        fail("a server with a user reads like penstock://user:password@host:7711, and a directory like ./jobs", USAGE)
    if os.sep not in url and url not in (".", "..", "~") and not path.exists():
        # Somebody who means a server would otherwise put jobs into a new directory, and wonder where they are.
        fail(f"{url!r} may be a server or a directory; write {url}:7711 or ./{url}", USAGE)
    return Place(directory=path.absolute())


@dataclass(frozen=True)
class Target:
    """Which queue a command is for."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", "-u", metavar="URL", help=f"A server, or a directory as a path. [env: PENSTOCK_URL; {DEFAULT_URL}]"
        ),
    ] = None
    directory: Annotated[
        str | None, typer.Option("--dir", "-d", metavar="DIR", help="A queue's directory, opened in this process.")
    ] = None
    context: Annotated[
        str | None,
        typer.Option("--context", "-c", metavar="NAME", help="A place that has a name. [env: PENSTOCK_CONTEXT]"),
    ] = None

    def place(self) -> Place:
        """Where it is."""
        from penstock.cli.contexts import Contexts

        given = [each for each in (self.url, self.directory, self.context) if each is not None]
        if len(given) > 1:
            fail("give one of --url, --dir and --context", USAGE)
        if self.directory is not None:
            return Place(directory=Path(self.directory).expanduser().absolute())
        if self.url is not None:
            return place_of(self.url)
        if self.context is not None:
            return place_of(Contexts.load().url_of(self.context))
        if url := os.environ.get("PENSTOCK_URL"):
            return place_of(url)
        if context := os.environ.get("PENSTOCK_CONTEXT"):
            return place_of(Contexts.load().url_of(context))
        return place_of(Contexts.load().selected_url() or DEFAULT_URL)

    @contextmanager
    def open(self, makes: bool = False) -> Iterator[Queue]:
        """The queue that is there. A directory without one is refused, unless the command `makes` what is missing."""
        place = self.place()
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
    # Another class of the same interface: one suite of tests runs over both.
    return penstock.connect(url, **options)


def silence_client_log() -> None:
    """Do not print what the client logs: a command reports lost servers itself, and `top` has the whole screen."""
    log = logging.getLogger("penstock")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def server_url(target: Target) -> str:
    """The URL of a target that has to be a server."""
    place = target.place()
    if place.directory is not None:
        fail(f"{place.directory} is a directory, and this is asked of a server; name one with --url", USAGE)
    return place.url


def ask(target: Target, *words: str) -> Any:
    """What the server answers to a command."""
    server_url(target)
    with target.open() as queue:
        return queue.execute(*words)  # type: ignore[attr-defined]


def open_directory(directory: Path, makes: bool = False) -> Queue:
    """A queue in a directory. What its recovery warns of is said like an error."""
    import penstock
    from penstock.cli.progress import bytes_bar

    if not makes and not (directory / "node.json").exists():
        fail(f"{directory}: there is no queue here; put a job to make one, or see whether the path is right", NOT_FOUND)
    with told(str(directory)), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with bytes_bar("opening") if sys.stderr.isatty() else nullcontext() as progress:
            queue = penstock.open(directory, progress=progress)
    for warning in warned:
        complain(f"warning: {warning.message}")
    return queue


# How long what `take` took stays with whoever runs the next command.
HOLD_S: Final = 60
