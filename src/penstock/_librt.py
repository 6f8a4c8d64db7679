"""Checks librt, the runtime library of mypyc. Of all compiled modules, this one is imported first.

Compiled code reads the memory of librt's objects directly. Each compiled module therefore compares librt's ABI version
with its own when it is imported, and raises ValueError if they differ. `penstock/__init__.py` imports this module
before all others, so that it can catch this error in one place and say what to do.
"""

from librt.strings import BytesWriter
from librt.vecs import vec
from mypy_extensions import i64


def use_librt() -> int:
    """Call both parts of librt that compiled modules use, because a module checks only the parts that it calls."""
    writer = BytesWriter()
    writer.append(0)
    numbers = vec[i64]([0])
    return len(writer.getvalue()) + len(numbers)
