"""Loading the journal in a thread, while clients and health checks get an answer.

A million jobs take seconds to load. A journal that is loaded within `SOON_S` is loaded before any port is open, so a
client of a small queue never gets LOADING. After that time the ports are opened (`ports.py`):

    RESP            -LOADING with the progress; INFO is answered if clients need no password
    IPROTO          error 116, ER_LOADING
    GET /livez      200, because the process works and must not be killed
    GET /readyz     503 with the progress

No password is compared while the journal loads: AUTH is answered with LOADING, too. Connections that are opened
meanwhile are kept, and become ordinary clients when the journal is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, cast

from penstock.core.errors import Loading as LoadingError
from penstock.core.limits import WAITS_PER_CONNECTION_MAX
from penstock.dialects.tarantool.calls import CallInbox
from penstock.host.host import Host
from penstock.journal.identity import identity
from penstock.journal.real_disk import RealDisk
from penstock.node.inbox import RespInbox
from penstock.node.loading import refuse_calls, refuse_commands
from penstock.server.commands.function_table import VERSION, uuid_of
from penstock.server.commands.info_command import section
from penstock.server.config.configuration import Config
from penstock.server.net.clients import HANDSHAKES_MAX
from penstock.server.net.connection import Connection
from penstock.server.net.descriptors import clients_that_fit
from penstock.server.net.http import Answer, HttpRequest, Pages
from penstock.server.net.iproto_port import IprotoPort
from penstock.server.net.listening import Accept
from penstock.server.net.ports import IPROTO_PORTS, Ports
from penstock.server.net.tls import Handshakes
from penstock.server.server import ENVELOPE_BYTES, Server
from penstock.server.service_manager import report_loading
from penstock.wire import iproto
from penstock.wire.iproto import IprotoParser
from penstock.wire.resp import RespParser

_log = logging.getLogger("penstock")

# No port is open before this time is over. It is shorter than the timeout of a liveness probe.
SOON_S: Final = 1.0

# The progress is logged this often.
_LOG_INTERVAL_S: Final = 1.0

# After the replies to this many commands, it is checked whether the client reads them.
_COMMANDS_AT_ONCE: Final = 64

T = TypeVar("T")
OpenHost = Callable[[Config, Callable[[int, int], None]], Host]


class Progress:
    """The progress of loading the journal. A thread writes it, and the event loop reads it."""

    def __init__(self) -> None:
        self.began = time.time()
        self.done_bytes = 0
        self.total_bytes = 0
        self._logged = time.monotonic()

    def update(self, done_bytes: int, total_bytes: int) -> None:
        """Store how many bytes are loaded, log this from time to time, and let the event loop run.

        Compiled code never releases the interpreter lock by itself, so this sleeps for 0 seconds.
        """
        self.done_bytes, self.total_bytes = done_bytes, total_bytes
        if time.monotonic() - self._logged > _LOG_INTERVAL_S:
            self._logged = time.monotonic()
            _log.info("loading journal: progress=%s", self)
            report_loading(str(self))
        time.sleep(0)

    @property
    def percent(self) -> float:
        return 100 * self.done_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def left_s(self) -> int:
        """Return the estimated seconds left, or 0 while nothing has been read."""
        elapsed_s = time.time() - self.began
        return round(elapsed_s * (self.total_bytes - self.done_bytes) / self.done_bytes) if self.done_bytes else 0

    def __str__(self) -> str:
        return f"{self.percent:.0f} % ({self.done_bytes >> 20} of {self.total_bytes >> 20} MB)"

    def sentence(self) -> str:
        """Return the error line, with its code, that refuses a command while the journal is loading."""
        return f"{LoadingError.code} Penstock is loading its journal, {self}; try again soon"

    def info(self) -> str:
        """Return the Persistence section of INFO, with Disque's field names."""
        return section(
            "Persistence",
            {
                "loading": 1,
                "loading_start_time": int(self.began),
                "loading_total_bytes": self.total_bytes,
                "loading_loaded_bytes": self.done_bytes,
                "loading_loaded_perc": f"{self.percent:.2f}",
                "loading_eta_seconds": self.left_s,
            },
        )


