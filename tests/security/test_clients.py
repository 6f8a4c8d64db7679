"""Hostile servers against the clients and the CLI."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.addresses import Addresses
from penstock.core.errors import BadAnswer, ConnectionLost, PenstockError, ProtocolError, WrongServer
from penstock.spark.jobs import columns
from penstock.wire.resp_client import ANSWER_BYTES_MAX, ReplyParser, encode
from tests.security.attempts import attempt
from tests.server.serving import PATIENCE_S, PENSTOCK, decoded, environment, read_reply

TOKEN = b"0123456789abcdef0123456789abcdef"
NODE = b"a" * 40
ID = b"D-aaaaaaaa-123456789012345678901234-ffff"
HELLO = b"%2\r\n$6\r\nserver\r\n$8\r\npenstock\r\n$2\r\nid\r\n:1\r\n"
IDENTITY = (
    b"%4\r\n$5\r\ntoken\r\n$32\r\n" + TOKEN + b"\r\n$7\r\nsession\r\n:1\r\n$5\r\ngrace\r\n:0\r\n"
    b"$8\r\nmax-body\r\n:1000000\r\n"
)
POLICY = b"%1\r\n$6\r\npolicy\r\n%1\r\n$4\r\ntype\r\n$4\r\nfifo\r\n"

# A server has this long to answer.
TIMEOUT_S = 1.0
# The maximum time of a call: the timeout, a stall of the machine, and some time for the work.
HANG_S = TIMEOUT_S + 5.0

Handler = Callable[[socket.socket, list[bytes]], None]


class HostileServer:
    """A server that greets as Penstock does, and then sends any replies."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.answers: dict[bytes, bytes | Handler] = {}
        self.nodes: bytes | None = None
        self.identity = IDENTITY
        self.seen: list[list[bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"penstock://127.0.0.1:{self.port}?timeout={TIMEOUT_S}s&retry_for=0s&connect_timeout=2s"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
            while raw := read_reply(file):
                words = decoded(raw)
                self.seen.append(words)
                self._answer(connection, words)

    def _answer(self, connection: socket.socket, words: list[bytes]) -> None:
        name = words[0].upper()
        two = b" ".join(word.upper() for word in words[:2])
        answer = self.answers.get(two, self.answers.get(name))
        if name == b"HELLO":
            nodes = self.nodes or encode([b"1", NODE]).replace(b"$1\r\n1\r\n", b":1\r\n", 1)
            connection.sendall(HELLO if len(words) > 1 else nodes)
        elif name == b"IDENTIFY":
            connection.sendall(self.identity)
        elif two in (b"TUBE CREATE", b"TUBE INFO") and answer is None:
            connection.sendall(POLICY)
        elif callable(answer):
            answer(connection, words)
        else:
            connection.sendall(b"+OK\r\n" if answer is None else answer)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[HostileServer]:
    server = HostileServer()
    yield server
    server.close()


def job_map(**changes: bytes) -> bytes:
    """Return a job as TAKE replies it."""
    fields = {
        "id": b"$40\r\n" + ID + b"\r\n",
        **{"tube": b"$1\r\nq\r\n", "body": b"$4\r\nbody\r\n", "as": b"$5\r\nbytes\r\n", "number": b"_\r\n"},
        **{"key": b"_\r\n", "deliveries": b":1\r\n", "nacks": b":0\r\n", "once": b":0\r\n", "created": b":1\r\n"},
        "state": b"$5\r\ntaken\r\n",
    } | changes
    pairs = [b"$%d\r\n%b\r\n" % (len(name), name.encode()) + value for name, value in fields.items()]
    return b"%%%d\r\n" % len(pairs) + b"".join(pairs)


CALLS: dict[str, Callable[[Any], Any]] = {
    "PUT": lambda queue: queue.find_tube("q").put(b"x"),
    "MPUT": lambda queue: queue.find_tube("q").put_many([b"x", b"y"]),
    "TAKE": lambda queue: queue.find_tube("q").take(),
    "TUBE LIST": lambda queue: queue.tubes(),
    "TUBE SCAN": lambda queue: queue.overview(),
    "SESSION SCAN": lambda queue: queue.sessions(),
    "TUBE KEYS": lambda queue: queue.find_tube("q").keys(),
    "TUBE CAUSES": lambda queue: queue.find_tube("q").causes(),
    "TUBE STATS": lambda queue: queue.find_tube("q").info(),
    "TUBE TRUNCATE": lambda queue: queue.find_tube("q").truncate(),
    "TUBE PAUSE": lambda queue: queue.find_tube("q").pause(),
    "TUBE DROP": lambda queue: queue.find_tube("q").drop(),
    "JOB PEEK": lambda queue: queue.job(ID.decode()),
    "JOB LIST": lambda queue: queue.find_tube("q").jobs("ready"),
    "JOB SCAN": lambda queue: queue.scan(),
    "JOB HISTORY": lambda queue: queue.history(ID.decode()),
    "JOURNAL EVENTS": lambda queue: next(queue.events(), None),
    "CLAIM TAKE": lambda queue: queue.find_tube("q").claim("c", 1, 10),
    "CLAIM READ": lambda queue: queue.read_claim("c", 1),
    "CLAIM INFO": lambda queue: queue.claim_info("c"),
    "CLAIM ACK": lambda queue: queue.ack_claims("c", 1),
    "PUBLISH": lambda queue: queue.publish("s"),
}

# Replies that no command has.
NONSENSE = {
    "a number": b":-7\r\n",
    "a status": b"+FINE\r\n",
    "a bulk that is no UTF-8": b"$2\r\n\xff\xfe\r\n",
    "yes": b"#t\r\n",
    "a fraction": b",1.5\r\n",
    "a list of nothing": b"*2\r\n_\r\n_\r\n",
    "a list of lists": b"*2\r\n*1\r\n*0\r\n*1\r\n:1\r\n",
    "an odd map": b"%1\r\n:1\r\n*0\r\n",
    "a map of the wrong types": b"%3\r\n$2\r\nid\r\n:1\r\n$4\r\ntube\r\n_\r\n$6\r\npolicy\r\n:9\r\n",
}
# Replies that are valid: a negative count, or nothing.
MEANINGFUL = {("a number", name) for name in ("TUBE TRUNCATE", "TUBE PAUSE", "TUBE DROP", "CLAIM ACK", "PUBLISH")}


@attempt(
    "answer every call with the wrong type: numbers, text, lists, odd maps, text that is not UTF-8",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="BadAnswer, a ConnectionLost; the connection is closed; no call reports success",
)
@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_refused(server: HostileServer, name: str) -> None:
    for what, answer in NONSENSE.items():
        if (what, name) in MEANINGFUL:
            continue
        server.answers = {name.encode(): answer}
        with penstock.connect(server.url) as queue, pytest.raises(BadAnswer) as caught:
            _shown(CALLS[name](queue))
        assert isinstance(caught.value, ConnectionLost) and "\n" not in str(caught.value), what


def _shown(found: Any) -> object:
    """Read everything that a call has returned, because some replies are decoded late."""
    return [(each.id, each.body) for each in found] if isinstance(found, list) and hasattr(found[0], "body") else found


@attempt(
    "the same, for the asyncio client",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="BadAnswer; the connection is closed",
)
def test_wrong_types_are_refused_in_asyncio(server: HostileServer) -> None:
    async def main() -> None:
        for answer in NONSENSE.values():
            server.answers = {b"PUT": answer, b"TAKE": answer, b"TUBE LIST": answer}
            async with penstock.connect_async(server.url) as queue:
                tube = await queue.find_tube("q")
                with pytest.raises(BadAnswer):
                    await tube.put(b"x")
                with pytest.raises(BadAnswer):
                    await queue.tubes()
                with pytest.raises(BadAnswer):
                    await tube.take(timeout=0.1)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S * 2))


