"""Compare the histories of seeds 1 to 2,000 with the committed digests, or write them anew with --write."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import Tally, run_seeds

_FILE = Path(__file__).with_name("digests.txt")
_COUNT = 2_000


def run_with_digests(first: int, count: int, settings: list[str], workers: int) -> tuple[Tally, list[str]]:
    """Run `count` seeds. Print each failure, and return the digests of all histories in the order of the seeds."""
    digests: list[str] = []

    def note(report: Report) -> None:
        digests.append(report.digest if report.passed else f"failed: {report.digest}")
        if not report.passed:
            print(report.shown(settings), flush=True)

    return run_seeds(first, count, settings, workers, note), digests


def main() -> int:
    _, digests = run_with_digests(1, _COUNT, [], 0)
    if "--write" in sys.argv[1:]:
        _FILE.write_text("\n".join(digests) + "\n")
        return 0
    before = _FILE.read_text().split()
    changed = [seed for seed, (old, new) in enumerate(zip(before, digests, strict=True), 1) if old != new]
    print(f"{len(changed)} of {_COUNT} histories have changed" + "".join(f"\nseed {seed}" for seed in changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
