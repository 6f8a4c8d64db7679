"""A reader of frames gets the lives of tubes and the names of clients together with the events of jobs."""

from __future__ import annotations

import dataclasses
import json
import pickle

from penstock.core import policy
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.journal.frame import parse_sent_frames
from penstock.journal.history.facts import SessionRow, TubeRow
from penstock.journal.history.gather import GatheredRows
from penstock.journal.history.reader import Reader
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import FrameFile, segment_names
from penstock.journal.tube_fields import decode_tube_fields, policy_json
from penstock.options import policy_from
from penstock.testing.disk import MemoryDisk
from tests.journal.maintenance.test_snapshot import Life
from tests.journal.shortened_queue import WALL


def gathered(disk: MemoryDisk) -> list[GatheredRows]:
    """Return the rows of each segment, from frames as a server sends them."""
    every = []
    for name in segment_names(disk):
        rows = GatheredRows()
        with FrameFile(disk, name) as file:
            for piece in file.whole_pieces(True):
                for frame in piece.frames:
                    sent = piece.data[frame.at : frame.at + frame.length]
                    rows.add(sent, parse_sent_frames(sent))
        every.append(rows)
    return every


def test_the_life_of_a_tube_is_gathered_with_its_policies() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    first = dataclasses.replace(policy.UTUBETTL, default_ttl_ms=60_000, key_stats=("ann", "bob"))
    second = dataclasses.replace(first, capacity=7, retry="3x then bury")
    tube = engine.create_tube(b"emails", first, WALL)
    engine.put(tube, Draft(b"x", key=b"ann"), WALL + 1)
    engine.alter(tube, second, WALL + 2)
    engine.pause(tube, True, False, WALL + 3)
    engine.truncate(tube, WALL + 4)
    engine.drop(tube, WALL + 5)
    again = engine.create_tube(b"emails", policy.FIFO, WALL + 6)
    log.commit(WALL + 6, WALL + 6)
    log.close(WALL + 6, WALL + 6)
    # The next open begins a new segment, which names the tubes that it uses.
    opened = open_log(disk, lambda: WALL + 10, "boot")
    opened.engine.put(opened.engine.tubes[b"emails"], Draft(b"y"), WALL + 10)
    opened.log.commit(WALL + 10, WALL + 10)

    one, two = gathered(disk)
    assert [(row.time - WALL, row.number, row.name, row.event) for row in one.tubes] == [
        (0, tube.number, b"emails", "made"),
        (2, tube.number, b"emails", "changed"),
        (3, tube.number, b"emails", "changed"),
        (5, tube.number, b"emails", "dropped"),
        (6, again.number, b"emails", "made"),
    ]
    assert [row.position for row in one.tubes] == sorted(row.position for row in one.tubes)
    found = [decode_tube_fields(row.fields) for row in one.tubes if row.fields is not None]
    assert [fields.policy for fields in found] == [first, second, second, policy.FIFO]
    assert [fields.created - WALL for fields in found] == [0, 0, 0, 6]
    assert [(fields.paused_in, fields.paused_out) for fields in found] == [
        (False, False),
        (False, False),
        (True, False),
        (False, False),
    ]
    [named] = two.tubes
    assert named[2:] == (again.number, b"emails", "named", None)
    assert two.names == {again.number: b"emails"}
    # A Spark task sends them to the driver.
    assert pickle.loads(pickle.dumps(one.tubes)) == one.tubes


def test_the_names_of_clients_are_gathered_and_their_tokens_are_not() -> None:
    disk = MemoryDisk()
    opened = open_log(disk, lambda: WALL, "boot")
    engine, log = opened.engine, opened.log
    tube = engine.create_tube(b"t", policy.FIFO, WALL)
    token = b"a secret of 16 b"
    session = engine.connect(token).session
    for name, user in [(b"worker-3", b""), (b"worker-3", b"ann"), (b"caf\xff", b"ann")]:
        session.set_client(name, user)
        engine.outbox.actor = session
        engine.put(tube, Draft(b"x"), WALL)
    engine.connect(b"a session unnamed")
    log.commit(WALL, WALL)
    [rows] = gathered(disk)
    assert [row[1:] for row in rows.sessions] == [
        (session.number, b"worker-3", b""),
        (session.number, b"worker-3", b"ann"),
        (session.number, b"caf\xff", b"ann"),
    ]
    assert token not in pickle.dumps(rows.sessions)
    assert rows.count == 3


def test_every_row_of_a_tube_and_of_a_named_client_is_gathered_at_its_position() -> None:
    disk = MemoryDisk()
    for seed in range(3):
        life = Life(disk, seed)
        life.work(150)
        life.take_snapshot(3)
    events = {event.position: event for event in Reader(disk).events()}
    tubes: list[TubeRow] = []
    sessions: list[SessionRow] = []
    for rows in gathered(disk):
        assert {row.number: row.name for row in rows.tubes} == rows.names
        tubes += rows.tubes
        sessions += rows.sessions
    reported = ("tube made", "tube changed", "tube dropped", "tube named")
    assert [row.position for row in tubes if events[row.position].event != "integers reserved"] == [
        position for position, event in events.items() if event.event in reported
    ]
    for row in tubes:
        event = events[row.position]
        named = "tube named" if event.event == "integers reserved" else event.event
        assert (f"tube {row.event}", row.time, row.name) == (named, event.time_ms, event.raw_tube)
        assert (row.fields is not None) == (row.event in ("made", "changed"))
    assert [row.position for row in sessions] == [
        position for position, event in events.items() if event.event == "session named"
    ]
    assert tubes


def test_a_policy_as_json_has_every_field_and_can_be_read_again() -> None:
    for made in policy.PRESETS.values():
        written = json.loads(policy_json(made))
        assert written.keys() == {field.name for field in dataclasses.fields(made)}
        assert policy_from(written) == made
    assert json.loads(policy_json(policy.FIFO))["default_ttl_ms"] is None


def test_fields_of_a_policy_from_other_versions_are_accepted() -> None:
    fields = {"type": "disque", "key_stats": [], "default_ttl_ms": NEVER, "of_a_newer_version": 1}
    encoded = json.dumps({"policy": fields, "created": 5, "paused_in": False, "paused_out": True, "new": 2}).encode()
    found = decode_tube_fields(encoded)
    assert found == (dataclasses.replace(policy.DISQUE, default_ttl_ms=NEVER), 5, False, True)
