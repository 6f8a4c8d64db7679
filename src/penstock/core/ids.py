"""Job ids: one internal number, and the external forms that clients see.

An internal id has 63 bits: the epoch of the run in which the job was created, and a sequence number.

    63       43                                         0
    | epoch 20 |             sequence 43                |

Each open increments the epoch and makes it durable. Therefore an id never names a second job, even if a crash lost rows
of the log. If the sequence numbers of a run are used up (after 2^43 jobs), its ids continue in the next epoch. The next
open then uses a later epoch.

Externally, the number is masked and followed by a keyed tag. An id cannot be guessed, and a forged one is detected
without a lookup. Both forms contain the same number:

    40 characters   D-node8-<24 characters, base64: masked number 8 bytes, tag 8, masked ttl class 2>-<ttl class>
    32 hex digits   masked number 8 bytes, tag 8 bytes

The last four digits of the long form are the ttl class: the job's ttl in minutes, as an odd number if the job may be
delivered again, and as an even number otherwise. Clients of Disque read these digits. The masked part of the id also
contains the ttl class, so an id with changed digits is detected as forged.
"""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i64_be, write_i64_be
from mypy_extensions import i64

SEQUENCE_BITS: Final = 43
EPOCH_MAX: Final = (1 << 20) - 1

LONG_ID_BYTES: Final = 40
HEX_ID_BYTES: Final = 32

# Returned by parsers if the bytes are not the id of a job of this node.
NOT_AN_ID: Final = -1

_TAG_BYTES: Final = 16
# One digest contains the tags of this many neighbouring ids, because jobs are mostly created and served in order.
_BLOCK_BITS: Final = 2
_CACHED_BLOCKS: Final = 1_024  # Enough for the jobs in progress. They take 100 KB.
_HEX_PAIRS: Final = [b"%02x" % byte for byte in range(256)]
_DASH: Final = 45

# The two base64 digits of each 12-bit value, and the value of each byte as a base64 digit.
_BASE64_DIGITS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE64_PAIRS: Final = bytes(
    [digit for first in _BASE64_DIGITS for second in _BASE64_DIGITS for digit in (first, second)]
)
_NO_DIGIT: Final = 64
_BASE64_VALUES: Final = bytes(
    [_BASE64_DIGITS.index(byte) if byte in _BASE64_DIGITS else _NO_DIGIT for byte in range(256)]
)


def first_id(epoch: int) -> int:
    assert 0 < epoch <= EPOCH_MAX, "the epoch has run out of bits"
    return epoch << SEQUENCE_BITS


def epoch_of(job_id: int) -> int:
    return job_id >> SEQUENCE_BITS


