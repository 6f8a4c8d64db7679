"""Lakes in object stores: turns, two writers, faults of a store, and secrets that stay secret."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.lake.delta import TableLog
from penstock.lake.errors import BadLake, BadPlace, LakeInUse, PipelineError
from penstock.lake.lake import Lake
from penstock.lake.tables import COVERAGE, EVENTS, Table

from .faulty_proxy import FaultyStore
from .stores import S3, SECRET
from .test_lake import block, events, puts, run_turn

# A failed request is repeated twice, at once.
FAST = {"max_retries": "2", "backoff_config.init_backoff": "10ms", "backoff_config.max_backoff": "50ms"}


def test_a_lake_is_created_written_and_read(s3: S3) -> None:
    place = s3.new_lake()
    assert not Lake(place, s3.options).exists
    run_turn(Lake(place, s3.options), 1, 0, 10)
    run_turn(Lake(place, s3.options), 2, 10, 15, puts=5)
    lake = Lake(place, s3.options).pin()
    assert (lake.turn, lake.position("n"), lake.rows(EVENTS), puts(lake)) == (2, 15, 15, [1, 5])
    assert sorted(lake.read(EVENTS)["position"].to_pylist()) == list(range(15))
    assert [(row["start"], row["end"]) for row in lake.coverage()] == [(0, 10), (10, 15)]


def test_the_second_of_two_writers_is_refused(s3: S3) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    one, other = Lake(place, s3.options), Lake(place, s3.options)
    assert (one.turn, other.turn) == (1, 1)
    one.commit_events(2, events(one, 2, 10, 20), {"n": 20}, {})
    with pytest.raises(LakeInUse, match="was changed by another writer"):
        other.commit_events(2, events(other, 2, 10, 20), {"n": 20}, {})
    assert Lake(place, s3.options).rows(EVENTS) == 20


def test_a_writer_that_has_not_seen_the_claim_of_another_one_is_refused_before_it_writes(s3: S3) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    one, other = Lake(place, s3.options), Lake(place, s3.options)
    assert one.begin_turn() == 2
    with pytest.raises(LakeInUse, match="was changed by another writer"):
        other.begin_turn()
    one.set_facts(COVERAGE, 2, pa.Table.from_pylist([block(2, 10, 20)], COVERAGE.arrow))
    one.commit_events(2, events(one, 2, 10, 20), {"n": 20}, {})
    assert (one.turn, Lake(place, s3.options).rows(EVENTS)) == (2, 20)


def test_the_last_claim_of_a_turn_counts_and_no_coverage_of_an_earlier_one_stays(s3: S3) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    early = Lake(place, s3.options)
    early.begin_turn()
    early.set_facts(COVERAGE, 2, pa.Table.from_pylist([block(2, 10, 15)], COVERAGE.arrow))
    late = Lake(place, s3.options)
    late.begin_turn()
    with pytest.raises(LakeInUse, match="was changed by another writer"):
        early.commit_events(2, [], {"n": 15}, {})
    late.set_facts(COVERAGE, 2, pa.Table.from_pylist([block(2, 10, 20)], COVERAGE.arrow))
    with pytest.raises(LakeInUse, match="was changed by another writer"):
        early.set_facts(COVERAGE, 2, pa.Table.from_pylist([block(2, 10, 15)], COVERAGE.arrow))
    late.commit_events(2, [], {"n": 20}, {})
    found = Lake(place, s3.options)
    assert ([(row["start"], row["end"]) for row in found.coverage()], found.position("n")) == ([(0, 10), (10, 20)], 20)


def test_a_missing_bucket_is_named(s3: S3) -> None:
    place = "s3://missing-bucket/lake"
    with pytest.raises(BadPlace, match="there is no bucket missing-bucket; create it first") as error:
        Lake(place, s3.options | FAST).create()
    assert SECRET not in str(error.value)


def test_a_delta_table_that_is_no_lake_is_refused(s3: S3) -> None:
    place = s3.new_lake()
    TableLog(Lake(place, s3.options).place, Table("other", (("number", "bigint"),))).create()
    with pytest.raises(BadLake, match="other is a Delta table, but not a lake; choose another place"):
        Lake(f"{place}/other", s3.options)


def test_credentials_come_from_the_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    place = s3.new_lake()
    for name, value in s3.options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    run_turn(Lake(place), 1, 0, 10)
    assert Lake(place).turn == 1


# ---- Faults

FAULTS = {
    "refuse": "the store refuses access; check the credentials and what they allow (403 Forbidden)",
    "throttle": "the store is overloaded or throttles requests; try again later (503 Service Unavailable)",
    "drop": "the store cannot be reached; check its address and the network "
    "(connection closed before message completed)",
}
STEPS = {
    "reading a log": ("bronze/events", r"GET .*/_delta_log/"),
    "writing a file": ("bronze/coverage", r"(PUT|POST) .*\.parquet"),
    "committing events": ("bronze/events", r"PUT .*/bronze/events/_delta_log/.*\.json"),
    "committing gold": ("gold/rates", r"PUT .*/gold/rates/_delta_log/.*\.json"),
    "committing the turn": ("_turns", r"PUT .*/_turns/_delta_log/.*\.json"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_lasts_ends_in_one_sentence_and_the_turn_can_be_repeated(
    s3: S3, faulty: FaultyStore, fault: str, step: str
) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    table, requests = STEPS[step]
    faulty.inject(fault, requests)
    with pytest.raises(BadPlace) as error:
        run_turn(Lake(place, faulty.options | FAST), 2, 10, 20, puts=5)
    # What can be repeated without harm was repeated.
    assert faulty.heal() == (1 if fault == "refuse" else 3)
    assert str(error.value) == f"{place}/{table}: {FAULTS[fault]}"
    pinned = Lake(place, s3.options).pin()
    assert (pinned.turn, pinned.rows(EVENTS), puts(pinned), len(pinned.coverage())) == (1, 10, [1], 1)

    lake = Lake(place, s3.options)
    if lake.turn == 1:
        run_turn(lake, 2, 10, 20, puts=5)
        finished = Lake(place, s3.options).pin()
        assert (finished.turn, finished.rows(EVENTS), puts(finished)) == (2, 20, [1, 5])
        assert [(row["start"], row["end"]) for row in finished.coverage()] == [(0, 10), (10, 20)]


@pytest.mark.parametrize("fault", ["throttle", "drop"])
def test_a_fault_that_passes_is_not_noticed(s3: S3, faulty: FaultyStore, fault: str) -> None:
    place = s3.new_lake()
    faulty.inject(fault, every=3)
    run_turn(Lake(place, faulty.options | FAST), 1, 0, 10)
    assert faulty.heal() > 5
    assert (Lake(place, s3.options).pin().rows(EVENTS)) == 10


def test_a_commit_whose_reply_is_lost_is_not_mistaken_for_another_writer(s3: S3, faulty: FaultyStore) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    faulty.inject("lose the reply", r"PUT .*/_delta_log/.*\.json", every=2)
    run_turn(Lake(place, faulty.options | FAST), 2, 10, 20)
    assert faulty.heal() >= 2
    assert Lake(place, s3.options).pin().rows(EVENTS) == 20


def test_a_store_that_does_not_answer_is_named() -> None:
    store = S3(9)  # Nothing listens on this port.
    with pytest.raises(BadPlace, match="the store cannot be reached; check its address and the network") as error:
        Lake("s3://bucket/lake", store.options | FAST)
    assert "\n" not in str(error.value)


# ---- Secrets


def test_credentials_appear_in_no_error_and_in_no_file(
    s3: S3, faulty: FaultyStore, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    place = s3.new_lake()
    run_turn(Lake(place, s3.options), 1, 0, 10)
    said = []
    for fault in FAULTS:
        faulty.inject(fault, "PUT")
        with pytest.raises(PipelineError) as error:
            run_turn(Lake(place, faulty.options | FAST), 2, 10, 20)
        said += [str(error.value), repr(error.value), repr(error.value.__cause__)]
    faulty.heal()
    lake = Lake(place, s3.options)
    said += [str(lake), repr(lake), repr(lake.place), repr(vars(lake.log(COVERAGE)))]
    files = lake.place.files()
    for found in files.get_file_info(pa.fs.FileSelector("", recursive=True)):
        if found.is_file:
            with files.open_input_file(found.path) as stored:
                said.append(stored.read().decode("latin-1"))
    out, err = capfd.readouterr()
    shown = "\n".join([*said, caplog.text, out, err])
    assert "commitInfo" in shown and SECRET not in shown and "test-access-key" not in shown