@attempt(
    "reply to an ack, a release or a move with a list, nothing, or another status",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="BadAnswer: the call does not report success",
)
def test_no_finish_is_reported_that_was_not_answered(server: HostileServer) -> None:
    server.answers = {b"TAKE": b"*1\r\n" + job_map()}
    for answer in (b"_\r\n", b"*0\r\n", b"$2\r\nNO\r\n", b"+QUEUED\r\n", b"%0\r\n", b"#t\r\n"):
        server.answers |= {b"ACK": answer, b"RELEASE": answer, b"JOB": answer, b"BURY": answer, b"DIG": answer}
        with penstock.connect(server.url) as queue:
            for finish in (
                *(
                    lambda job: job.ack(),
                    lambda job: job.release(),
                    lambda job: job.bury("x"),
                    lambda job: job.done(b"x"),
                ),
                *(lambda job: job.move(queue.find_tube("q")), lambda job: job.delete(), lambda job: job.touch(5)),
            ):
                server.answers[b"JOB HELD"] = b"*0\r\n"
                job = queue.find_tube("q").take()
                assert job is not None
                with pytest.raises(BadAnswer):
                    finish(job)


@attempt(
    "huge lengths, arrays of a million arrays, thousands of nested arrays, a line without an end",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="ConnectionLost at once; memory grows by less than 64 MB",
)
@pytest.mark.parametrize(
    "answer",
    [
        b"$9999999999\r\n" + b"x" * 1_000,
        b"$-2\r\n",
        b"*2147483647\r\n:1\r\n",
        b"%2147483647\r\n:1\r\n",
        b"*1000000\r\n" * 31 + b":1\r\n",
        b"*1\r\n" * 100_000,
        b"|1\r\n" * 100_000,
        b"+" + b"x" * 2_000_000,
        b":" + b"1" * 100_000 + b"\r\n",
        b"*1\r\n$3\r\nabcdef",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\x00" * 1_000,
    ],
    ids=lambda answer: repr(answer[:14]),
)
def test_absurd_lengths_and_nesting_are_refused(server: HostileServer, answer: bytes) -> None:
    server.answers = {b"PUT": answer, b"TUBE LIST": answer}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with penstock.connect(server.url) as queue:
        for call in (CALLS["PUT"], CALLS["TUBE LIST"]):
            with pytest.raises(ConnectionLost):
                call(queue)
    assert time.monotonic() - began < 2 * HANG_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@attempt(
    "an answer that never ends: pushes, attributes, and arrays with more items than any answer has",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="refused after 640 MB or 8 million items; none of it is kept",
)
def test_an_answer_has_an_end() -> None:
    piece = b">1\r\n$8388608\r\n" + b"x" * (1 << 23) + b"\r\n"
    parser, fed = ReplyParser(), 0
    with pytest.raises(ProtocolError, match="too long"):
        while fed < 2 * ANSWER_BYTES_MAX:
            parser.feed(piece)
            fed += len(piece)
            parser.parse()
    assert fed <= ANSWER_BYTES_MAX + len(piece)
    for head in (b"*1000000\r\n", b"%1000000\r\n", b"|1000000\r\n", b">1000000\r\n"):
        parser = ReplyParser()
        parser.feed(head * 16)
        with pytest.raises(ProtocolError, match="too many items"):
            parser.parse()


