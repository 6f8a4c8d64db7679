"""The encoding of the bus: every message is decoded as it was encoded, and any other bytes give a ProtocolError."""

import random

import pytest

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.core.errors import ProtocolError
from penstock.core.limits import NEVER
from penstock.core.tube_patterns import TubePatterns
from penstock.wire import bus
from penstock.wire.errors import RefusedByPeer
from penstock.wire.headers import encode_headers
from penstock.wire.msgpack import pack

ONE, OTHER = b"1" * 40, b"2" * 40
JOB = b"D-11111111-abcdefghijklmnopqrstuvwx-05a1"
KEY = bytes(32)
LIFE = b"l" * 16


def image() -> m.JobImage:
    job = m.JobImage(JOB, b"queue", b"\x00body")
    job.body_kind, job.repl, job.age_ms, job.order = 2, 3, 70, 1_794_767_113_007_000_000
    job.ttl_ms, job.delay_ms, job.retry_ms, job.nacks, job.returns, job.deliveries = NEVER, 0, 300_000, 1, 200, 70_000
    job.holders, job.state, job.reason = [ONE, OTHER], s.BURIED, b"why"
    return job


def with_headers() -> m.JobImage:
    job = image()
    job.headers = encode_headers([("trace", b"\xff\x00"), ("tenant", b"ann")])
    return job


def handed_over() -> m.JobsMessage:
    said = m.JobsMessage(m.YOURJOBS, [image(), with_headers(), image()])
    said.number, said.floor, said.sender_incarnation, said.receiver_incarnation = 7, 5, bytes(16), b"m" * 16
    return said


def papers() -> m.Credentials:
    made = m.Credentials(m.TUNNEL, 9, 2, m.IPROTO)
    made.user, made.groups, made.tubes, made.token = b"ann", 3, [b"mail*"], b"sixteen bytes...."[:16]
    made.grace, made.address, made.name = 60_001, b"127.0.0.1:5000", b"worker"
    return made


def scan() -> m.Question:
    asked = m.Question(m.ASK, 4, m.NEXT_JOBS, b"", 10)
    asked.cursor, asked.states = 1 << 44, 12
    return asked


MESSAGES = [
    m.Greeting(m.PING, "", 7711, 17711, 0, bytes(16), []),
    m.Greeting(m.MEET, "::1", 0, 1, 128, b"x" * 16, [m.Rumour(OTHER, "10.0.0.1", 7711, 17711, 3)] * 20),
    m.FailMessage(m.FAIL, OTHER),
    m.JobsMessage(m.REPLJOB, [image()], quiet=True),
    handed_over(),
    m.JobMessage(m.GOTJOB, JOB),
    m.JobMessage(m.SETACK, JOB, (1 << 63) - 1),
    m.JobMessage(m.SETACK, JOB, 0, TubePatterns([b"mail.*", b"\xff"])),
    m.JobMessage(m.DELJOB, JOB, 0, TubePatterns([])),
    m.JobMessage(m.NOTHELD, JOB, m.NO_DISK),
    m.CopyMessage(m.QUEUED, JOB, m.ASKED_FOR, 3, 4),
    m.CopyMessage(m.WORKING, JOB, 300_250, 0, 0),
    m.HoldersMessage(m.GOTACK, JOB, 1, [ONE, OTHER]),
    m.QueueMessage(m.NEEDJOBS, b"q", 100, 2_000),
    m.QueueMessage(m.PAUSE, b"q" * 65_535, 3),
    m.Receipt(m.TAKENOVER, 9),
    m.Receipt(m.NOTTAKEN, 9),
    m.HoldersMessage(m.HOLDERS, JOB, 0, [ONE]),
    m.Question(m.ASK, 3, m.OLDEST, b"q", 10),
    m.HomesMessage(m.HOMES, m.LIST_BEGINS | m.LIST_ENDS, [b"mail", b"\xff"], [b"gone"]),
    m.ElectionMessage(m.CLAIM, b"mail", 1_700_000_000_000),
    m.ElectionMessage(m.CLAIMED, b"mail", 7, m.LIVES_ELSEWHERE, b"a" * 40),
    m.ElectionMessage(m.UNCLAIM, b"mail", 7),
    papers(),
    m.TunnelMessage(m.FORWARD, 9, False, m.COMMAND_ENDS, b"*1\r\n$4\r\nPING\r\n"),
    m.TunnelMessage(m.FORWARDED, 9, True, 1, b"+PONG\r\n"),
    m.TunnelMessage(m.TUNNELREAD, 9, True, 1 << 20, b""),
    m.TunnelMessage(m.TUNNELEND, 9, False, 0, b""),
    scan(),
    m.Answer(m.TOLD, 3, [1, 2, 0], [image()]),
]


