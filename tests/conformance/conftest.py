"""Runs scenarios: a test that is a coroutine gets an event loop, and its queue is opened inside the loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from .interfaces import FACES, PATIENCE_S, SERVERS, Interface, begin_scenario


@pytest.fixture(scope="session")
def servers() -> Iterator[None]:
    """The servers that scenarios share. They must exit without an error."""
    yield
    SERVERS.stop()


@pytest.fixture(params=FACES)
def face(servers: None, request: pytest.FixtureRequest) -> Interface:
    """One interface after the other."""
    return FACES[request.param]


@pytest.fixture
def queue(face: Interface) -> AbstractAsyncContextManager[Any]:
    """An empty queue. Some interfaces need the loop to open one, so this is replaced when the scenario starts."""
    return face.open()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutines. A scenario that loses a wake-up fails instead of hanging."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(_run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


async def _run(scenario: Any, arguments: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report_exception)
    begin_scenario()
    async with AsyncExitStack() as stack:
        for name, value in arguments.items():
            if isinstance(value, AbstractAsyncContextManager):
                arguments[name] = await stack.enter_async_context(value)
        try:
            # Some scenarios restart a server, or wait for several things.
            async with asyncio.timeout(PATIENCE_S * 6):
                await scenario(**arguments)
        finally:
            await _end_what_still_waits()


async def _end_what_still_waits() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _report_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore exceptions of a failed scenario's tasks that were never retrieved, because its failure is reported."""
    if "never retrieved" not in context["message"]:
        loop.default_exception_handler(context)
