"""The promises of tests/conftest.py: the right build is tested, and CI skips nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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
