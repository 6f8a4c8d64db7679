"""Cursors: opaque texts that continue a list at the place where a page ended.

A cursor contains the kind of the list, so a cursor of another list is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from penstock.web.refusals import Refused


def write_cursor(kind: str, *place: Any) -> str:
    text = json.dumps([kind, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(kind: str, text: str, *types: type) -> list[Any]:
    """Return the place in a cursor. Raise Refused if it was not made by `write_cursor` with this kind."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise _bad() from None
    if not isinstance(found, list) or len(found) != len(types) + 1 or found[0] != kind:
        raise _bad()
    place = found[1:]
    if not all(type(value) is wanted for value, wanted in zip(place, types, strict=True)):
        raise _bad()
    return place


def _bad() -> Refused:
    return Refused("BADCURSOR", "this cursor is not one that the API returned for this list")
