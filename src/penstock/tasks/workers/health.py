"""The health checks of a worker over HTTP: /livez and /readyz.

A thread answers them, so that a probe takes milliseconds while the event loop is busy, and fails while it hangs.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

_READ_S: Final = 2.0
_REQUEST_BYTES_MAX: Final = 8_192


class HealthServer:
    """Answers with 200 or 503, as `live` and `ready` return."""

    def __init__(self, host: str, port: int, live: Callable[[], bool], ready: Callable[[], bool]) -> None:
        self._checks = {"/livez": live, "/readyz": ready}
        self._socket = socket.create_server((host, port))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="penstock-health", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # It was closed.
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_READ_S)
                connection.sendall(self._answer(_read_request(connection)))

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b" ", 2)
        path = words[1].decode("latin-1").partition("?")[0] if len(words) == 3 else ""
        check = self._checks.get(path)
        if check is None:
            return _response("404 Not Found", "not found; available paths: /livez, /readyz\n")
        return _response("200 OK", "ok\n") if check() else _response("503 Service Unavailable", "not ok\n")


def _read_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request and len(request) < _REQUEST_BYTES_MAX:
        more = connection.recv(_REQUEST_BYTES_MAX)
        if not more:
            break
        request += more
    return request


def _response(status: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()
