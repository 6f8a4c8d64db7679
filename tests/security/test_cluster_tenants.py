"""Users with tube patterns in a cluster, and hostile members of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster import messages as m
from penstock.core.limits import NEVER
from penstock.wire import bus
from penstock.wire.msgpack import pack
from tests.ports import free_port
from tests.security.attempts import attempt
from tests.server.bus_peers import SECRET, Member
from tests.server.clustering import Node
from tests.server.serving import Refusal, Wire, command, refusals, wait_for

USERS = ["--user", "mail", "password:m", "commands:read,write", "tubes:mail.*", "--user", "root", "password:r"]
USERS += ["commands:read,write,admin,debug", "--cluster-secret", SECRET, "--fsync", "never"]


class GuardedNode(Node):
    """A node of a cluster with users; `ask` is the admin."""

    def ask(self, *words: bytes | str | int) -> object:
        with contextlib.closing(as_user(self, "root")) as wire:
            return wire.call(*words)

    def connect(self) -> Wire:
        self._wires.append(as_user(self, "root"))
        return self._wires[-1]


def as_user(node: Node, name: str) -> Wire:
    wire = Wire(node.port)
    wire.call("AUTH", name, name[0])
    return wire


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GuardedNode]]:
    """Two nodes with users and a secret."""
    home = tmp_path_factory.mktemp("pair")
    nodes = [GuardedNode(home / f"n{number}", *USERS) for number in range(2)]
    nodes[0].meet(nodes[1], nodes[1].bus_port)
    wait_for(lambda: all(node.reaches() == node.links() == 1 for node in nodes))
    yield nodes
    for node in nodes:
        node.stop()


def has_heard(node: GuardedNode, other: GuardedNode) -> None:
    """Wait until a node has handled all messages that another one has sent so far."""
    id = node.ask("ADDJOB", "marker", "x", 1000, "REPLICATE", 2)
    assert other.ask("ACKJOB", id) == 1
    wait_for(lambda: node.ask("SHOW", id) is None)


@attempt(
    "ACKJOB and FASTACK a job of another tenant's queue on a node that has no copy of it",
    port="RESP",
    caller="user with tubes = mail.*",
    result="answered 0; the holder checks the patterns and keeps the job",
)
@pytest.mark.parametrize("word", ["ACKJOB", "FASTACK"])
def test_a_job_of_another_tenant_is_not_removed_through_a_node_without_a_copy(
    pair: list[GuardedNode], word: str
) -> None:
    holder, entry = pair
    id = holder.ask("ADDJOB", "privq", "body", 0, "REPLICATE", 1, "RETRY", 600)
    with contextlib.closing(as_user(entry, "mail")) as attacker:
        assert attacker.call(word, id) == 0
        assert attacker.call(word, id, id) == 0
    has_heard(entry, holder)
    assert isinstance(id, bytes) and holder.connect().state(id) == b"queued"
    assert holder.ask("ACKJOB", id) == 1


@pytest.mark.parametrize("word", ["ACKJOB", "FASTACK"])
def test_a_restricted_worker_acks_its_own_jobs_from_any_node(pair: list[GuardedNode], word: str) -> None:
    holder, entry = pair
    id = holder.ask("ADDJOB", "mail.out", "body", 0, "REPLICATE", 1, "RETRY", 600)
    with contextlib.closing(as_user(entry, "mail")) as worker:
        worker.call(word, id)
    wait_for(lambda: holder.ask("SHOW", id) is None)


@attempt(
    "FASTACK the id of a job in a fifottl tube of another node, after an ACKJOB of it",
    port="RESP",
    caller="admin",
    result="answered 0: nothing was acknowledged",
)
def test_a_fastack_of_a_strict_job_elsewhere_is_not_counted(pair: list[GuardedNode]) -> None:
    home, entry = pair
    home.ask("TUBE", "CREATE", "strict", "TYPE", "fifottl")
    id = home.ask("PUT", "strict", "body")
    assert isinstance(id, bytes)
    # In one packet, so the node has not learned yet that no node has such a job.
    wire = entry.connect()
    wire.send_raw(command("ACKJOB", id) + command("FASTACK", id))
    assert (wire.read(), wire.read()) == (b":0\r\n", b":0\r\n")
    has_heard(entry, home)
    assert home.ask("JOB", "PEEK", id) is not None


@attempt(
    "use tubes through a node that claims an empty list of patterns for its client",
    port="bus",
    caller="a node with the secret",
    result="NOPERM: an empty list allows no tube",
)
def test_an_empty_list_of_patterns_allows_no_tube_between_nodes(pair: list[GuardedNode]) -> None:
    member = Member(pair[0])
    try:
        papers = m.Credentials(m.TUNNEL, 1, 0, m.RESP_2)
        papers.user, papers.groups, papers.token = b"mail", 15, b"t" * 16
        wait_for(lambda: b"cluster_size:3" in pair[0].ask("CLUSTER", "INFO"))  # type: ignore[operator]
        member.say(papers, m.TunnelMessage(m.FORWARD, 1, False, m.COMMAND_ENDS, command("TAKE", "privq")))
        answer = member.hear(m.FORWARDED)
        assert isinstance(answer, m.TunnelMessage) and answer.data.startswith(b"-NOPERM")
    finally:
        member.close()
        for node in pair:
            with contextlib.suppress(Refusal):
                node.ask("CLUSTER", "FORGET", member.name)


EMPTY = {
    "TOML": ("penstock.toml", '[users.mail]\npassword = "m"\ntubes = []\n'),
    "TOML, an empty pattern": ("penstock.toml", '[users.mail]\npassword = "m"\ntubes = [""]\n'),
    "Disque's form": ("disque.conf", "user mail password:m tubes:\n"),
}


@attempt(
    "give a user no tubes with `tubes = []`, and so every tube",
    port="configuration",
    caller="a careless operator",
    result="refused at start",
)
@pytest.mark.parametrize("form", EMPTY)
def test_an_empty_list_of_tubes_is_refused_at_start(tmp_path: Path, form: str) -> None:
    name, text = EMPTY[form]
    (tmp_path / name).write_text(text)
    [(code, said)] = refusals(tmp_path, [name, "--dir", "d"])
    assert code == 2 and "must be configured with one or more tube patterns, none of them empty" in said


# Admins with patterns


SCOPED = ["--user", "boss", "password:b", "commands:read,write,admin", "tubes:mail.*", "--requirepass", "r"]


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A server with an admin who may use some tubes only."""
    node = Node(tmp_path_factory.mktemp("scoped") / "n", *SCOPED, "--cluster-secret", SECRET, "--fsync", "never")
    node._password = "r"
    yield node
    node.stop()


