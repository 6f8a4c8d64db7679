"""A proxy before the bus of a node: it can stop passing on what some say, as a network does that is cut in two."""

from __future__ import annotations

import contextlib
import socket
import threading

from penstock.wire import bus

from .serving import PATIENCE_S


class Proxy:
    """What other nodes take for the bus of a node."""

    def __init__(self) -> None:
        self.to = 0  # The port of the bus.
        self.silenced: set[bytes] = set()  # Whose words are not passed on.
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
        """End all calls, and take no others; quietly: so that the one who was called does not hear of it."""
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
        """Hear who calls, then pass on what they say; while they are silenced it is lost, and the call with it."""
        with contextlib.suppress(OSError, AssertionError):
            word = _word(caller)
            node = bus.hello(word[4:], False).node
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
                # What was lost once leaves a hole: nothing behind it would be understood.
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
    """The first word of a handshake."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = caller.recv(1024)
        assert more
        data += more
    return data
