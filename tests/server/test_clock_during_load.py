"""The clock of a server whose journal takes long to load."""

from __future__ import annotations

import time
from pathlib import Path

from .serving import wait_for
from .slow_loading import SlowLoading

LAG_MS_MAX = 50


def test_a_slow_start_makes_no_clock_late_and_no_delay_short(tmp_path: Path) -> None:
    with SlowLoading(tmp_path, "--dir", "d") as server:
        server.connect().add("q")
        server.kill()
        server.start_loading()  # It has been loading for longer than the allowed lag.
        server.load()
        wire = server.connect()
        lags = []

        def looks_right() -> bool:
            # A stall of this process between the two is not the server's lag, so the smallest difference counts.
            wall = time.time_ns() // 1_000_000
            lags.append(wall - wire.show(wire.add("q"))[b"ctime"] // 1_000_000)
            return min(lags) < LAG_MS_MAX

        wait_for(looks_right)
        # After a fast restart, a delay does not end early.
        began = time.monotonic()
        wire.add("later", "body", "DELAY", 2)
        server.kill()
        server.start_again()
        assert server.connect().get("later", "TIMEOUT", 20_000)
        assert time.monotonic() - began >= 2
