"""The bus: the encoding of messages between nodes.

    length 4 | msgpack array                          a handshake message
    length 4 | tag 16 | msgpack array of messages     a packet: the messages of one turn to one peer

The node that opens a link sends on it. The other node sends only the second message of the handshake:

    dialler                                           listener
    ["penstock-bus", version, id, nonce, epoch]   →
                                                  ←   ["penstock-bus", version, id, nonce, proof, epoch, known,
                                                       incarnation]
    [proof, known], packets …                     →

Both nodes prove that they have the shared secret, with an HMAC over the whole handshake. Each packet has an
authentication tag. It is computed from the contents of the packet, its number on the link, and a key that is derived
from the handshake. A forged, changed, replayed or missing packet is detected, and nothing after it is read.

Each node sends its own epoch, and the greatest epoch of the other node that it has seen. A node that was replaced by a
standby therefore detects this when it connects to its first peer. The listener also names its incarnation, which
changes when it loses its jobs, so the dialler knows which incarnation receives the packets of this link. A peer with
another version gets an error that names the version. For any bytes, the parser returns messages or raises a
`ProtocolError`. Before a peer has proven its identity, only short messages are accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from penstock.cluster.messages import (
    ASK,
    CLAIM,
    CLAIMED,
    DELJOB,
    FAIL,
    FORWARD,
    FORWARDED,
    GOTACK,
    HOLDERS,
    HOMES,
    MEET,
    MERE_COPY,
    MESSAGES_COUNT,
    NEEDJOBS,
    NOTTAKEN,
    PAUSE,
    PING,
    PONG,
    QUEUED,
    REPLJOB,
    SETACK,
    TAKENOVER,
    TOLD,
    TUNNEL,
    TUNNELEND,
    TUNNELREAD,
    UNCLAIM,
    WORKING,
    YOURJOBS,
    Answer,
    CopyMessage,
    Credentials,
    ElectionMessage,
    FailMessage,
    Greeting,
    HoldersMessage,
    HomesMessage,
    JobImage,
    JobMessage,
    JobsMessage,
    Message,
    Question,
    QueueMessage,
    Receipt,
    Rumour,
    TunnelMessage,
)
from penstock.core.errors import ProtocolError
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.limits import BODY_BYTES_HARD_MAX, DURATION_MS_MAX, NAME_BYTES_MAX, NEVER, REASON_BYTES_MAX
from penstock.core.tube_patterns import TubePatterns
from penstock.wire.errors import RefusedByPeer
from penstock.wire.headers import ENCODED_BYTES_MAX, are_valid
from penstock.wire.msgpack import Reader, pack, write_array, write_binary, write_integer, write_text

NAME: Final = b"penstock-bus"
VERSION: Final = 3

NODE_ID_BYTES: Final = 40
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
INCARNATION_BYTES: Final = 16
TOKEN_BYTES: Final = 16
TAG_BYTES: Final = 16
_LENGTH_BYTES: Final = 4

# The maximum length of a handshake message. A peer that is not authenticated cannot make us buffer more than this.
HELLO_BYTES_MAX: Final = 1_024

# The maximum length of a packet: the largest body that any node may allow, and in addition a hundred queue names of the
# maximum length, or other bodies. A body that is too large for this node is read but not accepted.
PACKET_BYTES_MAX: Final = BODY_BYTES_HARD_MAX + 16 * 1024 * 1024

# A packet is closed when it has this many bytes, so that many messages are checked and run in pieces.
PACKET_BYTES: Final = 256 * 1024

# Limits of lists. A greeting contains a tenth of a full node table.
RUMOURS_MAX: Final = 256
HOLDERS_MAX: Final = 1_024
JOBS_MAX: Final = 1_000
FIGURES_MAX: Final = 256
TUBES_MAX: Final = 1_000
PATTERNS_MAX: Final = 10_000  # Tube patterns of a user. Users have no more, because all are sent in the credentials.

# The maximum of bytes in one message of a tunnel.
TUNNEL_BYTES_MAX: Final = 256 * 1024

# When a standby takes over a node, it increases the epoch by up to a million.
EPOCH_MAX: Final = (1 << 53) - 1

# The number of fields of a message, by its kind. A later version may append fields. All other kinds have three: the
# kind, a job id and an argument.
_FIELDS: Final[dict[int, int]] = {
    **dict.fromkeys((FAIL, TAKENOVER, NOTTAKEN), 2),
    **dict.fromkeys((NEEDJOBS, PAUSE, TOLD, HOMES, GOTACK, HOLDERS), 4),
    **dict.fromkeys((QUEUED, WORKING, CLAIM, CLAIMED, UNCLAIM, FORWARD, FORWARDED, TUNNELREAD, TUNNELEND), 5),
    **dict.fromkeys((REPLJOB, YOURJOBS, ASK), 7),
    **dict.fromkeys((PING, PONG, MEET), 8),
    TUNNEL: 11,
}
_JOB_FIELDS: Final = 3

_COUNT_MAX: Final = (1 << 31) - 1
_NUMBER_MAX: Final = (1 << 63) - 1


# The handshake


def encode_opening(node: bytes, nonce: bytes, epoch: i64) -> bytes:
    """Return the first handshake message, from the dialler."""
    return _framed(pack([NAME, VERSION, node, nonce, int(epoch)]))


def encode_answer(node: bytes, nonce: bytes, proof: bytes, epoch: i64, known: i64, incarnation: bytes) -> bytes:
    """Return the second handshake message, from the listener.

    `known` is the greatest epoch of the dialler that the listener has seen.
    """
    return _framed(pack([NAME, VERSION, node, nonce, proof, int(epoch), int(known), incarnation]))


def encode_refusal(node: bytes, why: str) -> bytes:
    """Return the second handshake message of a listener that refuses the link, with the reason."""
    return _framed(pack([NAME, VERSION, node, b"", why.encode()[:512]]))


def encode_proof(proof: bytes, known: i64) -> bytes:
    """Return the third handshake message, from the dialler.

    `known` is the greatest epoch of the listener that the dialler has seen.
    """
    return _framed(pack([proof, int(known)]))


class DiallerProof:
    """The contents of the third handshake message."""

    proof: bytes
    known: i64

    def __init__(self, proof: bytes, known: i64) -> None:
        self.proof = proof
        self.known = known


def parse_proof(word: bytes) -> DiallerProof:
    """Parse the third handshake message."""
    reader = Reader(word)
    if reader.length_of_array() != 2:
        raise ProtocolError("the third message of the handshake must have a proof and an epoch")
    proof = _exactly(reader.string(), PROOF_BYTES, "a proof")
    return DiallerProof(proof, _number(reader, EPOCH_MAX))


class Hello:
    """The contents of the first or the second handshake message."""

    node: bytes
    nonce: bytes
    proof: bytes  # Empty in the first message.
    epoch: i64
    known: i64  # The greatest epoch of this node that the peer has seen; 0 in the first message.
    incarnation: bytes  # Empty in the first message.

    def __init__(
        self, node: bytes, nonce: bytes, proof: bytes, epoch: i64, known: i64, incarnation: bytes = b""
    ) -> None:
        self.node = node
        self.nonce = nonce
        self.proof = proof
        self.epoch = epoch
        self.known = known
        self.incarnation = incarnation


def parse_hello(word: bytes, answers: bool) -> Hello:
    """Parse the first handshake message, or the second one if `answers` is set."""
    reader = Reader(word)
    count = reader.length_of_array()
    if count < 4 or reader.string() != NAME:
        raise ProtocolError("this is not the bus of a penstock node")
    version = reader.unsigned()
    if version != VERSION:
        raise ProtocolError(f"it speaks version {version} of the bus, this node {VERSION}; upgrade the older node")
    node = _node(reader)
    nonce = reader.string()
    proof = reader.string() if answers and count > 4 else b""
    if answers and not nonce and proof:
        raise RefusedByPeer(proof.decode("utf-8", "replace"))
    _exactly(nonce, NONCE_BYTES, "a nonce")
    if answers:
        _exactly(proof, PROOF_BYTES, "a proof")
    _needs(count, 8 if answers else 5)
    epoch = _number(reader, EPOCH_MAX)
    if not answers:
        return Hello(node, nonce, proof, epoch, 0)
    known = _number(reader, EPOCH_MAX)
    return Hello(node, nonce, proof, epoch, known, _exactly(reader.string(), INCARNATION_BYTES, "an incarnation"))


class Secrets:
    """The proofs of one link and the key of its authentication tags.

    They are derived from the shared secret and the handshake.
    """

    _secret: bytes
    _said: bytes

    def __init__(self, secret: bytes, dialler: Hello, listener: Hello) -> None:
        self._secret = secret
        epochs = _epoch_bytes(dialler.epoch) + _epoch_bytes(listener.epoch) + _epoch_bytes(listener.known)
        nodes = dialler.node + listener.node + dialler.nonce + listener.nonce
        self._said = nodes + epochs + listener.incarnation

    def listener_proof(self) -> bytes:
        """Return the proof that the listener has the secret."""
        return self._made(b"listener")

    def dialler_proof(self, known: i64) -> bytes:
        """Return the proof that the dialler has the secret.

        The proof also covers `known`, the greatest epoch of the listener that the dialler has seen.
        """
        return self._made(b"dialler", _epoch_bytes(known))

    def link_key(self) -> bytes:
        """Return the key of the authentication tags of the packets of this link."""
        return self._made(b"link")

    def _made(self, purpose: bytes, more: bytes = b"") -> bytes:
        # All parts have a fixed length, so the input is unambiguous.
        return hmac.digest(self._secret, NAME + b" " + purpose + b" " + self._said + more, "sha256")


def _epoch_bytes(epoch: i64) -> bytes:
    return int(epoch).to_bytes(8, "big")


def equal_in_constant_time(proof: bytes, expected: bytes) -> bool:
    """Return whether two proofs are equal. The time of the comparison does not depend on their contents."""
    return hmac.compare_digest(proof, expected)


class PacketTags:
    """Computes the authentication tags of the packets of one link.

    A tag depends on the key of the link, the number of the packet and the contents of the packet.
    """

    _key: bytes
    _number: int

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def next(self, payload: bytes) -> bytes:
        """Return the authentication tag of the next packet. `payload` is the contents of the packet."""
        number, self._number = self._number, self._number + 1
        salt = number.to_bytes(8, "big")
        return hashlib.blake2b(payload, digest_size=TAG_BYTES, key=self._key, salt=salt).digest()


# Frames


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class Frames:
    """Splits received bytes into frames. A frame is a length, and a handshake message or a packet."""

    bytes_max: i64  # The maximum length of a frame.
    _buffer: bytearray
    _at: i64

    def __init__(self) -> None:
        self.bytes_max = HELLO_BYTES_MAX
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next frame, or None if it is incomplete. Raise ProtocolError if it is too long."""
        at = self._at
        have = len(self._buffer) - at
        if have < _LENGTH_BYTES:
            self._tidy()
            return None
        length = i64(read_i32_be(bytes(self._buffer[at : at + _LENGTH_BYTES]), 0)) & 0xFFFFFFFF
        if length > self.bytes_max or length == 0:
            raise ProtocolError(f"a frame of {length} bytes; at most {self.bytes_max} are allowed")
        if have < _LENGTH_BYTES + length:
            self._tidy()
            return None
        start = at + _LENGTH_BYTES
        self._at = start + length
        return bytes(self._buffer[start : self._at])

    def _tidy(self) -> None:
        """Free the bytes of frames that were already returned."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0


def verified_payload(frame: bytes, seal: PacketTags) -> bytes:
    """Return the contents of a packet. Raise ProtocolError if its authentication tag is wrong."""
    payload = frame[TAG_BYTES:]
    if not equal_in_constant_time(frame[:TAG_BYTES], seal.next(payload)):
        raise ProtocolError("a packet has a wrong tag: it was changed, repeated or lost on the way")
    return payload


# Encoding messages


class MessageEncoder:
    """Encodes the messages of one turn. A message to several peers is encoded once."""

    _written: dict[int, bytes]

    def __init__(self) -> None:
        self._written = {}

    def write(self, message: Message) -> bytes:
        """Return a message as bytes. Encode it only at the first call, and keep the bytes under its Python id.

        Python reuses the id of an object that was freed, but no message is freed during a turn.
        """
        known = self._written.get(id(message))
        if known is None:
            writer = BytesWriter()
            _write(writer, message)
            known = writer.getvalue()
            self._written[id(message)] = known
        return known


def encode_packets(messages: list[Message], seal: PacketTags, encoder: MessageEncoder) -> bytes:
    """Return packets that contain all messages to one peer."""
    out: list[bytes] = []
    written: list[bytes] = []
    size: i64 = 0
    for message in messages:
        data = encoder.write(message)
        written.append(data)
        size += len(data)
        if size >= PACKET_BYTES:
            _close_packet(out, written, seal)
            written = []
            size = 0
    if written:
        _close_packet(out, written, seal)
    return b"".join(out)


def _close_packet(out: list[bytes], written: list[bytes], seal: PacketTags) -> None:
    count = BytesWriter()
    write_array(count, len(written))
    payload = count.getvalue() + b"".join(written)
    head = BytesWriter()
    # The length is below 2 GiB, because a body has at most a quarter of that.
    write_i32_be(head, i32(TAG_BYTES + len(payload)))
    out.append(head.getvalue())
    out.append(seal.next(payload))
    out.append(payload)


def _write(writer: BytesWriter, message: Message) -> None:
    if isinstance(message, JobMessage):
        _write_job_message(writer, message)
        return
    if isinstance(message, Greeting):
        _write_greeting(writer, message)
        return
    _begin(writer, _FIELDS[message.kind], message.kind)
    if isinstance(message, JobsMessage):
        write_integer(writer, 1 if message.quiet else 0)
        write_integer(writer, message.number)
        write_integer(writer, message.floor)
        write_binary(writer, message.sender_incarnation)
        write_binary(writer, message.receiver_incarnation)
        _write_jobs(writer, message.jobs)
    elif isinstance(message, QueueMessage):
        write_binary(writer, message.queue)
        write_integer(writer, message.argument)
        write_integer(writer, message.ms)
    elif isinstance(message, Question):
        write_integer(writer, message.number)
        write_integer(writer, message.about)
        write_binary(writer, message.queue)
        write_integer(writer, message.count)
        write_integer(writer, message.cursor)
        write_integer(writer, message.states)
    elif isinstance(message, Answer):
        write_integer(writer, message.number)
        write_array(writer, len(message.figures))
        for figure in message.figures:
            write_integer(writer, figure)
        _write_jobs(writer, message.jobs)
    elif isinstance(message, Receipt):
        write_integer(writer, message.number)
    elif isinstance(message, TunnelMessage):
        write_integer(writer, message.number)
        write_integer(writer, 1 if message.is_reply else 0)
        write_integer(writer, message.argument)
        write_binary(writer, message.data)
    elif isinstance(message, Credentials):
        _write_credentials(writer, message)
    elif isinstance(message, HomesMessage):
        write_integer(writer, message.part)
        _write_names(writer, message.made)
        _write_names(writer, message.gone)
    elif isinstance(message, ElectionMessage):
        write_binary(writer, message.tube)
        write_integer(writer, message.number)
        write_integer(writer, message.verdict)
        write_binary(writer, message.node)
    else:
        assert isinstance(message, FailMessage)
        write_binary(writer, message.node)


def _begin(writer: BytesWriter, fields: i64, kind: i64) -> None:
    """Write the beginning of a message: the number of its fields and its kind."""
    write_array(writer, fields)
    write_integer(writer, kind)


def _write_job_message(writer: BytesWriter, message: JobMessage) -> None:
    restricted = not message.tubes.any_tube
    fields = 5 if isinstance(message, CopyMessage) else 4 if isinstance(message, HoldersMessage) or restricted else 3
    _begin(writer, fields, message.kind)
    write_binary(writer, message.id)
    write_integer(writer, message.argument)
    if restricted:
        _write_names(writer, message.tubes.texts)
    elif isinstance(message, CopyMessage):
        write_integer(writer, message.nacks)
        write_integer(writer, message.returns)
    elif isinstance(message, HoldersMessage):
        _write_names(writer, message.holders)


def _write_jobs(writer: BytesWriter, images: list[JobImage]) -> None:
    write_array(writer, len(images))
    for image in images:
        _write_job(writer, image)


def _write_job(writer: BytesWriter, image: JobImage) -> None:
    # Only jobs with headers have the last field, so that other messages stay as they were.
    write_array(writer, 17 if image.headers else 16)
    write_binary(writer, image.id)
    write_binary(writer, image.queue)
    write_binary(writer, image.body)
    write_integer(writer, image.body_kind)
    write_integer(writer, image.repl)
    write_integer(writer, image.age_ms)
    write_integer(writer, image.order)
    write_integer(writer, image.ttl_ms)
    write_integer(writer, image.delay_ms)
    write_integer(writer, image.retry_ms)
    write_integer(writer, image.nacks)
    write_integer(writer, image.returns)
    write_integer(writer, image.deliveries)
    _write_names(writer, image.holders)
    write_integer(writer, image.state)
    write_binary(writer, image.reason)
    if image.headers:
        write_binary(writer, image.headers)


def _write_names(writer: BytesWriter, names: list[bytes]) -> None:
    write_array(writer, len(names))
    for name in names:
        write_binary(writer, name)


def _write_greeting(writer: BytesWriter, said: Greeting) -> None:
    _begin(writer, 8, said.kind)
    write_text(writer, said.host.encode())
    for number in (said.port, said.bus_port, said.flags, said.epoch):
        write_integer(writer, number)
    write_binary(writer, said.incarnation)
    write_array(writer, len(said.rumours))
    for rumour in said.rumours:
        write_array(writer, 6)
        write_binary(writer, rumour.node)
        write_text(writer, rumour.host.encode())
        for number in (rumour.port, rumour.bus_port, rumour.flags, rumour.epoch):
            write_integer(writer, number)


def _write_credentials(writer: BytesWriter, credentials: Credentials) -> None:
    for number in (credentials.number, credentials.epoch, credentials.protocol, credentials.groups, credentials.grace):
        write_integer(writer, number)
    for text in (credentials.user, credentials.token, credentials.address, credentials.name):
        write_binary(writer, text)
    _write_names(writer, credentials.tubes)


# Decoding messages


def decode_messages(payload: bytes) -> list[Message]:
    """Return the messages of a packet. Kinds that this version does not have are skipped."""
    reader = Reader(payload)
    found: list[Message] = []
    for _ in range(reader.length_of_array()):
        message = _message(reader)
        if message is not None:
            found.append(message)
    if reader.at != reader.end:
        raise ProtocolError("there are bytes after the messages of a packet")
    return found


def _message(reader: Reader) -> Message | None:
    count = reader.length_of_array()
    if count < 1:
        raise ProtocolError("a message is empty")
    kind = reader.unsigned()
    if kind < 0 or kind >= MESSAGES_COUNT:
        _pass(reader, count - 1)
        return None
    fields: i64 = _FIELDS.get(kind, _JOB_FIELDS)
    if kind in (SETACK, DELJOB) and count > _JOB_FIELDS:
        fields = _JOB_FIELDS + 1  # The patterns of the tubes that the sender's client may use.
    _needs(count, fields)
    message = _read(reader, kind, fields)
    _pass(reader, count - fields)
    return message


def _read(reader: Reader, kind: i64, fields: i64) -> Message:
    if kind < FAIL:
        return _greeting(reader, kind)
    if kind in (REPLJOB, YOURJOBS):
        return _jobs(reader, kind)
    if kind == FAIL:
        return FailMessage(kind, _node(reader))
    if kind in (TAKENOVER, NOTTAKEN):
        return Receipt(kind, _number(reader, _NUMBER_MAX))
    if kind == ASK:
        return _question(reader, kind)
    if kind == TOLD:
        return _answer(reader, kind)
    if kind == HOMES:
        homes = HomesMessage(kind, _number(reader, _COUNT_MAX), [], [])
        homes.made = _queues(reader)
        homes.gone = _queues(reader)
        return homes
    if kind in (CLAIM, CLAIMED, UNCLAIM):
        return _claim(reader, kind)
    if kind in (FORWARD, FORWARDED, TUNNELREAD, TUNNELEND):
        return _tunnel_message(reader, kind)
    if kind == TUNNEL:
        return _credentials(reader, kind)
    if kind in (NEEDJOBS, PAUSE):
        return QueueMessage(kind, _queue(reader), _number(reader, _COUNT_MAX), _duration(reader))
    return _job_message(reader, kind, fields)


def _job_message(reader: Reader, kind: i64, fields: i64) -> JobMessage:
    id = _job_id(reader)
    aux = _number(reader, _NUMBER_MAX)
    if kind in (QUEUED, WORKING):
        return CopyMessage(kind, id, aux, _number(reader, _COUNT_MAX), _number(reader, _COUNT_MAX))
    if kind in (GOTACK, HOLDERS):
        return HoldersMessage(kind, id, aux, _nodes(reader))
    if fields > _JOB_FIELDS:
        return JobMessage(kind, id, aux, TubePatterns(_patterns(reader)))
    return JobMessage(kind, id, aux)


def _greeting(reader: Reader, kind: i64) -> Greeting:
    host = _host(reader, True)
    port = _number(reader, 65_535)
    bus_port = _port(reader)
    flags = _number(reader, _COUNT_MAX)
    epoch = _number(reader, EPOCH_MAX)
    memory = _exactly(reader.string(), INCARNATION_BYTES, "an incarnation")
    rumours: list[Rumour] = []
    for _ in range(_limited(reader.length_of_array(), RUMOURS_MAX, "rumours")):
        fields = reader.length_of_array()
        _needs(fields, 6)
        node = _node(reader)
        where = _host(reader, False)
        clients = _number(reader, 65_535)
        nodes = _port(reader)
        shown = _number(reader, _COUNT_MAX)
        rumours.append(Rumour(node, where, clients, nodes, shown, _number(reader, EPOCH_MAX)))
        _pass(reader, fields - 6)
    return Greeting(kind, host, port, bus_port, flags, memory, rumours, epoch)


def _jobs(reader: Reader, kind: i64) -> JobsMessage:
    message = JobsMessage(kind, [], _number(reader, 1) == 1)
    message.number = _number(reader, _NUMBER_MAX)
    message.floor = _number(reader, _NUMBER_MAX)
    message.sender_incarnation = _incarnation(reader)
    message.receiver_incarnation = _incarnation(reader)
    message.jobs = _images(reader)
    return message


def _question(reader: Reader, kind: i64) -> Question:
    number = _number(reader, _NUMBER_MAX)
    about = _number(reader, _COUNT_MAX)
    queue = reader.string()
    _limited(len(queue), NAME_BYTES_MAX, "bytes of a name")
    question = Question(kind, number, about, queue, _number(reader, _COUNT_MAX))
    question.cursor = _number(reader, _NUMBER_MAX)
    question.states = _number(reader, _COUNT_MAX)
    return question


def _answer(reader: Reader, kind: i64) -> Answer:
    answer = Answer(kind, _number(reader, _NUMBER_MAX), [], [])
    for _ in range(_limited(reader.length_of_array(), FIGURES_MAX, "figures")):
        answer.figures.append(_number(reader, _NUMBER_MAX))
    answer.jobs = _images(reader)
    return answer


def _claim(reader: Reader, kind: i64) -> ElectionMessage:
    claim = ElectionMessage(kind, _queue(reader), 0)
    claim.number = _number(reader, _NUMBER_MAX)
    claim.verdict = _number(reader, _COUNT_MAX)
    claim.node = reader.string()
    if claim.node and not is_node_id(claim.node):
        raise ProtocolError("the id of a node must be 40 hex digits")
    return claim


def _tunnel_message(reader: Reader, kind: i64) -> TunnelMessage:
    said = TunnelMessage(kind, _number(reader, _NUMBER_MAX), _number(reader, 1) == 1, 0, b"")
    said.argument = _number(reader, _NUMBER_MAX)
    said.data = reader.string()
    if len(said.data) > TUNNEL_BYTES_MAX:
        raise ProtocolError(f"{len(said.data)} bytes through a tunnel; at most {TUNNEL_BYTES_MAX} are allowed")
    return said


def _credentials(reader: Reader, kind: i64) -> Credentials:
    number = _number(reader, _NUMBER_MAX)
    epoch = _number(reader, _NUMBER_MAX)
    credentials = Credentials(kind, number, epoch, _number(reader, _COUNT_MAX))
    credentials.groups = _number(reader, _COUNT_MAX)
    credentials.grace = _number(reader, _NUMBER_MAX)
    credentials.user = reader.string()
    credentials.token = _exactly(reader.string(), TOKEN_BYTES, "the token of a session")
    credentials.address = reader.string()
    credentials.name = reader.string()
    credentials.tubes = _patterns(reader)
    return credentials


def _patterns(reader: Reader) -> list[bytes]:
    return [reader.string() for _ in range(_limited(reader.length_of_array(), PATTERNS_MAX, "patterns of tubes"))]


def _images(reader: Reader) -> list[JobImage]:
    return [_job(reader) for _ in range(_limited(reader.length_of_array(), JOBS_MAX, "jobs"))]


def _job(reader: Reader) -> JobImage:
    fields = reader.length_of_array()
    _needs(fields, 16)
    id = _job_id(reader)
    queue = _queue(reader)
    image = JobImage(id, queue, reader.string())
    image.body_kind = _number(reader, 255)
    image.repl = _number(reader, 65_535)
    image.age_ms = _duration(reader)
    image.order = _number(reader, _NUMBER_MAX)
    image.ttl_ms = _duration(reader)
    image.delay_ms = _duration(reader)
    image.retry_ms = _duration(reader)
    image.nacks = _number(reader, _COUNT_MAX)
    image.returns = _number(reader, _COUNT_MAX)
    image.deliveries = _number(reader, _COUNT_MAX)
    image.holders = _nodes(reader)
    image.state = _number(reader, MERE_COPY)
    image.reason = reader.string()
    _limited(len(image.reason), REASON_BYTES_MAX, "bytes of a reason")
    if fields > 16:
        image.headers = reader.string()
        _limited(len(image.headers), ENCODED_BYTES_MAX, "bytes of headers")
        if not are_valid(image.headers):
            raise ProtocolError("the headers of a job are not valid")
        _pass(reader, fields - 17)
    return image


def _nodes(reader: Reader) -> list[bytes]:
    return [_node(reader) for _ in range(_limited(reader.length_of_array(), HOLDERS_MAX, "holders"))]


def _incarnation(reader: Reader) -> bytes:
    """Read an incarnation. It is empty in messages that need none."""
    memory = reader.string()
    return _exactly(memory, INCARNATION_BYTES, "an incarnation") if memory else memory


def _needs(count: i64, fields: i64) -> None:
    if count < fields:
        raise ProtocolError("a message has too few fields")


def _pass(reader: Reader, count: i64) -> None:
    """Skip fields at the end of a message that a later version added."""
    for _ in range(count):
        reader.skip()


def _limited(count: i64, most: i64, what: str) -> i64:
    if count > most:
        raise ProtocolError(f"{count} {what} in a message; at most {most} are allowed")
    return count


def _number(reader: Reader, most: i64) -> i64:
    number = reader.unsigned()
    # A number of 64 bits appears as a negative one.
    if number < 0 or number > most:
        raise ProtocolError("a number is too large")
    return number


def _duration(reader: Reader) -> i64:
    number = _number(reader, NEVER)
    if number > DURATION_MS_MAX and number != NEVER:
        raise ProtocolError("a time is too long")
    return number


def _port(reader: Reader) -> i64:
    port = _number(reader, 65_535)
    if port == 0:
        raise ProtocolError("0 is not a port")
    return port


def _exactly(value: bytes, length: i64, what: str) -> bytes:
    if len(value) != length:
        raise ProtocolError(f"{what} must have {length} bytes")
    return value


def _node(reader: Reader) -> bytes:
    node = _exactly(reader.string(), NODE_ID_BYTES, "the id of a node")
    if not is_node_id(node):
        raise ProtocolError("the id of a node must be 40 hex digits")
    return node


def is_node_id(node: bytes) -> bool:
    """Return whether these bytes can be the id of a node."""
    if len(node) != NODE_ID_BYTES:
        return False
    # A loop, because every transferred job names its holders, and a method of bytes takes four times as long.
    for at in range(NODE_ID_BYTES):
        digit: i64 = node[at]
        if not (48 <= digit <= 57 or 97 <= digit <= 102):
            return False
    return True


def _job_id(reader: Reader) -> bytes:
    id = _exactly(reader.string(), LONG_ID_BYTES, "the id of a job")
    if id[0] != 0x44 or id[1] != 0x2D or id[10] != 0x2D or id[35] != 0x2D:
        raise ProtocolError("the id of a job must have the form D-…-…-…")
    return id


def _queue(reader: Reader) -> bytes:
    queue = reader.string()
    if len(queue) < 1 or len(queue) > NAME_BYTES_MAX:
        raise ProtocolError(f"the name of a queue must have 1 to {NAME_BYTES_MAX} bytes")
    return queue


def _queues(reader: Reader) -> list[bytes]:
    return [_queue(reader) for _ in range(_limited(reader.length_of_array(), TUBES_MAX, "names of tubes"))]


def _host(reader: Reader, may_be_empty: bool) -> str:
    text = reader.string()
    if not text and may_be_empty:
        return ""
    return address(text.decode("ascii", "replace"))


def address(text: str) -> str:
    """Return an IP address in canonical form. Raise ProtocolError if the text is not the address of one machine."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ProtocolError("the address of a node must be an IP address") from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    nobody = found.is_multicast or found.is_unspecified or "%" in text
    if nobody or (found.version == 4 and found.is_reserved):
        raise ProtocolError("the address of a node must be that of one machine")
    return str(found)
