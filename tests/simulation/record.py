"""`make record-seeds`: run many seeds in chunks, and append a line for each finished chunk to runs.tsv.

A run can be stopped at any time. When it is started again, it skips chunks that are recorded already. A record counts
if its commit has the same src/ as the present one. With --since COMMIT, the records of that commit and of all later
ones count, too. The columns of a line are:

    workload  first seed  last seed  commit  failing seeds or "-"  CPU seconds  digest of the histories

The exit code is 1 if a chunk has a failing seed, recorded now or before, or if an expected event did not occur in it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from penstock.testing.sim.options import DISQUE, TUBES
from penstock.testing.sim.swarm import EXPECTED_AFTER
from tests.simulation.digests import run_with_digests

_ROOT = Path(__file__).parent.parent.parent
_FILE = Path(__file__).with_name("runs.tsv")
_CHUNK = 1_000


@dataclass(frozen=True)
class Chunk:
    """Consecutive seeds that were run with one commit."""

    workload: str
    first: int
    last: int
    commit: str
    failed: tuple[int, ...]
    cpu_s: int
    digest: str

    def line(self) -> str:
        """Return the chunk as a line of the file."""
        failed = ",".join(map(str, self.failed)) or "-"
        facts = (self.workload, self.first, self.last, self.commit, failed, self.cpu_s, self.digest)
        return "\t".join(map(str, facts)) + "\n"


def read(file: Path) -> list[Chunk]:
    """Return the recorded chunks. An unfinished last line, which an interrupted run can leave, is not one."""
    chunks: list[Chunk] = []
    for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
        if line.endswith("\n"):
            workload, first, last, commit, failed, cpu_s, digest = line.rstrip("\n").split("\t")
            seeds = () if failed == "-" else tuple(map(int, failed.split(",")))
            chunks.append(Chunk(workload, int(first), int(last), commit, seeds, int(cpu_s), digest))
    return chunks


def _append(file: Path, chunk: Chunk) -> None:
    text = file.read_text() if file.exists() else ""
    if not text.endswith("\n"):
        file.write_text(text[: text.rfind("\n") + 1])
    with file.open("a") as lines:
        lines.write(chunk.line())


class Commits:
    """Decides whether a recorded chunk ran the same source as the present commit."""

    def __init__(self, since: str = "") -> None:
        self.head = _git("rev-parse", "--short=12", "HEAD")
        self._since = since
        self._source = _git("rev-parse", "HEAD:src")
        if _git("status", "--porcelain", "--", "src"):
            raise SystemExit("src/ has changes that are not committed; commit them, because a record names its commit")

    def contains(self, commit: str) -> bool:
        """Return whether the records of a commit count: it has the same source, or is not older than `since`."""
        if _git("rev-parse", "--quiet", "--verify", f"{commit}:src") == self._source:
            return True
        return bool(self._since) and _is_ancestor(self._since, commit) and _is_ancestor(commit, "HEAD")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _is_ancestor(first: str, second: str) -> bool:
    words = ["git", "merge-base", "--is-ancestor", first, second]
    return subprocess.run(words, cwd=_ROOT, capture_output=True, check=False).returncode == 0


def record(workload: str, first: int, count: int, workers: int, file: Path, commits: Commits) -> list[int]:
    """Run and record the chunks that are not recorded yet. Return all failing seeds.

    Raises SystemExit, and does not record the chunk, if an expected event did not occur in it.
    """
    known = {
        (each.first, each.last): each
        for each in read(file)
        if each.workload == workload and commits.contains(each.commit)
    }
    failed: list[int] = []
    for start in range(first, first + count, _CHUNK):
        last = min(start + _CHUNK, first + count) - 1
        chunk = known.get((start, last))
        if chunk is None:
            chunk = _run(workload, start, last, workers, commits.head)
            _append(file, chunk)
            at = "recorded"
        else:
            at = f"already recorded with {chunk.commit}"
        failed += chunk.failed
        print(f"{workload} {start}-{last}: {len(chunk.failed)} failed, {chunk.cpu_s} CPU s, {at}", flush=True)
    return failed


def _run(workload: str, first: int, last: int, workers: int, commit: str) -> Chunk:
    before = _cpu_s()
    tally, digests = run_with_digests(first, 1 + last - first, [f"workload={workload}"], workers)
    missing = tally.missing() if tally.seeds >= EXPECTED_AFTER else []
    if missing:
        raise SystemExit(f"seeds {first} to {last}: expected events did not occur: {', '.join(missing)}")
    digest = blake2b("\n".join(digests).encode(), digest_size=8).hexdigest()
    return Chunk(workload, first, last, commit, tuple(tally.failed), round(_cpu_s() - before), digest)


def _cpu_s() -> float:
    """Return the CPU time of this process and of its finished workers."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.record", description=__doc__)
    parser.add_argument("--workload", choices=(DISQUE, TUBES), default=DISQUE)
    parser.add_argument("--seed", type=int, default=1, help="First seed.")
    parser.add_argument("--seeds", type=int, default=_CHUNK, help="Number of consecutive seeds.")
    parser.add_argument("--workers", type=int, default=0, help="Number of processes. 0 means one per core.")
    parser.add_argument("--since", default="", help="Skip chunks that were recorded with this commit or a later one.")
    parser.add_argument("--file", type=Path, default=_FILE, help="The file of the records.")
    given = parser.parse_args(words)
    commits = Commits(given.since)
    failed = record(given.workload, given.seed, given.seeds, given.workers, given.file, commits)
    for seed in failed:
        print(f"seed {seed} failed; replay: penstock sim --seed {seed} --set workload={given.workload}")
    print(f"{given.seeds:,} seeds of {given.workload}, {len(failed):,} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
