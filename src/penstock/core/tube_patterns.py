r"""Glob patterns, and the list of patterns that says which tubes a user may use.

Patterns are those of Redis and Disque: `*`, `?`, `[abc]`, `[^a-z]`, and `\` to escape a character. Matching stores only
one place to backtrack to, behind the last star. Therefore it is never exponential: the number of steps is at most the
length of the name times that of the pattern.

An empty list matches no tube. All tubes are allowed only by the pattern `*`, as in `EVERY_TUBE`. A list that lost its
entries therefore never allows more tubes than before.
"""

from __future__ import annotations

from typing import Final

_EVERY: Final = b"*"


class Glob:
    def __init__(self, pattern: str) -> None:
        self._parts = _parts(pattern)

    def matches(self, name: str) -> bool:
        parts = self._parts
        at = part = 0
        behind_star = -1  # The part to backtrack to. The star before it then matches one more character.
        star_took = 0
        while at < len(name):
            if part < len(parts) and parts[part] is _STAR:
                part += 1
                behind_star, star_took = part, at
            elif part < len(parts) and parts[part].accepts(name[at]):
                at += 1
                part += 1
            elif behind_star >= 0:
                star_took += 1
                at, part = star_took, behind_star
            else:
                return False
        return all(rest is _STAR for rest in parts[part:])

    def covers(self, other: Glob) -> bool:
        """Return whether this pattern certainly matches every name that `other` matches.

        The parts of `other` are matched like the characters of a name. Some pairs that need a comparison of several
        stars at once are not found. For them the result is False.
        """
        parts, theirs = self._parts, other._parts
        at = part = 0
        behind_star = -1
        star_took = 0
        while at < len(theirs):
            if part < len(parts) and parts[part] is _STAR:
                part += 1
                behind_star, star_took = part, at
            elif part < len(parts) and parts[part].includes(theirs[at]):
                at += 1
                part += 1
            elif behind_star >= 0:
                star_took += 1
                at, part = star_took, behind_star
            else:
                return False
        return all(rest is _STAR for rest in parts[part:])


class _Character:
    """A set of characters: some ranges, or everything outside of them."""

    def __init__(self, ranges: list[tuple[str, str]], negated: bool = False) -> None:
        self._ranges = ranges
        self._negated = negated

    def accepts(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self._ranges) != self._negated

    def includes(self, other: _Character) -> bool:
        """Return whether this set has all characters of `other`. A star has them all, but no set includes a star."""
        if other is _STAR:
            return False
        if len(other._ranges) == 1 and not other._negated and other._ranges[0][0] == other._ranges[0][1]:
            return self.accepts(other._ranges[0][0])
        return all(self.accepts(character) for character in _CHARACTERS if other.accepts(character))


_ANY: Final = _Character([], negated=True)
_STAR: Final = _Character([])  # Any number of characters. `accepts` is not used for it.
# The characters of names in latin-1, in which each byte is one character.
_CHARACTERS: Final = [chr(byte) for byte in range(256)]


def _parts(pattern: str) -> list[_Character]:
    parts: list[_Character] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            if not parts or parts[-1] is not _STAR:
                parts.append(_STAR)
        elif character == "?":
            parts.append(_ANY)
        elif character == "[":
            part, at = _set(pattern, at)
            parts.append(part)
        else:
            if character == "\\" and at < len(pattern):
                character = pattern[at]
                at += 1
            parts.append(_Character([(character, character)]))
    return parts


def _set(pattern: str, at: int) -> tuple[_Character, int]:
    """Parse a character set. Return it, and the position after its closing bracket.

    If there is no closing bracket, the set extends to the end of the pattern.
    """
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\" and at + 1 < len(pattern):
            ranges.append((pattern[at + 1], pattern[at + 1]))
            at += 2
        elif pattern[at + 1 : at + 2] == "-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            ranges.append((low, high))
            at += 3
        else:
            ranges.append((pattern[at], pattern[at]))
            at += 1
    return _Character(ranges, negated), at + 1


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
        """Return patterns that allow every tube that at least one of the two allows."""
        if self.any_tube:
            return self
        if other.any_tube:
            return other
        return TubePatterns([*self.texts, *[text for text in other.texts if text not in self.texts]])

    def covers(self, text: bytes) -> bool:
        """Return whether one of these patterns certainly allows every tube that the pattern `text` matches."""
        if self.any_tube or text in self.texts:
            return True
        wanted = Glob(text.decode("latin-1"))
        for own in self.texts:
            if Glob(own.decode("latin-1")).covers(wanted):
                return True
        return False

    def within(self, texts: list[bytes]) -> TubePatterns:
        """Return patterns that match only tubes which these patterns and one of `texts` match.

        Two patterns that overlap without one covering the other are left out, because no single pattern matches
        exactly what both match.
        """
        wanted = TubePatterns(texts)
        found = {text: None for text in texts if self.covers(text)}
        found.update({own: None for own in self.texts if wanted.covers(own)})
        return TubePatterns(list(found))


EVERY_TUBE: Final = TubePatterns([_EVERY])
