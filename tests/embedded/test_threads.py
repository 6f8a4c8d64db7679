"""One queue, many threads: no job is lost or delivered twice, and each waiting call is woken by its event."""

from __future__ import annotations

import gc
import queue as queues
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.errors import InUse
from penstock.host.host import Host
from penstock.host.maintenance.runner import Maintenance
from penstock.host.sleepers import ThreadSleeper
from penstock.journal.log import Log
from penstock.testing import check
from tests.conformance.interfaces import PATIENCE_S

from .stopped_clock import no_time_passes


class Running:
    """A call in a thread of its own. A call that never returns fails its test and does not hang the run."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._answers: queues.SimpleQueue[tuple[Any, BaseException | None]] = queues.SimpleQueue()
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.put((self._call(), None))
        except BaseException as error:
            self._answers.put((None, error))

    def answer(self, within_s: float = PATIENCE_S) -> Any:
        """Return the result or the error of the call, or the code of a refusal."""
        try:
            answer, error = self._answers.get(timeout=within_s)
        except queues.Empty:
            pytest.fail("it still sleeps")
        if isinstance(error, penstock.CommandError):
            return error.code
        if error is not None:
            raise error
        return answer


def asleep(queue: penstock.Queue, count: int) -> None:
    """Wait until `count` calls of a session wait."""
    end = time.monotonic() + PATIENCE_S
    while len(queue._session.connection.waits) != count:
        assert time.monotonic() < end
        time.sleep(0.0005)


@pytest.fixture
def queue() -> Iterator[penstock.Queue]:
    with penstock.open() as queue:
        yield queue


# ---- Many at once ----------------------------------------------------------------------------------------------------


@pytest.fixture
def hurried() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


PRODUCERS, EACH = 4, 600


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("type", "options"),
    [("fifo", {}), ("utubettl", {"key_limit": 2, "fair": True}), ("fifottl", {"capacity": 20})],
    ids=["fifo", "keys", "full"],
)
def test_no_job_is_lost_and_none_comes_twice(queue: penstock.Queue, type: Any, options: Any) -> None:
    tube = queue.tube("busy", type, **options)
    acked: queues.SimpleQueue[int] = queues.SimpleQueue()
    keyed = "key_limit" in options

    def produce(number: int) -> None:
        with queue.session() as session:
            mine = session.tube("busy")
            for index in range(number * EACH, (number + 1) * EACH):
                mine.put(index, timeout=None, **({"key": str(index % 5)} if keyed else {}))

    def consume(seed: int) -> str:
        dice = random.Random(seed)
        session = sessions[seed]
        mine = session.tube("busy")
        while True:
            try:
                jobs = mine.take_many(dice.randint(1, 3), timeout=None)
            except penstock.CommandError as refusal:
                return refusal.code
            for job in jobs:
                way = dice.randrange(8) if job.deliveries == 1 else 7
                if way == 0:
                    job.release()
                elif way == 1:
                    job.nack("again")
                elif way == 2:
                    job.requeue()
                else:
                    job.ack()
                    acked.put(job.body)

    sessions = [queue.session() for _ in range(4)]
    consumers = [Running(lambda seed=seed: consume(seed)) for seed in range(4)]
    producers = [Running(lambda number=number: produce(number)) for number in range(PRODUCERS)]
    for producer in producers:
        producer.answer()
    seen = Counter(acked.get(timeout=PATIENCE_S) for _ in range(PRODUCERS * EACH))
    for session in sessions:
        session.close()
    assert [consumer.answer() for consumer in consumers] == ["CLOSED"] * 4
    assert set(seen.values()) == {1} and len(seen) == PRODUCERS * EACH and acked.empty()
    assert not any(tube.stats().values())
    check(queue._host.engine)


@pytest.mark.usefixtures("hurried")
def test_of_many_unique_puts_at_once_one_is_put(queue: penstock.Queue) -> None:
    tube = queue.tube("unique")
    puts = [Running(lambda: [tube.put("x", unique=str(number)).id for number in range(50)]) for _ in range(4)]
    answers = [put.answer() for put in puts]
    assert all(ids == answers[0] for ids in answers) and tube.stats()["ready"] == 50


@pytest.mark.usefixtures("hurried")
def test_many_puts_at_once_never_fill_a_tube_beyond_its_capacity(queue: penstock.Queue) -> None:
    tube = queue.tube("full", "limfifottl", capacity=7)

    def put() -> int:
        refused = 0
        for _ in range(50):
            try:
                tube.put("x")
            except penstock.CommandError as refusal:
                refused += refusal.code == "FULL"
        return refused

    puts = [Running(put) for _ in range(4)]
    assert sum(put.answer() for put in puts) == 200 - 7
    assert tube.stats()["ready"] == 7


@pytest.mark.usefixtures("hurried")
def test_an_id_is_the_same_in_every_thread(queue: penstock.Queue) -> None:
    jobs = queue.tube("ids").put_many(range(600))
    ids = [job.id for job in jobs]

    def read(seed: int) -> int:
        dice = random.Random(seed)
        places = [dice.randrange(len(jobs)) for _ in range(4_000)]
        return sum(jobs[place].id != ids[place] for place in places)

    readers = [Running(lambda seed=seed: read(seed)) for seed in range(4)]
    assert [reader.answer() for reader in readers] == [0] * 4
    assert [job.id for job in jobs] == ids


# ---- Waiting and waking ----------------------------------------------------------------------------------------------


def test_a_waiting_take_is_woken_by_a_put_of_another_thread(queue: penstock.Queue) -> None:
    tube = queue.tube("wake")
    for timeout in (None, 60):
        take = Running(lambda timeout=timeout: tube.take(timeout=timeout))
        asleep(queue, 1)
        job = Running(lambda: tube.put("x")).answer()
        assert take.answer() == job


def test_a_waiting_take_is_woken_by_the_end_of_a_delay(queue: penstock.Queue) -> None:
    tube = queue.tube("wake")
    for delay_is_set_first in (True, False):
        if delay_is_set_first:
            tube.put("x", delay=0.05)
        take = Running(lambda: tube.take(timeout=None))
        if not delay_is_set_first:
            asleep(queue, 1)
            tube.put("x", delay=0.05)
        take.answer().ack()


def test_a_waiting_take_is_woken_by_the_end_of_a_ttr(queue: penstock.Queue) -> None:
    tube = queue.tube("wake", "fifottl")
    tube.put("x", ttr=0.05)
    assert queue.session().tube("wake").take() is not None
    assert Running(lambda: tube.take(timeout=None)).answer().deliveries == 2


def test_waiting_calls_do_not_poll(queue: penstock.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = queue._host
    asked = []
    how_long = host.sleep_ms
    monkeypatch.setattr(host, "sleep_ms", lambda *args: asked.append(args) or how_long(*args))
    assert queue.tube("quiet").take(timeout=0.1) is None
    assert len(asked) <= 3


def test_a_later_timeout_still_ends_after_the_timekeeper_has_left(queue: penstock.Queue) -> None:
    tube = queue.tube("quiet")
    sleepers = []
    with no_time_passes(queue):
        for number, timeout in enumerate((0.05, 0.15, 0.1), start=1):
            sleepers.append(Running(lambda timeout=timeout: tube.take(timeout=timeout)))
            asleep(queue, number)
    assert [sleeper.answer() for sleeper in sleepers] == [None, None, None]


def test_a_timeout_still_ends_if_the_timekeeper_and_its_successor_are_served_at_once(queue: penstock.Queue) -> None:
    busy, quiet = queue.tube("busy"), queue.tube("quiet")
    for _ in range(20):
        with no_time_passes(queue):
            served = [Running(lambda: busy.take(timeout=None)) for _ in range(2)]
            asleep(queue, 2)
            sleeper = Running(lambda: quiet.take(timeout=0.02))
            asleep(queue, 3)
            busy.put_many([1, 2])
            for take in served:
                take.answer().ack()
        assert sleeper.answer() is None


def test_closing_a_queue_fails_waiting_calls_with_closed(queue: penstock.Queue) -> None:
    tube, full = queue.tube("empty"), queue.tube("full", capacity=1)
    full.put("x")
    calls: list[Callable[[], Any]] = [
        lambda: tube.take(timeout=None),
        lambda: tube.take_many(5, timeout=60),
        lambda: queue.take([tube, tube], timeout=None),
        lambda: next(iter(tube)),
        lambda: full.put("y", timeout=None),
    ]
    sleepers = [Running(call) for call in calls]
    asleep(queue, len(calls))
    queue.close()
    assert [sleeper.answer() for sleeper in sleepers] == ["CLOSED"] * len(calls)


# ---- Interrupted -----------------------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """An interrupt like KeyboardInterrupt that pytest does not handle itself."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Return a function that interrupts the main thread shortly after it is called."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.03) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_take_that_is_interrupted_stops_waiting(queue: penstock.Queue, alarm: Callable[[], None]) -> None:
    tube = queue.tube("interrupted")
    with pytest.raises(Interrupted):
        alarm()
        tube.take(timeout=None)
    assert not queue._session.connection.waits and not queue._host._sleepers
    assert tube.put("x").state == "ready"


