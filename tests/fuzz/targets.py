"""The fuzzed functions, and their invariants for any input."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from pathlib import Path

from penstock.cluster.messages import Message
from penstock.core.errors import BadCondition, ProtocolError, WrongType
from penstock.core.job import BODY_MSGPACK
from penstock.host.host import Host
from penstock.search.conditions import FIELDS, Fields, parse_condition
from penstock.server.commands import command_table
from penstock.server.config.configuration import Config
from penstock.server.net.connection import Connection
from penstock.server.net.iproto_port import iproto_ports
from penstock.server.server import Server
from penstock.testing import check
from penstock.wire import bus
from penstock.wire.bodies import to_plain
from penstock.wire.iproto import IprotoParser
from penstock.wire.msgpack import Reader, pack, unpack
from tests.fuzz.mutation import Target
from tests.wire import resp_model
from tests.wire.client_input import BULK_MAX, bytewise, encode, read


def parse(data: bytes) -> None:
    """Parse RESP. The first byte selects the sender and how the data is split; the rest is the data."""
    how, data = data[:1], data[1:]
    known = how < b"\x80"
    meant = resp_model.requests(data, BULK_MAX, known)
    assert read([data], known=known) == meant
    dice = random.Random(how)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(6)))
    cut = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(cut, known=known, at_once=dice.choice([1, 2, 256])) == meant
    if len(data) < 500:
        assert read(bytewise(data), known=known) == meant


class Wire:
    """A transport of asyncio without a network, as far as the server uses it."""

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
        """Do nothing, because the buffer is unlimited."""

    def pause_reading(self) -> None:
        """Do nothing, because all data is already received."""

    def resume_reading(self) -> None:
        """Do nothing, because all data is already received."""


class Hasty(asyncio.SelectorEventLoop):
    """An event loop with a fast clock, so that timeouts pass quickly."""

    _ahead_s = 0.0

    def time(self) -> float:
        self._ahead_s += 0.05
        return super().time() + self._ahead_s


# Commands that are not fuzzed: they stop or delay the server, have no reply, reset the number of commands, or connect
# to other machines.
_NOT_ASKED = {
    **{b"SHUTDOWN": None, b"DEBUG": {b"SLEEP"}, b"CLIENT": {b"PAUSE", b"REPLY"}, b"CONFIG": {b"RESETSTAT"}},
    b"CLUSTER": {b"MEET"},
}


def serve(script: bytes) -> None:
    """Run commands, one per line, with words separated by spaces. @ is the id of the newest job, ~ is a space."""
    loop = Hasty()
    log = logging.getLogger("penstock")
    log.disabled = True
    try:
        server = Server(Config(Path("/nonexistent")), Host(0), loop)
        command_table.install(server)
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
        assert server.dispatcher.internal_errors == 0
        assert len(resp_model.answers(wire.sent)) == server.dispatcher.executed
        check(server.turn.engine)
    finally:
        # Restored, because other tests use the logger.
        log.disabled = False
        log.setLevel(logging.NOTSET)
        loop.close()


def _word(server: Server, word: bytes) -> bytes:
    if b"@" in word:
        jobs, _ = server.turn.engine.scan(0, 1_000)
        word = word.replace(b"@", server.context.id_of(jobs[-1]) if jobs else b"D-00000000-no-job")
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
    keys causes priority run edit WHERE EXAMINE body.user~==~42 age<1~and~not~key
    POLICY {"type":"x"} TEMPORARY CAPACITY KEY-LIMIT KEEP ZOMBIE MAX-DELIVERIES DEAD-LETTER FAIR fifo utubettl stube
    JOB AND TTR PRIORITY KEY URGENT ONCE NAME UNIQUE DEDUP AS json text bytes GRACE REASON MATCH TUBE IDS ready taken
    HEADER HEADER HEADERS WITHHEADERS delayed buried zombie gone 5x 1ms 1.5h forever q#0 q#1 r#0 #
    client-output-buffer-limit slowlog-log-slower-than slowlog-max-len tcp-keepalive protected-mode progress-timeout
    """.split()
_WORDS += _NUMBERS


def make_stream(dice: random.Random) -> bytes:
    """Return encoded commands of random words."""
    sent = [[dice.choice(_BYTES) for _ in range(dice.randrange(1, 12))] for _ in range(dice.randrange(1, 30))]
    return bytes([dice.randrange(256)]) + b"".join(map(encode, sent))


def make_script(dice: random.Random) -> bytes:
    """Return a script of existing commands with frequent words as arguments."""
    lines = [b"ADDJOB q body 0"] if dice.randrange(2) else []
    for _ in range(dice.randrange(1, 12)):
        lines.append(b" ".join([dice.choice(_COMMANDS), *dice.choices(_WORDS, k=dice.randrange(7))]))
    return b"\n".join(lines)


