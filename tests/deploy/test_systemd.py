"""The systemd unit is valid, keeps the server from the rest of the machine, and names settings that exist."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.server.config.configuration import load
from tests.test_packaging import ROOT, run

Needs = Callable[[object, str], None]

UNIT = ROOT / "deploy" / "penstock.service"
# Of 100. systemd calls up to 20 "OK".
EXPOSURE_MAX = 20


def test_systemd_accepts_the_unit(tmp_path: Path, needs: Needs) -> None:
    needs(shutil.which("systemd-analyze"), "systemd is not installed")
    # verify checks that the program exists.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/penstock/bin/penstock", "/bin/true"))
    done = run("systemd-analyze", "verify", copy, cwd=tmp_path)
    assert done.returncode == 0 and "penstock.service" not in done.stderr, done.stderr


def test_the_unit_exposes_little_of_the_machine(tmp_path: Path, needs: Needs) -> None:
    needs(shutil.which("systemd-analyze"), "systemd is not installed")
    done = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", UNIT, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_unit_names_settings_that_exist() -> None:
    unit = UNIT.read_text()
    (command,) = re.findall(
        r"^ExecStart=.* penstock serve (.*)$", unit.replace("/bin/penstock", "/bin/ penstock"), re.M
    )
    file, *flags = command.split()
    assert file == "/etc/penstock.toml"
    words = [word.replace("${STATE_DIRECTORY}", "/var/lib/penstock") for word in flags]
    config = load(str(UNIT.parent / "penstock.toml"), words, {}, UNIT.parent)
    assert config.log_format == "json" and str(config.dir) == "/var/lib/penstock"
