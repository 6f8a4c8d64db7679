"""On systems other than Linux and macOS, queues in memory and clients work, and a directory is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.journal import identity

# As on Windows, which has none of these modules.
MEMORY_ONLY = """
import sys

class Missing:
    def find_spec(self, name, path, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import penstock

tube = penstock.open(":memory:").tube("letters")
tube.put("dear ann")
print(tube.take().body)
try:
    penstock.connect("penstock://127.0.0.1:1")
except penstock.NoServer as error:
    print(error)
"""


def test_queues_in_memory_and_clients_need_no_modules_of_unix() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY_ONLY], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == "dear ann" and "start one with" in done.stdout, done.stderr


def test_a_directory_is_refused_with_what_to_use_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity.sys, "platform", "win32")
    with pytest.raises(penstock.Unsupported, match="needs Linux or macOS; here, use a queue in memory"):
        penstock.open(tmp_path / "queue")
    assert list(tmp_path.iterdir()) == []
