"""CRC-32 as fast as there is one: zlib-ng's uses what newer processors have for it, Python's own does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zlib import crc32
else:
    try:
        from zlib_ng.zlib_ng import crc32
    except ImportError:
        from zlib import crc32

__all__ = ["crc32"]
