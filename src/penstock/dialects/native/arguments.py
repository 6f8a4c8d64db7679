"""The arguments of a native command, read one after the other.

An option is a word, in upper or lower case. Most options have a value, which is the next word. Every error names the
word that caused it.
"""

from __future__ import annotations

import difflib
import json
from typing import Final

from penstock.core.durations import NO_DURATION, read_duration
from penstock.core.errors import BadSyntax, OutOfRange, WrongType
from penstock.core.job import BODY_JSON, BODY_MSGPACK, BODY_TEXT, Draft
from penstock.core.limits import DURATION_MS_MAX, NEVER, check_number, check_priority
from penstock.core.retry import parse_retry
from penstock.core.states import state_of
from penstock.dialects.disque import NOT_A_NUMBER, parse_integer
from penstock.wire.bodies import is_fields
from penstock.wire.headers import add_header

# The names of the kinds of bodies, by the number of the kind.
KIND_WORDS: Final = [b"bytes", b"text", b"json", b"msgpack"]
_KINDS: Final[dict[bytes, int]] = {word: kind for kind, word in enumerate(KIND_WORDS)}

# An error message repeats at most this many characters of a word.
_SHOWN_CHARACTERS_MAX: Final = 60

# JSON is parsed only to check it. The parsed value may need thirty times its bytes and tenths of a second per megabyte,
# so longer texts are not parsed: a client must not be able to use up the server's memory and time.
_JSON_BYTES_MAX: Final = 1024 * 1024

# The largest number of shards of a claim or a scan.
SHARDS_MAX: Final = 1_000_000

PUT_OPTIONS: Final = [
    "DELAY",
    "AT",
    "TTL",
    "TTR",
    "PRIORITY",
    "KEY",
    "URGENT",
    "ONCE",
    "RETRY",
    "NAME",
    "UNIQUE",
    "DEDUP",
    "NACKS",
    "OPTIONS",
    "NUMBER",
    "STATE",
    "NEW",
    "AS",
    "HEADER",
    "BATCH",
]


class Words:
    """The words of a command, and the index of the next word. Errors are raised as BadSyntax or OutOfRange."""

    def __init__(self, args: list[bytes], at: int) -> None:
        self.args = args
        self.at = at
        self._headers: dict[str, bytes] | None = None  # The HEADER options of the present job, or None.

    def has_more(self) -> bool:
        return self.at < len(self.args)

    def option(self) -> bytes:
        """Return the next word as the name of an option, in upper case."""
        word = self.args[self.at].upper()
        self.at += 1
        return word

    def value(self) -> bytes:
        """Read the value of the current option, whose name `option` returned."""
        if self.at >= len(self.args):
            raise BadSyntax(f"{excerpt(self.args[-1]).upper()} must be followed by a value")
        self.at += 1
        return self.args[self.at - 1]

    def duration(self) -> int:
        """Read the value of the current option as a duration in milliseconds, or NEVER if it is unlimited."""
        return duration(self.value(), self._name())

    def moment(self) -> int:
        """Read the value of the current option as a moment, in milliseconds since 1970."""
        word = self.value()
        ms = read_duration(word)
        if ms in (NO_DURATION, NEVER):
            raise OutOfRange(
                f"{self._name()} must be a moment in seconds since 1970, like 1794808634 or 1794808634.5, "
                f"or with a unit, like 1794808634500ms, not {excerpt(word)}"
            )
        return ms

    def integer(self) -> int:
        number = parse_integer(self.value())
        if number == NOT_A_NUMBER:
            raise WrongType(f"{self._name()} must be a whole number, not {excerpt(self.args[self.at - 1])}")
        return number

    def number(self) -> int:
        """Read the value of the current option as the number of a job within its tube."""
        return check_number(self.integer())

    def priority(self) -> int:
        return check_priority(self.integer())

    def text(self) -> str:
        return text(self.value(), self._name())

    def header(self) -> None:
        """Read the name and the value of the current option HEADER. `end_headers` returns them."""
        at = self.at
        if at + 2 > len(self.args):
            raise BadSyntax("HEADER must be followed by a name and a value")
        if self._headers is None:
            self._headers = {}
        add_header(self._headers, self.args[at], self.args[at + 1])
        self.at = at + 2

    def end_headers(self) -> dict[str, bytes] | None:
        """Return the headers that were read since the last call, or None if there are none."""
        headers = self._headers
        self._headers = None
        return headers

    def boolean(self) -> bool:
        """Read the value of the current option, which must be yes or no."""
        word = self.value().lower()
        if word == b"yes" or word == b"no":
            return word == b"yes"
        raise WrongType(f"{self._name()} must be yes or no, not {excerpt(word)}")

    def unknown(self, allowed: list[str]) -> BadSyntax:
        """Return the error for an unknown option. It suggests the allowed option with the most similar name."""
        word = excerpt(self.args[self.at - 1]).upper()
        close = difflib.get_close_matches(word, allowed, 1, 0.6)
        hint = f"; did you mean {close[0]}?" if close else f"; its options are {', '.join(allowed)}" if allowed else ""
        return BadSyntax(f"{excerpt(self.args[0]).upper()} has no option {word}{hint}")

    def check_end(self) -> None:
        """Raise BadSyntax if there are more words."""
        if self.at < len(self.args):
            self.at += 1
            raise self.unknown([])

    def _name(self) -> str:
        return excerpt(self.args[self.at - 2]).upper()


