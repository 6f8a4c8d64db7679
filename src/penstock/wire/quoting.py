"""Splits a line into words with quotes, as Disque does for inline commands and for its config files.

    requirepass "two words"     'it''s' is refused, 'it\\'s' is not     "\\x00\\n\\r\\t\\b\\a" are bytes

A quote may open in the middle of a word, but must close at its end. In single quotes a backslash escapes only the
quote. `printable` escapes a text for one line of a terminal or a log.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_QUOTE: Final = 34
_APOSTROPHE: Final = 39
_BACKSLASH: Final = 92
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"


def split_words(line: bytes, inline: bool) -> list[bytes] | None:
    """Return the words of a line, or None if a quote is not closed at the end of a word.

    In an inline command NUL separates words, and empty words are dropped.
    """
    if b'"' not in line and b"'" not in line:
        return line.replace(b"\0", b" ").split() if inline else line.split()
    words: list[bytes] = []
    at: i64 = 0
    length: i64 = len(line)
    while True:
        while at < length and _is_space(line[at], inline):
            at += 1
        if at >= length:
            return words
        begin = at
        while at < length and line[at] != _QUOTE and line[at] != _APOSTROPHE and not _is_space(line[at], inline):
            at += 1
        word = line[begin:at]
        if at < length and not _is_space(line[at], inline):
            quote = line[at]
            at += 1
            begin = at
            while at < length and line[at] != quote:
                at += 2 if _is_escape(line, at, quote) else 1
            # A closing quote ends the word.
            if at >= length or (at + 1 < length and not _is_space(line[at + 1], inline)):
                return None
            word += _unescaped(line[begin:at], quote)
            at += 1
        if word or not inline:
            words.append(word)


def _is_space(byte: int, inline: bool) -> bool:
    """Return whether a byte separates words: C's white space, and NUL in an inline command."""
    return byte == 32 or 9 <= byte <= 13 or (byte == 0 and inline)


def _is_escape(text: bytes, at: i64, quote: int) -> bool:
    """Return whether the backslash at index `at` escapes the next byte. In single quotes it escapes only a quote."""
    return text[at] == _BACKSLASH and (quote == _QUOTE or text[at + 1 : at + 2] == b"'")


def _unescaped(text: bytes, quote: int) -> bytes:
    if b"\\" not in text:
        return text
    plain = bytearray()
    at: i64 = 0
    while at < len(text):
        if not _is_escape(text, at, quote):
            plain.append(text[at])
            at += 1
            continue
        what = text[at + 1 : at + 2]
        digits = text[at + 2 : at + 4]
        if what == b"x" and len(digits) == 2 and digits[0] in _HEX_DIGITS and digits[1] in _HEX_DIGITS:
            plain.append(int(digits, 16))
            at += 4
        else:
            plain += _ESCAPES.get(what, what)
            at += 2
    return bytes(plain)


def printable(text: str) -> str:
    """Return a text on one line. Control characters are escaped, so that a terminal does not execute them."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])
