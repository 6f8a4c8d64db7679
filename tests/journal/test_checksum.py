"""Checksums equal those of zlib, with either library."""

from __future__ import annotations

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.checksum import crc32


@given(st.binary(max_size=5_000), st.integers(0, 2**32 - 1))
def test_checksums_equal_those_of_zlib(data: bytes, seed: int) -> None:
    assert crc32(data, seed) == crc32(memoryview(data), seed) == zlib.crc32(data, seed)


def test_checksums_need_only_the_standard_library() -> None:
    code = """
import sys
sys.modules["zlib_ng"] = None
from penstock.journal.checksum import crc32
print(crc32(b"123456789"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{0xCBF43926}\n"
