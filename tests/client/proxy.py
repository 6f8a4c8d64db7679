"""A proxy that cuts connections where a test wants it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator


class Proxy:
    """Forwards bytes, and cuts a connection after a number of bytes in one direction. Later connections are not cut.

    `to_client` and `to_server` are the numbers of bytes before the cut; None: no cut. Bytes before the cut arrive.
    `meanwhile` is called between a reply of the server and the moment when the client notices the cut.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        self.port = int(self._listener.getsockname()[1])
        self.to_client: int | None = None
        self.to_server: int | None = None
        self.pause_s = 0.0  # The delay after each piece for the server.
        self.meanwhile: Callable[[], object] | None = None
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_all(self) -> None:
        """Cut every open connection."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        try:
            self._copy(client, server)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {client, server}
            # The server reads everything that passed before it sees the end.
            server.close()
            client.close()

    def _copy(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(1 << 16)
                if not data:
                    return
                target = server if source is client else client
                left = self.to_server if source is client else self.to_client
                if left is not None and len(data) >= left:
                    self.to_server = self.to_client = None
                    self.cuts += 1
                    target.sendall(data[:left])
                    if self.meanwhile is not None:
                        meanwhile, self.meanwhile = self.meanwhile, None
                        meanwhile()
                    return
                if left is not None:
                    if source is client:
                        self.to_server = left - len(data)
                    else:
                        self.to_client = left - len(data)
                target.sendall(data)
                if self.pause_s and source is client:
                    time.sleep(self.pause_s)


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def url(port: int) -> str:
    """Return the URL of a server or proxy."""
    return f"penstock://127.0.0.1:{port}"
