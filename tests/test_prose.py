"""Our prose is plain: words that leave open who acts are rare in docstrings, comments and documentation."""

import pytest

from scripts.prose import ROOT, UNCLEAR_MAX, WHAT_MAX, Count, count, markdown_prose, our_files, prose_of, python_prose


def test_unclear_words_are_rare() -> None:
    counted = [(count(text), path) for path in our_files() for text in prose_of(path)]
    unclear, whats = sum((each for each, _ in counted), Count()).per_thousand()
    worst = [str(path.relative_to(ROOT)) for each, path in counted if each.unclear or each.whats > 2]
    assert unclear <= UNCLEAR_MAX and whats <= WHAT_MAX, f"look at {worst[:20]}"


@pytest.mark.parametrize(
    "text", ["Whoever asks waits.", "The client is told.", "Wait so long.", "The same, for two.", "Nobody has it."]
)
def test_an_unclear_word_is_counted(text: str) -> None:
    assert count(text).unclear == 1


def test_what_is_counted_apart() -> None:
    assert count("What it does, and what not.") == Count(words=6, unclear=0, whats=2)


def test_docstrings_and_comments_are_prose_and_strings_are_not() -> None:
    source = '"""A module."""\n\n# A reason.\ntext = "nobody"\n\n\ndef f():\n    """Return it."""\n'
    assert sorted(python_prose(source)) == ["A module.", "A reason.", "Return it."]


def test_code_and_generated_parts_of_a_page_are_no_prose() -> None:
    page = "Words `nobody` here.\n\n```sh\nnobody\n```\n<!-- generated: x -->\nnobody\n<!-- end -->\nEnd.\n"
    (text,) = markdown_prose(page)
    assert "nobody" not in text and "Words" in text and "End." in text
