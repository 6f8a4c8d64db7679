"""Access control: authentication, command classes, tube patterns, and TLS."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import OutOfRange
from penstock.core.tube_patterns import TubePatterns
from penstock.node.caller import ADMIN, DEBUG, READ, WRITE
from penstock.server.net.access import Account
from penstock.wire.bus import PATTERNS_MAX
from tests.server import in_process
from tests.server.raw_clients import PATIENCE_S, Client, Refusal, Server, Watch, figures, serving, wait_until, warm_up
from tests.wire.client_input import encode

CONFIG = """
requirepass = "everything"
[users.reader]
password = "r"
commands = ["read"]
[users.writer]
password = "w"
commands = ["write"]
[users.admin]
password = "a"
commands = ["admin"]
[users.tester]
password = "t"
commands = ["debug"]
[users.mail]
password = "m"
tubes = ["mail.*", "q?"]
[users.overseer]
password = "o"
commands = ["admin", "debug"]
tubes = ["mail.*"]
"""

NOAUTH = Refusal("NOAUTH Authentication required.")
NOT_THIS_QUEUE = Refusal("NOPERM this user has no permission to use this queue")
NO_JOB = b"D-12345678-123456789012345678901234-05a1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("access"), config=CONFIG) as server:
        with server.client() as client:
            client.ask("AUTH", "everything")
            warm_up(client)
        yield server
        with server.client() as client:
            client.ask("AUTH", "everything")
            assert figures(client)["errors_internal"] == "0"


@pytest.fixture
def owner(server: Server) -> Iterator[Client]:
    with server.client() as client:
        assert client.ask("AUTH", "everything") == b"OK"
        yield client


@pytest.fixture
def stranger(server: Server) -> Iterator[Client]:
    """A client that may send wrong passwords. It has its own address, whose logins may be delayed."""
    with server.client(source="127.0.0.2") as client:
        yield client


def as_user(server: Server, name: str) -> Client:
    client = server.client()
    assert client.ask("AUTH", name, name[0]) == b"OK"
    return client


# Before authentication


@pytest.mark.parametrize(
    "words",
    [
        *(["PING"], ["INFO"], ["COMMAND"], ["ADDJOB", "q", "b", 0], ["DEBUG", "FLUSHALL"], ["CONFIG", "GET", "*"]),
        *(["CONFIG", "SET", "dir", "/tmp"], ["CONFIG", "SET", "requirepass", ""], ["SHUTDOWN"], ["MONITOR"], ["HELLO"]),
        *(
            ["CLUSTER", "MEET", "169.254.169.254", 7711],
            ["CLIENT", "LIST"],
            ["CLIENT", "KILL", "ID", 1],
            ["SLOWLOG", "GET"],
        ),
    ],
)
def test_every_command_before_the_password_is_refused(stranger: Client, words: list[str | int]) -> None:
    assert stranger.ask(*words) == NOAUTH


def test_hello_explains_how_to_authenticate(stranger: Client) -> None:
    assert str(stranger.ask("HELLO", 3)).startswith("NOAUTH HELLO must be called")
    assert stranger.ask("HELLO", 3, "AUTH", "default", "everything", "SETNAME", "me") is not None
    assert stranger.ask("CLIENT", "GETNAME") == b"me"


def test_quit_and_malformed_input_are_answered_without_a_password(stranger: Client) -> None:
    assert stranger.ask("NOSUCH") == Refusal("ERR unknown command 'NOSUCH'")
    assert stranger.ask("QUIT") == b"OK"
    assert stranger.rest() == b""


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
        (encode([b"AUTH", b"x" * 1_000_000]), "unauthenticated bulk length"),
        (b"x" * 16_385, "too big inline request"),
    ],
)
def test_an_unauthenticated_client_may_send_little(server: Server, stranger: Client, sent: bytes, told: str) -> None:
    stranger.send(sent[:200_000])
    assert stranger.rest() in (b"-ERR Protocol error: " + told.encode() + b"\r\n", b"")


def test_an_unauthenticated_client_that_does_not_read_gets_few_replies(server: Server, owner: Client) -> None:
    def look() -> bool:
        listed = owner.ask("CLIENT", "LIST")
        assert isinstance(listed, bytes)
        return all(int(line.split("omem=")[1].split()[0]) < 128 * 1024 for line in listed.decode().splitlines())

    deaf = [server.client() for _ in range(2)]
    for client in deaf:
        client.socket.settimeout(0.2)
        try:
            while True:
                client.send(b"PING\r\n" * 10_000)
        except (TimeoutError, OSError):
            pass
        assert look()
        client.reset()


def test_a_command_in_the_same_packet_as_its_password_is_authorized_by_it(stranger: Client) -> None:
    body = b"x" * 100_000
    stranger.send(
        b"PING\r\n"
        + encode([b"AUTH", b"wrong"])
        + encode([b"PING"])
        + encode([b"AUTH", b"everything"])
        + encode([b"PING", body])
        + encode([b"ACKJOB", *[NO_JOB] * 20])
        + encode([b"AUTH", b"reader", b"r"])
        + encode([b"ADDJOB", b"q", b"b", b"0"])
    )
    answers = [stranger.answer() for _ in range(8)]
    assert answers[:4] == [NOAUTH, Refusal("ERR invalid password"), NOAUTH, b"OK"]
    assert answers[4:7] == [body, 0, b"OK"]
    assert answers[7] == Refusal("NOPERM this user has no permission to run the 'addjob' command")


def test_a_password_is_right_or_wrong_and_nothing_else(server: Server) -> None:
    with server.client(source="127.0.0.3") as client:
        for password in (b"", b"\0", b"everything\0", b"Everything", b"x" * 600, b"\xff" * 16_000):
            assert client.ask("AUTH", password) == Refusal("ERR invalid password")
        for user in (b"reader", b"nobody\xff"):
            wrong = Refusal("WRONGPASS invalid username-password pair or user is disabled.")
            assert client.ask("AUTH", user, "wrong") == wrong
        assert client.ask("PING") == NOAUTH
        assert client.ask("AUTH", "everything") == b"OK"


def test_a_client_that_does_not_authenticate_in_time_is_closed(server: Server, owner: Client) -> None:
    with server.client() as silent, server.client() as busy:
        busy.send(b"PING\r\n")
        assert busy.answer() == NOAUTH
        # Set late, because a busy machine may take longer to get here.
        assert owner.ask("CONFIG", "SET", "auth-timeout", "300ms") == b"OK"
        assert silent.rest() == b""
        assert busy.rest() == b""
    assert owner.ask("PING") == b"PONG"
    assert owner.ask("CONFIG", "SET", "auth-timeout", 10) == b"OK"


# Command classes

# Every command with its class, and arguments with which it does no harm.
COMMANDS: dict[str, tuple[int, list[str | int]]] = {
    **{name: (WRITE, [NO_JOB.decode()]) for name in ("ackjob", "fastack", "working", "nack", "enqueue", "dequeue")},
    "addjob": (WRITE, ["q", "b", 0]),
    "getjob": (WRITE, ["NOHANG", "FROM", "q"]),
    "deljob": (WRITE, [NO_JOB.decode()]),
    "show": (READ, [NO_JOB.decode()]),
    "loadjob": (WRITE, ["x"]),
    "qlen": (READ, ["q"]),
    "qstat": (READ, ["q"]),
    "qpeek": (READ, ["q", 1]),
    "pause": (WRITE, ["q", "none"]),
    "qscan": (READ, []),
    "jscan": (READ, []),
    "info": (READ, []),
    "slowlog": (ADMIN, ["LEN"]),
    "latency": (ADMIN, ["LATEST"]),
    "config": (ADMIN, ["GET", "port"]),
    "cluster": (ADMIN, ["MYID"]),
    "bgrewriteaof": (ADMIN, []),
    "monitor": (ADMIN, []),
    "shutdown": (ADMIN, ["NOSUCH"]),
    "debug": (DEBUG, ["STRUCTSIZE"]),
    # Penstock's native commands.
    "put": (WRITE, ["native", "b"]),
    "mput": (WRITE, ["native", "JOB", "b"]),
    "take": (WRITE, ["nosuch"]),
    "kick": (WRITE, ["nosuch"]),
    **{name: (WRITE, [NO_JOB.decode()]) for name in ("ack", "release", "requeue", "bury", "dig")},
    **{f"job {word}": (WRITE, [NO_JOB.decode()]) for word in ("touch", "delete", "nack", "snatch", "restart", "run")},
    **{f"job {word}": (WRITE, [NO_JOB.decode(), "ready"]) for word in ("done", "switch", "move", "edit")},
    "job cancel": (WRITE, [NO_JOB.decode()]),
    "job progress": (WRITE, [NO_JOB.decode(), "half"]),
    "job watch": (READ, [NO_JOB.decode()]),
    "session events": (WRITE, []),
    "job priority": (WRITE, [NO_JOB.decode(), "1"]),
    **{f"job {word}": (READ, [NO_JOB.decode()]) for word in ("peek", "meta", "wait", "history")},
    **{f"job {word}": (READ, ["nosuch", "ready"]) for word in ("named", "list")},
    "job scan": (READ, [0]),
    "job held": (WRITE, []),
    "tube create": (WRITE, ["native"]),
    "tube pause": (WRITE, ["native", "none"]),
    **{f"tube {word}": (READ, ["native"]) for word in ("info", "stats", "keys", "causes")},
    "tube list": (READ, []),
    "tube scan": (READ, [0]),
    **{f"tube {word}": (ADMIN, ["nosuch"]) for word in ("drop", "truncate", "release")},
    "tube alter": (ADMIN, ["nosuch", "TTL", 5]),
    "session scan": (READ, [0]),
    "stage": (WRITE, ["stage", "native", "JOB", "b"]),
    **{name: (WRITE, ["nosuch"]) for name in ("publish", "discard")},
    "publishonce": (WRITE, ["mark", "nosuch"]),
    "batch create": (WRITE, ["batch"]),
    "batch seal": (WRITE, ["nosuch"]),
    "batch info": (READ, ["nosuch"]),
    "claim take": (WRITE, ["nosuch", "consumer", 1]),
    "claim read": (READ, ["consumer", 1]),
    "claim ack": (WRITE, ["consumer", 1]),
    **{f"claim {word}": (WRITE, ["consumer"]) for word in ("renew", "release")},
    "claim verdict": (WRITE, ["consumer", 1, "CLEAR"]),
    "claim find": (READ, [NO_JOB.decode()]),
    "claim info": (READ, ["consumer"]),
    "global qlen": (READ, ["q"]),
    "global qpeek": (READ, ["q", 1]),
    "global scan": (READ, [0]),
    "global empty": (ADMIN, ["q"]),
    "journal head": (READ, []),
    **{f"journal {word}": (READ, [1]) for word in ("read", "events")},
    "journal digest": (READ, [1, 2]),
    "journal files": (ADMIN, []),
    "journal fetch": (ADMIN, ["segment-0000000001.log", 0]),
}
EVERYBODYS = {"hello", "auth", "ping", "time", "token", "command", "client", "identify", "call"}
USERS = {"reader": READ, "writer": WRITE, "admin": ADMIN, "tester": DEBUG}


def test_every_command_has_a_class(owner: Client) -> None:
    first_words = {name.partition(" ")[0] for name in COMMANDS}
    assert {name.decode() for name in owner.ask("COMMAND", "LIST")} == first_words | EVERYBODYS  # type: ignore[union-attr]
    for family in ("tube", "job", "claim", "batch", "journal", "global", "session"):
        members = owner.ask("COMMAND", "DOCS", family)[1][1][::2]  # type: ignore[index]
        assert {name.decode() for name in members} == {
            name.replace(" ", "|") for name in COMMANDS if name.startswith(f"{family} ")
        }


@pytest.mark.parametrize(("name", "may"), USERS.items())
def test_a_user_may_run_the_commands_of_its_classes_and_no_others(server: Server, name: str, may: int) -> None:
    with as_user(server, name) as client:
        for command, (group, words) in COMMANDS.items():
            # If the user may use no member of a family, the error names the first word only.
            names = (command, command.split()[0])
            told = [f"NOPERM this user has no permission to run the '{name}' command" for name in names]
            answer = client.ask(*command.split(), *words)
            assert (isinstance(answer, Refusal) and str(answer) in told) == (group != may), command
            if command == "monitor" and may == ADMIN:
                client.close()
                client.__init__(server.port)  # type: ignore[misc]
                assert client.ask("AUTH", name, name[0]) == b"OK"
        for words in (["PING"], ["TIME"], ["COMMAND", "COUNT"], ["CLIENT", "ID"], ["CLIENT", "SETNAME", "x"]):
            assert not isinstance(client.ask(*words), Refusal), words


@pytest.mark.parametrize("name", ["reader", "writer", "tester", "mail"])
@pytest.mark.parametrize("words", [["LIST"], ["KILL", "SKIPME", "yes"], ["KILL", "127.0.0.1:1"], ["PAUSE", 10_000]])
def test_only_an_administrator_may_affect_other_clients(
    server: Server, owner: Client, name: str, words: list[str | int]
) -> None:
    with as_user(server, name) as client:
        answer = client.ask("CLIENT", *words)
        assert answer == Refusal(
            f"NOPERM this user has no permission to run the 'client {str(words[0]).lower()}' command"
        )
    assert owner.ask("PING") == b"PONG"


def test_a_user_that_becomes_another_has_the_rights_of_that_one(server: Server) -> None:
    with as_user(server, "admin") as client:
        assert client.ask("CONFIG", "GET", "port") == [b"port", str(server.port).encode()]
        assert client.ask("AUTH", "reader", "r") == b"OK"
        assert str(client.ask("CONFIG", "GET", "port")).startswith("NOPERM")
        assert str(client.ask("AUTH", "admin", "wrong")).startswith("WRONGPASS")
        assert client.ask("QLEN", "q") == 0
        assert client.ask("HELLO", 3, "AUTH", "default", "everything") is not None
        assert isinstance(client.ask("DEBUG", "STRUCTSIZE"), bytes)


# Tube patterns


@pytest.fixture
def mail(server: Server) -> Iterator[Client]:
    with as_user(server, "mail") as client:
        yield client


@pytest.mark.parametrize("name", ["mail", "other", "mai.l", "Mail.x", "xmail.", "q", "q12", "*", "mail*", "\nmail.x"])
def test_a_user_may_use_only_its_own_queues_in_every_command(mail: Client, name: str) -> None:
    for words in (
        *(["ADDJOB", name, "b", 0], ["ADDJOB", name, "b", 0, "ASYNC"], ["PAUSE", name, "state"], ["PAUSE", name, "in"]),
        *(["GETJOB", "NOHANG", "FROM", name], ["GETJOB", "FROM", name], ["GETJOB", "NOHANG", "FROM", "mail.x", name]),
        *(["QLEN", name], ["QSTAT", name], ["QPEEK", name, 1], ["QPEEK", name, -1], ["JSCAN", 0, "QUEUE", name]),
    ):
        assert mail.ask(*words) == NOT_THIS_QUEUE, words  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mail.", "mail.x", "mail.\xff\r\n", "q1", "qq"])
def test_a_user_may_use_its_own_queues_in_every_command(mail: Client, name: str) -> None:
    job = mail.ask("ADDJOB", name, "b", 0)
    assert isinstance(job, bytes)
    for words in (["QLEN", name], ["QSTAT", name], ["QPEEK", name, 1], ["QPEEK", name, -1], ["PAUSE", name, "state"]):
        assert not isinstance(mail.ask(*words), Refusal)  # type: ignore[arg-type]
    assert mail.ask("JSCAN", 0, "QUEUE", name) == [b"0", [job]]
    assert len(mail.ask("GETJOB", "FROM", name)) == 1  # type: ignore[arg-type]
    assert mail.ask("ACKJOB", job) == 1


def test_a_configured_user_named_default_keeps_its_password(tmp_path: Path) -> None:
    async def main() -> None:
        words = ("--user", "default password:own", "--requirepass", "shared")
        async with in_process.server(tmp_path, *words) as server:
            for password in ("other", ""):
                server.config.change("requirepass", password)
                server.apply("requirepass")
                assert server.accounts.log_in("default", b"own") is not None
                assert server.accounts.log_in("default", password.encode()) is None

    in_process.run(main())


def test_a_user_has_at_most_as_many_patterns_as_the_bus_can_send() -> None:
    account = Account("mail", None, tubes=TubePatterns([b"q%d" % number for number in range(PATTERNS_MAX - 1)]))
    for _ in range(2):
        account.grant(b"mail")
    assert account.tubes.match(b"mail") and len(account.tubes.texts) == PATTERNS_MAX
    with pytest.raises(OutOfRange, match="user 'mail' already has the maximum of 10000 tube patterns"):
        account.grant(b"more", truncate=True)
    assert not account.tubes.match(b"more") and not account.truncates
    account = Account("mail", None)
    for number in range(PATTERNS_MAX):
        account.grant(b"t%d" % number, truncate=True)
    with pytest.raises(OutOfRange, match="user 'mail' may already truncate the maximum of 10000 tubes"):
        account.grant(b"more", truncate=True)


def test_an_id_does_not_give_access_to_a_job_of_a_foreign_queue(mail: Client, owner: Client) -> None:
    mine = [owner.ask("ADDJOB", "mail.x", "b", 0) for _ in range(2)]
    others = [owner.ask("ADDJOB", "secret", "b", 0) for _ in range(2)]
    for command in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
        # All or nothing: one forbidden job protects the others.
        for ids in ([others[0]], [mine[0], others[0]], [others[1], mine[0]], [mine[0], mine[1], others[1]]):
            assert mail.ask(command, *ids) == NOT_THIS_QUEUE, command  # type: ignore[arg-type]
    for command in ("SHOW", "WORKING"):
        assert mail.ask(command, others[0]) == NOT_THIS_QUEUE  # type: ignore[arg-type]
    assert owner.ask("QLEN", "mail.x") == owner.ask("QLEN", "secret") == 2
    assert b"mail.x" in mail.ask("QSCAN")[1]  # type: ignore[index]
    assert b"secret" not in mail.ask("QSCAN")[1]  # type: ignore[index]
    assert sorted(mail.ask("JSCAN")[1]) == sorted(mine)  # type: ignore[index, type-var]
    assert len(mail.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")[1]) == 2  # type: ignore[index]
    assert mail.ask("DELJOB", *mine) == 2  # type: ignore[arg-type]
    assert owner.ask("DELJOB", *others) == 2  # type: ignore[arg-type]


# Remote clients and TLS


@pytest.fixture(scope="module")
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate / "cert.pem"))


@pytest.fixture(scope="module")
def tls_server(
    tmp_path_factory: pytest.TempPathFactory, certificate: Path, trusting: ssl.SSLContext
) -> Iterator[Server]:
    files = ["--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem")]
    # Longer than a busy machine delays clients that have a password.
    flags = ["--port", "0", *files, "--requirepass", "x", "--auth-timeout", "4s"]
    with serving(tmp_path_factory.mktemp("tls"), *flags, port_flag="--tls-port") as server:
        with server.client(trusting) as client:
            assert client.ask("AUTH", "x") == b"OK"
            warm_up(client)
        yield server
        with server.client(trusting) as client:
            assert client.ask("AUTH", "x") == b"OK"
            assert figures(client)["errors_internal"] == "0"


def test_commands_work_the_same_over_tls(tls_server: Server, trusting: ssl.SSLContext) -> None:
    with tls_server.client(trusting) as client:
        assert client.ask("PING") == NOAUTH
        assert client.ask("HELLO", 3, "AUTH", "default", "x") is not None
        body = b"x" * 3_000_000
        client.ask("ADDJOB", "q", body, 0)
        assert client.ask("GETJOB", "FROM", "q")[0][2] == body  # type: ignore[index]
        client.send(encode([b"PING"]) * 20_000)
        assert all(client.answer() == b"PONG" for _ in range(20_000))
        assert client.ask("QUIT") == b"OK"
        assert client.rest() == b""


def test_a_server_stops_while_clients_are_connected_over_tls(
    certificate: Path, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    files = ["--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem")]
    server = Server(tmp_path, "--port", "0", *files, port_flag="--tls-port")
    with server.client(trusting) as idle, server.client(trusting) as waiting:
        assert idle.ask("PING") == b"PONG"
        waiting.send(encode([b"GETJOB", b"FROM", b"q"]))
        assert idle.ask("PING") == b"PONG"
        server.process.terminate()
        assert server.process.wait(PATIENCE_S) == 0


def test_a_plain_client_on_the_tls_port_is_closed(tls_server: Server, trusting: ssl.SSLContext) -> None:
    with Client(tls_server.port) as client:
        client.send(b"PING\r\n")
        assert b"PONG" not in client.rest()
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_server.client(ssl.create_default_context())
    old = ssl.create_default_context(cafile=None)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with tls_server.client(old) as client:
        assert client.ask("AUTH", "x") == b"OK"


def test_a_failed_or_unfinished_handshake_leaks_nothing(tls_server: Server, trusting: ssl.SSLContext) -> None:
    def come_and_go(count: int) -> None:
        for number in range(count):
            with Client(tls_server.port) as client:
                client.send((b"PING\r\n", b"\x16\x03\x01\x00\x05hello", b"")[number % 3])
                # One at a time, because the memory of many concurrent connections is not returned to the system.
                client.half_close()
                client.rest()

    come_and_go(500)
    with Client(tls_server.port) as silent, tls_server.client(trusting) as client:
        assert client.ask("AUTH", "x") == b"OK"
        rss = tls_server.rss()
        come_and_go(1_000)
        assert client.ask("PING") == b"PONG"
        assert tls_server.rss() - rss < 128 * 1024  # A session is about 350 bytes.
        assert silent.rest() == b""
        assert figures(client)["connected_clients"] == "1"
        wait_until(lambda: tls_server.descriptors() < 40)


def test_many_commands_before_the_password_are_all_refused(server: Server) -> None:
    with Watch(server), server.client() as client:
        client.send(b"*1\r\n$4\r\nPING\r\n" * 1_000)
        assert all(client.answer() == NOAUTH for _ in range(1_000))


def test_without_a_password_remote_clients_are_refused(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    address = own_address()
    needs(address, "this machine has no address but its own")
    with serving(tmp_path, "--bind", "0.0.0.0", "--requirepass", "x") as server, server.client() as owner:
        assert owner.ask("AUTH", "x") == b"OK"
        with Client(server.port, address=address) as client:
            assert client.ask("AUTH", "x") == b"OK"
        assert owner.ask("CONFIG", "SET", "requirepass", "") == b"OK"
        with Client(server.port, address=address) as client:
            assert client.rest().startswith(b"-DENIED ")
        with server.client() as client:
            assert client.ask("PING") == b"PONG"
        assert owner.ask("CONFIG", "SET", "protected-mode", "no") == b"OK"
        with Client(server.port, address=address) as client:
            assert client.ask("PING") == b"PONG"


def own_address() -> str:
    """Return an address of this machine that is not loopback, or nothing. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def test_guesses_are_answered_slowly_and_other_logins_are_not(server: Server, owner: Client) -> None:
    def tried() -> int:
        told = figures(owner, "Commandstats")["cmdstat_auth"]
        return int(told.split("calls=")[1].split(",")[0])

    def logs_in_at_once() -> bool:
        """Return whether a login from another address takes less time than a guess."""
        began = time.monotonic()
        with server.client() as client:
            assert client.ask("AUTH", "everything") == b"OK"
            return time.monotonic() - began < 1.0

    before = tried()
    guessers = [server.client(source="127.0.0.4") for _ in range(16)]
    for guesser in guessers:
        guesser.send(encode([b"AUTH", b"guess"]) * 50)
    wait_until(lambda: tried() >= before + len(guessers))
    wait_until(logs_in_at_once)
    began, before = time.monotonic(), tried()
    time.sleep(1.0)
    # Each connection gets at most one of its guesses per second compared.
    more = tried() - before
    assert more <= (time.monotonic() - began + 1) * len(guessers)
    assert owner.ask("PING") == b"PONG"
    for guesser in guessers:
        guesser.close()


