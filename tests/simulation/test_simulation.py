"""Simulated clusters keep their guarantees under faults, and runs are deterministic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.sim import draw, simulate
from penstock.testing.sim.simulation import Report
from penstock.testing.sim.swarm import run_seeds

# A sample; `make sim SEEDS=100000` runs more. The tests of both builds run at the same time, and the compiled one is
# faster.
SEEDS_COMPILED = 500
SEEDS_INTERPRETED = 100

# The digests of the histories of seeds 1 to 2,000, one per line. A change that should not change behaviour keeps them.
# `python -m tests.simulation.digests` checks all of them, and writes the file anew with --write.
DIGESTS = Path(__file__).with_name("digests.txt").read_text().split()


def test_no_guarantee_is_violated_under_faults_and_all_expected_events_occur(compiled: bool) -> None:
    broken: list[str] = []
    digests: dict[int, str] = {}

    def check(report: Report) -> None:
        digests[report.seed] = report.digest
        if not report.passed:
            broken.append(report.shown([]))

    count = SEEDS_COMPILED if compiled else SEEDS_INTERPRETED
    tally = run_seeds(1, count, [], 1, check)
    assert not broken, "\n\n".join(broken)
    assert not tally.missing(), f"no seed has seen: {tally.missing()}"
    changed = [seed for seed, digest in digests.items() if digest != DIGESTS[seed - 1]]
    assert not changed, f"seeds {changed[:5]} have other histories; explain each change of behaviour"


def test_a_seed_gives_the_same_history_twice() -> None:
    first, second = simulate(7), simulate(7)
    assert first == second and first.events > 1_000


def test_a_seed_gives_the_same_history_under_any_hash_seed() -> None:
    program = "from penstock.testing.sim import simulate; print([simulate(seed).digest for seed in (2, 5, 11)])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_another_seed_gives_another_history() -> None:
    assert simulate(7).digest != simulate(8).digest


def test_every_option_is_printed_and_can_be_set() -> None:
    options = draw(3)
    assert draw(4).changed(options.shown().split()) == options


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [("nodes", "no option"), ("nonsense=1", "no option"), ("nodes=many", "not a value"), ("ttl_s=1,x", "not a value")],
)
def test_an_invalid_setting_is_refused(setting: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        draw(1).changed([setting])


# Seeds that found a defect, with the options that they had then.
FOUND = {
    "a job that was imported and waits was also queued by another holder": (
        81,
        "nodes=5 node_timeout_ms=1000 journal=always sync_us=1000 turn_us=1000 delay_us=500 producers=1 consumers=1 "
        "queues=5 jobs=120 replicate=3 retry_s=1 ttl_s=5 delay_s=0 body_bytes=4000 async_share=0.5 nack_share=0.3 "
        "drop_share=0.1 elsewhere_share=0.2 fast_share=0 working_share=0.1 chaos_ms=8589 nemeses=",
    ),
    "a job was handed over again and again to a node that leaves": (
        30,
        "nodes=6 node_timeout_ms=5000 journal=everysec sync_us=50 turn_us=100 drift_ppm=50000 delay_us=1000 loss=0 "
        "duplication=0.5 producers=3 consumers=2 queues=3 jobs=50 replicate=1,3 retry_s=0 ttl_s=86400 delay_s=0,1 "
        "nemeses=leave,pause,kill faults_every_ms=300",
    ),
    "a reinstalled node could not be met": (
        152,
        "nodes=3 node_timeout_ms=5000 journal=always sync_us=200 turn_us=1000 drift_ppm=50000 delay_us=5000 loss=0.1 "
        "jobs=60 replicate=1,2 nemeses=partition,kill,pause,wipe faults_every_ms=1000",
    ),
    "a job was handed over under an old incarnation of the receiver, and given up": (
        300_586,
        "nodes=4 node_timeout_ms=3000 journal=none sync_us=1000 turn_us=20 drift_ppm=1000 delay_us=20000 loss=0 "
        "duplication=0.05 encoded=0 producers=2 consumers=5 queues=3 jobs=120 replicate=3,4 retry_s=0 ttl_s=86400 "
        "delay_s=1 body_bytes=0 async_share=0.5 nack_share=0 drop_share=0 elsewhere_share=1 fast_share=0 "
        "working_share=0.1 chaos_ms=11849 nemeses=one_way,kill,pause,clock_jump,slow_disk,memory,leave,join "
        "faults_every_ms=300",
    ),
    "two holders that were about to queue a job both queued and delivered it": (
        12_006_812,
        "nodes=4 node_timeout_ms=3000 journal=always sync_us=8000 turn_us=20 drift_ppm=0 delay_us=2000 loss=0 "
        "duplication=0 encoded=0 producers=2 consumers=5 queues=2 jobs=30 replicate=2,4 retry_s=5 ttl_s=30 delay_s=3 "
        "body_bytes=1,4000 async_share=0.5 nack_share=0.3 drop_share=0.3 elsewhere_share=1 fast_share=0 "
        "working_share=0 chaos_ms=3674 nemeses= faults_every_ms=300",
    ),
    "an ack did not reach a holder that was asked just before a power cut": (
        16_003_068,
        "nodes=3 node_timeout_ms=10000 journal=always sync_us=50 turn_us=1000 drift_ppm=0 delay_us=1000 loss=0 "
        "duplication=0 encoded=0 producers=3 consumers=2 queues=1 jobs=50 replicate=1,3 retry_s=5,20 ttl_s=86400 "
        "delay_s=0,1 body_bytes=1,100 async_share=0 nack_share=0.1 drop_share=0 elsewhere_share=0.2 fast_share=0 "
        "working_share=0.1 chaos_ms=8365 nemeses=power_cut,slow_disk,join faults_every_ms=300",
    ),
    "a node that had not met a holder gave an ack up": (
        12_009_090,
        "nodes=5 node_timeout_ms=3000 journal=always sync_us=50 turn_us=100 drift_ppm=1000 delay_us=200 loss=0 "
        "duplication=0.5 encoded=0 producers=4 consumers=5 queues=1 jobs=60 replicate=3 retry_s=5,20 ttl_s=86400 "
        "delay_s=0 body_bytes=0,1 async_share=0 nack_share=0.1 drop_share=0 elsewhere_share=0.2 fast_share=0 "
        "working_share=0 chaos_ms=5389 nemeses=partition,join,set_aside faults_every_ms=300",
    ),
    "a job was acked at its maker, which still waited for copies": (
        20_097_395,
        "nodes=3 node_timeout_ms=3000 journal=everysec sync_us=200 turn_us=1000 drift_ppm=50000 delay_us=1000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=2 consumers=4 queues=3 jobs=60 replicate=3 retry_s=1 ttl_s=1,86400 "
        "delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.3 drop_share=0.0 elsewhere_share=1.0 fast_share=0.2 "
        "working_share=0.1 chaos_ms=8325 nemeses=swizzle,kill,failing_disk,memory,set_aside faults_every_ms=300",
    ),
    "a job was kept for a receiver that was away": (
        58,
        "nodes=4 node_timeout_ms=2000 journal=always sync_us=8000 turn_us=20 drift_ppm=50000 delay_us=200 loss=0 "
        "duplication=0 encoded=1 producers=4 consumers=5 queues=3 jobs=50 replicate=1 retry_s=20 ttl_s=86400 delay_s=3 "
        "body_bytes=0 async_share=0.1 nack_share=0 drop_share=0 elsewhere_share=1 fast_share=0 working_share=0.1 "
        "chaos_ms=5071 nemeses=leave,lose faults_every_ms=1000",
    ),
}


# Seeds that found a defect, with the options that are drawn from them.
FOUND_AS_DRAWN = {
    "a node whose log was full never accepted copies again, and an add was never answered": 88_010_430,
    "the only peer of two nodes was lost": 88_007_702,
    "a reinstalled node was met by no other node": 96_033_581,
    "two reinstalled nodes had met only each other": 77_001_881,
    "a job that had ended with a FASTACK returned with a node that was away": 51_009_094,
    "a job moved back and forth between nodes without consumers until it expired": 50_003_105,
    "a job was handed over to a killed process because of its last greeting": 120_012_017,
    "a holder was warned just before it warned, and both queued and delivered the job": 160_027_644,
    "a job was deleted by a late receipt while it was delivered, and delivered again": 160_029_061,
    "a node was killed while it met another one, and did not try again": 160_041_156,
    "a restarted node without a journal greeted its peers by the clock of its former process": 18_045,
}


@pytest.mark.parametrize("what", FOUND_AS_DRAWN)
def test_seeds_that_found_defects_pass_with_drawn_options(what: str) -> None:
    report = simulate(FOUND_AS_DRAWN[what])
    assert report.passed, report.shown([])


@pytest.mark.parametrize("what", FOUND)
def test_seeds_that_found_defects_pass_with_given_options(what: str) -> None:
    seed, settings = FOUND[what]
    report = simulate(seed, settings.split())
    assert report.passed, report.shown(settings.split())


# The workload `tubes`: tubes with homes, sessions, RESP and IPROTO.

TUBES = ["workload=tubes"]
TUBE_SEEDS_COMPILED = 60
TUBE_SEEDS_INTERPRETED = 20


def test_no_promise_of_a_tube_is_broken_through_any_node(compiled: bool) -> None:
    broken: list[str] = []

    def check(report: Report) -> None:
        if not report.passed:
            broken.append(report.shown(TUBES))

    tally = run_seeds(1, TUBE_SEEDS_COMPILED if compiled else TUBE_SEEDS_INTERPRETED, TUBES, 1, check)
    assert not broken, "\n\n".join(broken)
    if compiled:
        assert not tally.missing(), f"no seed has seen: {tally.missing()}"


def test_a_seed_of_tubes_gives_the_same_history_twice() -> None:
    first, second = simulate(6, TUBES), simulate(6, TUBES)
    assert first == second and first.digest != simulate(6).digest


# Seeds of the workload `tubes` that found a defect, with the settings that they had then.
IPROTO = ["features=", "iproto_share=1.0", "iproto_grace_ms=2000", "grace_ms=2000", "cut_share=0.2", "hold_share=0.6"]
FOUND_WITH_TUBES: dict[str, tuple[int, list[str]]] = {
    "a client came back to the home of its tube in the turn in which its grace time ended": (37, ["features="]),
    "a session was resumed over IPROTO, and its job at another node was delivered again": (415, IPROTO),
}


# More seeds of this workload that found a defect. Later changes draw other options, so all of them are stored.
FOUND_WITH_TUBES_AND_OPTIONS: dict[str, tuple[int, str]] = {
    "a paused node relayed a job after its session had ended at the home": (
        1_001_224,
        "nodes=4 node_timeout_ms=2000 journal=none sync_us=50 turn_us=20 drift_ppm=50000 delay_us=20000 "
        "loss=0.001 duplication=0.0 encoded=0 producers=3 consumers=2 queues=1 jobs=20 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0 async_share=0.0 nack_share=0.1 drop_share=0.1 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=3222 nemeses=pause,wipe,snapshot faults_every_ms=1000 "
        "tubes=0,1,3,5 grace_ms=500 iproto_grace_ms=500 iproto_share=0.0 hold_share=0.6 cut_share=0.2",
    ),
    "a session nacked a job because of an earlier delivery of it": (
        1_001_309,
        "nodes=2 node_timeout_ms=1000 journal=none sync_us=200 turn_us=20 drift_ppm=0 delay_us=200 loss=0.001 "
        "duplication=0.0 encoded=1 producers=3 consumers=4 queues=1 jobs=100 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0 async_share=0.0 nack_share=0.3 drop_share=0.0 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=9197 nemeses=partition,power_cut,slow_disk,wipe "
        "faults_every_ms=3000 tubes=0,1,2,5 grace_ms=2000 iproto_grace_ms=0 iproto_share=0.0 hold_share=0.6 "
        "cut_share=0.05",
    ),
    "a home lost an ack in a power cut, and the session over IPROTO held the job again": (
        1_001_469,
        "nodes=2 node_timeout_ms=1000 journal=everysec sync_us=8000 turn_us=20 drift_ppm=1000 delay_us=1000 "
        "loss=0.0 duplication=0.0 encoded=0 producers=2 consumers=5 queues=1 jobs=20 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.1 drop_share=0.1 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=7932 nemeses=power_cut,pause,full_disk,memory "
        "faults_every_ms=300 tubes=0 grace_ms=2000 iproto_grace_ms=2000 iproto_share=1.0 hold_share=0.0 "
        "cut_share=0.0",
    ),
    "a restarted node without a journal used the clock of its former process": (
        7_851,
        "nodes=3 node_timeout_ms=1000 journal=none sync_us=50 turn_us=20 drift_ppm=50000 delay_us=5000 "
        "loss=0.01 duplication=0.0 encoded=1 producers=3 consumers=5 queues=1 jobs=30 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0,4000 async_share=0.0 nack_share=0.0 drop_share=0.0 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=7158 "
        "nemeses=partition,swizzle,power_cut,clock_jump,failing_disk,leave faults_every_ms=300 tubes=1 "
        "grace_ms=0 iproto_grace_ms=0 iproto_share=0.3 hold_share=0.6 cut_share=0.2 features=",
    ),
    "a session buried a job that another session held": (
        376,
        "nodes=3 node_timeout_ms=3000 journal=always sync_us=8000 turn_us=100 drift_ppm=0 delay_us=500 "
        "loss=0.0 duplication=0.0 encoded=0 producers=2 consumers=5 queues=1 jobs=100 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=4000 async_share=0.0 nack_share=0.3 drop_share=0.3 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=7536 nemeses= faults_every_ms=1000 "
        "tubes=2,3,6 grace_ms=500 iproto_grace_ms=2000 iproto_share=0.0 hold_share=0.6 cut_share=0.0 "
        "features=stages",
    ),
    "a session acked a job because of an earlier delivery of it": (
        19_594,
        "nodes=3 node_timeout_ms=2000 journal=everysec sync_us=50 turn_us=20 drift_ppm=0 delay_us=200 "
        "loss=0.0 duplication=0.0 encoded=0 producers=3 consumers=1 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=4000 async_share=0.0 nack_share=0.1 drop_share=0.1 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=5251 nemeses= faults_every_ms=1000 "
        "tubes=0,2,3 grace_ms=0,500,5000 iproto_grace_ms=500 iproto_share=0.5 hold_share=0.6 cut_share=0.2 "
        "features=",
    ),
    "a forwarded take arrived together with the end of its client's input, and waited": (
        866,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=1000 turn_us=20 drift_ppm=0 delay_us=2000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=1 consumers=3 queues=1 jobs=30 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=0,1,100 async_share=0.0 nack_share=0.3 drop_share=0.3 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=5850 nemeses= faults_every_ms=1000 tubes=0,1,2,5 grace_ms=0 "
        "iproto_grace_ms=500 iproto_share=0.5 hold_share=0.2 cut_share=0.05 "
        "features=claims,crowded,late_tubes,half_close,big_bodies,few_guests,once",
    ),
    "a client took an ack for refused that its home had not run, because it had too many clients": (
        1_462,
        "nodes=3 node_timeout_ms=3000 journal=everysec sync_us=8000 turn_us=100 drift_ppm=50000 delay_us=20000 "
        "loss=0.0 duplication=0.0 encoded=0 producers=2 consumers=5 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0,4000 async_share=0.0 nack_share=0.1 drop_share=0.1 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=7090 nemeses=pause,wipe "
        "faults_every_ms=1000 tubes=0,1,5 grace_ms=0,500 iproto_grace_ms=2000 iproto_share=0.3 hold_share=0.2 "
        "cut_share=0.05 features=stages,pipelines,big_bodies,few_guests",
    ),
    "an operator's command reached a node that was loading its journal": (
        1_769,
        "nodes=3 node_timeout_ms=1000 journal=always sync_us=200 turn_us=100 drift_ppm=0 delay_us=1000 loss=0.001 "
        "duplication=0.0 encoded=0 producers=3 consumers=1 queues=1 jobs=40 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=0,1,4000 async_share=0.0 nack_share=0.3 drop_share=0.1 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=9387 nemeses=swizzle,clock_jump,full_disk,leave,rehome "
        "faults_every_ms=300 tubes=1,2,5 grace_ms=2000 iproto_grace_ms=2000 iproto_share=1.0 hold_share=0.2 "
        "cut_share=0.2 features=claims,half_close,loading",
    ),
    "a client took a release for refused that its home had not run, because it had too many clients": (
        2_171,
        "nodes=5 node_timeout_ms=2000 journal=always sync_us=200 turn_us=20 drift_ppm=50000 delay_us=5000 "
        "loss=0.0 duplication=0.0 encoded=1 producers=1 consumers=1 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0 async_share=0.0 nack_share=0.1 drop_share=0.3 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=2278 nemeses=pause,slow_disk,failing_disk,memory "
        "faults_every_ms=1000 tubes=1,5 grace_ms=0 iproto_grace_ms=2000 iproto_share=0.3 hold_share=0.2 "
        "cut_share=0.2 features=pipelines,big_bodies,few_guests",
    ),
    "the answer about a stage that did not exist yet was used for a later command of the connection": (
        2_127,
        "nodes=2 node_timeout_ms=3000 journal=always sync_us=200 turn_us=1000 drift_ppm=0 delay_us=20000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=1 consumers=2 queues=1 jobs=30 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=1,4000 async_share=0.0 nack_share=0.3 drop_share=0.3 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=7972 nemeses=one_way,full_disk,lost_home faults_every_ms=3000 "
        "tubes=0,1,6 grace_ms=0 iproto_grace_ms=0 iproto_share=0.5 hold_share=0.0 cut_share=0.2 "
        "features=stages,crowded,users,late_tubes,big_bodies,once",
    ),
    "a client gave up a job and kept the session that held it": (
        2_811,
        "nodes=2 node_timeout_ms=2000 journal=always sync_us=1000 turn_us=1000 drift_ppm=50000 delay_us=5000 "
        "loss=0.0 duplication=0.0 encoded=0 producers=2 consumers=2 queues=1 jobs=100 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.1 drop_share=0.3 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=8763 nemeses=one_way,swizzle,lost_home faults_every_ms=3000 "
        "tubes=1 grace_ms=0,5000 iproto_grace_ms=500 iproto_share=0.3 hold_share=0.0 cut_share=0.05 "
        "features=crowded,users,late_tubes,few_guests,once,loading",
    ),
    "a node ignored gossip about a standby, because it had removed the replaced node a short time before": (
        3_794,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=1000 turn_us=100 drift_ppm=50000 delay_us=20000 "
        "loss=0.0 duplication=0.0 encoded=1 producers=3 consumers=3 queues=1 jobs=100 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=1,4000 async_share=0.0 nack_share=0.3 drop_share=0.1 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=7324 "
        "nemeses=one_way,pause,full_disk,rehome,lost_home faults_every_ms=300 tubes=0,3,6 grace_ms=0,500,5000 "
        "iproto_grace_ms=2000 iproto_share=0.5 hold_share=0.6 cut_share=0.2 features=late_tubes",
    ),
    "a reader acked a claim that it had never received, together with a later one": (
        3_804,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=1000 turn_us=1000 drift_ppm=0 delay_us=5000 loss=0.0 "
        "duplication=0.0 encoded=1 producers=3 consumers=2 queues=1 jobs=30 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=1,100 async_share=0.0 nack_share=0.1 drop_share=0.0 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=9604 nemeses=swizzle,power_cut,pause,clock_jump,join "
        "faults_every_ms=300 tubes=0,5 grace_ms=500 iproto_grace_ms=0 iproto_share=0.3 hold_share=0.6 "
        "cut_share=0.0 features=claims,pipelines,users,loading",
    ),
    "a call over IPROTO waited for an election, and its client had closed its sending side": (
        4_230,
        "nodes=5 node_timeout_ms=3000 journal=always sync_us=200 turn_us=1000 drift_ppm=0 delay_us=2000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=3 consumers=5 queues=1 jobs=30 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=4000 async_share=0.0 nack_share=0.3 drop_share=0.0 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=3112 nemeses= faults_every_ms=3000 tubes=1 grace_ms=2000 "
        "iproto_grace_ms=500 iproto_share=0.5 hold_share=0.2 cut_share=0.2 features=crowded,users,half_close",
    ),
    "a reinstalled node served clients that had connected while it loaded a journal that it did not have": (
        4_597,
        "nodes=3 node_timeout_ms=3000 journal=always sync_us=8000 turn_us=100 drift_ppm=0 delay_us=1000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=2 consumers=4 queues=1 jobs=60 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.1 drop_share=0.3 elsewhere_share=0.0 fast_share=0.0 "
        "working_share=0.0 chaos_ms=7565 nemeses=pause,snapshot,rehome faults_every_ms=1000 tubes=0 grace_ms=500 "
        "iproto_grace_ms=0 iproto_share=1.0 hold_share=0.6 cut_share=0.2 "
        "features=stages,pipelines,users,few_guests,loading",
    ),
    "a reinstalled node became a second home of a tube, because no operator introduced it while it loaded": (
        4_759,
        "nodes=3 node_timeout_ms=3000 journal=always sync_us=1000 turn_us=1000 drift_ppm=50000 delay_us=20000 "
        "loss=0.0 duplication=0.0 encoded=1 producers=1 consumers=5 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0 async_share=0.0 nack_share=0.1 drop_share=0.1 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=5547 nemeses=kill,slow_disk,failing_disk,rehome "
        "faults_every_ms=300 tubes=3,5,6 grace_ms=0 iproto_grace_ms=2000 iproto_share=1.0 hold_share=0.6 "
        "cut_share=0.05 features=pipelines,few_guests,once,loading",
    ),
    "a client over IPROTO did not ack a job of one home of a tube, because the other home refused the ack": (
        5_911,
        "nodes=5 node_timeout_ms=2000 journal=always sync_us=8000 turn_us=1000 drift_ppm=50000 delay_us=5000 "
        "loss=0.001 duplication=0.0 encoded=0 producers=1 consumers=3 queues=1 jobs=40 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=1,100,4000 async_share=0.0 nack_share=0.0 drop_share=0.0 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=6469 "
        "nemeses=one_way,clock_jump,slow_disk,leave,rehome faults_every_ms=300 tubes=6 grace_ms=0 "
        "iproto_grace_ms=500 iproto_share=0.5 hold_share=0.0 cut_share=0.05 "
        "features=crowded,pipelines,few_guests,loading",
    ),
    "a node was replaced before it had stored its table of nodes": (
        5_578,
        "nodes=3 node_timeout_ms=2000 journal=everysec sync_us=8000 turn_us=100 drift_ppm=0 delay_us=5000 "
        "loss=0.0 duplication=0.0 encoded=0 producers=1 consumers=2 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=100 async_share=0.0 nack_share=0.0 drop_share=0.3 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=8163 nemeses=swizzle,kill,leave,wipe,rehome "
        "faults_every_ms=1000 tubes=2,6 grace_ms=500 iproto_grace_ms=500 iproto_share=0.0 hold_share=0.0 "
        "cut_share=0.2 features=stages,users,few_guests,once",
    ),
    "a client left when its question was answered, and its command asked another one": (
        11_272,
        "nodes=5 node_timeout_ms=3000 journal=always sync_us=8000 turn_us=1000 drift_ppm=1000 delay_us=200 "
        "loss=0.001 duplication=0.0 encoded=0 producers=2 consumers=2 queues=1 jobs=60 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=1,100 async_share=0.0 nack_share=0.3 drop_share=0.0 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=9082 nemeses=pause faults_every_ms=300 tubes=0,2,3,5 "
        "grace_ms=500 iproto_grace_ms=0 iproto_share=0.5 hold_share=0.0 cut_share=0.05 "
        "features=stages,crowded,pipelines,half_close,few_guests",
    ),
    "a late link of a process that was replaced took the place of the link of its successor": (
        9_169,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=200 turn_us=1000 drift_ppm=1000 delay_us=200 "
        "loss=0.0 duplication=0.0 encoded=0 producers=3 consumers=5 queues=1 jobs=20 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=0,4000 async_share=0.0 nack_share=0.0 drop_share=0.3 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=9517 "
        "nemeses=one_way,kill,full_disk,leave,rehome faults_every_ms=1000 tubes=0,3,4,6 grace_ms=0,500 "
        "iproto_grace_ms=2000 iproto_share=0.3 hold_share=0.2 cut_share=0.0 "
        "features=claims,crowded,half_close,few_guests",
    ),
    "a ttr ended on the clock of a standby, which was ahead": (
        10_621,
        "nodes=5 node_timeout_ms=2000 journal=always sync_us=1000 turn_us=100 drift_ppm=50000 delay_us=5000 "
        "loss=0.0 duplication=0.0 encoded=0 producers=1 consumers=3 queues=1 jobs=40 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=100,4000 async_share=0.0 nack_share=0.3 drop_share=0.1 "
        "elsewhere_share=0.0 fast_share=0.0 working_share=0.0 chaos_ms=9634 "
        "nemeses=one_way,kill,pause,failing_disk,leave,join,wipe,rehome,lost_home faults_every_ms=1000 "
        "tubes=2,3,4,5 grace_ms=0,2000 iproto_grace_ms=2000 iproto_share=1.0 hold_share=0.2 cut_share=0.05 "
        "features=claims,users,late_tubes,big_bodies",
    ),
    "a renewal counted a claim whose take had no reply yet": (
        16_846,
        "nodes=1 node_timeout_ms=2000 journal=everysec sync_us=200 turn_us=20 drift_ppm=0 delay_us=5000 loss=0.0 "
        "duplication=0.0 encoded=0 producers=3 consumers=4 queues=1 jobs=100 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.1 drop_share=0.3 elsewhere_share=0.0 fast_share=0.0 "
        "working_share=0.0 chaos_ms=5808 nemeses=power_cut,pause,full_disk faults_every_ms=300 tubes=0,4,6 "
        "grace_ms=0 iproto_grace_ms=0 iproto_share=1.0 hold_share=0.2 cut_share=0.0 features=claims,crowded,once",
    ),
    "a mark was lost with the home of its tube": (
        18_465,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=50 turn_us=20 drift_ppm=1000 delay_us=5000 loss=0.0 "
        "duplication=0.0 encoded=1 producers=1 consumers=1 queues=1 jobs=30 replicate=3 retry_s=1 ttl_s=86400 "
        "delay_s=0 body_bytes=1 async_share=0.0 nack_share=0.1 drop_share=0.1 elsewhere_share=0.0 fast_share=0.0 "
        "working_share=0.0 chaos_ms=8089 nemeses=slow_disk,full_disk,snapshot,rehome faults_every_ms=300 "
        "tubes=2,3,4 grace_ms=0,500 iproto_grace_ms=0 iproto_share=0.5 hold_share=0.2 cut_share=0.2 "
        "features=stages,pipelines,big_bodies",
    ),
    "a mark was lost with the home of its tube, after lost messages": (
        14_174,
        "nodes=3 node_timeout_ms=2000 journal=always sync_us=8000 turn_us=100 drift_ppm=0 delay_us=5000 "
        "loss=0.001 duplication=0.0 encoded=1 producers=3 consumers=3 queues=1 jobs=100 replicate=3 retry_s=1 "
        "ttl_s=86400 delay_s=0 body_bytes=100 async_share=0.0 nack_share=0.0 drop_share=0.0 elsewhere_share=0.0 "
        "fast_share=0.0 working_share=0.0 chaos_ms=9538 nemeses=one_way,full_disk,hang_up,rehome "
        "faults_every_ms=300 tubes=1,3,4,5 grace_ms=0 iproto_grace_ms=0 iproto_share=0.5 hold_share=0.6 "
        "cut_share=0.05 features=stages,half_close,big_bodies,loading",
    ),
}


@pytest.mark.parametrize("what", FOUND_WITH_TUBES_AND_OPTIONS)
def test_seeds_of_tubes_that_found_defects_pass_with_given_options(what: str) -> None:
    seed, options = FOUND_WITH_TUBES_AND_OPTIONS[what]
    # A feature that was added later must not change the run.
    settings = [*TUBES, "features=", *options.split()]
    report = simulate(seed, settings)
    assert report.passed, report.shown(settings)


@pytest.mark.parametrize("what", FOUND_WITH_TUBES)
def test_seeds_of_tubes_that_found_defects_pass(what: str) -> None:
    seed, settings = FOUND_WITH_TUBES[what]
    report = simulate(seed, [*TUBES, *settings])
    assert report.passed, report.shown([*TUBES, *settings])
