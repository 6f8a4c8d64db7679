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
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

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
            called = socket.create_connection(("127.0.0.1", self.to), timeout=PATIENCE_S)
            called.settimeout(None)
            self._open.append(called)
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
        for each in (here, there):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _word(caller: socket.socket) -> bytes:
    """The first word of a handshake."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = caller.recv(1024)
        assert more
        data += more
    return data
