"""A body on disk that cannot be read is an error for the client that takes its job, and for no other client."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .iproto_wire import IprotoWire
from .iproto_wire import Refusal as CallRefused
from .serving import Refusal, Server, Wire, decoded, wait_for

BODY = b"x" * 100_000
JOBS = 40  # Most of their bodies are on disk only.


@pytest.fixture
def node(start: Callable[..., Server]) -> Server:
    return start("--maxmemory", "2mb", "--fsync", "never")


@pytest.fixture
def lose(tmp_path: Path) -> Callable[[], None]:
    """Remove the file of the bodies, as an operator who tidies up might."""

    def lose() -> None:
        min(tmp_path.glob("penstock-data/segment-*.log")).unlink()

    return lose


def states(wire: Wire, tube: str) -> tuple[int, int, int]:
    """Return how many jobs of a tube are ready, taken and buried."""
    stats = wire.call("TUBE", "STATS", tube)
    found = dict(zip(stats[::2], stats[1::2], strict=True))
    return found[b"ready"], found[b"taken"], found[b"buried"]


def test_a_waiting_take_gets_the_error_and_the_job_is_buried(node: Server, lose: Callable[[], None]) -> None:
    wire, waiting = node.connect(), node.connect()
    wire.call("PAUSE", "q", "out")
    for _ in range(JOBS):
        wire.call("ADDJOB", "q", BODY, 0)
    lose()
    waiting.send("GETJOB", "COUNT", JOBS, "FROM", "q")
    wait_for(lambda: wire.info("clients")["blocked_clients"] == "1")
    wire.call("PAUSE", "q", "none")
    answer = decoded(waiting.read())
    # Jobs in memory are delivered, and those that cannot be read are buried.
    ready, taken, buried = states(wire, "q")
    assert ready == 0 and taken == len(answer) > 0 and taken + buried == JOBS
    assert all(body == BODY for _, _, body in answer)


def test_a_take_of_only_unreadable_jobs_names_the_file(node: Server, lose: Callable[[], None]) -> None:
    wire = node.connect()
    for _ in range(JOBS):
        wire.call("ADDJOB", "q", BODY, 0)
    lose()
    told = []
    while wire.call("QLEN", "q"):
        try:
            wire.call("GETJOB", "FROM", "q")
        except Refusal as refusal:
            told.append(str(refusal))
    assert told and all(line.startswith("DAMAGED segment-") and "cannot be read" in line for line in told)
    assert states(wire, "q") == (0, JOBS - len(told), len(told))


def test_a_waiting_call_gets_the_error(
    node: Server, lose: Callable[[], None], dial: Callable[[Server], IprotoWire]
) -> None:
    wire, iproto = node.connect(), dial(node)
    iproto.call("queue.create_tube", "q", "fifottl")
    wire.call("PAUSE", "q", "out")
    for _ in range(JOBS):
        iproto.call("queue.tube.q:put", BODY.decode())
    lose()
    waiting = [iproto.start("queue.tube.q:take", 100) for _ in range(JOBS)]
    iproto.call("queue.state")
    wire.call("PAUSE", "q", "none")
    refused = 0
    for sync in waiting:
        try:
            iproto.result(sync)
        except CallRefused as refusal:
            refused += 1
            assert "cannot be read" in str(refusal)
    assert refused > 0
    assert states(wire, "q") == (0, JOBS - refused, refused)


def is_settled(node: Server) -> bool:
    """Return whether a server has created the files of its start. The reserve file is the last one."""
    directory, files = node.home / "penstock-data", Path(f"/proc/{node.process.pid}/fd")
    if not (directory / "ballast").exists():
        return False
    open_now = set()
    for number in os.listdir(files):
        with contextlib.suppress(FileNotFoundError):
            open_now.add(os.readlink(files / number))
    return not open_now & {str(directory / "ballast"), str(directory)}


@contextlib.contextmanager
def no_more_files(node: Server) -> Iterator[None]:
    """Limit a server to the files that it has open."""
    # A file that it closes later could be opened again.
    wait_for(lambda: is_settled(node))
    pid = node.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # The lowest free number is used next.
    open_now = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    lowest = next(number for number in itertools.count() if number not in open_now)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_a_job_is_unchanged_if_its_body_cannot_be_read_for_lack_of_descriptors(node: Server) -> None:
    wire = node.connect()
    for _ in range(JOBS):
        wire.call("ADDJOB", "q", BODY, 0, "RETRY", 0)
    with (
        no_more_files(node),
        pytest.raises(Refusal, match=r"^EXHAUSTED segment-.* cannot be read now: Too many open files; try again$"),
    ):
        wire.call("GETJOB", "COUNT", JOBS, "FROM", "q")
    assert states(wire, "q") == (JOBS, 0, 0)
    jobs = wire.call("GETJOB", "COUNT", JOBS, "WITHCOUNTERS", "FROM", "q")
    assert [job[2:] for job in jobs] == [[BODY, b"nacks", 0, b"additional-deliveries", 0]] * JOBS
