"""Native commands about tubes, and a check that every method of the embedded queue has a RESP command."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import pytest

from penstock import AsyncQueue, Queue
from penstock.core.job import Draft
from penstock.core.limits import NEVER
from penstock.core.policy import DISQUE, FIFOTTL, PRESETS, UTUBE, TubePolicy
from penstock.dialects.native import tube_commands
from penstock.dialects.native.arguments import PUT_OPTIONS
from penstock.embedded import Job, Tube
from penstock.node.caller import SLICE
from penstock.options import PutOptions, TubeOptions, policy_from

from .command_engine import NOW, CommandEngine


def test_a_tube_is_made_found_or_refused(shop: CommandEngine) -> None:
    told = shop.call("TUBE", "CREATE", "t", "TYPE", "utube", "KEY-LIMIT", 3, "FAIR", "yes")
    assert (told["name"], told["type"], told["policy"]["key_limit"], told["policy"]["key_order"]) == (
        *(b"t", b"utube", 3, b"fair"),
    )
    assert (told["paused-in"], told["paused-out"], told["jobs"], told["body-bytes"]) == (0, 0, 0, 0)
    assert shop.call("TUBE", "CREATE", "t") == told == shop.call("TUBE", "INFO", "t")
    assert shop.call("tube", "create", "t", "type", "utube", "fair", "YES", "key-limit", 3) == told
    assert shop.call("TUBE", "CREATE", "t", "TYPE", "utube").startswith("TUBEEXISTS ")
    assert shop.call("TUBE", "CREATE", "plain")["policy"]["type"] == b"fifottl"


REFUSED = {
    "an unknown type": (["TYPE", "lifo"], "NOTYPE "),
    "an unknown option": (["TIMEOUT", 5], "SYNTAX TUBE has no option TIMEOUT"),
    "an option that its type does not support": (["TYPE", "fifo", "TTL", "5s"], "UNSUPPORTED "),
    "neither yes nor no": (["KEEP", "maybe"], "WRONGTYPE KEEP must be yes or no, not maybe"),
    "an invalid number": (["CAPACITY", "many"], "WRONGTYPE CAPACITY must be a whole number, not many"),
    "a number that is too small": (["CAPACITY", "-1"], "RANGE capacity must be 0 to "),
    "contradicting options": (["RETRY", "3x", "MAX-DELIVERIES", 3], "UNSUPPORTED give retry or max_deliveries"),
    "a dead letter without a limit of deliveries": (
        ["DEAD-LETTER", "dead"],
        "UNSUPPORTED dead_letter goes with max_deliveries",
    ),
    "invalid JSON": (["POLICY", "fifo"], "WRONGTYPE a policy is not JSON"),
    "long JSON": (["POLICY", " " * (1 << 20) + "1"], "WRONGTYPE a policy may have up to 1048576 bytes"),
    "JSON that is not an object": (["POLICY", "[]"], "WRONGTYPE a policy is an object of "),
    "an object without a type": (["POLICY", "{}"], "WRONGTYPE a policy is an object of "),
    "an unknown field": (["POLICY", '{"type":"x","color":1}'], "UNSUPPORTED a policy has no field 'color'"),
    "a field of another type": (
        ["POLICY", '{"type":"x","has_ttl":1}'],
        "WRONGTYPE the field has_ttl of a policy must be ",
    ),
    "a boolean for a number": (["POLICY", '{"type":"x","capacity":true}'], "WRONGTYPE the field capacity of "),
    "a driver in a policy": (["POLICY", '{"type":"x","driven":true}'], "UNSUPPORTED POLICY cannot set a driver"),
    "an empty type": (["POLICY", '{"type":""}'], "WRONGTYPE the type of a tube must be a non-empty text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_tube_that_is_refused_is_not_made(shop: CommandEngine, case: str) -> None:
    words, told = REFUSED[case]
    assert shop.call("TUBE", "CREATE", "t", *words).startswith(told)
    assert shop.log.tube_changes == []
    assert shop.call("TUBE", "CREATE", "").startswith("BADNAME ")


def fields(told: dict[str, Any]) -> dict[str, Any]:
    """Return the policy in a TUBE INFO reply in a form that JSON can represent."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(TubePolicy)}
    found: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, list):
            value = [each.decode() for each in value]
        found[name] = value.decode() if isinstance(value, bytes) else bool(value) if kinds[name] is bool else value
    return found


OWN = dataclasses.replace(UTUBE, type="own", key_stats=("a", "b"), default_ttr_ms=NEVER, has_ttr=True, retry="3x")


