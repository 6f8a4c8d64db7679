"""`penstock serve`: run a server."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import time
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.dashboard_process import DEFAULT_PORT, DashboardProcess
from penstock.cli.errors import USAGE, exit_code_of, fail, message_of, printable_lines
from penstock.cli.private_files import open_private, restrict_umask
from penstock.core.errors import PenstockError
from penstock.wire.quoting import printable

_log = logging.getLogger("penstock")


def serve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [--SETTING VALUE]...",
            help="Configuration file (*.toml, else in Disque's format), then settings as flags.",
        ),
    ] = None,
) -> None:
    """Run a server. Clients connect with RESP (Disque's commands and Penstock's own) or IPROTO (Tarantool's queues).

    Without arguments it serves a durable queue in ./penstock-data on port 7711 of this machine.

    Common settings: --port, --bind, --dir, --fsync (always, everysec, never), --no-journal, --max-memory, --http-port,
    --log-format (text, json). --dashboard also serves the dashboard, on http://127.0.0.1:7780. Write
    passwords into the configuration file, or into the file that PENSTOCK_REQUIREPASS_FILE names.

    Every setting can be a flag (--port 7712), an environment variable (PENSTOCK_PORT=7712) or a line of that file
    (port = 7712 in TOML, port 7712 in Disque's format). docs/reference/configuration.md describes all settings, and
    `penstock config show` lists them with the values that a server would use.
    """
    from penstock.server.config.configuration import ConfigError, load
    from penstock.server.main import serve as run

    restrict_umask()
    flags = list(words or [])
    if "--dashboard" in flags:
        at = flags.index("--dashboard")
        flags[at : at + 1] = ["--dashboard-port", str(DEFAULT_PORT)]
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
            background = Background(config.within_dir(config.pidfile) if config.pidfile else None)
        dashboard = DashboardProcess(config) if config.dashboard_port else None

        def on_ready(server: object) -> None:
            if background is not None:
                background.on_ready(server)
            if dashboard is not None:
                dashboard.start()

        try:
            code = run(config, on_ready)
        finally:
            if dashboard is not None:
                dashboard.stop()
            if background is not None:
                background.remove_pidfile()
    except (PenstockError, OSError) as error:
        if background is not None and logfile:
            # Log the error as well, because the output of the script that starts the server may be lost.
            _log.error("%s", error)
        if isinstance(error, ConfigError):
            fail(str(error), USAGE)
        fail(message_of(error), exit_code_of(error))
    raise typer.Exit(code)


class Background:
    """A server that goes into the background when it is ready.

    The process that starts it waits until then, and exits with the server's exit code if the server fails to start.
    """

    def __init__(self, pidfile: Path | None) -> None:
        """Fork. The child continues as the server. The parent exits when the child is ready or has failed."""
        self._pidfile = pidfile
        self._has_written = False  # The pidfile is ours.
        news, self._ready_pipe = os.pipe()
        server = os.fork()
        if server:
            os.close(self._ready_pipe)
            os._exit(_wait_until_ready(server, news))
        os.close(news)

    def on_ready(self, _: object) -> None:
        """Detach from the terminal, write the pidfile, and let the parent exit. Called when the server is ready."""
        os.setsid()
        self._write_pidfile()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.close(nothing)
        with contextlib.suppress(BrokenPipeError):
            # The parent may have been killed meanwhile.
            os.write(self._ready_pipe, b".")
        os.close(self._ready_pipe)

    def _write_pidfile(self) -> None:
        if self._pidfile is not None:
            try:
                with open(open_private(str(self._pidfile), os.O_TRUNC), "w") as file:
                    file.write(f"{os.getpid()}\n")
                self._has_written = True
            except OSError as error:
                # Disque continues without the file, too.
                _log.warning("pidfile not written: error=%s", error)

    def remove_pidfile(self) -> None:
        """Remove the pidfile, unless another server has written it."""
        if self._pidfile is not None and self._has_written:
            self._pidfile.unlink(missing_ok=True)


def _wait_until_ready(server: int, news: int) -> int:
    """Wait until the server is ready or has ended. Return the exit code of the parent."""
    if os.read(news, 1):
        return 0
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    return code if code > 0 else 1


def set_up_logging(form: str, file: str) -> None:
    """Send the log to a file or to standard output, as text or as JSON lines."""
    handler = LogFile(file) if file else logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    _log.handlers[:] = [handler]


class LogFile(WatchedFileHandler):
    """A log file. If logrotate moves the file away, a new one is opened."""

    def _open(self) -> io.TextIOWrapper:
        return open(open_private(self.baseFilename, os.O_APPEND), "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. If the file cannot be reopened, the record is dropped and the server continues."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


class Lines(logging.Formatter):
    """Formats log lines as text. Control characters in a message are escaped, so a message cannot forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{when}.{int(record.msecs):03d}Z {record.levelname.lower():7} {printable(record.getMessage())}"
        return f"{line}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """Formats log lines as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)
