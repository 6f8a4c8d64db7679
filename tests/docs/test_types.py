"""The examples of the documentation pass mypy --strict and pyright.

The ```python blocks of a page are one program. The pages about the Python API, the tutorials and the how-to guides are
checked; the examples of other pages only run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_examples import GUIDES, ROOT, blocks_of

PAGES = ["README.md", "docs/reference/embedded.md", "docs/reference/client.md"]
# One function for every queue, as a user would write it.
ANY_QUEUE = "tests/data/types/any_queue.py"
PROGRAMS = [*PAGES, "examples/data_engineer.py", ANY_QUEUE]


def program_of(name: str, directory: Path) -> Path:
    """Return an example as a file: the file itself, or all Python blocks of a page on their lines of the page."""
    source = ROOT / name
    if source.suffix == ".py":
        return source
    lines: list[str] = []
    for block in blocks_of(source.read_text()):
        if block.language == "python":
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    program = directory / f"{source.stem.lower()}_md.py"
    program.write_text("\n".join(lines) + "\n")
    return program


def check(command: list[str], directory: Path) -> str:
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    checked = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return checked.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_passes_mypy_strict(name: str, tmp_path: Path) -> None:
    program = program_of(name, tmp_path)
    check(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", str(program)], tmp_path
    )


def test_the_examples_of_all_guides_pass_mypy_strict(tmp_path: Path) -> None:
    programs = [str(program_of(str(path.relative_to(ROOT)), tmp_path)) for path in GUIDES]
    check([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", *programs], tmp_path)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_passes_pyright(name: str, tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(importlib.util.find_spec("pyright"), "pyright is not installed")
    program = tmp_path / "program.py"
    program.write_text(program_of(name, tmp_path).read_text())
    settings = {
        "include": [program.name],
        "extraPaths": [str(ROOT / "src")],
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "reportMissingImports": "none" if name.startswith("examples") else "error",  # Spark may be missing.
        "reportMissingModuleSource": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = check([sys.executable, "-m", "pyright", "--stats"], tmp_path)
    assert re.search(r"Total files checked: +1\b|Found 1 source file", checked), checked
