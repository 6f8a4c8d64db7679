"""What the log costs the engine when nobody waits for the disk: commits of a whole turn, and of every command.

A turn is what one round of a server's loop does: fifty clients send a command each, and one frame holds them all.
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
    """Without a log, and with one."""
    turns = scale.calls(_CYCLES) // _TURN
    memory = Spec(_BASE, "put + take + ack, fifo, no log", Unit.CYCLES)
    turn = Spec(
        "journal/turn",
        f"with a log that is never synced, {_TURN} commands a commit",
        Unit.CYCLES,
        _BASE,
        Goal(0.7, Of.RATIO),
    )
    command = Spec("journal/command", "the same, every command committed by itself", Unit.CYCLES, _BASE)
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

    def prepare(_directory: object = directory) -> None:  # The directory lives as long as the trial does.
        log.prepare()
        log.fill()

    return _sample(engine, turns, commits, commit, prepare)


def _sample(engine: Engine, turns: int, commits: int, commit: Commit, prepare: Commit) -> Sample:
    """Rates of cycles with so many commits a turn. `prepare` is the work of maintenance in another thread."""
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