# ---- IPROTO ----------------------------------------------------------------------------------------------------------


def parse_iproto(data: bytes) -> None:
    """Parse IPROTO. The first byte selects how the data is split; the rest is the data."""
    how, data = data[:1], data[1:]
    meant = _requests([data], 1_000)
    dice = random.Random(how)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(6)))
    cut = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert _requests(cut, dice.choice([1, 2, 256])) == meant
    if len(data) < 500:
        assert _requests(bytewise(data), 256) == meant


def _requests(chunks: list[bytes], at_once: int) -> tuple[list[tuple[object, ...]], bytes]:
    parser = IprotoParser(5_000, 1_000_000, True)
    found = []
    for chunk in chunks:
        parser.feed(chunk)
        while True:
            found += [(each.code, each.sync, each.name, each.args, each.space) for each in parser.parse(at_once)]
            if not parser.has_more:
                break
    for request in found:
        for argument in request[3]:
            # Arguments that the parser accepts must be decodable.
            unpack(argument)
            to_plain(b"\x91" + argument, BODY_MSGPACK)
    return found, parser.error


def call(script: bytes) -> None:
    """Run calls, one per line: a function and its arguments as JSON or text. @ is the id of the newest job."""
    loop = Hasty()
    log = logging.getLogger("penstock")
    log.disabled = True
    try:
        server = Server(Config(Path("/nonexistent")), Host(0), loop)
        command_table.install(server)
        server.apply_all()
        door = iproto_ports(server)["iproto15_port" if script[:1] == b"q" else "iproto_port"]
        wire = Wire()
        client = door.accept()
        assert isinstance(client, Connection)
        client.connection_made(wire)  # type: ignore[arg-type]
        sent = 0
        for line in script.split(b"\n"):
            name, *words = [word for word in line.split(b" ") if word] or [b""]
            arguments = b"".join([b"\xdd", len(words).to_bytes(4, "big"), *(_argument(server, word) for word in words)])
            rest = (
                pack({0: 10 if len(words) % 2 else 6, 1: sent}) + b"\x82\x22" + pack(name.decode("latin-1")) + b"\x21"
            )
            if not wire.closed:
                client.data_received(b"\xce" + (len(rest) + len(arguments)).to_bytes(4, "big") + rest + arguments)
                sent += 1
                _turn(loop, 3)
        client.eof_received()
        while not wire.closed:
            _turn(loop)
        client.connection_lost(None)
        _turn(loop)
        assert server.dispatcher.internal_errors == 0
        assert _answered(wire.sent[128:]) == list(range(sent))
        check(server.turn.engine)
    finally:
        log.disabled = False
        log.setLevel(logging.NOTSET)
        loop.close()


def _argument(server: Server, word: bytes) -> bytes:
    if word.startswith(b"%"):
        # A msgpack value in hexadecimal, for values that JSON does not have. Invalid ones become nil.
        try:
            raw = bytes.fromhex(word[1:].decode())
            unpack(raw)
            return raw
        except (ValueError, ProtocolError):
            return b"\xc0"
    if b"@" in word:
        jobs, _ = server.turn.engine.scan(0, 1_000)
        word = word.replace(b"@", server.context.ids.hex(jobs[-1].id) if jobs else b"no-job")
    try:
        return pack(json.loads(word))
    except (ValueError, WrongType, RecursionError):
        return pack(word.decode("latin-1"))


def _answered(sent: bytes) -> list[int]:
    """Return the sync numbers of all replies, which must be complete."""
    found = []
    while sent:
        length = int.from_bytes(sent[1:5], "big")
        reader = Reader(sent, 5, 5 + length)
        header = reader.value()
        reader.value(64)
        assert sent[0] == 0xCE and reader.at == reader.end and isinstance(header, dict)
        found.append(header[1])
        sent = sent[5 + length :]
    return sorted(found)


