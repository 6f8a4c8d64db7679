"""A line of words, with quotes, as Disque's config files and inline commands have them.

    requirepass "two words"     'it''s' is refused, 'it\\'s' is not     "\\x00\\n\\r\\t\\b\\a" are bytes

Text here may stand for any bytes: those that are no UTF-8 are lone surrogates in it (`surrogateescape`), so a password
or a path survives being read and written whatever it is made of.
"""

from __future__ import annotations

from typing import Final

_SPACES: Final = b" \t\r\n\v\f"
_ESCAPES: Final[dict[int, int]] = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"


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
    raw = to_bytes(line)
    words: list[str] = []
    at = 0
    while True:
        while at < len(raw) and raw[at] in _SPACES:
            at += 1
        if at == len(raw):
            return words
        word, at = _word(raw, at)
        words.append(to_text(word))


def _word(raw: bytes, at: int) -> tuple[bytes, int]:
    """The word that begins here, and where it ends. A quote may open in its middle, but closes only at its end."""
    word = bytearray()
    while at < len(raw) and raw[at] not in _SPACES:
        if raw[at] in b"\"'":
            quoted, at = _quoted(raw, at + 1, raw[at])
            word += quoted
            if at < len(raw) and raw[at] not in _SPACES:
                raise UnbalancedQuotes
            break
        word.append(raw[at])
        at += 1
    return bytes(word), at


def _quoted(raw: bytes, at: int, quote: int) -> tuple[bytes, int]:
    """What stands up to the closing quote, and where that one ends."""
    found = bytearray()
    while at < len(raw):
        if raw[at] == quote:
            return bytes(found), at + 1
        if raw[at] == ord("\\") and at + 1 < len(raw):
            byte, at = _escaped(raw, at, quote)
            found.append(byte)
        else:
            found.append(raw[at])
            at += 1
    raise UnbalancedQuotes


def _escaped(raw: bytes, at: int, quote: int) -> tuple[int, int]:
    """The byte that a backslash and what follows it stand for. In single quotes it escapes nothing but the quote."""
    following = raw[at + 1]
    if quote == ord("'"):
        return (following, at + 2) if following == quote else (raw[at], at + 1)
    digits = raw[at + 2 : at + 4]
    if following == ord("x") and len(digits) == 2 and all(digit in _HEX_DIGITS for digit in digits):
        return int(digits, 16), at + 4
    return _ESCAPES.get(following, following), at + 2


def quote(word: str) -> str:
    """A word in double quotes, on one line and printable, that `split` reads back as it was."""
    return f'"{"".join(_escape(character) for character in word)}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in to_bytes(character))
