"""Conditions on jobs: results, refused syntax, and that no text and no value can raise another error."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BadCondition
from penstock.search import conditions
from penstock.search.conditions import CHARACTERS_MAX, DEPTH_MAX, FIELDS, Fields, parse_condition

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


class DictFields(Fields):
    """The fields of a job in a dict."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.read: list[str] = []

    def get(self, field: int) -> Any:
        self.read.append(FIELDS[field])
        return self.values.get(FIELDS[field])


def matches(text: str, job: dict[str, Any] = JOB) -> bool:
    return parse_condition(text).matches(DictFields(job))


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
        "state in ('buried', 'delayed',) and state not in ()",
        "10 < age <= 12.5",
        "priority == -3",
        "key == null and body.none == null and body.missing == null",
        "key == None and body.yes == True",
        "body.yes == true and body.yes",
        "not (body.user == 1 or body.user == 2)",
        "body.user.deeper == null",
        "body.tags[9] == null",
        "not not body.yes",
        "((body.user)) == (42)",
        "(body.user == 42) and\n\t('user' in body)",
        "body.user == 4.2e1 and age == 1.25E+1",
        r"""'\x41\u00e9\n\"\'\\\/' == 'Aé' and reason or "\x41" == 'A'""",
        "body.tags == ['a', 'b']",
    ],
)
def test_a_condition_is_true(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        *("body.user == 41", "body.user > 'x'", "body.missing > 3", "3 in body.user", "key", "body.tags == 'a'"),
        *("body.plan < body.plan", "body.tags in body.plan", "3 in reason", "3 not in body.user", "null < 1"),
        *("1 < age < 5", "[] and true", "body.tags >= 'a'"),
    ],
)
def test_a_condition_is_false_if_values_cannot_be_compared(text: str) -> None:
    assert not matches(text)


def test_a_part_that_does_not_matter_is_not_read() -> None:
    job = DictFields(JOB)
    assert not parse_condition("state == 'ready' and body.user == 42").matches(job)
    assert parse_condition("state == 'buried' or body.user == 42").matches(job)
    assert job.read == ["state", "state"]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "body.user = 1", "body.user ==", "nobody == 1", "open('x')", "body.user.__class__()"),
        *("lambda: 1", "[x for x in 1]", "body.user is 1", "body[key] == 1", "1 + 1 == 2", "f'{body}'", "b'x' == 1"),
        *("body.user == 1; 2", "\0", "*body", "(" * 500 + ")" * 500, "not " * 900 + "key", "- 'x' == 1", "1j == 1"),
        *(
            "x" * (CHARACTERS_MAX + 1),
            "body.",
            "body[",
            "body[1",
            "body[-]",
            "'x",
            '"x\n"',
            "'\\q' == 1",
            "state state",
        ),
        *("(state == 1) == 2", "[state == 1] == 2", "not", "and", "state in", "state not 1", "[1", "(1", "1_000 == 1"),
        *("0x10 == 16", "body.1 == 2", "#", "- -1 == 1", "()()", "--1 == 1", "[" * 60 + "]" * 60, "state state"),
    ],
)
def test_an_invalid_condition_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadCondition) as refusal:
        parse_condition(text)
    assert refusal.value.code == "BADCONDITION" and "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_a_condition_may_be_as_deep_as_the_limit() -> None:
    assert matches("(" * DEPTH_MAX + "body.user" + ")" * DEPTH_MAX + " == 42")
    assert matches("not " * DEPTH_MAX + "body.yes")
    with pytest.raises(BadCondition, match="nested"):
        parse_condition("(" * (DEPTH_MAX + 1) + "key" + ")" * (DEPTH_MAX + 1))


def test_a_field_has_the_number_of_its_place_in_the_list() -> None:
    for number, name in enumerate(FIELDS):
        assert getattr(conditions, name.upper()) == number


# ---- Any text and any value ------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        *("body", "state", "age", ".", "x", "[", "]", "(", ")", ",", "1", "-", "2.5", "'a'", '"b"', "==", "!=", "<"),
        *("<=", ">", ">=", "in", "not", "and", "or", "true", "null", " ", "\\", "é", "0"),
    ]
)


@given(st.text(max_size=40) | st.lists(WORDS, max_size=14).map(" ".join) | st.lists(WORDS, max_size=9).map("".join))
def test_no_text_raises_another_error(text: str) -> None:
    try:
        condition = parse_condition(text)
    except BadCondition:
        return
    condition.matches(DictFields(JOB))


@given(VALUES, VALUES, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
def test_a_comparison_is_that_of_python_or_false(left: Any, right: Any, sign: str) -> None:
    python = {
        **{"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt},
        **{">=": operator.ge, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b},
    }[sign]
    try:
        expected = python(left, right)
    except TypeError:
        expected = False
    if sign not in ("==", "!=", "in", "not in") and (isinstance(left, list) or isinstance(right, list)):
        expected = False  # Lists have no order.
    assert matches(f"body.left {sign} body.right", {"body": {"left": left, "right": right}}) == expected


@given(st.text(max_size=20))
def test_any_text_can_be_written(value: str) -> None:
    written = "".join(f"\\u{ord(each):04x}" if ord(each) < 0x10000 else each for each in value)
    assert matches(f"body == '{written}'", {"body": value})
    assert matches("body == " + repr(value), {"body": value}) if value.isprintable() else True


@given(st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_can_be_written(value: float) -> None:
    assert matches(f"body == {value!r}", {"body": value})
