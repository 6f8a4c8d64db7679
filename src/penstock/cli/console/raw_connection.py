"""A RESP connection that sends any command to any server and returns the answers with their types."""

from __future__ import annotations

import os
import select
import socket
import ssl
from dataclasses import replace
from typing import BinaryIO, Final

from penstock.cli.console.raw_replies import Reply, read
from penstock.client.url import Target, target
from penstock.core.errors import CommandError, ConnectionLost, NoServer, ProtocolError, WrongServer, refusal_of
from penstock.wire.resp_client import encode

CONNECT_SECONDS_MAX: Final = 5

# Errors of a connection. CommandError means that the server refused the authentication.
CONNECTION_ERRORS: Final = (NoServer, ConnectionLost, CommandError)


def address_of(url: str, user: str = "", password: str = "", tls: ssl.SSLContext | None = None) -> Target:
    """Return the first address in a URL, with its credentials. The other arguments override the parts of the URL."""
    found = target(url)
    return replace(
        found,
        seeds=found.seeds[:1],
        user=user or found.user,
        password=os.fsencode(password) or found.password,
        tls=tls or found.tls,
    )


class RawConnection:
    """Sends commands one at a time, and connects when necessary."""

    def __init__(self, address: Target, resp3: bool = False) -> None:
        self.address = address
        self._resp3 = resp3
        self._socket: socket.socket | None = None
        self._file: BinaryIO | None = None

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def is_closed_by_server(self) -> bool:
        """Return whether the server has closed the connection while it was idle."""
        if self._socket is None or not select.select([self._socket], [], [], 0)[0]:
            return False
        try:
            # Under TLS this reads encrypted bytes. Only their presence matters.
            return not socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except OSError:
            return True

    def connect(self) -> None:
        """Connect and authenticate. Raise NoServer, or CommandError if the server refuses the authentication."""
        address = self.address
        try:
            connection = socket.create_connection(address.seeds[0], timeout=CONNECT_SECONDS_MAX)
        except OSError as error:
            why = error.strerror or str(error)
            raise NoServer(
                f"no server answers at {address} ({why}); start one with `penstock serve`, or use -h and -p"
            ) from None
        try:
            if address.tls is not None:
                connection = address.tls.wrap_socket(connection, server_hostname=address.seeds[0][0])
        except OSError as error:
            connection.close()
            raise NoServer(f"{address}: TLS failed ({error}); see --cacert and --insecure, or omit --tls") from None
        except BaseException:
            connection.close()
            raise
        self._socket, self._file = connection, connection.makefile("rb")
        self._authenticate()
        # A command may block for days.
        connection.settimeout(None)

    def _authenticate(self) -> None:
        address = self.address
        user = [os.fsencode(address.user)] if address.user else []
        if self._resp3:
            greeting = [b"HELLO", b"3"]
            if user or address.password:
                greeting += [b"AUTH", *(user or [b"default"]), address.password]
        elif user or address.password:
            greeting = [b"AUTH", *user, address.password]
        else:
            return
        answer = self.call(greeting)
        if answer.is_error:
            self.close()
            code, _, sentence = answer.text.decode("utf-8", "backslashreplace").partition(" ")
            raise refusal_of(code, f"{address} refuses: {sentence.removesuffix('.')}; see -a and --user")

    def send(self, words: list[bytes]) -> None:
        """Send a command, and connect first if necessary. Read its answer with `receive`."""
        if self._socket is None:
            self.connect()
        assert self._socket is not None
        try:
            self._socket.sendall(encode(words))
        except OSError:
            # The server may have sent the reason before it closed the connection. `receive` reads it.
            pass

    def receive(self) -> Reply:
        """Return the next answer. If there is none, close the connection and raise ConnectionLost."""
        assert self._file is not None
        try:
            return read(self._file)
        except (EOFError, OSError):
            self.close()
            raise ConnectionLost(
                f"{self.address} closed the connection; it is unknown whether the command ran"
            ) from None
        except ProtocolError:
            self.close()
            raise WrongServer(f"the server at {self.address} does not speak RESP; check -h, -p and --tls") from None
        except BaseException:
            # The answer of the interrupted command must not be read as the answer of the next one.
            self.close()
            raise

    def call(self, words: list[bytes]) -> Reply:
        """Send a command and return its answer."""
        self.send(words)
        return self.receive()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._file = None