FIELDS = {
    "Greeting": "kind host port bus_port flags incarnation rumours",
    "Rumour": "node host port bus_port flags",
    "FailMessage": "kind node",
    "JobsMessage": "kind quiet number floor sender_incarnation receiver_incarnation jobs",
    "JobImage": "id queue body body_kind repl age_ms order ttl_ms delay_ms retry_ms nacks returns deliveries holders "
    "state reason headers",
    "JobMessage": "kind id argument",
    "CopyMessage": "kind id argument nacks returns",
    "HoldersMessage": "kind id argument holders",
    "QueueMessage": "kind queue argument ms",
    "Receipt": "kind number",
    "Question": "kind number about queue count cursor states",
    "Answer": "kind number figures jobs",
    "HomesMessage": "kind part made gone",
    "ElectionMessage": "kind tube number verdict node",
    "TunnelMessage": "kind number is_reply argument data",
    "Credentials": "kind number epoch protocol user groups tubes token grace address name",
}


def told(said: object) -> object:
    """Return a message as plain values."""
    if isinstance(said, list):
        return [told(each) for each in said]
    names = FIELDS.get(type(said).__name__, "").split()
    assert names or isinstance(said, bytes | str | int)
    return (type(said).__name__, *(told(getattr(said, name)) for name in names)) if names else said


def payload_of(said: list[m.Message]) -> bytes:
    frames = bus.Frames()
    frames.bytes_max = 1 << 30
    frames.feed(bus.encode_packets(said, bus.PacketTags(KEY), bus.MessageEncoder()))
    frame = frames.next()
    assert frame is not None
    return bus.verified_payload(frame, bus.PacketTags(KEY))


def test_every_message_is_decoded_as_it_was_encoded():
    assert told(bus.decode_messages(payload_of(MESSAGES))) == told(MESSAGES)


def test_the_messages_of_a_turn_are_one_packet_unless_they_are_long():
    frames = bus.Frames()
    frames.bytes_max = 1 << 20
    sender, receiver = bus.PacketTags(KEY), bus.PacketTags(KEY)
    frames.feed(bus.encode_packets(MESSAGES, sender, bus.MessageEncoder()))
    assert frames.next() and frames.next() is None
    receiver.next(payload_of(MESSAGES))
    long = [m.JobsMessage(m.REPLJOB, [m.JobImage(JOB, b"q", bytes(100_000))]) for _ in range(10)]
    frames.feed(bus.encode_packets(long, sender, bus.MessageEncoder()))
    pieces = []
    while (frame := frames.next()) is not None:
        pieces.append(bus.decode_messages(bus.verified_payload(frame, receiver)))
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]


def test_frames_are_the_same_byte_by_byte():
    data = bus.encode_opening(ONE, bytes(32), 0) + bus.encode_opening(OTHER, bytes(32), 7)
    frames, found = bus.Frames(), []
    for at in range(len(data)):
        frames.feed(data[at : at + 1])
        frame = frames.next()
        if frame is not None:
            found.append(bus.parse_hello(frame, False).node)
    assert found == [ONE, OTHER] and frames.next() is None


def test_a_too_large_length_is_refused_before_its_bytes_arrive():
    for length in (0, bus.HELLO_BYTES_MAX + 1, 1 << 31, (1 << 32) - 1):
        frames = bus.Frames()
        frames.feed(length.to_bytes(4, "big"))
        with pytest.raises(ProtocolError):
            frames.next()


def test_a_changed_replayed_missing_or_forged_packet_is_detected():
    sender = bus.PacketTags(KEY)
    sent = [bus.encode_packets([said], sender, bus.MessageEncoder())[4:] for said in MESSAGES[:3]]

    def received(packets: list[bytes], key: bytes = KEY) -> int:
        seal = bus.PacketTags(key)
        for number, packet in enumerate(packets):
            try:
                bus.verified_payload(packet, seal)
            except ProtocolError:
                return number
        return len(packets)

    first, second, third = sent
    assert received(sent) == 3
    assert received([first, first]) == 1
    assert received([first, third]) == 1
    assert received([second]) == 0
    assert received(sent, b"another secret") == 0
    assert received([first, b"", third]) == 1
    for at in range(len(first)):
        changed = bytearray(first)
        changed[at] ^= 1
        assert received([bytes(changed)]) == 0


def said_by(node: bytes, nonce: bytes, epoch: int = 0, known: int = 0, incarnation: bytes = b"") -> bus.Hello:
    return bus.Hello(node, nonce, b"", epoch, known, incarnation)


