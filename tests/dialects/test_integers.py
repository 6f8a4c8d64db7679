"""Numbers in Disque's commands: everything that C's strtoll accepts as a whole, and nothing more."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dialects.disque import NOT_A_NUMBER, parse_integer

WRITTEN = re.compile(rb"[+-]?[0-9]{1,64}")


def expected(text: bytes) -> int:
    if not WRITTEN.fullmatch(text):
        return NOT_A_NUMBER
    number = int(text)
    return number if -(2**63) <= number < 2**63 else NOT_A_NUMBER


@given(st.integers(-(2**70), 2**70).map(lambda number: b"%d" % number))
def test_a_number_is_read_as_it_is_written_if_it_fits_in_64_bits(text: bytes) -> None:
    assert parse_integer(text) == expected(text)


@given(st.text("0123456789+-_. x\n\0²", max_size=70).map(str.encode) | st.binary(max_size=70))
def test_any_other_text_is_not_a_number(text: bytes) -> None:
    assert parse_integer(text) == expected(text)


@pytest.mark.parametrize("digits", range(1, 25))
def test_numbers_of_nines_and_zeros_of_every_length_are_read(digits: int) -> None:
    for text in (b"9" * digits, b"0" * digits, b"-" + b"9" * digits, b"+" + b"1" * digits, b"9" * digits + b" "):
        assert parse_integer(text) == expected(text)
