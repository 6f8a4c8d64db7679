"""The clock of a server whose journal takes long to load."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from .serving import Server, environment, wait_for

LOADING_S = 1.0
LAG_MS_MAX = 50

# Reading the first file of the journal takes long.
SLOW_DISK = f"""
import time
from penstock.journal.disk import RealFile
read, slow = RealFile.read, [{LOADING_S}]
def read_slowly(file, offset, length):
    if slow:
        time.sleep(slow.pop())
    return read(file, offset, length)
RealFile.read = read_slowly
from penstock.cli.main import main
main()
"""


class SlowLoading(Server):
    """A server with a slow disk, at every start but the first and those after `is_slow` was cleared."""

    is_slow = False

    def _spawn(self, words: list[str]) -> subprocess.Popen[bytes]:
        if not self.is_slow:
            return super()._spawn(words)
        self._said = self._next_files()
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            command = [sys.executable, "-c", SLOW_DISK, "serve", *words]
            return subprocess.Popen(command, cwd=self.home, env=environment(), stdout=out, stderr=err)


def test_a_slow_start_makes_no_clock_late_and_no_delay_short(tmp_path: Path) -> None:
    server = SlowLoading(tmp_path, "--dir", "d")
    server.connect().add("q")
    server.kill()
    server.is_slow = True
    began = time.monotonic()
    server.start_again()
    assert time.monotonic() - began > LOADING_S
    wire = server.connect()
    lags = []

    def looks_right() -> bool:
        # A stall of this process between the two is not the server's lag: the smallest one counts.
        wall = time.time_ns() // 1_000_000
        lags.append(wall - wire.show(wire.add("q"))[b"ctime"] // 1_000_000)
        return min(lags) < LAG_MS_MAX

    wait_for(looks_right)
    # After a restart that is fast, a delay is not over early.
    began = time.monotonic()
    wire.add("later", "body", "DELAY", 2)
    server.kill()
    server.is_slow = False
    server.start_again()
    assert server.connect().get("later", "TIMEOUT", 20_000)
    assert time.monotonic() - began >= 2
    server.stop()
