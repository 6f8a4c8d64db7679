"""An interrupt between any two steps of a call leaves no lock locked and no half-done change in use.

Signals are handled in the main thread, so scenarios with random interrupts run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.core.job import Draft
from penstock.testing.invariants import check

from .test_threads import Running, asleep

# Interrupts occur while it puts, takes and acks. Then another thread makes a call, which must be answered.
SCRIPT = """
import itertools, signal, sys, threading, time
import penstock
from penstock.testing.invariants import check

path, fsync = sys.argv[1:]
acknowledged, interrupts, stopped = [], 0, False

def interrupt(*_):
    raise KeyboardInterrupt

def work(queue):
    for number in itertools.count():
        acknowledged.append(queue.tube("t").put(b"%d" % number).id)
        job = queue.tube("u").put("x")
        queue.tube("u").take().ack()

def answered(call):
    answer = []
    def ask():
        try:
            answer.append(call())
        except penstock.CommandError as error:
            answer.append(error.code)
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(10)
    assert answer, "the lock is left locked"
    return answer[0]

options = {} if path == ":memory:" else {"fsync": fsync}
queue = penstock.open(path, **options)
queue.tube("t", "fifo"), queue.tube("u", "fifo")
signal.signal(signal.SIGALRM, interrupt)
end = time.monotonic() + 0.7
while (time.monotonic() < end or not interrupts) and not stopped:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + interrupts % 97 * 7e-6)
            work(queue)
        finally:
            # Here, where it may still come.
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
    except penstock.CommandError as error:
        assert error.code == "INTERRUPTED", error
        stopped = True
assert interrupts > 0
told = answered(lambda: queue.tube("t").stats()["ready"])
assert told == "INTERRUPTED" if stopped else told >= len(acknowledged), told
if not stopped:
    check(queue._host.engine)
answered(queue.close)
if path != ":memory:":
    with penstock.open(path) as queue:
        check(queue._host.engine)
        left = {job.id for job in queue.tube("t").jobs("ready", 100_000)}
        assert set(acknowledged) <= left, "an acknowledged put is lost"
        assert queue.tube("u").stats()["ready"] <= interrupts
print(interrupts, "stopped" if stopped else "went on")
"""


@pytest.mark.parametrize("fsync", ["memory", "always", "never"])
def test_calls_that_are_interrupted_anywhere_leave_no_lock_locked_and_nothing_half_done(
    tmp_path: Path, fsync: str, compiled: bool
) -> None:
    path = ":memory:" if fsync == "memory" else str(tmp_path)
    command = [sys.executable, "-c", SCRIPT, path, fsync]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    # Compiled code is not interrupted, so no change can be half done.
    assert ran.stdout.endswith("went on\n") or not compiled


def test_what_was_done_before_an_interrupt_is_in_the_log_with_the_next_call(tmp_path: Path) -> None:
    """The engine changed, and no caller got an answer. As with any call in progress, the change may have happened."""
    with penstock.open(tmp_path) as queue:
        tube = queue.tube("t", "fifo")
        with pytest.raises(KeyboardInterrupt), queue._session.lock:
            queue._host.engine.put(tube._core, Draft(b"interrupted"), queue._host.now())
            raise KeyboardInterrupt
        tube.put("next")
    with penstock.open(tmp_path) as queue:
        assert [job.body for job in queue.tube("t").take_many(9)] == [b"interrupted", "next"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["put", "take"])
def test_a_command_that_is_interrupted_half_way_stops_the_queue_and_does_not_reach_the_log(
    tmp_path: Path, call: str
) -> None:
    """Subscribers are called in the middle of a change, in the compiled build, too."""
    queue = penstock.open(tmp_path)
    tube = queue.tube("t", "fifo")
    tube.put("before")
    sleeper = Running(lambda: queue.tube("empty").take(timeout=60))
    asleep(queue, 1)
    queue._host.engine.watch = interrupt
    with pytest.raises(KeyboardInterrupt):
        tube.put("half") if call == "put" else tube.take()
    queue._host.engine.watch = None
    for refused in (lambda: tube.put("x"), tube.take, queue.tubes, queue.session, queue.checkpoint):
        with pytest.raises(penstock.CommandError) as told:
            refused()
        assert told.value.code == "INTERRUPTED"
    assert sleeper.answer() == "INTERRUPTED"
    queue.close()
    with penstock.open(tmp_path) as queue:
        check(queue._host.engine)
        assert [job.body for job in queue.tube("t").take_many(9)] == ["before"]
