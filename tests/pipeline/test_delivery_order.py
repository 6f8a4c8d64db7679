"""Deliveries of wrong order are found in any chunk of a line, and right ones never."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.judge import delivery_order
from penstock.pipeline.judge.delivery_order import BEGINS, COLUMNS, ENDS, TAKES

Row = tuple[int, int, int, int, int, int, int]


def lines(seed: int) -> list[Row]:
    """Return random events of some lines, in which each take gets the first job."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for line in range(chance.randrange(1, 5)):
        ready: list[tuple[int, int, int]] = []
        position = chance.randrange(100)
        for order in range(chance.randrange(1, 80)):
            position += chance.randrange(1, 3)
            if not ready or chance.random() < 0.5:
                place = (chance.choice([0, 0, 0, -1, 1]) if seed % 2 else 0, chance.choice([order, -order]))
                heapq.heappush(ready, (*place, position))
                rows.append((line * 7 - 9, 1, position, 0, *place, BEGINS))
            elif chance.random() < 0.2:
                # Another priority.
                at = chance.randrange(len(ready))
                old = ready[at]
                new = (chance.choice([0, -1, 1]) if seed % 2 else 0, old[1])
                ready[at] = (*new, position)
                heapq.heapify(ready)
                rows.append((line * 7 - 9, 1, position, old[2], *new, BEGINS | ENDS))
            elif chance.random() < 0.2:
                gone = ready.pop(chance.randrange(len(ready)))
                heapq.heapify(ready)
                rows.append((line * 7 - 9, 1, position, gone[2], *gone[:2], ENDS))
            else:
                first = heapq.heappop(ready)
                rows.append((line * 7 - 9, 1, position, first[2], *first[:2], ENDS | TAKES))
    return rows


def wrong(rows: list[Row], batch_rows: int = 7) -> set[int]:
    """Return the positions of the takes that are found to be wrong."""
    batches = []
    for at in range(0, len(rows), batch_rows):
        columns = zip(*rows[at : at + batch_rows], strict=True)
        batches.append(pa.RecordBatch.from_arrays([pa.array(each, pa.int64()) for each in columns], list(COLUMNS)))
    return {row["position"] for found in delivery_order.overtakers(iter(batches)) for row in found.to_pylist()}


def overtaken(rows: list[Row]) -> set[int]:
    """Return the positions of all takes during which a job of the line with a lesser place was ready."""
    ends = {(row[0], row[3]): row[2] for row in rows if row[6] & ENDS}
    found = set()
    for take in rows:
        for row in rows:
            if row[6] & BEGINS and take[6] & TAKES and row[0] == take[0] and row[4:6] < take[4:6]:
                if row[2] < take[2] < ends.get((row[0], row[2]), 1 << 40):
                    found.add(take[2])
    return found


@pytest.mark.parametrize("chunk_rows", [1, 20, 1 << 20])
def test_takes_in_order_are_never_reported(monkeypatch: pytest.MonkeyPatch, chunk_rows: int) -> None:
    monkeypatch.setattr(delivery_order, "CHUNK_ROWS", chunk_rows)
    for seed in range(60):
        assert wrong(lines(seed)) == set()


@pytest.mark.parametrize("chunk_rows", [1, 20, 1 << 20])
def test_a_wrong_take_is_reported(monkeypatch: pytest.MonkeyPatch, chunk_rows: int) -> None:
    monkeypatch.setattr(delivery_order, "CHUNK_ROWS", chunk_rows)
    broken = 0
    for seed in range(120):
        rows = lines(seed)
        chance = random.Random(seed)
        at = chance.randrange(len(rows))
        # Another place for one job, in this row and all later ones.
        place = (rows[at][4], chance.randrange(-100, 100))
        job = (rows[at][0], rows[at][2] if rows[at][6] & BEGINS else rows[at][3])
        moved = {job}
        for row in rows:
            if row[6] == BEGINS | ENDS and (row[0], row[3]) in moved:
                moved.add((row[0], row[2]))
        rows = [
            (*row[:4], *place, row[6])
            if (row[0], row[2]) in moved or (row[6] & ENDS and (row[0], row[3]) in moved)
            else row
            for row in rows
        ]
        expected = overtaken(rows)
        found = wrong(rows)
        assert found <= expected and bool(found) == bool(expected), seed
        broken += bool(expected)
    assert broken > 20


def test_a_job_that_was_ready_before_the_first_event_counts() -> None:
    rows = [(1, 1, 10, 0, 0, 5, BEGINS), (1, 1, 11, 10, 0, 5, ENDS | TAKES), (1, 1, 12, 3, 0, 2, ENDS | TAKES)]
    assert wrong(rows) == {11}
    # It became ready after the take, so it was not overtaken.
    assert wrong([*rows[:2], (1, 1, 12, 0, 0, 2, BEGINS), (1, 1, 13, 12, 0, 2, ENDS | TAKES)]) == set()


def test_a_job_is_overtaken_at_the_priority_that_it_had_at_the_time_of_the_take() -> None:
    put = [(1, 1, 10, 0, 5, 1, BEGINS), (1, 1, 11, 0, 3, 2, BEGINS), (1, 1, 12, 0, 4, 3, BEGINS)]
    take = (1, 1, 13, 11, 3, 2, ENDS | TAKES)
    urgent = (1, 1, 14, 10, 0, 1, BEGINS | ENDS)
    assert wrong([*put, take, urgent, (1, 1, 15, 14, 0, 1, ENDS | TAKES)]) == set()
    assert wrong([*put, take, urgent, (1, 1, 15, 12, 4, 3, ENDS | TAKES)]) == {15}
    # Which priority it had before is not known, if the row of its put is missing.
    assert wrong([*put[1:], take, urgent]) == set()


def test_repeated_rows_are_not_reported_again() -> None:
    rows: list[Any] = lines(4)
    assert wrong(sorted([*rows, *rows], key=lambda row: (rows.index(row), row))) == set()


def test_large_numbers_do_not_overflow() -> None:
    far = 1 << 40
    rows = [(line, 1, far + line * 10, 0, 0, 1, BEGINS) for line in range(1_000)]
    assert wrong(rows, 100) == set()
    assert np.iinfo(np.int64).max > 1_000 * (far + 10_000)
