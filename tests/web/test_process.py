"""`penstock api` as a process: its options, its log, and its end."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.server.conftest import certificate as certificate
from tests.server.serving import PATIENCE_S, PENSTOCK, Server, environment, wait_for

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts `penstock api` and waits until it serves. Its log is in the file `log`."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str) -> subprocess.Popen[bytes]:
        log = tmp_path / "log"
        with log.open("wb") as out:
            process = subprocess.Popen([*PENSTOCK, "api", *words], env=environment(), stdout=out, stderr=out)
        started.append(process)
        wait_for(lambda: "api started: " in log.read_text() or process.poll() is not None)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_sigterm_ends_streams_and_waiting_takes_at_once(node: Server, start: Start, tmp_path: Path) -> None:
    port = free_port()
    process = start("--url", f"127.0.0.1:{node.port}", "--port", str(port), "--access-log")
    base = f"http://127.0.0.1:{port}/api/v1"
    httpx.post(f"{base}/tubes", json={"name": "ending", "type": "disque"})
    with httpx.stream("GET", f"{base}/events", timeout=PATIENCE_S) as stream:
        lines = stream.iter_lines()
        next(lines)
        waiting = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        body = b'{"timeout":"60s"}'
        head = b"POST /api/v1/tubes/ending/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        waiting.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: httpx.get(f"{base}/tubes/ending/stats").json()["consumers"] == 1)
        process.send_signal(signal.SIGTERM)
        assert b" 503 " in waiting.recv(65_536)
        waiting.close()
        assert list(lines)[-1:] in ([""], [])
        assert process.wait(PATIENCE_S) == 0
    log = (tmp_path / "log").read_text()
    assert "info    api started: version=" in log and "api stopping: streams=1 waiting=1" in log
    assert "api stopped" in log and "Traceback" not in log and " error " not in log


def test_it_serves_https(node: Server, start: Start, certificate: Path, tmp_path: Path) -> None:
    port = free_port()
    files = ["--tls-cert", f"{certificate}/cert.pem", "--tls-key", f"{certificate}/key.pem"]
    start("--url", f"127.0.0.1:{node.port}", "--port", str(port), *files, "--log-format", "json")
    trusted = ssl.create_default_context(cafile=f"{certificate}/cert.pem")
    assert httpx.get(f"https://localhost:{port}/api/v1/tubes", verify=trusted).status_code == 200
    assert '"message": "api started: ' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bind", "0.0.0.0"], "has no users, so the API listens on this machine only"),
        (["--url", "penstock://ada:secret@127.0.0.1:1"], "has no user and no password"),
        (["--tls-cert", "/nothing", "--tls-key", "/nothing"], "the certificate or its key cannot be used"),
        (["--trusted-proxy", "nonsense"], "--trusted-proxy is an address"),
    ],
)
def test_a_wrong_option_is_an_error(node: Server, words: list[str], message: str) -> None:
    if "--url" not in words:
        words = ["--url", f"127.0.0.1:{node.port}", *words]
    done = subprocess.run(
        [*PENSTOCK, "api", "--port", "0", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and message in done.stderr.replace("\n", " "), done.stderr
    assert "Traceback" not in done.stderr and "secret" not in done.stderr
