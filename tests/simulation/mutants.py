"""`make mutants`: all planted bugs and the tests that catch them. A bug that survives shows a gap in the tests."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.planted_bugs import MUTANTS, VARIABLE

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Seeds:
    """Simulations of which at least one has to fail. The settings make the necessary events more frequent."""

    count: int
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tests:
    """A test that has to fail."""

    path: str
    only: str = ""  # Selects tests by a part of their names.


@dataclass(frozen=True)
class HashSeeds:
    """A seed whose history has to depend on Python's hash seed."""

    seed: int


# Many puts around the time at which a standby replaces its node.
_STANDBYS = ("workload=tubes", "nodes=4", "nemeses=rehome", "jobs=100", "faults_every_ms=300", "iproto_share=0.0")

CAUGHT_BY: dict[str, Seeds | Tests | HashSeeds] = {
    "answers-before-all-copies": Seeds(50),
    "own-copy-counts-twice": Seeds(50),
    "asked-counts-as-confirmed": Seeds(500),
    "warning-is-not-waited-for": Seeds(50),
    "early-timer-counts-as-the-retry-time": Seeds(50),
    "warning-outlives-an-objection": Tests("tests/cluster/test_copy_states.py", "objects"),
    "holders-hear-of-no-ack": Seeds(50),
    "queued-is-not-heard": Seeds(200),
    "ack-collected-while-a-holder-is-away": Seeds(500),
    "old-time-after-nack": Seeds(200),
    "handed-over-twice": Seeds(100),
    "heir-forgot-and-takes-it-again": Seeds(500),
    "kept-for-a-dead-heir": Seeds(100, ("nemeses=leave,lose", "nodes=4", "retry_s=20")),
    "replicas-in-the-order-of-a-set": HashSeeds(2),
    "no-sync": Seeds(50),
    "sync-after-reply": Seeds(100, ("journal=always", "nemeses=power_cut")),
    "once-again-after-restart": Seeds(200),
    "ids-begin-anew": Seeds(100),
    "checksum-without-length": Tests("tests/journal/recovery/test_crash.py", "flipped_bit"),
    "short-tail-is-a-frame": Tests("tests/journal/recovery/test_crash.py"),
    "names-are-not-synced": Tests("tests/journal/test_real_disk.py"),
    "no-commit-during-a-sync": Tests("tests/node/test_turn.py", "earlier_sync"),
    "later-output-leaves-with-an-earlier-sync": Tests("tests/node/test_turn.py", "earlier_sync"),
    "messages-leave-before-the-sync": Seeds(500),
    "sent-delivery-is-undone": Tests("tests/node/test_turn.py", "is_not_undone"),
    "unsent-delivery-is-kept": Tests("tests/node/test_turn.py", "waits_for_the_sync_is_undone"),
    "served-wait-of-a-lost-client-is-kept": Tests("tests/node/test_turn.py", "a_wait_that_was_served"),
    "rest-of-a-client-is-forgotten": Tests("tests/node/test_turn.py", "many_commands"),
    "has-arrived-is-not-reset": Tests("tests/node/test_turn.py", "every_turn"),
    "session-outlives-its-client": Tests("tests/node/test_turn.py", "session_of_a_client"),
    "disconnected-client-is-run": Tests("tests/node/test_turn.py", "is_not_run_again"),
    "client-that-does-not-read-is-run": Tests("tests/node/test_turn.py", "does_not_read"),
    "budget-of-a-turn-is-ignored": Tests("tests/node/test_turn.py", "many_commands"),
    "command-behind-a-wait-is-run": Tests("tests/node/test_turn.py", "behind_a_wait"),
    "closed-connection-counts-as-delivered": Tests("tests/node/test_turn.py", "already_closed"),
    "reply-of-any-node-is-passed-on": Tests("tests/node/test_forwarding.py", "another_node_than_the_home"),
    "error-within-a-forwarded-reply": Seeds(100, ("workload=tubes", "features=big_bodies", "loss=0.01")),
    "forwarded-wait-is-not-stopped": Seeds(500, ("workload=tubes",)),
    "wait-that-begins-with-the-end-of-the-input-is-not-stopped": Seeds(
        500, ("workload=tubes", "features=half_close", "nemeses=", "turn_us=1000", "delay_us=5000")
    ),
    "closed-before-the-forwarded-reply": Seeds(500, ("workload=tubes",)),
    "closed-before-the-reply-of-a-waiting-call": Tests("tests/node/test_forwarding.py", "wait_for_an_election"),
    "closed-before-all-ended-waits-are-answered": Tests("tests/node/test_forwarding.py", "wait_for_an_election"),
    "displaced-node-stays-away-after-its-takeover": Tests("tests/cluster/test_epochs.py", "gossip"),
    "copies-exceed-the-capacity": Tests("tests/cluster/test_replication.py", "capacity"),
    "lost-forwarded-client-stays": Seeds(500, ("workload=tubes",)),
    "forwarded-client-of-an-earlier-home": Tests("tests/node/test_forwarding.py", "earlier_home"),
    "end-of-a-forwarded-wait-is-marked-early": Seeds(500, ("workload=tubes",)),
    "no-limit-of-forwarded-clients": Seeds(500, ("workload=tubes",)),
    "bytes-for-a-crowded-link-stay": Seeds(500, ("workload=tubes", "features=crowded")),
    "replies-for-a-crowded-link-stay": Seeds(500, ("workload=tubes", "features=crowded")),
    "forwarded-user-may-use-all-tubes": Seeds(100, ("workload=tubes", "features=users")),
    "user-may-use-all-jobs": Seeds(100, ("workload=tubes", "features=users")),
    "refused-command-is-run-after-loading": Seeds(500, ("workload=tubes", "features=loading")),
    "call-is-answered-with-another-number": Seeds(100, ("workload=tubes", "features=pipelines")),
    "home-without-a-majority": Seeds(500, ("workload=tubes",)),
    "grant-is-not-recorded": Seeds(500, ("workload=tubes",)),
    "rival-stays-in-the-election": Seeds(500, ("workload=tubes",)),
    "command-is-forwarded-during-an-election": Seeds(500, ("workload=tubes", "nemeses=", "producers=4")),
    "grace-time-runs-on-after-identify": Seeds(500, ("workload=tubes",)),
    "no-grace-time": Seeds(500, ("workload=tubes",)),
    "publication-is-not-logged": Seeds(500, ("workload=tubes", "features=stages")),
    "mark-is-ignored": Seeds(100, ("workload=tubes", "features=stages")),
    "stage-is-not-looked-for-on-other-nodes": Seeds(100, ("workload=tubes", "features=stages")),
    "node-that-has-not-answered-has-no-stage": Seeds(500, ("workload=tubes", "features=stages", "nemeses=pause")),
    "replaced-reader-is-not-refused": Seeds(100, ("workload=tubes", "features=claims")),
    "claim-has-another-order-after-a-restart": Seeds(500, ("workload=tubes", "features=claims")),
    "consumer-is-not-looked-for-on-other-nodes": Seeds(100, ("workload=tubes", "features=claims")),
    "replaced-node-does-not-step-down": Seeds(100, ("workload=tubes", "nodes=4", "nemeses=rehome")),
    "log-of-a-standby-is-not-doubtful": Seeds(500, (*_STANDBYS, "features=once", "tubes=0")),
    "standby-uses-ids-again": Seeds(500, (*_STANDBYS, "features=")),
    "delivered-job-is-released": Seeds(100, ("workload=tubes", "features=once")),
    "doubtful-job-is-not-buried": Seeds(
        500, ("workload=tubes", "features=once", "journal=everysec", "nemeses=power_cut", "chaos_ms=8000")
    ),
    "key-stays-busy-when-buried": Tests("tests/core/test_keys.py"),
    "two-timers-for-a-job": Seeds(100),
    "ttl-from-take": Seeds(100),
    "ttr-stays-after-ack": Seeds(50),
    "heap-out-of-order": Seeds(50),
    "waiter-is-not-woken": Seeds(200),
    "parser-reads-on-after-an-error": Tests("tests/wire/test_resp.py"),
    "wall-clock-for-retry": Seeds(100),
}


