"""Coverage-guided fuzzing: inputs that reach new lines are kept and mutated further.

Only interpreted code has coverage. Compiled code is fuzzed without guidance.
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

# One run in this many is traced, because tracing makes a run ten times slower.
_WATCHED = 8


class Target(NamedTuple):
    """A function that accepts bytes, and how to generate inputs for it."""

    invariant: str
    run: Callable[[bytes], None]  # Raises an exception if the invariant does not hold.
    make: Callable[[random.Random], bytes]  # Returns a plausible input.
    tokens: list[bytes]  # Frequent parts of inputs, used by mutations.


class Fuzzer:
    """Runs a target with generated and mutated inputs."""

    def __init__(self, name: str, target: Target, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._folder = CORPUS / name
        self._seen: set[tuple[int, int, int]] = set()
        self.inputs = [path.read_bytes() for path in sorted(self._folder.iterdir())]
        self.tried = 0

    @property
    def edges(self) -> int:
        """Number of steps between lines that were covered."""
        return len(self._seen)

    def replay(self) -> None:
        """Run all inputs of the corpus."""
        for data in self.inputs:
            self.attempt(data, watched=True)

    def run(self, seconds: float) -> None:
        """Run new inputs for this time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            fresh = self._random.randrange(4) == 0
            data = self._target.make(self._random) if fresh else self._changed(self._random.choice(self.inputs))
            if self.attempt(data, self.tried % _WATCHED == 0):
                self.inputs.append(data)

    def attempt(self, data: bytes, watched: bool) -> bool:
        """Run one input. Return whether it covered new steps. An input that fails is stored in the corpus."""
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
            print(f"{path} violates the invariant: {data[:300]!r}", file=sys.stderr)
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
        """Return a mutation of an input."""
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
