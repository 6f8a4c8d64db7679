"""The promises of the Makefile, tests/conftest.py and ports.py.

The demo installs only what it needs, the right build is tested, CI skips nothing, and ports are given out once.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ports import PORTS, free_port

Needs = Callable[[object, str], None]


def test_a_run_that_expects_the_other_build_stops_at_once(compiled: bool) -> None:
    env = os.environ | {"PENSTOCK_EXPECT": "interpreted" if compiled else "compiled"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", __file__],
        cwd=Path(__file__).parent.parent,
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "but penstock is" in run.stderr


def test_what_a_test_cannot_have_skips_it(needs: Needs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    needs("git", "git is not installed")
    with pytest.raises(pytest.skip.Exception, match="git is not installed"):
        needs(None, "git is not installed")


def test_what_a_test_cannot_have_fails_it_in_ci(needs: Needs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    needs("git", "git is not installed")
    with pytest.raises(pytest.fail.Exception, match="git is not installed"):
        needs(None, "git is not installed")


def test_ports_are_given_out_once_and_never_by_the_system() -> None:
    code = "from tests.ports import free_port; print(*[free_port() for _ in range(100)])"
    command = [sys.executable, "-c", code]
    home = Path(__file__).parent.parent
    others = [subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    given = [free_port() for _ in range(100)]
    for other in others:
        given += map(int, other.communicate()[0].split())
    assert len(set(given)) == len(given) == 300
    assert all(port in PORTS for port in given)
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if ephemeral.exists():
        assert PORTS[-1] + 10_000 < int(ephemeral.read_text().split()[0])


def steps(target: str, venv: Path) -> list[str]:
    """Return the steps of scripts/setup.sh that a target of make runs on a machine that has no .venv yet."""
    words = ["make", "--dry-run", target, f"VENV={venv}"]
    done = subprocess.run(words, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return re.findall(r"scripts/setup\.sh (\w+)", done.stdout)


def test_the_demo_installs_what_it_needs_and_nothing_that_only_tests_need(needs: Needs, tmp_path: Path) -> None:
    needs(shutil.which("make"), "make is not installed")
    assert sorted(steps("demo", tmp_path / "venv")) == ["base", "package", "spark", "wheel"]
    assert steps("test-compiled", tmp_path / "venv")[:3] == ["base", "spark", "tools"]
