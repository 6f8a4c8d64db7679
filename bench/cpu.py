"""CPU time of this process and of its descendants, including those that have ended."""

from __future__ import annotations

import os
import threading

_TICKS_S = os.sysconf("SC_CLK_TCK")
_INTERVAL_S = 0.2


class CpuMeter:
    """Samples the processes in the background.

    The kernel adds the CPU time of an ended process to its parent, but not if the parent ignores the signal SIGCHLD, as
    Spark's Python daemon does. Therefore the last sample of an ended process counts. Processes that live shorter than
    the interval are not seen.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], int] = {}  # By process id and start time, because ids are used again.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def seconds(self) -> float:
        """Return the CPU seconds that have been used."""
        self._sample()
        with self._lock:
            return sum(self._ticks.values()) / _TICKS_S

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat") as file:
                        fields = file.read().rpartition(")")[2].split()
                except OSError:
                    continue
                found[int(entry)] = (int(fields[1]), int(fields[19]), int(fields[11]) + int(fields[12]))
        family = {os.getpid()}
        while more := {pid for pid, (parent, _, _) in found.items() if parent in family} - family:
            family |= more
        with self._lock:
            self._ticks |= {(pid, found[pid][1]): found[pid][2] for pid in family}
