"""`make fuzz SECONDS=60`: so many seconds for each target, from a new seed."""

from __future__ import annotations

import random
import sys

from tests.fuzz.mutation import Fuzzer
from tests.fuzz.targets import TARGETS


def main(seconds: float) -> None:
    for name, target in TARGETS.items():
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"{name}: {target.invariant}")
        fuzzer = Fuzzer(name, target, seed)
        fuzzer.replay()
        known = len(fuzzer.inputs)
        fuzzer.run(seconds)
        new = len(fuzzer.inputs) - known
        print(f"  held for {fuzzer.tried:,} inputs, {new} of them new ways; {fuzzer.edges:,} edges; seed {seed}")


main(float(sys.argv[1]))
