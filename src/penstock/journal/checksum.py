"""CRC-32 in the fastest available implementation: zlib-ng uses newer processor instructions than zlib."""

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
