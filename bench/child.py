"""Runs modules of the benchmark in a separate process: to measure its memory, or to load a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def environment() -> dict[str, str]:
    """Return the environment for a process that must find the same modules as this one."""
    root = str(Path(__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*filter(None, sys.path), root]))}


def figures(module: str, *arguments: object) -> list[float]:
    """Run a module of the benchmark with these arguments. Return the figures that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr.strip().splitlines()[-1:]}")
    return [float(figure) for figure in done.stdout.split()]