@pytest.mark.parametrize("policy", [*PRESETS.values(), OWN], ids=lambda policy: policy.type)
def test_a_policy_is_returned_as_it_was_set(shop: CommandEngine, policy: TubePolicy) -> None:
    sent = {name: None if value == NEVER else value for name, value in dataclasses.asdict(policy).items()}
    told = shop.call("TUBE", "CREATE", "t", "POLICY", json.dumps(sent))
    assert shop.engine.tube(b"t").policy == policy
    assert policy_from(fields(told["policy"])) == policy


def test_a_tube_is_altered_while_it_runs(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    told = shop.call("TUBE", "ALTER", "t", "TTL", "1d", "CAPACITY", 5, "MAX-DELIVERIES", 3, "DEAD-LETTER", "dead")[
        "policy"
    ]
    assert (told["default_ttl_ms"], told["capacity"], told["retry"]) == (86_400_000, 5, b"3x then move dead")
    assert shop.call("TUBE", "ALTER", "t", "TTL", "forever")["policy"]["default_ttl_ms"] is None
    assert shop.call("TUBE", "ALTER", "t", "TEMPORARY", "yes").startswith("UNSUPPORTED ")
    assert shop.call("TUBE", "ALTER", "t", "KEYLIMIT", 3).startswith(
        "SYNTAX TUBE has no option KEYLIMIT; did you mean KEY-"
    )
    assert shop.call("TUBE", "ALTER", "missing", "TTL", 1).startswith("NOTUBE ")


def test_tube_stats_describe_the_tube(shop: CommandEngine) -> None:
    shop.engine.create_tube(b"t", UTUBE, NOW)
    shop.call("MPUT", "t", "JOB", "a", "KEY", "a", "JOB", "b", "KEY", "b", "JOB", "c", "KEY", "b")
    shop.pass_ms(250)
    shop.call("BURY", shop.call("TAKE", "t")[0]["id"])
    shop.ask(b"TAKE", b"t", b"KEY", b"other", b"TIMEOUT", b"9s", caller=shop.another())
    told = shop.call("TUBE", "STATS", "t")
    assert (told["ready"], told["taken"], told["buried"], told["oldest-ms"]) == (2, 0, 1, 250)
    assert (told["waiting"], told["keys"]) == (1, 2)
    assert told["events"] == {"put": 3, "taken": 1, "buried": 1}
    assert told["transitions"] == {"gone-ready": 3, "ready-taken": 1, "taken-buried": 1}
    # One wait of 250 ms, which is from 128 to below 256 ms.
    assert told["waits"] == {"total-ms": 250, "buckets": [0] * 8 + [1]}
    assert told["runs"] == {"total-ms": 0, "buckets": []}
    (scanned,) = shop.call("TUBE", "SCAN", 0)[1]
    counts = ("events", "transitions", "waits", "runs")
    assert scanned == {name: value for name, value in told.items() if name not in counts}
    (scanned,) = shop.call("TUBE", "SCAN", 0, "FLOW")[1]
    assert scanned["flow"] == {"entered": 3, "taken": 1, "acked": 0, "failed": 1}
    assert shop.call("TUBE", "STATS", "missing").startswith("NOTUBE ")


@pytest.mark.parametrize(("word", "inward", "outward"), [("in", 1, 0), ("OUT", 0, 1), ("all", 1, 1), ("none", 0, 0)])
def test_a_tube_is_paused_and_resumed(shop: CommandEngine, word: str, inward: int, outward: int) -> None:
    shop.call("PUT", "t", "x")
    assert shop.call("TUBE", "PAUSE", "t", word) == b"OK"
    told = shop.call("TUBE", "INFO", "t")
    assert (told["paused-in"], told["paused-out"]) == (inward, outward)
    assert str(shop.call("PUT", "t", "x")).startswith("PAUSED ") == bool(inward)
    assert len(shop.call("TAKE", "t")) == 1 - outward
    assert shop.call("TUBE", "PAUSE", "t", "both").startswith("SYNTAX ")
    assert shop.call("TUBE", "PAUSE", "missing", "in").startswith("NOTUBE ")


def test_emptying_a_large_tube_does_not_block_other_clients(shop: CommandEngine) -> None:
    for name in (b"truncated", b"dropped"):
        tube = shop.engine.create_tube(name, DISQUE, NOW)
        for _ in range(2 * SLICE + 1):
            shop.engine.put(tube, Draft(b"x"), NOW)
    assert shop.call("TUBE", "TRUNCATE", "truncated") == 2 * SLICE + 1
    assert shop.call("TUBE", "DROP", "dropped") == b"OK"
    assert shop.slices >= 4
    assert shop.call("TUBE", "LIST") == [b"truncated"]
    assert shop.call("TUBE", "TRUNCATE", "truncated") == 0
    assert shop.call("TUBE", "DROP", "dropped").startswith("NOTUBE ")


def test_a_tube_in_use_is_not_dropped(shop: CommandEngine) -> None:
    shop.call("MPUT", "t", "JOB", "a", "JOB", "b")
    shop.call("TAKE", "t")
    assert shop.call("TUBE", "DROP", "t").startswith("TUBETAKEN ")
    assert shop.engine.tube(b"t").total() == 2
    shop.call("TUBE", "CREATE", "empty")
    shop.ask(b"TAKE", b"empty", b"TIMEOUT", b"9s", caller=shop.another())
    assert shop.call("TUBE", "DROP", "empty").startswith("TUBEAWAITED ")


def test_all_taken_jobs_are_released_in_slices(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(b"t", FIFOTTL, NOW)
    for _ in range(2 * SLICE + 7):
        shop.engine.put(tube, Draft(b"x"), NOW)
        shop.engine.take(shop.caller.connection.session, tube, NOW)
    assert shop.call("TUBE", "RELEASE", "t") == 2 * SLICE + 7
    assert shop.slices == 2 and not len(tube.taken)
    assert shop.call("TUBE", "RELEASE", "t") == 0


def test_tubes_are_listed_and_scanned_whole(shop: CommandEngine) -> None:
    names = [b"tube %04d" % number for number in range(600)]
    for name in reversed(names):
        shop.engine.create_tube(name, FIFOTTL, NOW)
    assert shop.call("TUBE", "LIST") == names[::-1]

    def scan(*words: Any) -> list[bytes]:
        cursor, found = b"0", []
        while True:
            cursor, page = shop.call("TUBE", "SCAN", cursor, *words)
            found += [tube["name"] for tube in page]
            if cursor == b"0":
                return found

    assert scan() == names[::-1]
    assert scan("COUNT", 7, "MATCH", "*1?3") == [
        name for name in names[::-1] if name[-3:-2] == b"1" and name[-1:] == b"3"
    ]
    assert shop.call("TUBE", "SCAN", 0, "MATCH", "x" * 257).startswith("RANGE a pattern must ")
    assert shop.call("TUBE", "SCAN", "x").startswith("RANGE a cursor must be 0 or ")


def test_a_scan_returns_the_policies_of_all_tubes_in_pages(shop: CommandEngine) -> None:
    """A page has few different policies, because each takes time to write."""
    policies = [FIFOTTL, UTUBE, DISQUE, *(dataclasses.replace(FIFOTTL, capacity=number) for number in range(1, 250))]
    for number in range(600):
        shop.engine.create_tube(b"tube %04d" % number, policies[number % len(policies)], NOW)
    cursor, found, pages = b"0", [], 0
    while pages == 0 or cursor != b"0":
        cursor, page = shop.call("TUBE", "SCAN", cursor, "COUNT", 1000, "POLICY")
        found += page
        pages += 1
        assert len({str(tube["policy"]) for tube in page}) <= 100
    assert pages == 6
    assert found == [shop.call("TUBE", "INFO", b"tube %04d" % number) for number in range(600)]
    one = dataclasses.replace(FIFOTTL, notes="x" * 5_000)
    for number in range(400):
        shop.engine.create_tube(b"long %04d" % number, one, NOW)
    cursor, page = shop.call("TUBE", "SCAN", 0, "COUNT", 1000, "POLICY", "MATCH", "long*")
    assert cursor != b"0" and 150 < len(page) < 200, "the reply is at most a megabyte long"
    assert shop.call("TUBE", "SCAN", 0, "POLICIES").startswith(
        "SYNTAX TUBE has no option POLICIES; did you mean POLICY"
    )


def test_an_expensive_pattern_ends_its_page_early(shop: CommandEngine) -> None:
    for number in range(3):
        shop.engine.create_tube(b"a" * 65_000 + b"%d" % number, FIFOTTL, NOW)
    cursor, page = shop.call("TUBE", "SCAN", 0, "MATCH", "*a" * 20)
    assert cursor != b"0" and page == []


# ---- The embedded API over RESP --------------------------------------------------------------------------------------

# The command for each public method of the embedded queue.
COMMANDS = {
    Queue: {
        "session": "a connection of its own",
        "token": "IDENTIFY",
        "identify": "IDENTIFY",
        "tube": "TUBE CREATE",
        "tubes": "TUBE LIST",
        "stats": "TUBE SCAN",
        "job": "JOB PEEK",
        "take": "TAKE",
        "ack": "ACK",
        "sessions": "SESSION SCAN",
        "session_events": "SESSION EVENTS",
        "create_batch": "BATCH CREATE",
        "seal_batch": "BATCH SEAL",
        "batch_info": "BATCH INFO",
        "subscribe": "JOURNAL EVENTS",
        "digests": "JOURNAL DIGEST",
        "events": "JOURNAL EVENTS",
        "history": "JOB HISTORY",
        "checkpoint": "BGREWRITEAOF",
        "read_claim": "CLAIM READ",
        "ack_claims": "CLAIM ACK",
        "renew_claims": "CLAIM RENEW",
        "release_claims": "CLAIM RELEASE",
        "claim_info": "CLAIM INFO",
        "stage": "STAGE",
        "publish": "PUBLISH",
        "discard": "DISCARD",
        "close": "closing the connection",
        "find_tube": "TUBE INFO",
        "overview": "TUBE SCAN",
        "scan": "JOB SCAN",
    },
    Tube: {
        "name": "TUBE INFO",
        "info": "TUBE STATS",
        "type": "TUBE INFO",
        "policy": "TUBE INFO",
        "put": "PUT",
        "put_many": "MPUT",
        "take": "TAKE",
        "take_many": "TAKE",
        "take_each": "TAKE",
        "job": "JOB PEEK",
        "named": "JOB NAMED",
        "jobs": "JOB LIST",
        "kick": "KICK",
        "release_all": "TUBE RELEASE",
        "pause": "TUBE PAUSE",
        "alter": "TUBE ALTER",
        "truncate": "TUBE TRUNCATE",
        "drop": "TUBE DROP",
        "stats": "TUBE STATS",
        "events": "TUBE STATS",
        "transitions": "TUBE STATS",
        "durations": "TUBE STATS",
        "keys": "TUBE KEYS",
        "causes": "TUBE CAUSES",
        "subscribe": "JOURNAL EVENTS",
        "claim": "CLAIM TAKE",
    },
    Job: {
        "id": "JOB PEEK",
        "tube": "JOB PEEK",
        "state": "JOB PEEK",
        "deliveries": "JOB PEEK",
        "nacks": "JOB PEEK",
        "body": "JOB PEEK",
        "headers": "JOB PEEK",
        "ack": "ACK",
        "done": "JOB DONE",
        "release": "RELEASE",
        "requeue": "REQUEUE",
        "nack": "JOB NACK",
        "bury": "BURY",
        "touch": "JOB TOUCH",
        "dig": "DIG",
        "delete": "JOB DELETE",
        "snatch": "JOB SNATCH",
        "restart": "JOB RESTART",
        "switch": "JOB SWITCH",
        "move": "JOB MOVE",
        "wait": "JOB WAIT",
        "history": "JOB HISTORY",
        "meta": "JOB META",
        "set_priority": "JOB PRIORITY",
        "run_now": "JOB RUN",
        "edit": "JOB EDIT",
        "cancel": "JOB CANCEL",
        "report": "JOB PROGRESS",
        "watch": "JOB WATCH",
    },
}
# Commands of claims, stages and batches are in another table, and BGREWRITEAOF is Disque's.
ELSEWHERE = ("CLAIM ", "BATCH ", "JOURNAL ", "STAGE", "PUBLISH", "DISCARD", "BGREWRITEAOF")


@pytest.mark.parametrize("face", COMMANDS, ids=lambda face: face.__name__)
def test_every_method_of_the_embedded_queue_has_its_command(shop: CommandEngine, face: type) -> None:
    public = {name for name, _ in inspect.getmembers_static(face) if not name.startswith("_")}
    assert public == set(COMMANDS[face])
    named = {name.decode().upper() for name in shop.dispatcher.commands}
    for family in ("TUBE", "JOB", "SESSION"):
        words = shop.dispatcher.commands[family.lower().encode()].grammar.split(" | ")
        named |= {f"{family} {word}" for word in words}
    wanted = {command for command in COMMANDS[face].values() if command.isupper()}
    assert {command for command in wanted if not command.startswith(ELSEWHERE)} <= named


def test_every_option_of_a_put_has_its_word() -> None:
    # A command has the word HEADER for each of the headers.
    options = {option.upper() for option in PutOptions.__annotations__}
    assert options - {"HEADERS"} | {"AS", "HEADER"} == set(PUT_OPTIONS)


def test_every_option_of_a_tube_has_its_word() -> None:
    assert {name for name, _ in tube_commands._OPTIONS.values()} == set(TubeOptions.__annotations__)
    assert all(word.decode() == name.upper().replace("_", "-") for word, (name, _) in tube_commands._OPTIONS.items())


def test_identify_has_the_same_result_embedded_and_over_resp() -> None:
    assert (
        inspect.signature(Queue.identify).parameters.keys() == inspect.signature(AsyncQueue.identify).parameters.keys()
    )
