"""Users with tube patterns.

One server has a user with `tubes = ["mail.*"]`, all command classes, and another user whose tubes, jobs, bodies, keys
and names contain a canary. No reply to the first user may contain it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from tests.ports import free_port
from tests.security.attempts import attempt
from tests.security.renamed_commands import ClosedNode
from tests.server.iproto_wire import EVAL, SELECT, IprotoWire
from tests.server.iproto_wire import Refusal as CallRefusal
from tests.server.raw_clients import Refusal, Server, serving
from tests.server.serving import Refusal as WireRefusal
from tests.server.serving import wait_for

CANARY = "canary"
SECRET = f"{CANARY}.tube"
NUMBERED = f"{CANARY}.fifo"
SPACE = f"{CANARY}.space"
SPACE_15 = 7

CONFIG = """
requirepass = "everything"
[users.tenant]
password = "t"
commands = ["read", "write", "admin", "debug"]
tubes = ["mail.*", "7/mail.*"]
"""
USER = 'user with tubes = ["mail.*"]'
NO_QUEUE = Refusal("NOPERM this user has no permission to use this queue")
NOT_EVERY = Refusal("NOPERM this user has no permission to use every queue")


class Node:
    """The server, and one connection of each kind for both users."""

    def __init__(self, server: Server, iproto_port: int, iproto15_port: int) -> None:
        self.server = server
        self.iproto15_port = iproto15_port
        self.owner, self.tenant = server.client(), server.client()
        assert self.owner.ask("AUTH", "everything") == b"OK"
        assert self.tenant.ask("AUTH", "tenant", "t") == b"OK"
        self.owner_calls, self.calls = IprotoWire(iproto_port), IprotoWire(iproto_port)
        self.calls_15 = IprotoWire(iproto15_port)
        assert self.owner_calls.log_in("default", "everything")[0] == 0
        assert self.calls.log_in("tenant", "t")[0] == self.calls_15.log_in("tenant", "t")[0] == 0

    def close(self) -> None:
        for each in (self.owner, self.tenant, self.owner_calls, self.calls, self.calls_15):
            each.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    ports = free_port(), free_port()
    flags = ["--fsync", "always", "--iproto-port", str(ports[0]), "--iproto15-port", str(ports[1])]
    directory = tmp_path_factory.mktemp("tenants")
    with (
        serving(directory, *flags, config=CONFIG) as server,
        contextlib.closing(Node(server, *ports)) as node,
    ):
        yield node


class Secrets:
    """The data of the other user."""

    def __init__(self, node: Node) -> None:
        owner, calls = node.owner, node.owner_calls
        assert not isinstance(owner.ask("TUBE", "CREATE", SECRET, "TYPE", "utubettl"), Refusal)
        assert not isinstance(owner.ask("TUBE", "CREATE", NUMBERED, "TYPE", "fifo"), Refusal)
        self.job = _id(owner.ask("PUT", SECRET, CANARY, "KEY", CANARY, "NAME", CANARY, "UNIQUE", "u", "DEDUP", "d"))
        self.numbered = _id(owner.ask("PUT", NUMBERED, CANARY))
        self.taken = _id(owner.ask("ADDJOB", f"{CANARY}.disque", CANARY, 0))
        owner.ask("GETJOB", "FROM", f"{CANARY}.disque")
        buried = owner.ask("PUT", SECRET, CANARY, "KEY", "b")
        owner.ask("TAKE", SECRET, "KEY", "b")
        owner.ask("BURY", _id(buried), "REASON", CANARY)
        assert owner.ask("STAGE", f"{CANARY}.stage", SECRET, "JOB", CANARY) == 1
        self.task_15 = calls.call("queue15.put", SPACE_15, f"{CANARY}.q", 0, 0, 0, 127, CANARY)[0][0]
        options = {
            "format": [{"name": n, "type": t} for n, t in (("id", "string"), ("status", "string"), ("x", "string"))],
            "fields": {"status": "status"},
            "features": {"id": "required", "keep": True},
        }
        calls.call("xqueue.upgrade", SPACE, options)
        calls.call(f"box.space.{SPACE}:put", {"id": CANARY, "x": CANARY})
        self.hex = self.task_15


@pytest.fixture(scope="module")
def secrets(node: Node) -> Secrets:
    found = Secrets(node)
    assert node.tenant.ask("PUT", "mail.in", "mine") is not None
    return found


def _id(answer: object) -> bytes:
    assert isinstance(answer, bytes) and len(answer) == 40, answer
    return answer


def _has_canary(answer: object, asked: str = "") -> bool:
    """Return whether a reply contains the canary more often than the request did."""
    return repr(answer).count(CANARY) > asked.count(CANARY)


# All RESP commands about a tube {t}, a job {j} or {n}, a stage or a consumer.
WORDS = """
ADDJOB {t} b 0|ADDJOB {t} b 0 RETRY 0 REPLICATE 2|GETJOB NOHANG FROM {t}|GETJOB NOHANG FROM mail.in {t}|ACKJOB {j}
FASTACK {j}|WORKING {j}|NACK {j}|ENQUEUE {j}|DEQUEUE {j}|DELJOB {j}|SHOW {j}|QLEN {t}|QSTAT {t}|QPEEK {t} 1
QPEEK {t} -1|PAUSE {t} state|PAUSE {t} all|JSCAN 0 QUEUE {t} REPLY all
PUT {t} b|PUT {t} b UNIQUE u|PUT {t} b DEDUP d|PUT {t} b NAME canary|MPUT {t} JOB b|TAKE {t}|TAKE mail.in AND {t}
TAKE mail.none AND {t}|ACK {j}|ACK {n}|RELEASE {j}|REQUEUE {j}|BURY {j}|DIG {j}|KICK {t} 10
JOB TOUCH {j}|JOB NACK {j}|JOB DONE {j} x|JOB DELETE {j}|JOB DELETE {n}|JOB SNATCH {j}|JOB RESTART {j}
JOB SWITCH {j} ready|JOB MOVE {j} mail.in|JOB MOVE {n} mail.in|JOB PEEK {j}|JOB PEEK {n}|JOB META {j}
JOB NAMED {t} canary|JOB WAIT {j} TIMEOUT 0|JOB WAIT {j} TIMEOUT 0 TUBE {t} OUTCOME
JOB LIST {t} ready|JOB LIST {t} buried|JOB SCAN 0 TUBE {t}|JOB SCAN 0 TUBE {t} SHARD 0 2
JOB SCAN 0 TUBE {t} PACKED|JOB HISTORY {j}|JOB HISTORY {n}
TUBE CREATE {t}|TUBE CREATE {t} TYPE utubettl|TUBE INFO {t}|TUBE STATS {t}|TUBE ALTER {t} TTL 5|TUBE PAUSE {t} all
TUBE RELEASE {t}|TUBE TRUNCATE {t}|TUBE DROP {t}|GLOBAL QLEN {t}|GLOBAL QPEEK {t} 1|GLOBAL SCAN 0 TUBE {t}
GLOBAL EMPTY {t}
ACK {j} THEN PUT mail.in b|ACK {n} THEN PUT mail.in b DEDUP d|BURY mail.in#0 THEN PUT {t} b
JOB NACK mail.in#0 THEN PUT mail.in b THEN PUT {t} b
JOB CANCEL {j}|JOB CANCEL {n}|JOB PROGRESS {j} x|JOB WATCH {j} TIMEOUT 0|JOB WATCH {n} TIMEOUT 0 TUBE {t}
SESSION EVENTS TUBE {t}|BATCH CREATE canary.b|BATCH CREATE mail.b THEN PUT {t} b|BATCH SEAL canary.b|BATCH INFO canary.b
PUT mail.in b BATCH canary.b|MPUT mail.in BATCH canary.b JOB b
STAGE mail.s {t} JOB b|STAGE mail.s {t} AFTER 0|STAGE canary.stage mail.in JOB b|PUBLISH canary.stage
PUBLISHONCE mail.m canary.stage|PUBLISHONCE canary.m mail.s|DISCARD canary.stage
CLAIM TAKE {t} mail.c 1|CLAIM TAKE {t} mail.c 1 SIZE|CLAIM TAKE mail.in canary.c 1|CLAIM READ canary.c 1
CLAIM ACK canary.c 1|CLAIM INFO canary.c|CLAIM VERDICT canary.c 1 CLEAR|CLAIM FIND {j}
JOURNAL EVENTS 1 TUBE {t}|JOURNAL EVENTS 1|JOURNAL READ 1|JOURNAL FILES
JOURNAL DIGEST 1 9
"""


def _resp_attacks(secrets: Secrets) -> Iterator[list[str | bytes]]:
    lines = [line for line in WORDS.replace("\n", "|").split("|") if line]
    for line in lines:
        for tube in (SECRET, NUMBERED, f"{CANARY}.disque", SPACE, f"7/{CANARY}.q"):
            job = {SECRET: secrets.job, NUMBERED: secrets.numbered}.get(tube, secrets.taken).decode()
            yield [word.format(t=tube, j=job, n=f"{NUMBERED}#0") for word in line.split(" ")]
            if "{t}" not in line:
                break


@attempt(
    "name a foreign tube, job, stage or consumer in every command (PUT, TAKE, JOB MOVE, QPEEK, CLAIM, STAGE, GLOBAL …)",
    port="RESP",
    caller=USER,
    result="refused: NOPERM",
)
def test_no_command_reaches_a_foreign_tube(node: Node, secrets: Secrets) -> None:
    before = _picture(node)
    for words in _resp_attacks(secrets):
        answer = node.tenant.ask(*words)
        assert isinstance(answer, Refusal), words
        refused = str(answer).split(" ")[0]
        assert refused == "NOPERM" or (words[0] == "GLOBAL" and refused == "NOCLUSTER"), (words, answer)
        assert not _has_canary(answer), (words, answer)
    assert _picture(node) == before


def _picture(node: Node) -> object:
    """Return all data of the other user, as that user sees it."""
    names = (SECRET, NUMBERED, f"{CANARY}.disque", SPACE, f"7/{CANARY}.q")
    jobs = [node.owner.ask("JOB", "SCAN", 0, "TUBE", name) for name in names]
    infos = [node.owner.ask("TUBE", "INFO", name) for name in names]
    return jobs, infos


@attempt(
    "list tubes and jobs: QSCAN, JSCAN, JOB SCAN, TUBE LIST, TUBE SCAN MATCH, JOB HELD, SESSION SCAN, INFO, COMMAND, "
    "CLIENT",
    port="RESP",
    caller=USER,
    result="only the user's own tubes and jobs are listed; INFO leaves out Jobs, Queues and Commandstats",
)
def test_listings_show_own_tubes_only(node: Node, secrets: Secrets) -> None:
    for line in (
        *("QSCAN", "QSCAN 0 BUSYLOOP", "QSCAN 0 MINLEN 0", "JSCAN", "JSCAN 0 BUSYLOOP REPLY all", "JSCAN 0 REPLY all"),
        *("JOB SCAN 0", "JOB SCAN 0 COUNT 1000", "JOB SCAN 0 PACKED", "JOB SCAN 0 IDS", "JOB HELD", "TUBE LIST"),
        *("JOB SCAN 0 WHERE true", "JOB SCAN 0 WHERE true IDS EXAMINE 1000000", "JOB SCAN 0 WHERE body"),
        *(
            "TUBE SCAN 0",
            "TUBE SCAN 0 MATCH *",
            "TUBE SCAN 0 POLICY",
            "TUBE SCAN 0 MATCH can*",
            "INFO",
            "INFO all",
            "INFO jobs",
        ),
        *("INFO queues", "INFO commandstats", "COMMAND", "COMMAND DOCS", "CLIENT ID", "HELLO", "IDENTIFY"),
        *("SESSION SCAN 0", "SESSION SCAN 0 COUNT 1000", "SESSION SCAN 0 TUBE mail.in"),
    ):
        answer = node.tenant.ask(*line.split())
        assert not isinstance(answer, Refusal), line
        assert not _has_canary(answer, line), line
        assert secrets.job not in repr(answer).encode() and secrets.taken not in repr(answer).encode(), line
    told = node.tenant.ask("INFO", "all")
    assert isinstance(told, bytes) and b"registered" not in told and b"cmdstat" not in told
    assert b"registered_jobs" in node.owner.ask("INFO")  # type: ignore[operator]


@attempt(
    "send jobs to a foreign tube: PUT RETRY, TUBE CREATE and ALTER DEAD-LETTER, POLICY, queue.create_tube{dead_letter}",
    port="RESP, IPROTO",
    caller=USER,
    result="refused: NOPERM",
)
def test_no_policy_moves_jobs_to_a_foreign_tube(node: Node, secrets: Secrets) -> None:
    tenant, policy = node.tenant, f'{{"type": "fifottl", "retry": "1x then move {SECRET}"}}'
    tenant.ask("TUBE", "CREATE", "mail.mine")
    for words in (
        ["PUT", "mail.in", "b", "RETRY", f"1x then move {SECRET}"],
        ["MPUT", "mail.in", "JOB", "a", "JOB", "b", "RETRY", f"1x then move {SECRET}"],
        ["STAGE", "mail.s", "mail.in", "JOB", "b", "RETRY", f"1x then move {SECRET}"],
        ["TUBE", "CREATE", "mail.new", "MAX-DELIVERIES", 1, "DEAD-LETTER", SECRET],
        ["TUBE", "CREATE", "mail.new", "POLICY", policy],
        ["TUBE", "ALTER", "mail.mine", "MAX-DELIVERIES", 1, "DEAD-LETTER", SECRET],
        ["TUBE", "ALTER", "mail.mine", "RETRY", f"1x then move {SECRET}"],
    ):
        assert tenant.ask(*words) == NO_QUEUE, words  # type: ignore[arg-type]
    for options in ({"max_deliveries": 1, "dead_letter": SECRET}, {"retry": f"1x then move {SECRET}"}):
        for calls in (node.calls, node.calls_15):
            with pytest.raises(CallRefusal, match="no permission to use this queue"):
                calls.call("queue.create_tube", "mail.new", "fifottl", options)
    assert b"mail.new" not in tenant.ask("TUBE", "LIST")  # type: ignore[operator]


@attempt(
    "call each function of a foreign tube or space: queue.tube.NAME:*, box.space.NAME:*, xqueue, queue15, EVAL, CALL",
    port="IPROTO",
    caller=USER,
    result="refused: access denied",
)
def test_no_function_reaches_a_foreign_tube(node: Node, secrets: Secrets) -> None:
    before = _picture(node)
    methods = (
        "put take ack release touch peek bury kick delete truncate drop release_all tasks_by_state headers grant"
        " grant_role"
    )
    spaces = (
        "put take ack release bury touch dig plow kick kill snatch restart switch get select wait stats truncate count"
    )
    names = [f"queue.tube.{SECRET}:{method}" for method in methods.split()]
    names += [f"box.queue.tube.{NUMBERED}:{method}" for method in methods.split()]
    names += [f"box.space.{SPACE}:{method}" for method in [*spaces.split(), "len", "unbury", "insert", "format"]]
    names += [f"box.space.{NUMBERED}:{method}" for method in ("select", "get", "count", "len", "update")]
    for space in (f"{SPACE}.index.primary", f"{NUMBERED}.index.status", f"{SECRET}.index.mail.in"):
        names += [f"box.space.{space}:{method}" for method in ("select", "get", "count", "len", "min", "max")]
    for name in names:
        assert str(node.tenant.ask("CALL", name)).startswith("NOPERM "), name
        for args in ((), (0,), (CANARY,), ("tenant",)):
            for answer in (_called(node.calls, name, *args), _evaluated(node.calls, f"return {name}(...)", *args)):
                assert answer[0] == "refused" and not _has_canary(answer, name), (name, answer)
                assert "no permission" in answer[1] or "not evaluated" in answer[1], (name, answer)
    for name, *args in (
        *(("queue.tube", SECRET), ("queue.create_tube", SECRET, "utubettl")),
        *(("queue.create_tube", SECRET, "utubettl", {"if_not_exists": True}), ("xqueue.upgrade", SPACE, {})),
        ("queue15.put", SPACE_15, f"{CANARY}.q", 0, 0, 0, 127, "x"),
        ("queue15.put", 0, f"7/{CANARY}.q", 0, 0, 0, 127, "x"),
        ("queue15.put_unique", SPACE_15, f"{CANARY}.q", 0, 0, 0, 127, CANARY),
        *(("queue15.take", SPACE_15, f"{CANARY}.q", 0), ("queue15.kick", SPACE_15, f"{CANARY}.q")),
        *(("queue15.truncate", 0, SECRET), ("queue15.statistics", SPACE_15, f"{CANARY}.q")),
        *((f"queue15.{word}", SPACE_15, secrets.task_15) for word in ("peek", "meta", "delete", "dig", "ack", "touch")),
        *(
            (f"queue15.{word}", 0, secrets.job.decode())
            for word in ("peek", "meta", "delete", "release", "bury", "done")
        ),
    ):
        for calls in (node.calls, node.calls_15):
            answer = _called(calls, name, *args)
            assert answer[0] == "refused" and not _has_canary(answer) and "no permission" in answer[1], (name, answer)
    assert "no permission" in _called(node.calls, "queue.statistics", SECRET)[1]
    text = "local name = ... ; return queue.tube[name] ~= nil"
    assert "no permission" in _evaluated(node.calls, text, SECRET)[1]
    assert _picture(node) == before


@attempt(
    "read all tubes: queue.tube(), queue.statistics() of both APIs, box.space._queue* by select and count, SELECT",
    port="IPROTO",
    caller=USER,
    result="only the user's own tubes are listed; `_queue` and similar spaces are denied",
)
def test_functions_about_all_tubes_list_own_tubes_only(node: Node, secrets: Secrets) -> None:
    for calls in (node.calls, node.calls_15):
        for name, *args in (
            *(("queue.tube",), ("queue.statistics",), ("queue.stats",), ("queue15.statistics",)),
            *(("queue15.statistics", SPACE_15), ("queue.state",), ("box.info",), ("queue.identify",)),
        ):
            answer = _called(calls, name, *args)
            assert answer[0] == "answered" and not _has_canary(answer), (name, answer)
        for space in ("_queue", "_queue_consumers", "_queue_taken", "_queue_taken_2", "_space", "_user", ""):
            for method in ("select", "count", "len", "get"):
                answer = _called(calls, f"box.space.{space}:{method}", [], {"iterator": "ALL"})
                assert answer[0] == "refused" and not _has_canary(answer), (space, method, answer)
        for space in (272, 304, 512, 513, 514, 515):
            code, body = calls.ask(SELECT, {0x10: space, 0x11: 0, 0x12: 100, 0x13: 0, 0x14: 2, 0x20: []})
            assert code or body[0x30] == [], (space, body)


@attempt(
    "read foreign spaces by their numbers and the schema: SELECT of each number, _vspace and _vindex by all indexes",
    port="IPROTO",
    caller=USER,
    result="the schema has the spaces of the user's own tubes; the number of a foreign one does not exist",
)
def test_a_schema_has_only_own_spaces_and_foreign_numbers_do_not_exist(node: Node, secrets: Secrets) -> None:
    mine = {row[2]: row[0] for row in _selected(node.calls, 281, 0, 2, [])}
    assert set(mine) == {"_vspace", "_vindex", "mail.in", "mail.mine"}
    assert {row[0] for row in _selected(node.calls, 289, 0, 2, [])} == set(mine.values())
    for calls in (node.calls, node.calls_15):
        for number in range(2_048):
            for iterator in (0, 2):
                for key in ([], [0], [CANARY]):
                    answer = _selected(calls, number, 0, iterator, key)
                    assert not _has_canary(answer), (number, answer)
                    assert number in mine.values() or isinstance(answer, int) or answer == [] or number in (280, 288)
            for space in (280, 281, 288, 289):
                rows = _selected(calls, space, 0, 0, [number])
                assert rows == [] or number in mine.values(), rows
        for name in (SECRET, NUMBERED, SPACE, f"{CANARY}.disque", "_queue", "_queue_taken_2"):
            assert _selected(calls, 281, 2, 0, [name]) == []
        for iterator in range(7):
            for index in range(3):
                assert not _has_canary(_selected(calls, 281, index, iterator, []))
                assert not _has_canary(_selected(calls, 289, index, iterator, []))


def _selected(calls: IprotoWire, space: int, index: int, iterator: int, key: list[object]) -> Any:
    """Return the rows of a SELECT, or the number of its error."""
    code, body = calls.ask(SELECT, {0x10: space, 0x11: index, 0x12: 100, 0x13: 0, 0x14: iterator, 0x20: key})
    return code & 0x7FFF if code else body[0x30]


@attempt(
    "give itself more tubes: tube:grant of a foreign tube, to itself or to others; grant of its own tube",
    port="IPROTO",
    caller=USER,
    result="refused for a foreign tube; a grant of its own tube lets the other user use that tube",
)
def test_a_user_grants_only_its_own_tubes(node: Node, secrets: Secrets) -> None:
    for name in (SECRET, "*", f"{CANARY}*", "mail.in*:grant*"):
        assert _called(node.calls, f"queue.tube.{name}:grant", "tenant")[0] == "refused"
    assert _called(node.calls, "queue.tube.mail.in:grant", "tenant")[0] == "answered"
    assert node.tenant.ask("QLEN", SECRET) == NO_QUEUE


@attempt(
    "change the whole server: queue.cfg{ttr}",
    port="IPROTO",
    caller=USER,
    result="refused: access denied",
)
def test_a_user_with_patterns_cannot_configure_the_server(node: Node, secrets: Secrets) -> None:
    before = node.owner.ask("CONFIG", "GET", "session-grace")
    answer = _called(node.calls, "queue.cfg", {"ttr": 1})
    assert answer[0] == "refused" and "every queue" in answer[1]
    packed = msgpack.packb({"ttr": 1})
    assert node.tenant.ask("CALL", "queue.cfg", packed) == NOT_EVERY
    assert node.owner.ask("CONFIG", "GET", "session-grace") == before


@attempt(
    "use a consumer name of its own under which another user has claimed jobs of a foreign tube",
    port="RESP",
    caller=USER,
    result="refused: NOPERM, and the claim is unchanged",
)
def test_a_claim_of_a_foreign_tube_is_out_of_reach(node: Node, secrets: Secrets) -> None:
    owner, tenant = node.owner, node.tenant
    owner.ask("PUT", NUMBERED, CANARY)
    claimed = owner.ask("CLAIM", "TAKE", NUMBERED, "mail.reader", 1)
    assert isinstance(claimed, list) and claimed
    for line in (
        *(
            "CLAIM READ mail.reader 1",
            "CLAIM ACK mail.reader 1",
            "CLAIM RELEASE mail.reader",
            "CLAIM RENEW mail.reader",
            "CLAIM VERDICT mail.reader 1 CLEAR",
        ),
        *(
            "CLAIM INFO mail.reader",
            "CLAIM TAKE mail.in mail.reader 1 SIZE",
            "CLAIM TAKE mail.in mail.reader 1 TOKEN 9",
        ),
    ):
        assert tenant.ask(*line.split()) == NO_QUEUE, line
    assert owner.ask("CLAIM", "READ", "mail.reader", 1) == claimed
    assert owner.ask("CLAIM", "RELEASE", "mail.reader") == 1


@attempt(
    "log in on a connection whose session holds jobs that another user took, and ask for them (JOB HELD)",
    port="RESP",
    caller=USER,
    result="only jobs of the user's own tubes are listed",
)
def test_held_jobs_of_another_user_are_not_listed(node: Node, secrets: Secrets) -> None:
    with node.server.client() as client:
        assert client.ask("AUTH", "everything") == b"OK"
        foreign = _id(client.ask("PUT", f"{CANARY}.held", "b"))
        own = _id(client.ask("PUT", "mail.held", "b"))
        client.ask("TAKE", f"{CANARY}.held")
        client.ask("TAKE", "mail.held")
        assert sorted(client.ask("JOB", "HELD")) == sorted([foreign, own])  # type: ignore[type-var, arg-type]
        assert client.ask("AUTH", "tenant", "t") == b"OK"
        assert client.ask("JOB", "HELD") == [own]
        assert client.ask("ACK", foreign) == NO_QUEUE
        assert client.ask("ACK", own) == 1


@attempt(
    "wait for the end of its own task that another user moves to a foreign tube and finishes there with a result",
    port="IPROTO",
    caller=USER,
    result="the task is shown as it was before it moved",
)
def test_a_wait_does_not_reveal_the_end_of_a_moved_task(node: Node, secrets: Secrets) -> None:
    owner, calls = node.owner, node.calls
    options = {
        "format": [{"name": n, "type": t} for n, t in (("id", "string"), ("status", "string"), ("x", "string"))],
        "fields": {"status": "status"},
        "features": {"id": "required"},
    }
    node.owner_calls.call("xqueue.upgrade", "mail.space", options)
    owner.ask("TUBE", "CREATE", f"{CANARY}.results", "KEEP", "yes")
    calls.call("box.space.mail.space:put", {"id": "k", "x": "mine"})
    waiting = calls.start("box.space.mail.space:wait", "k", 20)
    assert calls.call("box.space.mail.space:len") == [1]
    [job] = owner.ask("JOB", "LIST", "mail.space", "ready")  # type: ignore[misc]
    id = job[job.index(b"id") + 1]
    assert owner.ask("JOB", "MOVE", id, f"{CANARY}.results") == b"OK"
    assert len(owner.ask("TAKE", f"{CANARY}.results")) == 1  # type: ignore[arg-type]
    assert owner.ask("JOB", "DONE", id, CANARY) == b"OK"
    result = calls.result(waiting)
    assert "mine" in repr(result) and not _has_canary(result), result


# The journal


@attempt(
    "JOB HISTORY and JOURNAL EVENTS of a job that was in a foreign tube before, and of one that went there",
    port="RESP",
    caller=USER,
    result="JOB HISTORY is refused: NOPERM; EVENTS has only the rows of the user's own tube (a moved job keeps its "
    "body and its last reason, so the user sees these in its own tube)",
)
def test_the_history_of_a_job_in_a_foreign_tube_is_not_shown(node: Node, secrets: Secrets) -> None:
    owner, tenant = node.owner, node.tenant
    owner.ask("TUBE", "CREATE", f"{CANARY}.source", "TYPE", "fifottl")
    tenant.ask("TUBE", "CREATE", "mail.moved", "TYPE", "fifottl")
    here = owner.ask("JOURNAL", "HEAD")
    start = here[here.index(b"written") + 1] + 1  # type: ignore[attr-defined, index]
    came = _id(owner.ask("PUT", f"{CANARY}.source", f"{CANARY} body"))
    owner.ask("TAKE", f"{CANARY}.source")
    owner.ask("JOB", "NACK", came, "REASON", "failed")
    assert owner.ask("JOB", "MOVE", came, "mail.moved") == b"OK"
    went = _id(tenant.ask("PUT", "mail.moved", "mine"))
    assert owner.ask("JOB", "MOVE", went, f"{CANARY}.source") == b"OK"
    owner.ask("TAKE", f"{CANARY}.source")
    owner.ask("BURY", went, "REASON", f"{CANARY} reason")
    for id in (came, went):
        assert tenant.ask("JOB", "HISTORY", id) == NO_QUEUE
    seen = tenant.ask("JOURNAL", "EVENTS", start, "COUNT", 1000, "TUBE", "mail.moved")
    assert not _has_canary(seen)
    told = [dict(zip(each[::2], each[1::2], strict=True)) for each in seen[1]]  # type: ignore[index]
    assert [(each[b"event"], each[b"tube"]) for each in told if each.get(b"job") == came] == [
        (b"moved in", b"mail.moved")
    ]
    assert all(each[b"tube"] == b"mail.moved" for each in told)
    assert [each.get(b"body") for each in told if each.get(b"job") == came] == [None]


@attempt(
    "read the events of a tube whose name is not UTF-8, by the text that such names are shown as (`mail\\xff`)",
    port="RESP",
    caller="user with a pattern that matches the text only",
    result="no rows of that tube",
)
def test_names_that_read_alike_are_not_one_tube(node: Node, secrets: Secrets) -> None:
    owner = node.owner
    owner.ask("PUT", b"mail\xff", CANARY)
    assert owner.ask("JOURNAL", "EVENTS", 1, "COUNT", 1000, "TUBE", b"mail\\xff")[1] == []  # type: ignore[index]
    rows = owner.ask("JOURNAL", "EVENTS", 1, "COUNT", 1000, "TUBE", b"mail\xff")[1]  # type: ignore[index]
    assert rows and all(row[row.index(b"tube") + 1] == b"mail\\xff" for row in rows)


# Clusters


@attempt(
    "learn in a cluster whether a foreign tube exists, and where: ADDJOB, TAKE … AND, STAGE without jobs",
    port="RESP",
    caller=USER,
    result="refused: NOPERM, whether the tube exists or not",
)
def test_a_cluster_does_not_reveal_where_foreign_tubes_are(two: list[ClosedNode]) -> None:
    with contextlib.closing(two[1].client("owner", "o")) as owner:
        owner.call("TUNNEL", "CREATE", f"{CANARY}.far")
        owner.call("TUNNEL", "CREATE", "mail.far")
        owner.call("ADDJOB", f"{CANARY}.disque", "b", 0)
    with contextlib.closing(two[0].client("owner", "o")) as owner:
        owner.call("PIPE", "CREATE", f"{CANARY}.near")
        wait_for(lambda: owner.call("PIPE", "INFO", f"{CANARY}.far"))
    with contextlib.closing(two[0].client("tenant", "t")) as tenant:
        for tube in ("far", "near", "disque", "none"):
            for line in (
                *(f"ADDJOB {CANARY}.{tube} b 0 RETRY 0", f"ADDJOB {CANARY}.{tube} b 0 REPLICATE 9"),
                *(f"TAKE mail.none AND {CANARY}.{tube}", f"TAKE mail.far AND {CANARY}.{tube}"),
                f"STAGE mail.s {CANARY}.{tube} AFTER 0",
            ):
                with pytest.raises(WireRefusal, match=r"^NOPERM .* use this queue$"):
                    tenant.call(*line.split())


def _called(calls: IprotoWire, name: str, *args: Any) -> tuple[str, Any]:
    try:
        return "answered", calls.call(name, *args)
    except CallRefusal as refusal:
        return "refused", str(refusal)


def _evaluated(calls: IprotoWire, text: str, *args: Any) -> tuple[str, Any]:
    code, body = calls.ask(EVAL, {0x27: text, 0x21: list(args)})
    return ("refused", body[0x31]) if code else ("answered", body[0x30])