def _drip(connection: socket.socket, words: list[bytes]) -> None:
    """Send a reply byte by byte, always before the timeout."""
    for byte in b"$1000\r\n" + b"x" * 1_000:
        connection.sendall(bytes([byte]))
        time.sleep(TIMEOUT_S / 5)


@attempt(
    "answer one byte at a time, each within the timeout",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="ConnectionLost when the timeout of one answer is over (each 64 KB of a long answer have this time)",
)
def test_a_dripping_answer_ends_with_the_timeout(server: HostileServer) -> None:
    server.answers = {b"PUT": _drip, b"TUBE LIST": _drip}

    async def in_asyncio() -> None:
        async with penstock.connect_async(server.url) as queue:
            with pytest.raises(ConnectionLost):
                await (await queue.find_tube("q")).put(b"x")

    with penstock.connect(server.url) as queue:
        for call in (CALLS["PUT"], CALLS["TUBE LIST"]):
            began = time.monotonic()
            with pytest.raises(ConnectionLost):
                call(queue)
            assert time.monotonic() - began < HANG_S
    began = time.monotonic()
    asyncio.run(in_asyncio())
    assert time.monotonic() - began < HANG_S


@attempt(
    "send an unrequested reply: together with a requested one, and later on an idle connection",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="the connection is closed; the next call gets its own answer, on another connection",
)
def test_an_extra_answer_is_not_taken_for_the_next(server: HostileServer) -> None:
    def put(connection: socket.socket, words: list[bytes]) -> None:
        connection.sendall(b"$40\r\n" + ID + b"\r\n" + (b"*1\r\n$6\r\nforged\r\n" if words[2] == b"extra" else b""))

    server.answers = {b"PUT": put, b"TUBE LIST": b"*1\r\n$4\r\nreal\r\n"}
    with penstock.connect(server.url) as queue:
        tube = queue.find_tube("q")
        with pytest.raises(ConnectionLost):
            tube.put(b"extra")
        assert queue.tubes() == ["real"]
        assert tube.put(b"plain").id == ID.decode()

    async def in_asyncio() -> None:
        async with penstock.connect_async(server.url) as queue:
            tube = await queue.find_tube("q")
            with contextlib.suppress(ConnectionLost):
                await tube.put(b"extra")
            assert await queue.tubes() == ["real"]

    asyncio.run(in_asyncio())


