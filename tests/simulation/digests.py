"""Compare the histories of seeds 1 to 2,000 with the committed digests, or write them anew with --write."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import run_seeds

_FILE = Path(__file__).with_name("digests.txt")
_COUNT = 2_000


def main() -> int:
    found: dict[int, str] = {}

    def note(report: Report) -> None:
        found[report.seed] = report.digest if report.passed else f"failed: {report.digest}"

    run_seeds(1, _COUNT, [], 0, note)
    digests = [found[seed] for seed in range(1, _COUNT + 1)]
    if "--write" in sys.argv[1:]:
        _FILE.write_text("\n".join(digests) + "\n")
        return 0
    before = _FILE.read_text().split()
    changed = [seed for seed, (old, new) in enumerate(zip(before, digests, strict=True), 1) if old != new]
    print(f"{len(changed)} of {_COUNT} histories have changed" + "".join(f"\nseed {seed}" for seed in changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
