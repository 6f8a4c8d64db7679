"""`penstock sim`: seeds from the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from penstock.cli.errors import ERROR, OK, USAGE
from penstock.cli.main import app
from penstock.testing.sim import swarm
from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import simulate
from tests.server.serving import environment

SMALL = ["--set", "nodes=1", "--set", "jobs=5", "--set", "chaos_ms=500", "--set", "replicate=1", "--set", "nemeses="]


def test_a_passing_seed_prints_its_options_and_digest() -> None:
    done = CliRunner().invoke(app, ["sim", "--seed", "3", *SMALL])
    assert done.exit_code == OK
    assert "seed 3 passed; options: nodes=1" in done.output and "digest: " in done.output
    assert "1 seeds, 0 failed" in done.output


def test_a_failing_seed_prints_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, settings: list[str]) -> Report:
        report = simulate(seed, settings)
        report.violations = ["C1: lost"]
        return report

    monkeypatch.setattr(swarm, "simulate", broken)
    done = CliRunner().invoke(app, ["sim", "--seed", "3", "--seeds", "2", *SMALL])
    assert done.exit_code == ERROR
    assert "C1: lost" in done.output and "penstock sim --seed 4 --set nodes=1 --set jobs=5" in done.output
    assert "2 of 2 seeds failed" in done.output


def test_an_error_in_a_simulation_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(seed: int, settings: list[str]) -> Report:
        raise AssertionError("E1: more jobs than there are")

    monkeypatch.setattr(swarm, "simulate", stopped)
    done = CliRunner().invoke(app, ["sim", "--seed", "3", *SMALL])
    assert done.exit_code == ERROR
    assert "E1: more jobs than there are" in done.output and "penstock sim --seed 3" in done.output


@pytest.mark.parametrize("setting", ["nodes", "nothing=1", "nodes=x"])
def test_an_invalid_setting_is_refused(setting: str) -> None:
    assert CliRunner().invoke(app, ["sim", "--set", setting]).exit_code == USAGE


# Loads the modules of the simulator from their source, even if they are compiled.
FROM_SOURCE = """
import sys
from importlib.machinery import FileFinder, SourceFileLoader

class FromSource:
    def find_spec(self, name, path, target=None):
        if name.startswith("penstock.testing.sim."):
            return FileFinder(path[0], (SourceFileLoader, [".py"])).find_spec(name)

sys.meta_path.insert(0, FromSource())
from penstock.__main__ import main
main()
"""


def test_the_interpreted_simulator_gives_the_same_digest() -> None:
    words = [sys.executable, "-c", FROM_SOURCE, "sim", "--seed", "3"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == OK, done.stderr
    digest = [line for line in done.stdout.splitlines() if "digest: " in line]
    assert digest and digest[0] in CliRunner().invoke(app, ["sim", "--seed", "3"]).output
