"""Tasks: one worker process, compared with other task queues on Redis.

Each system runs its tasks in one process with its fastest settings. Redis and Penstock sync once per second. The rivals
are in the extra `bench`; those that are not installed are left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial

from bench.rows import Goal, Of, Spec, Unit
from bench.scale import Scale
from bench.tasks import contenders
from bench.tasks.contenders import PENSTOCK, RIVALS, Run
from bench.trial import Sample, Trial

_IDLE_S = 10.0
_SPIN_ROUNDS = 300_000
_TICKS_S = os.sysconf("SC_CLK_TCK")


def trials(scale: Scale) -> list[Trial]:
    """Return the trials."""
    rivals = [system for system in RIVALS if system.is_there()]
    names = [system.name for system in rivals]
    rates = [Spec("tasks/noop", "tasks without work per second", Unit.JOBS, "tasks/best", Goal(3.0, Of.RATIO))]
    p99 = [Spec("tasks/start-p99", "put to start, 99th percentile", Unit.MS, "tasks/best-p99", Goal(1.0, Of.RATIO))]
    p50 = [Spec("tasks/start-p50", "put to start, median", Unit.MS)]
    if rivals:
        best = ", ".join(names)
        rates += [Spec("tasks/best", f"the fastest of {best}", Unit.JOBS)]
        rates += [Spec(f"tasks/{name}", f"{name} on Redis", Unit.JOBS) for name in names]
        p99 += [Spec("tasks/best-p99", f"the fastest of {best}", Unit.MS)]
        p99 += [Spec(f"tasks/{name}-p99", f"{name} on Redis", Unit.MS) for name in names]
        p50 += [Spec(f"tasks/{name}-p50", f"{name} on Redis", Unit.MS) for name in names]
    cpu = [
        Spec("tasks/cpu-1", "tasks that use the CPU, one process", Unit.JOBS),
        Spec("tasks/cpu-2", "tasks that use the CPU, two processes", Unit.JOBS, "tasks/cpu-1", Goal(1.7, Of.RATIO)),
    ]
    idle = [
        Spec("tasks/idle", f"CPU time of an idle worker in {_IDLE_S:.0f} s", Unit.PERCENT, goal=Goal(0.5)),
        Spec("tasks/idle-memory", "memory of an idle worker and its supervisor", Unit.MB, goal=Goal(60)),
    ]
    rounds = 1 if scale.quick else 3
    count = 300 if scale.quick else 1_000
    return [
        Trial(tuple(rates), partial(_always, partial(_rates, rivals, scale.jobs(40_000, 10_000))), rounds),
        Trial((*p99, *p50), partial(_always, partial(_latencies, rivals, count)), rounds),
        Trial(tuple(cpu), partial(_always, partial(_cpu, scale.jobs(400, 100))), rounds),
        Trial(tuple(idle), partial(_always, _idle), 1),
    ]


def _always(sample: Sample) -> Sample:
    return sample


def _rates(rivals: list[contenders.System], count: int) -> Sequence[float]:
    mine = contenders.rate(PENSTOCK, count)
    theirs = [contenders.rate(system, max(1_000, count // 10)) for system in rivals]
    return [mine, *([max(theirs), *theirs] if theirs else [])]


def _latencies(rivals: list[contenders.System], count: int) -> Sequence[float]:
    (median, tail), *theirs = [contenders.latency_ms(system, count) for system in (PENSTOCK, *rivals)]
    medians, tails = [each[0] for each in theirs], [each[1] for each in theirs]
    return [tail, *([min(tails), *tails] if tails else []), median, *medians]


def _cpu(count: int) -> Sequence[float]:
    return [_cpu_rate(count, processes) for processes in (1, 2)]


def _cpu_rate(count: int, processes: int) -> float:
    from bench.tasks import penstock_app

    run = Run(PENSTOCK)
    worker = run.start_worker("--processes", str(processes), "-c", "1")
    try:
        app = penstock_app.app
        app.url = run.broker
        penstock_app.spin.put_many(penstock_app.spin.call(1, processes) for _ in range(processes))
        run.wait_for_figures()
        (run.figure.parent / "figure.ends").unlink()
        begun = time.time()
        penstock_app.spin.put_many(penstock_app.spin.call(_SPIN_ROUNDS, count) for _ in range(count))
        return count / (run.wait_for_figures()[0] - begun)
    finally:
        penstock_app.app.close()
        run.stop(worker)


def _idle() -> Sequence[float]:
    run = Run(PENSTOCK)
    worker = run.start_worker()
    try:
        run.put("start", 2)
        run.wait_for_figures()
        time.sleep(2)
        pids = [worker.pid, *_children(worker.pid)]
        before = sum(_cpu_s(pid) for pid in pids)
        time.sleep(_IDLE_S)
        used = sum(_cpu_s(pid) for pid in pids) - before
        return [used / _IDLE_S * 100, sum(_memory_mb(pid) for pid in pids)]
    finally:
        run.stop(worker)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def _memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
