"""A process of its own: for what can only be seen of a whole process, as its memory, and for whoever loads a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """That of a process which is to find the same modules as this one, however they were found, wherever it runs."""
    root = str(Path(__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*filter(None, sys.path), root]))}


def figures(module: str, *arguments: object) -> list[float]:
    """Run a module of the bench with these arguments, and give back the figures it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr.strip().splitlines()[-1:]}")
    return [float(figure) for figure in done.stdout.split()]
