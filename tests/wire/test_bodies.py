"""Bodies of any bytes and any kind can be delivered by every dialect."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.job import BODY_JSON
from penstock.wire.bodies import fields_count, to_fields, to_plain, to_python, to_value
from penstock.wire.msgpack import unpack

# A body of kind JSON, its value over IPROTO, and its value in Python. Bodies above a megabyte are not checked when they
# are put, and msgpack cannot represent all JSON values.
CALLED_JSON: dict[str, tuple[bytes, object, object]] = {
    "a value": (b'{"a": [1, null]}', {"a": [1, None]}, {"a": [1, None]}),
    "invalid JSON": (b"x" * 10, "x" * 10, "x" * 10),
    "empty": (b"", "", ""),
    "invalid UTF-8": (b"\xff\xfe", b"\xff\xfe", b"\xff\xfe"),
    "in another encoding": ("[1]".encode("utf-16"), "[1]".encode("utf-16"), "[1]".encode("utf-16")),
    "too many digits for msgpack": (b"1" * 30, "1" * 30, int("1" * 30)),
    "too many digits for Python": (b"1" * 5_000, "1" * 5_000, "1" * 5_000),
    "too deep for msgpack": (
        b"[" * 65 + b"1" + b"]" * 65,
        "[" * 65 + "1" + "]" * 65,
        json.loads("[" * 65 + "1" + "]" * 65),
    ),
    "at the depth limit": (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64), json.loads("[" * 64 + "]" * 64)),
    "too deep for Python": (b"[" * 5_000, "[" * 5_000, "[" * 5_000),
    "a lone surrogate": (b'"\\ud800"', '"\\ud800"', "\ud800"),
}


@pytest.mark.parametrize(("body", "value", "in_python"), CALLED_JSON.values(), ids=CALLED_JSON)
def test_json_that_cannot_be_converted_is_returned_as_text(body: bytes, value: object, in_python: object) -> None:
    assert unpack(to_value(body, BODY_JSON)) == value
    assert to_fields(body, BODY_JSON) == to_value(body, BODY_JSON)
    assert to_python(body, BODY_JSON) == in_python
    assert to_plain(body, BODY_JSON) == body


@given(st.binary() | st.text().map(lambda text: json.dumps(text).encode()))
def test_any_body_of_kind_json_has_a_value(body: bytes) -> None:
    unpack(to_value(body, BODY_JSON))
    to_python(body, BODY_JSON)
    assert fields_count(body, BODY_JSON) == 1
