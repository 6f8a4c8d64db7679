"""The options of native commands: valid, missing, malformed, repeated and unknown values of each."""

from __future__ import annotations

import pytest

from penstock.core import states as s
from penstock.core.errors import BadSyntax, CommandError, OutOfRange, WrongType
from penstock.core.job import BODY_JSON, BODY_MSGPACK, BODY_TEXT, Draft
from penstock.core.limits import DURATION_MS_MAX, NEVER
from penstock.dialects.native.arguments import PUT_OPTIONS, Words, check_kind, parse_cursor, read_json, read_put

from .command_engine import CommandEngine

# Option, value, the attribute of the draft, and its value. An option without a value has None.
VALID: list[tuple[str, bytes | None, str, object]] = [
    ("DELAY", b"5", "delay_ms", 5_000),
    ("DELAY", b"250ms", "delay_ms", 250),
    ("AT", b"1794808634.5", "at_ms", 1_794_808_634_500),
    ("TTL", b"2h", "ttl_ms", 7_200_000),
    ("TTL", b"forever", "ttl_ms", NEVER),
    ("TTR", b"1.5", "ttr_ms", 1_500),
    ("PRIORITY", b"7", "priority", 7),
    ("PRIORITY", b"-7", "priority", -7),
    ("KEY", b"", "key", b""),
    ("KEY", b"DELAY", "key", b"DELAY"),  # A value can look like an option.
    ("URGENT", None, "urgent", True),
    ("ONCE", None, "once", True),
    ("NAME", b"n", "name", b"n"),
    ("UNIQUE", b"u", "unique", b"u"),
    ("DEDUP", b"d", "dedup", b"d"),
    ("NACKS", b"3", "nacks", 3),
    ("BATCH", b"b", "batch", b"b"),
    ("OPTIONS", b'{"a": [1]}', "options", {"a": [1]}),
    ("NUMBER", b"0", "number", 0),
    ("STATE", b"buried", "initial_state", s.BURIED),
    ("NEW", None, "new", True),
    ("AS", b"JSON", "body_kind", BODY_JSON),
]

MALFORMED: list[tuple[str, bytes, type[CommandError]]] = [
    *(("DELAY", word, OutOfRange) for word in (b"", b"x", b"1d1", b"1_0", b" 1", b"nan")),
    ("DELAY", b"%d" % (DURATION_MS_MAX + 1), OutOfRange),
    *(("AT", word, OutOfRange) for word in (b"", b"tomorrow", b"forever", b"-1")),
    *(("TTL", word, OutOfRange) for word in (b"", b"x", b"-2")),
    *(("TTR", word, OutOfRange) for word in (b"", b"x", b"-2")),
    *(("PRIORITY", word, WrongType) for word in (b"", b"high", b"1.5", b"1_0")),
    ("PRIORITY", b"99999999999999999999", CommandError),
    ("RETRY", b"", CommandError),
    ("RETRY", b"often", CommandError),
    ("RETRY", b"\xff", WrongType),
    *(("NACKS", word, WrongType) for word in (b"", b"x", b"0x1")),
    *(("OPTIONS", word, WrongType) for word in (b"", b"[]", b"5", b"{", b"NaN", b'{"a": NaN}', b"\xff", b"[" * 9_999)),
    *(("NUMBER", word, CommandError) for word in (b"", b"x", b"-1")),
    *(("STATE", word, CommandError) for word in (b"", b"taken2", b"\xff")),
    *(("AS", word, OutOfRange) for word in (b"", b"xml", b"\xff")),
]

WITHOUT_VALUE = {"URGENT", "ONCE", "NEW"}


def read(*words: bytes) -> Draft:
    """Return the draft that the options of a PUT make."""
    draft = Draft(b"body")
    reader = Words([b"put", *words], 1)
    while reader.has_more():
        if not read_put(reader, draft, reader.option()):
            raise reader.unknown(PUT_OPTIONS)
    return draft


@pytest.mark.parametrize("case", ["upper", "lower", "title"])
@pytest.mark.parametrize(("name", "value", "attribute", "expected"), VALID, ids=lambda each: str(each)[:20])
def test_a_valid_option_sets_its_attribute(
    name: str, value: bytes | None, attribute: str, expected: object, case: str
) -> None:
    word = getattr(name, case)().encode()
    assert getattr(read(word) if value is None else read(word, value), attribute) == expected


