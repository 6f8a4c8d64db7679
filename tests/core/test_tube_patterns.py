"""Patterns match as in Redis, in bounded time."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.tube_patterns import EVERY_TUBE, Glob, TubePatterns


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


PATTERNS = st.text("ab*?[]^-\\", max_size=6)


@given(PATTERNS, PATTERNS, st.lists(st.text("abc]^-\\", max_size=5), max_size=20))
def test_a_pattern_that_covers_another_matches_all_names_of_it(one: str, other: str, names: list[str]) -> None:
    if Glob(one).covers(Glob(other)):
        assert all(Glob(one).matches(name) for name in names if Glob(other).matches(name))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("*", "*"),
        ("*", ""),
        ("mail.*", "mail.*"),
        ("mail.*", "mail.in*"),
        ("mail.*", "mail.?[ab]"),
        ("*l*", "mail*"),
        ("?", "[^a]"),
        ("[a-d]", "[bc]"),
        ("a*b*", "aab*b?"),
    ],
)
def test_narrower_patterns_are_covered(wide: str, narrow: str) -> None:
    assert Glob(wide).covers(Glob(narrow))


@pytest.mark.parametrize(
    ("one", "other"), [("a*", "*a"), ("mail.*", "mail*"), ("[ab]", "?"), ("[a-c]", "[^d]"), ("?", "*"), ("", "*")]
)
def test_wider_and_overlapping_patterns_are_not_covered(one: str, other: str) -> None:
    assert not Glob(one).covers(Glob(other))


LISTS = st.lists(st.text("ab*?", max_size=4).map(str.encode), max_size=4)


@given(LISTS, LISTS, st.text("ab", max_size=4).map(str.encode))
def test_patterns_within_others_match_no_tube_that_one_side_does_not(
    own: list[bytes], wanted: list[bytes], tube: bytes
) -> None:
    both = TubePatterns(own).within(wanted)
    if both.match(tube):
        assert TubePatterns(own).match(tube) and TubePatterns(wanted).match(tube)


def test_patterns_within_others_keep_the_narrower_ones() -> None:
    own = TubePatterns([b"mail.*", b"q?", b"a*"])
    assert own.within([b"mail.in", b"q*", b"*a", b"other"]).texts == [b"mail.in", b"q?"]
    assert EVERY_TUBE.within([b"x*"]).texts == [b"x*"]
    assert EVERY_TUBE.within([b"*"]).any_tube
    assert not own.within([]).match(b"mail.in")
