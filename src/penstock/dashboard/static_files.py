"""The files of the dashboard: style sheets, modules and the icon.

They are read once, and served under an address that contains a digest of all of them. So a browser keeps them until the
next release, and a module can import its neighbours by relative addresses.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """A file, also compressed."""

    media_type: str
    content: bytes
    compressed: bytes


@cache
def static_files() -> dict[str, StaticFile]:
    """Return all files by their paths, for example `js/pages/tubes.js`."""
    found: dict[str, StaticFile] = {}
    _collect(files("penstock.dashboard") / "static", "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            _collect(entry, f"{name}/", found)
        elif media_type := _TYPES.get(name.rpartition(".")[2]):
            content = entry.read_bytes()
            found[name] = StaticFile(media_type, content, gzip.compress(content, mtime=0))


@cache
def digest() -> str:
    """Return a name for the content of all files."""
    hashed = hashlib.sha256()
    for name, file in sorted(static_files().items()):
        hashed.update(f"{name} {len(file.content)}\n".encode() + file.content)
    return hashed.hexdigest()[:12]
