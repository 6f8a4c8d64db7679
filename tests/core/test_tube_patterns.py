"""Patterns match as in Redis, in bounded time."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.tube_patterns import Glob


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_stars_and_question_marks_match_like_fnmatch(pattern: str, name: str) -> None:
    assert Glob(pattern).matches(name) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("[abc]x", "bx", "dx"),
        ("[^abc]x", "dx", "bx"),
        ("[a-c]x", "bx", "dx"),
        ("[c-a]x", "bx", "dx"),
        (r"[\]]x", "]x", "ax"),
        (r"\*", "*", "a"),
        ("\\", "\\", "a"),
        ("[ab", "b", "c"),
        ("a[-]", "a-", "ab"),
        ("max*", "maxclients", "MAXCLIENTS"),
    ],
)
def test_sets_and_escapes(pattern: str, matching: str, other: str) -> None:
    assert Glob(pattern).matches(matching) and not Glob(pattern).matches(other)


def test_a_pattern_with_many_stars_does_not_take_exponential_time() -> None:
    assert not Glob("*a" * 100).matches("a" * 99)
    assert not Glob("*a*a*a*a*a*a*a*a*a*ab").matches("a" * 5_000)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_can_be_used_as_a_pattern(pattern: str, name: str) -> None:
    Glob(pattern).matches(name)
    assert Glob("".join(f"\\{character}" for character in name)).matches(name)
