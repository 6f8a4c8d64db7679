"""Cost of the log for the engine without syncs: with one commit per turn, and with one per command.

A turn is one iteration of the server's loop: fifty clients send a command each, and one frame contains all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.clock import per_second
from bench.journal.directory import body, fresh, open_engine
from bench.rig import START_MS
from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.trial import Sample, Trial
from penstock.core.engine import Engine
from penstock.core.job import Draft, Job
from penstock.core.outbox import Outbox
from penstock.core.policy import FIFO

_CYCLES = 4_000
_TURN = 50
_BACKLOG = 1_000
_BASE = "journal/memory"

Commit = Callable[[], None]


def trials(scale: Scale) -> list[Trial]:
    """Return trials without and with a log."""
    turns = scale.calls(_CYCLES) // _TURN
    memory = Spec(_BASE, "put + take + ack, fifo, no log", Unit.CYCLES)
    turn = Spec(
        "journal/turn",
        f"with a log that is never synced, {_TURN} commands per commit",
        Unit.CYCLES,
        _BASE,
        Goal(0.7, Of.RATIO),
    )
    command = Spec("journal/command", "the same, one command per commit", Unit.CYCLES, _BASE)
    return [
        Trial((memory,), partial(_prepare_memory, turns)),
        Trial((turn,), partial(_prepare_log, turns, 1)),
        Trial((command,), partial(_prepare_log, turns, _TURN)),
    ]


def _prepare_memory(turns: int) -> Sample:
    return _sample(Engine(1, START_MS, Outbox()), turns, 1, lambda: None, lambda: None)


def _prepare_log(turns: int, commits: int) -> Sample:
    directory = fresh()
    opened = open_engine(directory)
    engine, log = opened.engine, opened.log

    def commit() -> None:
        log.commit(engine.now, engine.now)

    def prepare(_directory: object = directory) -> None:  # The default keeps a reference to the directory.
        log.prepare()
        log.fill()

    return _sample(engine, turns, commits, commit, prepare)


def _sample(engine: Engine, turns: int, commits: int, commit: Commit, prepare: Commit) -> Sample:
    """Return the rate of cycles with the given commits per turn. `prepare` does the work of the maintenance thread."""
    tube, now = engine.create_tube(b"bench", FIFO, engine.now), engine.now
    session = engine.connect(b"consumer of bench").session
    for _ in range(_BACKLOG):
        engine.put(tube, Draft(body()), now)
    commit()
    commands = _TURN // commits

    def work() -> None:
        put, take, ack, find = engine.put, engine.take, engine.ack, engine.find
        taken: list[Job] = []
        for _ in range(turns):
            for _ in range(commits):
                for _ in range(commands):
                    put(tube, Draft(body()), now)
                commit()
            for _ in range(commits):
                for _ in range(commands):
                    job = take(session, tube, now)
                    assert job is not None
                    taken.append(job)
                commit()
            for _ in range(commits):
                for _ in range(commands):
                    found = find(taken.pop().id, now)
                    assert found is not None
                    ack(session, found, now)
                commit()

    def sample() -> list[float]:
        prepare()
        return [per_second(work, turns * _TURN)]

    return sample
