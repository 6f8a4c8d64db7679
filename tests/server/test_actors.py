"""The log names the session that caused each event, for every command and both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.journal.history.reader import Event, Reader
from penstock.journal.real_disk import ReadOnlyDisk

from . import in_process
from .iproto_wire import IprotoWire
from .serving import Server, Wire, wait_for


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("logged"), "--appendfsync", "always", "--dir", "log")
    yield server
    server.stop()


def named(server: Server, name: str) -> Wire:
    wire = server.connect()
    assert wire.call("CLIENT", "SETNAME", name) == b"OK"
    return wire


def events_of(server: Server, *tubes: str) -> list[Event]:
    """Return the events of the jobs of these tubes that are on disk."""
    reader = Reader(ReadOnlyDisk(str(server.home / "log")))
    return [event for event in reader.events() if event.job is not None and event.tube in tubes]


def caused(server: Server, *tubes: str) -> list[tuple[str, str | None]]:
    """Return each event with the name of the client that caused it."""
    return [(event.event, event.actor_name) for event in events_of(server, *tubes)]


def take(wire: Wire, tube: str) -> bytes:
    [job] = wire.call("TAKE", tube)
    return bytes(job[job.index(b"id") + 1] if isinstance(job, list) else job[b"id"])


def test_every_command_over_resp_has_its_client_as_the_actor(logged: Server) -> None:
    producer, worker, operator = (named(logged, name) for name in ("producer", "worker", "operator"))
    operator.call("TUBE", "CREATE", "all", "TYPE", "fifottl")
    operator.call("TUBE", "CREATE", "others", "TYPE", "fifottl")
    producer.call("PUT", "all", "body")
    id = take(worker, "all")
    worker.call("JOB", "TOUCH", id)
    worker.call("RELEASE", id)
    worker.call("JOB", "NACK", take(worker, "all"))
    worker.call("BURY", take(worker, "all"))
    operator.call("KICK", "all")
    worker.call("JOB", "MOVE", take(worker, "all"), "others")
    worker.call("ACK", take(worker, "others"))
    operator.call("JOB", "DELETE", producer.call("PUT", "all", "second"))
    assert caused(logged, "all", "others") == [
        ("put", "producer"),
        ("taken", "worker"),
        ("touched", "worker"),
        ("released", "worker"),
        ("taken", "worker"),
        ("nacked", "worker"),
        ("taken", "worker"),
        ("buried", "worker"),
        ("kicked", "operator"),
        ("taken", "worker"),
        ("moved out", "worker"),
        ("moved in", "worker"),
        ("taken", "worker"),
        ("acked", "worker"),
        ("put", "producer"),
        ("deleted", "operator"),
    ]
    left = [event for event in events_of(logged, "all", "others") if event.before == "taken"]
    assert left and all(event.session == event.actor for event in left)


def test_commands_of_disque_have_their_client_as_the_actor(logged: Server) -> None:
    producer, worker = named(logged, "producer"), named(logged, "worker")
    id = producer.add("shared")
    worker.get("shared")
    worker.call("NACK", id)
    worker.get("shared")
    producer.call("ACKJOB", id)
    producer.call("DELJOB", producer.add("shared"))
    assert caused(logged, "shared") == [
        ("put", "producer"),
        ("taken", "worker"),
        ("nacked", "worker"),
        ("taken", "worker"),
        ("acked", "producer"),
        ("put", "producer"),
        ("deleted", "producer"),
    ]


def test_every_command_over_iproto_has_its_session_as_the_actor(logged: Server) -> None:
    producer, worker = IprotoWire(logged.iproto_port), IprotoWire(logged.iproto_port)
    producer.call("queue.create_tube", "lua", "fifottl")

    def task(wire: IprotoWire, function: str, *args: object) -> int:
        [[number, *_]] = wire.call(f"queue.tube.lua:{function}", *args)
        return int(number)

    task(producer, "put", "body")
    number = task(worker, "take", 0)
    task(worker, "touch", number, 5)
    task(worker, "release", number)
    task(worker, "bury", task(worker, "take", 0))
    producer.call("queue.tube.lua:kick", 1)
    task(worker, "ack", task(worker, "take", 0))
    task(producer, "delete", task(producer, "put", "second"))
    events = events_of(logged, "lua")
    who = {event.actor: name for event, name in zip(events, ("producer", "worker"), strict=False)}
    assert len(who) == 2 and None not in who
    assert [(event.event, who[event.actor]) for event in events] == [
        ("put", "producer"),
        ("taken", "worker"),
        ("touched", "worker"),
        ("released", "worker"),
        ("taken", "worker"),
        ("buried", "worker"),
        ("kicked", "producer"),
        ("taken", "worker"),
        ("acked", "worker"),
        ("put", "producer"),
        ("deleted", "producer"),
    ]
    producer.close()
    worker.close()


@pytest.mark.parametrize("protocol", ["resp", "iproto"])
def test_a_waiting_take_has_the_taker_as_the_actor_and_a_disconnect_has_none(logged: Server, protocol: str) -> None:
    tube = f"waiting_{protocol}"
    producer = named(logged, "producer")
    producer.call("TUBE", "CREATE", tube, "TYPE", "fifottl")
    if protocol == "resp":
        taker = named(logged, "taker")
        taker.send("TAKE", tube, "TIMEOUT", "1m")
    else:
        taker = IprotoWire(logged.iproto_port)
        sync = taker.start(f"queue.tube.{tube}:take", 60)
    stats = lambda: dict(zip(*[iter(producer.call("TUBE", "STATS", tube))] * 2, strict=True))  # noqa: E731
    wait_for(lambda: stats()[b"waiting"] == 1)
    producer.call("PUT", tube, "body")
    taker.read() if protocol == "resp" else taker.result(sync)
    taker.close()
    wait_for(lambda: len(events_of(logged, tube)) == 3)
    put, taken, returned = events_of(logged, tube)
    assert (put.event, put.actor_name) == ("put", "producer")
    assert taken.event == "taken" and taken.actor == taken.session and taken.actor not in (None, put.actor)
    assert returned.event == "disconnected" and returned.actor is None and returned.session == taken.session


def test_a_timer_has_no_actor(logged: Server) -> None:
    producer = named(logged, "producer")
    producer.call("TUBE", "CREATE", "timed", "TYPE", "fifottl")
    producer.call("PUT", "timed", "body", "DELAY", "10ms", "TTL", "50ms")
    wait_for(lambda: len(events_of(logged, "timed")) == 3)
    assert caused(logged, "timed") == [("put delayed", "producer"), ("delay passed", None), ("expired", None)]
    assert {event.actor for event in events_of(logged, "timed")[1:]} == {None}


def test_no_session_acts_between_the_commands_of_clients(tmp_path: Path) -> None:
    """Messages of other nodes are handled then."""

    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            for words in (("PUT", "t", "x"), ("TAKE", "t"), ("TAKE", "t", "TIMEOUT", "1ms")):
                await in_process.ask(server.config.port, *words)
                assert server.turn.engine.outbox.actor is None

    in_process.run(main())