class Loading:
    """A server whose journal is being loaded, and the clients that wait for it."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.progress = Progress()
        self.needs_password = bool(config.requirepass or config.users)
        self.connections: dict[_LoadingConnection, None] = {}
        self._loop = loop
        self._clients_max = clients_that_fit(config.max_clients)
        self._handshakes = Handshakes(self._make_room)
        iproto: dict[str, Accept] = {name: partial(_IprotoLoading, self, name) for name in IPROTO_PORTS}
        self.ports = Ports(config, loop, partial(_RespLoading, self), iproto, self._pages(), self._handshakes)

    async def run(self, open_host: OpenHost, stopped: asyncio.Future[None]) -> Host | None:
        """Load the journal and return its host, or None if the server is stopped first.

        A stop during loading does not damage the files of the queue.
        """
        loaded = _in_thread(self._loop, lambda: open_host(self.config, self.progress.update))
        ends: list[asyncio.Future[Any]] = [loaded, stopped]
        await asyncio.wait(ends, timeout=SOON_S, return_when=asyncio.FIRST_COMPLETED)
        if not (loaded.done() or stopped.done()):
            await self.ports.bind()
            await self.ports.accept()
            _log.info("loading journal: progress=%s; clients get LOADING until it is loaded", self.progress)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not loaded.done():
            self.ports.close()
            return None
        try:
            return loaded.result()
        except BaseException:
            self.ports.close()
            raise

    def hand_over(self, server: Server, iproto_ports: dict[str, IprotoPort], pages: Pages) -> None:
        """Hand all present and future connections over to the server.

        `iproto_ports` are the IPROTO ports of the server, by the names of their settings.
        """
        self.ports.resp = server.clients.accept
        self.ports.iproto = {name: port.accept for name, port in iproto_ports.items()}
        self.ports.http.pages = pages
        self.ports.handshakes = server.clients.handshakes
        for connection in list(self.connections):
            connection.hand_over(server, iproto_ports)

    def opened(self, connection: _LoadingConnection) -> bool:
        """Register a new connection. Return False if there are too many connections."""
        if len(self.connections) >= self._clients_max:
            return False
        self.connections[connection] = None
        return True

    def _make_room(self) -> bool:
        """Make room for one more TLS handshake, by closing the oldest one if necessary. Return True."""
        if len(self._handshakes) >= HANDSHAKES_MAX:
            self._handshakes.close_oldest()
        return True

    def _pages(self) -> Pages:
        def progress(_: HttpRequest) -> Answer:
            return Answer(503, f"loading: {self.progress}, about {self.progress.left_s} s left\n")

        return {"/livez": lambda _: Answer(200, "alive\n"), "/readyz": progress, "/metrics": progress}


class _LoadingConnection(asyncio.Protocol):
    """A client that is connected while the journal is loaded."""

    parser: RespParser | IprotoParser

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._is_unread = False  # The client does not read its replies.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        if not self._loading.opened(self):
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._loading.connections.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self.parser.feed(data)
        self._answer()

    def pause_writing(self) -> None:
        self._is_unread = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_unread = False
        self.transport.resume_reading()
        self._answer()

    def _answer(self) -> None:
        """Refuse all complete commands. Stop if the client does not read the replies."""
        while not self._is_unread and not self.transport.is_closing():
            self.transport.write(self.answers())
            if self.parser.error:
                self.transport.close()
            if not self.parser.has_more:
                return

    def answers(self) -> bytes:
        """Return the replies to the commands that were received, and an error if the bytes are malformed."""
        raise NotImplementedError

    def hand_over(self, server: Server, iproto_ports: dict[str, IprotoPort]) -> None:
        """Replace this object by a client of the server, which also gets the received part of an incomplete command."""
        if self._is_unread or self.transport.is_closing():
            # The client has not read its refusals. Closing is safe, because none of its commands was run.
            self.transport.abort()
            return
        client = self.client(server, iproto_ports)
        self.transport.set_protocol(cast(asyncio.BaseProtocol, client))
        client.connection_made(self.transport)
        client.data_received(b"")

    def client(self, server: Server, iproto_ports: dict[str, IprotoPort]) -> Connection:
        """Return the client object that handles this connection once the journal is loaded."""
        raise NotImplementedError


class _RespLoading(_LoadingConnection):
    parser: RespParser

    def __init__(self, loading: Loading) -> None:
        super().__init__(loading)
        config = loading.config
        self.parser = RespParser(
            config.max_body + ENVELOPE_BYTES, config.max_query_buffer, known=not loading.needs_password
        )

    def answers(self) -> bytes:
        progress = self._loading.progress
        info = None if self._loading.needs_password else progress.info
        return refuse_commands(self.parser, _COMMANDS_AT_ONCE, progress.sentence().encode(), info)

    def client(self, server: Server, iproto_ports: dict[str, IprotoPort]) -> Connection:
        client = cast(Connection, server.clients.accept())
        client.inbox = RespInbox(self.parser, server.dispatcher)
        return client


class _IprotoLoading(_LoadingConnection):
    parser: IprotoParser

    def __init__(self, loading: Loading, setting: str) -> None:
        super().__init__(loading)
        config = loading.config
        self.parser = IprotoParser(
            config.max_body + ENVELOPE_BYTES, config.max_query_buffer, known=not loading.needs_password
        )
        self._setting = setting
        self._salt = secrets.token_bytes(32)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        node = identity(RealDisk(str(self._loading.config.dir))).node
        self.transport.write(iproto.greeting(VERSION, uuid_of(node), self._salt))

    def answers(self) -> bytes:
        return refuse_calls(self.parser, _COMMANDS_AT_ONCE, self._loading.progress.sentence().encode())

    def client(self, server: Server, iproto_ports: dict[str, IprotoPort]) -> Connection:
        port = iproto_ports[self._setting]
        # The client already has its greeting, and its password is scrambled with the salt in it.
        client = cast(Connection, server.clients.accept_as(port.greeted))
        client.salt = self._salt[: iproto.SALT_BYTES]
        client.inbox = CallInbox(self.parser, port.calls, WAITS_PER_CONNECTION_MAX)
        return client


def _in_thread(loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a thread that does not keep the process alive. Return a future with its result."""
    outcome: asyncio.Future[T] = loop.create_future()

    def finish(settle: Callable[[], None]) -> None:
        if not outcome.cancelled():
            settle()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            settle = partial(outcome.set_exception, error)
        else:
            settle = partial(outcome.set_result, result)
        with contextlib.suppress(RuntimeError):  # The loop is closed, because the server was stopped.
            loop.call_soon_threadsafe(finish, settle)

    threading.Thread(target=run, name="penstock-load", daemon=True).start()
    return outcome
