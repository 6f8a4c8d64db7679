"""The tubes that a user may use, as a list of glob patterns.

An empty list matches no tube. `EVERY_TUBE` is the only way to allow all of them, so a list that lost its entries can
never grant more than it did before.
"""

from __future__ import annotations

from typing import Final

from penstock.core.glob import Glob

_EVERY: Final = b"*"


class TubePatterns:
    """Patterns of tube names. A tube is allowed if one of them matches its whole name."""

    texts: list[bytes]
    any_tube: bool  # One of the patterns is `*`.
    _globs: list[Glob]  # One for each pattern, compiled at the first match.

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self.any_tube = _EVERY in texts
        self._globs = []

    def match(self, tube: bytes) -> bool:
        """Return whether the tube is allowed."""
        if self.any_tube:
            return True
        # A name is bytes: each byte is one character here.
        name = tube.decode("latin-1")
        while len(self._globs) < len(self.texts):
            self._globs.append(Glob(self.texts[len(self._globs)].decode("latin-1")))
        for glob in self._globs:
            if glob.matches(name):
                return True
        return False

    def add(self, text: bytes) -> None:
        """Allow the tubes that one more pattern matches."""
        self.texts.append(text)

    def union(self, other: TubePatterns) -> TubePatterns:
        """Return patterns that allow what either of the two allows."""
        if self.any_tube:
            return self
        if other.any_tube:
            return other
        return TubePatterns([*self.texts, *[text for text in other.texts if text not in self.texts]])


EVERY_TUBE: Final = TubePatterns([_EVERY])