_PACKETS = [
    bytes.fromhex("ce0000001b8200cd000a01022282a1780000"),
    b"\xce\0\0\0\5\x82\x00\x40\x01\x00",
    b"\x05\x82\x00\x40\x01\x07",
    b"\xce\0\0\0\x10\x82\x00\x0a\x01\x01\x82\x22\xa3abc\x21\x92\x01\xa1x",
    b"\x82\x00\x0a\x01",
    *[
        b"\xc0",
        b"\xc1",
        b"\xc4\x01a",
        b"\xc7\x01\x02a",
        b"\xca\0\0\0\0",
        b"\xcf" + b"\xff" * 8,
        b"\xd8\x02" + bytes(16),
    ],
    *[
        b"\xdc\0\1",
        b"\xdd\0\0\0\1",
        b"\xde\0\1",
        b"\x90",
        b"\x91",
        b"\x80",
        b"\x81",
        b"\xa1x",
        b"\xd9\x01x",
        b"\xe0",
        b"\x21",
    ],
]
_TUBE_METHODS = (
    b"put take ack release touch peek bury kick delete truncate drop release_all tasks_by_state grant headers"
)
_QUEUE_FUNCTIONS = b"""
    put put_unique urgent take ack release requeue bury done dig kick touch delete truncate peek meta statistics stats
    tube identify cfg create_tube nope
    """
_SPACE_METHODS = b"q:select q:get q:len u:count q:insert _queue:select _queue_taken_2:select _queue_consumers:count"
_FUNCTIONS = [
    *[b"queue.tube." + tube + b":" + name for name in _TUBE_METHODS.split() for tube in (b"q", b"u")],
    *[b"queue." + name for name in _QUEUE_FUNCTIONS.split()],
    *[b"box.space." + name for name in _SPACE_METHODS.split()],
]
_ARGUMENTS = b"""
    @ @ q u 0 0 0 1 5 -1 1.5 1e300 NaN Infinity null true {} [] [0] {"ttl":1} {"ttl":0.001} {"delay":0.001} {"pri":5}
    {"utube":"a"} {"timeout":0.01} {"if_not_exists":true} {"limit":2,"offset":1} {"capacity":2} {"ttr":0.001} fifo utube
    utubettl limfifottl stube queue15 disque "1" "0.5" "nan" 18446744073709551615 -9223372036854775808 r t ~ ! - text
    %c403616263 %d80200000000000000000000000000000000 %91919191c0 %8191c001 %a1ff %cb7ff8000000000000 {"nope":1}
    {"headers":{"n":"v"}} {"headers":{"":""}} {"headers":[]} {"headers":{"n":5}} {"headers":7}
    """.split()


def make_packets(dice: random.Random) -> bytes:
    """Return packets, or parts of packets."""
    return bytes([dice.randrange(256)]) + b"".join(dice.choices(_PACKETS, k=dice.randrange(1, 20)))


def make_calls(dice: random.Random) -> bytes:
    """Return a script of existing functions with frequent arguments."""
    lines = [b'queue.create_tube q fifottl {"if_not_exists":true}', b"queue.create_tube u utube", b"queue.tube.q:put x"]
    for _ in range(dice.randrange(1, 12)):
        lines.append(b" ".join([dice.choice(_FUNCTIONS), *dice.choices(_ARGUMENTS, k=dice.randrange(7))]))
    return b"\n".join(lines)


_BUS_KEY = bytes(32)


def hear(data: bytes) -> None:
    """Parse data of the cluster bus. The first byte selects how it is split, and whether it gets a valid seal."""
    how, data = data[:1], data[1:]
    _check_handshake(data)
    frames, seal = bus.Frames(), bus.PacketTags(_BUS_KEY)
    sealed = how < b"\xc0"
    if sealed:
        tag = bus.PacketTags(_BUS_KEY).next(data)
        data = (len(tag) + len(data)).to_bytes(4, "big") + tag + data
    frames.bytes_max = 1 << 16
    dice = random.Random(how)
    cut = dice.randrange(len(data) + 1)
    heard: list[Message] = []
    try:
        for piece in (data[:cut], data[cut:]):
            frames.feed(piece)
            while (frame := frames.next()) is not None:
                payload = bus.verified_payload(frame, seal) if sealed else frame
                heard += bus.decode_messages(payload)
    except ProtocolError:
        return
    if heard:
        again = bus.encode_packets(heard, bus.PacketTags(_BUS_KEY), bus.MessageEncoder())
        assert (
            bus.encode_packets(bus.decode_messages(again[20:]), bus.PacketTags(_BUS_KEY), bus.MessageEncoder()) == again
        )


_ID = b"D-11111111-abcdefghijklmnopqrstuvwx-05a1"
_SAID: list[list[object]] = [
    [0, "127.0.0.1", 7711, 17711, 0, 1, bytes(16), [[b"1" * 40, "::1", 7711, 17711, 3, 2]]],
    [3, b"2" * 40],
    [
        4,
        1,
        0,
        0,
        b"",
        b"",
        [[_ID, b"q", b"body", 0, 3, *([1] * 8), [b"1" * 40]]],
    ],
    [7, _ID, 0, 1, 2],
    [10, _ID, 1, [b"1" * 40]],
    [12, b"q", 5, 2_000],
    [16, 9],
    [17, 3, 1, b"q", 10],
    [18, 3, [1, 2], []],
]


