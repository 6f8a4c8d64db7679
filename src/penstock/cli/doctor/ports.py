"""Examines the ports of a server: whether they are free, or which server answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from penstock._version import __version__
from penstock.cli.doctor.finding import WARNING, Finding
from penstock.cluster.roster import BUS_OFFSET
from penstock.core.errors import PenstockError

_IPROTO_PORT: Final = 3301
_TIMEOUT_S: Final = 2.0


def examine_ports(port: int) -> Iterator[Finding]:
    """Yield findings about the ports that a server uses by default."""
    running = _penstock_at(port)
    for name, number in (("RESP", port), ("IPROTO", _IPROTO_PORT), ("cluster bus", port + BUS_OFFSET)):
        yield _port(name, number, running)
    if running:
        yield _version(running)


def _penstock_at(port: int) -> str:
    """Return the version of the Penstock server at a port of this machine, "?" if it wants a login, or ""."""
    import penstock

    try:
        with penstock.connect(f"penstock://127.0.0.1:{port}", timeout=_TIMEOUT_S) as queue:
            lines = queue.execute("INFO", "server").decode().split()
    except penstock.Unauthenticated:
        return "?"
    except (PenstockError, OSError):
        return ""
    facts: dict[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
    return facts.get("penstock_version", "?")


def _port(name: str, number: int, running: str) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As a server does.
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            if running:
                return Finding("ports", f"{name} {number}", "in use while a Penstock server runs here")
            advice = "Another program uses this port. Start the server with another one; see `penstock serve --help`."
            return Finding("ports", f"{name} {number}", "in use by another program", WARNING, advice)
    return Finding("ports", f"{name} {number}", "free")


def _version(running: str) -> Finding:
    if running in ("?", __version__):
        value = "running; it requires a login" if running == "?" else f"running, version {running}"
        return Finding("ports", "server", value)
    advice = f"This command has version {__version__}. Restart the server to run the installed version."
    return Finding("ports", "server", f"running, version {running}", WARNING, advice)
