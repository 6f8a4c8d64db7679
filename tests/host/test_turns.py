"""The turns of a host: commits, shared frames, sleepers, the timekeeper, and failures."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from penstock.core import policy
from penstock.core.errors import Closed, Interrupted, JournalFailed
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.core.tube import Tube
from penstock.host.host import Host, Store
from penstock.host.session import Session
from penstock.host.wake_flag import WakeFlag
from penstock.testing.disk import MemoryDisk, MemoryFile


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(0, NEVER, Store(MemoryDisk()))
    yield host
    if not host.shut:
        with host.lock:
            host.close()


def make_tube(host: Host) -> Tube:
    """Return a tube whose first range of ids is durable."""
    with host.durable, host.lock, host:
        tube = host.engine.create_tube(b"t", policy.FIFOTTL, host.now())
        host.engine.delete(host.engine.put(tube, Draft(b""), host.now()), host.now())
    return tube


def test_a_turn_ends_with_a_commit(host: Host) -> None:
    tube = make_tube(host)
    assert host.log is not None
    before = host.log.written
    with host.lock, host:
        host.engine.put(tube, Draft(b"a"), host.now())
        assert host.log.written == before
    assert host.log.written > before and host.log.durable == before


def test_a_blocking_call_returns_when_its_change_is_durable(host: Host) -> None:
    tube = make_tube(host)
    with host.durable, host.lock, host:
        host.engine.put(tube, Draft(b"a"), host.now())
    assert host.log is not None and host.log.durable == host.log.written


def test_turns_of_tasks_share_a_frame_until_another_turn_ends(host: Host) -> None:
    tube = make_tube(host)
    session = Session(host)
    tasks = session.for_tasks()
    assert host.log is not None
    before = host.log.written
    for _ in range(3):
        with tasks.lock, tasks:
            host.engine.put(tube, Draft(b"a"), host.now())
        assert host.log.written == before
    with session.lock, session:
        pass
    assert host.log.written > before


def test_commit_shared_writes_the_rows_of_tasks(host: Host) -> None:
    tube = make_tube(host)
    tasks = Session(host).for_tasks()
    assert host.log is not None
    before = host.log.written
    with tasks.lock, tasks:
        host.engine.put(tube, Draft(b"a"), host.now())
    host.commit_shared()
    assert host.log.written > before


def test_a_shared_frame_does_not_grow_without_limit(host: Host) -> None:
    tube = make_tube(host)
    tasks = Session(host).for_tasks()
    assert host.log is not None
    before = host.log.written
    with tasks.lock, tasks:
        host.engine.put(tube, Draft(bytes(300_000)), host.now())
    assert host.log.written > before


def fail(file: MemoryFile, offset: int, data: bytes) -> None:
    raise OSError(errno.EIO, "the disk is broken")


def test_a_failed_commit_ends_the_host_and_revokes_its_sessions(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    tube = make_tube(host)
    first, second = Session(host), Session(host)
    errors: list[Exception] = []
    host.on_failure = errors.append
    monkeypatch.setattr(MemoryFile, "write", fail)
    with pytest.raises(JournalFailed), first.lock, first:
        host.engine.put(tube, Draft(b"a"), host.now())
    assert len(errors) == 1
    for session in (first, second):
        assert session.revoked
        with pytest.raises(JournalFailed), session.lock, session:
            pytest.fail("a revoked session runs no turn")
    with pytest.raises(JournalFailed):
        host.check()


def test_a_failed_sync_ends_the_host(host: Host) -> None:
    tube = make_tube(host)
    assert isinstance(host.disk, MemoryDisk)
    host.disk.sync_error = OSError(errno.EIO, "the disk is broken")
    with pytest.raises(JournalFailed), host.durable, host.lock, host:
        host.engine.put(tube, Draft(b"a"), host.now())
    assert host.failure is not None


def test_a_refused_command_ends_its_turn_with_a_commit(host: Host) -> None:
    tube = make_tube(host)
    assert host.log is not None
    before = host.log.written
    with pytest.raises(Closed), host.lock, host:
        host.engine.put(tube, Draft(b"a"), host.now())
        raise Closed
    assert host.log.written > before and host.failure is None


def test_a_change_that_an_error_interrupts_ends_the_host(host: Host) -> None:
    tube = make_tube(host)

    def break_off(*_: object) -> None:
        raise KeyError("a defect")

    host.engine.watch = break_off
    with pytest.raises((KeyError, Interrupted)), host.lock, host:
        host.engine.put(tube, Draft(b"a"), host.now())
    with pytest.raises(Interrupted):
        host.check()


def test_the_host_closes_with_its_last_session(host: Host) -> None:
    first, second = Session(host), Session(host)
    first.close()
    assert not host.closed
    first.close()
    second.close()
    assert host.closed and host.shut
    with pytest.raises(Closed), second.lock, second:
        pytest.fail("a closed session runs no turn")
    with pytest.raises(Closed):
        host.join()


def test_the_views_of_a_session_close_together(host: Host) -> None:
    keeps_open = Session(host)
    session = Session(host)
    tasks = session.for_tasks()
    session.close()
    assert tasks.revoked and tasks.closed and not keeps_open.revoked


def test_a_wake_flag_wakes_once() -> None:
    flag = WakeFlag()
    assert not flag.is_set() and not flag.wait(0)
    flag.set()
    flag.set()
    assert flag.is_set() and flag.wait(None) and not flag.wait(0)
    flag.set()
    flag.clear()
    assert not flag.is_set()