def catch(name: str) -> str:
    """Plant a bug. Return what caught it, or nothing if it survived."""
    by = CAUGHT_BY[name]
    if isinstance(by, Seeds):
        words = [word for setting in by.settings for word in ("--set", setting)]
        done = _run([sys.executable, "-m", "tests.simulation.planted_bugs", name, "--seeds", str(by.count), *words])
        return done.stdout.partition("\n")[0] if done.returncode == 0 else ""
    if isinstance(by, Tests):
        done = _run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", by.path, "-k", by.only], mutant=name
        )
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return f"{name}: caught by {failed[0].split()[1]}" if done.returncode == 1 and failed else ""
    digests = {_digest(name, by.seed, hash_seed) for hash_seed in ("1", "2", "3")}
    return f"{name}: caught by seed {by.seed}, which depends on the hash seed" if len(digests) > 1 else ""


def _digest(name: str, seed: int, hash_seed: str) -> str:
    program = (
        "from tests.simulation import planted_bugs; planted_bugs.install_from_environment(); "
        f"from penstock.testing.sim import simulate; print(simulate({seed}).digest)"
    )
    done = _run([sys.executable, "-c", program], mutant=name, PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _run(words: list[str], mutant: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more, **({VARIABLE: mutant} if mutant else {})}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    survived: list[str] = []
    needed: list[int] = []
    for mutant in MUTANTS:
        caught = catch(mutant.name)
        print(caught or f"{mutant.name}: SURVIVED", flush=True)
        if not caught:
            survived.append(mutant.name)
        elif isinstance(CAUGHT_BY[mutant.name], Seeds):
            needed.append(int(caught.split("by seed ")[1].partition(":")[0]))
    print(f"{len(MUTANTS) - len(survived)} of {len(MUTANTS)} caught; seeds needed: median {statistics.median(needed)}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
