"""Words of a line of a config file or of a prompt, as text (`wire/quoting.py` has their grammar).

Text here can represent any bytes: bytes that are not UTF-8 become lone surrogates (`surrogateescape`). So every
password and path can be read and written back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire.quoting import split_words


class UnbalancedQuotes(ValueError):
    """A quote that is not closed, or that is closed in the middle of a word."""


def to_bytes(text: str) -> bytes:
    """Return the bytes that a text represents."""
    return text.encode("utf-8", "surrogateescape")


def to_text(raw: bytes) -> str:
    """Return the text that represents these bytes."""
    return raw.decode("utf-8", "surrogateescape")


def split(line: str) -> list[str]:
    """Return the words of a line. A quoted word can be empty."""
    words = split_words(to_bytes(line), False)
    if words is None:
        raise UnbalancedQuotes
    return [to_text(word) for word in words]


def hex_escape(character: str) -> str:
    """Return the bytes of a character as escapes that `split` reads."""
    return "".join(f"\\x{byte:02x}" for byte in to_bytes(character))


def quote(word: str, escape: Callable[[str], str] = hex_escape) -> str:
    """Return a word in double quotes, on one printable line. With the default `escape`, `split` reads the word back."""
    shown = (f"\\{each}" if each in '"\\' else each if each.isprintable() else escape(each) for each in word)
    return f'"{"".join(shown)}"'