def test_a_put_that_is_interrupted_is_not_put_later(queue: penstock.Queue, alarm: Callable[[], None]) -> None:
    tube = queue.tube("interrupted", capacity=1)
    there = tube.put("x")
    with pytest.raises(Interrupted):
        alarm()
        tube.put("y", timeout=None)
    there.delete()
    assert not any(tube.stats().values())


def test_a_job_served_to_a_take_that_is_interrupted_was_not_delivered(
    queue: penstock.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube = queue.tube("interrupted")

    def sleep(self: Any, timeout_ms: int) -> None:
        assert tube.put("x").state == "taken"
        raise Interrupted

    monkeypatch.setattr(ThreadSleeper, "sleep", sleep)
    with pytest.raises(Interrupted):
        tube.take(timeout=None)
    [job] = tube.jobs("ready")
    assert job.deliveries == 0 and tube.events() == {"put": 1, "taken": 1, "undelivered": 1}


def test_a_take_that_is_interrupted_late_leaves_the_job_to_its_new_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path) as queue, queue.session() as other:
        tube = queue.tube("interrupted", "fifottl")
        tube.put("x", ttr=0.01)
        taken = []

        def while_the_disk_is_slow(self: Host) -> None:
            monkeypatch.undo()
            taken.append(other.tube("interrupted").take(timeout=PATIENCE_S, ttr=PATIENCE_S))
            raise Interrupted

        monkeypatch.setattr(Host, "make_durable", while_the_disk_is_slow)
        with pytest.raises(Interrupted):
            tube.take()
        taken[0].ack()


