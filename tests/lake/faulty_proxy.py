"""An HTTP proxy in front of an object store, which injects faults into chosen requests.

It is a process of its own, because deltalake holds Python's lock while it waits for a store.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.lake.stores import S3, running
from tests.ports import free_port

_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>{}</Message></Error>"
_REPLIES = {
    "refuse": (403, _ERROR.format("AccessDenied", "Access Denied")),
    "throttle": (503, _ERROR.format("SlowDown", "Please reduce your request rate.")),
}
_CONTROL = "/-/faults"


class FaultyStore(S3):
    """The proxy as a store."""

    def inject(self, fault: str, requests: str = "", every: int = 1, times: int = 1_000_000) -> None:
        """Inject a fault into every n-th of the requests whose method and path match a pattern.

        Faults are "refuse", "throttle", "drop" (the request is not delivered) and "lose the reply".
        """
        self._control({"fault": fault, "requests": requests, "every": every, "times": times})

    def heal(self) -> int:
        """Inject no more faults. Return how many requests had one."""
        return self._control({"fault": "", "requests": "", "every": 1, "times": 0})

    def _control(self, settings: dict[str, Any]) -> int:
        asked = urllib.request.Request(self.url + _CONTROL, json.dumps(settings).encode(), method="POST")
        with urllib.request.urlopen(asked) as answer:
            return int(answer.read())


@contextlib.contextmanager
def faulty_store(store: S3) -> Iterator[FaultyStore]:
    """Run a proxy in front of a store for the block."""
    port = free_port()
    with running([sys.executable, "-m", "tests.lake.faulty_proxy", str(port), str(store.port)], port):
        yield FaultyStore(port)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store_port: ClassVar = 0
    settings: ClassVar[dict[str, Any]] = {"fault": "", "requests": "", "every": 1, "times": 0}
    seen: ClassVar = 0
    injected: ClassVar = 0

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == _CONTROL:
            self._reply(200, [], str(_Handler.injected).encode())
            _Handler.settings, _Handler.seen, _Handler.injected = json.loads(body), 0, 0
            return
        fault = self._fault()
        if fault == "drop":
            self.close_connection = True
        elif fault in _REPLIES:
            status, text = _REPLIES[fault]
            self._reply(status, [], text.encode())
        else:
            there = http.client.HTTPConnection("127.0.0.1", self.store_port, timeout=60)
            there.request(self.command, self.path, body, dict(self.headers))
            answer = there.getresponse()
            found = answer.read()
            there.close()
            if fault == "lose the reply":
                self.close_connection = True
            else:
                self._reply(answer.status, answer.getheaders(), found)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _fault(self) -> str:
        wanted = self.settings
        if not wanted["fault"] or not re.search(wanted["requests"], f"{self.command} {self.path}"):
            return ""
        _Handler.seen += 1
        if _Handler.seen % wanted["every"] or _Handler.injected >= wanted["times"]:
            return ""
        _Handler.injected += 1
        return str(wanted["fault"])

    def _reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if "content-length" not in {name.lower() for name, _ in headers}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    _Handler.store_port = int(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
