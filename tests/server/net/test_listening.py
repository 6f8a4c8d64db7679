"""Unix sockets, announced addresses, and the log."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock.server.server
from penstock.server.config.configuration import load
from penstock.server.main import open_bus, open_host
from tests.ports import free_port

from .. import in_process
from ..serving import PATIENCE_S, Server, Wire, refusals

Start = Callable[..., Server]


class UnixWire(Wire):
    """A connection over a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self._file = self.socket.makefile("rb")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a Unix socket. The directories of tests may have names that are too long for one."""
    monkeypatch.chdir(tmp_path)
    return Path("data/node.sock")


def test_a_unix_socket_client_gets_the_tcp_address_of_the_node(start: Start, path: Path) -> None:
    server = start("--dir", "data", "--unixsocket", path.name, "--no-journal")
    wire = UnixWire(path)
    node = wire.call("CLUSTER", "MYID")
    port = b"%d" % server.port
    assert wire.call("HELLO") == [1, node, [node, b"127.0.0.1", port, b"1"]]
    assert wire.call("CLUSTER", "NODES").startswith(node + b" 127.0.0.1:" + port + b"@")
    wire.close()


def test_client_list_marks_unix_socket_clients(start: Start, path: Path) -> None:
    server = start("--dir", "data", "--unixsocket", path.name, "--no-journal", "--requirepass", "x", password="x")
    wire, admin = UnixWire(path), server.connect()
    assert wire.ask("AUTH", "wrong") == b"-ERR invalid password\r\n"
    whole = (server.home / path).resolve()
    assert f"wrong password: address={whole} not_logged=0\n" in server.log()
    [line] = [line for line in admin.call("CLIENT", "LIST").decode().splitlines() if ".sock" in line]
    assert f" addr={whole}:0 " in line and " flags=U " in line
    assert admin.ask("CLIENT", "KILL", f"{whole}:0") == b"+OK\r\n"
    assert wire.read() == b""
    wire.close()


def test_a_unix_socket_has_its_permissions_and_goes_with_its_server(start: Start, path: Path) -> None:
    server = start("--dir", "data", "--unixsocket", path.name, "--unixsocketperm", "700", "--no-journal")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    server.kill()
    # A socket that a crash left behind is replaced.
    assert path.exists()
    server.start_again()
    wire = UnixWire(path)
    assert wire.ask("PING") == b"+PONG\r\n"
    wire.close()
    server.stop()
    assert not path.exists()


def test_a_file_that_is_not_a_socket_is_not_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("do not touch")

    def words(directory: str, socket: str) -> list[str]:
        ports = ["--port", str(free_port()), "--http-port", str(free_port()), "--iproto-port", "0"]
        return [*ports, "--dir", directory, "--unixsocket", socket]

    [(code, said), (_, elsewhere)] = refusals(tmp_path, words(".", "precious"), words("b", "nosuch/s"))
    assert code == 1 and said == "penstock: cannot listen on precious: the file exists and is not a socket\n"
    assert elsewhere == "penstock: cannot listen on nosuch/s: No such file or directory\n"
    assert (tmp_path / "precious").read_text() == "do not touch"


def test_the_log_has_the_ports_and_the_client_that_sent_shutdown(start: Start) -> None:
    server = start("--bind", "127.0.0.1", "::1", "--no-journal")
    wire = server.connect()
    assert f" ports=127.0.0.1:{server.port} (RESP), [::1]:{server.port} (RESP), " in server.log()
    wire.send("SHUTDOWN")
    address = wire.address
    assert server.ended() == 0
    assert f"shutdown started: command=SHUTDOWN address={address}\n" in server.log()


def test_a_log_that_was_moved_away_begins_anew(start: Start) -> None:
    """This is how logrotate works with Disque's logs, without a signal to the server."""
    server = start("--dir", ".", "--logfile", "node.log", "--no-journal")
    log = server.home / "node.log"
    log.rename(server.home / "node.log.1")
    wire = server.connect()
    assert wire.ask("AUTH", "nobody", "x")[:10] == b"-WRONGPASS"
    assert "wrong password: address=127.0.0.1 not_logged=0\n" in log.read_text()


