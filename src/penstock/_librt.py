"""The first compiled module that is imported. It uses the parts of librt that the other compiled modules use.

mypyc's code reads the memory of librt's objects directly. A compiled module therefore checks librt's ABI when it is
imported, and fails with ValueError if the version differs. `penstock/__init__.py` imports this module, so that a
librt that does not fit is reported once, with a remedy, and not by the first module that happens to use it.
"""

from librt.strings import BytesWriter
from librt.vecs import vec
from mypy_extensions import i64


def use_librt() -> int:
    """Use both parts of librt, because mypyc checks only the parts that a module uses."""
    writer = BytesWriter()
    writer.append(0)
    numbers = vec[i64]([0])
    return len(writer.getvalue()) + len(numbers)
