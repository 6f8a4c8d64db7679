"""Tokens"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.main import app
from penstock.server.net.logins import DELAY_S, WAITING_MAX, WRONG_MAX
from tests.ports import free_port
from tests.security.attempts import attempt
from tests.server.iproto_wire import IprotoWire
from tests.server.raw_clients import Client, Refusal, Server, serving, wait_until

CONFIG = """
requirepass = "everything"
[users.alice]
password = "a"
commands = ["read", "write"]
tubes = ["mail.*", "q?"]
[users.bob]
password = "b"
commands = ["read"]
"""

PAIR = Refusal("WRONGPASS invalid username-password pair or user is disabled.")
EXPIRED = Refusal("WRONGPASS the token has expired; create a new one")
REVOKED = Refusal("WRONGPASS the token was revoked: its user was removed or has a new password; create a new one")
NO_TOKEN = Refusal("BADTOKEN This is no token of this server, or it has expired or was revoked; create a new one.")


@pytest.fixture(scope="module")
def iproto_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, iproto_port: int) -> Iterator[Server]:
    flags = ["--iproto-port", str(iproto_port), "--cluster-port", str(free_port())]
    with serving(tmp_path_factory.mktemp("tokens"), *flags, config=CONFIG) as server:
        yield server


@pytest.fixture
def alice(server: Server) -> Iterator[Client]:
    with server.client() as client:
        assert client.ask("AUTH", "alice", "a") == b"OK"
        yield client


def create(client: Client, *options: str) -> str:
    token = client.ask("TOKEN", "CREATE", *options)
    assert isinstance(token, bytes), token
    return token.decode()


def described(answer: object) -> dict[str, object]:
    assert isinstance(answer, list), answer
    return {name.decode(): value for name, value in zip(answer[::2], answer[1::2], strict=True)}


def test_a_token_takes_the_place_of_the_password(server: Server, alice: Client) -> None:
    token = create(alice, "TTL", "10m", "COMMANDS", "READ", "TUBES", "mail.in*,q1", "NAME", "nightly report")
    for words in (["AUTH", "alice", token], ["AUTH", token], ["HELLO", "2", "AUTH", "alice", token]):
        with server.client() as client:
            assert not isinstance(client.ask(*words), Refusal)
            assert client.ask("QLEN", "mail.inbox") == 0
            about = described(client.ask("TOKEN", "INFO"))
            assert about == described(alice.ask("TOKEN", "INFO", token))
            assert about.pop("expires") is not None
            assert about == {
                "user": b"alice",
                "name": b"nightly report",
                "commands": [b"read"],
                "tubes": [b"mail.in*", b"q1"],
            }
    with penstock.connect(f"penstock://alice:{token}@127.0.0.1:{server.port}") as queue:
        assert queue.overview() == []
    own = described(alice.ask("TOKEN", "INFO"))
    assert (own["user"], own["expires"], own["tubes"]) == (b"alice", None, [b"mail.*", b"q?"])


def test_the_command_line_creates_tokens(server: Server) -> None:
    def run(*words: str, user: str = "alice:a") -> Result:
        url = f"penstock://{user}@127.0.0.1:{server.port}"
        return CliRunner().invoke(app, ["token", "create", *words, "--url", url])

    made = run("--ttl", "1h", "--commands", "read", "--tubes", "q?", "--name", "ci", "--json")
    token = json.loads(made.output)["token"]
    with server.client() as client:
        assert client.ask("AUTH", "alice", token) == b"OK"
        about = described(client.ask("TOKEN", "INFO"))
        assert (about["name"], about["commands"], about["tubes"]) == (b"ci", [b"read"], [b"q?"])
    assert run(user=f"alice:{token}").output.startswith("pst1.")
    assert "is not within the tube patterns" in run("--tubes", "*").stderr
    assert run("--ttl", "400d").exit_code == 2


@attempt(
    "change the user, the time, the commands or the tubes in a token; sign it with another key or not at all",
    port="RESP",
    caller="user with a token",
    result="refused like a wrong password; TOKEN INFO: BADTOKEN",
)
def test_a_changed_token_is_refused(server: Server, alice: Client) -> None:
    token = create(alice, "COMMANDS", "read")
    _, payload, signature = token.split(".")
    fields = json.loads(base64.urlsafe_b64decode(payload + "=="))
    for name, value in (
        ("user", "default"),
        ("expires", 1 << 60),
        ("commands", ["read", "admin"]),
        ("tubes", ["*"]),
        ("password", ""),
    ):
        changed = base64.urlsafe_b64encode(json.dumps(fields | {name: value}).encode()).decode().rstrip("=")
        for forged in (f"pst1.{changed}.{signature}", f"pst1.{changed}.", f"pst1.{changed}", f"pst1..{signature}"):
            with server.client(source="127.0.5.1") as client:
                user = value if name == "user" else "alice"
                assert client.ask("AUTH", str(user), forged) == PAIR
            assert alice.ask("TOKEN", "INFO", forged) == NO_TOKEN


@attempt(
    "use a command or a tube that the token leaves out; use the token as another user",
    port="RESP",
    caller="user with a token for read and mail.in",
    result="refused: NOPERM; WRONGPASS",
)
def test_a_token_allows_only_its_own_commands_and_tubes(server: Server, alice: Client) -> None:
    token = create(alice, "COMMANDS", "read", "TUBES", "mail.in")
    with server.client() as client:
        assert client.ask("AUTH", "alice", token) == b"OK"
        for words in (["PUT", "mail.in", "body"], ["QLEN", "mail.out"], ["QLEN", "q1"], ["CONFIG", "GET", "port"]):
            answer = client.ask(*words)
            assert isinstance(answer, Refusal) and str(answer).startswith("NOPERM")
    with server.client(source="127.0.5.2") as client:
        assert client.ask("AUTH", "bob", token) == PAIR


@attempt(
    "create a token with more rights than the user, or, with a token, one with more rights or more time",
    port="RESP",
    caller="user with tubes = mail.*",
    result="refused: NOPERM; a token ends at the latest with the token that created it",
)
def test_a_token_never_has_more_rights_than_its_creator(server: Server, alice: Client) -> None:
    for options in (["COMMANDS", "read,admin"], ["TUBES", "*"], ["TUBES", "mail*"], ["TUBES", "mail.in,orders"]):
        answer = alice.ask("TOKEN", "CREATE", *options)
        assert isinstance(answer, Refusal) and str(answer).startswith("NOPERM")
    parent = create(alice, "TTL", "1h", "COMMANDS", "read", "TUBES", "mail.in*")
    with server.client() as client:
        assert client.ask("AUTH", "alice", parent) == b"OK"
        for options in (["COMMANDS", "write"], ["TUBES", "mail.*"], ["TUBES", "q1"]):
            answer = client.ask("TOKEN", "CREATE", *options)
            assert isinstance(answer, Refusal) and str(answer).startswith("NOPERM")
        child = described(client.ask("TOKEN", "INFO", create(client, "TTL", "30d")))
        assert child == described(client.ask("TOKEN", "INFO")) | {"name": b""}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["TTL", "0"], "RANGE"),
        (["TTL", "forever"], "RANGE"),
        (["TTL", "367d"], "RANGE"),
        (["TTL", "soon"], "RANGE"),
        (["COMMANDS", "read,"], "RANGE"),
        (["COMMANDS", "\xff"], "RANGE"),
        (["TUBES", ""], "RANGE"),
        (["TUBES", ",".join(["mail.a"] * 33)], "RANGE"),
        (["TUBES", "mail." + "x" * 3_000], "RANGE"),
        (["NAME", "two\nlines"], "RANGE"),
        (["NAME", "x" * 65], "RANGE"),
        (["TTL"], "SYNTAX"),
        (["SCOPE", "read"], "SYNTAX"),
    ],
)
def test_wrong_options_are_refused(alice: Client, options: list[str], code: str) -> None:
    answer = alice.ask("TOKEN", "CREATE", *options)
    assert isinstance(answer, Refusal) and str(answer).startswith(code)


@attempt(
    "log in with an expired token, and stay connected after it has expired",
    port="RESP",
    caller="user with a token",
    result="refused: WRONGPASS; the connection is closed within about a second",
)
def test_an_expired_token_is_refused_and_its_connections_are_closed(server: Server, alice: Client) -> None:
    old = create(alice, "TTL", "1ms")

    def has_expired() -> bool:
        with server.client() as client:
            return client.ask("AUTH", "alice", old) == EXPIRED

    wait_until(has_expired)
    assert str(alice.ask("TOKEN", "INFO", old)).startswith("BADTOKEN the token has expired")

    def logged_in() -> Client | None:
        client = server.client()
        if client.ask("AUTH", "alice", create(alice, "TTL", "500ms")) == b"OK":
            return client
        client.close()
        return None

    clients: list[Client] = []
    wait_until(lambda: clients.extend(filter(None, [logged_in()])) or bool(clients))
    with clients[0] as client:
        assert client.rest() == b""
    # A client that logs in again with its password stays.
    with server.client() as client:
        token = create(alice, "TTL", "10m")
        assert client.ask("AUTH", "alice", token) == client.ask("AUTH", "alice", "a") == b"OK"
        assert described(client.ask("TOKEN", "INFO"))["expires"] is None


@attempt(
    "keep using a token, and a connection that used it, after the password is changed",
    port="RESP",
    caller="the default user with a token",
    result="the token is refused: WRONGPASS; the connection is closed",
)
def test_a_new_password_revokes_the_tokens_of_its_user(server: Server, alice: Client) -> None:
    with server.client() as owner, server.client() as user:
        assert owner.ask("AUTH", "everything") == b"OK"
        token, alices = create(owner), create(alice)
        assert user.ask("AUTH", token) == b"OK"
        assert owner.ask("CONFIG", "SET", "requirepass", "another") == b"OK"
        try:
            assert user.rest() == b""
            with server.client(source="127.0.5.3") as client:
                assert client.ask("AUTH", token) == REVOKED
                assert client.ask("AUTH", alices) == b"OK"
            # The connection that changed the password logged in with the old one.
            assert str(owner.ask("TOKEN", "CREATE")).startswith("NOAUTH")
        finally:
            assert owner.ask("CONFIG", "SET", "requirepass", "everything") == b"OK"


@attempt(
    "delay the holders of tokens by guessing passwords from their address",
    port="RESP",
    caller="no password",
    result="logins with tokens are neither delayed nor counted; forged tokens count as wrong passwords",
)
def test_logins_with_tokens_are_not_delayed(server: Server, alice: Client) -> None:
    token, source = create(alice), "127.0.5.4"
    with ExitStack() as stack:
        guesser = stack.enter_context(server.client(source=source))
        for _ in range(WRONG_MAX):
            assert guesser.ask("AUTH", "alice", token + "x") == PAIR
        waiting = [stack.enter_context(server.client(source=source)) for _ in range(WAITING_MAX)]
        began = time.monotonic()
        with server.standing_still():
            for client in waiting:
                client.say("AUTH", "alice", "guess")
            holder = stack.enter_context(server.client(source=source))
            holder.say("AUTH", "alice", token)
        # All places of the address are occupied, but the holder of a token needs none.
        assert holder.answer() == b"OK"
        assert [client.answer() for client in waiting] == [PAIR] * WAITING_MAX
        assert time.monotonic() - began >= DELAY_S - 0.01


@attempt(
    "read tokens with MONITOR, SLOWLOG and in the log",
    port="RESP",
    caller="administrator",
    result="redacted",
)
def test_tokens_are_not_shown(server: Server, alice: Client) -> None:
    with server.client() as owner, server.client() as monitor, server.client(source="127.0.5.5") as client:
        assert owner.ask("AUTH", "everything") == monitor.ask("AUTH", "everything") == b"OK"
        assert owner.ask("CONFIG", "SET", "slowlog-log-slower-than", 0) == monitor.ask("MONITOR") == b"OK"
        try:
            token = create(alice)
            assert client.ask("AUTH", "alice", token) == b"OK"
            assert client.ask("TOKEN", "INFO", token)
            assert isinstance(client.ask("TOKEN", token), Refusal)
            assert client.ask("PING", "the end") == b"the end"
            shown = b""
            while b"the end" not in shown:
                line = monitor.answer()
                assert isinstance(line, bytes)
                shown += line
            slow = repr(owner.ask("SLOWLOG", "GET", -1))
        finally:
            assert owner.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000) == b"OK"
    for text in (shown.decode(), slow, server.log.read_text()):
        assert token not in text and token[5:40] not in text
    assert shown.count(b"(redacted)") == 4


@attempt(
    "use a token as a password over IPROTO",
    port="IPROTO",
    caller="user with a token",
    result="refused: the protocol does not send the password itself",
)
def test_a_token_does_not_work_over_iproto(server: Server, alice: Client, iproto_port: int) -> None:
    with closing(IprotoWire(iproto_port, source="127.0.5.6")) as wire:
        assert wire.log_in("alice", create(alice))[0] != 0


@attempt(
    "use a token on a server without users, or on another server with the same users",
    port="RESP",
    caller="user with a token",
    result="NOUSERS; refused, unless both servers have the same cluster-secret",
)
def test_a_token_works_on_the_servers_that_share_a_cluster_secret(
    server: Server, alice: Client, tmp_path: Path
) -> None:
    secret = "0123456789abcdef" * 4
    with ExitStack() as stack:
        ports = ["--iproto-port", "0", "--cluster-port"]
        nodes = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            config = f'cluster_secret = "{secret}"\n{CONFIG}'
            node = serving(tmp_path / name, *ports, str(free_port()), config=config)
            nodes.append(stack.enter_context(node))
        one, other = nodes
        with one.client() as client, other.client() as elsewhere:
            assert client.ask("AUTH", "alice", "a") == b"OK"
            assert elsewhere.ask("AUTH", "alice", create(alice)) == PAIR
            assert elsewhere.ask("AUTH", "alice", create(client)) == b"OK"
    with serving(tmp_path, *ports, str(free_port())) as alone, alone.client() as client:
        assert str(client.ask("TOKEN", "CREATE")).startswith("NOUSERS")
        assert described(client.ask("TOKEN", "INFO"))["user"] == b"default"
        assert client.ask("TOKEN", "INFO", create(alice)) == NO_TOKEN


def test_a_token_survives_a_restart(tmp_path: Path) -> None:
    flags = ["--iproto-port", "0", "--cluster-port", str(free_port())]
    with serving(tmp_path, *flags, config=CONFIG) as server, server.client() as client:
        assert client.ask("AUTH", "alice", "a") == b"OK"
        token = create(client)
    with serving(tmp_path, *flags, config=CONFIG) as server, server.client() as client:
        assert client.ask("AUTH", "alice", token) == b"OK"
