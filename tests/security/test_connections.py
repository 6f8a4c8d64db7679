"""Connections: TLS handshakes, HTTP and limits.

The server has 400 descriptors, or 120. The attacker opens more connections than that.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.server.net.clients import HANDSHAKES_MAX
from penstock.server.peers.bus import STRANGERS_MAX
from penstock.wire import bus
from tests.ports import free_port
from tests.server.bus_peers import SECRET
from tests.server.iproto_wire import IprotoWire
from tests.server.raw_clients import PATIENCE_S, Client, Server, figures, serving, wait_until, warm_up

from .attempts import attempt

FLOOD = 450
PASSWORD = "a long password"

LOOPS = {"uvloop": "", "asyncio": "import sys; sys.modules['uvloop'] = None\n"}

TLS_PORTS = ["tls-port", "iproto-tls-port", "iproto15-tls-port", "cluster-port"]
CLIENT_PORTS = ["port", "iproto-port", "iproto15-port"]


class Target:
    """A server that is attacked, and a client that was connected before."""

    def __init__(self, server: Server, ports: dict[str, int], tls: ssl.SSLContext) -> None:
        self.server = server
        self.ports = ports
        self.tls = tls
        self.admin = self.client()
        warm_up(self.admin)
        self.descriptors = server.descriptors()
        self.descriptors_max = 0  # The limit of the system.
        self.clients_max = 0

    def client(self, tls: ssl.SSLContext | None = None) -> Client:
        """Connect and log in."""
        client = Client(self.ports["port" if tls is None else "tls-port"], tls)
        assert client.ask("AUTH", PASSWORD) == b"OK"
        return client

    def get(self, path: str = "/livez", host: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http-port"], timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={} if host is None else {"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def check_served(self) -> None:
        """Check that the established client, the journal, new clients and health checks are served."""
        job = self.admin.ask("ADDJOB", "q", "body", 0)
        assert isinstance(job, bytes)
        assert self.admin.ask("ACKJOB", job) == 1
        assert isinstance(self.admin.ask("BGREWRITEAOF"), bytes)
        wait_until(lambda: figures(self.admin)["aof_rewrite_in_progress"] == "0")
        assert figures(self.admin)["aof_last_bgrewrite_status"] == "ok"
        assert self.get() == (200, "alive\n")
        for tls in (None, self.tls):
            with contextlib.closing(self.client(tls)) as client:
                assert client.ask("PING") == b"PONG"
        with contextlib.closing(IprotoWire(self.ports["iproto-port"])) as wire:
            assert wire.log_in("default", PASSWORD)[0] == 0

    def clients(self) -> int:
        return int(figures(self.admin)["connected_clients"])

    def settle(self) -> None:
        """Wait until the server has as many descriptors as before the attack."""
        wait_until(lambda: self.clients() == 1 and self.server.descriptors() <= self.descriptors)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


@contextlib.contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open connections and send nothing."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(port)) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection, after reading what it sent."""
    connection.setblocking(False)
    try:
        while connection.recv(4_096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Path:
    """A directory with a self-signed certificate for this machine, and its key."""
    needs(shutil.which("openssl"), "openssl is not installed")
    directory = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    command += f" -keyout {directory}/key.pem -out {directory}/cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True)
    return directory


@contextlib.contextmanager
def attacked(home: Path, certificate: Path, *flags: str, prelude: str = "") -> Iterator[Target]:
    """Serve on every port, and stop cleanly."""
    names = [*CLIENT_PORTS[1:], *TLS_PORTS, "http-port"]
    ports = {name: free_port() for name in names}
    words = [word for name, port in ports.items() for word in (f"--{name}", str(port))]
    words += ["--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem")]
    words += ["--tls-cluster", "yes", "--tls-cluster-ca-cert-file", str(certificate / "cert.pem")]
    words += ["--tls-cluster-name", "localhost", "--cluster-secret", SECRET]
    # The timeouts for silent connections are longer than a test.
    words += ["--requirepass", PASSWORD, "--auth-timeout", "600s", *flags]
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    trusting.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with serving(home, *words, prelude=prelude) as server:
        target = Target(server, ports | {"port": server.port}, trusting)
        yield target
        assert figures(target.admin)["errors_internal"] == "0", server.log.read_text()
        target.admin.close()