_HANDSHAKE: list[list[object]] = [
    [bus.NAME, bus.VERSION, b"1" * 40, b"n" * 32, 3],
    [bus.NAME, bus.VERSION, b"2" * 40, b"n" * 32, b"p" * 32, 3, 4, b"i" * 16],
    [b"p" * 32, 4],
]


def _check_handshake(data: bytes) -> None:
    """Read data as each word of the handshake. A word that is valid is written as it was read."""
    with contextlib.suppress(ProtocolError):
        first = bus.parse_hello(data, False)
        again = bus.parse_hello(bus.encode_opening(first.node, first.nonce, first.epoch)[4:], False)
        assert (again.node, again.nonce, again.epoch) == (first.node, first.nonce, first.epoch)
    with contextlib.suppress(ProtocolError):
        second = bus.parse_hello(data, True)
        word = bus.encode_answer(
            second.node, second.nonce, second.proof, second.epoch, second.known, second.incarnation
        )
        again = bus.parse_hello(word[4:], True)
        assert (again.node, again.nonce, again.proof) == (second.node, second.nonce, second.proof)
        assert (again.epoch, again.known) == (second.epoch, second.known)
        assert again.incarnation == second.incarnation and len(second.incarnation) == bus.INCARNATION_BYTES
    with contextlib.suppress(ProtocolError):
        third = bus.parse_proof(data)
        assert bus.parse_proof(bus.encode_proof(third.proof, third.known)[4:]).proof == third.proof


def make_packet(dice: random.Random) -> bytes:
    """Return a packet of some messages, or a word of the handshake."""
    if dice.random() < 0.2:
        return bytes([dice.randrange(256)]) + pack(dice.choice(_HANDSHAKE))
    return bytes([dice.randrange(256)]) + pack([dice.choice(_SAID) for _ in range(dice.randrange(1, 5))])


_JOB = {
    **{"state": "ready", "age": 1.5, "deliveries": 3, "key": None, "headers": {"trace": "x"}, "reason": "no route"},
    "body": {"user": 42, "list": [1, "a", None, {"deep": [True]}], "text": "é"},
}


class _DictFields(Fields):
    def get(self, field: int) -> object:
        return _JOB.get(FIELDS[field])


def search(text: bytes) -> None:
    """Parse a condition, and test a job."""
    try:
        condition = parse_condition(text.decode("utf-8", "replace"))
    except BadCondition as refusal:
        assert "\n" not in str(refusal)
        return
    condition.matches(_DictFields())


_PARTS = b"""
    body state age key headers reason deliveries . user list ['deep'] [0] [-1] == != < <= > >= in not and or ( ) [ ] ,
    'a' "b" 42 -1.5 2e9 true false null None 'ready' "\\x41" "\\u00e9" \\ ' " e 0x1 1_0 nobody # \xff \xc3\xa9
""".split()


def make_condition(dice: random.Random) -> bytes:
    """Return some parts of conditions."""
    return dice.choice([b"", b" "]).join(dice.choices(_PARTS, k=dice.randrange(1, 20)))


TARGETS: dict[str, Target] = {
    "conditions": Target(
        "any text is a condition that gives true or false for a job, or is refused with BadCondition in one line",
        search,
        make_condition,
        [b" ", b"(" * 60, b"not " * 30, b"x" * 4_096, *_PARTS],
    ),
    "bus": Target(
        "any bytes on the bus are parsed as messages or an error, and parsed messages are encoded to an equal message",
        hear,
        make_packet,
        [pack(said) for said in [*_SAID, *_HANDSHAKE]]
        + [pack(value) for said in [*_SAID, *_HANDSHAKE] for value in said],
    ),
    "iproto": Target(
        "any bytes, split in any way, give the same requests and the same error, and raise nothing",
        parse_iproto,
        make_packets,
        _PACKETS,
    ),
    "calls": Target(
        "any calls with any arguments get one answer each that a client can read, and no internal error",
        call,
        make_calls,
        [b"\n", b" ", *_ARGUMENTS, *(b"\n" + name + b" " for name in _FUNCTIONS)],
    ),
    "resp": Target(
        "any bytes, split in any way, give the commands of the model and its error, and raise nothing",
        parse,
        make_stream,
        _BYTES,
    ),
    "commands": Target(
        "any commands with any words get one answer each that a client can read, and no internal error",
        serve,
        make_script,
        [b"\n", b" ", *_WORDS, *(b"\n" + name + b" " for name in _COMMANDS)],
    ),
}
