"""A requested port is opened, or the server does not start. Any other port in use stays closed, with a warning."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

from ..forked_servers import Forked
from ..serving import PATIENCE_S, Server, Wire, refusals, wait_for

# The ports that are open by default, with their options and names.
DEFAULTS = {7711: ("--port", "RESP"), 3301: ("--iproto-port", "IPROTO"), 17711: ("--cluster-port", "the cluster bus")}


@pytest.fixture
def address() -> str:
    """Return a loopback address that no other test uses. On it, the default ports are free."""
    port = free_port()
    return f"127.1.{port >> 8}.{port & 255}"


@contextlib.contextmanager
def taken(address: str, *ports: int) -> Iterator[None]:
    """Occupy ports of an address."""
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server((address, port)))
        yield


def refused(home: Path, *words: str, **variables: str) -> str:
    """Return the output of a server that does not start."""
    [(code, said)] = refusals(home, words, **variables)
    assert code == 1, said
    return said


@contextlib.contextmanager
def serving(home: Path, *words: str) -> Iterator[Path]:
    """Run a server until it serves, and return its log. It starts and ends without an error."""
    home.mkdir(exist_ok=True)
    log = home / "log"
    log.write_bytes(b"")
    process = Forked(["serve", *words], home, log, log)
    try:
        # The warnings follow the line with the ports. The line about the interpreted build is optional.
        wait_for(lambda: " server started: " in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield log
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, log.read_text()


def warnings_about_ports(log: Path) -> list[str]:
    """Return the warnings about ports of a server that has ended."""
    lines = log.read_text().splitlines()
    return [line.partition(" warning ")[2] for line in lines if " warning " in line and "port" in line]


@pytest.mark.parametrize("port", DEFAULTS)
def test_a_default_port_that_is_taken_is_off_with_one_warning_that_names_the_option(
    tmp_path: Path, address: str, port: int
) -> None:
    option, name = DEFAULTS[port]
    with taken(address, port), serving(tmp_path, "--bind", address) as log:
        start = next(line for line in log.read_text().splitlines() if " server started: " in line)
        assert f":{port} " not in start
        assert f"{address}:{3301 if port == 7711 else 7711} " in start
    assert warnings_about_ports(log) == [f"port {port} is in use, so {name} is off; choose another port with {option}"]


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
@pytest.mark.parametrize("option", ["--port", "--iproto-port", "--cluster-port", "--http-port"])
def test_a_port_that_was_asked_for_and_is_taken_stops_the_start(
    tmp_path: Path, address: str, option: str, source: str
) -> None:
    port, name = str(free_port()), option.strip("-").replace("-", "_")
    words = ["--bind", address, "--http-bind", address]
    variables: dict[str, str] = {}
    if source == "flag":
        words += [option, port]
    elif source == "environment":
        variables = {f"PENSTOCK_{name.upper()}": port}
    else:
        (tmp_path / "node.toml").write_text(f"{name} = {port}\n")
        words.insert(0, "node.toml")
    with taken(address, int(port)):
        said = refused(tmp_path, *words, **variables)
    assert said == (f"penstock: cannot listen on {address}: port {port} is in use; choose another port with {option}\n")


def test_a_default_port_that_was_asked_for_is_a_port_that_was_asked_for(tmp_path: Path, address: str) -> None:
    with taken(address, 7711):
        assert "port 7711 is in use; choose another port with --port" in refused(
            tmp_path, "--bind", address, "--port", "7711"
        )


def test_a_server_that_no_client_could_reach_does_not_start(tmp_path: Path, address: str) -> None:
    with taken(address, 7711, 3301):
        said = refused(tmp_path, "--bind", address)
    assert said == (
        "penstock: cannot listen: port 7711 is in use and port 3301 is in use, so no port for clients is open; "
        "choose another port with --port\n"
    )
    said = refused(tmp_path, "--bind", "203.0.113.9", "--protected-mode", "no")
    assert said.endswith(", so no port for clients is open; check --bind\n")
    said = refused(tmp_path, "--bind", address, "--port", "0", "--iproto-port", "0", "--http-port", str(free_port()))
    assert said.startswith("penstock: no port for clients is open; choose one with --port")


def test_a_unix_socket_is_enough_for_clients(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        taken(address, 7711, 3301),
        serving(tmp_path, "--bind", address, "--dir", ".", "--unixsocket", "s") as log,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.settimeout(PATIENCE_S)
        client.connect("s")
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"
    # Without RESP there is no port to count 10,000 from, so no warning is about the cluster bus.
    assert [warning.partition(",")[0] for warning in warnings_about_ports(log)] == [
        "port 7711 is in use",
        "port 3301 is in use",
    ]


def test_the_start_message_names_every_open_port(tmp_path: Path, address: str, certificate: Path) -> None:
    named = {
        "--tls-port": "RESP, TLS",
        "--iproto15-port": "IPROTO, 1.5",
        "--iproto-tls-port": "IPROTO, TLS",
        "--iproto15-tls-port": "IPROTO, 1.5, TLS",
        "--http-port": "HTTP",
    }
    ports = {option: str(free_port()) for option in named}
    words = ["--bind", address, "--http-bind", address, "--dir", ".", "--unixsocket", "s"]
    words += ["--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem")]
    with serving(tmp_path, *words, *(word for pair in ports.items() for word in pair)) as log:
        start = next(line for line in log.read_text().splitlines() if " server started: " in line)
    told = start.partition(" ports=")[2].rpartition(" dir=")[0]
    expected = [f"{address}:{ports[option]} ({name})" for option, name in named.items()]
    expected += [f"{address}:7711 (RESP)", f"{address}:3301 (IPROTO)", f"{address}:17711 (cluster bus)"]
    assert sorted(told.replace(", 127", "\n127").replace(", s (", "\ns (").splitlines()) == sorted(
        [*expected, "s (Unix socket)"]
    )


def test_two_servers_with_different_ports_and_directories_run_on_one_machine(tmp_path: Path, address: str) -> None:
    first, second = free_port(), free_port()
    with (
        serving(tmp_path / "one", "--bind", address, "--port", str(first), "--dir", "a"),
        serving(tmp_path / "two", "--bind", address, "--port", str(second), "--dir", "b") as log,
    ):
        for port in (first, second):
            with socket.create_connection((address, port), timeout=PATIENCE_S) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
        assert f"{address}:{second + 10_000} (cluster bus)" in log.read_text()
    assert warnings_about_ports(log) == [
        "port 3301 is in use, so IPROTO is off; choose another port with --iproto-port"
    ]


def test_a_port_too_high_for_a_bus_above_it_has_none(tmp_path: Path, address: str) -> None:
    with serving(tmp_path, "--bind", address, "--port", "60000") as log:
        assert "cluster bus)" not in log.read_text()
    assert warnings_about_ports(log) == [
        "port 60000 is above 55535, so the cluster bus is off; choose a port for it with --cluster-port"
    ]


def test_a_node_of_a_cluster_does_not_start_without_its_bus(tmp_path: Path) -> None:
    """Its clients could not use the tubes of other nodes, and the other nodes would give it up."""
    port, peer = free_port(), free_port()
    words = ["--port", str(port), "--iproto-port", "0", "--dir", "."]
    with serving(tmp_path / "two", "--port", str(peer), "--iproto-port", "0"):
        with serving(tmp_path / "one", *words):
            wire = Wire(port)
            assert wire.ask("CLUSTER", "MEET", "127.0.0.1", peer) == b"+OK\r\n"
            wait_for(lambda: b"cluster_reachable_nodes:1" in wire.call("CLUSTER", "INFO"))
            wire.close()
        with taken("127.0.0.1", port + 10_000):
            said = refused(tmp_path / "one", *words)
    assert f"port {port + 10_000} is in use; choose another port with --cluster-port" in said


def test_cluster_meet_reports_that_the_bus_is_off(tmp_path: Path) -> None:
    port = free_port()
    with (
        taken("127.0.0.1", port + 10_000),
        serving(tmp_path, "--port", str(port), "--iproto-port", "0"),
        contextlib.closing(Wire(port)) as wire,
    ):
        assert b"the cluster bus of this node is off; start it with --cluster-port" in wire.ask(
            "CLUSTER", "MEET", "127.0.0.1", free_port()
        )


def test_a_client_that_connects_during_the_start_waits_and_is_served(
    tmp_path: Path, start: Callable[..., Server]
) -> None:
    """The ports are bound before the node can serve. No client gets an error meanwhile."""
    server = start("--dir", str(tmp_path / "d"))
    server.kill()
    server.process = server._spawn(server._words)

    def first_answer() -> Any:
        try:
            with contextlib.closing(Wire(server.port)) as wire:
                return wire.ask("PING")
        except ConnectionRefusedError:
            return None

    assert wait_for(first_answer) == b"+PONG\r\n"
