"""Quoting and splitting of words: any bytes survive, and lines are split as Disque splits them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.words import UnbalancedQuotes, quote, split, to_bytes, to_text

ANY_WORD = st.binary(max_size=40).map(to_text)


@given(st.lists(ANY_WORD, max_size=5))
def test_quoted_words_are_read_back(words: list[str]) -> None:
    line = " ".join(quote(word) for word in words)
    assert line.isprintable()
    assert [to_bytes(word) for word in split(line)] == [to_bytes(word) for word in words]


@given(st.binary(max_size=60).map(to_text))
def test_any_line_has_words_or_unbalanced_quotes(line: str) -> None:
    try:
        split(line)
    except UnbalancedQuotes:
        assert '"' in line or "'" in line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  port\t7711 \r\n", ["port", "7711"]),
        ('logfile ""', ["logfile", ""]),
        (r'"a\n\r\t\b\a\x41\q\"" x', ['a\n\r\t\b\aAq"', "x"]),
        (r'"\xZZ \x4"', ["xZZ x4"]),
        (r"'a\n' 'it\'s'", ["a\\n", "it's"]),
        ('a"b c"', ["ab c"]),
        ("é", ["é"]),
        ("a\0b 'c\0' \0", ["a\0b", "c\0", "\0"]),
        ("x '' \"\"", ["x", "", ""]),
        (r'"\xc3\xa9"', ["é"]),
    ],
)
def test_a_line_is_split_as_disque_splits_it(line: str, words: list[str]) -> None:
    assert split(line) == words


@pytest.mark.parametrize("line", ['"a', "'a", '"a"b', "'a'b", '"a\\"', '"', "x '"])
def test_quotes_must_be_closed_at_the_end_of_a_word(line: str) -> None:
    with pytest.raises(UnbalancedQuotes):
        split(line)
