"""The options of `xqueue.upgrade`, and the errors for wrong ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import policy as p
from penstock.core.limits import NEVER, UNSET
from penstock.dialects.xqueue.options import XqueueError, as_upgrade_options, options_of, policy_of, read_options

from .spaces import FIELDS, FORMAT, SpaceEngine, options, refused

NO_RUNAT = {"format": FORMAT, "fields": {"status": "status"}}
STRING_KEY = [{"name": "id", "type": "string"}, *FORMAT[1:]]


def but(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**base, **changes}


REFUSED: list[tuple[Any, str]] = [
    (5, "options must be a table, not number"),
    ({}, "opts.fields required"),
    ({"format": FORMAT}, "opts.fields required"),
    ({"fields": {}}, "status field required"),
    ({"fields": [1]}, "opts.fields must be a table, not table"),
    ({"fields": {"status": "nope"}, "format": FORMAT}, "unknown field nope for status"),
    ({"fields": {"status": "status"}}, "unknown field status for status"),
    ({"fields": {"status": 99}, "format": FORMAT}, "unknown field 99 for status"),
    ({"fields": {"status": 0}}, "unknown field 0 for status"),
    ({"fields": {"status": True}}, "wrong type boolean for status, a field is a name or a number"),
    ({"fields": {"status": 2.5}}, "wrong type number for status, a field is a name or a number"),
    ({"fields": {"status": "id"}, "format": FORMAT}, "type mismatch for field status, expected string, got unsigned"),
    (
        {"fields": {"status": "status", "runat": "name"}, "format": FORMAT},
        "type mismatch for field runat, expected number, got string",
    ),
    (
        {"fields": {"status": "status", "priority": "name"}, "format": FORMAT},
        "type mismatch for field priority, expected unsigned, got string",
    ),
    (
        {"fields": {"status": "status", "tube": "runat"}, "format": FORMAT},
        "type mismatch for field tube, expected string, got number",
    ),
    ({"fields": {"status": 2, "runat": 2}}, "field 2 is used twice in opts.fields"),
    ({"fields": {"status": 1}}, "field 1 is part of the primary key, so it cannot be status"),
    ({"fields": {"status": 2, "colour": 3}}, "unknown queue field 'colour'; use one of status, runat, priority, tube"),
    (
        but(NO_RUNAT, feature={}),
        "unknown option 'feature'; "
        "use one of format, fields, features, primary_key, tube_stats, worker, workers, debug",
    ),
    (but(NO_RUNAT, format=5), "format must be a list, not number"),
    (but(NO_RUNAT, format=[5]), "field 1 of format must be a table or a name, not number"),
    (but(NO_RUNAT, format=[{"type": "string"}]), "field 1 of format has no name"),
    (but(NO_RUNAT, format=["status", "status"]), "Space field 'status' is duplicate"),
    (but(NO_RUNAT, primary_key=[]), "primary_key must have at least one field"),
    (but(NO_RUNAT, primary_key=["id", "id"]), "primary_key has a field twice"),
    (but(NO_RUNAT, primary_key="nope"), "unknown field nope for primary_key"),
    (but(NO_RUNAT, format=[["id", "uuid"], "status"]), "Unknown key type uuid"),
    (but(NO_RUNAT, format=[["id", "map"], "status"]), "Unknown key type map"),
    (but(NO_RUNAT, features={"delayed": True}), "Delayed feature requires runat field and index"),
    (but(NO_RUNAT, features={"zombie": True}), "feature zombie requires runat field and index"),
    (but(NO_RUNAT, features={"ttl": 5}), "feature ttl requires runat field and index"),
    (but(NO_RUNAT, features={"ttr": True}), "feature ttr requires runat field and index"),
    (options(keep=True, zombie=5), "features keep and zombie are mutually exclusive"),
    (options(ttr=None, not_check_session=True), "feature not_check_session requires ttr"),
    (options(keep=1), "feature keep must be true or false, not number"),
    (options(buried="yes"), "feature buried must be true or false, not string"),
    (options(ttl="5"), "feature ttl must be true or a number of seconds above 0"),
    (options(ttl=0), "feature ttl must be true or a number of seconds above 0"),
    (options(ttr=-1), "feature ttr must be true or a number of seconds above 0"),
    (options(zombie=float("nan")), "feature zombie must be true or a number of seconds above 0"),
    (options(zombie=float("inf")), "feature zombie must be finite; use keep to store tasks without limit"),
    (
        options(nope=True),
        "unknown feature 'nope'; use one of id, retval, buried, delayed, keep, zombie, ttl, ttr, not_check_session",
    ),
    (
        options(id="serial"),
        "Wrong type for features.id 'serial', may be [auto_increment, time64, uuid, required, function]",
    ),
    (options(id=7), "Wrong type for features.id 7, may be [auto_increment, time64, uuid, required, function]"),
    (options(id="uuid"), "For uuid string pk is mandatory"),
    (but(options(id="time64"), format=STRING_KEY), "For time64 numeric pk is mandatory"),
    (but(options(id="auto_increment"), format=STRING_KEY), "For auto_increment numeric pk is mandatory"),
    (
        but(options(), primary_key=["id", "name"]),
        "features.id auto_increment needs a primary key of one field; use required or a function",
    ),
    (options(retval="map"), "features.retval must be 'table' or 'tuple', not 'map'"),
    ({"fields": {"status": 2}, "features": {"retval": "table"}}, "features.retval 'table' requires space format"),
    (but(NO_RUNAT, tube_stats=["A"]), "tube_stats requires tube field"),
    (but(options(), tube_stats=[5]), "tube_stats must be names of tubes, not number"),
    (but(options(), tube_stats="A"), "tube_stats must be a list, not string"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_invalid_options_are_refused_with_these_errors(asked: Any, words: str) -> None:
    stand = SpaceEngine()
    assert refused(stand.upgrade, asked) == words
    assert not stand.engine.tubes


def test_an_unknown_field_type_is_named_in_the_error() -> None:
    words = refused(read_options, {"fields": {"status": 2}, "format": ["id", ["status", "colour"]]})
    assert words.startswith("field status of format has unknown type 'colour'; use one of any, unsigned, ")


def test_features_are_the_policy_of_the_tube() -> None:
    policy = policy_of(read_options(options(ttl=60, ttr=1.5, zombie=5, not_check_session=True)))
    assert (policy.order, policy.keys, policy.key_stats) == (p.BY_PRIORITY, p.KEYS_TAGGED, ("A", "B", "C"))
    assert (policy.has_ttl, policy.default_ttl_ms, policy.has_ttr, policy.default_ttr_ms) == (True, 60_000, True, 1_500)
    assert (policy.after_ack, policy.zombie_ms, policy.owner) == (p.LINGERS, 5_000, p.ANYONE)
    plain = policy_of(read_options(NO_RUNAT))
    assert (plain.order, plain.keys, plain.owner, plain.after_ack) == (p.BY_ARRIVAL, p.KEYS_NONE, p.SESSION, p.GOES)
    assert (plain.has_ttl, plain.has_ttr, plain.has_delay, plain.has_bury) == (False, False, False, True)
    switched_on = policy_of(read_options(options(zombie=True, buried=False)))
    assert (switched_on.default_ttl_ms, switched_on.default_ttr_ms, switched_on.zombie_ms) == (NEVER, NEVER, UNSET)
    assert not switched_on.has_bury


@pytest.mark.parametrize(
    ("asked", "id", "retval"),
    [
        (NO_RUNAT, "auto_increment", "table"),
        (but(NO_RUNAT, format=STRING_KEY), "uuid", "table"),
        (but(NO_RUNAT, primary_key=["id", "name"]), "required", "table"),
        ({"fields": {"status": 2}}, "uuid", "tuple"),
    ],
)
def test_omitted_options_get_defaults_that_suit_the_space(asked: dict[str, Any], id: str, retval: str) -> None:
    read = read_options(asked)
    assert (read.id, read.retval, read.buried) == (id, retval, True)


def test_all_forms_of_lua_tables_are_accepted() -> None:
    forms = [
        ["id", "status", "data"],
        [["id"], ["status"], ["data"]],
        [{1: "id", 2: "*"}, {1: "status", 2: "any"}, {"name": "data"}],
    ]
    read = {read_options({"format": form, "fields": {"status": "status"}, "features": []}) for form in forms}
    assert len(read) == 1
    assert read_options({"format": {}, "fields": {"status": 2}, "tube_stats": {}}).format == ()
    typed = read_options({"format": [["id", "NUM"], ["status", "STR"]], "fields": {"status": 2}})
    assert [field.type for field in typed.format] == ["unsigned", "string"]


FLAG = st.sampled_from([None, True, False])
TIME = st.sampled_from([None, True, False, 5, 0.25, float("inf")])


@given(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from([None, "auto_increment", "time64", "required", "function"]),
            "retval": st.sampled_from([None, "table", "tuple"]),
            **dict.fromkeys(("buried", "delayed", "keep", "not_check_session"), FLAG),
            **dict.fromkeys(("zombie", "ttl", "ttr"), TIME),
        }
    ),
    st.lists(st.text(max_size=5), max_size=3),
)
def test_a_space_is_noted_with_its_tube_and_read_back_the_same(features: dict[str, Any], stats: list[str]) -> None:
    asked = {"format": FORMAT, "fields": FIELDS, "features": features, "tube_stats": stats}
    try:
        read = read_options(copy.deepcopy(asked))
        policy = policy_of(read)
    except (XqueueError, UnicodeEncodeError):
        return
    assert options_of(policy) == read
    assert read_options(as_upgrade_options(read)) == read


@pytest.mark.parametrize("notes", ["", "x", "[]", "{}", "5", '{"xqueue": 5}', '{"xqueue": {"fields": 1}}', '{"a": 1}'])
def test_notes_of_another_origin_make_no_space(notes: str) -> None:
    assert options_of(p.TubePolicy(type="mine", notes=notes)) is None