@attempt(
    "CONFIG, MONITOR, SLOWLOG, CLIENT LIST and KILL, CLUSTER MEET and FORGET, SHUTDOWN",
    port="RESP",
    caller="admin with tubes = mail.*",
    result="refused: NOPERM; they need access to every tube",
)
@pytest.mark.parametrize(
    "words",
    [
        *("CONFIG GET requirepass", "CONFIG SET requirepass x", "CONFIG REWRITE", "MONITOR", "SLOWLOG GET"),
        *("LATENCY LATEST", "CLIENT LIST", "CLIENT KILL SKIPME no", "CLIENT PAUSE 1000", "BGREWRITEAOF", "SHUTDOWN"),
        *("CLUSTER MEET 127.0.0.1 7711", f"CLUSTER FORGET {'a' * 40}", "CLUSTER LEAVING yes", "CLUSTER RESET"),
    ],
)
def test_an_admin_of_some_tubes_does_not_administer_the_server(scoped: Node, words: str) -> None:
    with contextlib.closing(as_user(scoped, "boss")) as boss:
        with pytest.raises(Refusal, match=r"^NOPERM this user has no permission to use every queue$"):
            boss.call(*words.split())
        boss.call("TUBE", "CREATE", "mail.x", "TYPE", "fifo")
        assert boss.call("TUBE", "TRUNCATE", "mail.x") == 0
        assert boss.call("CLUSTER", "MYID") == scoped.connect().call("CLUSTER", "MYID")