@pytest.fixture(scope="module", params=[("uvloop", 400), ("asyncio", 400), ("uvloop", 120)], ids=str)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[Target]:
    """A server with few descriptors, on each event loop."""
    loop, descriptors = request.param
    prelude = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))\n"
    home = tmp_path_factory.mktemp("target")
    with attacked(home, certificate, prelude=prelude + LOOPS[loop]) as target:
        target.descriptors_max, target.clients_max = descriptors, descriptors - max(64, descriptors // 2)
        yield target


# TLS handshakes


@pytest.mark.parametrize("name", TLS_PORTS)
@attempt(
    "open 450 connections and send no ClientHello; the server has 400 descriptors",
    port="TLS (RESP, IPROTO, bus)",
    caller="no password",
    result="the oldest ones are closed; clients, new handshakes, /livez and the journal work",
)
def test_silent_tls_connections_keep_no_client_out(target: Target, name: str) -> None:
    with silent(target.ports[name], FLOOD) as connections:
        target.check_served()
        assert target.server.descriptors() < target.descriptors_max - 16
        wait_until(lambda: is_closed(connections[0]))
        assert not is_closed(connections[-1])
    target.settle()


@attempt(
    "open 450 silent connections, then connect as a node of the cluster",
    port="bus (TLS)",
    caller="no certificate",
    result="the node is answered",
)
def test_silent_connections_to_the_bus_keep_no_node_out(target: Target) -> None:
    with silent(target.ports["cluster-port"], FLOOD):
        plain = connect(target.ports["cluster-port"])
        with target.tls.wrap_socket(plain, server_hostname="localhost") as link:
            link.sendall(bus.encode_opening(b"a" * 40, b"n" * 32, 0))
            size = int.from_bytes(link.recv(4), "big")
            assert bus.parse_hello(link.recv(size), True).node
    target.settle()


@attempt(
    "open 100 links, each as another node that is not in the table",
    port="bus",
    caller="node with the secret",
    result="the oldest ones are closed; 16 are kept",
)
def test_links_of_unknown_nodes_are_limited(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "--cluster-port", str(port), "--cluster-secret", SECRET, "--iproto-port", "0") as server:
        before = server.descriptors()
        with contextlib.ExitStack() as stack:
            links = []
            for number in range(100):
                links.append(stack.enter_context(connect(port)))
                introduce(links[-1], b"%040x" % number)
            wait_until(lambda: [number for number in range(100) if not is_closed(links[number])] == [*range(84, 100)])
            assert server.descriptors() <= before + STRANGERS_MAX


def introduce(link: socket.socket, node: bytes) -> None:
    """Run the handshake of a node with this id, with the right secret."""
    nonce = b"n" * 32
    link.sendall(bus.encode_opening(node, nonce, 0))
    answer = bus.parse_hello(link.recv(int.from_bytes(link.recv(4), "big")), True)
    made = bus.Secrets(SECRET.encode(), bus.Hello(node, nonce, b"", 0, 0), answer)
    link.sendall(bus.encode_proof(made.dialler_proof(0), 0))


@attempt(
    "leave during the handshake, speak RESP, send garbage, half-close, or stop in the middle of the ClientHello",
    port="TLS",
    caller="no password",
    result="the connection is closed; nothing is left of it, and the log has no error",
)
def test_a_handshake_that_fails_leaves_nothing(target: Target) -> None:
    hello = client_hello(target.tls)
    with contextlib.ExitStack() as stack:
        for number in range(100):
            connection = stack.enter_context(connect(target.ports[TLS_PORTS[number % 4]]))
            connection.sendall([b"PING\r\n", bytes(100), hello[:50], hello][number // 4 % 4])
            if number % 3 == 0:
                connection.shutdown(socket.SHUT_WR)
            elif number % 3 == 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
        target.check_served()
    target.settle()


def client_hello(tls: ssl.SSLContext) -> bytes:
    """Return the first message of a handshake."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


@attempt(
    "send the ClientHello byte by byte, and the first command together with the end of the handshake",
    port="TLS",
    caller="a client on a slow network",
    result="served",
)
def test_a_handshake_in_single_bytes_is_served(target: Target) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = target.tls.wrap_bio(received, sent, server_hostname="localhost")
    with connect(target.ports["tls-port"]) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in sent.read():
                    connection.sendall(bytes([byte]))
                received.write(connection.recv(65_536))
        client.write(b"PING\r\n")
        connection.sendall(sent.read())
        answer = b""
        while not answer.endswith(b"\r\n"):
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += client.read(1_024)
                continue
            received.write(connection.recv(65_536))
        assert answer == b"-NOAUTH Authentication required.\r\n"
    target.settle()


@pytest.mark.parametrize("loop", LOOPS)
@attempt(
    "open 1,500 more connections than the server keeps unfinished handshakes",
    port="TLS",
    caller="no password",
    result="memory grows with the handshakes that are kept, not with those that were closed",
)
def test_closed_handshakes_cost_no_memory(tmp_path: Path, certificate: Path, loop: str) -> None:
    with attacked(tmp_path, certificate, prelude=LOOPS[loop]) as target, contextlib.ExitStack() as stack:

        def flood(count: int) -> int:
            """Open connections, and wait until the server has closed all that it does not keep. Return its memory."""
            connections = stack.enter_context(silent(target.ports["tls-port"], count))
            wait_until(lambda: is_closed(connections[count - HANDSHAKES_MAX - 1]))
            return target.server.rss()

        kept = flood(HANDSHAKES_MAX + 100)
        assert flood(HANDSHAKES_MAX + 1_500) - kept < 64 << 20


@pytest.mark.parametrize("loop", LOOPS)
@attempt(
    "keep the server from stopping with unfinished handshakes",
    port="TLS",
    caller="no password",
    result="SIGTERM ends it at once with code 0",
)
def test_unfinished_handshakes_do_not_delay_a_shutdown(tmp_path: Path, certificate: Path, loop: str) -> None:
    # The silent connections stay open until the server has stopped.
    with contextlib.ExitStack() as stack, attacked(tmp_path, certificate, prelude=LOOPS[loop]) as target:
        for name in TLS_PORTS:
            stack.enter_context(silent(target.ports[name], HANDSHAKES_MAX // 3 + 10))
        target.check_served()
        began = time.monotonic()
    # Clients have two seconds to read their last replies. The server and the test may each be suspended for three.
    assert time.monotonic() - began < 9


# HTTP


@attempt(
    "open 450 connections and send no request",
    port="HTTP",
    caller="any host that reaches the port",
    result="the oldest ones are closed; /livez answers 200",
)
def test_silent_http_connections_keep_no_health_check_out(target: Target) -> None:
    with silent(target.ports["http-port"], FLOOD) as connections:
        target.check_served()
        wait_until(lambda: is_closed(connections[0]))
        assert not is_closed(connections[-1])
    target.settle()


@attempt(
    "ask for /metrics 100 times and do not read the answers",
    port="HTTP",
    caller="any host that reaches the port",
    result="clients, /livez and the journal work",
)
def test_unread_http_answers_keep_no_health_check_out(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            asking = stack.enter_context(socket.socket())
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            asking.settimeout(PATIENCE_S)
            asking.connect(("127.0.0.1", target.ports["http-port"]))
            asking.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        target.check_served()
    target.settle()


REBOUND = ["evil.example", "evil.example:7780", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example."]
OWN = ["127.0.0.1:80", "[::1]:80", "[::1]", "localhost", "LOCALHOST.", "penstock.localhost", "penstock:7780", ""]
MALFORMED = ["evil.example/", "[::1", "[evil.example]", "a b", "user@localhost", "localhost:port", "ü.localhost"]


@pytest.mark.parametrize("host", REBOUND)
@attempt(
    "read /metrics through a browser, from a domain that was made to resolve to 127.0.0.1 (DNS rebinding)",
    port="HTTP",
    caller="a web page",
    result="421, unless http-hosts has the domain",
)
def test_a_domain_of_an_attacker_is_not_answered(target: Target, host: str) -> None:
    refusal = (421, "this server does not answer to the name in Host; add the name to http-hosts\n")
    assert target.get("/metrics", host) == refusal
    assert target.get("/livez", host) == refusal
    for allowed in ("evil.example localhost.evil.example 127.0.0.1.evil.example", "*"):
        assert target.admin.ask("CONFIG", "SET", "http-hosts", allowed) == b"OK"
        assert target.get("/livez", host)[0] == 200
    assert target.admin.ask("CONFIG", "SET", "http-hosts", "other.example") == b"OK"
    assert target.get("/livez", host) == refusal
    assert target.admin.ask("CONFIG", "SET", "http-hosts", "") == b"OK"


@pytest.mark.parametrize("host", [*OWN, socket.gethostname()])
@attempt(
    "ask with an address, a name without a dot or the name of the machine in Host",
    port="HTTP",
    caller="Prometheus, Kubernetes, Docker Compose",
    result="answered",
)
def test_names_that_no_attacker_can_have_are_answered(target: Target, host: str) -> None:
    assert target.get("/livez", host) == (200, "alive\n")


@pytest.mark.parametrize("headers", ["Host: a\r\nHost: a", "Host : a", *(f"Host: {host}" for host in MALFORMED)])
@attempt(
    "send several Host headers, or a malformed one",
    port="HTTP",
    caller="any host that reaches the port",
    result="400",
)
def test_an_ambiguous_host_is_refused(target: Target, headers: str) -> None:
    with connect(target.ports["http-port"]) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        assert connection.recv(4_096).startswith(b"HTTP/1.1 400 ")


# The number of clients


@pytest.mark.parametrize("name", CLIENT_PORTS)
@attempt(
    "fill max-clients with connections that do not authenticate",
    port="RESP, IPROTO",
    caller="no password",
    result="a new connection takes the place of the oldest one that has not authenticated",
)
def test_silent_clients_keep_no_client_out(target: Target, name: str) -> None:
    with silent(target.ports[name], FLOOD) as connections:
        target.check_served()
        wait_until(lambda: target.clients() <= target.clients_max)
        wait_until(lambda: is_closed(connections[0]))
        assert not is_closed(connections[-1])
    target.settle()


@attempt(
    "open 100 silent connections to each of eight ports; the server has 120 descriptors",
    port="RESP, IPROTO, TLS, bus, HTTP",
    caller="no password",
    result="clients, new handshakes, /livez and the journal work",
)
def test_silent_connections_to_all_ports_keep_no_client_out(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for port in target.ports.values():
            stack.enter_context(silent(port, 100))
        target.check_served()
        assert target.server.descriptors() < target.descriptors_max - 8
    target.settle()


@pytest.mark.parametrize("name", ["port", "iproto-port", "tls-port"])
@attempt(
    "connect when every client has authenticated and max-clients is reached",
    port="RESP, IPROTO, TLS",
    caller="no password",
    result="refused; no client is closed for it",
)
def test_clients_that_authenticated_are_not_closed_for_others(target: Target, name: str) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(target.client(tls))) for tls in (None, target.tls)]
        assert target.admin.ask("CONFIG", "SET", "maxclients", 1 + len(clients)) == b"OK"
        stack.callback(target.admin.ask, "CONFIG", "SET", "maxclients", target.clients_max)
        rejected = int(figures(target.admin)["rejected_connections"])
        for refused in stack.enter_context(silent(target.ports[name], FLOOD)):
            said = b"".join(iter(lambda refused=refused: refused.recv(4_096), b""))
            assert (b"max number of clients reached" in said) == (name != "tls-port")
        assert all(client.ask("PING") == b"PONG" for client in clients)
        assert target.get()[0] == 200
        assert int(figures(target.admin)["rejected_connections"]) == rejected + FLOOD
    target.settle()


# Very many


@attempt(
    "open 20,000 connections, to all ports in turn (the tests open 2,000, unless PENSTOCK_CONNECTIONS is set)",
    port="RESP, IPROTO, TLS, bus, HTTP",
    caller="no password",
    result="clients, /livez and the journal work all the time; memory per connection is bounded; everything recovers",
)
def test_very_many_connections_harm_no_client(tmp_path: Path, certificate: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = int(os.environ.get("PENSTOCK_CONNECTIONS", "2000"))
    if hard != resource.RLIM_INFINITY:
        count = min(count, hard - 300)
    slowest = 0.0
    with attacked(tmp_path, certificate, "--max-clients", str(max(500, count // 2))) as target:
        before = target.server.rss()
        with contextlib.ExitStack() as stack, served_meanwhile(target) as latencies:
            for number in range(count):
                # Most of them connect to ports on which they may stay.
                name = "port" if number % 2 else [*CLIENT_PORTS, *TLS_PORTS, "http-port"][number // 2 % 8]
                stack.enter_context(connect(target.ports[name]))
            wait_until(lambda: target.clients() >= count // 3)
            target.check_served()
            grown = (target.server.rss() - before) / count
            there = target.clients()
            slowest = max(latencies)
        target.settle()
        target.check_served()
    print(f"\n{count} connections, {there} clients at once: {grown:,.0f} bytes each, served in {slowest * 1000:.0f} ms")
    assert grown < 64 * 1024
    # The server and the test may each be suspended for three seconds.
    assert slowest < 7


@contextlib.contextmanager
def served_meanwhile(target: Target) -> Iterator[list[float]]:
    """Put jobs and check the health of a server in a thread. Yield how long each round took, in seconds."""
    latencies = [0.0]
    done = threading.Event()

    def work() -> None:
        with contextlib.closing(target.client()) as client:
            while not done.is_set():
                began = time.monotonic()
                assert isinstance(client.ask("ADDJOB", "meanwhile", "body", 0), bytes)
                assert target.get()[0] == 200
                latencies.append(time.monotonic() - began)

    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield latencies
    finally:
        done.set()
        thread.join()
    assert not failures, failures
