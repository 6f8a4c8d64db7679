"""Removes the bodies and headers of jobs from a response, if the administrator has hidden them (`--hide-bodies`)."""

from __future__ import annotations

from typing import Any


def without_bodies(value: Any) -> Any:
    """Return a result without bodies and headers. `as` is "hidden" then. Other objects stay as they are."""
    if isinstance(value, list):
        return [without_bodies(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "body" in value and "as" in value:
        return {**value, "body": None, "as": "hidden", "headers": {}}
    return {name: without_bodies(each) for name, each in value.items()}
