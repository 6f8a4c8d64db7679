"""Runs the application with uvicorn until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from penstock._version import __version__
from penstock.core.errors import PenstockError
from penstock.web.node_pool import NodePool
from penstock.web.origins import is_loopback
from penstock.web.state import State

DEFAULT_PORT: Final = 7780

# How long requests may take to end after SIGTERM. Streams and waiting requests end at once.
_GRACEFUL_S: Final = 5
_KEEP_ALIVE_S: Final = 75
# What may be queued before uvicorn accepts a connection.
_BACKLOG: Final = 2_048
_UNREAD_MS: Final = 30_000
_DESCRIPTORS: Final = 65_536

_log = logging.getLogger("penstock.web")


class NotServed(PenstockError):
    """The API cannot start. The message says why."""


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where the API listens."""

    host: str
    port: int
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"


class _Server(uvicorn.Server):
    """A server that ends streams and waiting requests first, because uvicorn waits for all connections to end."""

    state: State

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the server at SIGTERM and SIGINT. uvicorn's own method would also end the process by the signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.force_exit = self.should_exit  # The second signal does not wait for requests.
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("api stopping: streams=%d waiting=%d", self.state.streams, self.state.waits)
        self.state.stop()
        await super().shutdown(sockets)


def serve(app: Starlette, where: Listening) -> int:
    """Serve the application. Return the exit code."""
    state: State = app.state.api
    raise_descriptor_limit()
    listener = _listen(where)
    with contextlib.closing(listener):
        try:
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACEFUL_S,
                ssl_certfile=where.tls_cert,
                ssl_keyfile=where.tls_key,
                lifespan="on",
                ws="none",
            )
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise NotServed(f"the certificate or its key cannot be used: {error}") from None
        server = _Server(config)
        server.state = state
        # The application logs its errors itself. uvicorn would report each stream that is closed as too slow.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_run(server, state, where, listener))
    return 0


async def _run(server: _Server, state: State, where: Listening, listener: socket.socket) -> None:
    if not is_loopback(where.host) and await is_open_node(state.pool):
        raise NotServed(
            f"the server {state.target} has no users, so the API listens on this machine only; configure users on the "
            f"server, or bind the API to 127.0.0.1 instead of {where.host}"
        )
    _log.info(
        "api started: version=%s url=%s%s node=%s", __version__, where.url, state.settings.path_prefix, state.target
    )
    await server.serve(sockets=[listener])
    _log.info("api stopped")


async def is_open_node(pool: NodePool) -> bool:
    """Return whether the node answers clients that have not logged in. If it does not answer at all, return False."""
    from penstock.client.commands import REPEAT, Call
    from penstock.web.credentials import ANONYMOUS
    from penstock.web.refusals import Refused

    def read(answer: Any) -> bool:
        return True

    try:
        return await pool.run(ANONYMOUS, Call([b"PING"], read, REPEAT))
    except (PenstockError, OSError, EOFError, Refused):
        return False


def _listen(where: Listening) -> socket.socket:
    """Return a socket that listens."""
    try:
        family = socket.AF_INET6 if _is_ipv6(where.host) else socket.AF_INET
        listener = socket.create_server((where.host, where.port), family=family, backlog=_BACKLOG)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it: a client that does not read is disconnected, and its memory is freed.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NotServed(
            f"cannot listen on {where.host}:{where.port}: {reason}; choose another --port or --bind"
        ) from None


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def raise_descriptor_limit() -> None:
    """Let the process have as many open streams as the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
