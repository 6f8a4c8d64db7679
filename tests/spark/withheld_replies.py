"""A proxy that withholds the reply to a chosen command: the server has executed it, but the client cannot tell."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.server.serving import command


class Mute:
    """Forwards bytes until a command has occurred `times` times, and withholds the reply to the last occurrence.

    `silent` is set when the server has sent this reply. Other connections are not affected.
    """

    def __init__(self, port: int, *words: str, times: int = 1) -> None:
        self.silent = threading.Event()
        self._port = port
        # Without the number of arguments in front, because more arguments may follow.
        self._words = command(*words).partition(b"\r\n")[2]
        self._left = times
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"penstock://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hang_up(self) -> None:
        """Close all connections. Waiting clients get an error and may retry."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more connections, and close the existing ones."""
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += (client, server)
                muted = threading.Event()
                threading.Thread(target=self._pass_on, args=(client, server, muted), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(server, client, muted), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._words in data:
                    with self._lock:
                        self._left -= 1
                        if self._left == 0:
                            muted.set()
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _pass_back(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if muted.is_set():
                    self.silent.set()
                else:
                    client.sendall(data)
            client.shutdown(socket.SHUT_WR)
