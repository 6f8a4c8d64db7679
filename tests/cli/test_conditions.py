"""Conditions on jobs: results and refused syntax."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from penstock.cli.conditions import CHARACTERS_MAX, condition

JOB: dict[str, Any] = {
    **{
        "id": "D-1",
        "tube": "emails",
        "state": "buried",
        "key": None,
        "priority": -3,
        "age": 12.5,
        "reason": "no route",
    },
    "body": {"user": 42, "plan": {"name": "business"}, "tags": ["a", "b"], "weird key": 1, "none": None, "yes": True},
}


@pytest.mark.parametrize(
    "text",
    [
        "body.user == 42",
        "body.user != 41 and age > 12",
        'body.plan.name == "business"',
        'body["weird key"] == 1',
        'body.tags[0] == "a" and body.tags[-1] == "b"',
        '"a" in body.tags and "c" not in body.tags',
        '"route" in reason',
        'state in ["buried", "delayed"]',
        "10 < age <= 12.5",
        "priority == -3",
        "key == null and body.none == null and body.missing == null",
        "body.yes == true and body.yes",
        "not (body.user == 1 or body.user == 2)",
        "body.user.deeper == null",
        "body.tags[9] == null",
    ],
)
def test_a_condition_is_true(text: str) -> None:
    assert condition(text)(JOB)


@pytest.mark.parametrize(
    "text", ["body.user == 41", "body.user > 'x'", "body.missing > 3", "3 in body.user", "key", "body.tags == 'a'"]
)
def test_a_condition_is_false_if_values_cannot_be_compared(text: str) -> None:
    assert not condition(text)(JOB)


def test_without_a_condition_every_job_matches() -> None:
    assert condition(None)({})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "body.user = 1",
            "body.user ==",
            "nobody == 1",
            "open('x')",
            "body.user.__class__()",
            "lambda: 1",
            "[x for x in 1]",
        ),
        *(
            "body.user is 1",
            "body[key] == 1",
            "1 + 1 == 2",
            "f'{body}'",
            "b'x' == 1",
            "body.user == 1; 2",
            "\0",
            "*body",
        ),
        *("(" * 500 + ")" * 500, "not " * 900 + "key", "x" * (CHARACTERS_MAX + 1), "- 'x' == 1", "1j == 1"),
    ],
)
def test_an_invalid_condition_is_refused_in_one_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        condition(text)
    told = capsys.readouterr().err
    assert end.value.exit_code == 2 and told.startswith("penstock: --where ") and told.count("\n") == 1
