"""Fuzzing guided by coverage: what reaches lines that nothing has reached before is kept, and changed further.

Coverage is that of the interpreted source; compiled code does not tell where it goes, and is tried blindly.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import penstock

CORPUS = Path(__file__).parent.parent / "data" / "corpus"
_SOURCE = str(Path(penstock.__file__).parent)
_INPUT_BYTES_MAX = 4_096

# Being watched makes a run ten times slower, so one of so many is.
_WATCHED = 8


class Target(NamedTuple):
    """Something that takes bytes."""

    invariant: str
    run: Callable[[bytes], None]  # Raises if it does not hold.
    make: Callable[[random.Random], bytes]  # An input that makes some sense.
    tokens: list[bytes]  # What often stands in one.


class Fuzzer:
    """Tries inputs on a target."""

    def __init__(self, name: str, target: Target, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._folder = CORPUS / name
        self._seen: set[tuple[int, int, int]] = set()
        self.inputs = [path.read_bytes() for path in sorted(self._folder.iterdir())]
        self.tried = 0

    @property
    def edges(self) -> int:
        """How many steps from line to line were seen."""
        return len(self._seen)

    def replay(self) -> None:
        """Try what was found before."""
        for data in self.inputs:
            self.attempt(data, watched=True)

    def run(self, seconds: float) -> None:
        """Try changed inputs for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            fresh = self._random.randrange(4) == 0
            data = self._target.make(self._random) if fresh else self._changed(self._random.choice(self.inputs))
            if self.attempt(data, self.tried % _WATCHED == 0):
                self.inputs.append(data)

    def attempt(self, data: bytes, watched: bool) -> bool:
        """Try one input; tell whether it went where none went before. One that fails is kept as a file."""
        before = len(self._seen)
        self.tried += 1
        try:
            if watched:
                sys.settrace(self._trace)
            try:
                self._target.run(data)
            finally:
                sys.settrace(None)
        except Exception:
            path = self._folder / f"found-{hashlib.sha1(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{path} breaks it: {data[:300]!r}", file=sys.stderr)
            raise
        return len(self._seen) > before

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., object] | None:
        if not frame.f_code.co_filename.startswith(_SOURCE):
            return None
        code, last = id(frame.f_code), frame.f_lineno

        def line(frame: FrameType, event: str, _: object) -> Callable[..., object]:
            nonlocal last
            self._seen.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    def _changed(self, data: bytes) -> bytes:
        """An input like this one, with a few changes."""
        dice = self._random
        for _ in range(dice.choice([1, 1, 2, 4, 8])):
            at, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
            end = min(end, at + dice.choice([1, 4, 64]))
            change = dice.randrange(7)
            if change == 0:
                data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
            elif change == 1:
                data = data[:at] + data[end:]
            elif change == 2:
                data = data[:end] + data[at:end] * dice.choice([1, 2, 50]) + data[end:]
            elif change in (3, 4):
                data = data[:at] + dice.choice(self._target.tokens) + data[end if change == 4 else at :]
            else:
                other = dice.choice(self.inputs)
                start = dice.randrange(len(other) + 1)
                data = data[:at] + other[start : start + dice.choice([8, 64, 1_000])] + data[end:]
        return data[:_INPUT_BYTES_MAX]