def test_both_sides_prove_the_secret_over_the_whole_handshake():
    nonce, answered = b"n" * 32, b"a" * 32
    dialler, listener = said_by(ONE, nonce, 3), said_by(OTHER, answered, 1, 4, LIFE)
    ours = bus.Secrets(b"a shared secret", dialler, listener)
    theirs = bus.Secrets(b"a shared secret", said_by(ONE, nonce, 3), said_by(OTHER, answered, 1, 4, LIFE))
    assert ours.listener_proof() == theirs.listener_proof() != ours.dialler_proof(1)
    assert ours.dialler_proof(1) != ours.dialler_proof(2)
    for other in (
        bus.Secrets(b"another secret", dialler, listener),
        bus.Secrets(b"a shared secret", said_by(OTHER, nonce, 3), said_by(ONE, answered, 1, 4, LIFE)),
        bus.Secrets(b"a shared secret", said_by(ONE, answered, 3), said_by(OTHER, nonce, 1, 4, LIFE)),
        # Epochs that were changed on the way.
        bus.Secrets(b"a shared secret", said_by(ONE, nonce, 4), listener),
        bus.Secrets(b"a shared secret", dialler, said_by(OTHER, answered, 2, 4, LIFE)),
        bus.Secrets(b"a shared secret", dialler, said_by(OTHER, answered, 1, 5, LIFE)),
        # The incarnation of a process that was killed.
        bus.Secrets(b"a shared secret", dialler, said_by(OTHER, answered, 1, 4, b"o" * 16)),
    ):
        assert other.listener_proof() != ours.listener_proof() and other.link_key() != ours.link_key()
        assert other.dialler_proof(1) != ours.dialler_proof(1)
    word = bus.encode_answer(OTHER, answered, ours.listener_proof(), 1, 4, LIFE)
    heard = bus.parse_hello(word[4:], True)
    assert (heard.node, heard.nonce, heard.proof) == (OTHER, answered, ours.listener_proof())
    assert (heard.epoch, heard.known, heard.incarnation) == (1, 4, LIFE)
    last = bus.parse_proof(bus.encode_proof(ours.dialler_proof(1), 1)[4:])
    assert (last.proof, last.known) == (ours.dialler_proof(1), 1)


def test_the_handshake_has_exactly_these_bytes():
    """A change of these bytes needs another version of the bus."""
    head = b"\xc4\x0cpenstock-bus\x03\xc4\x28" + OTHER + b"\xc4\x20" + b"n" * 32
    assert bus.encode_opening(OTHER, b"n" * 32, 5) == bytes([0, 0, 0, 93]) + b"\x95" + head + b"\x05"
    proof = b"\xc4\x20" + b"p" * 32
    word = b"\x98" + head + proof + b"\x05\x04\xc4\x10" + LIFE
    assert bus.encode_answer(OTHER, b"n" * 32, b"p" * 32, 5, 4, LIFE) == bytes([0, 0, 0, len(word)]) + word
    assert bus.encode_proof(b"p" * 32, 4) == bytes([0, 0, 0, 36]) + b"\x92" + proof + b"\x04"


def test_an_answer_without_an_incarnation_is_refused():
    words = [bus.NAME, 3, OTHER, bytes(32), bytes(32), 0, 0]
    for rest in ([], [b""], [LIFE[1:]], [LIFE + b"l"], [7]):
        with pytest.raises(ProtocolError):
            bus.parse_hello(pack([*words, *rest]), True)
    assert bus.parse_hello(pack([*words, LIFE]), True).incarnation == LIFE


def test_another_version_is_refused_with_its_number():
    for version in (0, 1, 2, 255):
        with pytest.raises(ProtocolError, match=f"version {version} of the bus, this node 3"):
            bus.parse_hello(pack([bus.NAME, version, ONE, bytes(32)]), False)
    with pytest.raises(RefusedByPeer, match="you are too old"):
        bus.parse_hello(bus.encode_refusal(OTHER, "you are too old")[4:], True)


@pytest.mark.parametrize(
    "word",
    [
        [],
        [b"redis", 3, ONE, bytes(32), 0],
        [bus.NAME, 3, ONE],
        [bus.NAME, 3, ONE, bytes(32)],
        [bus.NAME, 3, ONE[1:], bytes(32), 0],
        [bus.NAME, 3, b"g" * 40, bytes(32), 0],
        [bus.NAME, 3, ONE, bytes(31), 0],
        [bus.NAME, 3, ONE, bytes(32), -1],
        [bus.NAME, 3, ONE, bytes(32), 1 << 53],
        [bus.NAME, -1, ONE, bytes(32), 0],
        b"GET / HTTP/1.1",
    ],
)
def test_an_invalid_hello_is_refused(word):
    with pytest.raises(ProtocolError):
        bus.parse_hello(pack(word), False)