@attempt(
    "read requirepass and cluster-secret with CONFIG GET",
    port="RESP",
    caller="admin",
    result="masked; the mask is refused as a new password",
)
def test_config_get_never_returns_a_secret(scoped: Node) -> None:
    admin = scoped.connect()
    found = admin.call("CONFIG", "GET", "*")
    values = dict(zip(found[::2], found[1::2], strict=True))
    assert (values[b"requirepass"], values[b"cluster-secret"]) == (b"***", b"***")
    assert SECRET.encode() not in b" ".join(found)
    with pytest.raises(Refusal, match=r"Invalid argument '\*\*\*' for CONFIG SET 'requirepass'"):
        admin.call("CONFIG", "SET", "requirepass", "***")
    assert scoped.connect().call("PING") == b"PONG"


# A hostile member


@pytest.fixture
def one(tmp_path: Path) -> Iterator[tuple[Node, Member]]:
    """A node, and a member of its cluster that the test plays."""
    node = Node(tmp_path / "n", "--cluster-secret", SECRET, "--fsync", "never")
    member = Member(node)
    wait_for(lambda: node.cluster_info()["cluster_size"] == 2)
    yield node, member
    member.close()
    node.stop()


def image(id: bytes = b"D-aaaaaaaa-abcdefghijklmnopqrstuvwx-05a1", queue: bytes = b"forged") -> m.JobImage:
    made = m.JobImage(id, queue, b"body")
    made.ttl_ms, made.retry_ms, made.holders = 60_000, 1_000, [b"a" * 40]
    return made


def settled(node: Node, member: Member) -> None:
    """Wait until the node has handled all messages of the member."""
    member.say(m.Question(m.ASK, 77, m.LENGTHS, b"nothing", 0))
    member.hear(m.TOLD)


@attempt(
    "send copies of jobs for a tube that lives on the node, under forged ids and the node's own ids",
    port="bus",
    caller="a node with the secret",
    result="not taken in: strict tubes have no copies, and ids of the node itself carry its tag",
)
def test_a_member_cannot_put_jobs_into_a_tube_that_lives_elsewhere(one: tuple[Node, Member]) -> None:
    node, member = one
    wire = node.connect()
    assert wire.call("CLUSTER", "FORGET", member.name) == b"OK"
    wire.call("TUBE", "CREATE", "strict", "TYPE", "fifottl")
    id = wire.call("PUT", "strict", "mine")
    member.close()
    again = Member(node, b"b" * 40)
    wait_for(lambda: node.cluster_info()["cluster_size"] == 2)
    own = b"D-" + node.id[:8] + b"-abcdefghijklmnopqrstuvwx-05a1"
    jobs = [image(queue=b"strict"), image(own, b"strict"), image(id, b"strict"), image(own)]
    again.say(
        m.JobsMessage(m.REPLJOB, jobs),
        m.JobsMessage(m.YOURJOBS, jobs),
        m.JobMessage(m.SETACK, id),
        m.JobMessage(m.DELJOB, id),
    )
    settled(node, again)
    assert wire.call("QLEN", "strict") == 1 and wire.call("JOB", "PEEK", id) is not None
    again.close()


ABSURD: dict[str, list[object]] = {
    "a ttl beyond every limit": [60_000, NEVER - 1, 0, 1_000],
    "a delay beyond every limit": [60_000, 60_000, NEVER - 1, 1_000],
    "a retry time beyond every limit": [60_000, 60_000, 0, NEVER - 1],
    "an age beyond every limit": [NEVER - 1, 60_000, 0, 1_000],
    "a negative ttl": [60_000, -1, 0, 1_000],
}


@attempt(
    "send jobs with absurd or negative times",
    port="bus",
    caller="a node with the secret",
    result="its link is closed; no job is taken in",
)
@pytest.mark.parametrize("what", ABSURD)
def test_a_member_that_sends_absurd_times_is_hung_up_on(one: tuple[Node, Member], what: str) -> None:
    node, member = one
    age, ttl, delay, retry = ABSURD[what]
    job = [b"D-aaaaaaaa-abcdefghijklmnopqrstuvwx-05a1", b"forged", b"body", 0, 1, age, 1, ttl, delay, retry]
    payload = pack([[m.REPLJOB, 0, 0, 0, b"", b"", [[*job, 0, 0, 0, [b"a" * 40], 1, b""]]]])
    before = node.cluster_info()["cluster_stats_refused"]
    member.send_raw(payload)
    wait_for(lambda: node.cluster_info()["cluster_stats_refused"] != before)
    assert node.ask("QSTAT", "forged") is None and node.ask("PING") == b"PONG"


