"""Instrumentation: adds operations (`operations.py`) to the methods of queues, and removes them again.

The methods of the four kinds of queues are replaced, embedded and client, blocking and asyncio. So a queue that is not
instrumented has no extra cost, not even that of a check.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from penstock import api, api_async, embedded, embedded_async
from penstock._extras import not_installed
from penstock._version import __version__
from penstock.client import async_queue, queue

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

    from penstock.telemetry.operations import Operation

_QUEUES: Final = (embedded.Queue, embedded_async.AsyncQueue, queue.Queue, async_queue.AsyncQueue)
_TUBES: Final = (embedded.Tube, embedded_async.AsyncTube, queue.Tube, async_queue.AsyncTube)
_STAGES: Final = (embedded.Stage, embedded_async.AsyncStage, queue.Stage, async_queue.AsyncStage)
_JOBS: Final = (embedded.Job, embedded_async.AsyncJob, queue.Job, async_queue.AsyncJob)

_SETTLING: Final = ("ack", "nack", "release", "requeue", "bury", "done")


class _State:
    """What `instrument` has changed."""

    tracer: Tracer | None = None
    originals: Final[list[tuple[type, str, Any]]] = []
    # The open spans of jobs that are used as context managers, by the identity of the handle.
    open: Final[dict[int, AbstractContextManager[Any]]] = {}


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Add spans to all queues of this process. A second call has no effect.

    Without `tracer_provider`, the spans go to the provider of the program, even if it is set later. Raise ImportError
    if the package opentelemetry-api is not installed.
    """
    if _State.tracer is not None:
        return
    try:
        from penstock.telemetry import operations
        from penstock.telemetry.context import is_traced
    except ImportError as error:
        raise ImportError(not_installed("opentelemetry-api", "telemetry")) from error
    tracer = _State.tracer = operations.tracer_of(tracer_provider, __version__)

    def put(handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
        return operations.PutOperation(tracer, "put", handle, handle.name, kwargs) if is_traced() else None

    def stage(handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
        if not is_traced():
            return None
        tube = kwargs.get("tube", args[0] if args else "")
        return operations.PutOperation(tracer, "put", handle, _name_of(tube), kwargs)

    def take(handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
        return operations.TakeOperation(tracer, "take", handle, handle.name, kwargs)

    def take_from_some(handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
        return operations.TakeOperation(tracer, "take", handle, "", kwargs)

    for tube_class in _TUBES:
        for name in ("put", "put_many"):
            _replace(tube_class, name, put)
        for name in ("take", "take_many"):
            _replace(tube_class, name, take)
    for queue_class in _QUEUES:
        _replace(queue_class, "take", take_from_some)
    for stage_class in _STAGES:
        _replace(stage_class, "put_many", stage)
    for job_class in _JOBS:
        for name in _SETTLING:
            _replace(job_class, name, functools.partial(_settle, name))
    for client_class in (queue.Job, async_queue.AsyncJob):
        # The end of a `with` block calls this method, and none of those above.
        _replace(client_class, "_finish", _settle_block)
    _replace_blocks(tracer)


def _settle(word: str, handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
    from penstock.telemetry.operations import SettleOperation

    assert _State.tracer is not None
    return SettleOperation(_State.tracer, word, handle, handle.tube, kwargs)


def _settle_block(handle: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation | None:
    words = args[0].words
    word = words[1 if words[0] == b"JOB" else 0].decode().lower()
    return _settle(word, handle, args, kwargs) if word in _SETTLING else None


def uninstrument() -> None:
    """Remove all spans from the queues of this process."""
    while _State.originals:
        changed, name, original = _State.originals.pop()
        setattr(changed, name, original)
    _State.tracer = None


@contextmanager
def process(job: Any) -> Iterator[None]:
    """Make a span for the processing of a taken job the current span: `with penstock.telemetry.process(job):`.

    A block of `with job:` or `async with job:` has such a span already. Without a call of `instrument`, this does
    nothing.
    """
    with _processing(job):
        yield


def _processing(job: Any) -> AbstractContextManager[Any]:
    if _State.tracer is None:
        return nullcontext()
    from penstock.telemetry.operations import processing

    return processing(_State.tracer, job)


def _replace(
    changed: type, name: str, begin: Callable[[Any, tuple[Any, ...], dict[str, Any]], Operation | None]
) -> None:
    """Replace a method by one that runs in the operation that `begin` returns, or without one if that is None."""
    from penstock.telemetry.operations import is_inside

    original = getattr(changed, name)

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            operation = None if is_inside() else begin(self, args, kwargs)
            if operation is None:
                return await original(self, *args, **kwargs)
            with operation:
                result = await original(self, *args, **operation.kwargs)
                operation.finish(result)
                return result

    else:

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            operation = None if is_inside() else begin(self, args, kwargs)
            if operation is None:
                return original(self, *args, **kwargs)
            with operation:
                result = original(self, *args, **operation.kwargs)
                operation.finish(result)
                return result

    _set(changed, name, call)


def _replace_blocks(tracer: Tracer) -> None:
    """Give the blocks `with job:` and `async with job:` a span of the processing of the job."""
    from penstock.telemetry.operations import processing

    def enter(self: Any) -> Any:
        span = processing(tracer, self)
        span.__enter__()
        _State.open[id(self)] = span
        return self

    async def enter_async(self: Any) -> Any:
        return enter(self)

    _set(api.Job, "__enter__", enter)
    _set(api_async.AsyncJob, "__aenter__", enter_async)
    for job_class in _JOBS:
        is_async = issubclass(job_class, api_async.AsyncJob)
        name = "__aexit__" if is_async else "__exit__"
        original = getattr(job_class, name)
        _set(job_class, name, _exit_async(original) if is_async else _exit(original))


def _exit(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(self: Any, *error: Any) -> Any:
        span = _State.open.pop(id(self), None) or nullcontext()
        try:
            return original(self, *error)
        finally:
            _end(span, error)

    return leave


def _exit_async(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def leave(self: Any, *error: Any) -> Any:
        span = _State.open.pop(id(self), None) or nullcontext()
        try:
            return await original(self, *error)
        finally:
            _end(span, error)

    return leave


def _end(span: AbstractContextManager[Any], error: tuple[Any, ...]) -> None:
    """End a span with the error of the block, which the block itself raises."""
    try:
        span.__exit__(*error)
    except BaseException as raised:
        if raised is not error[1]:
            raise


def _set(changed: type, name: str, value: Any) -> None:
    _State.originals.append((changed, name, vars(changed).get(name, getattr(changed, name))))
    setattr(changed, name, value)


def _name_of(tube: Any) -> str:
    if isinstance(tube, bytes):
        return tube.decode("utf-8", "surrogateescape")
    return tube if isinstance(tube, str) else getattr(tube, "name", "")