@pytest.mark.parametrize(
    "said",
    [
        [],
        [m.PING],
        [m.PING, "nowhere", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "0.0.0.0", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "224.0.0.1", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "255.255.255.255", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "fe80::1%eth0", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "10.0.0.1\n10.0.0.2", 1, 1, 0, 0, bytes(16), []],
        [m.PING, "", 65_536, 1, 0, 0, bytes(16), []],
        [m.PING, "", 1, 0, 0, 0, bytes(16), []],
        [m.PING, "", 1, 1, 0, 0, bytes(15), []],
        [m.PING, "", 1, 1, 0, 0, bytes(16), [[ONE, "", 1, 1, 0, 0]]],
        [m.PING, "", 1, 1, 0, 0, bytes(16), [[b" " * 40, "10.0.0.1", 1, 1, 0, 0]]],
        [m.PING, "", 1, 1, 0, 0, bytes(16), [[ONE, "10.0.0.1", 1, 1, 0, 0]] * (bus.RUMOURS_MAX + 1)],
        [m.PING, "", 1, 1, 0, 1 << 53, bytes(16), []],
        [m.PING, "", 1, 1, 0, 0, bytes(16), [[ONE, "10.0.0.1", 1, 1, 0]]],
        [m.FAIL, b"short"],
        [m.GOTJOB, b"D" * 40, 0],
        [m.GOTJOB, JOB, -1],
        [m.GOTJOB, JOB, 1 << 63],
        [m.GOTACK, JOB, 0],
        [m.GOTACK, JOB, 0, [ONE] * (bus.HOLDERS_MAX + 1)],
        [m.QUEUED, JOB, 0, 1 << 31, 0],
        [m.NEEDJOBS, b"", 1, 0],
        [m.NEEDJOBS, b"q" * 65_536, 1, 0],
        [m.PAUSE, b"q", 1, 1 << 60],
        [m.REPLJOB, 0, 0, 0, b"", b"", [[JOB]]],
        [m.REPLJOB, 0, 0, 0, b"", b"", 1 << 31],
        [m.REPLJOB, 2, 0, 0, b"", b"", []],
        [m.TAKENOVER],
        "text",
        None,
    ],
)
def test_an_invalid_message_is_refused(said):
    with pytest.raises(ProtocolError):
        bus.decode_messages(pack([said]))


def test_fields_and_kinds_of_a_later_version_are_skipped():
    later = [[99, "new"], [m.GOTJOB, JOB, 0, "more", [1, 2]], [m.FAIL, ONE, {}]]
    assert told(bus.decode_messages(pack(later))) == told([m.JobMessage(m.GOTJOB, JOB), m.FailMessage(m.FAIL, ONE)])


def test_any_bytes_are_messages_or_an_error():
    chance = random.Random(9)
    whole = payload_of(MESSAGES)
    for at in range(0, len(whole), 97):
        with pytest.raises(ProtocolError):
            bus.decode_messages(whole[:at])
    for _ in range(2_000):
        changed = bytearray(whole[:2_000])
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        for read in (bus.decode_messages, lambda data: bus.parse_hello(data, True), bus.parse_proof):
            try:
                read(bytes(changed))
            except ProtocolError:
                pass


def test_any_bytes_are_a_handshake_message_or_an_error():
    chance = random.Random(10)
    answered = bus.encode_answer(OTHER, bytes(32), bytes(32), 1, 2, LIFE)[4:]
    opened = bus.encode_opening(ONE, bytes(32), 1)[4:]
    for word, is_answer in ((answered, True), (opened, False)):
        for length in range(len(word)):
            with pytest.raises(ProtocolError):
                bus.parse_hello(word[:length], is_answer)
        for _ in range(2_000):
            changed = bytearray(word)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            try:
                assert len(bus.parse_hello(bytes(changed), is_answer).incarnation) == (16 if is_answer else 0)
            except ProtocolError:
                pass


def test_every_kind_of_message_is_covered():
    assert {said.kind for said in MESSAGES} | {m.PONG, m.ENQUEUE, m.WILLQUEUE} == set(range(m.MESSAGES_COUNT))


def test_a_job_whose_headers_are_not_valid_is_refused() -> None:
    job = image()
    job.headers = b"\x05\x00\x00\x00abc"
    with pytest.raises(ProtocolError, match="headers"):
        bus.decode_messages(payload_of([m.JobsMessage(m.REPLJOB, [job])]))
