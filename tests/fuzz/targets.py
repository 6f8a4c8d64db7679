"""What is fuzzed, and what holds of it whatever it is given."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

from penstock.host import Host
from penstock.server import table
from penstock.server.config import Config
from penstock.server.connection import Connection
from penstock.server.server import Server
from penstock.testing import check
from tests.fuzz.mutation import Target
from tests.wire import model
from tests.wire.streams import BULK_MAX, bytewise, encode, read


def parse(data: bytes) -> None:
    """The first byte says who sends it and how it is cut, the others are what is sent."""
    how, data = data[:1], data[1:]
    known = how < b"\x80"
    meant = model.requests(data, BULK_MAX, known)
    assert read([data], known=known) == meant
    dice = random.Random(how)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(6)))
    cut = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(cut, known=known, at_once=dice.choice([1, 2, 256])) == meant
    if len(data) < 500:
        assert read(bytewise(data), known=known) == meant


class Wire:
    """A connection without a network: what asyncio's transports do, as far as the server asks them to."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 7711) if name in ("peername", "sockname") else None

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        """It has no bounds."""

    def pause_reading(self) -> None:
        """Everything is there already."""

    def resume_reading(self) -> None:
        """Everything is there already."""


class Hasty(asyncio.SelectorEventLoop):
    """A loop whose clock hurries, so that nobody has to wait for it."""

    _ahead_s = 0.0

    def time(self) -> float:
        self._ahead_s += 0.05
        return super().time() + self._ahead_s


# What ends or delays everything, what is meant to have no answer, and what forgets how many commands there were.
_NOT_ASKED = {b"SHUTDOWN": None, b"DEBUG": {b"SLEEP"}, b"CLIENT": {b"PAUSE", b"REPLY"}, b"CONFIG": {b"RESETSTAT"}}


def serve(script: bytes) -> None:
    """A command a line, its words between spaces; @ is the id of the newest job, ~ stands for a space in a word."""
    loop = Hasty()
    log = logging.getLogger("penstock")
    log.disabled = True
    try:
        server = Server(Config(Path("/nonexistent")), Host(0), loop)
        table.install(server)
        server.apply_all()
        wire = Wire()
        client = server.clients.accept()
        assert isinstance(client, Connection)
        client.connection_made(wire)  # type: ignore[arg-type]
        for line in script.split(b"\n"):
            words = [_word(server, word) for word in line.split(b" ") if word]
            if words and not _is_left_out(words) and not wire.closed:
                client.data_received(encode(words))
                _turn(loop, 3)
        if not wire.closed:
            client.eof_received()
        while not wire.closed:
            _turn(loop)
        client.connection_lost(None)
        _turn(loop)
        assert server.desk.internal_errors == 0
        assert len(model.answers(wire.sent)) == server.desk.executed
        check(server.node.engine)
    finally:
        # As it was found: other tests listen to it.
        log.disabled = False
        log.setLevel(logging.NOTSET)
        loop.close()


def _word(server: Server, word: bytes) -> bytes:
    if b"@" in word:
        jobs, _ = server.node.engine.scan(0, 1_000)
        word = word.replace(b"@", server.site.id_of(jobs[-1]) if jobs else b"D-00000000-no-job")
    return word.replace(b"~", b" ")


def _is_left_out(words: list[bytes]) -> bool:
    left_out = _NOT_ASKED.get(words[0].upper(), set())
    return left_out is None or (len(words) > 1 and words[1].upper() in left_out)


def _turn(loop: asyncio.AbstractEventLoop, times: int = 1) -> None:
    for _ in range(times):
        loop.call_soon(loop.stop)
        loop.run_forever()


_NUMBERS = [b"0", b"1", b"-1", b"10", b"65535", b"65536", b"4294967296", b"9223372036854775807", b"9223372036854775808"]
_NUMBERS += [b"-9223372036854775808", b"1" * 30, b"1" * 5_000, b"1.5", b"+1", b"1_0", b"nan", b"\xff", b"1mb", b"50%"]
_BYTES = [
    b"\r\n",
    b"\n",
    b"*",
    b"$",
    b'"',
    b"'",
    b"\\",
    b"\\x41",
    b"*1\r\n$4\r\nPING\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*3\r\n",
]
_BYTES += [
    b"\x16\x03\x01",
    b"\xce",
    b"\0",
    b" ",
    b"$4\r\n",
    b"*11\r\n",
    b"$16385\r\n",
    b"$5001\r\n",
    b"x" * 200,
    *_NUMBERS,
]
_COMMANDS = b"""
    addjob getjob ackjob fastack working nack enqueue dequeue deljob show loadjob qlen qstat qpeek pause qscan jscan
    hello auth ping time command client info monitor slowlog latency config cluster bgrewriteaof debug
    put mput take ack release requeue bury dig kick identify job job job tube tube tube
    """.split()
_WORDS = b"""
    @ @ @ q q r nosuch ~ FROM NOHANG COUNT TIMEOUT WITHCOUNTERS TTL RETRY DELAY REPLICATE MAXLEN ASYNC BUSYLOOP MINLEN
    IMPORTRATE QUEUE STATE REPLY all id active queued acked in out none state bcast SET GET LEN RESET REWRITE LIST KILL
    ID ADDR TYPE normal SKIPME yes no SETNAME GETNAME SETINFO LIB-NAME LIB-VER HISTORY LATEST GRAPH DOCTOR command NODES
    MYID INFO MEET FORGET LEAVING SOFT HARD 127.0.0.1 ::1 FLUSHALL ERROR STRUCTSIZE SEGFAULT RESTART AUTH default 2 3
    DOCS * max* maxmemory max-body maxclients requirepass timeout hz loglevel appendfsync latency-monitor-threshold
    create alter stats drop truncate release scan touch delete peek meta wait done snatch restart switch move named nack
    POLICY {"type":"x"} TEMPORARY CAPACITY KEY-LIMIT KEEP ZOMBIE MAX-DELIVERIES DEAD-LETTER FAIR fifo utubettl stube
    JOB AND TTR PRIORITY KEY URGENT ONCE NAME UNIQUE DEDUP AS json text bytes GRACE REASON MATCH TUBE IDS ready taken
    delayed buried zombie gone 5x 1ms 1.5h forever q#0 q#1 r#0 #
    client-output-buffer-limit slowlog-log-slower-than slowlog-max-len tcp-keepalive protected-mode progress-timeout
    """.split()
_WORDS += _NUMBERS


def make_stream(dice: random.Random) -> bytes:
    """Commands as clients send them, of any words."""
    sent = [[dice.choice(_BYTES) for _ in range(dice.randrange(1, 12))] for _ in range(dice.randrange(1, 30))]
    return bytes([dice.randrange(256)]) + b"".join(map(encode, sent))


def make_script(dice: random.Random) -> bytes:
    """Commands of the table, with words that some of them know."""
    lines = [b"ADDJOB q body 0"] if dice.randrange(2) else []
    for _ in range(dice.randrange(1, 12)):
        lines.append(b" ".join([dice.choice(_COMMANDS), *dice.choices(_WORDS, k=dice.randrange(7))]))
    return b"\n".join(lines)


TARGETS: dict[str, Target] = {
    "resp": Target(
        "any bytes, cut in any way, give the commands of the model and its error, and raise nothing",
        parse,
        make_stream,
        _BYTES,
    ),
    "desk": Target(
        "any commands with any words get one answer each that a client can read, and no internal error",
        serve,
        make_script,
        [b"\n", b" ", *_WORDS, *(b"\n" + name + b" " for name in _COMMANDS)],
    ),
}
