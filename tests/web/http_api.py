"""The HTTP API under test: uvicorn in a thread of this process, and a node in its own process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from penstock.web import Settings, create_app

PATIENCE_S = 20.0


class Api:
    """An API that serves, and a client of it."""

    def __init__(self, app: Starlette, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.loop = loop
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.Client(base_url=f"{self.url}/api/v1", timeout=PATIENCE_S, limits=limits)

    def stop(self) -> None:
        """Let the API end its streams and waiting requests, as SIGTERM does."""
        self.loop.call_soon_threadsafe(self.app.state.api.stop)

    def call(self, method: str, path: str, body: Any = None, status: int | None = None, **options: Any) -> Any:
        """Return the JSON of a response, and check its status: by default any of 2xx."""
        if body is not None:
            options["json"] = body
        answer = self.http.request(method, path, **options)
        expected = range(200, 300) if status is None else (status,)
        assert answer.status_code in expected, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def get(self, path: str, **options: Any) -> Any:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.call("POST", path, body, **options)

    def refused(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """Return the status and the code of a refused request."""
        if body is not None:
            options["json"] = body
        answer = self.http.request(method, path, **options)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "hint"} and error["message"]
        return answer.status_code, error["code"]

    def session(self, grace: str = "1m") -> dict[str, str]:
        """Begin a session. Return the headers that name it."""
        return {"Penstock-Session": self.post("/sessions", {"grace": grace})["session"]}

    def raw(self, data: bytes) -> tuple[int, bytes]:
        """Send a request that asks to close the connection. Return the status and the body of the response."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(data)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    def raw_get(self, path: bytes, *headers: bytes) -> tuple[int, bytes]:
        lines = [b"GET " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers]
        return self.raw(b"\r\n".join(lines) + b"\r\n\r\n")

    @contextmanager
    def events(self, query: str = "", path: str = "/events", **options: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        """Open an event stream. Return an iterator over the names and data of its events."""
        with self.http.stream("GET", f"{path}{query}", **options) as answer:
            assert answer.status_code == 200, answer.read()
            yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@contextmanager
def serving(node: int | str, **settings: Any) -> Iterator[Api]:
    """Serve the API for a node, which is a port or a URL."""
    url = f"penstock://127.0.0.1:{node}" if isinstance(node, int) else node
    app = create_app(url, Settings(**{"tick_s": 0.05, **settings}))
    config = uvicorn.Config(
        app, log_config=None, server_header=False, lifespan="on", ws="none", timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    started = threading.Event()

    async def run() -> None:
        serve = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started and not serve.done():
            await asyncio.sleep(0.005)
        started.set()
        await serve

    def stop() -> None:
        app.state.api.stop()
        server.should_exit = True

    loop = config.get_loop_factory()()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert started.wait(PATIENCE_S)
    api = Api(app, listener.getsockname()[1], loop)
    try:
        yield api
    finally:
        api.http.close()
        loop.call_soon_threadsafe(stop)
        thread.join(PATIENCE_S)
        loop.close()
        listener.close()
        assert not thread.is_alive()
