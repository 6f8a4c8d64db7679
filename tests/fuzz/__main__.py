"""`make fuzz SECONDS=60`: fuzz each target for this time, with a new seed."""

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
        print(f"  held for {fuzzer.tried:,} inputs, {new} with new coverage; {fuzzer.edges:,} edges; seed {seed}")


main(float(sys.argv[1]))
