"""After a fork, calls in the child are refused, and the parent is not affected."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock

# Newer Pythons warn of every fork in a process with threads. These tests need such forks.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def in_child(call: Callable[[], Any]) -> Any:
    """Return the result of a call in a forked child, or the code of a refusal. A child that hangs is ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os.write(writer, json.dumps(call()).encode())
        except BaseException as error:
            os.write(writer, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else "it hung"


def code_of(call: Callable[[], Any]) -> str:
    try:
        return f"not refused: {call()!r}"
    except penstock.CommandError as refusal:
        return refusal.code


def test_every_call_is_refused_in_the_child_and_the_parent_goes_on() -> None:
    with penstock.open() as queue:
        tube = queue.tube("x")
        tube.put("x")
        job = tube.take()
        calls: list[Callable[[], Any]] = [
            *(queue.session, queue.tubes, queue.stats, lambda: queue.tube("x"), lambda: queue.tube("new")),
            *(lambda: queue.take([tube]), lambda: queue.job(job.id), lambda: queue.identify(queue.token)),
            *(lambda: queue.subscribe(print), lambda: tube.put(b"y"), lambda: tube.put_many(["y"])),
            *(tube.take, lambda: tube.take(timeout=5), lambda: next(iter(tube)), tube.stats, tube.truncate, tube.drop),
            *(job.ack, job.release, job.meta, job.wait, job.delete),
        ]
        assert in_child(lambda: [code_of(call) for call in calls]) == ["FORKED"] * len(calls)
        job.ack()
        assert tube.put("y").state == "ready" and tube.take() is not None


def test_a_child_may_close_what_it_inherited_without_closing_it_for_its_parent() -> None:
    with penstock.open() as queue:
        tube = queue.tube("x")
        tube.put("x")
        job = tube.take()
        assert in_child(lambda: [queue.close(), code_of(queue.tubes)]) == [None, "FORKED"]
        assert job.state == "taken"
        job.ack()


def test_a_child_may_open_a_queue_of_its_own() -> None:
    def own() -> Any:
        with penstock.open() as mine:
            mine.tube("x").put("of the child")
            return mine.tube("x").take(timeout=5).body

    with penstock.open() as queue:
        queue.tube("x")
        assert in_child(own) == "of the child"
        assert queue.tube("x").stats()["ready"] == 0


def test_a_lock_held_at_the_moment_of_the_fork_does_not_hang_the_child() -> None:
    with penstock.open() as queue:
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with queue._host.lock:
                held.set()
                release.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        try:
            assert in_child(lambda: code_of(queue.tubes)) == "FORKED"
        finally:
            release.set()
            thread.join()
        assert queue.tubes() == []


def test_waiting_calls_of_the_parent_are_served_after_a_fork() -> None:
    with penstock.open() as queue:
        tube = queue.tube("x")
        taken: list[Any] = []
        thread = threading.Thread(target=lambda: taken.append(tube.take(timeout=10)))
        thread.start()
        while not queue._session.connection.waits:
            pass
        assert in_child(lambda: code_of(lambda: tube.put("x"))) == "FORKED"
        job = tube.put("x")
        thread.join(10)
        assert taken == [job]


def test_sessions_closed_before_the_fork_stay_closed_in_the_parent() -> None:
    queue = penstock.open()
    queue.close()
    assert in_child(lambda: code_of(queue.tubes)) in ("CLOSED", "FORKED")
    assert code_of(queue.tubes) == "CLOSED"


def test_a_child_that_lives_on_does_not_keep_its_parent_from_opening_the_queue_again(tmp_path: Path) -> None:
    queue = penstock.open(tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # Until the parent is done.
        os._exit(0)
    try:
        queue.tube("x").put("x")
        queue.close()
        with penstock.open(tmp_path) as again:
            assert again.tube("x").take().body == "x"
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_a_child_that_ends_leaves_the_journal_to_its_parent(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as queue:
        queue.tube("x").put("x")
        assert in_child(lambda: [queue.close(), code_of(lambda: penstock.open(tmp_path))]) == [None, "INUSE"]
        queue.tube("x").put("y")
    with penstock.open(tmp_path) as again:
        assert [job.body for job in again.tube("x").take_many(5)] == ["x", "y"]
