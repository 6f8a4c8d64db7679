"""`penstock doctor` finds what is wrong with a machine, and `penstock cluster gather` collects facts but no bodies."""

from __future__ import annotations

import json
import socket
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.doctor import disk
from penstock.cli.main import app
from tests.server.serving import Server


def doctor(*words: object) -> tuple[Result, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result, {row["name"]: row for row in map(json.loads, result.output.splitlines())}


def test_it_examines_installation_machine_disk_and_ports(tmp_path: Path) -> None:
    _, found = doctor("--dir", tmp_path / "not" / "there")
    assert {row["area"] for row in found.values()} == {"environment", "machine", "disk", "ports"}
    assert {"penstock", "engine", "python", "open files", "memory", "clock", "sync", "free space"} <= set(found)
    assert all(bool(row["advice"]) == (row["level"] != "ok") for row in found.values())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_memory_is_a_problem() -> None:
    shared = Path("/dev/shm")
    if disk.file_system_of(shared) != "tmpfs":
        pytest.skip("this machine has no file system in memory")
    result, found = doctor("--dir", shared)
    assert result.exit_code == 1 and found["file system"]["level"] == "problem"
    assert "a restart of the machine loses all jobs" in found["file system"]["advice"]
    assert found["sync"]["level"] == "problem" and "does not reach the disk" in found["sync"]["advice"]


def test_it_distinguishes_a_port_of_another_program_from_a_running_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        _, found = doctor("--dir", tmp_path, "--port", port)
        assert found[f"RESP {port}"]["level"] == "warning" and "Another program" in found[f"RESP {port}"]["advice"]
    server = Server(tmp_path)
    try:
        _, found = doctor("--dir", tmp_path, "--port", server.port)
        assert found[f"RESP {server.port}"]["level"] == "ok" and found["server"]["value"].startswith("running, version")
    finally:
        server.stop()


def test_people_read_a_table_and_the_advice(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--dir", str(tmp_path)])
    assert result.output.startswith("AREA") and ("No problems were found." in result.output or ": " in result.output)


def test_the_archive_for_support_has_facts_but_no_bodies_and_no_secrets(tmp_path: Path) -> None:
    home = tmp_path / "server"
    home.mkdir()
    server = Server(home, "--requirepass", "p4ssword", "--slowlog-log-slower-than", "0", password="p4ssword")
    url = f"penstock://:p4ssword@127.0.0.1:{server.port}"
    file = tmp_path / "support.tar.gz"
    try:
        wire = server.connect()
        wire.call("AUTH", "p4ssword")
        wire.call("PUT", "orders", "b0dy", "HEADER", "tenant", "h34der", "NAME", "n4me")
        result = CliRunner().invoke(app, ["cluster", "gather", "--to", str(file), "--url", url])
        assert result.exit_code == 0 and "no bodies of jobs" in result.output, result.output
        again = CliRunner().invoke(app, ["cluster", "gather", "--to", str(file), "--url", url])
        assert again.exit_code == 2 and "exists; choose another file with --to" in again.output
    finally:
        server.stop()
    assert file.stat().st_mode & 0o077 == 0
    with tarfile.open(file) as archive:
        parts = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive}
        content = {name: part.read().decode() for name, part in parts.items() if part is not None}
    assert "orders" in content[next(name for name in content if name.endswith("tubes.json"))]
    slow = json.loads(content[next(name for name in content if name.endswith("slow-commands.json"))])
    assert "PUT" in {entry["command"] for entry in slow}
    for secret in ("b0dy", "h34der", "n4me", "p4ssword"):
        assert not [name for name, text in content.items() if secret in text]
