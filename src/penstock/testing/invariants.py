"""What must hold in an engine after every command; `check` raises AssertionError with the name of what does not.

Every index is built again from the job table, the plain way, and compared with the one that the engine maintains. The
cost is linear in everything, so this is for tests, simulations and a debugging session, never for production.

    E1  conservation: the jobs in each state are those that came into it less those that left it
    E2  every index equals the one rebuilt from the job table; nothing is leaked
    E3  of one key no more jobs are taken than its tube's limit
    E4  the next job is the least, by priority and then order, of those that can be had
    E5  a job's deadline is what its ttl, and E6 its ttr, and E7 its delay imply in its state
    E8  a taken job of an owned tube is held by one living session, and nothing else is held
    E9  a waiting take and a job it could have do not coexist

While deadlines are due that a turn has not come to yet, the engine is *behind*, and E9 has to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.deadlines import NOWHERE, Timed
from penstock.core.engine import Engine
from penstock.core.job import NO_SLOT, Job
from penstock.core.keys import Key, Keys
from penstock.core.limits import NEVER
from penstock.core.sessions import Session
from penstock.core.table import JobTable
from penstock.core.tube import Tube
from penstock.core.waits import Line, Wait

LIVE_STATES: Final = range(s.GONE + 1, s.STATES_COUNT)
HEAP_CHILDREN: Final = 4


def check(engine: Engine) -> None:
    """Raise AssertionError, naming the invariant, if anything in an engine is inconsistent."""
    if not __debug__:
        raise RuntimeError("python -O takes away the assertions that this check is made of")
    jobs = _check_table(engine.jobs, engine._next_id, lambda job: job.id)
    _check_slots(engine)
    by_tube: dict[int, list[Job]] = {tube.slot: [] for tube in engine.tubes.values()}
    for job in jobs:
        assert job.tube in by_tube, f"E2: {_shown(job)} is of a tube that is not there"
        by_tube[job.tube].append(job)
    for tube in engine.tubes.values():
        own = by_tube[tube.slot]
        _check_counts(tube, own)
        _check_places(tube, own)
        _check_locals(tube, own)
        _check_keys(tube, own)
        _check_next(tube, own)
    waits = _check_lines(engine)
    _check_deadlines(engine, jobs, waits)
    _check_holders(engine, jobs)
    _check_waiting(engine)


def is_behind(engine: Engine) -> bool:
    """Tell whether deadlines are due that no turn has come to yet."""
    return engine.deadlines.next_due <= engine.now


# The job table, and who refers to whom by slot


def _check_table(table: JobTable, end: int, number: Callable[[Job], int]) -> list[Job]:
    """Every job of a table, in order, each found by its number."""
    jobs = table.scan(0, table.count + 1)
    _same("E2", "jobs in the table", table.count, len(jobs))
    before = -1
    for job in jobs:
        assert before < number(job) < end, (
            f"E2: {_shown(job)} is out of order in the table, or not before {end}"
        )
        assert table.find(number(job)) is job, f"E2: {_shown(job)} is not found by its number"
        before = number(job)
    for page in table._pages.values():
        live = sum(1 for job in page.slots if job is not None)
        _same("E2", f"jobs on page {page.number}", page.live, live)
        assert live or page is table._newest, f"E2: page {page.number} is empty and still there"
    return jobs


def _check_slots(engine: Engine) -> None:
    tubes = list(engine.tubes.values())
    _same("E2", "tubes by slot", _filled(engine._tube_slots), {tube.slot: tube for tube in tubes})
    _same("E2", "free tube slots", sorted(engine._tube_slots_free), _free(engine._tube_slots))
    _same("E2", "tubes by name", engine.tubes, {tube.name: tube for tube in tubes})
    _same("E2", "tubes by number", engine._tubes_by_number, {tube.number: tube for tube in tubes})
    sessions = list(engine.sessions.values())
    _same("E2", "sessions by slot", _filled(engine._session_slots), {x.slot: x for x in sessions})
    _same("E2", "free session slots", sorted(engine._session_slots_free), _free(engine._session_slots))
    _same("E2", "sessions by token", engine.sessions, {session.token: session for session in sessions})


# One tube


def _check_counts(tube: Tube, jobs: list[Job]) -> None:
    """E1: what the rules counted, in less out, is what is there."""
    flow = [0] * s.STATES_COUNT
    for rule, (_, source, target) in enumerate(s.TRANSITIONS):
        applied = tube.counts[rule] + tube.counts_before[rule]
        flow[source] -= applied
        flow[target] += applied
    for state in LIVE_STATES:
        there = len(_in_state(jobs, state))
        _same(
            "E1",
            f"jobs that went into {s.STATE_NAMES[state]} and not out, in {tube.name!r}",
            flow[state],
            there,
        )
        _same("E1", f"{s.STATE_NAMES[state]} jobs of {tube.name!r}", tube.count_in(state), there)
    _same("E1", f"jobs of {tube.name!r}", tube.total(), len(jobs))
    _same("E2", f"body bytes of {tube.name!r}", tube.body_bytes, sum(job.body_length() for job in jobs))


def _check_places(tube: Tube, jobs: list[Job]) -> None:
    """E2: each job stands where jobs of its state stand, and knows its place."""
    for state in LIVE_STATES:
        what = f"{s.STATE_NAMES[state]} jobs of {tube.name!r}"
        _same_jobs("E2", what, tube.jobs_in(state), _in_state(jobs, state))
    assert tube.keys is None or not tube.ready.items, f"E2: {tube.name!r} has ready jobs outside its keys"
    _check_heap(f"ready jobs of {tube.name!r}", tube.ready.items)
    _check_heap(f"buried jobs of {tube.name!r}", tube.buried.items)
    _check_bag(f"taken jobs of {tube.name!r}", tube.taken.items)
    _check_bag(f"delayed jobs of {tube.name!r}", tube.delayed.items)
    _check_bag(f"spent jobs of {tube.name!r}", tube.spent.items)
    spent = [job for job in jobs if job.state == s.BURIED and job.once and job.deliveries > 0]
    _same_jobs("E2", f"spent jobs of {tube.name!r}", tube.spent.items, spent)


def _check_heap(what: str, items: Sequence[Job]) -> None:
    _check_bag(what, items)
    for index in range(1, len(items)):
        parent = items[(index - 1) // HEAP_CHILDREN]
        assert _rank(parent) < _rank(items[index]), f"E2: {what}: {_shown(items[index])} is out of order"


def _check_bag(what: str, items: Sequence[Job]) -> None:
    for index, job in enumerate(items):
        assert job.pos == index, f"E2: {what}: {_shown(job)} is at {index} and says {job.pos}"


def _check_locals(tube: Tube, jobs: list[Job]) -> None:
    if tube.locals is None:
        assert all(job.local == NO_SLOT for job in jobs), (
            f"E2: {tube.name!r} has integers and no table of them"
        )
        return
    by_integer = _check_table(tube.locals, tube.next_local, lambda job: job.local)
    _same_jobs("E2", f"jobs of {tube.name!r} by integer", by_integer, jobs)
    assert tube.next_local <= tube.reserved, f"E2: {tube.name!r} gave out integers that were not reserved"


def _check_next(tube: Tube, jobs: list[Job]) -> None:
    """E4: the next job is the least of those that can be had, found by looking at all."""
    ready = _in_state(jobs, s.READY)
    keys = tube.keys
    if keys is None:
        _same("E4", f"the next job of {tube.name!r}", tube.first_ready(None), _least(ready))
        return
    if keys.limit > 0:
        taken = [job.key for job in _in_state(jobs, s.TAKEN)]
        ready = [job for job in ready if taken.count(job.key) < keys.limit]
    _same("E4", f"the next job of {tube.name!r}", tube.first_ready(None), _least(ready))
    for key in keys.all_keys():
        of_key = [job for job in ready if job.key == key.slot]
        _same(
            "E4", f"the next job of {key.name!r} in {tube.name!r}", tube.first_ready(key.name), _least(of_key)
        )


def _check_keys(tube: Tube, jobs: list[Job]) -> None:
    """E2, E3: keys are there exactly while they have jobs, know how many, and keep the limit."""
    keys = tube.keys
    if keys is None:
        assert all(job.key == NO_SLOT for job in jobs), f"E2: {tube.name!r} has no keys, but its jobs have"
        return
    members: dict[int, list[Job]] = {}
    for job in jobs:
        members.setdefault(job.key, []).append(job)
    every = keys.all_keys()
    _same("E2", f"keys of {tube.name!r} with jobs", sorted(key.slot for key in every), sorted(members))
    _same("E2", f"keys of {tube.name!r} by name", keys._by_name, {key.name: key for key in every})
    _same("E2", f"keys of {tube.name!r} by slot", _filled(keys._slots), {key.slot: key for key in every})
    _same("E2", f"free key slots of {tube.name!r}", sorted(keys._free), _free(keys._slots))
    _same("E2", f"ready jobs of the keys of {tube.name!r}", keys.ready, len(_in_state(jobs, s.READY)))
    for key in every:
        _check_key(f"key {key.name!r} of {tube.name!r}", key, keys.limit, members[key.slot])
    _check_open(f"open keys of {tube.name!r}", keys)


def _check_key(what: str, key: Key, limit: int, jobs: list[Job]) -> None:
    taken = len(_in_state(jobs, s.TAKEN))
    assert limit == 0 or taken <= limit, f"E3: {what}: {taken} jobs are taken at once, and {limit} may be"
    _same("E2", f"jobs of {what}", key.jobs, len(jobs))
    _same("E2", f"taken jobs of {what}", key.taken, taken)
    rest = [] if key.rest is None else key.rest.items
    _check_heap(f"the rest of {what}", rest)
    ready = rest if key.first is None else [key.first, *rest]
    _same_jobs("E2", f"ready jobs of {what}", ready, _in_state(jobs, s.READY))
    _same("E2", f"first job of {what}", key.first, _least(ready))


def _check_open(what: str, keys: Keys) -> None:
    """E2: exactly the keys with a ready job and room stand in the order that takes look at."""
    opened = keys.open_keys()
    could = [
        key for key in keys.all_keys() if key.first is not None and 0 <= key.taken < (keys.limit or NEVER)
    ]
    _same("E2", what, sorted(key.slot for key in opened), sorted(key.slot for key in could))
    _same("E2", f"{what}, by their places", [key.pos for key in opened], list(range(len(opened))))
    firsts = [key.first for key in opened if key.first is not None]
    for index in range(1, len(firsts)):
        parent = firsts[(index - 1) // HEAP_CHILDREN]
        assert _rank(parent) < _rank(firsts[index]), f"E2: {what}: {opened[index].name!r} is out of order"
    for key in keys.all_keys():
        assert key.pos == NOWHERE or key in opened, f"E2: {what}: {key.name!r} is not open and has a place"


# Deadlines


def _check_deadlines(engine: Engine, jobs: list[Job], waits: list[Wait]) -> None:
    """E2, E5: who should have a deadline has it, nobody else does, and they stand in order."""
    items = engine.deadlines._items
    for index, item in enumerate(items):
        assert item.deadline_pos == index, f"E2: the deadline at {index} says {item.deadline_pos}"
        parent = items[(index - 1) // HEAP_CHILDREN if index else 0]
        assert index == 0 or _moment(parent) < _moment(item), f"E2: the deadline at {index} is out of order"
    _same("E2", "the next deadline", engine.deadlines.next_due, items[0].due if items else NEVER)
    timed: list[Timed] = [job for job in jobs if _has_deadline(engine, job)]
    timed += [session for session in engine.sessions.values() if _on_grace(session)]
    timed += [wait for wait in waits if wait.deadline_pos != NOWHERE]
    _same("E5", "how many have a deadline", len(items), len(timed))
    for item in timed:
        assert items[item.deadline_pos] is item, "E2: a deadline stands where another says it is"


def _has_deadline(engine: Engine, job: Job) -> bool:
    """Tell whether a job has a deadline, once it is sure that it has the right one."""
    if job.state in (s.READY, s.BURIED):
        _same("E7", f"when the state of {_shown(job)} ends", job.wake, NEVER)
    assert job.state != s.DELAYED or job.wake != NEVER, f"E7: {_shown(job)} is delayed for ever"
    due = job.wake
    if job.state != s.TAKEN or engine.tube_of(job).ttl_kills:
        due = min(due, job.expiry)
    armed = job.deadline_pos != NOWHERE
    _same("E5", f"the deadline of {_shown(job)}", job.due if armed else NEVER, due)
    return armed


def _on_grace(session: Session) -> bool:
    """Tell whether a session is on its grace time, once it is sure that it should be."""
    armed = session.deadline_pos != NOWHERE
    assert session.connections >= 0, f"E8: session {session.number} has {session.connections} connections"
    _same("E8", f"whether session {session.number} is on its grace time", armed, session.connections == 0)
    return armed


# Who holds what, who waits for what


def _check_holders(engine: Engine, jobs: list[Job]) -> None:
    """E8: taken jobs of owned tubes are held, each by one living session that knows it; no other job is."""
    holdings: dict[int, list[Job]] = {session.slot: [] for session in engine.sessions.values()}
    for job in jobs:
        if job.state == s.TAKEN and engine.tube_of(job).owned:
            assert job.holder in holdings, f"E8: {_shown(job)} has no holder"
            holdings[job.holder].append(job)
        else:
            unheld = job.holder == NO_SLOT and job.held_pos == NOWHERE
            assert unheld, f"E8: {_shown(job)} is held, and nobody should hold it"
    for session in engine.sessions.values():
        _same_jobs("E8", f"what session {session.number} holds", session.held, holdings[session.slot])
        for index, job in enumerate(session.held):
            assert job.held_pos == index, f"E8: {_shown(job)} is held at {index} and says {job.held_pos}"


def _check_lines(engine: Engine) -> list[Wait]:
    """E2: every waiting take stands in its lines, first come first; tell which there are."""
    standing: list[Wait] = []
    for tube in engine.tubes.values():
        assert not tube.named or tube.line.length == 0, f"E2: a take of {tube.name!r} waits without a name"
        standing += _check_line(tube, tube.line)
        for name, line in tube.key_lines.items():
            assert line.key == name and line.length > 0, f"E2: {tube.name!r} keeps an empty line for {name!r}"
            standing += _check_line(tube, line)
    waits = {wait.number: wait for wait in standing}
    for wait in waits.values():
        _same("E2", f"links of wait {wait.number}", len(wait.links), standing.count(wait))
        assert wait.outcome == w.WAITING and not wait.jobs, (
            f"E2: wait {wait.number} ended, and still stands in line"
        )
        own = wait.connection.waits
        assert own.get(wait.number) is wait, f"E2: the connection of wait {wait.number} does not know of it"
        assert all(number in waits for number in own), (
            "E2: a connection remembers a wait that stands in no line"
        )
        session = wait.connection.session
        alive = engine.sessions.get(session.token) is session and session.connections > 0
        assert alive, f"E8: wait {wait.number} is of a session that has ended"
    return list(waits.values())


def _check_line(tube: Tube, line: Line) -> list[Wait]:
    waits: list[Wait] = []
    before = None
    link = line.head
    while link is not None:
        assert link.line is line and link.before is before, f"E2: a link in a line of {tube.name!r} is astray"
        assert link in link.wait.links, (
            f"E2: wait {link.wait.number} does not know of its place in {tube.name!r}"
        )
        waits.append(link.wait)
        before = link
        link = link.after
    numbers = [wait.number for wait in waits]
    assert numbers == sorted(numbers), (
        f"E2: in a line of {tube.name!r} somebody stands before one who came first"
    )
    assert line.tail is before, f"E2: the end of a line of {tube.name!r} is not its last link"
    _same("E2", f"length of a line of {tube.name!r}", line.length, len(waits))
    return waits


def _check_waiting(engine: Engine) -> None:
    """E9: whoever waits has nothing that it could have, and nothing is left to be looked at."""
    if is_behind(engine):
        return
    assert not engine._woken, "E9: the engine has tubes left to look at"
    for tube in engine.tubes.values():
        assert not tube.woken and not tube.woken_keys, f"E9: {tube.name!r} is left to be looked at"
        if tube.paused_out:
            continue
        job = tube.first_ready(None)
        assert job is None or tube.line.length == 0, (
            f"E9: a take waits on {tube.name!r}, which has {_shown(job)}"
        )
        for name in tube.key_lines:
            job = tube.first_ready(name)
            assert job is None, f"E9: a take waits on {name!r} of {tube.name!r}, which has {_shown(job)}"


# Saying it


def _same(invariant: str, what: str, maintained: object, rebuilt: object) -> None:
    assert maintained == rebuilt, (
        f"{invariant}: {what}: the engine has {maintained!r}, there should be {rebuilt!r}"
    )


def _same_jobs(invariant: str, what: str, maintained: Iterable[Job], rebuilt: Iterable[Job]) -> None:
    _same(invariant, what, sorted(job.id for job in maintained), sorted(job.id for job in rebuilt))


def _in_state(jobs: Iterable[Job], state: int) -> list[Job]:
    return [job for job in jobs if job.state == state]


def _least(jobs: Iterable[Job]) -> Job | None:
    return min(jobs, key=_rank, default=None)


def _filled(slots: Sequence[object]) -> dict[int, object]:
    return {slot: there for slot, there in enumerate(slots) if there is not None}


def _free(slots: Sequence[object]) -> list[int]:
    return [slot for slot, there in enumerate(slots) if there is None]


def _rank(job: Job) -> tuple[int, int]:
    return job.priority, job.order


def _moment(item: Timed) -> tuple[int, int]:
    return item.due, item.due_seq


def _shown(job: Job) -> str:
    return f"job {job.id}, which is {s.STATE_NAMES[job.state]}"