@pytest.mark.parametrize("where", [(Maintenance, "stop"), (Host, "leave"), (Log, "close")])
def test_a_close_that_is_interrupted_can_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[type, str]
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted

    queue = penstock.open(tmp_path)
    queue.tube("t").put("x")
    monkeypatch.setattr(*where, interrupted)
    with pytest.raises(Interrupted):
        queue.close()
    monkeypatch.undo()
    queue.close()
    with penstock.open(tmp_path) as again:
        assert again.tube("t").stats()["ready"] == 1


def test_a_directory_stays_locked_while_maintenance_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Maintenance) -> None:
        raise Interrupted

    queue = penstock.open(tmp_path)
    monkeypatch.setattr(Maintenance, "stop", interrupted)
    with pytest.raises(Interrupted):
        queue.close()
    monkeypatch.undo()
    with pytest.raises(InUse):
        penstock.open(tmp_path)
    queue.close()


def test_an_interrupted_timekeeper_is_replaced(queue: penstock.Queue, alarm: Callable[[], None]) -> None:
    tube = queue.tube("interrupted")

    def sleep_behind() -> Any:
        asleep(queue, 1)
        return tube.take(timeout=0.2)

    def interrupt_when_both_sleep() -> None:
        try:
            asleep(queue, 2)
        finally:
            alarm()

    with no_time_passes(queue):
        second, interrupter = Running(sleep_behind), Running(interrupt_when_both_sleep)
        with pytest.raises(Interrupted):
            tube.take(timeout=None)
        interrupter.answer()
    assert second.answer() is None


# ---- Closing ---------------------------------------------------------------------------------------------------------


class Gate:
    """A lock that several threads must reach before the first one acquires it."""

    def __init__(self, lock: Any, count: int) -> None:
        self._lock = lock
        self._barrier = threading.Barrier(count)

    def __enter__(self) -> None:
        self._barrier.wait(PATIENCE_S)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_session_closed_by_two_threads_at_once_is_closed_once(queue: penstock.Queue) -> None:
    session = queue.session()
    session._session.lock = Gate(session._session.lock, 2)  # type: ignore[assignment]
    closers = [Running(session.close) for _ in range(2)]
    assert [closer.answer() for closer in closers] == [None, None]
    queue.tube("x").put("the other session is still open")
    assert queue.session().tubes() == ["x"]
    check(queue._host.engine)


class Door:
    """A lock that cannot be acquired until it is opened."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.reached, self.opened = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self.reached.set()
        self.opened.wait(PATIENCE_S)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("name", ["put", "take", "stats"])
def test_a_call_that_waits_for_the_lock_while_its_session_closes_is_refused(queue: penstock.Queue, name: str) -> None:
    session = queue.session()
    tube = session.tube("x")
    tube.put("x")
    lock = session._session.lock
    door = Door(lock)
    session._session.lock = door  # type: ignore[assignment]
    call = Running(lambda: tube.put("y") if name == "put" else getattr(tube, name)())
    assert door.reached.wait(PATIENCE_S)
    session._session.lock = lock
    session.close()
    door.opened.set()
    assert call.answer() == "CLOSED"
    assert queue.tube("x").stats()["ready"] == 1


def test_an_unreferenced_queue_is_freed() -> None:
    queue = penstock.open()
    tube = queue.tube("x")
    tube.put("x")
    host = weakref.ref(queue._host)
    del queue, tube
    gc.collect()
    assert host() is None


def test_a_queue_dropped_without_close_neither_crashes_nor_warns() -> None:
    script = (
        "import penstock, threading\n"
        "queue = penstock.open()\n"
        "queue.subscribe(lambda change: None)\n"
        "tube = queue.tube('x')\n"
        "tube.put('x')\n"
        "job = tube.take()\n"
        "threading.Thread(target=lambda: queue.tube('y').take(timeout=None), daemon=True).start()\n"
        "while not queue._session.connection.waits: pass\n"
        "second = penstock.open(); second.tube('x').put(b'x'); del second\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