def test_a_log_may_be_a_link_of_the_servers_own_user(start: Start, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "log")
    start("--logfile", str(tmp_path / "link"), "--no-journal")
    assert " server started: " in (tmp_path / "log").read_text()


def test_hello_shows_the_announced_address(start: Start) -> None:
    server = start("--cluster-announce-ip", "192.0.2.7", "--cluster-announce-port", "7711", "--no-journal")
    wire = server.connect()
    node = wire.call("CLUSTER", "MYID")
    assert wire.call("HELLO") == [1, node, [node, b"192.0.2.7", b"7711", b"1"]]
    assert wire.call("CLUSTER", "NODES").startswith(node + b" 192.0.2.7:7711@")


def test_a_port_that_is_taken_is_named_with_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = str(somebody.getsockname()[1])
        words = ["--port", str(free_port()), "--iproto-port", "0", "--cluster-port", str(free_port())]
        [(code, said)] = refusals(tmp_path, [*words, "--http-port", port, "--http-bind", "127.0.0.1", "--bind", "::1"])
    assert code == 1 and said.startswith(f"penstock: cannot listen on 127.0.0.1: port {port} is in use;")


def test_an_iproto_port_in_use_is_reported_with_the_flag_to_change_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name in ("iproto-port", "iproto15-port"):
            ((code, said),) = refusals(tmp_path, ["--port", "0", f"--{name}", str(port)])
            assert code == 1 and f"port {port} is in use; choose another port with --{name}\n" in said


def test_files_for_tls_that_cannot_be_used_are_named(tmp_path: Path, certificate: Path) -> None:
    cert, key, nowhere = certificate / "cert.pem", certificate / "key.pem", tmp_path / "nowhere.pem"
    (tmp_path / "text.pem").write_text("no certificate")

    def flags(cert: Path, key: Path, *words: str) -> list[str]:
        doors = ["--port", "0", "--tls-port", str(free_port()), "--iproto-port", "0", "--dir", str(free_port())]
        return [*doors, "--tls-cert-file", str(cert), "--tls-key-file", str(key), *words]

    told = refusals(
        tmp_path,
        flags(nowhere, key),
        flags(cert, nowhere),
        flags(cert, key, "--tls-ca-cert-file", str(nowhere)),
        flags(tmp_path / "text.pem", key),
        flags(cert, key, "--tls-ca-cert-file", "text.pem"),
    )
    assert [code for code, _ in told] == [2] * 5
    for (_, said), flag in zip(told, ("--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"), strict=False):
        assert f"flag {flag}: {nowhere}: No such file or directory" in said
    assert "text.pem" in told[3][1] and str(key) in told[3][1]
    assert "flag --tls-ca-cert-file" in told[4][1] and "text.pem" in told[4][1]


def test_the_warning_about_a_closed_default_port_has_the_real_cause(tmp_path: Path, path: Path) -> None:
    """An address of another machine is not reported as a port in use."""

    async def main() -> None:
        words = ["--dir", str(tmp_path), "--bind", "203.0.113.9", "--unixsocket", path.name]
        config = load(None, words, {}, tmp_path)
        host = open_host(config)
        server = penstock.server.server.Server(config, host, asyncio.get_running_loop())
        ports = await in_process.ports_of(server, {})
        await open_bus(server, ports)
        why = f"cannot be opened ({os.strerror(errno.EADDRNOTAVAIL)})"
        assert ports.warnings == [
            f"port 7711 {why}, so RESP is off; check --bind",
            f"port 3301 {why}, so IPROTO is off; check --bind",
            f"port 17711 {why}, so the cluster bus is off; check --bind",
        ]
        ports.close()
        host.close()

    in_process.run(main())
