"""The clients have the interface of the embedded queue: the same names with the same parameters and results."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import penstock
from penstock import embedded, embedded_async
from penstock.client import async_queue, queue

PAIRS = [
    (penstock.Queue, queue.Queue),
    (penstock.Tube, queue.Tube),
    (penstock.Job, queue.Job),
    (embedded.Stage, queue.Stage),
    (embedded_async.AsyncStage, async_queue.AsyncStage),
    (penstock.AsyncQueue, async_queue.AsyncQueue),
    (penstock.AsyncTube, async_queue.AsyncTube),
    (penstock.AsyncJob, async_queue.AsyncJob),
]
# `sync` returns the same object for threads. `execute` sends any command, and `pipeline` several in one round trip.
EMBEDDED_ONLY = {"sync"}
CLIENT_ONLY = {"execute", "pipeline"}


def public(cls: type) -> dict[str, Any]:
    """Return the public names and the special methods of a class."""
    special = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__aiter__", "__eq__", "__hash__"}
    return {
        name: member
        for name, member in vars(cls).items()
        if (name in special or not name.startswith("_")) and not inspect.ismemberdescriptor(member)
    }


def shape(member: Any) -> object:
    if isinstance(member, property):
        assert member.fget is not None
        return ("property", inspect.signature(member.fget).return_annotation)
    return (inspect.iscoroutinefunction(member), inspect.signature(member))


@pytest.mark.parametrize(("embedded", "client"), PAIRS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_client_has_every_name_of_the_embedded_queue(embedded: type, client: type) -> None:
    assert set(public(embedded)) - EMBEDDED_ONLY == set(public(client)) - CLIENT_ONLY


@pytest.mark.parametrize(("embedded", "client"), PAIRS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_call_has_the_same_parameters_and_result(embedded: type, client: type) -> None:
    for name, member in public(embedded).items():
        if name not in EMBEDDED_ONLY and member is not None:
            assert shape(public(client)[name]) == shape(member), name


@pytest.mark.parametrize("client", [client for _, client in PAIRS], ids=lambda cls: cls.__name__)
def test_every_call_has_a_docstring(client: type) -> None:
    assert [name for name, member in public(client).items() if callable(member) and not member.__doc__] == [
        name for name in public(client) if name in ("__enter__", "__aenter__", "__eq__", "__hash__")
    ] or all(member.__doc__ for name, member in public(client).items() if not name.startswith("_"))


def test_both_clients_are_connected_alike() -> None:
    assert inspect.signature(penstock.connect).parameters == inspect.signature(penstock.connect_async).parameters
