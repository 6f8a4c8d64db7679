"""Malformed input: every client gets an error or is closed, and other clients do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.raw_clients import Client, Refusal, Server, Watch, figures, serving, wait_until, warm_up
from tests.wire import resp_model
from tests.wire.client_input import encode

MB = 1 << 20

PROTOCOL = "ERR Protocol error: "
COUNT = PROTOCOL + "invalid multibulk length"
BULK = PROTOCOL + "invalid bulk length"
HTTP = "ERR this port speaks RESP, not HTTP; use a Redis or Disque client"

NO_ID = "BADID Invalid Job ID format."
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
TIMEOUT = "ERR timeout is not an integer or out of range"
SYNTAX = "ERR syntax error"
NEVER_DELIVERED = "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
ONLY_ONE = "NOREPL Not enough reachable nodes for the requested replication level"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("bad-input")) as server:
        with server.client() as client:
            warm_up(client)
        yield server
        with server.client() as client:
            assert figures(client)["errors_internal"] == "0"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Watch(server), server.client() as client:
        yield client


# Bytes that end a connection, and the error before that.
FATAL: dict[str, tuple[bytes, str]] = {
    "2 minus ten": (b"*-10\r\n", COUNT),
    "4 one argument too many": (b"*1048577\r\n", COUNT),
    "5 2**31": (b"*2147483648\r\n", COUNT),
    "5 2**32 + 1": (b"*4294967297\r\n", COUNT),
    "5 2**64 + 1": (b"*18446744073709551617\r\n", COUNT),
    "6 a space before": (b"* 1\r\n", COUNT),
    "6 a sign": (b"*+1\r\n", COUNT),
    "6 a space behind": (b"*1 \r\n", COUNT),
    "7 an underscore": (b"*1_0\r\n", COUNT),
    "7 hex": (b"*0x1\r\n", COUNT),
    "7 NUL": (b"*1\0\r\n", COUNT),
    "8 5,000 digits": (b"*" + b"1" * 5_000 + b"\r\n", COUNT),
    "8 65,537 digits": (b"*" + b"1" * 65_537, PROTOCOL + "too big mbulk count string"),
    "9 a null": (b"*1\r\n$-1\r\n", BULK),
    "9 a length of 5,000 digits": (b"*1\r\n$" + b"9" * 5_000 + b"\r\n", BULK),
    "10 a length of minus ten": (b"*1\r\n$-10\r\n", BULK),
    "11 a body of 4 GB": (b"*1\r\n$4294967296\r\n", BULK),
    "11 a body that is longer than any": (b"*3\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$536870913\r\n", BULK),
    "12 a wrong end": (b"*1\r\n$4\r\nPINGxx", PROTOCOL + "expected CRLF after a bulk"),
    "13 a command in a command": (b"*1\r\n*1\r\n", PROTOCOL + "expected '$', got '*'"),
    "13 an escape for the terminal": (b"*1\r\n\x1b[2J\r\n", PROTOCOL + "expected '$', got '?'"),
    "16 an endless line": (b"x" * 65_537, PROTOCOL + "too big inline request"),
    "19 an open quote": (b'PING "abc\r\n', PROTOCOL + "unbalanced quotes in request"),
    "25 TLS": (
        bytes.fromhex("16030102000100"),
        PROTOCOL + "this looks like TLS, but this port is not encrypted; use the TLS port",
    ),
    "25 IPROTO": (
        bytes.fromhex("ce00000005820040010181"),
        PROTOCOL + "this looks like IPROTO, but this port speaks RESP; use the IPROTO port",
    ),
    "25 HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP),
    "26 POST": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\nDEBUG FLUSHALL\r\n", HTTP),
    "26 GET": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", HTTP),
    "26 PUT, which is a command too": (b"PUT /tube HTTP/1.1\r\nHost: x\r\n\r\n", HTTP),
    "26 a header first": (b"Host: x\r\nPING\r\n", HTTP),
    "26 in small letters": (b"post / HTTP/1.1\r\nPING\r\n", HTTP),
}


@pytest.mark.parametrize(("sent", "told"), FATAL.values(), ids=FATAL)
def test_malformed_input_gets_one_error_and_is_closed(client: Client, sent: bytes, told: str) -> None:
    client.send(sent)
    assert client.rest() == b"-" + told.encode() + b"\r\n"


# Only the first bytes are checked for another protocol.
LATER = {name: case for name, case in FATAL.items() if "looks like" not in case[1]}


@pytest.mark.parametrize(("sent", "told"), LATER.values(), ids=LATER)
def test_commands_before_malformed_input_are_answered(client: Client, sent: bytes, told: str) -> None:
    client.send(b"PING\r\n" + encode([b"PING", b"a\r\nb"]) + sent)
    assert client.rest() == b"+PONG\r\n$4\r\na\r\nb\r\n-" + told.encode() + b"\r\n"


# Unusual bytes that are answered.
ODD: dict[str, tuple[bytes, list[object]]] = {
    "1 no arguments": (b"*0\r\n*-1\r\n*0\r\nPING\r\n", [b"PONG"]),
    "3 much is promised": (b"PING\r\n*1048576\r\n$4\r\nPING\r\n", [b"PONG"]),
    "15 empty lines": (b"\n" * 10_000 + b"\r\n" * 10_000 + b"PING\n", [b"PONG"]),
    "15 no arguments, 50,000 times": (b"*0\r\n" * 50_000 + b"PING\n", [b"PONG"]),
    "17 the longest line": (b"PING " + b"x" * 65_531 + b"\n", [b"x" * 65_531]),
    "17 32,768 words": (b"GETJOB" + b" x" * 32_764 + b"\n", [Refusal(SYNTAX)]),
    "18 NUL, 0xFF and ESC": (b"PING\0x\n\xff\x1b[2J\n", [b"x", Refusal("ERR unknown command '\\xff\x1b[2J'")]),
    "19 quotes": (b"""PING "a\\x00b"\nPING 'a b'\n""", [b"a\0b", b"a b"]),
    "22 an error in the middle": (
        b"PING\nNOSUCH\nPING a b c\nQLEN\nPING\n",
        [
            b"PONG",
            Refusal("ERR unknown command 'NOSUCH'"),
            Refusal("ERR wrong number of arguments for 'ping' command"),
            Refusal("ERR wrong number of arguments for 'qlen' command"),
            b"PONG",
        ],
    ),
    "24 types of RESP3": (
        b"%1\r\n~1\r\n>1\r\n_\r\n#t\r\n(123\r\n",
        [Refusal(f"ERR unknown command '{word}'") for word in ("%1", "~1", ">1", "_", "#t", "(123")],
    ),
    "25 SSH": (b"SSH-2.0-OpenSSH_9.6\r\n", [Refusal("ERR unknown command 'SSH-2.0-OpenSSH_9.6'")]),
    "25 SMTP": (b"EHLO x\r\n", [Refusal("ERR unknown command 'EHLO'")]),
    "28 no name": (b"*1\r\n$0\r\n\r\n", [Refusal("ERR unknown command ''")]),
    "28 a name with NUL": (b"*1\r\n$5\r\nPI\0NG\r\n", [Refusal("ERR unknown command 'PI\0NG'")]),
    "28 a name with a line end": (b"*1\r\n$6\r\nPI\r\nNG\r\n", [Refusal("ERR unknown command 'PI  NG'")]),
    "28 a name of 1 MB": (encode([b"x" * 1_000_000]), [Refusal(f"ERR unknown command '{'x' * 128}'")]),
    "28 a name that is no text": (encode([b"\xff\xfe"]), [Refusal("ERR unknown command '\\xff\\xfe'")]),
}


@pytest.mark.parametrize(("sent", "told"), ODD.values(), ids=ODD)
def test_unusual_input_is_answered(server: Server, sent: bytes, told: list[object]) -> None:
    with Watch(server, growth_max=MB + 4 * len(sent)), server.client() as client:
        client.send(sent)
        assert [client.answer() for _ in told] == told


@pytest.mark.parametrize(
    "sent",
    [b"*2\r\n$4\r\nPING", b"*2\r\n$4\r\nPING\r\n", b"*1\r\n", b"*1\r\n$4\r\n", b"*1\r\n$67108864\r\nx", b"PIN", b"*"],
)
@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_14_half_a_command_and_then_the_end(client: Client, server: Server, sent: bytes, how: str) -> None:
    # This connection and the watching one. Those of other tests may be about to close.
    wait_until(lambda: figures(client)["connected_clients"] == "2")
    with server.client() as other:
        other.send(b"PING\r\n" + sent)
        assert other.answer() == b"PONG"
        getattr(other, how)()
        if how == "half_close":
            assert other.rest() == b""
    wait_until(lambda: figures(client)["connected_clients"] == "2")


# Well-formed commands that are refused.
REFUSED: list[tuple[tuple[bytes | str | int, ...], str]] = [
    # 27 start of a connection
    (("HELLO", 4), "NOPROTO unsupported protocol version"),
    (("HELLO", "x"), "NOPROTO unsupported protocol version"),
    (("HELLO", ""), "NOPROTO unsupported protocol version"),
    (("HELLO", 3, "AUTH", "default"), "ERR Syntax error in HELLO option 'AUTH'"),
    (("HELLO", 3, "AUTH", "default", "x"), "WRONGPASS invalid username-password pair or user is disabled."),
    (("HELLO", 3, "SETNAME", "a b"), "ERR Client names cannot contain spaces, newlines or special characters."),
    (("HELLO", 3, "NOSUCH" * 100), f"ERR Syntax error in HELLO option '{'NOSUCH' * 5}NO'"),
    (("AUTH", "x"), "ERR Client sent AUTH, but no password is set"),
    (("AUTH", "a", "b", "c"), SYNTAX),
    # 29 ids
    (("ACKJOB", ""), NO_ID),
    (("ACKJOB", b"\0" * 40), NO_ID),
    (("ACKJOB", "x" * 40), NO_ID),
    (("ACKJOB", "D-" + "x" * 1_000_000), NO_ID),
    (("SHOW", "D-12345678-123456789012345678901234-05a"), NO_ID),
    (("DELJOB", "D-12345678-123456789012345678901234-05a1", "x"), NO_ID),
    # 30 options of ADDJOB
    (("ADDJOB", "q", "b", 0, "TTL", 0), "ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "TTL", -1), "ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "TTL", 1 << 64), "ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "TTL", 1 << 62), "ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "TTL", "9" * 5_000), "ERR TTL must be a number > 0"),
    (("ADDJOB", "q", "b", 0, "TTL", 5, "DELAY", 5), NEVER_DELIVERED),
    (("ADDJOB", "q", "b", 0, "DELAY", 86_400), NEVER_DELIVERED),
    (("ADDJOB", "q", "b", 0, "DELAY", -1), "ERR DELAY time must be a non negative number"),
    (("ADDJOB", "q", "b", 0, "RETRY", "1.5"), "ERR RETRY time must be a non negative number"),
    (("ADDJOB", "q", "b", 0, "REPLICATE", 0), "ERR REPLICATE must be between 1 and 65535"),
    (("ADDJOB", "q", "b", 0, "REPLICATE", 65_536), "ERR REPLICATE must be between 1 and 65535"),
    (("ADDJOB", "q", "b", 0, "REPLICATE", 2), ONLY_ONE),
    (
        ("ADDJOB", "q", "b", 0, "RETRY", 0, "REPLICATE", 2),
        "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)",
    ),
    (("ADDJOB", "q", "b", 0, "MAXLEN", 0), "ERR MAXLEN must be a positive number"),
    (("ADDJOB", "q", "b", 0, "TTL"), SYNTAX),
    (("ADDJOB", "q", "b", 0, "ASYNC", "DELAY"), SYNTAX),
    (("ADDJOB", "q", "b", 0, "NOSUCH", 1), SYNTAX),
    (("ADDJOB", "q", "b", 0, ""), SYNTAX),
    # 31 numbers and names
    (("ADDJOB", "q", "b", "x"), TIMEOUT),
    (("ADDJOB", "q", "b", " 1"), TIMEOUT),
    (("ADDJOB", "q", "b", "1_0"), TIMEOUT),
    (("ADDJOB", "q", "b", "0x10"), TIMEOUT),
    (("ADDJOB", "q", "b", "1e3"), TIMEOUT),
    (("ADDJOB", "q", "b", "٣"), TIMEOUT),
    (("ADDJOB", "q", "b", 1 << 63), TIMEOUT),
    (("ADDJOB", "q", "b", "9" * 100_000), TIMEOUT),
    (("ADDJOB", "q", "b", -1), "ERR timeout is negative"),
    (("QPEEK", "q", "x"), NOT_AN_INTEGER),
    (("QPEEK", "q", 1 << 63), NOT_AN_INTEGER),
    (("QSCAN", "x"), "ERR invalid cursor or option name"),
    (("QSCAN", -1), "ERR invalid cursor or option name"),
    (("QSCAN", 1 << 63), "ERR invalid cursor or option name"),
    (("QSCAN", 0, 0), SYNTAX),
    (("QSCAN", 0, "COUNT"), SYNTAX),
    (("JSCAN", 0, "STATE", "nosuch"), "ERR Invalid job state name"),
    (("JSCAN", 0, "REPLY", "nosuch"), "ERR Invalid REPLY type, try ID or ALL"),
    (("JSCAN", 0, "COUNT", "x"), NOT_AN_INTEGER),
    (("PAUSE", "q", "nosuch"), SYNTAX),
    # 32 GETJOB
    (("GETJOB", "FROM"), SYNTAX),
    (("GETJOB",), "ERR wrong number of arguments for 'getjob' command"),
    (("GETJOB", "NOHANG"), SYNTAX),
    (("GETJOB", "NOHANG", "q"), SYNTAX),
    (("GETJOB", "COUNT", 0, "FROM", "q"), "ERR COUNT must be a number greater than zero"),
    (("GETJOB", "COUNT", 1 << 63, "FROM", "q"), "ERR COUNT must be a number greater than zero"),
    (("GETJOB", "TIMEOUT", -1, "FROM", "q"), "ERR timeout is negative"),
    (("GETJOB", "TIMEOUT", 1 << 62, "FROM", "q"), TIMEOUT),
    (("GETJOB", "COUNT", 10**9, "FROM", *range(100_000)), "ERR a GETJOB may name up to 1024 queues"),
    # 33 everything else
    (("CLIENT", "NOSUCH"), "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"),
    (("CLIENT", "SETNAME", b"\xff"), "ERR Client names cannot contain spaces, newlines or special characters."),
    (("CLIENT", "KILL", "nobody:1"), "ERR No such client"),
    (("CLIENT", "KILL", "ID", "x"), "ERR client-id should be greater than 0"),
    (("CLIENT", "PAUSE", -1), "ERR timeout is negative"),
    (("CLIENT", "REPLY", "MAYBE"), SYNTAX),
    (("CONFIG", "SET", "dir", "/tmp"), "ERR Unsupported CONFIG parameter: dir"),
    (("CONFIG", "SET", "hz", b"\xff\xfe"), "ERR Invalid argument '\\xff\\xfe' for CONFIG SET 'hz'"),
    (("CONFIG", "SET", b"\xff", "x"), "ERR Unsupported CONFIG parameter: \\xff"),
    (("CONFIG", "REWRITE"), "ERR The server is running without a config file"),
    (("CLUSTER", "MEET", "localhost", 7711), "ERR Invalid node address specified: localhost:7711"),
    (("CLUSTER", "MEET", "127.0.0.1", 0), "ERR Invalid node address specified: 127.0.0.1:0"),
    (("CLUSTER", "MEET", "169.254.169.254", "x"), "ERR Invalid TCP port specified: x"),
    (("CLUSTER", "FORGET", "x"), "ERR Invalid node identifier"),
    (("SLOWLOG", "GET", "x"), NOT_AN_INTEGER),
    (("LATENCY", "GRAPH", b"\xff\r\n"), "ERR No samples available for event '\\xff  '"),
    (("INFO", "a", "b"), SYNTAX),
    (("DEBUG", "SLEEP", "nan"), "ERR value is not a valid float"),
    (("DEBUG", "SLEEP", "1e400"), "ERR value is not a valid float"),
    (
        ("DEBUG", "SEGFAULT"),
        "NOPERM DEBUG SEGFAULT stops the server; start it with debug-commands yes to allow it",
    ),
    (("SHUTDOWN", "NOW"), SYNTAX),
    (("LOADJOB", "x"), "ERR LOADJOB is a special command only processed from AOF"),
]


def test_every_wrong_command_is_refused_with_a_known_error_code(server: Server) -> None:
    # The longest of them has 100,000 words, and each is an object for a moment.
    with Watch(server, growth_max=16 * MB), server.client() as client:
        for words, told in REFUSED:
            assert client.ask(*words) == Refusal(told), words[:8]
            assert client.ask("PING") == b"PONG"


@pytest.mark.parametrize("length", [1, 65_535])
def test_31_a_queue_may_have_any_name(client: Client, length: int) -> None:
    for name in (b"x" * length, b"\r" * length, b"\0" * length, b"\xff" * length, b"*" * length):
        assert isinstance(client.ask("ADDJOB", name, "", 0), bytes)
        assert client.ask("QLEN", name) == 1
        [[queue, job, body]] = client.ask("GETJOB", "FROM", name)  # type: ignore[misc]
        assert (queue, body) == (name, b"")
        assert client.ask("ACKJOB", job) == 1


@pytest.mark.parametrize("name", [b"", b"x" * 65_536])
def test_31_a_queue_name_must_be_neither_empty_nor_too_long(client: Client, name: bytes) -> None:
    for words in (["ADDJOB", name, "b", 0], ["GETJOB", "NOHANG", "FROM", name], ["PAUSE", name, "in"]):
        assert str(client.ask(*words)).startswith("BADNAME ")  # type: ignore[arg-type]


def test_30_an_option_that_is_given_twice_counts_as_it_was_given_last(client: Client) -> None:
    options = ["TTL", 1, "TTL", 90, "RETRY", 1, "RETRY", 7, "DELAY", 99, "DELAY", 0, "REPLICATE", 9, "REPLICATE", 1]
    job = client.ask("ADDJOB", "twice", "b", 0, *options, "MAXLEN", 1, "MAXLEN", 9, "ASYNC", "ASYNC")
    shown = client.ask("SHOW", job)  # type: ignore[arg-type]
    assert isinstance(shown, list)
    told = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (told[b"ttl"], told[b"retry"], told[b"state"]) == (90, 7, b"queued")
    assert client.ask("DELJOB", job) == 1  # type: ignore[arg-type]


def test_32_the_same_queue_may_be_named_twice(client: Client) -> None:
    for body in "abc":
        client.ask("ADDJOB", "named twice", body, 0)
    taken = client.ask("GETJOB", "COUNT", 9, "FROM", "named twice", "named twice")
    assert [body for _, _, body in taken] == [b"a", b"b", b"c"]  # type: ignore[union-attr, misc]
    assert client.ask("ACKJOB", *(job for _, job, _ in taken)) == 3  # type: ignore[union-attr, misc]


def test_a_pattern_with_exponential_backtracking_is_matched_at_once(client: Client) -> None:
    for pattern in ("*a" * 1_000, "*" * 100_000 + "x", "[" * 10_000, "[a-" * 5_000, "\\" * 9_999, "?" * 50_000):
        assert client.ask("CONFIG", "GET", pattern) == []


def test_answers_of_both_versions_are_read_by_a_reader_of_our_own(client: Client) -> None:
    for version in (b"2", b"3"):
        sent = [[b"HELLO", version], [b"COMMAND"], [b"COMMAND", b"DOCS"], [b"CONFIG", b"GET", b"*"], [b"QSTAT", b"no"]]
        sent += [[b"INFO"], [b"CLIENT", b"LIST"], [b"SHOW", b"D-12345678-123456789012345678901234-05a1"], [b"QUIT"]]
        with Client(client.socket.getpeername()[1]) as other:
            other.send(b"".join(map(encode, sent)))
            assert len(resp_model.answers(other.rest())) == len(sent)


def test_the_log_shows_nothing_that_a_terminal_would_obey(server: Server, tmp_path: Path) -> None:
    with server.client() as client:
        client.ask("AUTH", b"\x1b[2J\n", b"\x1b[2J\n")
        client.ask("CLIENT", "SETINFO", "LIB-NAME", b"\x1b[2J")
    assert b"\x1b" not in server.log.read_bytes()


def test_a_password_may_be_any_bytes(server: Server) -> None:
    password = b"\xff\xfe two words"
    with server.client() as admin, server.client() as other:
        assert other.ask("PING") == b"PONG"
        assert admin.ask("CONFIG", "SET", "requirepass", password) == b"OK"
        try:
            with server.client() as stranger:
                assert stranger.ask("PING") == Refusal("NOAUTH Authentication required.")
                assert stranger.ask("AUTH", password) == b"OK"
                assert stranger.ask("HELLO", 2, "AUTH", "default", password) is not None
            assert other.rest() == b""
        finally:
            assert admin.ask("CONFIG", "SET", "requirepass", "") == b"OK"
