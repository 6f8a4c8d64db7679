"""The recorder of simulations records finished chunks and skips them when it is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.sim.options import options_of
from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import Tally
from tests.simulation import digests, record
from tests.simulation.record import Chunk, read


class SameSource(record.Commits):
    """Every recorded commit in `same` has the present source."""

    def __init__(self, head: str, *same: str) -> None:
        self.head = head
        self._same = same

    def contains(self, commit: str) -> bool:
        return commit == self.head or commit in self._same


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Replace the simulation. Return the list of (first seed, number of seeds) that were run. Seed 1500 fails."""
    chunks: list[tuple[int, int]] = []

    def run(first: int, count: int, settings: list[str], workers: int) -> tuple[Tally, list[str]]:
        assert settings == ["workload=tubes"]
        chunks.append((first, count))
        failed = [seed for seed in (1_500,) if first <= seed < first + count]
        return Tally(seeds=min(count, 999), failed=failed, workload="tubes"), [str(seed) for seed in range(count)]

    monkeypatch.setattr(record, "run_with_digests", run)
    return chunks


def test_chunks_that_were_recorded_with_the_same_source_are_skipped(ran: list[tuple[int, int]], tmp_path: Path) -> None:
    file = tmp_path / "runs.tsv"
    assert record.record("tubes", 1, 1_000, 1, file, SameSource("aaa")) == []
    assert record.record("tubes", 1, 2_500, 1, file, SameSource("bbb", "aaa")) == [1_500]
    assert ran == [(1, 1_000), (1_001, 1_000), (2_001, 500)]
    # Nothing is run again, but the recorded failure still counts.
    assert record.record("tubes", 1, 2_500, 1, file, SameSource("bbb", "aaa")) == [1_500]
    assert len(ran) == 3
    assert [(each.first, each.last, each.commit, each.failed) for each in read(file)] == [
        (1, 1_000, "aaa", ()),
        (1_001, 2_000, "bbb", (1_500,)),
        (2_001, 2_500, "bbb", ()),
    ]
    record.record("tubes", 1, 1_000, 1, file, SameSource("ccc"))
    assert ran[3:] == [(1, 1_000)]


def test_an_unfinished_line_is_not_a_record(ran: list[tuple[int, int]], tmp_path: Path) -> None:
    file = tmp_path / "runs.tsv"
    whole = Chunk("tubes", 1, 1_000, "aaa", (), 12, "d1")
    file.write_text(whole.line() + "tubes\t1001\t20")
    assert read(file) == [whole]
    record.record("tubes", 1, 2_000, 1, file, SameSource("aaa"))
    assert ran == [(1_001, 1_000)]
    assert [each.first for each in read(file)] == [1, 1_001]


def test_a_chunk_without_an_expected_event_is_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "runs.tsv"
    empty = Tally(seeds=1_000, workload="tubes")
    monkeypatch.setattr(record, "run_with_digests", lambda *words: (empty, []))
    with pytest.raises(SystemExit, match="expected events did not occur"):
        record.record("tubes", 1, 1_000, 1, file, SameSource("aaa"))
    assert read(file) == []


def test_a_failing_seed_is_printed_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(first: int, count: int, settings: list[str], workers: int, note: object) -> Tally:
        assert callable(note)
        note(Report(first, options_of(first, settings), ["W1: a violation"], "d", 0, 0.0, {}))
        return Tally(seeds=count, failed=[first], workload="tubes")

    monkeypatch.setattr(digests, "run_seeds", fail)
    monkeypatch.setattr(record, "Commits", lambda since: SameSource("aaa"))
    words = ["--workload", "tubes", "--seed", "7", "--seeds", "1", "--file", str(tmp_path / "runs.tsv")]
    assert record.main(words) == 1
    shown = capsys.readouterr().out
    assert "W1: a violation" in shown
    assert "seed 7 failed; replay: penstock sim --seed 7 --set workload=tubes\n" in shown
    assert record.main(words) == 1
