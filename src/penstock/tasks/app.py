"""An app: a queue, and the tasks that were registered for it.

    app = penstock.App("penstock://127.0.0.1:7711", version="2026.11")

    @app.task(tube="emails", retry="5x exp(1s..10m)")
    def send(to: str) -> None: ...

    send.put(to="ann@example.org")

The queue is opened with the first put, or by a worker. On a server, each process of a program has its own connection.
A queue in a directory or in memory belongs to one process, which both puts jobs and runs them: see `App.run`.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import math
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack, cast, overload

from penstock import api, api_async
from penstock.client.async_queue import connect_async
from penstock.client.queue import connect
from penstock.client.url import DEFAULT_URL, VARIABLE
from penstock.core.errors import CommandError, InUse, OutOfRange, TubeExists, UnknownTube
from penstock.core.policy import TubePolicy
from penstock.cron.schedule import CatchUp, Schedule
from penstock.cron.scheduler import Scheduler
from penstock.keywords import check_keywords
from penstock.opening import open_async
from penstock.options import Duration, JobOutcome, NewJob, Seconds, TubeOptions, duration_ms, integer
from penstock.tasks import logs
from penstock.tasks.attempt import NO_LINK
from penstock.tasks.batch import TaskBatch
from penstock.tasks.call import ScheduledCall, TaskCall
from penstock.tasks.context import Context, RunningJob
from penstock.tasks.declaration import RESULT_TTL_S, TaskDeclaration, TaskOptions
from penstock.tasks.failures import BadTask
from penstock.tasks.handle import AsyncHandle, Handle
from penstock.tasks.message import TASK, Codec, next_tasks, process_name
from penstock.tasks.middleware import Middleware, Pipeline
from penstock.tasks.steps import Steps, place_of
from penstock.tasks.task import AsyncTask, BaseTask, Task
from penstock.tasks.testing import TestQueue
from penstock.tasks.tubes import DeclaredTube, declared_tubes, is_newer, version_key
from penstock.tasks.workers.process_state import ProcessState
from penstock.tasks.workers.running import run_until_signal
from penstock.tasks.workers.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Handle[Any] | AsyncHandle[Any])

# The number of tasks that a worker runs at the same time.
CONCURRENCY: Final = 10
# How long a worker waits for running tasks when it stops.
DRAIN_S: Final = 30

# How long a worker's session keeps its jobs without a connection: enough for a new process to import the program.
WORKER_GRACE_S: Final = 30

_OPTIONS: Final = frozenset(TaskOptions.__dataclass_fields__) | {"name"}


class TaskDecorator:
    """What `app.task(…)` with options returns: it turns a function into a task."""

    def __init__(self, app: App, name: str | None, options: TaskOptions) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> BaseTask[..., Any]:
        return self._app.register(function, self._name, self._options)


class App:
    """A queue and the tasks that were registered for it.

    `url` is the URL of a server, a directory, or ":memory:". The default is the URL in PENSTOCK_URL, or else the server
    on port 7711 of this machine. `version` is the version of your program, as numbers with dots: a worker of a newer
    version changes the options of existing tubes to those that its tasks declare. `codec` is the format of arguments
    and results. `middleware` runs before and after each put, run and settlement.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        version: str | int = "",
        codec: Codec = "msgpack",
        result_ttl: Duration = RESULT_TTL_S,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self.url = os.fspath(url) if url is not None else os.environ.get(VARIABLE) or DEFAULT_URL
        self.version = str(version)
        if self.version:
            version_key(self.version)
        if codec not in ("msgpack", "json"):
            raise OutOfRange(f"codec is msgpack or json, not {codec!r}")
        self.codec: Codec = codec
        self.tasks: dict[str, BaseTask[..., Any]] = {}
        self.middleware: list[Middleware] = list(middleware)
        self.pipeline = Pipeline(self.middleware)
        self.schedules: list[ScheduledCall] = []
        self._result_ttl = result_ttl
        self._declared: dict[str, TubeOptions] = {}
        self._lock = threading.RLock()
        self._queue: api.Queue | None = None
        self._async_queue: api_async.AsyncQueue | None = None
        self._tubes: dict[str, api.Tube] = {}
        self._async_tubes: dict[str, api_async.AsyncTube] = {}
        self._pid = os.getpid()
        self._test: TestQueue | None = None  # The test whose queue is used.
        self._before_test: list[tuple[api.Queue | None, api_async.AsyncQueue | None, TestQueue | None]] = []
        # In memory there is no history, so an ack is recorded in the handle that waits for it.
        self._handles: weakref.WeakValueDictionary[str, Handle[Any] | AsyncHandle[Any]] | None = (
            weakref.WeakValueDictionary() if self.url == ":memory:" else None
        )

    def __repr__(self) -> str:
        return f"<penstock app at {self.shown_url}, {len(self.tasks)} tasks>"

    @property
    def is_local(self) -> bool:
        """Whether the queue belongs to this process: it is in memory or in a directory."""
        return "://" not in self.url

    @property
    def shown_url(self) -> str:
        """The URL without a user and a password."""
        scheme, found, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}" if found else self.url

    # Declaring

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        tube: str = "tasks",
        retry: str | None = None,
        ttr: Duration | None = None,
        priority: int | None = None,
        key: Callable[..., str] | None = None,
        limit_per_key: int | None = None,
        unique: bool | Callable[..., str] = False,
        timeout: Seconds | None = None,
        result_ttl: Duration = RESULT_TTL_S,
        tags: Sequence[str] = (),
    ) -> TaskDecorator: ...
    def task(self, *functions: Any, **options: Any) -> Any:
        """Register a function as a task: `@app.task`, or with options, `@app.task(tube="emails", ttr=60)`.

        - `name`: the name of the task in jobs. Default: the name of the function.
        - `tube`: the tube of its jobs.
        - `retry`: the retry policy. Default: five attempts with pauses, then bury.
        - `ttr`: seconds that an attempt has between two heartbeats. Default: five minutes.
        - `priority`: jobs with a lower priority are taken first.
        - `key`: a function from the arguments to the key of the job.
        - `limit_per_key`: how many jobs of a key run at the same time.
        - `unique`: put at most one unfinished job with equal arguments (True), or per value of a function of them.
        - `timeout`: seconds that an attempt may take in total.
        - `result_ttl`: seconds for which a result is kept. None: without limit.
        - `tags`: words that tools can show.
        """
        check_keywords("task", options, _OPTIONS)
        name = options.pop("name", None)
        if "tags" in options:
            options["tags"] = tuple(options["tags"])
        decorator = TaskDecorator(self, name, TaskOptions(**{"result_ttl": self._result_ttl, **options}))
        return decorator(*functions) if functions else decorator

    def register(self, function: Callable[..., Any], name: str | None, options: TaskOptions) -> BaseTask[..., Any]:
        """Register a function as a task of this app. `task` is the decorator for it."""
        if not callable(function):
            raise BadTask(f"a task is a function, not {type(function).__name__}")
        name = getattr(function, "__name__", "") if name is None else name
        kind = AsyncTask if asyncio.iscoroutinefunction(function) else Task
        task: BaseTask[..., Any] = kind(self, function, name, options)
        task.check_options()
        known = self.tasks.get(name)
        if known is not None and _origin(known.function) != _origin(function):
            raise BadTask(
                f"two functions have the task name {name!r}: {_origin(known.function)} and {_origin(function)}; "
                "give one of them another name: @app.task(name=…)"
            )
        self.tasks[name] = task
        return task

    def cron(
        self,
        expression: str,
        *,
        name: str | None = None,
        tz: str = "UTC",
        catch_up: CatchUp = "last",
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[T], T]:
        """Put a job of a task at each tick of a cron expression: `@app.cron("*/5 * * * *")` above `@app.task`.

        The schedule is stored in the queue when a worker of this app starts, under `name` (default: the name of the
        task). Each tick puts one job, however many workers run. `tz` is a time zone such as Europe/Berlin. `catch_up`
        is what happens with ticks that were missed while no worker ran: put a job for the last one, for all, or for
        none. `arguments` are those of the task.
        """

        def declare(task: T) -> T:
            if not isinstance(task, BaseTask):
                raise BadTask("write @app.cron(…) above @app.task, because it needs a task")
            call: TaskCall[Any] = TaskCall(task, task.signature.bind((), dict(arguments or {})), {})
            self.schedules.append(ScheduledCall(task.name if name is None else name, expression, tz, catch_up, call))
            self.schedules[-1].check()
            return task

        return declare

    async def stored_schedules(self, queue: api_async.AsyncQueue) -> list[Schedule]:
        """Return the schedules of the app as they are stored in the queue."""
        found: list[Schedule] = []
        for each in self.schedules:
            tube = await self._find_or_create(queue, each.call.task.options.tube)
            found.append(each.schedule(tube.policy, self.codec))
        return found

    def tube(self, name: str, **options: Unpack[TubeOptions]) -> None:
        """Declare options of a tube, such as `fair` or `capacity`, besides those that its tasks declare."""
        self._declared[name] = options

    def declared_tubes(self) -> dict[str, DeclaredTube]:
        """Return the tubes that the tasks use, by name."""
        return declared_tubes(self.tasks.values(), self._declared)

    # The queue

    @property
    def queue(self) -> api.Queue:
        """The queue, for synchronous code. The first use opens it or connects to the server."""
        self._check_process()
        if self._queue is None:
            with self._lock:
                if self._queue is None:
                    if self.is_local:
                        self._queue = self.async_queue.sync
                    else:
                        self._queue = connect(self.url)
                    atexit.register(self.close)
        return self._queue

    @property
    def async_queue(self) -> api_async.AsyncQueue:
        """The queue, for asyncio. The first use opens it. A connection to a server is made with the first call."""
        self._check_process()
        if self._async_queue is None:
            with self._lock:
                if self._async_queue is None:
                    self._async_queue = self._open()
        return self._async_queue

    def _open(self) -> api_async.AsyncQueue:
        try:
            return open_async(self.url)
        except InUse:
            raise InUse(
                f"another process uses the queue in {self.url}: a directory belongs to one process. To share it, run "
                f"`penstock serve --dir {self.url}` and give every process the URL penstock://127.0.0.1:7711"
            ) from None

    def testing(self, *, inline: bool = False) -> TestQueue:
        """Replace the queue in a `with` block by one in memory with a clock of its own, for tests.

        `with app.testing() as tasks:` then has `tasks.drain()`, which runs the jobs. With `inline`, each put runs them.
        """
        return TestQueue(self.tasks, self, self.pipeline, self.codec, self._swap, inline)

    def _swap(self, test: TestQueue | None) -> None:
        """Use the queue of a test, or the queue from before the test."""
        with self._lock:
            if test is not None:
                self._before_test.append((self._queue, self._async_queue, self._test))
                self._queue, self._async_queue, self._test = test.queue, test.async_queue, test
            else:
                self._queue, self._async_queue, self._test = self._before_test.pop()
            self._tubes, self._async_tubes = {}, {}
            if self._test is not None or self.url == ":memory:":
                self._handles = weakref.WeakValueDictionary()

    def _check_process(self) -> None:
        """Forget the queues of the parent process after a fork, if they are connections to a server."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if not self.is_local:
                self._lock = threading.RLock()
                self._queue, self._async_queue = None, None
                self._tubes, self._async_tubes = {}, {}

    def close(self) -> None:
        """Close the queue that synchronous code uses. The next use opens it again."""
        atexit.unregister(self.close)
        with self._lock:
            queue, self._queue, self._async_queue = self._queue, None, None
            self._tubes, self._async_tubes = {}, {}
        if queue is not None and self._pid == os.getpid():
            queue.close()

    async def aclose(self) -> None:
        """Close the queue that asyncio code uses. The next use opens it again."""
        queue, self._async_queue = self._async_queue, None
        self._async_tubes = {}
        if self.is_local:
            self._queue, self._tubes = None, {}
            atexit.unregister(self.close)
        if queue is not None:
            await queue.close()

    # Putting

    def put(self, call: TaskCall[R]) -> Handle[R]:
        """Put the job of a call: `app.put(send.call(to="ann@example.org"))`. Return its handle."""
        tube = self.task_tube(call.task.options.tube)
        body, options = call.prepared(tube.policy, self.codec)
        self.pipeline.before_put(call, cast("dict[str, str | bytes]", options["headers"]))
        job = tube.put(body, **options)
        self.pipeline.after_put(call, job.id)
        return self._done(Handle(self.queue, job, call.task, self._steps(call, job.id)))

    async def aput(self, call: TaskCall[R]) -> AsyncHandle[R]:
        """Put the job of a call, for asyncio. Return its handle."""
        tube = await self.async_task_tube(call.task.options.tube)
        body, options = call.prepared(tube.policy, self.codec)
        self.pipeline.before_put(call, cast("dict[str, str | bytes]", options["headers"]))
        job = await tube.put(body, **options)
        self.pipeline.after_put(call, job.id)
        return await self._adone(AsyncHandle(self.async_queue, job, call.task, self._steps(call, job.id)))

    def put_many(self, calls: Iterable[TaskCall[R]]) -> list[Handle[R]]:
        """Put a job for each call. The jobs of one tube are put together, all or none of them."""
        listed = list(calls)
        handles: dict[int, Handle[R]] = {}
        for name, places in _by_tube(listed).items():
            tube = self.task_tube(name)
            jobs = tube.put_many([self._new_job(listed[at], tube.policy) for at in places])
            for at, job in zip(places, jobs, strict=True):
                self.pipeline.after_put(listed[at], job.id)
                handles[at] = self._kept(Handle(self.queue, job, listed[at].task, self._steps(listed[at], job.id)))
        if self._test is not None:
            self._test.after_put()
        return [handles[at] for at in range(len(listed))]

    async def aput_many(self, calls: Iterable[TaskCall[R]]) -> list[AsyncHandle[R]]:
        """Put a job for each call, for asyncio. The jobs of one tube are put together, all or none of them."""
        listed = list(calls)
        handles: dict[int, AsyncHandle[R]] = {}
        for name, places in _by_tube(listed).items():
            tube = await self.async_task_tube(name)
            jobs = await tube.put_many([self._new_job(listed[at], tube.policy) for at in places])
            for at, job in zip(places, jobs, strict=True):
                self.pipeline.after_put(listed[at], job.id)
                handle = AsyncHandle(self.async_queue, job, listed[at].task, self._steps(listed[at], job.id))
                handles[at] = self._kept(handle)
        if self._test is not None:
            await self._test.after_aput()
        return [handles[at] for at in range(len(listed))]

    def _new_job(self, call: TaskCall[Any], policy: TubePolicy) -> NewJob:
        body, options = call.prepared(policy, self.codec)
        self.pipeline.before_put(call, cast("dict[str, str | bytes]", options["headers"]))
        return NewJob(body, **options)

    def batch(self, name: str, *, then: Sequence[TaskCall[Any]] = (), expire: Seconds | None = None) -> TaskBatch:
        """Return a batch: `with app.batch("crawl 7", then=[report.call()]) as batch: batch.put(fetch.call(url))`.

        The calls of `then` are put exactly once, when the block has ended and all jobs of the batch have ended. If this
        does not happen within `expire` seconds after the last put (a week if None), they are discarded.
        """
        return TaskBatch(self, name, then, expire)

    def callback(self, call: TaskCall[Any]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put later."""
        tube = self.task_tube(call.task.options.tube)
        return tube.name, self._new_job(call, tube.policy)

    async def acallback(self, call: TaskCall[Any]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put later, for asyncio."""
        tube = await self.async_task_tube(call.task.options.tube)
        return tube.name, self._new_job(call, tube.policy)

    async def follow_up(self, call: TaskCall[Any], headers: Mapping[str, str]) -> tuple[str, NewJob]:
        """Return the tube and the job of a call that is put when a task succeeds, with more headers."""
        name = call.task.options.tube
        tube = await self.async_task_tube(name)
        return name, self._new_job(call.with_headers(headers), tube.policy)

    def _done(self, handle: H) -> H:
        """Return the handle of a job that was put. If tasks run inline, run the job first."""
        self._kept(handle)
        if self._test is not None:
            self._test.after_put()
        return handle

    async def _adone(self, handle: H) -> H:
        """Return the handle of a job that was put. If tasks run inline, run the job first."""
        self._kept(handle)
        if self._test is not None:
            await self._test.after_aput()
        return handle

    def _kept(self, handle: H) -> H:
        """Return the handle. In memory, remember it, so that it learns that its job was acked."""
        if self._handles is not None and not handle.follows_chain:
            self._handles[handle.id] = handle
        return handle

    def acked(self, ids: Iterable[str]) -> None:
        """Record that jobs were acked. A worker in this process calls this if the queue has no history."""
        if self._handles is not None:
            for id in ids:
                if (handle := self._handles.get(id)) is not None:
                    handle.outcome = JobOutcome("acked")

    def handle(self, id: str) -> Handle[Any]:
        """Return the handle of a job by its id. Raises UnknownJob if the job no longer exists."""
        job = self.queue.job(id)
        return Handle(self.queue, job, *self._place_of(job.id, job.headers))

    async def ahandle(self, id: str) -> AsyncHandle[Any]:
        """Return the handle of a job by its id, for asyncio."""
        job = await self.async_queue.job(id)
        return AsyncHandle(self.async_queue, job, *self._place_of(job.id, job.headers))

    def _steps(self, call: TaskCall[Any], id: str) -> Steps | None:
        """Return the steps of the chain that was put as this job; None if it is not a chain."""
        return Steps(id, 1, [call.task, *(self.tasks.get(step["task"]) for step in call.later)]) if call.later else None

    def _place_of(self, id: str, headers: Mapping[str, str]) -> tuple[TaskDeclaration[Any] | None, Steps | None]:
        """Return the task of a job, and the steps of its chain from there on."""
        task = self.tasks.get(headers.get(TASK, ""))
        later = next_tasks(headers)
        first, number, _ = place_of(id, headers)
        return task, Steps(first, number, [task, *(self.tasks.get(name) for name in later)]) if later else None

    # Tubes

    def task_tube(self, name: str) -> api.Tube:
        """Return a tube of the tasks. Create it with the declared options if it does not exist."""
        queue = self.queue
        tube = self._tubes.get(name)
        if tube is None:
            try:
                tube = queue.find_tube(name)
            except UnknownTube:
                try:
                    tube = queue.tube(name, self._policy_of(name))
                except TubeExists:  # Another process has created it meanwhile.
                    tube = queue.find_tube(name)
            self._tubes[name] = tube
        return tube

    async def async_task_tube(self, name: str) -> api_async.AsyncTube:
        """Return a tube of the tasks, for asyncio. Create it with the declared options if it does not exist."""
        queue = self.async_queue
        tube = self._async_tubes.get(name)
        if tube is None:
            tube = self._async_tubes[name] = await self._find_or_create(queue, name)
        return tube

    async def _find_or_create(self, queue: api_async.AsyncQueue, name: str) -> api_async.AsyncTube:
        try:
            return await queue.find_tube(name)
        except UnknownTube:
            try:
                return await queue.tube(name, self._policy_of(name))
            except TubeExists:
                return await queue.find_tube(name)

    def _policy_of(self, name: str) -> TubePolicy:
        declared = self.declared_tubes().get(name) or DeclaredTube(name, {}, False)
        return declared.policy(self.version)

    async def ensure_tubes(self, names: Iterable[str], queue: api_async.AsyncQueue) -> list[api_async.AsyncTube]:
        """Return tubes of the tasks, for a worker. Create those that do not exist, and compare the options of others.

        If this app has a newer version than the app that declared the options of a tube, alter the tube. Otherwise log
        each difference.
        """
        declared = self.declared_tubes()
        tubes: list[api_async.AsyncTube] = []
        for name in names:
            tube = await self._find_or_create(queue, name)
            wanted = declared.get(name)
            if wanted is not None and (differences := wanted.differences(tube.policy)):
                if is_newer(self.version, tube.policy):
                    try:
                        tube = await queue.tube(name, wanted.altered(tube.policy, self.version), alter=True)
                    except CommandError as error:
                        logs.not_altered(name, error)
                    differences = wanted.differences(tube.policy)
                for each in differences:
                    logs.option_differs(name, each)
            tubes.append(tube)
        return tubes

    # Running

    def direct_context(self, task: TaskDeclaration[Any]) -> Context:
        """Return the context of a task that is called directly, without a job."""
        return Context(RunningJob("", task.options.tube, task.name, 1, {}), NO_LINK)

    def run(
        self,
        tubes: Sequence[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        drain: Seconds = DRAIN_S,
    ) -> None:
        """Run a worker in this process until it gets SIGTERM or SIGINT.

        `tubes` are the tubes to take from; the default is those of all tasks. At most `concurrency` tasks run at the
        same time. At the end, the worker waits up to `drain` seconds for the running tasks, and then releases their
        jobs.
        """

        async def run_worker() -> None:
            try:
                await run_until_signal(await self.worker(tubes, concurrency=concurrency, drain=drain))
            finally:
                await self.aclose()

        asyncio.run(run_worker())

    async def worker(
        self, tubes: Sequence[str] | None = None, *, concurrency: int = CONCURRENCY, drain: Seconds = DRAIN_S
    ) -> Worker:
        """Return a worker for the present event loop. `await worker.run()` runs it until `worker.stop()` is called."""
        self.worker_tubes(tubes)
        return self.worker_on(await self.worker_queue(), tubes, concurrency=concurrency, drain=drain)

    async def worker_queue(self) -> api_async.AsyncQueue:
        """Return the queue of a worker: a session of its own, which keeps its jobs while the server restarts."""
        if self.is_local:
            return await self.async_queue.session()
        return connect_async(self.url, grace=WORKER_GRACE_S, retry_for=math.inf, name=f"worker:{process_name()}")

    def worker_on(
        self,
        queue: api_async.AsyncQueue,
        tubes: Sequence[str] | None = None,
        *,
        concurrency: int = CONCURRENCY,
        drain: Seconds = DRAIN_S,
        state: ProcessState | None = None,
    ) -> Worker:
        """Return a worker that uses this queue. It closes the queue at its end."""
        if integer(concurrency, "concurrency") < 1:
            raise OutOfRange("concurrency must be at least 1")
        return Worker(
            queue,
            functools.partial(self.ensure_tubes, self.worker_tubes(tubes)),
            self.tasks,
            middleware=self.pipeline,
            codec=self.codec,
            producer=self,
            concurrency=concurrency,
            drain_s=_seconds(drain, "drain"),
            state=state,
            schedule=self._schedule,
        )

    async def _schedule(self, queue: api_async.AsyncQueue) -> None:
        """Run a scheduler, which puts the jobs of cron schedules."""
        await Scheduler(queue, functools.partial(self.stored_schedules, queue)).run()

    def worker_tubes(self, names: Sequence[str] | None) -> list[str]:
        """Return the tubes that a worker takes from. Raise BadTask for a name that no task uses."""
        known = self.declared_tubes()
        if not known:
            raise BadTask("the app has no tasks; register functions with @app.task before the worker starts")
        if names is None:
            return list(known)
        if unknown := [name for name in names if name not in known]:
            raise BadTask(f"no task uses the tube {unknown[0]!r}; there are {', '.join(known)}")
        return list(names)


def _by_tube(calls: list[TaskCall[R]]) -> dict[str, list[int]]:
    """Return the places of the calls in the list, by the tube of their task."""
    places: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        if not isinstance(call, TaskCall):
            raise BadTask(f"put_many takes calls, such as send.call(…), not {type(call).__name__}")
        places.setdefault(call.task.options.tube, []).append(at)
    return places


def _origin(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"


def _seconds(value: Seconds, what: str) -> float:
    return duration_ms(value, what) / 1_000
