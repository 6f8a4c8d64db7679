"""The cluster bus: strangers, recorded handshakes, weak secrets."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cluster import messages as m
from penstock.node.caller import EVERYTHING
from penstock.wire import bus
from tests.security.attempts import attempt
from tests.server.bus_peers import SECRET, Member, Stranger, greeting
from tests.server.clustering import Node, cluster_of
from tests.server.serving import Refusal, Server, Wire, command, refusals, wait_for


class ServerWithPassword(Node):
    """A node with a password; `ask` uses it."""

    def __init__(self, home: Path, *words: str) -> None:
        super().__init__(home, "--requirepass", "r", *words)
        self._password = "r"

    def ask(self, *words: bytes | str | int) -> object:
        return self.connect().call(*words)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerWithPassword]:
    """A server with a password and without a cluster-secret."""
    node = ServerWithPassword(tmp_path_factory.mktemp("guarded") / "n", "--fsync", "never")
    yield node
    node.stop()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerWithPassword]:
    """A server with a password and a cluster-secret."""
    words = ["--fsync", "never", "--cluster-secret", SECRET]
    node = ServerWithPassword(tmp_path_factory.mktemp("member") / "n", *words)
    yield node
    node.stop()


class Claimant(Member):
    """A member that forwards commands and claims every right for the client."""

    def forward(self, *words: str) -> None:
        papers = m.Credentials(m.TUNNEL, 1, 0, m.RESP_2)
        papers.user, papers.groups, papers.tubes = b"default", EVERYTHING, [b"*"]
        papers.token, papers.address, papers.name = b"t" * 16, b"127.0.0.1:1", b""
        self.say(papers, m.TunnelMessage(m.FORWARD, 1, False, m.COMMAND_ENDS, command(*words)))


@pytest.fixture(scope="module")
def played(member: ServerWithPassword) -> Iterator[Claimant]:
    """A node that has the secret and has joined."""
    played = Claimant(member)
    wait_for(lambda: b"cluster_size:2\r\n" in member.ask("CLUSTER", "INFO"))  # type: ignore[operator]
    yield played
    played.close()


@attempt(
    "open a link without a secret and forward CONFIG GET and CONFIG SET requirepass as an admin",
    port="bus",
    caller="any process of the machine",
    result="refused before the handshake; the log names cluster-secret",
)
def test_a_server_with_a_password_and_without_a_secret_accepts_no_links(guarded: ServerWithPassword) -> None:
    stranger = Stranger(guarded)
    assert b"set cluster-secret on every node" in stranger.word()
    assert stranger.is_hung_up_on()
    assert "cluster bus closed: this server has a password or users" in guarded.log()
    assert "set cluster-secret on every node (`penstock cluster secret` prints a new one)" in guarded.log()
    assert guarded.ask("PING") == b"PONG"


@attempt(
    "CLUSTER MEET the server from a stock node without a password, to take its jobs",
    port="bus",
    caller="a node without the secret",
    result="not met; the job and TUBE CREATE are unaffected",
)
def test_a_stock_node_cannot_join_a_server_with_a_password(guarded: ServerWithPassword, tmp_path: Path) -> None:
    id = guarded.ask("ADDJOB", "q", "body", 0)
    intruder = Node(tmp_path / "intruder", "--fsync", "never")
    try:
        intruder.meet(guarded, guarded.bus_port)
        wait_for(lambda: intruder.cluster_info()["cluster_stats_refused"])
        wire = Wire(intruder.port)
        assert wire.get("q") == []
        wire.close()
        assert b"cluster_known_nodes:1\r\n" in guarded.ask("CLUSTER", "INFO")  # type: ignore[operator]
        guarded.ask("TUBE", "CREATE", "strict", "TYPE", "fifo")
        assert guarded.ask("ACKJOB", id) == 1
    finally:
        intruder.stop()


@attempt(
    "CLUSTER MEET another node while the server has a password and no cluster-secret",
    port="RESP",
    caller="admin",
    result="refused: the error names cluster-secret and tls-cluster",
)
def test_an_admin_learns_which_setting_a_meeting_needs(guarded: ServerWithPassword) -> None:
    with pytest.raises(Refusal, match=r"set cluster-secret on every node .* or tls-cluster"):
        guarded.ask("CLUSTER", "MEET", "127.0.0.1", 7711, 7712)


@attempt(
    "stay a member after the operator sets a password with CONFIG SET",
    port="bus",
    caller="a node that joined before",
    result="its links are closed; they open again when the password is removed",
)
def test_a_password_that_is_set_later_closes_links_without_a_secret(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2, "--fsync", "never") as pair:
        first = pair.nodes[0].connect()
        assert first.call("CONFIG", "SET", "requirepass", "r") == b"OK"
        wait_for(lambda: pair.nodes[1].links() == 0)
        wait_for(lambda: pair.nodes[1].cluster_info()["cluster_stats_refused"])
        assert first.call("CONFIG", "SET", "requirepass", "") == b"OK"
        pair.gather()


@attempt(
    "join a server, disappear, and so prevent TUBE CREATE for ever",
    port="bus",
    caller="any process of the machine, before the operator set a password",
    result="repaired by CLUSTER FORGET, also after a restart; the intruder cannot return once there is a password",
)
def test_forget_repairs_a_cluster_that_an_unreachable_stranger_joined(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2, "--fsync", "never") as pair:
        victim, intruder = pair.nodes
        name = intruder.id
        intruder.stand_still()
        intruder.kill()
        victim.kill()
        victim.start_again("--requirepass", "r")
        victim._password = "r"
        wire = victim.connect()
        assert wire.call("CONFIG", "SET", "cluster-node-timeout", 500) == b"OK"
        with pytest.raises(Refusal, match=f"NOHOME .*penstock cluster forget {name.decode()}"):
            wire.call("TUBE", "CREATE", "strict", "TYPE", "fifo")
        assert wire.call("CLUSTER", "FORGET", name) == b"OK"
        wire.call("TUBE", "CREATE", "strict", "TYPE", "fifo")
        victim.kill()
        victim.start_again("--requirepass", "r")
        intruder.start_again()
        wait_for(lambda: intruder.cluster_info()["cluster_stats_refused"])
        wire = victim.connect()
        wire.call("TUBE", "CREATE", "strict too", "TYPE", "fifo")
        assert b"cluster_known_nodes:1\r\n" in wire.call("CLUSTER", "INFO")


@attempt(
    "forward CONFIG, MONITOR, SLOWLOG, CLIENT LIST, CLUSTER RESET, SHUTDOWN and DEBUG with claimed admin rights",
    port="bus",
    caller="a node with the secret",
    result="refused: nodes forward commands about single tubes only",
)
@pytest.mark.parametrize(
    "words",
    [
        *(["CONFIG", "GET", "*"], ["CONFIG", "SET", "requirepass", ""], ["MONITOR"], ["SLOWLOG", "GET"]),
        *(["CLIENT", "LIST"], ["CLIENT", "KILL", "SKIPME", "no"], ["CLUSTER", "RESET"], ["SHUTDOWN"]),
        *(["DEBUG", "FLUSHALL"], ["BGREWRITEAOF"], ["LATENCY", "RESET"], ["JOURNAL", "HEAD"]),
        *(["JOURNAL", "READ", "1"], ["JOURNAL", "EVENTS", "1"], ["JOURNAL", "FILES"]),
    ],
    ids=" ".join,
)
def test_no_peer_administers_a_server_through_the_bus(played: Claimant, words: list[str]) -> None:
    played.forward(*words)
    answer = played.hear(m.FORWARDED)
    assert isinstance(answer, m.TunnelMessage)
    assert answer.data.startswith(b"-NOPERM a command about the whole server is not run for a client of another node")


@attempt(
    "guess passwords through a tunnel, with an address of its own for each guess",
    port="bus",
    caller="a node with the secret",
    result="refused without a comparison, also the right password",
)
@pytest.mark.parametrize("words", [["AUTH", "r"], ["HELLO", "2", "AUTH", "default", "r"]], ids=" ".join)
def test_no_password_is_compared_for_a_client_of_another_node(played: Claimant, words: list[str]) -> None:
    played.forward(*words)
    answer = played.hear(m.FORWARDED)
    assert isinstance(answer, m.TunnelMessage) and answer.data.startswith((b"-ERR invalid password", b"-WRONGPASS"))


@attempt(
    "forge lines of MONITOR and CLIENT LIST with the address, name and user that a node states for its client",
    port="bus",
    caller="a node with the secret",
    result="control characters and spaces are replaced",
)
def test_texts_that_a_node_sends_about_its_client_forge_no_lines(member: ServerWithPassword, played: Claimant) -> None:
    papers = m.Credentials(m.TUNNEL, 2, 0, m.RESP_2)
    papers.user, papers.groups, papers.tubes = b"x\nid=9 user=y", EVERYTHING, [b"*"]
    papers.address, papers.name = b"9.9.9.9:1\r\n+FORGED\r\n", b"\xff\xfe \n"
    papers.token = b"u" * 16
    monitor = member.connect()
    assert monitor.call("MONITOR") == b"OK"
    played.say(papers, m.TunnelMessage(m.FORWARD, 2, False, m.COMMAND_ENDS, command("PING", "seen")))
    line = monitor.read()
    while b"seen" not in line:
        line = monitor.read()
    assert b"9.9.9.9:1??+FORGED??" in line
    listed = member.ask("CLIENT", "LIST")
    assert isinstance(listed, bytes) and b"user=x?id=9?user=y" in listed and b"name=???? " in listed
    played.say(m.TunnelMessage(m.TUNNELEND, 2, False, 0, b""))


@attempt(
    "replay a recorded handshake, its first and its third message",
    port="bus",
    caller="someone who has recorded the traffic",
    result="refused: both nonces are part of each proof",
)
def test_a_recorded_handshake_is_of_no_use(member: ServerWithPassword) -> None:
    recorded: list[bytes] = []
    known = Stranger(member)
    send = known.send
    known.send = lambda data: (recorded.append(data), send(data))[1]  # type: ignore[method-assign,func-returns-value]
    known.shake_hands(SECRET).say(greeting(m.PING))
    replaying = Stranger(member).send(recorded[0])
    replaying.word()
    assert b"wrong cluster-secret: all nodes" in replaying.send(recorded[1]).word()
    assert replaying.is_hung_up_on()
    # Both are also sent together with the packets, without waiting for the node's nonce.
    blind = Stranger(member).send(b"".join(recorded))
    blind.word()
    assert b"wrong cluster-secret: all nodes" in blind.word()
    assert blind.is_hung_up_on()
    known.socket.close()


@attempt(
    "answer a node's own handshake with its own proof (reflection)",
    port="bus",
    caller="a listener without the secret",
    result="refused: the two sides prove different things",
)
def test_a_proof_is_not_reflected(member: ServerWithPassword) -> None:
    first, second = Stranger(member), Stranger(member)
    first.send(bus.encode_opening(first.name, first.nonce, 0))
    heard = bus.parse_hello(first.word(), True)
    # The attacker asks the node to prove something about that handshake, and sends the proof back.
    second.name, second.nonce = first.name, heard.nonce
    second.send(bus.encode_opening(second.name, second.nonce, 0))
    reflected = bus.parse_hello(second.word(), True)
    assert b"wrong cluster-secret: all nodes" in first.send(bus.encode_proof(reflected.proof, 0)).word()
    first.socket.close()
    second.socket.close()


WEAK = [
    "correct horse battery staple",
    "a secret of the cluster that is long enough",
    "a" * 64,
    "0" * 63,
    "Passw0rd!" * 8,
]


@attempt(
    "start a cluster with a secret that can be guessed offline from a recorded handshake",
    port="configuration",
    caller="a careless operator",
    result="refused at start; the error names `penstock cluster secret`",
)
def test_a_weak_secret_is_refused_at_start(tmp_path: Path) -> None:
    for code, said in refusals(tmp_path, *(["--cluster-secret", secret, "--dir", "d"] for secret in WEAK)):
        assert code == 2 and "`penstock cluster secret` prints a new secret" in said
        assert not any(secret in said for secret in WEAK)


def test_the_command_makes_secrets_that_are_accepted(tmp_path: Path) -> None:
    made = [CliRunner().invoke(app, ["cluster", "secret"]).stdout.strip() for _ in range(2)]
    assert made[0] != made[1]
    node = Server(tmp_path, "--dir", "d", "--fsync", "never", "--cluster-secret", made[0])
    node.stop()


# TLS


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]) -> Path:
    """An authority for nodes (nodes.pem), one for clients (clients.pem), and certificates of theirs."""
    needs(shutil.which("openssl"), "openssl is not installed")
    directory = tmp_path_factory.mktemp("authorities")

    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=directory)

    for name in ("nodes", "clients"):
        key = f"-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key"
        openssl(f"req -x509 -days 2 -subj /CN={name} {key} -out {name}.pem")
    for name, signer, names in [
        ("node", "nodes", "DNS:node.cluster,IP:127.0.0.1"),
        ("elsewhere", "nodes", "DNS:other.cluster,IP:127.0.0.2"),
        ("client", "clients", "DNS:node.cluster,IP:127.0.0.1"),
    ]:
        (directory / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        key = f"-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key"
        openssl(f"req -subj /CN={name} {key} -out {name}.csr")
        signed = f"x509 -req -days 2 -in {name}.csr -CA {signer}.pem -CAkey {signer}.key -CAcreateserial"
        openssl(f"{signed} -extfile {name}.ext -out {name}.pem")
    return directory


def tls_words(authorities: Path, name: str, authority: str = "nodes", tls_name: str = "") -> list[str]:
    words = ["--tls-cluster", "yes", "--tls-cluster-ca-cert-file", str(authorities / f"{authority}.pem")]
    words += ["--tls-cluster-cert-file", str(authorities / f"{name}.pem")]
    words += ["--tls-cluster-key-file", str(authorities / f"{name}.key"), "--fsync", "never"]
    return words + (["--tls-cluster-name", tls_name] if tls_name else [])


@attempt(
    "join over tls-cluster with a certificate of the authority that signs clients, or one for another name or address",
    port="bus (TLS)",
    caller="a node with a certificate that is not for this cluster",
    result="refused by both sides",
)
@pytest.mark.parametrize("tls_name", ["", "node.cluster"], ids=["addresses", "a name"])
@pytest.mark.parametrize("certificate", ["client", "elsewhere"])
def test_nodes_need_a_certificate_for_nodes_with_the_right_name(
    tmp_path: Path, authorities: Path, certificate: str, tls_name: str
) -> None:
    words = [*tls_words(authorities, "node", tls_name=tls_name), "--requirepass", "r"]
    node = ServerWithPassword(tmp_path / "node", *words)
    # The intruder itself accepts all nodes.
    intruder = Node(tmp_path / "intruder", *tls_words(authorities, certificate, tls_name=tls_name or "node.cluster"))
    try:
        intruder.meet(node, node.bus_port)
        node.ask("CLUSTER", "MEET", "127.0.0.1", intruder.port, intruder.bus_port)
        wait_for(lambda: b"cluster_stats_refused:0\r\n" not in node.ask("CLUSTER", "INFO"))  # type: ignore[operator]
        assert b"cluster_size:1\r\n" in node.ask("CLUSTER", "INFO")  # type: ignore[operator]
        assert intruder.cluster_info()["cluster_size"] == 1
    finally:
        intruder.stop()
        node.stop()


@pytest.mark.parametrize("tls_name", ["", "node.cluster"], ids=["addresses", "a name"])
def test_nodes_with_right_certificates_meet(tmp_path: Path, authorities: Path, tls_name: str) -> None:
    with cluster_of(tmp_path, 2, *tls_words(authorities, "node", tls_name=tls_name)) as pair:
        wire = Wire(pair.nodes[0].port)
        wire.add("q", "body", "REPLICATE", 2)
        wire.close()


@attempt(
    "use the authority of clients for the bus, because no other is configured",
    port="configuration",
    caller="a careless operator",
    result="refused at start: tls-cluster needs tls-cluster-ca-cert-file",
)
def test_tls_cluster_needs_an_authority_of_its_own(tmp_path: Path, authorities: Path) -> None:
    words = ["--tls-cluster", "yes", "--dir", "d", "--tls-ca-cert-file", str(authorities / "clients.pem")]
    words += ["--tls-cert-file", str(authorities / "node.pem"), "--tls-key-file", str(authorities / "node.key")]
    [(code, said)] = refusals(tmp_path, words)
    assert code == 2 and "tls-cluster needs tls-cluster-ca-cert-file" in said
