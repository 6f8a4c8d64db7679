"""How a job is named: one internal number, and the forms in which clients see it.

Inside, an id is 63 bits: the epoch of the opening in which the job was made, and a sequence number within it.

    63       43                                         0
    | epoch 20 |             sequence 43                |

The epoch is raised and made durable at every open, so no crash, whatever it lost, lets an id name a second job. A
sequence that ran over (after 8.8 million million jobs in one opening) flows into the next epoch, and the next open
begins behind that.
Outside, the number is masked and followed by a keyed tag: an id cannot be guessed, and a forged one is recognised
without a lookup. Both forms hold the same number:

    40 characters   D-node8-<24 characters, base64: masked number 8 bytes, tag 8, masked ttl class 2>-<ttl class>
    32 hex digits   masked number 8 bytes, tag 8 bytes

The last four digits of the long form are the job's ttl in minutes: odd where it may be delivered again, even where it
may not. Clients of Disque read them, so they are masked by the tag as well: a changed one is as forged as any other.
"""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

from mypy_extensions import i64

SEQUENCE_BITS: Final = 43
EPOCH_MAX: Final = (1 << 20) - 1

LONG_ID_BYTES: Final = 40
HEX_ID_BYTES: Final = 32

# What a parser answers when the bytes name no job of this node.
NOT_AN_ID: Final = -1

_TAG_BYTES: Final = 16
# One digest yields the tags of this many neighbouring ids; jobs are made and served mostly in order.
_BLOCK_BITS: Final = 2
_CACHED_BLOCKS: Final = 64
_HEX_DIGITS: Final = frozenset(b"0123456789abcdef")


def first_id(epoch: int) -> int:
    """The first id of an epoch."""
    assert 0 < epoch <= EPOCH_MAX, "the epoch has run out of bits"
    return epoch << SEQUENCE_BITS


def epoch_of(job_id: int) -> int:
    """The opening in which a job was made."""
    return job_id >> SEQUENCE_BITS


def ttl_class(ttl_ms: int, once: bool) -> int:
    """The ttl in minutes as a long id shows it: odd where the job may be delivered again, even where it may not."""
    minutes = min(ttl_ms // 60_000, 0xFFFF)
    return minutes & ~1 if once else minutes | 1


class IdForms:
    """Writes and reads the outer forms of the ids of one node."""

    _prefix: bytes
    _keyed: object
    _blocks: list[bytes]
    _block_numbers: list[int]

    def __init__(self, node: bytes, key: bytes) -> None:
        """Take the first eight characters of the node's id, and a secret of 16 to 64 bytes that stays with the data."""
        assert len(node) == 8 and 16 <= len(key) <= 64
        self._prefix = b"D-" + node + b"-"
        self._keyed = hashlib.blake2b(key=key, digest_size=64, person=b"penstock job id")
        self._blocks = [b""] * _CACHED_BLOCKS
        self._block_numbers = [-1] * _CACHED_BLOCKS

    def long(self, job_id: int, ttl_minutes: int) -> bytes:
        """The 40-character form."""
        tag = self._tag(job_id)
        masked = (job_id ^ int.from_bytes(tag[:8], "big")).to_bytes(8, "big")
        sealed = (ttl_minutes ^ int.from_bytes(tag[8:10], "big")).to_bytes(2, "big")
        text = binascii.b2a_base64(masked + tag[:8] + sealed, newline=False)
        return b"%s%s-%04x" % (self._prefix, text, ttl_minutes)

    def hex(self, job_id: int) -> bytes:
        """The 32-digit form."""
        tag = self._tag(job_id)
        return binascii.hexlify((job_id ^ int.from_bytes(tag[:8], "big")).to_bytes(8, "big") + tag[:8])

    def parse_long(self, text: bytes) -> i64:
        """The number behind a 40-character id, or NOT_AN_ID if it is malformed, forged, or of another node."""
        if len(text) != LONG_ID_BYTES or text[:11] != self._prefix or text[35] != 45:
            return NOT_AN_ID
        try:
            raw = binascii.a2b_base64(text[11:35], strict_mode=True)
        except binascii.Error:
            return NOT_AN_ID
        if not _HEX_DIGITS.issuperset(text[36:]):
            return NOT_AN_ID
        job_id = self._unmask(raw[:16])
        if job_id == NOT_AN_ID:
            return NOT_AN_ID
        sealed = int.from_bytes(raw[16:], "big") ^ int.from_bytes(self._tag(job_id)[8:10], "big")
        return job_id if sealed == int(text[36:], 16) else NOT_AN_ID

    def parse_hex(self, text: bytes) -> i64:
        """The number behind a 32-digit id, or NOT_AN_ID."""
        if len(text) != HEX_ID_BYTES or not _HEX_DIGITS.issuperset(text):
            return NOT_AN_ID
        return self._unmask(binascii.unhexlify(text))

    def _unmask(self, raw: bytes) -> i64:
        """The number behind its masked form and its tag."""
        if len(raw) != 16:
            return NOT_AN_ID
        job_id = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
        if job_id >> 63 or self._tag(job_id)[:8] != raw[8:]:
            return NOT_AN_ID
        return job_id

    def _tag(self, job_id: int) -> bytes:
        block = job_id >> _BLOCK_BITS
        slot = block & (_CACHED_BLOCKS - 1)
        if self._block_numbers[slot] != block:
            digest = self._keyed.copy()  # type: ignore[attr-defined]
            digest.update(block.to_bytes(8, "big"))
            self._blocks[slot] = digest.digest()
            self._block_numbers[slot] = block
        at = (job_id & ((1 << _BLOCK_BITS) - 1)) * _TAG_BYTES
        return self._blocks[slot][at : at + _TAG_BYTES]
