"""The dashboard mounted below a path of another application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette

import penstock
from tests.ports import free_port
from tests.server.serving import Server, wait_for

from .dashboard_site import opened


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[str]:
    """The address of a dashboard below /queues of an application."""
    with Server(tmp_path, "--appendfsync", "everysec") as node:
        with penstock.connect(f"penstock://127.0.0.1:{node.port}") as queue:
            queue.tube("a/b").put("x")
        app = Starlette()
        dashboard: Any = penstock.dashboard(f"penstock://127.0.0.1:{node.port}")
        app.mount("/queues", dashboard)
        port = free_port()
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1))

        async def serve() -> None:
            await server.serve()
            # Starlette does not report the end to a mounted application. Its connections would stay open.
            await dashboard._app.state.api.close()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{port}/queues"
        server.should_exit = True
        thread.join()


def test_a_mounted_dashboard_works_below_its_path(browser: Any, mounted: str) -> None:
    with opened(browser, f"{mounted}/tubes") as page:
        page.get_by_role("link", name="a/b").click()
        page.wait_for_url("**/queues/tubes/a%2Fb")
        page.locator("h1", has_text="a/b").wait_for()
        page.locator("#live[data-state=live]").wait_for()
        page.get_by_role("link", name="Overview").click()
        page.wait_for_url("**/queues/")
        page.locator("h1", has_text="Overview").wait_for()


@pytest.mark.parametrize("url", ["./jobs", ":memory:"])
def test_a_queue_without_a_server_has_no_dashboard(url: str) -> None:
    with pytest.raises(penstock.Unsupported, match="penstock serve"):
        penstock.dashboard(url)
