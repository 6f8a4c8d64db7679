"""The dashboard as a child process of a server: `penstock serve --dashboard` and `penstock demo`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock._extras import check_packages
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.server.config.configuration import Config

DEFAULT_PORT: Final = 7780
PACKAGES: Final = ("jinja2", "starlette", "uvicorn")
_STOP_S: Final = 10.0
_EVERY: Final = frozenset(["0.0.0.0", "::", "*"])

_log = logging.getLogger("penstock")


class DashboardProcess:
    """The dashboard of a node. It ends with the node, also if the node is killed, because its standard input ends."""

    def __init__(self, config: Config) -> None:
        """Check that the node can have a dashboard. Raise an error otherwise."""
        check_packages(*PACKAGES)
        if not config.port:
            raise PenstockError(
                f"{config.origin('dashboard-port')}: the dashboard needs the unencrypted port, but port is 0; run "
                "`penstock dashboard` with the URL of the TLS port instead"
            )
        self._url = node_url(config.bind, config.port)
        self._port = config.dashboard_port
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def start(self) -> None:
        self._process = spawn(self._url, self._port)
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if not self._is_stopping:
            _log.warning("dashboard ended: code=%d", code)

    def stop(self) -> None:
        self._is_stopping = True
        if self._process is not None:
            end(self._process)


def node_url(bind: tuple[str, ...], port: int) -> str:
    """Return the URL at which a process of this machine reaches a node that listens on these addresses."""
    host = "127.0.0.1" if not bind or _EVERY.intersection(bind) or "127.0.0.1" in bind else bind[0]
    return f"penstock://[{host}]:{port}" if ":" in host else f"penstock://{host}:{port}"


def spawn(url: str, port: int, *words: str) -> subprocess.Popen[bytes]:
    """Start the dashboard of a node on a port of this machine."""
    command = [sys.executable, "-m", "penstock", "dashboard", "--url", url, "--port", str(port), "--until-eof", *words]
    # Ctrl-C in a terminal reaches all processes. The parent ends the dashboard.
    return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop the dashboard, and wait for its end."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_at_eof(file: BinaryIO) -> None:
    """Stop this process when the input ends, because the parent has ended."""

    def watch() -> None:
        file.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
