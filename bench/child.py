"""A process of its own, for what can only be seen of a whole process: how much memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def figures(module: str, *arguments: object) -> list[float]:
    """Run a module of the bench with these arguments, and give back the figures it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    # The same modules as here, however they were found.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    root = Path(__file__).parent.parent
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed: {done.stderr.strip().splitlines()[-1:]}")
    return [float(figure) for figure in done.stdout.split()]
