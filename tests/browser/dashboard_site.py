"""A dashboard under test: a node and `penstock dashboard` as processes, and pages that report every defect."""

from __future__ import annotations

import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import penstock
from penstock.api import Queue
from tests.ports import free_port
from tests.server.serving import PATIENCE_S, PENSTOCK, Server, environment, wait_for

# Violations of the Content-Security-Policy are collected from the start of each page.
WATCH = "document.addEventListener('securitypolicyviolation', e => (window.refused ||= []).push(e.violatedDirective))"

HOSTILE = '<img src=x onerror="window.harmed=1">\'\u202e'
# Messages about requests that a test makes fail on purpose.
_EXPECTED = ("Failed to load resource", "net::ERR_")


class Site:
    """A node with a dashboard."""

    def __init__(self, home: Path, *words: str, config: str = "") -> None:
        """`words` are options of the dashboard, and `config` is the configuration of the node."""
        home.mkdir(parents=True, exist_ok=True)
        file = home / "node.toml"
        file.write_text(config)
        self._has_users = bool(config)
        self.node = Server(home, str(file), "--appendfsync", "everysec")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [*PENSTOCK, "dashboard", "--url", f"penstock://127.0.0.1:{self.node.port}", "--port", str(self.port)]
        self._log = (home / "dashboard.log").open("wb")
        self.process = subprocess.Popen([*command, *words], env=environment(), stdout=self._log, stderr=self._log)
        wait_for(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, Path(self._log.name).read_text()
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/livez", timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
        return False

    def queue(self, user: str = "", password: str = "") -> Queue:
        login = f"{user}:{password}@" if user else ""
        return penstock.connect(f"penstock://{login}127.0.0.1:{self.node.port}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        self._log.close()
        # A node with users does not answer the checks of a clean stop.
        (self.node.kill if self._has_users else self.node.stop)()
        # uvicorn sends the signal to itself again when it has stopped.
        assert code in (0, -signal.SIGTERM), Path(self._log.name).read_text()


@contextmanager
def opened(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """Open a page. Afterwards, check that nothing violated the policy, failed, or ran what a name contains."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_S * 1000)
    context.add_init_script(WATCH)
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(url)
    yield page
    assert [text for text in messages if not text.startswith(_EXPECTED)] == []
    assert page.evaluate("window.refused ?? null") is None
    assert page.evaluate("window.harmed ?? null") is None
    context.close()