@attempt(
    "answer a pipeline with one malformed reply",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="this call and all after it raise BadAnswer; those before it keep their answers",
)
def test_a_pipeline_ends_at_an_answer_that_makes_no_sense(server: HostileServer) -> None:
    def put(connection: socket.socket, words: list[bytes]) -> None:
        connection.sendall(b":5\r\n" if words[2] == b"2" else b"$40\r\n" + ID + b"\r\n")

    server.answers = {b"PUT": put}
    with penstock.connect(server.url) as queue:
        pipe, tube = queue.pipeline(), queue.find_tube("q")
        answers = [pipe.put(tube, b"%d" % number) for number in range(4)]
        pipe.send()
        assert [answers[0].value, answers[1].value] == [ID.decode()] * 2
        for answer in answers[2:]:
            with pytest.raises(BadAnswer):
                _ = answer.value


@attempt(
    "let a scan of tubes or of events go on for ever: a cursor or a position that goes back",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="BadAnswer",
)
def test_a_scan_goes_on_and_ends(server: HostileServer) -> None:
    server.answers = {
        b"TUBE SCAN": b"*2\r\n$1\r\n7\r\n*0\r\n",
        b"JOB SCAN": b"*2\r\n$1\r\n7\r\n*0\r\n",
        b"JOURNAL EVENTS": b"*2\r\n:1\r\n*1\r\n%3\r\n+position\r\n:1\r\n+time_ms\r\n:1\r\n+event\r\n+x\r\n",
    }
    with penstock.connect(server.url) as queue:
        for call in (queue.overview, queue.stats, lambda: queue.scan(7), lambda: list(queue.events())):
            with pytest.raises(BadAnswer):
                call()


