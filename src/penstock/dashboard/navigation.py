"""The pages: their addresses, their names in the navigation, and the keys that open them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Item:
    """A page in the navigation. `g` and `key` open it."""

    page: str
    path: str
    label: str
    key: str


OVERVIEW: Final = Item("overview", "/", "Overview", "o")
HISTORY: Final = Item("history", "/history", "History", "h")
ITEMS: Final = (
    OVERVIEW,
    Item("tubes", "/tubes", "Tubes", "t"),
    Item("jobs", "/jobs", "Jobs", "j"),
    Item("buried", "/buried", "Buried", "b"),
    Item("consumers", "/consumers", "Consumers", "c"),
    Item("cluster", "/cluster", "Cluster", "n"),
    Item("journal", "/journal", "Journal", "l"),
    HISTORY,
    Item("settings", "/settings", "Settings", "s"),
)
