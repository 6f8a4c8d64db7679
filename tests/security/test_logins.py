"""Passwords and sessions

Each test guesses from an address of its own, because wrong passwords are counted by address.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgpack
import pytest

from penstock.server.net.logins import DELAY_S, WAITING_MAX, WRONG_MAX, source_of
from tests.ports import free_port
from tests.security.attempts import attempt
from tests.server.iproto_wire import AUTH, EVAL, PING, IprotoWire, request, scrambled
from tests.server.raw_clients import Client, Refusal, Server, figures, serving, wait_until
from tests.wire.client_input import encode

CONFIG = """
requirepass = "everything"
[users.worker]
password = "w"
[users.reader]
password = "r"
commands = ["read"]
"""

WRONG = Refusal("ERR invalid password")
BUSY = "too many logins from this address are waiting; try again in a second"
IPROTO_WRONG = 0x8000 | 47
TOKEN = "0123456789abcdef"

Guesser = Callable[..., Client]


@pytest.fixture(scope="module")
def iproto_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, iproto_port: int) -> Iterator[Server]:
    flags = ["--iproto-port", str(iproto_port), "--cluster-port", str(free_port())]
    with serving(tmp_path_factory.mktemp("logins"), *flags, config=CONFIG) as server:
        yield server


@pytest.fixture
def owner(server: Server) -> Iterator[Client]:
    with server.client() as client:
        assert client.ask("AUTH", "everything") == b"OK"
        yield client


def guess_often(server: Server, source: str) -> None:
    """Send enough wrong passwords that all further logins from the address are delayed."""
    with server.client(source=source) as guesser:
        for _ in range(WRONG_MAX):
            assert guesser.ask("AUTH", "guess") == WRONG


class Stopwatch:
    """Measures the time since its start. The clocks of the two processes differ by at most one tick."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def is_delayed(self) -> bool:
        return time.monotonic() - self._began >= DELAY_S - 0.01


# Guesses


@attempt(
    "guess passwords, and count a reply that does not come at once as a refusal",
    port="RESP",
    caller="no password",
    result="after 10 wrong passwords, right and wrong ones are compared a second later",
)
@pytest.mark.parametrize(("password", "answer"), [("guess", WRONG), ("everything", b"OK")])
def test_the_right_password_is_answered_as_late_as_a_wrong_one(server: Server, password: str, answer: object) -> None:
    source = f"127.0.1.{len(password)}"
    guess_often(server, source)
    with server.client(source=source) as client:
        watch = Stopwatch()
        assert client.ask("AUTH", password) == answer
        assert watch.is_delayed()


@attempt(
    "guess passwords with HELLO instead of AUTH, with commands after it",
    port="RESP",
    caller="no password",
    result="delayed as AUTH is; the commands run after the login",
)
def test_hello_is_delayed_and_then_answered_as_usual(server: Server) -> None:
    guess_often(server, "127.0.1.20")
    with server.client(source="127.0.1.20") as client:
        watch = Stopwatch()
        client.send(
            encode([b"HELLO", b"3", b"AUTH", b"worker", b"w", b"SETNAME", b"me"])
            + encode([b"CLIENT", b"GETNAME"])
            + encode([b"AUTH", b"guess"])
            + encode([b"QLEN", b"mail"])
        )
        greeting = client.answer()
        assert watch.is_delayed()
        assert isinstance(greeting, list) and greeting[:6] == [b"server", b"penstock", *greeting[2:4], b"proto", 3]
        assert client.answer() == b"me"
        assert client.answer() == WRONG
        assert client.answer() == 0


