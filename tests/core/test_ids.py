"""Both forms of an id parse to their number, ids are never reused on a node, and forged ids are rejected."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import (
    EPOCH_MAX,
    HEX_ID_BYTES,
    LONG_ID_BYTES,
    NOT_AN_ID,
    SEQUENCE_BITS,
    IdForms,
    epoch_of,
    first_id,
    ttl_class,
)
from penstock.core.limits import DURATION_MS_MAX, NEVER

KEY = bytes(range(32))
FORMS = IdForms(b"4e6f6465", KEY)
IDS = st.integers(0, 2**63 - 1)
SOME_IDS = [first_id(1), first_id(1) + 1, first_id(EPOCH_MAX), 2**63 - 1, 0, 12_345_678_901]


@given(IDS, st.integers(0, 0xFFFF))
def test_a_long_id_parses_to_its_number(job_id: int, minutes: int) -> None:
    text = FORMS.long(job_id, minutes)
    assert len(text) == LONG_ID_BYTES
    assert text.startswith(b"D-4e6f6465-") and text.endswith(b"-%04x" % minutes)
    assert FORMS.parse_long(text) == job_id


@given(IDS, st.integers(0, 0xFFFF))
def test_the_middle_of_a_long_id_is_standard_base64(job_id: int, minutes: int) -> None:
    middle = FORMS.long(job_id, minutes)[11:35]
    raw = base64.b64decode(middle, validate=True)
    assert base64.b64encode(raw) == middle and raw[:16].hex() == FORMS.hex(job_id).decode()


@given(IDS)
def test_a_hex_id_parses_to_its_number(job_id: int) -> None:
    text = FORMS.hex(job_id)
    assert len(text) == HEX_ID_BYTES and set(text) <= set(b"0123456789abcdef")
    assert FORMS.parse_hex(text) == job_id


@given(st.lists(IDS, max_size=200))
def test_the_cache_of_tags_changes_nothing(job_ids: list[int]) -> None:
    warm = IdForms(b"4e6f6465", KEY)
    for job_id in (*job_ids, *job_ids):
        fresh = IdForms(b"4e6f6465", KEY)
        assert warm.long(job_id, 1) == fresh.long(job_id, 1)
        assert fresh.parse_hex(warm.hex(job_id)) == job_id


def changed(text: bytes) -> list[bytes]:
    """Return all texts that differ in one character, over all 256 values."""
    return [
        text[:at] + bytes([other]) + text[at + 1 :]
        for at in range(len(text))
        for other in range(256)
        if other != text[at]
    ]


@pytest.mark.parametrize("job_id", SOME_IDS)
def test_a_hex_id_with_one_changed_character_is_invalid(job_id: int) -> None:
    assert {FORMS.parse_hex(text) for text in changed(FORMS.hex(job_id))} == {NOT_AN_ID}


@pytest.mark.parametrize("job_id", SOME_IDS)
def test_a_long_id_with_one_changed_character_before_its_ttl_class_is_invalid(job_id: int) -> None:
    text = FORMS.long(job_id, 1441)
    assert {FORMS.parse_long(bad + text[36:]) for bad in changed(text[:36])} == {NOT_AN_ID}


@pytest.mark.parametrize("job_id", SOME_IDS)
def test_an_id_that_is_too_short_or_too_long_is_invalid(job_id: int) -> None:
    long, hexed = FORMS.long(job_id, 1), FORMS.hex(job_id)
    for length in range(LONG_ID_BYTES):
        assert FORMS.parse_long(long[:length]) == NOT_AN_ID
    for length in range(HEX_ID_BYTES):
        assert FORMS.parse_hex(hexed[:length]) == NOT_AN_ID
    for more in (b"\0", b" ", b"a", long):
        assert FORMS.parse_long(long + more) == NOT_AN_ID
        assert FORMS.parse_hex(hexed + more) == NOT_AN_ID


@given(st.binary(min_size=0, max_size=60))
def test_the_parsers_accept_any_bytes_without_an_exception(text: bytes) -> None:
    assert FORMS.parse_long(text) == NOT_AN_ID
    assert FORMS.parse_hex(text) == NOT_AN_ID
    assert FORMS.parse_long((b"D-4e6f6465-" + text)[:40].ljust(40, b"=")) == NOT_AN_ID


@given(st.binary(min_size=16, max_size=16))
def test_a_guessed_hex_id_is_invalid(raw: bytes) -> None:
    assert FORMS.parse_hex(raw.hex().encode()) == NOT_AN_ID


def test_the_parser_of_one_form_rejects_the_other() -> None:
    assert FORMS.parse_long(FORMS.hex(7)) == NOT_AN_ID
    assert FORMS.parse_hex(FORMS.long(7, 1)) == NOT_AN_ID


def test_an_id_of_another_node_is_invalid() -> None:
    other_name, other_key = IdForms(b"4e6f6466", KEY), IdForms(b"4e6f6465", KEY[::-1])
    for job_id in SOME_IDS:
        assert FORMS.parse_long(other_name.long(job_id, 1)) == NOT_AN_ID
        assert FORMS.parse_long(other_key.long(job_id, 1)) == NOT_AN_ID
        assert FORMS.parse_hex(other_key.hex(job_id)) == NOT_AN_ID


def test_an_id_with_upper_case_digits_is_invalid() -> None:
    """A job has exactly one id, so that clients can compare ids as text."""
    hexed = next(text for text in map(FORMS.hex, range(50)) if text != text.upper())
    assert FORMS.parse_hex(hexed.upper()) == NOT_AN_ID
    assert FORMS.parse_long(FORMS.long(7, 0xABCD)[:36] + b"ABCD") == NOT_AN_ID


def test_neighbouring_ids_have_different_external_forms() -> None:
    texts = [FORMS.hex(first_id(1) + n) for n in range(1_000)]
    assert len({text[:8] for text in texts}) > 990


def test_ids_of_different_epochs_are_disjoint() -> None:
    """The ids of an epoch end before those of the next one start."""
    for epoch in (1, 2, 1_000, EPOCH_MAX - 1):
        last = first_id(epoch) + (1 << SEQUENCE_BITS) - 1
        assert last < first_id(epoch + 1)
        assert epoch_of(last) == epoch_of(first_id(epoch)) == epoch
    assert first_id(EPOCH_MAX) + (1 << SEQUENCE_BITS) - 1 == 2**63 - 1


@pytest.mark.parametrize("epoch", [0, -1, EPOCH_MAX + 1])
def test_an_epoch_that_does_not_fit_is_refused(epoch: int) -> None:
    with pytest.raises(AssertionError):
        first_id(epoch)


@given(st.one_of(st.integers(0, DURATION_MS_MAX), st.just(NEVER)))
def test_the_ttl_class_is_odd_exactly_if_a_job_may_be_delivered_again(ttl_ms: int) -> None:
    again, once = ttl_class(ttl_ms, False), ttl_class(ttl_ms, True)
    assert again % 2 == 1 and once % 2 == 0
    for shown in (again, once):
        assert 0 <= shown <= 0xFFFF
        assert abs(shown - min(ttl_ms // 60_000, 0xFFFF)) <= 1


@pytest.mark.parametrize("node", [b"", b"short", b"too long for a node"])
def test_a_node_name_of_the_wrong_length_is_refused(node: bytes) -> None:
    with pytest.raises(AssertionError):
        IdForms(node, KEY)


@pytest.mark.parametrize("key", [b"", b"k" * 15, b"k" * 65])
def test_a_key_that_is_too_short_or_too_long_is_refused(key: bytes) -> None:
    with pytest.raises(AssertionError):
        IdForms(b"4e6f6465", key)