def ttl_class(ttl_ms: int, once: bool) -> int:
    """Return the ttl in minutes for a long id. It is made odd if the job may be delivered again, otherwise even."""
    minutes = min(ttl_ms // 60_000, 0xFFFF)
    return minutes & ~1 if once else minutes | 1


def is_long(text: bytes) -> bool:
    """Return whether a text has the form of a 40-character id of any node."""
    return len(text) == LONG_ID_BYTES and text[:2] == b"D-" and text[10] == 45 and text[35] == 45


class IdForms:
    """Formats and parses the external ids of one node."""

    def __init__(self, node: bytes, key: bytes) -> None:
        """Create the conversions between the numbers and the texts of a node's job ids.

        `node` is the first 8 characters of the node id. `key` is a secret of 16 to 64 bytes, stored with the data.
        """
        assert len(node) == 8 and 16 <= len(key) <= 64
        self._prefix: bytes = b"D-" + node + b"-"
        self._keyed: object = hashlib.blake2b(key=key, digest_size=64, person=b"penstock job id")
        self._blocks: list[bytes] = [b""] * _CACHED_BLOCKS
        self._block_numbers: list[int] = [-1] * _CACHED_BLOCKS

    def rename(self, node: bytes) -> None:
        """Change the node's id. External ids that were created before become invalid."""
        assert len(node) == 8
        self._prefix = b"D-" + node + b"-"

    def long(self, job_id: i64, ttl_minutes: int) -> bytes:
        """Return the 40-character form of a job's id."""
        tags = self._tags(job_id)
        at = _tag_at(job_id)
        tag = read_i64_be(tags, at)
        masked = job_id ^ tag
        sealed = ttl_minutes ^ _ttl_mask(tags, at)
        text = BytesWriter()
        text.write(self._prefix)
        # Each twelve bits are two digits.
        write_i64_be(text, _digits(masked >> 52, masked >> 40, masked >> 28, masked >> 16))
        write_i64_be(text, _digits(masked >> 4, (masked & 0xF) << 8 | (tag >> 56 & 0xFF), tag >> 44, tag >> 32))
        write_i64_be(text, _digits(tag >> 20, tag >> 8, (tag & 0xFF) << 4 | sealed >> 12, sealed))
        text.append(_DASH)
        text.write(_HEX_PAIRS[ttl_minutes >> 8])
        text.write(_HEX_PAIRS[ttl_minutes & 0xFF])
        return text.getvalue()

    def hex(self, job_id: i64) -> bytes:
        """Return the 32-digit form of a job's id."""
        return binascii.hexlify(_masked(job_id, self._tags(job_id), _tag_at(job_id)).getvalue())

    def parse_long(self, text: bytes) -> i64:
        """Return the number in a 40-character id, or NOT_AN_ID if it is malformed, forged or from another node."""
        if len(text) != LONG_ID_BYTES or not text.startswith(self._prefix) or text[35] != _DASH:
            return NOT_AN_ID
        # Of the 24 digits, the 11th and the 22nd contain bits of two numbers.
        first = _value(text, 11, 10)
        shared = _value(text, 21, 1)
        second = _value(text, 22, 10)
        last = _value(text, 32, 3)
        if first < 0 or shared < 0 or second < 0 or last < 0:
            return NOT_AN_ID
        # The highest bit is the sign, as in a 64-bit read.
        tag = ((shared & 3 ^ 2) - 2) << 62 | second << 2 | last >> 16
        job_id = (((first ^ 1 << 59) - (1 << 59)) << 4 | shared >> 2) ^ tag
        if job_id < 0:
            return NOT_AN_ID
        tags = self._tags(job_id)
        at = _tag_at(job_id)
        ttl_minutes = (last ^ _ttl_mask(tags, at)) & 0xFFFF
        # Accept only the exact form that `long` returns, so that a job has one id.
        shown = _HEX_PAIRS[ttl_minutes >> 8] + _HEX_PAIRS[ttl_minutes & 0xFF]
        return job_id if tag == read_i64_be(tags, at) and text.endswith(shown) else NOT_AN_ID

    def parse_hex(self, text: bytes) -> i64:
        """Return the number in a 32-digit id, or NOT_AN_ID if it is malformed or forged."""
        if len(text) != HEX_ID_BYTES:
            return NOT_AN_ID
        try:
            job_id = _unmasked(binascii.unhexlify(text))
        except ValueError:
            return NOT_AN_ID
        return job_id if job_id >= 0 and self.hex(job_id) == text else NOT_AN_ID

    def parse(self, text: bytes) -> i64:
        """Return the number in an id of either form, or NOT_AN_ID if it is invalid."""
        return self.parse_hex(text) if len(text) == HEX_ID_BYTES else self.parse_long(text)

    def _tags(self, job_id: i64) -> bytes:
        """Return the tags of all ids in the block of neighbouring ids that contains `job_id`."""
        block = job_id >> _BLOCK_BITS
        slot = block & (_CACHED_BLOCKS - 1)
        if self._block_numbers[slot] != block:
            digest = self._keyed.copy()  # type: ignore[attr-defined]
            digest.update(int(block).to_bytes(8, "big"))
            self._blocks[slot] = digest.digest()
            self._block_numbers[slot] = block
        return self._blocks[slot]


def _tag_at(job_id: i64) -> i64:
    """Return the offset of an id's tag in the bytes that `IdForms._tags` returns."""
    return (job_id & ((1 << _BLOCK_BITS) - 1)) * _TAG_BYTES


def _masked(job_id: i64, tags: bytes, at: i64) -> BytesWriter:
    tag = read_i64_be(tags, at)
    raw = BytesWriter()
    write_i64_be(raw, job_id ^ tag)
    write_i64_be(raw, tag)
    return raw


def _ttl_mask(tags: bytes, at: i64) -> i64:
    return i64(tags[at + 8]) << 8 | i64(tags[at + 9])


def _digits(first: i64, second: i64, third: i64, fourth: i64) -> i64:
    """Return eight base64 digits, two for the low twelve bits of each number.

    A library call takes three times as long.
    """
    return _pair(first) << 48 | _pair(second) << 32 | _pair(third) << 16 | _pair(fourth)


def _pair(bits: i64) -> i64:
    return i64(read_i16_be(_BASE64_PAIRS, 2 * (bits & 0xFFF)))


def _value(text: bytes, start: i64, count: i64) -> i64:
    """Return the number in `count` base64 digits, or -1 if one of them is invalid."""
    value: i64 = 0
    seen: i64 = 0
    for at in range(start, start + count):
        digit = i64(_BASE64_VALUES[text[at]])
        seen |= digit
        value = value << 6 | digit
    return -1 if seen >= _NO_DIGIT else value


def _unmasked(raw: bytes) -> i64:
    """Return the number in a masked id. The caller verifies its tag."""
    return read_i64_be(raw, 0) ^ read_i64_be(raw, 8)