@attempt(
    "guess over IPROTO after wrong passwords over RESP",
    port="IPROTO",
    caller="no password",
    result="both protocols have the same count, delay and limit",
)
def test_both_protocols_count_together(server: Server, iproto_port: int) -> None:
    source = "127.0.1.30"
    guess_often(server, source)
    with ExitStack() as stack:
        wires = [stack.enter_context(closing(IprotoWire(iproto_port, source=source))) for _ in range(WAITING_MAX + 1)]
        watch = Stopwatch()
        with server.standing_still():
            for wire in wires:
                body = {0x23: "default", 0x21: ["chap-sha1", scrambled("everything", wire.salt)]}
                wire.send_raw(request(AUTH, body, 1) + request(PING, sync=2))
        answers = [wire.read() for wire in wires]
        assert watch.is_delayed()
        assert sorted(code for code, _, _ in answers) == [0] * WAITING_MAX + [IPROTO_WRONG]
        assert [body for code, _, body in answers if code] == [{0x31: BUSY}]
        # A request after the login is answered after it.
        assert all(wire.read() == (0, 2, {}) for wire in wires)


@attempt(
    "guess over many connections at once",
    port="RESP",
    caller="no password",
    result="16 guesses per second and address; the others are refused without a comparison: BUSY",
)
def test_more_connections_do_not_mean_more_guesses(server: Server) -> None:
    source = "127.0.1.40"
    guess_often(server, source)
    with ExitStack() as stack:
        guessers = [stack.enter_context(server.client(source=source)) for _ in range(3 * WAITING_MAX)]
        began = time.monotonic()
        with server.standing_still():
            for guesser in guessers:
                guesser.say("AUTH", "guess")
        answers = [guesser.answer() for guesser in guessers]
        compared = answers.count(WRONG)
        assert WAITING_MAX <= compared <= WAITING_MAX * (time.monotonic() - began + 0.1)
        assert answers.count(Refusal(f"BUSY {BUSY}")) == len(guessers) - compared


@attempt(
    "occupy all waiting logins of an address, and disconnect",
    port="RESP",
    caller="no password",
    result="a client that disconnects frees its place at once",
)
def test_a_client_that_disconnects_frees_its_place(server: Server, owner: Client) -> None:
    source = "127.0.1.50"
    guess_often(server, source)
    for _ in range(3):
        guessers = [server.client(source=source) for _ in range(WAITING_MAX)]
        for guesser in guessers:
            guesser.say("AUTH", "guess")
        wait_until(lambda: sum(b"cmd=auth" in line for line in _lines_of(owner, source)) == WAITING_MAX)
        for guesser in guessers:
            guesser.reset()
        wait_until(lambda: not _lines_of(owner, source))
    with server.client(source=source) as client:
        assert client.ask("AUTH", "everything") == b"OK"


