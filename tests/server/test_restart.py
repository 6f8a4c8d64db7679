"""Data that survives crashes, clean stops, and the restart that keeps jobs of a server without a journal."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ports import free_port

from .serving import Server, Wire, command, configured, decoded, refusals, wait_for

Start = Callable[..., Server]

DISQUE_CONF = """\
# A disque.conf: no journal, unless it says so.
dir data
loglevel notice
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A file as operators of Disque have it."""
    path = tmp_path / "disque.conf"
    path.write_text(DISQUE_CONF)
    return path


def ids_of(wire: Wire, count: int) -> list[bytes]:
    return [wire.read()[1:-2] for _ in range(count)]


# ---- Crashes ---------------------------------------------------------------------------------------------------------


def test_a_crash_loses_no_acknowledged_change(start: Start) -> None:
    server = start()
    wire = server.connect()
    assert wire.call("CONFIG", "GET", "appendfsync")[1] == b"always"
    node = wire.call("CLUSTER", "MYID")
    ready = [wire.add("ready", str(number)) for number in range(20)]
    assert wire.get("ready", "NOHANG", "COUNT", 3) == ready[:3]
    wire.call("ACKJOB", ready[0])
    wire.call("NACK", ready[1])
    delayed = wire.add("delayed", "", "DELAY", 600, "RETRY", 9)
    delayed_once = wire.add("delayed", "", "DELAY", 600, "RETRY", 0)
    held = wire.add("held", "", "RETRY", 600)
    once, once_taken = wire.add("once", "", "RETRY", 0), wire.add("once taken", "", "RETRY", 0)
    assert wire.get("held") + wire.get("once taken") == [held, once_taken]
    dequeued = wire.add("dequeued", "", "RETRY", 0)
    wire.call("DEQUEUE", dequeued)
    soon = wire.add("soon", "", "RETRY", 1)
    taken = time.time()
    assert wire.get("soon") == [soon]
    wire.call("PAUSE", "paused", "all")
    wire.call("CLUSTER", "LEAVING", "yes")
    server.kill()

    wire = start().connect()
    assert wire.call("CLUSTER", "MYID") == node
    assert wire.call("CLUSTER", "LEAVING") == b"yes"
    assert wire.call("CLUSTER", "LEAVING", "no") == b"OK"
    # Ready jobs are ready at once, in order and with their counters. Taken jobs are not ready.
    assert [job[1] for job in wire.call("QPEEK", "ready", 99)] == [ready[1], *ready[3:]]
    assert [job[1] for job in wire.call("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "ready")] == [ready[1]]
    assert wire.show(ready[1])[b"nacks"] == 1
    assert wire.state(ready[0]) is None
    assert wire.state(ready[2]) == b"active"
    # Delays and retry times continue.
    for id in (delayed, delayed_once, held):
        shown = wire.show(id)
        assert shown[b"state"] == b"active"
        # A start may take ten seconds on a busy machine.
        assert 540_000 < shown[b"next-requeue-within"] < 600_000
    assert wire.show(delayed)[b"retry"] == 9
    # At most once: delivered jobs are not delivered again, and the others are delivered.
    assert (wire.get("once"), wire.get("once taken")) == ([once], [])
    assert wire.call("ENQUEUE", once_taken, dequeued) == 1
    assert wire.get("dequeued") == [dequeued]
    assert wire.call("PAUSE", "paused", "state") == b"all"
    # Checked with the counters, because later the job may have come back once more.
    again = wire.call("GETJOB", "TIMEOUT", 5_000, "WITHCOUNTERS", "FROM", "soon")
    assert again == [[b"soon", soon, b"", b"nacks", 0, b"additional-deliveries", 1]]
    assert time.time() - taken >= 0.99
    assert wire.call("ACKJOB", held, once_taken, *ready[1:]) == 21


def test_a_crash_under_load_keeps_every_added_job_and_no_acked_one(start: Start) -> None:
    server = start()
    wire = server.connect()
    wire.send_raw(command("ADDJOB", "q", "", 0) * 1_000)
    added = ids_of(wire, 1_000)
    wire.send_raw(b"".join(command("ADDJOB", "q", "", 0) + command("ACKJOB", id) for id in added))
    kept = []
    for _ in range(200):
        kept += ids_of(wire, 1)
        assert wire.read() == b":1\r\n"
    server.kill()

    wire = start().connect()
    left = set(wire.call("JSCAN", "BUSYLOOP")[1])
    assert set(kept) <= left
    assert not set(added[:200]) & left


# ---- The journal at run time -----------------------------------------------------------------------------------------


def test_a_journal_that_is_switched_on_has_everything_and_one_that_is_switched_off_nothing(
    start: Start, conf: Path
) -> None:
    server = start("disque.conf")
    wire = server.connect()
    assert wire.info("persistence")["aof_state"] == "off"
    node = wire.call("CLUSTER", "MYID")
    before = [wire.add("q", "before"), wire.add("q", "taken")]
    once = wire.add("once", "", "RETRY", 0)
    assert wire.get("once") == [once]
    assert wire.ask("CONFIG", "SET", "appendonly", "yes") == b"+OK\r\n"
    assert wire.ask("CONFIG", "SET", "appendfsync", "always") == b"+OK\r\n"
    assert wire.info("persistence")["aof_state"] == "on"
    after = wire.add("q", "after")
    assert wire.ask("CONFIG", "REWRITE") == b"+OK\r\n"
    server.kill()

    server = start("disque.conf")
    wire = server.connect()
    assert wire.call("CLUSTER", "MYID") == node
    assert wire.info("persistence")["journal_fsync"] == "always"
    assert wire.get("q", "NOHANG", "COUNT", 9) == [*before, after]
    assert (wire.get("once"), wire.state(once)) == ([], b"active")
    assert wire.ask("CONFIG", "SET", "appendonly", "no") == b"+OK\r\n"
    assert wire.info("persistence")["aof_state"] == "off"
    assert wire.state(after) == b"active"
    later = wire.add("later")
    server.kill()

    # The file still says yes. Changes without a journal are lost, and no job that may have been delivered is delivered.
    wire = start("disque.conf").connect()
    assert wire.call("CLUSTER", "MYID") == node
    assert wire.state(later) is None
    assert wire.add("later") not in (later, *before, after, once)
    assert wire.state(before[0]) == b"active"
    assert (wire.get("q"), wire.get("once")) == ([], [])


def test_a_journal_can_be_switched_off_and_on_while_clients_work(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    waiting = wires()
    waiting.send("GETJOB", "COUNT", 2, "FROM", queue)
    wait_for(lambda: wire.call("QSTAT", queue))
    for word in ("no", "yes", "yes", "no", "no", "yes"):
        assert wire.ask("CONFIG", "SET", "appendonly", word) == b"+OK\r\n"
        wire.add(queue + b"2")
    id = wire.add(queue, "served")
    assert decoded(waiting.read()) == [[queue, id, b"served"]]
    assert wire.call("QLEN", queue + b"2") == 6


def test_a_journal_that_is_switched_while_others_add_costs_them_nothing(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    added: list[bytes] = []
    others = [wires() for _ in range(4)]

    def add(other: Wire) -> None:
        added.extend([other.add(queue, "x") for _ in range(25)])

    with configured(wire, "appendfsync", "always"), ThreadPoolExecutor(len(others)) as threads:
        done = [threads.submit(add, other) for other in others]
        while not all(each.done() for each in done):
            for word in ("no", "yes"):
                assert wire.ask("CONFIG", "SET", "appendonly", word) == b"+OK\r\n"
        for each in done:
            each.result()
    assert wire.call("QLEN", queue) == len(set(added)) == 100


def test_a_journal_that_memory_is_too_small_to_do_without_stays_on(wire: Wire, queue: bytes) -> None:
    wire.call("DEBUG", "FLUSHALL")
    with configured(wire, "maxmemory", "1mb"):
        ids = [wire.add(queue, bytes([number]) * 100_000) for number in range(12)]
        assert wire.ask("CONFIG", "SET", "appendonly", "no")[:5] == b"-OOM "
        assert wire.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
        assert wire.info("persistence")["aof_state"] == "on"
        for number, id in enumerate(ids):
            assert wire.call("GETJOB", "FROM", queue) == [[queue, id, bytes([number]) * 100_000]]


# ---- The controlled restart ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("appendonly", "times"), [("no", 2), ("yes", 1)])
def test_the_three_steps_of_a_controlled_restart_keep_everything(
    start: Start, conf: Path, appendonly: str, times: int
) -> None:
    conf.write_text(DISQUE_CONF + f"appendonly {appendonly}\n")
    server = start("disque.conf")
    wire = server.connect()
    node = wire.call("CLUSTER", "MYID")
    queued = [wire.add("q", str(number), "RETRY", retry) for number, retry in enumerate((0, 60, 0, 60))]
    taken = wire.add("taken", "", "RETRY", 600)
    once = wire.add("once", "", "RETRY", 0)
    delayed = wire.add("delayed", "", "DELAY", 600, "RETRY", 0)
    assert wire.get("taken") + wire.get("once") == [taken, once]
    wire.call("PAUSE", "paused", "in")
    for _ in range(times):
        assert wire.ask("CONFIG", "SET", "aof-enqueue-jobs-once", "yes") == b"+OK\r\n"
        assert wire.ask("CONFIG", "REWRITE") == b"+OK\r\n"
        assert "aof-enqueue-jobs-once yes" in conf.read_text()
        wire.send("SHUTDOWN", "REWRITE-AOF")
        assert wire.read() == b""
        assert server.ended() == 0

        server = start("disque.conf")
        wire = server.connect()
        assert wire.call("CLUSTER", "MYID") == node
        assert [job[1] for job in wire.call("QPEEK", "q", 9)] == queued
        assert (wire.state(taken), wire.state(once), wire.state(delayed)) == (b"active", b"active", b"active")
        assert 540_000 < wire.show(delayed)[b"next-requeue-within"] < 600_000
        assert wire.show(queued[0])[b"additional-deliveries"] == 0
        assert wire.call("PAUSE", "paused", "state") == b"in"
        # The setting was for one start only.
        assert wire.call("CONFIG", "GET", "aof-enqueue-jobs-once")[1] == b"no"
        assert "aof-enqueue-jobs-once yes" not in conf.read_text()
        assert wire.call("CONFIG", "GET", "appendonly")[1] == appendonly.encode()
        assert wire.info("persistence")["aof_enabled"] == ("1" if appendonly == "yes" else "0")
    assert wire.get("q", "NOHANG", "COUNT", 9) == queued


def test_a_stop_without_a_journal_loses_the_jobs_but_keeps_the_node_id(start: Start, conf: Path) -> None:
    server = start("disque.conf")
    wire = server.connect()
    node, id = wire.call("CLUSTER", "MYID"), wire.add("q")
    wire.call("CONFIG", "SET", "maxclients", 77)
    wire.call("CONFIG", "REWRITE")
    wire.send("SHUTDOWN")
    assert (wire.read(), server.ended()) == (b"", 0)

    server = start("disque.conf", "--timeout", "7")
    wire = server.connect()
    assert wire.call("CLUSTER", "MYID") == node
    assert wire.state(id) is None
    assert wire.call("CONFIG", "GET", "maxclients")[1] == b"77"
    assert wire.call("CONFIG", "GET", "timeout")[1] == b"7"
    assert (Path(wire.call("CONFIG", "GET", "dir")[1].decode())) == conf.parent / "data"

    # SIGINT is a clean stop, too. All other tests end with SIGTERM. SIGHUP is ignored.
    waiting = server.connect()
    waiting.send("GETJOB", "FROM", "empty")
    wait_for(lambda: wire.call("QSTAT", "empty"))
    server.process.send_signal(signal.SIGHUP)
    assert wire.ask("PING") == b"+PONG\r\n"
    server.process.send_signal(signal.SIGINT)
    assert (wire.read(), waiting.read()) == (b"", b"")
    assert server.ended() == 0
    assert "shutdown started: signal=SIGINT" in server.log()


# ---- Stopping and starting -------------------------------------------------------------------------------------------


def test_debug_restart_is_a_stop_and_a_start_of_the_same_process(start: Start, conf: Path) -> None:
    server = start("disque.conf", "--debug-commands", "yes", "--appendonly", "yes", is_forked=False)
    wire = server.connect()
    pid, run, id = wire.info("server")["process_id"], wire.info("server")["run_id"], wire.add("q")
    wire.call("CONFIG", "SET", "maxclients", 77)
    conf.unlink()
    conf.mkdir()
    for words in (["CONFIG", "REWRITE"], ["DEBUG", "RESTART"]):
        assert wire.ask(*words).startswith(b"-ERR Rewriting config file: ")
    conf.rmdir()
    conf.write_text(DISQUE_CONF)
    for word in ("RESTART", "CRASH-AND-RECOVER"):
        wire.send("DEBUG", word)
        wait_for(lambda: wire.read() == b"")  # noqa: B023
        wait_for(server.answers)
        wire = server.connect()
        told = wire.info("server")
        assert (told["process_id"], told["run_id"] != run) == (pid, True)
        run = told["run_id"]
        assert [job[1] for job in wire.call("QPEEK", "q", 9)] == [id]
        assert wire.call("CONFIG", "GET", "maxclients")[1] == b"77"


def test_wrong_configurations_stop_the_start(start: Start, tmp_path: Path, conf: Path) -> None:
    server = start("--dir", "data")
    conf.write_text(DISQUE_CONF + "appendonly perhaps\n")
    port = ["--port", str(free_port())]
    starts = {
        # Two servers cannot use one directory, or one port.
        (75, "is open in another process"): ["--dir", "data", "--journal", "no", *port],
        (1, f"port {server.port} is in use; choose another port with --port"): [
            *("--dir", "other", "--port", str(server.port), "--iproto-port", str(free_port())),
        ],
        (2, "disque.conf is not a directory"): ["--dir", "disque.conf", *port],
        # Listening on other addresses needs a password.
        (2, "binding 0.0.0.0 without a password"): ["--bind", "127.0.0.1", "0.0.0.0", *port],
        (2, "disque.conf line 4: appendonly must be yes or no"): ["disque.conf", *port],
    }
    for (code, said), (expected, why) in zip(refusals(tmp_path, *starts.values()), starts, strict=True):
        assert code == expected and why in said
    server.connect().add("q")


def test_a_shutdown_that_cannot_save_the_jobs_is_refused(start: Start, tmp_path: Path) -> None:
    server = start("--no-journal", "--dir", "kept")
    wire = server.connect()
    id = wire.add("q")
    # An unreadable log blocks the new journal.
    (tmp_path / "kept" / "segment-0000000001.log").write_bytes(b"not a log" * 1_000)
    assert wire.ask("SHUTDOWN", "REWRITE-AOF") == b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"
    assert wire.state(id) == b"queued"
    (tmp_path / "kept" / "segment-0000000001.log").unlink()


def test_a_shutdown_during_a_snapshot_logs_no_warning(start: Start) -> None:
    server = start("--appendonly", "yes")
    wire = server.connect()
    for _ in range(2_000):
        wire.send("ADDJOB", "q", b"x" * 1_000, 0)
    for _ in range(2_000):
        wire.read()
    wire.send_raw(command("BGREWRITEAOF") + command("SHUTDOWN"))
    assert wire.read() == b"+Background append only file rewriting started\r\n"
    assert server.ended() == 0
    assert "shortened" not in server.log()
    assert "maintenance failed" not in server.log()
