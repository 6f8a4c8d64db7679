"""Unfinished TLS handshakes: a group of listeners counts them, and closes the oldest one when there is no more room.

A TLS port accepts plain TCP connections, and TLS starts here. A TLS listener of asyncio would keep an unfinished
handshake to itself until its timeout, so nothing could count or close it.

`start_tls` is not used, because uvloop reads from a new connection as soon as `connection_made` returns, even if that
paused reading. The first bytes could arrive before TLS has started. Instead, the socket is taken from the plain
transport before anything is read, and `connect_accepted_socket` runs TLS on it.

A connection gets its protocol, and a client its session, when its handshake is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

Accept = Callable[[], asyncio.BaseProtocol]


class Handshakes:
    """The unfinished TLS handshakes of some listeners, oldest first."""

    def __init__(self, make_room: Callable[[], bool]) -> None:
        """Create an empty group. `make_room` tries to make room for a handshake and returns whether there is room."""
        self._make_room = make_room
        self._unfinished: dict[Handshake, None] = {}

    def __len__(self) -> int:
        return len(self._unfinished)

    def accept(self, accept: Accept, context: ssl.SSLContext, timeout_s: float) -> asyncio.BaseProtocol:
        """Return the asyncio protocol object for the next connection to a TLS port.

        `accept` makes the protocol object that gets the decrypted bytes after the handshake.
        """
        return _Accepted(self, accept, context, timeout_s)

    def begin(self, transport: asyncio.Transport, accept: Accept, context: ssl.SSLContext, timeout_s: float) -> None:
        """Start TLS on an accepted connection, or close it if there is no room."""
        if self._make_room():
            # Without a free descriptor the connection can only be closed.
            with contextlib.suppress(OSError):
                handshake = Handshake(self, transport.get_extra_info("socket").dup(), accept)
                self._unfinished[handshake] = None
                handshake.begin(context, timeout_s)
        # This closes one of the two descriptors of the connection, or the only one.
        transport.abort()

    def end(self, handshake: Handshake) -> None:
        """Stop counting a handshake, because it has finished or failed."""
        self._unfinished.pop(handshake, None)

    def close_oldest(self) -> bool:
        """Close the oldest unfinished handshake. Return whether there was one."""
        for oldest in self._unfinished:
            self.end(oldest)
            oldest.close()
            return True
        return False

    def close(self) -> None:
        while self.close_oldest():
            pass


class Handshake(asyncio.Protocol):
    """A connection whose TLS handshake is not finished."""

    def __init__(self, handshakes: Handshakes, sock: socket.socket, accept: Accept) -> None:
        self._handshakes = handshakes
        self._socket = sock
        self._accept = accept
        self._task: asyncio.Task[None] | None = None

    def begin(self, context: ssl.SSLContext, timeout_s: float) -> None:
        """Start the handshake with this context. It fails after `timeout_s` seconds."""
        self._task = asyncio.get_running_loop().create_task(self._run(context, timeout_s))

    async def _run(self, context: ssl.SSLContext, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self, self._socket, ssl=context, ssl_handshake_timeout=timeout_s)
        except OSError as error:
            # The peer failed, left, took too long or was closed. With asyncio, the error and the frames of its
            # traceback refer to each other. They would keep the buffers of TLS, 300 KB, until garbage is collected.
            error.__traceback__ = None
        finally:
            self._handshakes.end(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over to its protocol, because the handshake is finished."""
        self._handshakes.end(self)
        protocol = self._accept()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    def close(self) -> None:
        """Close the socket. The transport detects this in every state of the handshake."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class _Accepted(asyncio.Protocol):
    """A connection to a TLS port that was just accepted."""

    def __init__(self, handshakes: Handshakes, accept: Accept, context: ssl.SSLContext, timeout_s: float) -> None:
        self._handshakes = handshakes
        self._accept = accept
        self._context = context
        self._timeout_s = timeout_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        plain = cast(asyncio.Transport, transport)
        self._handshakes.begin(plain, self._accept, self._context, self._timeout_s)
