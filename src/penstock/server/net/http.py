"""The node's HTTP port, for health checks and metrics: /livez, /readyz and /metrics. One request per connection.

It answers GET and HEAD, ignores the body of a request, and refuses all other methods. Health checks are open to
everyone who can reach the port, and /metrics is not (`metrics_access.py`). It checks `Host`
(`http_host.py`), because a web page could otherwise read the metrics through the browser of a user who can reach this
port.

The number of connections is limited. A new connection takes the place of the oldest one that has not sent its request,
or else of the oldest one that does not read its reply. So silent connections never keep a health check out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from penstock.server.net.addresses import shown_address
from penstock.server.net.http_host import BadHost, is_allowed, named_host

_REQUEST_BYTES_MAX: Final = 16 * 1024
_HEADERS_MAX: Final = 100
_REQUEST_S: Final = 10.0

# The maximum number of connections. Each uses a descriptor of the server's reserve.
CONNECTIONS_MAX: Final = 32

TEXT: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HttpRequest:
    """A request: its path, its headers, and where it comes from."""

    def __init__(self, path: str, headers: list[bytes], address: str, is_local: bool, is_encrypted: bool) -> None:
        self.path = path
        self.headers = headers
        self.address = address
        self.is_local = is_local  # The client is on this machine.
        self.is_encrypted = is_encrypted  # The connection uses TLS.

    def header(self, name: bytes) -> bytes:
        """Return the value of the first header with a name in lower case, or b"" if there is none."""
        for header in self.headers:
            word, _, value = header.partition(b":")
            if word.strip().lower() == name:
                return value.strip()
        return b""


class Answer:
    """The HTTP response to a request. `text` can be given as encoded parts."""

    def __init__(self, status: int, text: str | list[bytes], content_type: str = TEXT, headers: str = "") -> None:
        """Create a response. `headers` are further headers, each with its line end."""
        self.status = status
        self.text = text
        self.content_type = content_type
        self.headers = headers

    def encode(self, with_body: bool) -> list[bytes]:
        """Return the bytes of the response in parts. Without `with_body`, the body is left out, as for HEAD."""
        body = self.text if isinstance(self.text, list) else [self.text.encode("utf-8", "replace")]
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {sum(map(len, body))}\r\n"
            f"{self.headers}"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        return [head.encode(), *(body if with_body else [])]


Pages = dict[str, Callable[[HttpRequest], Answer | Awaitable[Answer]]]


class HttpPort:
    """All connections to the HTTP port of a node."""

    def __init__(self, pages: Pages, allowed_hosts: Callable[[], Sequence[str]], connections_max: int) -> None:
        """Create the port. `pages` are functions that make responses, by path.

        `allowed_hosts` returns the present value of the setting `http-hosts`.
        """
        self.pages = pages
        self.allowed_hosts = allowed_hosts
        self._connections_max = connections_max
        self._asking: dict[HttpConnection, None] = {}  # Their requests are not complete; the oldest is first.
        self._answered: dict[HttpConnection, None] = {}  # Not all of their response is sent.

    def accept(self) -> HttpConnection:
        return HttpConnection(self)

    def opened(self, connection: HttpConnection) -> None:
        """Register a connection. If there are too many, close another one."""
        if len(self._asking) + len(self._answered) >= self._connections_max:
            oldest = next(iter(self._asking or self._answered))
            self.closed(oldest)
            oldest.abort()
        self._asking[connection] = None

    def answering(self, connection: HttpConnection) -> None:
        """Record that the response of a connection is being sent."""
        if connection in self._asking:
            del self._asking[connection]
            self._answered[connection] = None

    def closed(self, connection: HttpConnection) -> None:
        self._asking.pop(connection, None)
        self._answered.pop(connection, None)


class HttpConnection(asyncio.Protocol):
    """A connection to the HTTP port: one request and its response."""

    def __init__(self, port: HttpPort) -> None:
        self._port = port
        self._received = b""
        self._task: asyncio.Task[None] | None = None  # Makes the response, if that takes long.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._timeout = asyncio.get_running_loop().call_later(_REQUEST_S, self._transport.abort)
        self._port.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._timeout.cancel()
        self._port.closed(self)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self._task is not None:
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
            path = words[1].partition(b"?")[0].decode("ascii", "replace")
            answer = self._answer_to(path, headers)
            with_body = words[0] == b"GET"
            if isinstance(answer, Answer):
                self._send(answer, with_body)
            else:
                self._task = asyncio.get_running_loop().create_task(self._send_later(answer, with_body))

    def _answer_to(self, path: str, headers: list[bytes]) -> Answer | Awaitable[Answer]:
        try:
            host = named_host(headers)
        except BadHost as error:
            return Answer(400, f"{error}\n")
        if not is_allowed(host, self._port.allowed_hosts()):
            return Answer(421, "this server does not answer to the name in Host; add the name to http-hosts\n")
        page = self._port.pages.get(path)
        if page is None:
            return Answer(404, f"not found; available paths: {', '.join(self._port.pages)}\n")
        address, is_local = shown_address(self._transport.get_extra_info("peername"))
        is_encrypted = self._transport.get_extra_info("sslcontext") is not None
        return page(HttpRequest(path, headers, address, is_local, is_encrypted))

    async def _send_later(self, answer: Awaitable[Answer], with_body: bool) -> None:
        self._port.answering(self)
        self._send(await answer, with_body)

    def _send(self, answer: Answer, with_body: bool = True) -> None:
        self._port.answering(self)
        for part in answer.encode(with_body):
            self._transport.write(part)
        self._transport.close()
