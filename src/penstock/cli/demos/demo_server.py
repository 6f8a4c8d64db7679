"""The server of a demo, and its dashboard."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from rich.console import Console

from penstock._extras import not_installed
from penstock.cli.cluster_nodes import wait_for
from penstock.cli.dashboard_process import DEFAULT_PORT, PACKAGES, end, spawn

_PORTS: Final = range(DEFAULT_PORT, DEFAULT_PORT + 20)
_PATIENCE_S: Final = 30.0


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """Run a server for the demo on a free port, and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--port", str(port), "--iproto-port", "0", "--bind", "127.0.0.1", "--dir", str(directory)]
    command = [sys.executable, "-m", "penstock", "serve", *words]
    # Settings in the environment may be meant for another server.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        handlers = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            said = ""
            for said in process.stdout:
                if " server started: " in said:
                    break
            else:
                raise ConnectionError(f"the server did not start: {said.strip()}")
            yield f"penstock://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    """End the demo cleanly when it is stopped or its terminal is closed."""
    raise SystemExit(128 + number)


def can_show_dashboard(console: Console) -> bool:
    """Return whether the dashboard can be shown. If a package is missing, print what to install."""
    if not console.is_terminal:
        return False
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        sentence = f"The dashboard is not shown: {not_installed(missing[0], 'dashboard')}."
        console.print(sentence, soft_wrap=True, markup=False)
    return not missing


def show_dashboard(console: Console, url: str, *words: str) -> None:
    """Serve the dashboard of the demo's server until the user presses Ctrl-C. `words` are options of the dashboard."""
    port = next((port for port in _PORTS if _is_free(port)), None)
    if port is None:
        console.print(f"The dashboard is not shown: the ports from {_PORTS[0]} to {_PORTS[-1]} are in use.")
        return
    dashboard = spawn(url, port, "--quiet", *words)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: dashboard.poll() is not None or _answers(address), _PATIENCE_S)
        if dashboard.poll() is None:
            console.print(f"Dashboard: {address} (Ctrl-C ends the demo)", soft_wrap=True)
        console.print(f"The dashboard ended with exit code {dashboard.wait()}.")
    except KeyboardInterrupt:
        console.print()
    finally:
        end(dashboard)


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def _answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{address}/livez", timeout=_PATIENCE_S) as answer:
        return bool(answer.status == 200)
    return False
