"""The guard of the speed: the instructions that a compiled server executes for each command, counted by callgrind."""

from pathlib import Path

import pytest

from bench.instructions import measuring, records
from bench.instructions.records import Record
from tests.ports import free_port

BUILD = {"python": "CPython 3.11.7, GCC 12.2.0", "architecture": "x86_64"}
DUMP = """\
version: 1
events: Ir
fl=(1) file.c
fn=(1) parse
10 100
+2 20
cfn=(2) pthread_cond_signal
calls=3 50
+1 7000
* 3
fn=(2)
50 7000
fn=(3) commit
5 4000
totals: 11123
"""


def record(**instructions: int) -> Record:
    return Record(BUILD, {"uvloop": "0.23.0"}, instructions)


def test_a_command_executes_as_many_instructions_as_recorded(compiled: bool) -> None:
    if not compiled:
        pytest.skip("the instructions of the compiled package are recorded")
    # Not `needs`: in CI, too, this is checked where it can be, because the figures are valid for few builds.
    if reason := measuring.why_not_measurable():
        pytest.skip(reason)
    known = records.read(records.RECORDS)
    recorded = records.find(known, records.this_build())
    if recorded is None:
        pytest.skip(f"{records.why_not_comparable(known, records.this_build())}; record it: make instructions UPDATE=1")
    found = records.deviations(recorded, records.this_record(measuring.measure(free_port)))
    assert not found, "\n".join([*found, "if this is intended, commit the result of `make instructions UPDATE=1`"])


def test_a_change_of_more_than_three_percent_is_found_in_both_directions() -> None:
    recorded = record(PING=10_000, PUT=20_000, TAKE=30_000)
    assert records.deviations(recorded, record(PING=10_290, PUT=19_410, TAKE=30_000)) == []
    assert records.deviations(recorded, record(PING=10_310, PUT=19_390, TAKE=30_000)) == [
        "PING: 10,000 instructions became 10,310 (+3.1%)",
        "PUT: 20,000 instructions became 19,390 (-3.0%)",
    ]


def test_a_command_that_is_missing_on_one_side_is_found() -> None:
    assert records.deviations(record(PING=1, PUT=2), record(PING=1, TAKE=3)) == [
        "PUT: recorded 2, measured None",
        "TAKE: recorded None, measured 3",
    ]


def test_a_deviation_names_the_packages_that_changed() -> None:
    now = Record(BUILD, {"uvloop": "0.24.0"}, {"PING": 200})
    assert records.deviations(record(PING=100), now)[1:] == ["uvloop 0.23.0 became 0.24.0"]


def test_each_build_has_a_record_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    other = {**BUILD, "python": "CPython 3.12.1, GCC 12.2.0"}
    assert records.read(file) == []
    for new in (record(PING=1), Record(other, {}, {"PING": 2}), record(PING=3)):
        records.update(file, new)
    found = records.read(file)
    assert records.find(found, BUILD) == record(PING=3)
    assert records.find(found, other) == Record(other, {}, {"PING": 2})
    arm = {**BUILD, "architecture": "aarch64"}
    assert records.find(found, arm) is None
    assert "architecture 'aarch64' instead of 'x86_64'" in records.why_not_comparable(found, arm)


def test_calls_are_counted_once_and_waiting_for_locks_is_not_counted() -> None:
    assert measuring.instructions_of(DUMP) == 100 + 20 + 3 + 4000
