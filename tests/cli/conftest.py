"""Where the command line is tried: on a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .transcript import Session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Somebody at a prompt, with a queue and settings of their own."""
    for name in ("PENSTOCK_URL", "PENSTOCK_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    env = {
        "PENSTOCK_URL": str(tmp_path / "queue"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TZ": os.environ.get("TZ", "UTC"),
    }
    yield Session(tmp_path, env, {str(tmp_path / "queue"): "PLACE", str(tmp_path): "HERE"})