@attempt(
    "hand out more jobs than were asked for, and jobs whose bodies do not have their stated type",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="BadAnswer",
)
def test_a_take_accepts_only_the_jobs_it_asked_for(server: HostileServer) -> None:
    server.answers = {b"TAKE": b"*2\r\n" + job_map() * 2, b"JOB HELD": b"*0\r\n"}
    with penstock.connect(server.url) as queue:
        with pytest.raises(BadAnswer):
            queue.find_tube("q").take()
        for kind, body in ((b"text", b"\xff"), (b"msgpack", b"\xc1"), (b"msgpack", b"\x01")):
            field = b"$%d\r\n%b\r\n"
            server.answers[b"TAKE"] = b"*1\r\n" + job_map(
                **{"as": field % (len(kind), kind), "body": field % (len(body), body)}
            )
            job = queue.find_tube("q").take()
            assert job is not None
            with pytest.raises(PenstockError):
                _ = job.body


@attempt(
    "greet with a malformed session, or refuse every session",
    port="RESP, as the server",
    caller="hostile server, in its handshake",
    result="WrongServer, or the refusal; the client does not connect again and again",
)
def test_a_strange_greeting_is_refused(server: HostileServer) -> None:
    async def connect() -> None:
        async with asyncio.timeout(PATIENCE_S), penstock.connect_async(server.url):
            pass

    for identity in (
        *(b"%1\r\n$5\r\ntoken\r\n:1\r\n", b"%0\r\n", b"*0\r\n", b"%1\r\n:1\r\n:2\r\n"),
        IDENTITY.replace(TOKEN, b"\xff" * 32),
        IDENTITY.replace(b":1000000", b"$1\r\nx"),
    ):
        server.identity = identity
        with pytest.raises(WrongServer):
            penstock.connect(server.url)
        with pytest.raises(WrongServer):
            asyncio.run(connect())
    server.identity = b"-NOSESSION no\r\n"
    server.seen.clear()
    with pytest.raises(PenstockError):
        penstock.connect(server.url)
    with pytest.raises(PenstockError):
        asyncio.run(connect())
    assert sum(words[0] == b"IDENTIFY" for words in server.seen) <= 4


@attempt(
    "send clients elsewhere with HELLO: to a cloud's metadata service, loopback, broadcast, absurd ports and names",
    port="RESP, as the server",
    caller="hostile server that the client trusts",
    result="these are not learned; others are, since nodes may be anywhere (over TLS, only the URL names hosts)",
)
def test_absurd_addresses_are_not_learned() -> None:
    def told(*nodes: tuple[object, object, object]) -> list[object]:
        return [1, NODE, *([NODE, host, port, priority] for host, port, priority in nodes)]

    good = (b"10.0.0.2", b"7711", b"1")
    bad: list[tuple[object, object, object]] = [
        *(
            (host, b"80", b"1")
            for host in (b"169.254.169.254", b"fe80::1", b"0.0.0.0", b"::", b"224.0.0.1", b"ff02::1")
        ),
        *(
            (host, b"6379", b"1")
            for host in (b"127.0.0.1", b"::1", b"255.255.255.255", b"a b", b"\xff", b"x" * 300, b"")
        ),
        *((b"10.0.0.3", port, b"1") for port in (b"0", b"65536", b"-1", b"x", b"9" * 5_000, None, 7711, [])),
        *((b"10.0.0.3", b"7711", priority) for priority in (None, b"-1", b"nan", 1, b"")),
        *((host, b"7711", b"1") for host in (None, 5, [], {})),
    ]
    addresses = Addresses((("10.0.0.1", 7711),), learns=True)
    addresses.learn(told(*bad, good))
    assert addresses.all() == [("10.0.0.1", 7711), ("10.0.0.2", 7711)]
    for nonsense in (None, 7, b"x", {}, [], [1], [1, 2, 3], [1, NODE, [1], [1, 2, 3, 4, 5], None]):
        addresses.learn(nonsense)
    addresses.learn(told(*((b"10.1.0.%d" % (n % 256), b"%d" % (n + 1), b"1") for n in range(5_000))))
    assert len(addresses.all()) <= 1_001
    local = Addresses((("127.0.0.1", 7711),), learns=True)
    local.learn(told((b"127.0.0.1", b"7712", b"1")))
    assert local.all()[1:] == [("127.0.0.1", 7712)]


