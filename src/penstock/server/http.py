"""The node's HTTP port, for those who watch it: /livez, /readyz and /metrics. A request, an answer, and it is closed.

It answers GET and HEAD without a body, and nothing else: whatever is longer, slower or stranger is refused and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

_REQUEST_BYTES_MAX: Final = 16 * 1024
_HEADERS_MAX: Final = 100
_REQUEST_S: Final = 10.0

# So many are served at a time: each is an open file that the journal and the clients may need, and nobody is asked here
# who they are.
CONNECTIONS_MAX: Final = 16

TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Answer:
    """What is answered to a request."""

    def __init__(self, status: int, text: str, content_type: str = TEXT) -> None:
        self.status = status
        self.text = text
        self.content_type = content_type

    def encode(self, with_body: bool) -> bytes:
        """The bytes of it."""
        body = self.text.encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (body if with_body else b"")


Pages = dict[str, Callable[[], Answer]]


class HttpConnection(asyncio.Protocol):
    """One request."""

    def __init__(self, pages: Pages, all_of_them: set[HttpConnection]) -> None:
        self._pages = pages
        self._all = all_of_them  # That are open now.
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # It is one in all but its class: uvloop has classes of its own.
        self._transport = cast(asyncio.Transport, transport)
        self._timeout = asyncio.get_running_loop().call_later(_REQUEST_S, self._transport.abort)
        self._all.add(self)
        if len(self._all) > CONNECTIONS_MAX:
            self._send(Answer(503, "too many are being answered; try again\n"))

    def connection_lost(self, error: Exception | None) -> None:
        self._timeout.cancel()
        self._all.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end >= 0 and end <= _REQUEST_BYTES_MAX:
            self._answer(self._received[:end])
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._send(Answer(431, "the request is too long\n"))
        elif not self._received[:1].isalpha():
            self._send(Answer(400, "this port speaks HTTP\n"))

    def _answer(self, request: bytes) -> None:
        line, *headers = request.split(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            self._send(Answer(400, "this port speaks HTTP/1.1\n"))
        elif len(headers) > _HEADERS_MAX:
            self._send(Answer(431, "the request has too many headers\n"))
        elif words[0] not in (b"GET", b"HEAD"):
            self._send(Answer(405, "this port answers GET and HEAD\n"))
        else:
            page = self._pages.get(words[1].partition(b"?")[0].decode("ascii", "replace"))
            if page is None:
                listed = ", ".join(self._pages)
                self._send(Answer(404, f"there is no such page; there are {listed}\n"), words[0] == b"GET")
            else:
                self._send(page(), words[0] == b"GET")

    def _send(self, answer: Answer, with_body: bool = True) -> None:
        self._transport.write(answer.encode(with_body))
        self._transport.close()
