"""CLAIM: batches that are the same on every read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ..serving import Refusal, Server, Wire, pairs


def fill(wire: Wire, tube: bytes, count: int) -> None:
    wire.call("MPUT", tube, *(word for number in range(count) for word in ("JOB", number)))


def bodies(jobs: list[Any]) -> list[bytes]:
    return [pairs(job)[b"body"] for job in jobs]


def test_a_claim_is_the_same_on_every_read_and_in_every_shard(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 10)
    claimed = wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 7)
    assert bodies(claimed) == [b"%d" % number for number in range(7)]
    assert list(pairs(claimed[0]))[:3] == [b"id", b"tube", b"body"]
    assert wire.call("CLAIM", "TAKE", queue, queue, 1) == wire.call("CLAIM", "READ", queue, 1) == claimed
    shards = [wire.call("CLAIM", "READ", queue, 1, "SHARD", index, 3) for index in range(3)]
    assert shards == [claimed[index::3] for index in range(3)]
    assert wire.call("CLAIM", "TAKE", queue, queue, 1, "SHARD", 2, 3) == shards[2]


def test_claims_are_acked_up_to_a_number(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 5)
    for number in (1, 2, 3):
        wire.call("CLAIM", "TAKE", queue, queue, number, "COUNT", 2)
    assert wire.call("CLAIM", "TAKE", queue, queue, 4) is None
    assert pairs(wire.call("CLAIM", "INFO", queue)) == {b"acked": 0, b"newest": 3, b"token": 0, b"open": [1, 2, 3]}
    assert [wire.call("CLAIM", "ACK", queue, 2) for _ in range(2)] == [4, 0]
    assert wire.call("CLAIM", "RENEW", queue, "LEASE", "5m") == wire.call("CLAIM", "RENEW", queue) == 1
    with pytest.raises(Refusal, match=r"^CLAIMGONE "):
        wire.call("CLAIM", "READ", queue, 2)
    assert wire.call("CLAIM", "RELEASE", queue) == 1
    assert pairs(wire.call("CLAIM", "INFO", queue)) == {b"acked": 2, b"newest": 3, b"token": 0, b"open": []}
    assert bodies(wire.call("TAKE", queue)) == [b"4"]


def test_a_large_claim_is_answered_and_acked_in_slices(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 4_100)
    claimed = wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 100_000)
    assert bodies(claimed) == [b"%d" % number for number in range(4_000)]
    assert wire.call("CLAIM", "READ", queue, 1) == claimed
    assert wire.call("CLAIM", "ACK", queue, 1) == 4_000
    assert pairs(wire.call("TUBE", "STATS", queue))[b"taken"] == 0


def test_an_older_consumer_is_fenced(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 2)
    wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 1, "TOKEN", 1)
    wire.call("CLAIM", "TAKE", queue, queue, 1, "TOKEN", 2)
    for words in (["TAKE", queue, queue, 1, "TOKEN", 1], ["ACK", queue, 1], ["RENEW", queue], ["RELEASE", queue]):
        with pytest.raises(Refusal, match=r"^FENCED "):
            wire.call("CLAIM", *words)


def test_claims_survive_a_crash_of_the_server(start: Callable[..., Server]) -> None:
    server = start()
    wire = server.connect()
    fill(wire, b"t", 6)
    claimed = wire.call("CLAIM", "TAKE", "t", "c", 1, "COUNT", 4, "LEASE", "1h")
    server.kill()
    wire = start().connect()
    assert bodies(wire.call("CLAIM", "READ", "c", 1)) == bodies(claimed)
    assert wire.call("CLAIM", "ACK", "c", 1) == 4
    assert bodies(wire.call("TAKE", "t", "COUNT", 9)) == [b"4", b"5"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["TAKE", "no tube at all", "c", 1], "NOTUBE"),
        (["TAKE", "TUBE", "c", 0], "RANGE"),
        (["TAKE", "TUBE", "c", 2], "RANGE"),
        (["TAKE", "TUBE", "c", "one"], "WRONGTYPE"),
        (["TAKE", "TUBE", "", 1], "BADNAME"),
        (["TAKE", "TUBE", "c", 1, "COUNT", 0], "RANGE"),
        (["TAKE", "TUBE", "c", 1, "LEASE", "forever"], "RANGE"),
        (["TAKE", "TUBE", "c", 1, "SHARD", 1, 1], "RANGE"),
        (["TAKE", "TUBE", "c", 1, "SHARD", 1], "SYNTAX"),
        (["TAKE", "TUBE", "c", 1, "SHART", 0, 1], "SYNTAX .*did you mean SHARD"),
        (["TAKE", "TUBE", "c", 1, "TOKEN", -1], "RANGE"),
        (["READ", "nobody", 1], "CLAIMGONE"),
        (["ACK", "nobody", 1], "RANGE"),
        (["INFO"], "ERR wrong number"),
    ],
)
def test_bad_words_are_refused(wire: Wire, words: list[Any], code: str) -> None:
    wire.call("TUBE", "CREATE", "claims")
    with pytest.raises(Refusal, match=f"^{code}"):
        wire.call("CLAIM", *["claims" if word == "TUBE" else word for word in words])


def test_a_claim_with_size_returns_the_size_for_readers_of_shards(wire: Wire, queue: bytes) -> None:
    for body in (b"a", b"bcd"):
        wire.add(queue, body)
    assert [wire.call("CLAIM", "TAKE", queue, queue, 1, "SIZE") for _ in range(2)] == [[2, 4], [2, 4]]
    assert wire.call("CLAIM", "TAKE", queue, queue, 2, "SIZE") is None


def test_packed_jobs_equal_the_jobs_in_maps(wire: Wire, queue: bytes) -> None:
    wire.call("TUBE", "CREATE", queue, "TYPE", "utube", "KEY-LIMIT", 1000)
    for number in range(300):
        wire.call("PUT", queue, "x" * number, *(("KEY", f"k{number}") if number % 2 else ()))
    told = [pairs(job) for job in wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 1000)]
    groups = wire.call("CLAIM", "READ", queue, 1, "PACKED")
    assert len(groups) > 1
    assert [job for group in groups for job in unpacked(group)] == [
        (job[b"id"], job[b"tube"], job[b"body"], job[b"key"], job[b"number"], job[b"created"]) for job in told
    ]
    _, [group] = wire.call("JOB", "SCAN", 0, "TUBE", queue, "PACKED", "NOBODIES", "COUNT", 1000)
    assert [(job[0], job[2]) for job in unpacked(group)] == [(job[b"id"], None) for job in told]


def unpacked(group: list[bytes]) -> list[tuple[bytes, bytes | None, bytes | None, bytes | None, int, int]]:
    """Return the jobs of a group, in the format of docs/reference/native.md."""
    ids, tube_ends, tubes, states, _, _, numbers, created, _, _, *var = group
    count = len(states)

    def values(there: bytes, ends: bytes, data: bytes) -> list[bytes | None]:
        at = struct.unpack(f"<{count + 1}i", ends)
        return [data[at[n] : at[n + 1]] if there[n] else None for n in range(count)]

    return list(
        zip(
            [ids[at : at + 40] for at in range(0, 40 * count, 40)],
            values(b"\1" * count, tube_ends, tubes),
            values(var[0], var[1], var[2]),
            values(var[3], var[4], var[5]),
            struct.unpack(f"<{count}q", numbers),
            struct.unpack(f"<{count}q", created),
            strict=True,
        )
    )


def test_verdicts_survive_a_crash_and_are_executed_with_the_ack(start: Callable[..., Server]) -> None:
    server = start()
    wire = server.connect()
    wire.call("TUBE", "CREATE", "t", "TYPE", "fifottl")
    wire.call("TUBE", "CREATE", "other", "TYPE", "fifottl")
    fill(wire, b"t", 6)
    ids = [pairs(job)[b"id"] for job in wire.call("CLAIM", "TAKE", "t", "c", 1, "COUNT", 6, "TOKEN", 1, "LEASE", "1h")]
    words = ["JOB", ids[1], "nack", "REASON", "again", "JOB", ids[2], "BURY", "REASON", "cannot be parsed"]
    words += ["JOB", ids[3], "move", "TUBE", "other", "DELAY", "1h", "JOB", ids[4], "bury", "JOB", ids[5], "ack"]
    assert wire.call("CLAIM", "VERDICT", "c", 1, "TOKEN", 1, *words) == 5
    assert wire.call("CLAIM", "VERDICT", "c", 1, "TOKEN", 1, "JOB", ids[4], "ack") == 1
    server.kill()
    server = start()
    wire = server.connect()
    assert [pairs(job)[b"id"] for job in wire.call("CLAIM", "READ", "c", 1)] == ids
    assert wire.call("CLAIM", "ACK", "c", 1, "TOKEN", 1) == 6
    server.kill()
    wire = start().connect()
    stats = pairs(wire.call("TUBE", "STATS", "t"))
    assert (stats[b"ready"], stats[b"buried"], stats[b"taken"]) == (1, 1, 0)
    assert pairs(wire.call("TUBE", "STATS", "other"))[b"delayed"] == 1
    assert bodies(wire.call("TAKE", "t", "COUNT", 9)) == [b"1"]
    assert pairs(wire.call("JOB", "META", ids[2]))[b"reason"] == b"cannot be parsed"


def test_a_driver_that_processes_a_claim_again_clears_its_verdicts(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 2)
    ids = [pairs(job)[b"id"] for job in wire.call("CLAIM", "TAKE", queue, queue, 1, "TOKEN", 1)]
    assert wire.call("CLAIM", "VERDICT", queue, 1, "TOKEN", 1, "JOB", ids[0], "bury", "JOB", ids[1], "nack") == 2
    assert [wire.call("CLAIM", "VERDICT", queue, 1, "TOKEN", 2, "CLEAR") for _ in range(2)] == [2, 0]
    with pytest.raises(Refusal, match=r"^FENCED "):
        wire.call("CLAIM", "VERDICT", queue, 1, "TOKEN", 1, "JOB", ids[0], "bury")
    assert wire.call("CLAIM", "ACK", queue, 1, "TOKEN", 2) == 2
    assert pairs(wire.call("TUBE", "STATS", queue))[b"buried"] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["JOB", "{id}", "eat"], "RANGE a verdict is one of ack, nack, bury, move, not eat"),
        (["JOB", "{id}", "move"], "SYNTAX a move needs a TUBE, and other verdicts have none"),
        (["JOB", "{id}", "nack", "TUBE", "t"], "SYNTAX a move needs a TUBE, and other verdicts have none"),
        (["JOB", "{id}", "bury", "DELAY", "1s"], "SYNTAX only a nack or a move can have a DELAY"),
        (["JOB", "{id}", "move", "TUBE", "nowhere"], "NOTUBE "),
        (["JOB", "{id}"], "SYNTAX "),
        (["JOB", "D-00000000-000000000000000000000000-0000", "nack"], "(BADID|NOJOB) "),
        (["CLEAR", "JOB"], "SYNTAX "),
        (["{id}", "nack"], "SYNTAX "),
        (["TOKEN", "0"], "SYNTAX CLAIM VERDICT needs CLEAR, or JOB with an id and a verdict"),
        (["JOB", "{id}", "nack", "COLOUR", "red"], "SYNTAX "),
    ],
)
def test_verdicts_that_make_no_sense_are_refused(wire: Wire, queue: bytes, words: list[str], sentence: str) -> None:
    fill(wire, queue, 1)
    (job,) = wire.call("CLAIM", "TAKE", queue, queue, 1)
    id = pairs(job)[b"id"].decode()
    with pytest.raises(Refusal, match=rf"^{sentence}"):
        wire.call("CLAIM", "VERDICT", queue, 1, *(word.replace("{id}", id) for word in words))
    with pytest.raises(Refusal, match=r"^CLAIMGONE "):
        wire.call("CLAIM", "VERDICT", queue, 2, "JOB", id, "nack")
    assert wire.call("CLAIM", "ACK", queue, 1) == 1
    assert pairs(wire.call("TUBE", "STATS", queue))[b"ready"] == 0


def test_the_claim_of_a_job_can_be_found(wire: Wire, queue: bytes) -> None:
    fill(wire, queue, 2)
    [claimed] = wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 1, "TOKEN", 3)
    [taken] = wire.call("TAKE", queue)
    ids = [pairs(job)[b"id"] for job in (claimed, taken)]
    assert wire.call("CLAIM", "FIND", *ids) == [[queue, 1, 3], None]
    wire.call("CLAIM", "ACK", queue, 1, "TOKEN", 3)
    assert wire.call("CLAIM", "FIND", ids[0]) == [None]