def test_every_option_has_a_valid_case() -> None:
    # HEADER has a name and a value: see test_headers.py.
    assert {name for name, *_ in VALID} | {"RETRY", "HEADER"} == set(PUT_OPTIONS)
    assert read(b"RETRY", b"3x").retry is not None


@pytest.mark.parametrize(("name", "value", "error"), MALFORMED, ids=lambda each: repr(each)[:24])
def test_a_malformed_value_is_refused(name: str, value: bytes, error: type[CommandError]) -> None:
    with pytest.raises(error):
        read(name.encode(), value)


@pytest.mark.parametrize("word", [b"-1", b"forever"])
def test_minus_one_is_an_unlimited_duration_and_a_delay_must_be_finite(word: bytes) -> None:
    assert read(b"TTL", word, b"TTR", word).ttl_ms == NEVER
    shop = CommandEngine()
    assert shop.ask(b"put", b"t", b"body", b"DELAY", word).startswith(b"-RANGE") and shop.engine.jobs.count == 0


@pytest.mark.parametrize("name", sorted(set(PUT_OPTIONS) - WITHOUT_VALUE))
def test_a_missing_value_is_refused_with_the_name_of_the_option(name: str) -> None:
    with pytest.raises(BadSyntax, match=f"^{name} must be followed by a (value|name)"):
        read(b"ONCE", name.lower().encode())


@pytest.mark.parametrize(("name", "value", "attribute", "expected"), VALID, ids=lambda each: str(each)[:20])
def test_the_last_of_a_repeated_option_counts(name: str, value: bytes | None, attribute: str, expected: object) -> None:
    first = {"AT": b"1", "STATE": b"ready", "AS": b"text", "OPTIONS": b"{}"}.get(name, b"9")
    words = [name.encode()] if value is None else [name.encode(), first, name.encode(), value]
    assert getattr(read(*words, *words), attribute) == expected


@pytest.mark.parametrize(
    ("word", "hint"),
    [(b"DELAI", "did you mean DELAY?"), (b"prio", "did you mean PRIORITY?"), (b"zzz", "its options are DELAY, AT")],
)
def test_an_unknown_option_is_refused_with_a_hint(word: bytes, hint: str) -> None:
    with pytest.raises(BadSyntax) as refusal:
        read(b"ONCE", word)
    assert str(refusal.value).startswith(f"PUT has no option {word.decode().upper()}; {hint}")


@pytest.mark.parametrize("word", [b"\x00" * 1_000, b"\xff" * 1_000, b"x" * 100_000])
def test_an_error_repeats_little_of_a_long_word(word: bytes) -> None:
    with pytest.raises(BadSyntax) as refusal:
        read(word)
    assert len(str(refusal.value)) < 800


@pytest.mark.parametrize(("word", "expected"), [(b"yes", True), (b"NO", False)])
def test_a_boolean_is_yes_or_no(word: bytes, expected: bool) -> None:
    words = Words([b"x", b"KEEP", word], 1)
    words.option()
    assert words.boolean() is expected


@pytest.mark.parametrize("word", [b"", b"1", b"true", b"y"])
def test_other_booleans_are_refused(word: bytes) -> None:
    words = Words([b"x", b"keep", word], 1)
    words.option()
    with pytest.raises(WrongType, match="KEEP must be yes or no"):
        words.boolean()


def test_words_behind_the_last_argument_are_refused() -> None:
    Words([b"job peek", b"id"], 2).check_end()
    with pytest.raises(BadSyntax, match="has no option MORE"):
        Words([b"job peek", b"id", b"more"], 2).check_end()


@pytest.mark.parametrize("word", [b"", b"-1", b"x", b"1.0", b"99999999999999999999"])
def test_a_malformed_cursor_is_refused(word: bytes) -> None:
    assert parse_cursor(b"0") == 0
    with pytest.raises(OutOfRange):
        parse_cursor(word)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [(BODY_TEXT, "é".encode(), b"\xff"), (BODY_JSON, b'{"a":1}', b"{"), (BODY_MSGPACK, b"\x91\x01", b"\x01")],
)
def test_a_body_must_have_its_declared_kind(kind: int, good: bytes, bad: bytes) -> None:
    check_kind(good, kind)
    with pytest.raises(WrongType):
        check_kind(bad, kind)


def test_long_json_is_not_parsed() -> None:
    check_kind(b"{" * (1024 * 1024 + 1), BODY_JSON)
    with pytest.raises(WrongType, match="up to 1048576 bytes"):
        read_json(b"1" * (1024 * 1024 + 1), "it")