@attempt(
    "send jobs whose times are allowed but extreme, and the oldest and newest place in the queue",
    port="bus",
    caller="a node with the secret",
    result="taken in like any job; the node's own jobs are served and its clock is unchanged",
)
def test_extreme_times_of_a_member_do_not_move_the_clock_of_a_node(one: tuple[Node, Member]) -> None:
    node, member = one
    wire = node.connect()
    old = image(b"D-aaaaaaaa-abcdefghijklmnopqrstuvw0-05a1", b"q")
    new = image(b"D-aaaaaaaa-abcdefghijklmnopqrstuvw1-05a1", b"q")
    old.order, new.order, new.ttl_ms, old.age_ms = 0, (1 << 63) - 1, NEVER, 10**12
    member.say(m.JobsMessage(m.YOURJOBS, [old, new]))
    settled(node, member)
    mine = wire.add("q", "mine", "TTL", 100, "REPLICATE", 1)
    assert 90 < wire.show(mine)[b"ttl"] <= 100
    taken = {wire.get("q")[0] for _ in range(3)}
    assert mine in taken and len(taken) == 3
    for id in taken:
        assert wire.call("ACKJOB", id) == 1


@attempt(
    "gossip of nodes at chosen addresses, so that the server connects to other services",
    port="bus",
    caller="a node with the secret",
    result="at most the first message of the handshake, 100 bytes without a secret, reaches them",
)
def test_gossip_sends_nothing_but_the_first_word_to_a_chosen_address(one: tuple[Node, Member]) -> None:
    node, member = one
    with socket.create_server(("127.0.0.1", free_port())) as victim:
        victim.settimeout(20)
        port = victim.getsockname()[1]
        member.greet(m.PING, [m.Rumour(b"c" * 40, "127.0.0.1", 6379, port, 0)])
        there, _ = victim.accept()
        there.settimeout(20)
        sent = there.recv(65_536)
        assert len(sent) < 150 and bus.NAME in sent and SECRET.encode() not in sent
        # The service's reply is not a handshake, so the link ends.
        there.sendall(b"-ERR unknown command\r\n")
        with contextlib.suppress(ConnectionError):
            while there.recv(65_536):
                pass
        there.close()
    assert node.flags_of(b"c" * 40) in (None, "handshake")


@attempt(
    "CLUSTER MEET with addresses that are not hosts: multicast, unspecified, names, ports of 0",
    port="RESP",
    caller="admin",
    result="refused: Invalid node address",
)
@pytest.mark.parametrize("address", ["224.0.0.1 7711", "0.0.0.0 7711", "metadata.internal 80", "127.0.0.1 0"])
def test_meet_takes_addresses_of_hosts_only(scoped: Node, address: str) -> None:
    with pytest.raises(Refusal, match=r"^ERR Invalid node address specified"):
        scoped.connect().call("CLUSTER", "MEET", *address.split())


@attempt(
    "gossip of 1,000 nodes that do not exist",
    port="bus",
    caller="a node with the secret",
    result="at most 64 addresses are tried at a time; clients are served meanwhile",
)
def test_a_flood_of_gossip_is_bounded(one: tuple[Node, Member]) -> None:
    node, member = one
    for batch in range(5):
        rumours = [m.Rumour(b"%040x" % (batch * 200 + at + 16), "127.0.0.1", 7, 9, 0) for at in range(200)]
        member.greet(m.PING, rumours)
    settled(node, member)
    assert int(node.cluster_info()["cluster_known_nodes"]) <= 2 + 64
    assert node.ask("PING") == b"PONG"
    assert node.cluster_info()["cluster_size"] == 2
