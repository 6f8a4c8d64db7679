"""The sync and the async queue have the same calls with the same parameters."""

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
# Returns the sync queue of the same object.
ASYNC_ONLY = {"sync"}


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind, default and annotation of each parameter. Sync and async classes count as equal."""
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation).replace("Async", ""))
        for parameter in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_sync_and_async_queues_have_the_same_public_names(sync: type, twin: type) -> None:
    slots = {name for name in public(twin) if inspect.ismemberdescriptor(getattr(twin, name))}
    assert set(public(sync)) == set(public(twin)) - slots - ASYNC_ONLY


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_sync_and_async_calls_have_the_same_parameters(sync: type, twin: type) -> None:
    for name, member in public(sync).items():
        if name not in public(twin):
            continue  # The test above reports it.
        if isinstance(member, property):
            assert isinstance(public(twin)[name], property), name
        else:
            assert parameters(member) == parameters(public(twin)[name]), name


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_sync_and_async_calls_have_docstrings(sync: type, twin: type) -> None:
    for cls in (sync, twin):
        assert [name for name, member in public(cls).items() if callable(member) and not member.__doc__] == []


@pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda cls: cls.__name__)
def test_sync_and_async_queues_have_matching_special_methods(sync: type, twin: type) -> None:
    for name, counterpart in SPECIAL.items():
        assert (name in vars(sync)) == (counterpart in vars(twin)), name
    assert ("__repr__" in vars(sync)) <= ("__repr__" in vars(twin))


def test_sync_and_async_queues_are_opened_with_the_same_options() -> None:
    assert parameters(penstock.open) == parameters(penstock.open_async)


@pytest.mark.parametrize(("options", "function"), [(PutOptions, draft), (TubeOptions, altered)])
def test_typed_options_equal_accepted_options(options: Any, function: Any) -> None:
    taken = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert sorted(options.__annotations__) == sorted(taken)
