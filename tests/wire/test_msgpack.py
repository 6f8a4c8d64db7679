"""msgpack: compared with the msgpack package, and at its limits."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ProtocolError, WrongType
from penstock.wire.msgpack import DEPTH_MAX, VALUES_MAX, Ext, Reader, pack, unpack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text() | st.integers(-100, 100), inner, max_size=20)
    ),
)


def theirs(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


@given(VALUES)
@settings(max_examples=60)
def test_the_msgpack_package_and_this_codec_read_each_other(value: Any) -> None:
    packed = pack(value)
    assert theirs(packed) == value == unpack(packed)
    assert unpack(msgpack.packb(value, use_bin_type=True)) == value
    assert len(packed) == len(msgpack.packb(value, use_bin_type=True))


@given(
    st.binary(max_size=60) | VALUES.map(pack).flatmap(lambda data: st.integers(0, len(data)).map(lambda n: data[:n]))
)
@settings(max_examples=80)
def test_any_bytes_are_a_value_or_a_protocol_error_and_skipping_agrees(data: bytes) -> None:
    try:
        value, length = (reader := Reader(data)).value(), reader.at
    except ProtocolError:
        with pytest.raises(ProtocolError):
            Reader(data).skip()
        return
    skipping = Reader(data)
    skipping.skip()
    assert skipping.at == length
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\xcf" + bytes(7) + b"\x01", 1),
        (b"\xcf" + b"\xff" * 8, (1 << 64) - 1),
        (b"\xd3" + b"\xff" * 8, -1),
        (b"\xd0\x80", -128),
        (b"\xd1\xff\x00", -256),
        (b"\xd2\xff\xff\xff\x00", -256),
        (b"\xcd\xff\xff", 65_535),
        (b"\xce\xff\xff\xff\xff", (1 << 32) - 1),
        (b"\xca" + struct.pack(">f", 1.5), 1.5),
        (b"\xc4\x01\xff", b"\xff"),
        (b"\xa1\xff", "\udcff"),
        (b"\xd8\x02" + bytes(16), Ext(2, bytes(16))),
        (b"\xc7\x03\xffabc", Ext(-1, b"abc")),
        (b"\x81\x91\x01\x02", {(1,): 2}),
        (b"\x81\x81\x01\x02\x03", {((1, 2),): 3}),
    ],
)
def test_every_form_is_read(data: bytes, value: object) -> None:
    assert unpack(data) == value


@pytest.mark.parametrize(
    "data",
    [
        *[
            b"",
            b"\xc1",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xdb\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xff",
        ],
        *[b"\xc9\xff\xff\xff\xff\x01", b"\xcf\x00", b"\x92\x01", b"\x81\x01", b"\xd4", b"\xd4\x01", b"\x01\x01"],
    ],
)
def test_incomplete_values_and_wrong_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(data)


def test_the_depth_of_values_is_limited() -> None:
    assert unpack(b"\x91" * DEPTH_MAX + b"\x01")
    for read in (unpack, lambda data: Reader(data).skip()):
        with pytest.raises(ProtocolError, match="deep"):
            read(b"\x91" * (DEPTH_MAX + 1) + b"\x01")
    nested: list[Any] = []
    for _ in range(DEPTH_MAX):
        nested = [nested]
    with pytest.raises(WrongType, match="deep"):
        pack(nested)


def test_the_number_of_values_is_limited() -> None:
    head = b"\xdd" + struct.pack(">I", VALUES_MAX - 1)
    reader = Reader(head + b"\x01" * (VALUES_MAX - 1))
    reader.skip()
    with pytest.raises(ProtocolError, match="more than"):
        Reader(b"\xdd" + struct.pack(">I", VALUES_MAX) + b"\x01" * VALUES_MAX).skip()


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, object(), {1, 2}, "\ud800"])
def test_types_without_a_msgpack_form_are_refused(value: object) -> None:
    with pytest.raises(WrongType):
        pack(value)
