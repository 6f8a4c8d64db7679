"""The sync and the async face have the same calls with the same parameters, so that the two cannot drift apart."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import penstock
from penstock.options import PutOptions, TubeOptions, altered, draft

PAIRS = [
    (penstock.Queue, penstock.AsyncQueue),
    (penstock.Tube, penstock.AsyncTube),
    (penstock.Job, penstock.AsyncJob),
    (penstock.Stage, penstock.AsyncStage),
]
SPECIAL = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__eq__": "__eq__",
    "__hash__": "__hash__",
}
# The sync face of the same object.
ASYNC_ONLY = {"sync"}


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each; and the annotation, with the classes of both faces called alike."""
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation).replace("Async", ""))
        for parameter in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_public_name_of_a_face_is_in_the_other(sync: type, twin: type) -> None:
    slots = {name for name in public(twin) if inspect.ismemberdescriptor(getattr(twin, name))}
    assert set(public(sync)) == set(public(twin)) - slots - ASYNC_ONLY


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_call_takes_the_same_parameters_in_both_faces(sync: type, twin: type) -> None:
    for name, member in public(sync).items():
        if name not in public(twin):
            continue  # The test above tells.
        if isinstance(member, property):
            assert isinstance(public(twin)[name], property), name
        else:
            assert parameters(member) == parameters(public(twin)[name]), name


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_every_call_says_what_it_does_in_both_faces(sync: type, twin: type) -> None:
    for cls in (sync, twin):
        assert [name for name, member in public(cls).items() if callable(member) and not member.__doc__] == []


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_what_python_calls_by_itself_is_in_both_faces(sync: type, twin: type) -> None:
    for name, counterpart in SPECIAL.items():
        assert (name in vars(sync)) == (counterpart in vars(twin)), name
    assert ("__repr__" in vars(sync)) <= ("__repr__" in vars(twin))


def test_both_faces_are_opened_alike() -> None:
    assert parameters(penstock.open) == parameters(penstock.open_async)


@pytest.mark.parametrize(("options", "function"), [(PutOptions, draft), (TubeOptions, altered)])
def test_every_option_that_is_typed_is_taken_and_every_one_that_is_taken_is_typed(options: Any, function: Any) -> None:
    taken = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert sorted(options.__annotations__) == sorted(taken)