def read_put(words: Words, draft: Draft, word: bytes) -> bool:
    """Store the put option `word` and its value in the new job `draft`. Return False if there is no such option.

    Headers are collected in `words`. The caller reads them with `words.end_headers` and encodes all of them together.
    """
    if word == b"DELAY":
        draft.delay_ms = words.duration()
    elif word == b"AT":
        draft.at_ms = words.moment()
    elif word == b"TTL":
        draft.ttl_ms = words.duration()
    elif word == b"TTR":
        draft.ttr_ms = words.duration()
    elif word == b"PRIORITY":
        draft.priority = words.priority()
    elif word == b"KEY":
        draft.key = words.value()
    elif word == b"URGENT":
        draft.urgent = True
    elif word == b"ONCE":
        draft.once = True
    elif word == b"RETRY":
        draft.retry = parse_retry(words.text())
    elif word == b"NAME":
        draft.name = words.value()
    elif word == b"UNIQUE":
        draft.unique = words.value()
    elif word == b"DEDUP":
        draft.dedup = words.value()
    elif word == b"NACKS":
        draft.nacks = words.integer()
    elif word == b"OPTIONS":
        draft.options = read_driver_options(words.value())
    elif word == b"NUMBER":
        draft.number = words.number()
    elif word == b"STATE":
        draft.initial_state = state_of(words.text())
    elif word == b"NEW":
        draft.new = True
    elif word == b"AS":
        draft.body_kind = body_kind(words.value())
    elif word == b"HEADER":
        words.header()
    elif word == b"BATCH":
        draft.batch = words.value()
    else:
        return False
    return True


def excerpt(word: bytes) -> str:
    """Return a word as it appears in error messages: shortened, and with unprintable characters escaped."""
    text = word[:_SHOWN_CHARACTERS_MAX].decode("utf-8", "backslashreplace")
    return f"{text}…" if len(word) > _SHOWN_CHARACTERS_MAX else text


def duration(word: bytes, what: str) -> int:
    """Parse a duration. Return milliseconds, or NEVER if it is unlimited. `what` names the value in errors."""
    ms = read_duration(word)
    if ms == NO_DURATION:
        raise OutOfRange(
            f"{what} must be a time like 30, 1.5, 250ms, 5m or 2h, up to {DURATION_MS_MAX // 1000}, or forever, "
            f"not {excerpt(word)}"
        )
    return ms


def parse_priority(word: bytes) -> int:
    number = parse_integer(word)
    if number == NOT_A_NUMBER:
        raise WrongType(f"a priority must be a whole number, not {excerpt(word)}")
    return check_priority(number)


def parse_cursor(word: bytes) -> int:
    cursor = parse_integer(word)
    if cursor < 0 or cursor == NOT_A_NUMBER:
        raise OutOfRange(f"a cursor must be 0 or a value that an earlier scan returned, not {excerpt(word)}")
    return cursor


def text(word: bytes, what: str) -> str:
    """Decode a word as UTF-8. `what` names the word in errors."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise WrongType(f"{what} must be text in UTF-8") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not in JSON")


# JSON has no NaN and no infinity, but Python's parser accepts them by default.
_JSON: Final = json.JSONDecoder(parse_constant=_no_constant)


def read_json(raw: bytes, what: str) -> object:
    """Parse a JSON value. `what` names the value in errors."""
    if len(raw) > _JSON_BYTES_MAX:
        raise WrongType(f"{what} may have up to {_JSON_BYTES_MAX} bytes")
    try:
        return _JSON.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise WrongType(f"{what} is not JSON: {error}") from None


def read_driver_options(raw: bytes) -> dict[str, object]:
    """Read the options for the driver of a tube: a JSON object."""
    options = read_json(raw, "the options for a driver")
    if not isinstance(options, dict):
        raise WrongType("the options for a driver must be a JSON object")
    return options


def body_kind(word: bytes) -> int:
    """Return the kind of body that `word` names: bytes, text, json or msgpack."""
    kind = _KINDS.get(word.lower())
    if kind is None:
        raise OutOfRange(f"AS must be bytes, text, json or msgpack, not {excerpt(word)}")
    return kind


def check_kind(body: bytes, kind: int) -> None:
    """Raise an error if consumers could not read a body as its declared kind. Long JSON is not checked."""
    if kind == BODY_TEXT:
        text(body, "a body that is put AS text")
    elif kind == BODY_JSON and len(body) <= _JSON_BYTES_MAX:
        read_json(body, "a body that is put AS json")
    elif kind == BODY_MSGPACK and not is_fields(body):
        what = "an array of its fields (one field for a single value), nested at most 64 deep"
        raise WrongType(f"a body that is put AS msgpack must be {what}")


def read_shard(words: Words) -> tuple[int, int]:
    """Read the index of a shard and the number of shards. Raise OutOfRange unless the index is less than the number."""
    index = words.integer()
    count = words.integer()
    if not 0 <= index < count or count > SHARDS_MAX:
        raise OutOfRange(
            f"SHARD {index} {count}: the index must be at least 0 and less than the number of shards, "
            f"which is at most {SHARDS_MAX}"
        )
    return index, count