def _lines_of(owner: Client, source: str) -> list[bytes]:
    listed = owner.ask("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    return [line for line in listed.splitlines() if f"addr={source}:".encode() in line]


@attempt(
    "delay the logins of others by guessing",
    port="RESP",
    caller="no password",
    result="logins from other addresses are not delayed",
)
def test_other_addresses_are_not_delayed(server: Server) -> None:
    def logs_in_at_once() -> bool:
        watch = Stopwatch()
        with server.client(source="127.0.1.61") as client:
            assert client.ask("AUTH", "everything") == b"OK"
        return not watch.is_delayed()

    guess_often(server, "127.0.1.60")
    with ExitStack() as stack:
        for _ in range(2 * WAITING_MAX):
            guesser = stack.enter_context(server.client(source="127.0.1.60"))
            guesser.send(encode([b"AUTH", b"guess"]) * 50)
        wait_until(logs_in_at_once)


@attempt(
    "guess from many addresses of one IPv6 network",
    port="RESP, IPROTO",
    caller="no password",
    result="addresses of one /64 count as one; IPv4 clients of an IPv6 socket count by their IPv4 address",
)
def test_ipv6_addresses_count_by_network() -> None:
    assert source_of("[2001:db8:1:2::1]:5000") == source_of("[2001:db8:1:2:ffff:ffff:ffff:ffff]:5001")
    assert source_of("[2001:db8:1:2::1]:5000") != source_of("[2001:db8:1:3::1]:5000")
    assert source_of("[fe80::1%eth0]:5000") == source_of("[fe80::2]:1")
    assert source_of("[::ffff:192.0.2.1]:5000") == source_of("192.0.2.1:5001") != source_of("192.0.2.2:5000")
    assert source_of("/run/penstock.sock:0") == "/run/penstock.sock"


@attempt(
    "fill the log with wrong passwords",
    port="RESP",
    caller="no password",
    result="one line per second, with the number of those that are not logged",
)
def test_wrong_passwords_are_logged_once_a_second(server: Server) -> None:
    def logged() -> list[str]:
        return re.findall(r"wrong password: address=\S+ not_logged=\d+", server.log.read_text())

    count, before, began = 400, len(logged()), time.monotonic()
    for number in range(count // WRONG_MAX):
        guess_often(server, f"127.0.2.{number}")
    passed = time.monotonic() - began
    lines = logged()[before:]
    assert len(lines) <= passed + 1
    # The next line counts all attempts before it.
    with server.client(source="127.0.3.1") as guesser:
        wait_until(lambda: guesser.ask("AUTH", "guess") == WRONG and "127.0.3.1" in logged()[-1])
    lines = logged()[before:]
    assert sum(int(line.rpartition("=")[2]) for line in lines) + len(lines) >= count


@attempt(
    "send a long inline command before the password, in pieces or at once",
    port="RESP",
    caller="no password",
    result="closed above 16 KiB; after the login 64 KiB are read",
)
@pytest.mark.parametrize("pieces", [1, 20])
def test_a_long_line_before_the_password_is_refused(server: Server, pieces: int) -> None:
    line = b"PING " + b"x" * 16_384
    with server.client() as client:
        for at in range(pieces):
            client.send(line[at * len(line) // pieces : (at + 1) * len(line) // pieces])
        assert client.rest() in (b"-ERR Protocol error: too big inline request\r\n", b"")
    with server.client() as client:
        client.send(b"AUTH everything\r\n" + line + b"\r\n")
        assert client.answer() == b"OK"
        assert client.answer() == line[5:]


# Sessions


@attempt(
    "keep using a connection after the password is changed",
    port="RESP, IPROTO",
    caller="the old password",
    result="closed; other users, and the connection that changed it, stay",
)
def test_a_password_change_closes_the_connections_of_its_user(server: Server, owner: Client, iproto_port: int) -> None:
    with server.client() as old, server.client() as worker, closing(IprotoWire(iproto_port)) as wire:
        assert old.ask("AUTH", "everything") == b"OK"
        assert worker.ask("AUTH", "worker", "w") == b"OK"
        assert wire.log_in("default", "everything") == (0, {})
        assert owner.ask("CONFIG", "SET", "requirepass", "everything") == b"OK"
        assert old.ask("PING") == b"PONG"  # Nothing has changed.
        assert owner.ask("CONFIG", "SET", "requirepass", "another") == b"OK"
        assert old.rest() == b""
        assert wire.is_closed()
        assert worker.ask("PING") == owner.ask("PING") == b"PONG"
        with server.client() as later:
            assert later.ask("AUTH", "another") == b"OK"
            assert later.ask("CONFIG", "SET", "requirepass", "everything") == b"OK"
        assert owner.rest() == b""


@attempt(
    "keep using a connection that needed no password when one is set",
    port="RESP, IPROTO",
    caller="connected before there was a password",
    result="closed; only the connection that set the password stays",
)
def test_setting_a_password_closes_connections_without_one(tmp_path: Path) -> None:
    iproto_port = free_port()
    flags = ["--iproto-port", str(iproto_port), "--cluster-port", str(free_port())]
    with serving(tmp_path, *flags) as server, server.client() as owner, server.client() as other:
        assert other.ask("PING") == b"PONG"
        waiting = server.client()
        waiting.say("GETJOB", "FROM", "mail")
        with closing(IprotoWire(iproto_port)) as wire, waiting:
            assert wire.ask(PING) == (0, {})
            assert owner.ask("CONFIG", "SET", "requirepass", "secret") == b"OK"
            assert other.rest() == waiting.rest() == b""
            assert wire.is_closed()
        assert owner.ask("PING") == b"PONG"
        assert figures(owner)["connected_clients"] == "1"
        # Without a password all clients may connect, so none is closed.
        with server.client() as later:
            assert later.ask("AUTH", "secret") == b"OK"
            assert owner.ask("CONFIG", "SET", "requirepass", "") == b"OK"
            assert later.ask("PING") == b"PONG"
            assert owner.ask("CONFIG", "SET", "requirepass", "again") == b"OK"
            assert later.rest() == b""


@attempt(
    "read the tokens of sessions and other secrets with MONITOR and SLOWLOG",
    port="RESP, IPROTO",
    caller="administrator",
    result="redacted, also in calls of the function",
)
def test_monitor_and_slowlog_do_not_show_secrets(server: Server, owner: Client, iproto_port: int) -> None:
    packed = msgpack.packb(TOKEN)
    assert owner.ask("CONFIG", "SET", "slowlog-log-slower-than", 0) == b"OK"
    try:
        with (
            server.client() as monitor,
            server.client(source="127.0.4.1") as client,
            closing(IprotoWire(iproto_port, source="127.0.4.1")) as wire,
        ):
            assert monitor.ask("AUTH", "everything") == monitor.ask("MONITOR") == b"OK"
            assert client.ask("AUTH", "default", "everything") == b"OK"
            assert client.ask("HELLO", 3, "AUTH", "worker", TOKEN) is not None
            for words in (
                ["IDENTIFY", TOKEN],
                ["CALL", "queue.identify", packed],
                ["CALL", "box.queue.identify", packed],
                ["CONFIG", "SET", "requirepass", TOKEN, "GET"],
                ["CONFIG", "GET", "cluster-secret", TOKEN],
            ):
                assert isinstance(client.ask(*words), Refusal)  # type: ignore[arg-type]
            body = {0x23: TOKEN, 0x21: ["chap-sha1", scrambled(TOKEN, wire.salt)]}
            assert wire.ask(AUTH, body)[0] == IPROTO_WRONG
            assert wire.log_in("default", "everything") == (0, {})
            for text in ("queue.identify", "return queue.identify(...)"):
                assert wire.ask(EVAL if "(" in text else 10, {0x27 if "(" in text else 0x22: text, 0x21: [TOKEN]})[0]
            # Lua that is not evaluated: the places of secrets in it are unknown.
            assert wire.ask(EVAL, {0x27: f"return queue.identify('{TOKEN}')", 0x21: []})[0]
            assert client.ask("PING", "the end") == b"the end"
            shown: list[bytes] = []
            while not shown or b"the end" not in shown[-1]:
                line = monitor.answer()
                assert isinstance(line, bytes)
                shown.append(line)
        slow = repr(owner.ask("SLOWLOG", "GET", -1))
        seen = b"\n".join(shown).decode()
        for text in (seen, slow):
            assert "identify" in text and "(redacted)" in text
            assert TOKEN not in text and "everything" not in text and "chap-sha1" not in text
        assert seen.count("(redacted)") == 9
    finally:
        assert owner.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000) == b"OK"
        assert owner.ask("SLOWLOG", "RESET") == b"OK"


@attempt(
    "read the token of a session in the journal, join the session and end its grace time",
    port="RESP",
    caller="user with commands = read",
    result="refused: NOPERM; the session keeps its jobs",
)
def test_a_read_only_user_cannot_join_a_session_that_holds_jobs(server: Server) -> None:
    with server.client() as worker, server.client() as reader, server.client() as again:
        assert worker.ask("AUTH", "worker", "w") == b"OK"
        assert reader.ask("AUTH", "reader", "r") == again.ask("AUTH", "reader", "r") == b"OK"
        session = worker.ask("IDENTIFY", "GRACE", "600s")
        assert isinstance(session, list)
        worker.ask("PUT", "held", "body")
        worker.ask("TAKE", "held")
        refusal = Refusal("NOPERM this user has no permission to join a session that holds jobs")
        assert reader.ask("IDENTIFY", session[1], "GRACE", "0") == refusal
        assert worker.ask("IDENTIFY")[5] == 600_000  # type: ignore[index]
        # A client that only reads may come back to its own session.
        own = reader.ask("IDENTIFY")
        assert isinstance(own, list) and again.ask("IDENTIFY", own[1])[1] == own[1]  # type: ignore[index]
