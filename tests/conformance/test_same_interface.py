"""Every queue implements the public types: the same names with the same parameters, documented once."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import penstock
from penstock import embedded, embedded_async, options
from penstock.client import async_queue, queue
from penstock.client.pipeline import Pipeline
from penstock.keywords import Interface

from .interfaces import settled

IMPLEMENTATIONS = [
    (getattr(penstock, prefix + name), getattr(module, prefix + name))
    for prefix, modules in (("", (embedded, queue)), ("Async", (embedded_async, async_queue)))
    for name in ("Queue", "Tube", "Job", "Stage")
    for module in modules
]
# A server accepts any command, and many in one round trip.
CLIENT_ONLY = {"execute", "pipeline"}
SPECIAL = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__aiter__"}

each_implementation = pytest.mark.parametrize(
    ("public", "own"), IMPLEMENTATIONS, ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)


def members(cls: type) -> dict[str, Any]:
    """Return the methods and properties that users call, and those that Python calls for them."""
    return {
        name: member
        for name, member in inspect.getmembers_static(cls)
        if (name in SPECIAL or not name.startswith("_")) and not inspect.ismemberdescriptor(member)
    }


def shape(member: Any) -> object:
    """Return the kind and the parameters of a member. The return type may be more precise than the public one."""
    if isinstance(member, property):
        return "property"
    parameters = [
        (each.name, each.kind, each.default, re.sub(r"\bapi(_async)?\.", "", str(each.annotation)))
        for each in inspect.signature(member).parameters.values()
    ]
    return (inspect.iscoroutinefunction(member), parameters)


@each_implementation
def test_a_queue_has_every_public_name_and_no_other(public: type, own: type) -> None:
    assert issubclass(own, public)
    assert set(members(own)) - CLIENT_ONLY == set(members(public))


@each_implementation
def test_every_call_has_the_public_parameters(public: type, own: type) -> None:
    for name, member in members(public).items():
        assert shape(members(own)[name]) == shape(member), name


@each_implementation
def test_help_on_every_call_is_that_of_the_public_type(public: type, own: type) -> None:
    for name in members(public):
        documented = inspect.getdoc(getattr(public, name))
        assert documented or name in ("__enter__", "__exit__", "__aenter__", "__aexit__"), name
        assert inspect.getdoc(getattr(own, name)) == documented, name


def test_both_clients_are_connected_alike() -> None:
    assert inspect.signature(penstock.connect).parameters == inspect.signature(penstock.connect_async).parameters


# ---- Misspelt keywords -----------------------------------------------------------------------------------------------

# What a method that collects its keywords is called with, because Python does not complain by itself.
REQUIRED: dict[str, tuple[Any, ...]] = {
    "Queue.tube": ("new",),
    "Tube.put": ("x",),
    "Tube.put_many": (["x"],),
    "Tube.take_many": (1,),
    "Stage.put": ("keywords", "x"),
    "Stage.put_many": ("keywords", ["x"]),
    "Pipeline.put": ("new", "x"),
}


def keywords(method: Any) -> list[str]:
    """Return the names of the parameters of a method, and those of the options that it collects."""
    found: list[str] = []
    for each in list(inspect.signature(method).parameters.values())[1:]:
        if each.kind is each.VAR_KEYWORD:
            found += vars(options)[re.findall(r"\w+", each.annotation)[-1]].__annotations__
        elif each.kind is not each.VAR_POSITIONAL:
            found.append(each.name)
    return found


async def check_every_keyword(handle: Any, public: type) -> int:
    """Call every method of a handle with each of its keywords misspelt. Return the number of calls."""
    count = 0
    for name, member in members(public).items():
        if not inspect.isfunction(member) or name in SPECIAL:
            continue
        for keyword in keywords(member):
            wrong, required = f"{keyword}x", REQUIRED.get(f"{public.__name__}.{name}", ())
            text = rf"^{name}\(\) got an unexpected keyword argument '{wrong}'; did you mean '{keyword}'\?$"
            with pytest.raises(TypeError, match=text):
                await settled(getattr(handle, name)(*required, **{wrong: 1}))
            count += 1
    return count


async def test_every_misspelt_keyword_names_the_method_and_the_closest_keyword(queue: Any) -> None:
    tube = await queue.tube("keywords", "fifottl")
    job = await tube.put("x")
    stage = await settled(queue.stage("keywords"))
    assert await check_every_keyword(queue, penstock.Queue) > 40
    assert await check_every_keyword(tube, penstock.Tube) > 60
    assert await check_every_keyword(job, penstock.Job) > 15
    assert await check_every_keyword(stage, penstock.Stage) > 30
    # No call had an effect.
    assert await queue.tubes() == ["keywords"]
    assert [each.id for each in await tube.jobs("ready")] == [job.id]


async def test_every_misspelt_keyword_of_a_pipeline_names_the_closest_one() -> None:
    assert await check_every_keyword(object.__new__(Pipeline), Pipeline) > 20


@pytest.mark.parametrize("function", [penstock.connect, penstock.connect_async, penstock.open, penstock.open_async])
def test_a_misspelt_keyword_of_a_function_names_the_closest_one(function: Any) -> None:
    text = rf"^{function.__name__}\(\) got an unexpected keyword argument 'gracee'; did you mean 'grace'\?$"
    with pytest.raises(TypeError, match=text):
        function(gracee=1)


def test_a_type_error_of_the_methods_own_code_is_passed_on() -> None:
    class Thing(Interface):
        def call(self, value: int = 0) -> None:
            raise TypeError(f"call() got an unexpected keyword argument {value}")

    with pytest.raises(TypeError, match=r"argument 7$"):
        Thing().call(value=7)
