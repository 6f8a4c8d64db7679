"""A test harness: an engine, a fake clock and a few clients. Jobs are identified by id, refusals by code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.commands import edits
from penstock.core.engine import Engine
from penstock.core.errors import REFUSALS, CommandError
from penstock.core.job import Draft, Job
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.states import OK
from penstock.core.tube import Tube
from penstock.core.waits import Connection, TakeWait
from penstock.testing import FakeClock, check, digest

ANYONES = ("dig", "prolong", "delete", "snatch", "restart", "switch")
EDITS = ("set_priority", "edit", "end_delay")


class Recorder(Outbox):
    """An outbox that records all events as (event, job id), in order."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[tuple[str, int]] = []

    def moved(self, job: Job, tube: Tube, rule: int, since: int, holder: int, now: int) -> None:
        self.happened.append((s.EVENT_NAMES[s.TRANSITIONS[rule][0]], job.id))


class EngineHarness:
    """Calls the engine at the time of the clock, and checks its invariants after every call."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000)
        self.outbox = Recorder()
        self.engine = Engine(1, self.clock.ms, self.outbox)
        self.clients = 0
        self.me = self.connect()

    def connect(self) -> Connection:
        self.clients += 1
        return self.engine.connect(b"token %d" % self.clients)

    def tube(self, policy: TubePolicy, name: bytes = b"tube") -> Tube:
        return self.engine.create_tube(name, policy, self.clock.ms)

    def pass_ms(self, ms: int) -> None:
        """Advance the clock and fire due deadlines."""
        self.engine.advance(self.clock.advance(ms))
        check(self.engine)

    def put(self, tube: Tube, body: bytes = b"work", **options: object) -> int:
        job = self.engine.put(tube, Draft(body, **options), self.clock.ms)
        check(self.engine)
        return job.id

    def puts(self, tube: Tube, count: int, **options: object) -> list[int]:
        return [self.put(tube, **options) for _ in range(count)]

    def take(self, tube: Tube, by: Connection | None = None, **options: object) -> int | None:
        job = self.engine.take((by or self.me).session, tube, self.clock.ms, **options)
        check(self.engine)
        return None if job is None else job.id

    def wait(self, *tubes: Tube, by: Connection | None = None, **options: object) -> TakeWait:
        wait = self.engine.wait(by or self.me, list(tubes), self.clock.ms, **options)
        check(self.engine)
        return wait

    def do(self, command: str, job_id: int, *args: object, by: Connection | None = None, **options: object) -> str:
        """Run a command on one job, and return its code. Some commands, such as `dig` and `delete`, have no session."""
        job = self.engine.find(job_id, self.clock.ms)
        if job is None:
            return "NOJOB"
        who = () if command in ANYONES or command in EDITS else ((by or self.me).session,)
        what = (*args[:1], self.clock.ms, *args[1:]) if command in ("switch", "move") else (self.clock.ms, *args)
        if command in EDITS:
            outcome = getattr(edits, command)(self.engine, job, *what, **options)
        else:
            outcome = getattr(self.engine, command)(*who, job, *what, **options)
        check(self.engine)
        return "OK" if outcome == OK else REFUSALS[outcome].code

    def job(self, job_id: int) -> Job:
        found = self.engine.find(job_id, self.clock.ms)
        assert found is not None
        return found

    def state(self, job_id: int) -> str:
        job = self.engine.find(job_id, self.clock.ms)
        return "gone" if job is None else s.STATE_NAMES[job.state]

    def served(self, wait: TakeWait) -> list[int] | None:
        """Return the jobs that a wait was served with: None while it waits, an empty list if it timed out."""
        return None if wait.outcome == w.WAITING else [job.id for job in wait.jobs]

    @contextmanager
    def refuses(self, code: str) -> Iterator[None]:
        """Check that the block is refused with this code, and that nothing has changed."""
        before = digest(self.engine)
        with pytest.raises(CommandError) as refusal:
            yield
        assert refusal.value.code == code
        assert digest(self.engine) == before
        check(self.engine)
