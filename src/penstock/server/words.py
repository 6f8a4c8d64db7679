"""Words as text: of a line of a config file, or of one at a prompt (`wire/quoting.py` has their grammar).

Text here may stand for any bytes: those that are no UTF-8 are lone surrogates in it (`surrogateescape`), so a password
or a path survives being read and written whatever it is made of.
"""

from __future__ import annotations

from penstock.wire.quoting import split_words


class UnbalancedQuotes(ValueError):
    """A quote that is not closed, or that is closed in the middle of a word."""


def to_bytes(text: str) -> bytes:
    """The bytes that a text stands for."""
    return text.encode("utf-8", "surrogateescape")


def to_text(raw: bytes) -> str:
    """The text that stands for these bytes."""
    return raw.decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def split(line: str) -> list[str]:
    """The words of a line. A quoted word may be empty."""
    words = split_words(to_bytes(line), False)
    if words is None:
        raise UnbalancedQuotes
    return [to_text(word) for word in words]


def quote(word: str) -> str:
    """A word in double quotes, on one line and printable, that `split` reads back as it was."""
    return f'"{"".join(_escape(character) for character in word)}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in to_bytes(character))
