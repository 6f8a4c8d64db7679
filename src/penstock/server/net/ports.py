"""The ports of a server: for clients, for health checks, and for other nodes.

A port that the user asked for (by a flag, the environment or the configuration file) must open, or the server does not
start. A port that is open by default stays closed if it cannot be opened, and a warning names the option. A server
without any port for clients does not start.

Opening has two steps. `bind` reserves the ports, and connections wait. The settings then contain the ports that are
open, so the node can announce them. `accept` lets connections in. The protocol of a connection is chosen when it is
accepted, because it changes when the journal has been loaded: until then every command is answered with LOADING
(`loading.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from penstock.server.config.configuration import Config
from penstock.server.config.settings import CannotListen
from penstock.server.net.descriptors import share
from penstock.server.net.http import CONNECTIONS_MAX, HttpPort, Pages
from penstock.server.net.listening import Accept, bind, bind_unix, start
from penstock.server.net.tls import Handshakes
from penstock.server.peers.membership import bracketed, load_tls_files

# The settings of the IPROTO ports.
IPROTO_PORTS: Final = ("iproto_port", "iproto15_port", "iproto_tls_port", "iproto15_tls_port")

# Every setting of a port for clients, and the name of its protocol.
_CLIENT_PORTS: Final = {
    "port": "RESP",
    "tls_port": "RESP, TLS",
    "iproto_port": "IPROTO",
    "iproto15_port": "IPROTO, 1.5",
    "iproto_tls_port": "IPROTO, TLS",
    "iproto15_tls_port": "IPROTO, 1.5, TLS",
}


class Ports:
    """The listeners of a server, and the functions that make the protocol objects of new connections."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        resp: Accept,
        iproto: dict[str, Accept],
        pages: Pages,
        handshakes: Handshakes,
    ) -> None:
        """Create the ports, all closed. `resp` makes the protocol objects of RESP connections.

        `iproto` has a function for the connections of each IPROTO port, by the name of its setting. `pages` are the
        pages of the HTTP port.
        """
        self.resp = resp
        self.iproto = iproto
        self.http = HttpPort(pages, lambda: config.http_hosts, share(CONNECTIONS_MAX))
        self.handshakes = handshakes
        self.warnings: list[str] = []  # One for each default port that stays closed, with the reason.
        self._config = config
        self._loop = loop
        self._open: dict[str, str] = {}  # The addresses and the name of each open port, by its setting.
        self._listeners: list[asyncio.Server] = []
        self._waiting: list[asyncio.Server] = []  # Listeners that do not accept yet.

    async def bind(self) -> None:
        """Reserve all ports except the cluster bus. If this was done before, do nothing.

        The settings of ports that stay closed are set to 0.
        """
        if self._listeners:
            return
        config = self._config
        try:
            # The RESP listener is bound first and started last, so when it accepts a client, all other ports do, too.
            for setting in _CLIENT_PORTS:
                await self._bind_client_port(setting)
            if config.http_port:
                await self._bind("http_port", config.http_port, config.http_bind, self.http.accept, "HTTP")
            if config.http_tls_port:
                accept = self._with_tls(self.http.accept)
                await self._bind("http_tls_port", config.http_tls_port, config.http_bind, accept, "HTTPS")
            if config.unixsocket:
                await self._bind_unix()
            if not self._open.keys() & {*_CLIENT_PORTS, "unixsocket"}:
                raise CannotListen(_no_port(self.warnings))
        except BaseException:
            self.close()
            raise

    async def bind_bus(self, port: int, accept: Accept, is_needed: bool) -> bool:
        """Reserve the port of the cluster bus. Return whether that succeeded.

        Raise CannotListen if it fails and `is_needed` is set, or the user asked for the port.
        """
        return await self._bind("cluster_port", port, self._config.bind, accept, "cluster bus", is_needed)

    async def accept(self) -> None:
        """Start to accept connections on all ports."""
        for listener in reversed(self._waiting):
            await start(listener, self._config.tcp_backlog)
        self._waiting.clear()

    def close(self) -> None:
        """Close the listeners and unfinished TLS handshakes."""
        for listener in self._listeners:
            listener.close()
        self.handshakes.close()
        if "unixsocket" in self._open:
            self._config.within_dir(self._config.unixsocket).unlink(missing_ok=True)

    def __str__(self) -> str:
        """Return a text with the addresses of all open ports, for the log."""
        return ", ".join(self._open.values())

    def _accept_resp(self) -> asyncio.BaseProtocol:
        return self.resp()

    def _accept_iproto(self, setting: str) -> asyncio.BaseProtocol:
        return self.iproto[setting]()

    def _with_tls(self, accept: Accept) -> Accept:
        context = _tls_context(self._config)
        return lambda: self.handshakes.accept(accept, context, self._config.auth_timeout)

    async def _bind_client_port(self, setting: str) -> None:
        config = self._config
        port: int = getattr(config, setting)
        if not port:
            return
        accept: Accept = partial(self._accept_iproto, setting) if setting in IPROTO_PORTS else self._accept_resp
        if "tls" in setting:
            accept = self._with_tls(accept)
        if not await self._bind(setting, port, config.bind, accept, _CLIENT_PORTS[setting]):
            setattr(config, setting, 0)

    async def _bind(
        self, setting: str, port: int, hosts: Sequence[str], accept: Accept, name: str, is_needed: bool = False
    ) -> bool:
        """Reserve a port on all addresses of `hosts`. Return whether that succeeded.

        Raise CannotListen if it fails and the port is needed or was requested by the user.
        """
        try:
            self._add(await bind(self._loop, accept, hosts, port, self._config.tcp_backlog))
        except OSError as error:
            why, remedy = _explain(port, setting, error)
            if is_needed or self._config.origin(setting) != "default":
                raise CannotListen(f"cannot listen on {', '.join(hosts)}: {why}; {remedy}") from None
            article = "the " if setting == "cluster_port" else ""
            self.warnings.append(f"{why}, so {article}{name} is off; {remedy}")
            return False
        self._open[setting] = ", ".join(f"{bracketed(host)}:{port} ({name})" for host in hosts)
        return True

    async def _bind_unix(self) -> None:
        """Open the Unix socket. A socket that a crash left behind is replaced; any other file is kept."""
        config = self._config
        path = config.within_dir(config.unixsocket)
        try:
            if path.exists() and not path.is_socket():
                raise CannotListen(f"cannot listen on {config.unixsocket}: the file exists and is not a socket")
            path.unlink(missing_ok=True)
            sock = _unix_socket(path, config.unixsocketperm)
            self._add(await bind_unix(self._loop, self._accept_resp, sock, config.tcp_backlog))
        except OSError as error:
            raise CannotListen(f"cannot listen on {config.unixsocket}: {error.strerror or error}") from None
        self._open["unixsocket"] = f"{config.unixsocket} (Unix socket)"

    def _add(self, listener: asyncio.Server) -> None:
        self._listeners.append(listener)
        self._waiting.append(listener)


