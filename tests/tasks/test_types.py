"""mypy --strict and pyright accept correct calls of tasks, and reject each wrong argument."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RIGHT, WRONG = (ROOT / "tests" / "data" / "types" / name for name in ("tasks_right.py", "tasks_wrong.py"))
WRONG_LINES = {number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "# wrong" in line}


def lines_with_errors(output: str, file: str) -> set[int]:
    """Return the numbers of the lines of a file for which a type checker reports an error."""
    return {int(number) for number in re.findall(rf"{file}:(\d+)\S* (?:- )?error", output)}


def run(command: list[str], directory: Path) -> str:
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    checked = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return checked.stdout + checked.stderr


def test_mypy_accepts_right_calls_and_rejects_wrong_ones(tmp_path: Path) -> None:
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    output = run([sys.executable, "-m", "mypy", *options, str(RIGHT), str(WRONG)], tmp_path)
    assert lines_with_errors(output, "tasks_right.py") == set(), output
    assert lines_with_errors(output, "tasks_wrong.py") == WRONG_LINES, output


def test_pyright_accepts_right_calls_and_rejects_wrong_ones(
    tmp_path: Path, needs: Callable[[object, str], None]
) -> None:
    needs(importlib.util.find_spec("pyright"), "pyright is not installed")
    for file in (RIGHT, WRONG):
        (tmp_path / file.name).write_text(file.read_text())
    venv = {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}
    settings = {"include": [RIGHT.name, WRONG.name], "extraPaths": [str(ROOT / "src")], **venv}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    output = run([sys.executable, "-m", "pyright"], tmp_path)
    assert lines_with_errors(output, "tasks_right.py") == set(), output
    assert lines_with_errors(output, "tasks_wrong.py") == WRONG_LINES, output
