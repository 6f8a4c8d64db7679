"""Scrypt hashes: their text form, and the limits of their parameters."""

from __future__ import annotations

import hashlib

import pytest

from penstock.server.config.scrypt import ScryptHash, hash_password, read_hash

SALT = "c29tZSBzYWx0"
DIGEST = "A" * 43


def test_the_hash_of_the_standard_is_matched() -> None:
    # RFC 7914, section 12.
    digest = bytes.fromhex(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
    found = ScryptHash(16_384, 8, 1, b"SodiumChloride", digest)
    assert found.matches(b"pleaseletmein") and not found.matches(b"pleaseletmeIn")
    assert read_hash(str(found)) == found


def test_a_new_hash_has_a_new_salt() -> None:
    one, other = hash_password(b"secret"), hash_password(b"secret")
    assert str(one) != str(other) and one.salt != other.salt
    read = read_hash(str(one))
    assert read is not None and read.matches(b"secret") and not read.matches(b"")


def test_both_alphabets_and_padding_of_base64_are_read() -> None:
    salt, digest = b"\xfb\xff\xfe" * 3, hashlib.sha256(b"x").digest()
    plain = ScryptHash(2, 1, 1, salt, digest)
    assert read_hash(str(plain)) == plain
    assert read_hash(str(plain).replace("-", "+").replace("_", "/") + "=") == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scrypt",
        f"scrypt$16384$8$5${SALT}",
        f"scrypt$16384$8$5${SALT}${DIGEST}$",
        f"bcrypt$16384$8$5${SALT}${DIGEST}",
        f"scrypt$16383$8$5${SALT}${DIGEST}",
        f"scrypt$1$8$5${SALT}${DIGEST}",
        f"scrypt$0$8$5${SALT}${DIGEST}",
        f"scrypt$-2$8$5${SALT}${DIGEST}",
        f"scrypt$+2$8$5${SALT}${DIGEST}",
        f"scrypt$٢$8$5${SALT}${DIGEST}",
        f"scrypt$16384$0$5${SALT}${DIGEST}",
        f"scrypt$16384$8$0${SALT}${DIGEST}",
        f"scrypt$1048576$8$1${SALT}${DIGEST}",
        f"scrypt$2$8$1000000${SALT}${DIGEST}",
        f"scrypt${'9' * 5000}$8$1${SALT}${DIGEST}",
        f"scrypt$16384$8$5$YQ${DIGEST}",
        f"scrypt$16384$8$5${SALT}$YQ",
        f"scrypt$16384$8$5${SALT}${'A' * 100}",
        f"scrypt$16384$8$5${SALT}$***{DIGEST}",
        f"scrypt$16384$8$5${SALT}$ä{DIGEST}",
        f"scrypt$16384$8$5${SALT}$A",
    ],
)
def test_malformed_texts_and_expensive_parameters_are_refused(text: str) -> None:
    assert read_hash(text) is None
