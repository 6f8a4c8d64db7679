"""Drivers in a server: named in its configuration file, and isolated so that they cannot harm the node."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tarantool

from tests.drivers.samples import documented_code, write_modules
from tests.server.serving import PENSTOCK, Refusal, Server, Wire, wait_for

USAGE = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, str(write_modules(tmp_path)))
    yield server
    server.stop()


def refused(wire: Wire, *words: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        wire.call(*words)
    return str(refusal.value)


def cannot_start(home: Path, *words: str, **environment: str) -> str:
    """Return the error of a server that does not start. Its exit code means a wrong configuration."""
    ended = subprocess.run(
        [*PENSTOCK, "serve", *words, "--port", "0", "--iproto-port", "0", "--cluster-port", "0"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == USAGE, ended
    return ended.stderr


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_module:Lifo", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("documented_lifo:Fifo", "AttributeError: module 'documented_lifo' has no attribute 'Fifo'"),
        ("documented_lifo:LifoTube", 'a driver must have functions "create_space" and "new"'),
        ("broken:Lifo", "SystemExit: 3"),
    ],
)
def test_a_driver_that_cannot_be_loaded_is_an_error_that_names_it_and_its_line(
    target: str, why: str, tmp_path: Path
) -> None:
    write_modules(tmp_path)
    (tmp_path / "broken.py").write_text("import sys\nsys.exit(3)\n")
    file = tmp_path / "penstock.toml"
    file.write_text(f'port = 0\n\n[drivers]\nstack = "{target}"\n')
    told = cannot_start(tmp_path, str(file))
    assert "line 3: driver stack: cannot load " + target in told and why in told


@pytest.mark.parametrize("value", ['"documented_lifo"', '"a b:c"', "7"])
def test_a_driver_that_is_not_a_module_and_class_is_refused(value: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"[drivers]\nstack = {value}\n")
    assert "drivers must be a type of tube, then a module and a name in it" in cannot_start(tmp_path, str(file))


def test_a_driver_cannot_have_the_name_of_an_existing_type(tmp_path: Path) -> None:
    write_modules(tmp_path)
    file = tmp_path / "penstock.toml"
    file.write_text('[drivers]\nfifo = "documented_lifo:Lifo"\n')
    assert "there is a type of tube called 'fifo' already" in cannot_start(tmp_path, str(file))


def test_only_the_configuration_file_can_name_code(server: Server, tmp_path: Path) -> None:
    why = "names code that the server runs; set it in the config file"
    assert f"flag --driver: driver {why}" in cannot_start(tmp_path, "--driver", "stack documented_lifo:Lifo")
    told = cannot_start(tmp_path, PENSTOCK_DRIVERS="stack documented_lifo:Lifo")
    assert f"environment PENSTOCK_DRIVERS: drivers {why}" in told
    wire = server.connect()
    for name in ("driver", "drivers"):
        assert "Unsupported CONFIG parameter" in refused(wire, "CONFIG", "SET", name, "x documented_lifo:Lifo")


def test_a_disque_conf_file_can_name_drivers(tmp_path: Path) -> None:
    write_modules(tmp_path)
    (tmp_path / "disque.conf").write_text("driver stack documented_lifo:Lifo\n")
    server = Server(tmp_path, "disque.conf", "--appendonly", "yes")
    wire = server.connect()
    wire.call("TUBE", "CREATE", "words", "TYPE", "stack")
    assert wire.call("PUT", "words", "x")
    server.stop()


def test_an_error_of_a_driver_is_the_error_of_one_client_and_changes_nothing(server: Server) -> None:
    wire, other = server.connect(), server.connect()
    wire.call("TUBE", "CREATE", "jobs", "TYPE", "five")
    wire.call("PUT", "jobs", "kept")
    told = refused(wire, "PUT", "jobs", "x", "OPTIONS", '{"fails": true}')
    assert told == "BADDRIVER the 'five' driver failed in put: RuntimeError: told to fail"
    with closing(tarantool.Connection("127.0.0.1", server.iproto_port)) as connection:
        with pytest.raises(tarantool.error.DatabaseError, match="RuntimeError: told to fail"):
            connection.call("queue.tube.jobs:put", ("x", {"fails": True}))
        assert connection.call("queue.statistics", ("jobs",)).data[0]["tasks"]["ready"] == 1
    assert "NOJOB" in refused(other, "JOB", "NAMED", "jobs", "half"), "the half-done put was rolled back"
    assert other.call("TAKE", "jobs")[0][5] == b"kept"
    assert "driver failed: driver=five tube=jobs method=put error=RuntimeError: told to fail" in server.log()
    assert "default must be a whole number" in refused(
        wire, "TUBE", "CREATE", "odd", "TYPE", "five", "OPTIONS", '{"default": "x"}'
    )
    assert b"odd" not in wire.call("TUBE", "LIST")


def test_a_call_that_takes_longer_than_a_tenth_of_a_second_is_logged_with_the_name_of_the_driver(
    server: Server,
) -> None:
    wire = server.connect()
    wire.call("TUBE", "CREATE", "jobs", "TYPE", "five")
    wire.call("PUT", "jobs", "x")
    assert "slow driver call" not in server.log()
    wire.call("PUT", "jobs", "x", "OPTIONS", '{"slow": true}')
    assert "slow driver call: driver=five tube=jobs method=put ms=" in server.log()


def test_a_task_whose_client_leaves_goes_back_to_its_driver_and_to_a_client_that_waits(server: Server) -> None:
    leaving, waiting = server.connect(), server.connect()
    leaving.call("TUBE", "CREATE", "words", "TYPE", "stack")
    leaving.call("PUT", "words", "x")
    assert leaving.call("TAKE", "words")
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(waiting.call("TAKE", "words", "TIMEOUT", "20")))
    waiter.start()
    wait_for(lambda: server.connect().info("clients")["blocked_clients"] == "1")
    leaving.close()
    waiter.join(20)
    assert found and found[0][0][5] == b"x"
    assert waiting.call("ACK", "words#1") == 1


def test_a_killed_server_restores_every_task_and_releases_the_taken_ones(server: Server) -> None:
    wire = server.connect()
    wire.call("TUBE", "CREATE", "jobs", "TYPE", "five", "OPTIONS", '{"default": 3}')
    for word in ("one", "two", "three"):
        wire.call("PUT", "jobs", word)
    taken = wire.call("TAKE", "jobs")
    wire.call("BURY", "jobs#t3")
    server.kill()
    server.start_again()
    wire = server.connect()
    assert wire.call("JOB", "NAMED", "jobs", "t1")[-1] == b"ready"
    assert wire.call("TAKE", "jobs")[0][1] == taken[0][1]
    assert wire.call("KICK", "jobs", 5) == 1
    wire.call("PUT", "jobs", "four")
    assert [wire.call("TAKE", "jobs")[0][5] for _ in range(3)] == [b"two", b"three", b"four"], "at its default priority"


def test_a_tube_without_its_driver_is_refused_and_its_jobs_are_kept(tmp_path: Path) -> None:
    file = write_modules(tmp_path)
    (tmp_path / "documented_lifo.py").write_text(documented_code())
    server = Server(tmp_path, str(file))
    wire = server.connect()
    wire.call("TUBE", "CREATE", "words", "TYPE", "stack")
    wire.call("PUT", "words", "x")
    wire.call("TAKE", "words")
    server.kill()
    drivers = file.read_text()
    file.write_text("[drivers]\n")
    server.start_again()
    wire = server.connect()
    why = "UNSUPPORTED tube 'words' has the driver 'stack', which is not registered; its jobs are kept"
    for words in (["PUT", "words", "y"], ["TAKE", "words"], ["KICK", "words"], ["TUBE", "TRUNCATE", "words"]):
        assert refused(wire, *words).startswith(why)
    assert refused(wire, "JOB", "DELETE", "words#1").startswith(why)
    assert dict(zip(*[iter(wire.call("TUBE", "STATS", "words"))] * 2, strict=True))[b"ready"] == 1
    assert "tube 'words' has the driver 'stack', which is not registered" in server.log()
    server.kill()
    file.write_text(drivers)
    server.start_again()
    assert server.connect().call("TAKE", "words")[0][5] == b"x"
    server.stop()


def test_driver_options_are_refused_for_tubes_without_a_driver(server: Server) -> None:
    wire = server.connect()
    wire.call("PUT", "plain", "x")
    assert refused(wire, "PUT", "plain", "x", "OPTIONS", "{}").startswith("UNSUPPORTED a fifottl tube has no driver")
    assert refused(wire, "PUT", "plain", "x", "OPTIONS", "[]").startswith("WRONGTYPE the options for a driver must be")
    id = wire.call("TAKE", "plain")[0][1]
    assert refused(wire, "RELEASE", id, "OPTIONS", "{}").startswith("UNSUPPORTED a fifottl tube has no driver")
    assert refused(wire, "TUBE", "CREATE", "t", "TYPE", "fifo", "OPTIONS", "{}").startswith("UNSUPPORTED OPTIONS are")
    wire.call("TUBE", "CREATE", "words", "TYPE", "stack")
    buried, ready, taken = (wire.call("PUT", "words", "x") for _ in range(3))
    wire.call("BURY", buried)
    wire.call("TAKE", "words")
    for words in (
        *(["JOB", "SNATCH", taken], ["REQUEUE", taken], ["JOB", "DONE", taken, "y"], ["JOB", "TOUCH", taken]),
        *(["JOB", "SWITCH", ready, "buried"], ["JOB", "MOVE", ready, "plain"], ["DIG", buried]),
    ):
        assert refused(wire, *words).startswith("UNSUPPORTED a stack tube has no ")
    assert refused(wire, "MPUT", "words", "JOB", "x").startswith("UNSUPPORTED a stack tube has no batches")
    assert refused(wire, "TUBE", "ALTER", "words", "RETRY", "3x").startswith("UNSUPPORTED a stack tube has a driver")