def test_only_a_user_with_access_to_all_queues_may_flush(server: Server, owner: Client) -> None:
    id = owner.ask("ADDJOB", "not-mail", "body", 0)
    with as_user(server, "overseer") as overseer:
        for words in (["DEBUG", "FLUSHALL"], ["CLUSTER", "RESET"], ["CLUSTER", "RESET", "SOFT"]):
            assert overseer.ask(*words) == Refusal("NOPERM this user has no permission to use every queue")
    assert owner.ask("ACKJOB", id) == 1


def test_stages_claims_and_the_journal_check_queue_permissions(owner: Client, mail: Client) -> None:
    def is_refused(*words: str | int) -> bool:
        return str(mail.ask(*words)).startswith("NOPERM ")

    assert mail.ask("STAGE", "mail.letters", "mail.in", "JOB", "a") == 1
    assert is_refused("STAGE", "mail.letters", "other", "JOB", "a") and is_refused("STAGE", "s", "mail.in", "JOB", "a")
    assert owner.ask("STAGE", "letters", "other", "JOB", "b") == 1
    assert is_refused("PUBLISH", "letters") and is_refused("DISCARD", "mail.letters", "letters")
    assert owner.ask("PUBLISH", "letters", "mail.letters") == 2
    assert is_refused("CLAIM", "TAKE", "other", "reader", 1)
    assert len(owner.ask("CLAIM", "TAKE", "other", "reader", 1)) == 1  # type: ignore[arg-type]
    for words in (["READ", "reader", 1], ["ACK", "reader", 1], ["RENEW", "reader"], ["INFO", "reader"]):
        assert is_refused("CLAIM", *words), words
    assert is_refused("CLAIM", "VERDICT", "reader", 1, "CLEAR")
    [theirs] = owner.ask("CLAIM", "READ", "reader", 1)  # type: ignore[misc]
    assert is_refused("CLAIM", "FIND", theirs[1])
    assert len(owner.ask("CLAIM", "TAKE", "mail.in", "mail.reader", 1)) == 1  # type: ignore[arg-type]
    [claimed] = owner.ask("CLAIM", "READ", "mail.reader", 1)  # type: ignore[misc]
    moved = ["JOB", claimed[1], "move", "TUBE"]
    assert is_refused("CLAIM", "VERDICT", "mail.reader", 1, *moved, "other")
    assert mail.ask("CLAIM", "VERDICT", "mail.reader", 1, "JOB", claimed[1], "bury") == 1
    assert is_refused("JOURNAL", "READ", 1) and is_refused("JOURNAL", "EVENTS", 1)
    assert is_refused("JOURNAL", "EVENTS", 1, "TUBE", "other")
    assert not is_refused("JOURNAL", "EVENTS", 1, "TUBE", "mail.in")
