"""Invariants of waiting commands. invariants.py lists the invariants E1 to E11."""

from __future__ import annotations

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.engine import Engine
from penstock.core.tube import Tube
from penstock.core.waits import Connection, CopyWait, PeerWait, PutWait, SignalWait, TakeWait, Waiting, WaitLine
from penstock.testing.assertions import same, shown


def check_lines(engine: Engine) -> list[Waiting]:
    """Check E2: each list of waiting commands is in order of arrival. Return all waiting commands."""
    standing: list[Waiting] = []
    for tube in engine.tubes.values():
        assert not tube.requires_key or tube.take_line.length == 0, f"E2: a take of {tube.name!r} waits without a name"
        standing += _check_line(tube, tube.take_line, TakeWait)
        standing += _check_line(tube, tube.put_line, PutWait)
        for name, line in tube.key_lines.items():
            assert line.key == name and line.length > 0, f"E2: {tube.name!r} keeps an empty line for {name!r}"
            standing += _check_line(tube, line, TakeWait)
    putting = sum(wait.draft.log_bytes() for wait in standing if isinstance(wait, PutWait))
    same("E2", "what puts that wait take of memory", engine.waiting_bytes, putting)
    waits = {wait.number: wait for wait in standing}
    for wait in waits.values():
        same("E2", f"links of wait {wait.number}", len(wait.links), standing.count(wait))
    for job_id, watching in engine.end_waits_by_id.items():
        job = engine.jobs.find(job_id)
        assert watching and job is not None, f"E2: job {job_id} has an empty list of watchers, or is gone"
        assert job.state not in (s.DONE, s.ZOMBIE), f"E9: {shown(job)}, and a command still waits for its end"
        waits |= {wait.number: wait for wait in watching}
    waits |= {wait.number: wait for wait in _for_copies(engine)}
    for session in engine.sessions.values():
        for number, signal_wait in ({} if session.signals is None else session.signals.waits).items():
            assert isinstance(signal_wait, SignalWait) and signal_wait.number == number, "E2: not a wait for signals"
            unseen = signal_wait.signals.since(signal_wait.after)
            assert not unseen, f"E9: wait {number} waits for a signal that is there"
            waits[number] = signal_wait
    for wait in waits.values():
        _check_wait(engine, wait, waits)
    return list(waits.values())


def _for_copies(engine: Engine) -> list[PeerWait]:
    """Return the commands that wait for other nodes.

    These commands are in no list of a tube. Check that a job whose command waits for copies is staged meanwhile.
    """
    found: list[PeerWait] = []
    for session in engine.sessions.values():
        for connection in session.connections.values():
            assert isinstance(connection, Connection)
            found += [wait for wait in connection.waits.values() if isinstance(wait, PeerWait)]
    for wait in found:
        if not isinstance(wait, CopyWait):
            continue
        # An at-most-once job is handed over instead. It is taken meanwhile, or back in its queue if no node takes it.
        held = wait.job.state == s.STAGED or (wait.job.once and wait.job.state != s.GONE)
        assert held, f"E9: {shown(wait.job)}, and a command still waits for its copies"
    return found


def _check_wait(engine: Engine, wait: Waiting, waits: dict[int, Waiting]) -> None:
    assert wait.outcome == w.WAITING, f"E2: wait {wait.number} has ended and is still in a line"
    assert not isinstance(wait, TakeWait) or not wait.jobs, f"E2: wait {wait.number} has jobs and is still in a line"
    own = wait.connection.waits
    assert own.get(wait.number) is wait, f"E2: the connection of wait {wait.number} does not contain it"
    assert all(number in waits for number in own), "E2: a connection has a wait that is in no line"
    session = wait.connection.session
    alive = engine.sessions.get(session.token) is session and bool(session.connections)
    assert alive, f"E8: wait {wait.number} is of a session that has ended"


def _check_line(tube: Tube, line: WaitLine, kind: type[Waiting]) -> list[Waiting]:
    waits: list[Waiting] = []
    before = None
    link = line.head
    while link is not None:
        assert link.line is line and link.before is before, f"E2: a link in a line of {tube.name!r} is broken"
        assert link in link.wait.links, f"E2: wait {link.wait.number} has no link in {tube.name!r}"
        assert isinstance(link.wait, kind), f"E2: wait {link.wait.number} is in the wrong line of {tube.name!r}"
        waits.append(link.wait)
        before = link
        link = link.after
    numbers = [wait.number for wait in waits]
    assert numbers == sorted(numbers), f"E2: a line of {tube.name!r} is not in order of arrival"
    assert line.tail is before, f"E2: the end of a line of {tube.name!r} is not its last link"
    same("E2", f"length of a line of {tube.name!r}", line.length, len(waits))
    return waits


def check_served(engine: Engine) -> None:
    """Check E9: no command waits for a job or for space that is available, and no tube is left to be processed."""
    assert not engine.woken_tubes, "E9: tubes are left to be processed"
    for tube in engine.tubes.values():
        assert not tube.woken and not tube.woken_keys, f"E9: {tube.name!r} is left to be processed"
        _check_room(tube)
        if tube.paused_out or tube.driven:
            continue
        job = tube.first_ready(None)
        assert job is None or tube.take_line.length == 0, f"E9: a take waits on {tube.name!r}, which has {shown(job)}"
        for name in tube.key_lines:
            job = tube.first_ready(name)
            assert job is None, f"E9: a take waits on {name!r} of {tube.name!r}, which has {shown(job)}"


def _check_room(tube: Tube) -> None:
    head = tube.put_line.head
    if head is not None and not tube.paused_in:
        assert isinstance(head.wait, PutWait)
        fits = tube.has_room(len(head.wait.draft.body))
        assert not fits, f"E9: a put waits on {tube.name!r}, which has room for it"