def _explain(port: int, setting: str, error: OSError) -> tuple[str, str]:
    """Return why a port could not be opened, and what the operator can do."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use", f"choose another port with {_flag(setting)}"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges", f"choose another port with {_flag(setting)}"
    hosts = "--http-bind" if setting.startswith("http") else "--bind"
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"port {port} cannot be opened ({why})", f"check {hosts}"


def _no_port(warnings: Sequence[str]) -> str:
    """Return the error for a server that would have no port for clients."""
    if not warnings:
        return "no port for clients is open; choose one with --port, --tls-port, --iproto-port or --unixsocket"
    causes = " and ".join(warning.partition(", so")[0] for warning in warnings)
    return f"cannot listen: {causes}, so no port for clients is open; {warnings[0].rpartition('; ')[2]}"


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _unix_socket(path: Path, mode: int) -> socket.socket:
    """Return a Unix socket that is bound to a path and has these permissions.

    With mode 0, the umask applies, and other users have no access. The socket does not listen yet, so no client can
    connect before the permissions are set.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file these permissions, less the umask. Other systems refuse this, and only the umask applies.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), mode or 0o775)
        sock.bind(str(path))
        if mode:
            path.chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock


def _tls_context(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_tls_files(context, config, ("tls_cert_file", "tls_key_file", "tls_ca_cert_file"))
    context.verify_mode = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}[
        config.tls_auth_clients
    ]
    return context
