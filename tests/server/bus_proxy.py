"""A proxy in front of a node's bus. It can drop the messages of some nodes, as a network partition does."""

from __future__ import annotations

import contextlib
import socket
import threading

from penstock.wire import bus

from .serving import PATIENCE_S


class Proxy:
    """The address that other nodes use as the bus of a node."""

    def __init__(self) -> None:
        self.to = 0  # The port of the real bus.
        self.silenced: set[bytes] = set()  # The nodes whose messages are dropped.
        self._is_cut = False
        self._is_quiet = False
        self._callers: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            _end(each)
            each.close()

    def cut(self, quietly: bool = False) -> None:
        """Close all connections and accept no others. With `quietly`, the node behind the proxy does not notice."""
        self._is_cut, self._is_quiet = True, quietly
        for caller in self._callers:
            _end(caller)

    def mend(self) -> None:
        self._is_cut = self._is_quiet = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self._open.append(caller)
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        """Read the first message, then forward. If the sender is silenced, its messages and its connection are lost."""
        with contextlib.suppress(OSError, AssertionError):
            word = _word(caller)
            node = bus.parse_hello(word[4:], False).node
            if self._is_cut:
                _end(caller)
                return
            called = socket.create_connection(("127.0.0.1", self.to), timeout=PATIENCE_S)
            called.settimeout(None)
            self._open.append(called)
            self._callers.append(caller)
            answers = threading.Thread(target=self._pass_on, args=(called, caller, node), daemon=True)
            answers.start()
            if node not in self.silenced:
                called.sendall(word)
            self._pass_on(caller, called, node)

    def _pass_on(self, here: socket.socket, there: socket.socket, node: bytes) -> None:
        silenced = False
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                # After a lost message, the next ones cannot be decoded.
                silenced = silenced or node in self.silenced
                if not silenced:
                    there.sendall(data)
        if not self._is_quiet:
            _end(here)
            _end(there)


def _end(call: socket.socket) -> None:
    with contextlib.suppress(OSError):
        call.shutdown(socket.SHUT_RDWR)


def _word(caller: socket.socket) -> bytes:
    """Read the first message of a handshake."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = caller.recv(1024)
        assert more
        data += more
    return data
