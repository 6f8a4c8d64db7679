"""`penstock serve`: run a server."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import time
from importlib.util import find_spec
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exits import USAGE, code_of, fail, printable_lines, sentence_of
from penstock.cli.own_files import keep_others_from_writing, open_own
from penstock.core.errors import PenstockError

_log = logging.getLogger("penstock")


def serve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [--SETTING VALUE]...",
            help="A configuration (TOML if its name ends so, else in Disque's form), then settings as flags.",
        ),
    ] = None,
) -> None:
    """Run a server that speaks RESP, the protocol of Disque and Redis.

    With nothing at all it serves a durable queue from ./penstock-data, on port 7711 of this machine.

    Settings used most: --port, --bind, --dir, --fsync (always, everysec, never), --no-journal, --max-memory,
    --http-port, --log-format (text, json). Passwords belong into the file, or into one that
    PENSTOCK_REQUIREPASS_FILE names.

    Every setting can be a flag (--port 7712), an environment variable (PENSTOCK_PORT=7712) or a line of the file
    (port = 7712 in TOML, port 7712 in the form of Disque). docs/reference/configuration.md lists them all,
    `penstock config show` shows what is in force.
    """
    from penstock.server.config import ConfigError, load
    from penstock.server.serve import serve as run

    if find_spec("prometheus_client") is None:
        raise ModuleNotFoundError(name="prometheus_client")
    keep_others_from_writing()
    flags = list(words or [])
    file = flags.pop(0) if flags and not flags[0].startswith("--") else None
    background: Background | None = None
    logfile = ""
    try:
        config = load(file, flags, os.environ, Path.cwd())
        try:
            config.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(
                f"{config.origin('dir')}: {config.dir} is not a directory, or a part of it is a file"
            ) from None
        logfile = str(config.within_dir(config.logfile)) if config.logfile else ""
        set_up_logging(config.log_format, logfile)
        if config.daemonize:
            background = Background(PidFile(config.within_dir(config.pidfile) if config.pidfile else None))
        try:
            code = run(config, None if background is None else background.serves)
        finally:
            if background is not None:
                background.pidfile.remove()
    except (PenstockError, OSError) as error:
        if background is not None and logfile:
            # Whoever started it may be a script, and nobody reads what that says.
            _log.error("%s", error)
        if isinstance(error, ConfigError):
            fail(str(error), USAGE)
        fail(sentence_of(error), code_of(error))
    raise typer.Exit(code)


class PidFile:
    """Where a server in the background tells its process id, while it serves."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_ours = False

    def write(self, _: object) -> None:
        """It serves. That it cannot tell is no reason not to, as in Disque."""
        if self._path is not None:
            try:
                with open(open_own(str(self._path), os.O_TRUNC), "w") as file:
                    file.write(f"{os.getpid()}\n")
                self._is_ours = True
            except OSError as error:
                _log.warning("the process id is not in a file: %s", error)

    def remove(self) -> None:
        """It serves no more. What another server has told is left alone."""
        if self._path is not None and self._is_ours:
            self._path.unlink(missing_ok=True)


class Background:
    """A server that goes into the background, when it serves. Until then whoever starts it waits, and hears why not."""

    def __init__(self, pidfile: PidFile) -> None:
        """Go on as another process, that of the server to be; the one before ends here."""
        self.pidfile = pidfile
        news, self._news = os.pipe()
        server = os.fork()
        if server:
            os.close(self._news)
            os._exit(_start_of(server, news))
        os.close(news)

    def serves(self, _: object) -> None:
        """It serves: leave the terminal, say where to find it, and let whoever started it go on."""
        os.setsid()
        self.pidfile.write(self)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.close(nothing)
        with contextlib.suppress(BrokenPipeError):
            # Unless they would not wait.
            os.write(self._news, b".")
        os.close(self._news)


def _start_of(server: int, news: int) -> int:
    """Wait until a process serves, or has ended; gives the exit code of whoever started it."""
    if os.read(news, 1):
        return 0
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    return code if code > 0 else 1


def set_up_logging(form: str, file: str) -> None:
    """Let the log go to a file or to standard output, for people or for programs."""
    handler = LogFile(file) if file else logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    _log.handlers[:] = [handler]


class LogFile(WatchedFileHandler):
    """The log in a file. When the file is moved away, as logrotate does, another one is opened."""

    def _open(self) -> io.TextIOWrapper:
        return open(open_own(self.baseFilename, os.O_APPEND), "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. If the file cannot be opened again, the record is dropped, and the server goes on."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class Lines(logging.Formatter):
    """A line for people. What came from outside cannot begin another one."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in record.getMessage())
        line = f"{when}.{int(record.msecs):03d}Z {record.levelname.lower():7} {message}"
        return f"{line}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told)
