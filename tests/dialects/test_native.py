"""Native commands about jobs: their replies, and that a refused command changes nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from penstock.core.job import Draft
from penstock.core.limits import JOB_MEMORY_BYTES, TUBE_MEMORY_BYTES
from penstock.core.policy import DEFAULT, DISQUE, FIFO, FIFOTTL, STUBE, UTUBE, UTUBETTL, XQUEUE
from penstock.node.caller import SLICE

from .command_engine import NOW, CommandEngine, decoded

NOT_THERE = "D-01234567-AAAAAAAAAAAAAAAAAAAAAAAA-0001"


def bodies(jobs: list[dict[str, Any]]) -> list[bytes]:
    return [job["body"] for job in jobs]


# ---- Putting ---------------------------------------------------------------------------------------------------------


def test_a_put_makes_its_tube_and_answers_the_id(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "body")
    assert len(id) == 40
    assert shop.engine.tube(b"t").policy == DEFAULT
    assert shop.call("JOB", "PEEK", id) == {
        "id": id,
        "tube": b"t",
        "body": b"body",
        "as": b"bytes",
        "number": 0,
        "key": None,
        "deliveries": 0,
        "nacks": 0,
        "once": 0,
        "created": NOW,
        "state": b"ready",
    }


def test_every_option_of_a_put_reaches_its_job(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t", "TYPE", "utubettl")
    options = ["delay", "1.5", "ttl", "2h", "ttr", "250ms", "priority", "-7", "key", "k", "retry"]
    id = shop.call("PUT", "t", "[1]", *options, "3x then drop", "NAME", "n", "UNIQUE", "u", "DEDUP", "d", "AS", "json")
    told = shop.call("JOB", "META", id)
    assert told["wakes"] == NOW + 1_500 and told["expires"] == NOW + 7_200_000 + 1_500 and told["ttr"] == 250
    assert (told["priority"], told["key"], told["retry"], told["name"]) == (-7, b"k", b"3x then drop", b"n")
    assert shop.call("JOB", "PEEK", id)["as"] == b"json"
    assert shop.call("PUT", "t", "other", "UNIQUE", "u") == id
    assert shop.call("PUT", "t", "other", "DEDUP", "d") == id
    assert shop.call("PUT", "t", "other", "NAME", "n").startswith("NAMETAKEN ")
    first = shop.call("PUT", "t", "x", "URGENT")
    assert shop.call("JOB", "META", first)["served_as"] < -(1 << 53)


def test_once_is_refused_in_tubes_without_at_most_once_delivery(shop: CommandEngine) -> None:
    shop.engine.create_tube(b"d", DISQUE, NOW)
    id = shop.call("PUT", "d", "x", "ONCE")
    assert shop.call("JOB", "PEEK", id)["once"] == 1
    assert shop.call("PUT", "t", "x", "ONCE").startswith("UNSUPPORTED ")


REFUSED = {
    "an unknown option": (["x", "TTLL", "5"], "SYNTAX PUT has no option TTLL; did you mean TTL?"),
    "an option unlike any other": (["x", "@#!"], "SYNTAX PUT has no option @#!; its options are DELAY, "),
    "an option without a value": (["x", "TTL"], "SYNTAX TTL must be followed by a value"),
    "an invalid time": (["x", "TTL", "soon"], "RANGE TTL must be a time like "),
    "a time that is too long": (["x", "TTL", "9" * 15], "RANGE TTL must be a time like "),
    "an unlimited delay": (["x", "DELAY", "forever"], "RANGE delay must be 0 to "),
    "a ttr of zero": (["x", "TTR", "0"], "RANGE ttr must be more than 0 "),
    "an invalid number": (["x", "PRIORITY", "high"], "WRONGTYPE PRIORITY must be a whole number, not high"),
    "a number beyond all limits": (["x", "PRIORITY", "9" * 18], "RANGE a priority must be between "),
    "an invalid retry policy": (["x", "RETRY", "often"], "BADRETRY retry policy 'often': at character 1"),
    "a retry policy that is not UTF-8": (["x", "RETRY", b"\xff"], "WRONGTYPE RETRY must be text in UTF-8"),
    "an empty name": (["x", "NAME", ""], "BADNAME a job's name must have 1 "),
    "an unknown kind": (["x", "AS", "xml"], "RANGE AS must be bytes, text, json or msgpack, not xml"),
    "invalid UTF-8": ([b"\xff", "AS", "text"], "WRONGTYPE a body that is put AS text must be text in UTF-8"),
    "invalid JSON": (["{", "AS", "json"], "WRONGTYPE a body that is put AS json is not JSON: "),
    "NaN in JSON": (["[NaN]", "AS", "json"], "WRONGTYPE a body that is put AS json is not JSON: NaN"),
    "deeply nested JSON": (["[" * 100_000, "AS", "json"], "WRONGTYPE a body that is put AS json is not JSON: "),
    "an option that the tube does not support": (["x", "KEY", "k"], "UNSUPPORTED a fifottl tube has no key"),
    "a body that is too long": (["x" * 101], "TOOBIG the body has 101 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_put_that_is_refused_makes_no_tube_and_no_job(shop: CommandEngine, case: str) -> None:
    words, told = REFUSED[case]
    shop.engine.body_bytes_max = 100 if "too long" in case else 1 << 20
    assert shop.call("PUT", "t", *words).startswith(told)
    assert shop.call("MPUT", "t", "JOB", "first", "JOB", *words).startswith(told.replace("PUT has", "MPUT has"))
    assert shop.log.tube_changes == [] and shop.engine.jobs.count == 0


def test_many_jobs_are_put_with_options_for_all_and_their_own(shop: CommandEngine) -> None:
    ids = shop.call("MPUT", "t", "PRIORITY", 5, "AS", "text", "JOB", "a", "JOB", "b", "PRIORITY", 1, "JOB", "JOB")
    assert len(set(ids)) == 3
    jobs = shop.call("TAKE", "t", "COUNT", 5)
    assert bodies(jobs) == [b"b", b"a", b"JOB"]
    assert {job["as"] for job in jobs} == {b"text"}
    assert shop.call("MPUT", "t", "TTL", 5).startswith("SYNTAX the command has no job")
    assert shop.call("MPUT", "t", "TTL", 5, "JOB").startswith("SYNTAX JOB must be followed by a value")


def test_mput_puts_all_jobs_or_none(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t", "CAPACITY", 2)
    shop.call("PUT", "t", "there")
    assert shop.call("MPUT", "t", "JOB", "a", "JOB", "b").startswith("FULL ")
    assert shop.call("MPUT", "t", "JOB", "a", "NAME", "n", "JOB", "b", "NAME", "n").startswith("RANGE two jobs ")
    assert shop.engine.tube(b"t").total() == 1
    assert shop.call("MPUT", "new", "JOB", "a", "NAME", "n", "JOB", "b", "NAME", "n").startswith("RANGE two jobs ")
    assert shop.log.tube_changes == [b"+t"]


@pytest.mark.parametrize("command", [["PUT", "t", "x" * 100], ["MPUT", "t", "JOB", "x" * 50, "JOB", "x" * 50]])
@pytest.mark.parametrize("there", [False, True])
def test_puts_beyond_memory_or_disk_are_refused_before_anything_is_done(
    shop: CommandEngine, command: list[str], there: bool
) -> None:
    if there:
        shop.call("TUBE", "CREATE", "t")
    jobs = command.count("JOB") or 1
    shop.engine.memory_max = TUBE_MEMORY_BYTES + 1 + jobs * JOB_MEMORY_BYTES + 99
    assert shop.call(*command).startswith("OOM ")
    shop.engine.memory_max += 1
    shop.engine.room_bytes = 99
    assert shop.call(*command).startswith("NOSPACE ")
    assert shop.asked_for > 99
    assert shop.log.tube_changes == [b"+t"] * there and shop.engine.jobs.count == 0
    shop.engine.room_bytes = 10_000
    assert not isinstance(shop.call(*command), str)


def test_a_put_waits_for_room_and_is_answered_when_there_is(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t", "CAPACITY", 1)
    shop.call("PUT", "t", "first")
    patient, hasty = shop.another(), shop.another()
    shop.ask(b"PUT", b"t", b"second", b"TIMEOUT", b"10s", caller=patient)
    shop.ask(b"PUT", b"t", b"third", b"TIMEOUT", b"5s", caller=hasty)
    assert shop.reply_of(patient) is None
    shop.pass_ms(5_000)
    assert shop.reply_of(hasty).startswith("FULL ")
    shop.call("ACK", shop.call("TAKE", "t")[0]["id"])
    assert shop.call("JOB", "PEEK", shop.reply_of(patient))["body"] == b"second"


def test_waiting_puts_count_as_used_memory(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t", "CAPACITY", 1)
    shop.call("PUT", "t", "")
    shop.engine.memory_max = shop.engine.memory_used() + 2 * JOB_MEMORY_BYTES + 1_000
    callers = [shop.another() for _ in range(3)]
    for caller in callers:
        shop.ask(b"PUT", b"t", b"x" * 500, b"TIMEOUT", b"1h", caller=caller)
    assert [shop.reply_of(caller) for caller in callers[:2]] == [None, None]
    assert shop.ask(b"PUT", b"t", b"x" * 500, b"TIMEOUT", b"1h").startswith(b"-OOM ")
    shop.engine.disconnect(callers[1].connection, NOW)
    shop.call("TUBE", "TRUNCATE", "t")
    assert len(shop.reply_of(callers[0])) == 40 and shop.engine.waiting_bytes == 0


def test_a_leaving_node_accepts_no_jobs(shop: CommandEngine) -> None:
    shop.call("PUT", "t", "x")
    shop.context.leaving = True
    assert shop.call("PUT", "t", "x").startswith("LEAVING ")
    assert shop.call("MPUT", "t", "JOB", "x").startswith("LEAVING ")
    assert len(shop.call("TAKE", "t")) == 1
    assert shop.call("TAKE", "t", "TIMEOUT", 1).startswith("LEAVING ")


# ---- Taking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [("KEY", "k"), ("TTR", "1s")])
def test_a_take_from_several_tubes_takes_nothing_if_one_of_them_refuses(
    shop: CommandEngine, option: tuple[str, str]
) -> None:
    keyed = shop.engine.create_tube(b"keyed", UTUBETTL, NOW)
    shop.engine.create_tube(b"plain", FIFO, NOW)
    shop.call("PUT", "keyed", "x", "KEY", "k")
    assert shop.call("TAKE", "keyed", "COUNT", 2, *option, "AND", "plain").startswith("UNSUPPORTED ")
    assert len(keyed.taken) == 0


@pytest.mark.parametrize("take", ["GETJOB NOHANG COUNT 5 FROM queue", "TAKE queue COUNT 5"])
def test_a_take_of_many_returns_as_many_jobs_as_the_disk_has_room_for(shop: CommandEngine, take: str) -> None:
    tube = shop.engine.create_tube(b"queue", DISQUE, NOW)
    shop.engine.put_many(tube, [Draft(b"x", once=True)] * 5, NOW)
    shop.engine.moves_left = 2
    assert len(shop.call(*take.split())) == len(tube.taken) == 2
    assert shop.call(*take.split()).startswith("NOSPACE ")


def test_a_take_answers_jobs_or_an_empty_array(shop: CommandEngine) -> None:
    assert shop.call("TAKE", "t").startswith("NOTUBE ")
    shop.call("TUBE", "CREATE", "t")
    assert shop.call("TAKE", "t") == []
    shop.call("MPUT", "t", "JOB", "a", "JOB", "b", "JOB", "c")
    (job,) = shop.call("TAKE", "t")
    assert (job["body"], job["deliveries"], job["number"]) == (b"a", 1, 0)
    assert bodies(shop.call("TAKE", "t", "COUNT", 9)) == [b"b", b"c"]


def test_a_take_of_several_tubes_serves_them_in_turn(shop: CommandEngine) -> None:
    shop.call("MPUT", "a", "JOB", "a1", "JOB", "a2")
    shop.call("MPUT", "b", "JOB", "b1", "JOB", "b2")
    assert bodies(shop.call("TAKE", "a", "COUNT", 3, "AND", "b")) == [b"a1", b"b1", b"a2"]
    assert shop.call("TAKE", "a", "AND", "b", "missing").startswith("NOTUBE ")
    assert shop.call("TAKE", "a", "AND").startswith("SYNTAX AND must be followed by a value")


def test_a_take_names_a_key_and_a_time_to_run(shop: CommandEngine) -> None:
    shop.engine.create_tube(b"s", STUBE, NOW)
    shop.call("PUT", "s", "x", "KEY", "k")
    assert shop.call("TAKE", "s") == []
    assert shop.call("TAKE", "s", "KEY", "k")[0]["key"] == b"k"
    shop.call("PUT", "t", "x")
    (job,) = shop.call("TAKE", "t", "TTR", "2s")
    shop.pass_ms(2_000)
    assert shop.call("ACK", job["id"]).startswith("NOTTAKEN ")
    assert shop.call("TAKE", "t", "TTR", 0).startswith("RANGE ")
    assert shop.call("TAKE", "t", "COUNT", 0).startswith("RANGE COUNT must be 1 ")
    assert shop.call("TAKE", "t", "KEYS", "k") == "SYNTAX TAKE has no option KEYS; did you mean KEY?"


def test_a_waiting_take_gets_a_job_or_an_empty_reply_at_its_timeout(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    patient, hasty = shop.another(), shop.another()
    patient.reply.resp3 = True
    shop.ask(b"TAKE", b"t", b"TIMEOUT", b"forever", b"COUNT", b"2", caller=patient)
    shop.ask(b"TAKE", b"t", b"TIMEOUT", b"50ms", caller=hasty)
    shop.pass_ms(50)
    assert shop.reply_of(hasty) == [] and shop.reply_of(patient) is None
    shop.call("MPUT", "t", "JOB", "a", "JOB", "b")
    assert bodies(shop.reply_of(patient)) == [b"a", b"b"]
    assert [job.body for job in patient.unsent] == [b"a", b"b"] and patient.wait is None


# ---- Ids -------------------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_every_form_of_its_id(shop: CommandEngine) -> None:
    # One name looks like the rest of an id, and one contains the mark.
    for tube in ("t", "a#b", "#", "x" * 30, "y" * 38):
        id = shop.call("PUT", tube, "x")
        number = shop.native.number(shop.caller, id, NOW)
        for form in (id, shop.context.ids.hex(number), tube.encode() + b"#0"):
            assert shop.call("JOB", "PEEK", form)["id"] == id


@pytest.mark.parametrize("id", ["", "x", "#", "t#", "t#-1", "t#x", "t#1x", "#x", "0" * 32, "0" * 40, NOT_THERE])
def test_text_that_cannot_be_an_id_is_refused_with_badid(shop: CommandEngine, id: str) -> None:
    for command in (["ACK"], ["RELEASE"], ["JOB", "PEEK"], ["JOB", "DELETE"], ["JOB", "WAIT"], ["JOB", "TOUCH"]):
        assert shop.call(*command, id).startswith("BADID ")


def test_the_id_of_an_ended_job_and_an_invalid_id_give_different_errors(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x")
    assert shop.call("JOB", "DELETE", id) == 1
    for command in (["ACK"], ["REQUEUE"], ["BURY"], ["DIG"], ["JOB", "META"], ["JOB", "DELETE"], ["JOB", "SNATCH"]):
        for form in (id, "t#0", "nosuchtube#0"):
            assert shop.call(*command, form).startswith("NOJOB ")


# ---- Finishing -------------------------------------------------------------------------------------------------------


def test_a_failed_single_ack_is_an_error_and_many_acks_are_counted(shop: CommandEngine) -> None:
    ids = shop.call("MPUT", "t", *["JOB", "x"] * 4)
    shop.call("TAKE", "t", "COUNT", 2)
    assert shop.call("ACK", ids[3]).startswith("NOTTAKEN ")
    assert shop.call("ACK", ids[1], caller=shop.another()).startswith("NOTOWNER ")
    assert shop.call("ACK", *ids, "t#77") == 2
    assert shop.call("ACK", ids[0]).startswith("NOJOB ")


def test_a_command_with_one_invalid_id_among_many_changes_nothing(shop: CommandEngine) -> None:
    ids = shop.call("MPUT", "t", *["JOB", "x"] * 3)
    shop.call("TAKE", "t", "COUNT", 3)
    assert shop.call("ACK", *ids, "nonsense").startswith("BADID ")
    assert shop.call("JOB", "DELETE", *ids, "nonsense").startswith("BADID ")
    assert shop.engine.tube(b"t").total() == 3


def test_thousands_of_ids_are_done_in_slices(shop: CommandEngine) -> None:
    ids = shop.call("MPUT", "t", *["JOB", "x"] * (2 * SLICE))
    assert shop.call("JOB", "DELETE", *ids) == 2 * SLICE
    assert shop.slices >= 3


def test_a_release_changes_what_is_given(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t", "TYPE", "utubettl")
    id = shop.call("PUT", "t", "x", "KEY", "k")
    shop.call("TAKE", "t")
    assert shop.call("RELEASE", id, "DELAY", "1s", "TTL", "10s", "PRIORITY", 3, "KEY", "other") == b"OK"
    told = shop.call("JOB", "META", id)
    assert (told["state"], told["priority"], told["key"], told["wakes"]) == (b"delayed", 3, b"other", NOW + 1_000)
    assert shop.call("RELEASE", id).startswith("NOTTAKEN ")
    assert shop.call("RELEASE", id, "TTR", 3).startswith("SYNTAX RELEASE has no option TTR; did you mean TTL?")


def test_a_job_goes_through_every_command_on_it(shop: CommandEngine) -> None:
    for tube in ("t", "other"):
        shop.call("TUBE", "CREATE", tube, "TYPE", "fifottl")
    id = shop.call("PUT", "t", "x", "TTR", "10s", "TTL", "1h")

    def state() -> Any:
        return shop.call("JOB", "PEEK", id)["state"]

    steps: list[tuple[list[str], bytes]] = [
        (["TAKE", "t"], b"taken"),
        (["JOB", "TOUCH", "@", "5s"], b"taken"),
        (["JOB", "TOUCH", "@"], b"taken"),
        (["REQUEUE", "@"], b"ready"),
        (["TAKE", "t"], b"taken"),
        (["JOB", "NACK", "@", "REASON", "it broke"], b"ready"),
        (["BURY", "@", "REASON", "why not"], b"buried"),
        (["DIG", "@", "DELAY", "1s", "TTL", "2h", "PRIORITY", "4"], b"delayed"),
        (["JOB", "RESTART", "@"], b"ready"),
        (["TAKE", "t"], b"taken"),
        (["JOB", "SNATCH", "@", "DELAY", "2s"], b"delayed"),
        (["JOB", "SWITCH", "@", "buried"], b"buried"),
        (["JOB", "SWITCH", "@", "delayed", "DELAY", "1"], b"delayed"),
        (["JOB", "MOVE", "@", "other"], b"delayed"),
        (["JOB", "SWITCH", "@", "READY"], b"ready"),
        (["TAKE", "other"], b"taken"),
        (["JOB", "DONE", "@", '{"a":1}', "AS", "json", "TTL", "1h"], b"done"),
    ]
    for words, after in steps:
        answer = shop.call(*[id if word == "@" else word for word in words])
        assert answer == b"OK" or isinstance(answer, list), (words, answer)
        assert state() == after, words
    told = shop.call("JOB", "META", id)
    assert (told["nacks"], told["buries"], told["reason"], told["tube"]) == (1, 1, b"why not", b"other")
    assert shop.call("JOB", "PEEK", id)["body"] == b'{"a":1}' and shop.call("JOB", "PEEK", id)["as"] == b"json"
    assert shop.call("JOB", "DELETE", id) == 1


def test_unknown_options_of_job_commands_are_refused(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x")
    shop.call("TAKE", "t")
    assert shop.call("JOB", "TOUCH", id, "5s", "more").startswith("SYNTAX ")
    assert shop.call("JOB", "TOUCH", id, "long").startswith("RANGE the time to add must be a time ")
    assert shop.call("JOB", "SWITCH", id, "tired").startswith("RANGE a state is one of ready, ")
    assert shop.call("JOB", "MOVE", id, "missing").startswith("NOTUBE ")
    assert shop.call("JOB", "SNATCH", id, "DELAYED", "1") == "SYNTAX JOB has no option DELAYED; did you mean DELAY?"
    assert shop.call("BURY", id, "REASON", "x" * 5_000).startswith("RANGE a reason must ")
    assert shop.call("JOB", "FETCH", id).startswith("SYNTAX unknown subcommand JOB FETCH; use one of ")
    assert shop.call("JOB", "PEEK").startswith("ERR wrong number of arguments for 'job peek'")
    assert shop.call("JOB", "PEEK", id)["state"] == b"taken"


def test_kick_digs_up_in_slices_and_returns_the_number(shop: CommandEngine) -> None:
    assert shop.call("KICK", "t").startswith("NOTUBE ")
    ids = shop.call("MPUT", "t", *["JOB", "x"] * (SLICE + 5))
    for id in ids:
        shop.call("BURY", id)
    assert shop.call("KICK", "t") == 1
    assert shop.call("KICK", "t", 3, "DELAY", "5s") == 3
    assert shop.call("KICK", "t", 10 * SLICE) == SLICE + 1
    assert shop.slices
    assert shop.call("KICK", "t", 0).startswith("RANGE ")
    assert shop.call("KICK", "t", "PRIORITY", 3).startswith("SYNTAX KICK has no option PRIORITY")


def test_job_wait_returns_whether_the_job_was_acked(shop: CommandEngine) -> None:
    acked, deleted, kept = shop.call("MPUT", "t", "JOB", "a", "JOB", "b", "JOB", "c")
    callers = [shop.another() for _ in range(3)]
    for caller, id in zip(callers, (acked, deleted, kept), strict=True):
        shop.ask(b"JOB", b"WAIT", id, b"TIMEOUT", b"10s", caller=caller)
    shop.call("TAKE", "t")
    shop.call("ACK", acked)
    shop.call("JOB", "DELETE", deleted)
    assert [shop.reply_of(caller) for caller in callers] == [1, 0, None]
    shop.pass_ms(10_000)
    assert shop.reply_of(callers[2]) == 0
    assert shop.call("JOB", "WAIT", acked) == 0
    shop.call("TAKE", "t")
    shop.call("JOB", "DONE", kept, "result")
    shop.ask(b"JOB", b"WAIT", kept)
    assert shop.reply_of(shop.caller) == 1


# ---- Inspecting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "taken", "delayed", "buried", "done"])
@pytest.mark.parametrize("policy", [FIFOTTL, UTUBE, XQUEUE], ids=lambda policy: policy.type)
def test_jobs_are_listed_in_the_order_they_would_be_served(shop: CommandEngine, state: str, policy: Any) -> None:
    tube = shop.engine.create_tube(b"t", policy, NOW)
    for number in range(SLICE + 300):
        priority = number * 7919 % 1_000 if policy is FIFOTTL else 1 << 60
        shop.engine.put(tube, Draft(b"%d" % number, priority=priority), NOW)
    names = ["gone", "ready", "taken", "delayed", "buried", "done"]
    if state == "taken":
        for _ in range(len(tube.jobs_in(1))):
            shop.engine.take(shop.caller.connection.session, tube, NOW)
    elif state != "ready":
        for job in list(tube.jobs_in(1)):
            shop.engine.switch(job, names.index(state), NOW, 1_000 if state == "delayed" else 0)
    for count in (5, SLICE + 200):
        wanted = [job.body for job in tube.first_jobs(names.index(state), count)]
        listed = shop.call("JOB", "LIST", "t", state, "COUNT", count)
        assert bodies(listed) == wanted
        assert {job["state"] for job in listed} <= {state.encode()}
    assert len(shop.call("JOB", "LIST", "t", state)) == min(SLICE, tube.count_in(names.index(state)))


def test_wrong_arguments_of_job_list_are_refused(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    assert shop.call("JOB", "LIST", "t", "ready") == []
    assert shop.call("JOB", "LIST", "t", "gone").startswith("RANGE a state is one of ")
    assert shop.call("JOB", "LIST", "missing", "ready").startswith("NOTUBE ")
    assert shop.call("JOB", "LIST", "t", "ready", "COUNT", -1).startswith("RANGE COUNT must be 0 ")
    assert shop.call("JOB", "LIST", "t", "ready", "LIMIT", 3).startswith("SYNTAX JOB has no option LIMIT")


def test_a_scan_finds_every_matching_job(shop: CommandEngine) -> None:
    ids = shop.call("MPUT", "t", *["JOB", "x"] * 30)
    shop.call("MPUT", "other", *["JOB", "x"] * 30)
    shop.call("TAKE", "t", "COUNT", 10)
    shop.call("BURY", ids[29])

    def scan(*words: str) -> list[Any]:
        cursor, found = b"0", []
        while True:
            cursor, page = shop.call("JOB", "SCAN", cursor, "COUNT", 7, *words)
            found += page
            if cursor == b"0":
                return found

    assert len(scan()) == 60
    assert scan("TUBE", "t", "IDS") == ids
    assert [job["id"] for job in scan("TUBE", "t", "STATE", "taken", "buried")] == [*ids[:10], ids[29]]
    assert scan("STATE", "taken", "STATE", "buried", "IDS") == [*ids[:10], ids[29]]
    assert [job for shard in "012" for job in scan("TUBE", "t", "SHARD", shard, "3", "IDS")] == ids
    for words in (["x"], ["-1"], ["0", "STATE", "gone"], ["0", "COUNT", "0"], ["0", "SHARD", "2", "2"]):
        assert shop.call("JOB", "SCAN", *words).startswith("RANGE ")
    assert shop.call("JOB", "SCAN", "0", "TUBE", "missing").startswith("NOTUBE ")


def test_a_job_is_found_by_its_name(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x", "NAME", "n")
    assert shop.call("JOB", "NAMED", "t", "n")["id"] == id
    assert shop.call("JOB", "NAMED", "t", "m").startswith("NOJOB ")
    assert shop.call("JOB", "NAMED", "u", "n").startswith("NOTUBE ")


def test_maps_are_flat_arrays_in_resp2(shop: CommandEngine) -> None:
    shop.ask(b"PUT", b"t", b"x")
    answer = shop.ask(b"TAKE", b"t")
    assert answer.startswith(b"*1\r\n*20\r\n$2\r\nid\r\n$40\r\n") and b"$3\r\nkey\r\n$-1\r\n" in answer


# ---- Sessions and permissions ----------------------------------------------------------------------------------------


def test_a_session_is_named_joined_and_given_a_grace_time(shop: CommandEngine) -> None:
    told = shop.call("IDENTIFY", "GRACE", "10s")
    assert told == {"token": b"token".hex().encode(), "session": 1, "grace": 10_000, "max-body": 64 << 20}
    assert shop.call("IDENTIFY") == told
    other = shop.another()
    before = shop.call("IDENTIFY", caller=other)
    assert shop.call("IDENTIFY", "00" * 16, caller=other).startswith("NOSESSION ")
    assert shop.call("IDENTIFY", "no token", caller=other).startswith("WRONGTYPE ")
    assert shop.call("IDENTIFY", "GRACE", "forever", caller=other).startswith("RANGE grace must be 0 ")
    assert shop.call("IDENTIFY", told["token"], "GRACES", 1, caller=other).startswith("SYNTAX IDENTIFY has no option")
    assert shop.call("IDENTIFY", caller=other) == before
    id = shop.call("PUT", "t", "x")
    shop.call("TAKE", "t")
    assert shop.call("IDENTIFY", told["token"], caller=other) == told
    assert shop.call("ACK", id, caller=other) == 1


def test_long_json_is_not_checked(shop: CommandEngine) -> None:
    # Parsing it would need thirty times its memory.
    assert shop.call("PUT", "t", b"[" * (1024 * 1024 + 1), "AS", "json") == shop.call("JOB", "PEEK", "t#0")["id"]


def test_jobs_of_a_lost_session_stay_taken_for_its_own_grace_time(shop: CommandEngine) -> None:
    shop.engine.session_grace_ms = 1_000
    hasty, patient = shop.another(), shop.another()
    shop.call("TUBE", "CREATE", "t", "TYPE", "fifottl")
    shop.call("MPUT", "t", "JOB", "a", "JOB", "b")
    shop.call("IDENTIFY", "GRACE", 0, caller=hasty)
    shop.call("IDENTIFY", "GRACE", "5s", caller=patient)
    shop.call("TAKE", "t", caller=hasty)
    shop.call("TAKE", "t", caller=patient)
    shop.engine.disconnect(hasty.connection, shop.now)
    shop.engine.disconnect(patient.connection, shop.now)
    assert bodies(shop.call("TAKE", "t", "COUNT", 2)) == [b"a"]
    shop.pass_ms(4_999)
    assert shop.call("TAKE", "t") == []
    shop.pass_ms(1)
    assert bodies(shop.call("TAKE", "t")) == [b"b"]


def test_a_caller_can_use_only_its_own_tubes(shop: CommandEngine) -> None:
    mine, other = shop.call("PUT", "mine", "x"), shop.call("PUT", "other", "x", "NAME", "n")
    caller = shop.another(b"mine")
    tubes = [["PUT", "other", "x"], ["MPUT", "other", "JOB", "x"], ["TAKE", "other"], ["TAKE", "mine", "AND", "other"]]
    away = ["RETRY", "1x then move other"]
    tubes += [["PUT", "mine", "x", *away], ["MPUT", "mine", "JOB", "x", *away], ["TUBE", "CREATE", "mine", *away]]
    tubes += [["TUBE", "ALTER", "mine", "MAX-DELIVERIES", 1, "DEAD-LETTER", "other"]]
    tubes += [["KICK", "other"], ["JOB", "LIST", "other", "ready"], ["JOB", "NAMED", "other", "n"]]
    tubes += [["JOB", "SCAN", "0", "TUBE", "other"], ["JOB", "MOVE", mine, "other"]]
    tubes += [["TUBE", word, "other"] for word in ["CREATE", "INFO", "STATS", "DROP", "TRUNCATE", "RELEASE"]]
    tubes += [["TUBE", "PAUSE", "other", "in"], ["TUBE", "ALTER", "other", "TTL", "5"]]
    ids = [["ACK"], ["RELEASE"], ["REQUEUE"], ["BURY"], ["DIG"], ["ACK", mine], ["JOB", "DELETE", mine]]
    ids += [["JOB", word] for word in ["TOUCH", "DELETE", "PEEK", "META", "WAIT", "NACK", "SNATCH", "RESTART"]]
    refused = tubes + [[*words, id] for words in ids for id in (other, b"other#0")]
    refused += [["JOB", "DONE", other, "x"], ["JOB", "SWITCH", other, "buried"], ["JOB", "MOVE", other, "mine"]]
    for words in refused:
        assert str(shop.call(*words, caller=caller)).startswith("NOPERM "), words
    assert shop.call("TUBE", "LIST", caller=caller) == [b"mine"]
    assert [tube["name"] for tube in shop.call("TUBE", "SCAN", 0, caller=caller)[1]] == [b"mine"]
    assert shop.call("JOB", "SCAN", 0, "IDS", caller=caller)[1] == [mine]
    assert shop.engine.tube(b"mine").total() == 1 and shop.engine.tube(b"other").total() == 1


def test_a_caller_with_read_permission_cannot_change_anything(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x")
    shop.caller.groups = 1
    assert shop.call("JOB", "PEEK", id)["body"] == b"x"
    assert shop.call("TUBE", "LIST") == [b"t"]
    assert shop.call("JOB", "DELETE", id) == "NOPERM this user has no permission to run the 'job delete' command"
    assert shop.call("TUBE", "DROP", "t").startswith("NOPERM ")
    assert shop.call("TAKE", "t").startswith("NOPERM ")


def test_a_fifo_tube_refuses_delays_and_touch(shop: CommandEngine) -> None:
    shop.engine.create_tube(b"f", FIFO, NOW)
    id = shop.call("PUT", "f", "x")
    shop.call("TAKE", "f")
    for words in (["PUT", "f", "x", "DELAY", 1], ["RELEASE", id, "DELAY", 1], ["JOB", "TOUCH", id]):
        assert shop.call(*words).startswith("UNSUPPORTED a fifo tube has no ")


def test_job_held_returns_the_jobs_of_the_session_and_ends_its_waiting_takes(shop: CommandEngine) -> None:
    ids = [shop.call("PUT", "q", body) for body in ("a", "b", "c")]
    assert shop.call("JOB", "HELD") == []
    shop.call("TAKE", "q", "COUNT", 2)
    assert sorted(shop.call("JOB", "HELD")) == sorted(ids[:2])
    other = shop.another()
    assert shop.call("JOB", "HELD", caller=other) == []
    assert shop.call("JOB", "HELD", "NOW").startswith("SYNTAX ")


def test_a_put_with_existing_is_refused_if_the_tube_does_not_exist(shop: CommandEngine) -> None:
    assert shop.call("PUT", "q", "a", "EXISTING").startswith("NOTUBE ")
    assert shop.call("MPUT", "q", "EXISTING", "JOB", "a").startswith("NOTUBE ")
    assert shop.call("TUBE", "LIST") == []
    shop.call("TUBE", "CREATE", "q")
    assert len(shop.call("PUT", "q", "a", "EXISTING", "PRIORITY", 1)) == 40
    assert len(shop.call("MPUT", "q", "existing", "PRIORITY", 1, "JOB", "a", "JOB", "b")) == 2


def refusal(shop: CommandEngine, *words: str) -> str:
    """Return the error code of a command."""
    return str(shop.call(*words)).split()[0]


def outcome(shop: CommandEngine, *words: str) -> Any:
    """Return the reply of a wait that ends at once or with its timeout."""
    shop.caller.reply.resp3 = True
    if answer := shop.ask(b"JOB", b"WAIT", *(word.encode() if isinstance(word, str) else word for word in words)):
        return decoded(answer)
    shop.pass_ms(1)
    return shop.reply_of(shop.caller)


def test_a_put_waits_for_a_moment_in_seconds_or_with_a_unit(shop: CommandEngine) -> None:
    for at in (b"%d" % (NOW // 1000 + 60), b"%dms" % (NOW // 1000 * 1000 + 60_000), b"%d.000" % (NOW // 1000 + 60)):
        assert shop.call("JOB", "META", shop.call("PUT", "t", "x", "AT", at))["wakes"] == NOW // 1000 * 1000 + 60_000
    ids = shop.call("MPUT", "t", "JOB", "a", "AT", f"{NOW + 5}ms", "JOB", "b")
    assert [shop.call("JOB", "PEEK", id)["state"] for id in ids] == [b"delayed", b"ready"]


def test_a_past_moment_means_now_and_an_invalid_one_is_refused(shop: CommandEngine) -> None:
    for at in ("0", "1", f"{NOW}ms", f"{NOW - 1}ms"):
        assert shop.call("JOB", "PEEK", shop.call("PUT", "t", "x", "AT", at))["state"] == b"ready"
    for at in ("1794808634306", "forever", "soon", "-5", ""):
        assert refusal(shop, "PUT", "t", "x", "AT", at) == "RANGE", at
    assert refusal(shop, "PUT", "t", "x", "AT", f"{NOW + 5}ms", "DELAY", "1") == "UNSUPPORTED"
    shop.call("TUBE", "CREATE", "fifo", "TYPE", "fifo")
    assert refusal(shop, "PUT", "fifo", "x", "AT", "0") == "UNSUPPORTED"


def test_all_commands_that_make_a_tube_give_it_the_same_policy(shop: CommandEngine) -> None:
    shop.call("PUT", "put", "x")
    shop.call("MPUT", "mput", "JOB", "x")
    shop.call("TUBE", "CREATE", "created")
    assert {shop.engine.tube(name).policy for name in (b"put", b"mput", b"created")} == {DEFAULT}


def test_a_dead_letter_is_left_alone_in_a_tube_that_was_made_for_it(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x", "RETRY", "1x then move dead")
    shop.call("TAKE", "t")
    shop.call("JOB", "NACK", id)
    assert shop.engine.tube(b"dead").policy == FIFO


def test_a_tube_may_be_altered_by_its_type_or_as_a_whole(shop: CommandEngine) -> None:
    shop.call("TUBE", "CREATE", "t")
    shop.call("TUBE", "ALTER", "t", "TYPE", "fifottl", "TTR", "1m")
    assert shop.engine.tube(b"t").policy == dataclasses.replace(DEFAULT, default_ttr_ms=60_000)
    assert refusal(shop, "TUBE", "ALTER", "t", "TYPE", "fifo", "PRIORITY", "1") == "TUBEEXISTS"
    whole = {**dataclasses.asdict(DEFAULT), "default_ttl_ms": None, "retry": ""}
    shop.call("TUBE", "ALTER", "t", "POLICY", json.dumps(whole))
    assert shop.engine.tube(b"t").policy == dataclasses.replace(DEFAULT, retry="")


def test_a_wait_answers_with_a_number_or_with_an_outcome(shop: CommandEngine) -> None:
    id = shop.call("PUT", "t", "x", "RETRY", "1x then move dead")
    assert outcome(shop, id, "TIMEOUT", "0") == 0
    assert outcome(shop, id, "TIMEOUT", "0", "OUTCOME") == {"outcome": b"timeout", "reason": b""}
    shop.call("TAKE", "t")
    shop.call("JOB", "NACK", id, "REASON", "no luck")
    assert outcome(shop, id, "TUBE", "t", "OUTCOME") == {"outcome": b"dead-lettered", "reason": b"no luck"}
    shop.call("BURY", id, "REASON", "why not")
    assert outcome(shop, id) == 0
    assert outcome(shop, id, "OUTCOME") == {"outcome": b"buried", "reason": b"why not"}
    shop.call("JOB", "DELETE", id)
    assert outcome(shop, id, "OUTCOME") == {"outcome": b"gone", "reason": b""}
    assert refusal(shop, "JOB", "WAIT", id, "OUTCOMES") == "SYNTAX"


def test_a_wait_hides_the_reason_that_a_job_got_in_a_tube_without_permission(shop: CommandEngine) -> None:
    for tube, retry in (("mine", "1x then move dead"), ("other", "1x then bury")):
        shop.call("TUBE", "CREATE", tube, "RETRY", retry)
    moved, dead = shop.call("PUT", "mine", "x"), shop.call("PUT", "mine", "y")
    first, second = shop.another(b"mine"), shop.another(b"mine")
    for caller, id in ((first, moved), (second, dead)):
        caller.reply.resp3 = True
        shop.ask(b"JOB", b"WAIT", id, b"OUTCOME", caller=caller)
    shop.call("JOB", "MOVE", moved, "other")
    shop.call("BURY", moved, "REASON", "secret")
    assert shop.reply_of(first) == {"outcome": b"buried", "reason": b""}
    shop.call("TAKE", "mine")
    shop.call("JOB", "NACK", dead, "REASON", "known")
    assert shop.reply_of(second) == {"outcome": b"dead-lettered", "reason": b"known"}
    assert shop.call("JOB", "WAIT", dead, "TUBE", "other", caller=first).startswith("NOPERM")


# ---- Puts that follow ------------------------------------------------------------------------------------------------


def take_one(shop: CommandEngine) -> Any:
    shop.call("PUT", "t", "body")
    [job] = shop.call("TAKE", "t")
    return job["id"]


@pytest.mark.parametrize(
    "words", [["ACK", "id"], ["JOB", "DONE", "id", "result"], ["JOB", "NACK", "id"], ["BURY", "id"]]
)
def test_a_command_settles_a_job_and_puts_others(shop: CommandEngine, words: list[str]) -> None:
    id = take_one(shop)
    command = [id if word == "id" else word for word in words]
    ids = shop.call(*command, "THEN", "PUT", "t", "a", "DELAY", "5", "HEADER", "h", "1", "then", "put", "new", "b")
    assert [shop.call("JOB", "PEEK", each)["tube"] for each in ids] == [b"t", b"new"]
    assert shop.call("JOB", "META", ids[0])["state"] == b"delayed"


def test_the_options_of_the_command_come_before_then(shop: CommandEngine) -> None:
    id = take_one(shop)
    shop.call("BURY", id, "REASON", "then", "THEN", "PUT", "t", "a")
    assert shop.call("JOB", "META", id)["reason"] == b"then"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["THEN"], "SYNTAX THEN must be followed by PUT"),
        (["THEN", "TAKE", "t"], "SYNTAX THEN must be followed by PUT"),
        (["THEN", "PUT"], "SYNTAX PUT must be followed by a value"),
        (["THEN", "PUT", "t"], "SYNTAX T must be followed by a value"),
        (["THEN", "PUT", "t", "x", "TIMEOUT", "5"], "SYNTAX ACK has no option TIMEOUT"),
        (["THEN", "PUT", "t", "x", "PUT"], "SYNTAX ACK has no option PUT"),
        (["THEN", "PUT", "t", "{", "AS", "json"], "WRONGTYPE"),
        (["THEN", "PUT", "other", "x", "EXISTING"], "NOTUBE"),
        (["THEN", "PUT", "t", "x", "NAME", "n", "THEN", "PUT", "t", "y", "NAME", "n"], "RANGE two jobs"),
    ],
)
def test_a_refused_put_leaves_the_job_taken(shop: CommandEngine, words: list[str], refusal: str) -> None:
    id = take_one(shop)
    assert shop.call("ACK", id, *words).startswith(refusal)
    assert shop.call("JOB", "META", id)["state"] == b"taken" and list(shop.engine.tubes) == [b"t"]


def test_a_repeated_command_returns_the_jobs_that_the_first_one_put(shop: CommandEngine) -> None:
    id = take_one(shop)
    words = ["ACK", id, "THEN", "PUT", "t", "a", "DEDUP", "1", "THEN", "PUT", "t", "b", "DEDUP", "2"]
    assert shop.call(*words) == shop.call(*words)
    assert shop.call("ACK", id, "THEN", "PUT", "t", "a", "DEDUP", "3").startswith("NOJOB")
    assert shop.call("ACK", id, "THEN", "PUT", "t", "a").startswith("NOJOB")
