"""Scrypt hashes of passwords: `scrypt$N$R$P$SALT$HASH`, with the salt and the hash in base64url without padding.

Scrypt is slow and needs much memory on purpose. Someone who reads the hash can try only few passwords per second.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

_WORD: Final = "scrypt"

# New hashes: 16 MB, and about 0.2 s of one processor.
_N: Final = 16_384
_R: Final = 8
_P: Final = 5
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32

# Limits of configured hashes: a comparison must not use up the memory of the server, or take longer than some seconds.
_MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
_COST_MAX: Final = 1 << 23  # N times R times P.
_SALT_BYTES_MIN: Final = 8
_HASH_BYTES_MIN: Final = 16
_BYTES_MAX: Final = 64


@dataclass(frozen=True)
class ScryptHash:
    """The scrypt hash of a password, with its parameters."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def __str__(self) -> str:
        return "$".join([_WORD, str(self.n), str(self.r), str(self.p), _base64(self.salt), _base64(self.digest)])

    def matches(self, password: bytes) -> bool:
        """Return whether this is the hash of `password`. This takes long, and other threads run meanwhile."""
        return hmac.compare_digest(_digest(password, self.salt, self.n, self.r, self.p, len(self.digest)), self.digest)


def hash_password(password: bytes) -> ScryptHash:
    """Return the hash of a password with a new random salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScryptHash(_N, _R, _P, salt, _digest(password, salt, _N, _R, _P, _HASH_BYTES))


def read_hash(text: str) -> ScryptHash | None:
    """Return the hash that a text contains, or None if it is malformed or its parameters are not allowed."""
    word, *numbers, salt, digest = text.split("$") if text.count("$") == 5 else ("", "", "", "", "", "")
    if word != _WORD or not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        return None
    n, r, p = map(int, numbers)
    try:
        found = ScryptHash(n, r, p, _bytes(salt), _bytes(digest))
    except (binascii.Error, ValueError):
        return None
    is_allowed = n > 1 and n & (n - 1) == 0 and r > 0 and p > 0 and n * r * p <= _COST_MAX
    has_sizes = _SALT_BYTES_MIN <= len(found.salt) <= _BYTES_MAX and _HASH_BYTES_MIN <= len(found.digest) <= _BYTES_MAX
    return found if is_allowed and has_sizes and _memory_bytes(n, r, p) <= _MEMORY_BYTES_MAX else None


def _digest(password: bytes, salt: bytes, n: int, r: int, p: int, length: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_memory_bytes(n, r, p), dklen=length)


def _memory_bytes(n: int, r: int, p: int) -> int:
    return 128 * r * (n + p + 2)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Decode base64 with or without padding, in either of its two alphabets."""
    standard = text.rstrip("=").replace("-", "+").replace("_", "/").encode("ascii")
    return base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)
