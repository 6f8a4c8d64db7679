"""A server reports to the service manager that it loads, is ready, and stops."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port

from .serving import PATIENCE_S, PENSTOCK, environment


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_a_server_reports_that_it_is_ready_and_that_it_stops(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "file" else f"@penstock-test-{free_port()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1) if kind == "abstract" else name)
        manager.settimeout(PATIENCE_S)
        port = free_port()
        words = [*PENSTOCK, "serve", "--dir", "queue", "--port", str(port), "--iproto-port", "0"]
        server = subprocess.Popen(
            words, cwd=tmp_path, env=environment() | {"NOTIFY_SOCKET": name}, stderr=subprocess.DEVNULL
        )
        try:
            ready = manager.recv(4096).decode().splitlines()
            assert ready[0] == "READY=1" and ready[2] == f"MAINPID={server.pid}"
            assert ready[1].startswith(f"STATUS=listening on 127.0.0.1:{port} (RESP)")
            # Clients are accepted from then on.
            socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
            server.send_signal(signal.SIGTERM)
            assert manager.recv(4096).decode().splitlines()[0] == "STOPPING=1"
        finally:
            server.terminate()
            assert server.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("address", ["/there/is/no/such/socket", "not an address", ""])
def test_a_service_manager_that_cannot_be_reached_has_no_effect(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.server.service_manager import report_loading, report_ready, report_stopping

    monkeypatch.setenv("NOTIFY_SOCKET", address)
    report_loading("1 %")
    report_ready("127.0.0.1:7711")
    report_stopping()