@attempt(
    "pack jobs with offsets that point behind the answer, for the Spark connector",
    port="RESP, as the server",
    caller="hostile server",
    result="BadAnswer, before Arrow sees them",
)
def test_packed_jobs_stay_within_their_answer() -> None:
    ends, one = b"\0\0\0\0\4\0\0\0", b"\1"
    good = [ID, ends, b"tube", one, b"\0", b"\0", b"\0" * 8, b"\0" * 8, b"\0" * 4, b"\0" * 4]
    good += [one, ends, b"body", b"\0", b"\0" * 8, b""]
    assert columns.batch(columns.groups_of([good]), ("id", "tube", "body")).num_rows == 1
    for at, value in (
        *((at, b"\0\0\0\0\xff\xff\xff\x7f") for at in (1, 11, 14)),
        *((at, b"\0\0\0\0\xff\xff\xff\xff") for at in (1, 11, 14)),
        *((at, b"\4\0\0\0\0\0\0\0") for at in (1, 11)),
        *((at, b"") for at in (0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14)),
        *((at, good[at] + b"x") for at in range(16)),
        *((0, b"\xff" * 40), (3, b"\xff"), (4, b"\xff"), (2, None), (5, 7)),
    ):
        group: list[Any] = [*good]
        group[at] = value
        with pytest.raises(BadAnswer):
            columns.groups_of([group])
    for nonsense in ([good[:5]], [[]], [None], None, {}, [[*good, b""]]):
        with pytest.raises(BadAnswer):
            columns.groups_of(nonsense)


CLI_COMMANDS = (
    *(
        "tube ls",
        "tube info q",
        "tube stats q",
        "put q x",
        "take q",
        "stats",
        "job show " + ID.decode(),
        "job find --tube q",
    ),
    *("cluster nodes", "cluster homes", "check journal", "kick q", "dlq ls", "job history " + ID.decode()),
)


@attempt(
    "answer the command line with wrong types, endless nesting and bytes that are not RESP",
    port="RESP, as the server",
    caller="hostile server, after a good handshake",
    result="one sentence on standard error, a documented exit code, no traceback",
)
def test_the_command_line_prints_one_sentence(tmp_path: Path) -> None:
    answers = [*NONSENSE.values(), b"*1\r\n" * 1_000, b"\x1b[2J\r\n"]
    names = b"TUBE JOB PUT TAKE CLUSTER INFO KICK CLAIM JOURNAL".split()
    started = []
    for number, command in enumerate(CLI_COMMANDS):
        # Not all pairs, because each is a process.
        each = HostileServer()
        each.answers = dict.fromkeys([*names, b"TUBE INFO", b"TUBE CREATE"], answers[number % len(answers)])
        env = environment() | {"PENSTOCK_URL": each.url, "HOME": str(tmp_path)}
        process = subprocess.Popen(
            [*PENSTOCK, *command.split()],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append((command, process, each))
        if len(started) % 3 == 0:
            _check_ends(started)
    _check_ends(started)


def _check_ends(started: list[tuple[str, subprocess.Popen[bytes], HostileServer]]) -> None:
    while started:
        command, process, server = started.pop()
        out, err = (text.decode() for text in process.communicate(timeout=PATIENCE_S * 3))
        server.close()
        assert "Traceback" not in out + err and "internal error" not in err, (command, err)
        assert "\x1b" not in out + err, command
        if command.startswith("check"):
            assert process.returncode == 3, (command, out, err)
        else:
            assert err.startswith("penstock: ") and err.count("\n") == 1, (command, out, err)
            assert process.returncode in (3, 4, 75), (command, process.returncode, err)
