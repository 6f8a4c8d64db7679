"""Spaces are read in slices, with bounded memory, and correctly even in orders that are not stored."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.job import Draft, Job
from penstock.core.limits import BATCH_JOBS_MAX, UNSET
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, PRESETS, UTUBE, UTUBETTL, TubePolicy
from penstock.core.stages import stage_jobs
from penstock.core.tube import Tube
from penstock.dialects.spaces.methods import SpaceFunctions
from penstock.dialects.spaces.reading import KEPT_MAX
from penstock.dialects.spaces.schema import LISTED_MAX
from penstock.dialects.tarantool.calls import SlicedCall
from penstock.dialects.xqueue.spaces import XqueueSpaces as XqueueSpaces
from penstock.node.caller import Caller
from penstock.wire.errors import BoxError
from penstock.wire.iproto import CALL, SELECT, Request
from penstock.wire.msgpack import Reader, pack

from .command_engine import NOW, CommandEngine

NAME = b"read"


class Desk:
    """A client that reads spaces."""

    def __init__(self, shop: CommandEngine) -> None:
        self.shop = shop
        self.upgraded = XqueueSpaces(shop.context)
        self.spaces = SpaceFunctions(shop.context, self.upgraded)
        self.slices = 0

    def call(self, path: str, *args: object, caller: Caller | None = None) -> Any:
        """Return the results of `SPACE:method` or `SPACE.INDEX:method`."""
        owner, _, method = path.rpartition(":")
        space, _, index = owner.partition(".")
        call = Request(CALL, 0)
        call.args = [pack(arg) for arg in args]
        family = self.spaces
        found = family.index_method(index.encode(), method.encode()) if index else family.method(b"", method.encode())
        assert found is not None
        caller = caller or self.shop.caller
        return self._end(caller, found.function(caller, call, space.encode(), NOW))

    def select(self, space: int, index: int, iterator: int, key: list[object], caller: Caller) -> Any:
        """Return the rows of a SELECT request."""
        request = Request(SELECT, 0)
        request.space, request.index, request.iterator = space, index, iterator
        request.args = [pack(part) for part in key]
        return self._end(caller, self.spaces.select(caller, request, NOW))

    def _end(self, caller: Caller, answer: bytes | None) -> Any:
        self.slices = 1
        while answer is None:
            assert isinstance(self.shop.long, SlicedCall)
            answer = self.shop.long.run_slice(caller, NOW)
            self.slices += 1
        reader = Reader(answer)
        reader.left = len(answer)
        return reader.value()


@pytest.fixture
def desk(shop: CommandEngine) -> Desk:
    return Desk(shop)


def filled(shop: CommandEngine, policy: TubePolicy, count: int) -> tuple[Tube, list[Job]]:
    """A tube with jobs of mixed priorities and keys."""
    tube = shop.engine.create_tube(NAME, policy, NOW)
    drafts = []
    for number in range(count):
        draft = Draft(b"")
        if policy.order == FIFOTTL.order:
            draft.priority = number * 7 % 5
        if policy.keys != FIFO.keys:
            draft.key = b"%d" % (number % 3)
        drafts.append(draft)
    return tube, shop.engine.put_many(tube, drafts, NOW)


def test_an_order_that_is_not_stored_is_made_by_several_scans_with_bounded_memory(
    shop: CommandEngine, desk: Desk
) -> None:
    count = KEPT_MAX * 5 // 2
    filled(shop, FIFOTTL, count)
    ordered = sorted(range(count), key=lambda number: (number * 7 % 5, number))
    [rows] = desk.call("read.status:select", [], {"iterator": "GE"})
    assert [row[0] for row in rows] == ordered and desk.slices > 3 * count / 1_000
    [rows] = desk.call("read.status:select", ["r"], {"iterator": "LE", "offset": KEPT_MAX + 5, "limit": 1_000})
    assert [row[0] for row in rows] == ordered[::-1][KEPT_MAX + 5 : KEPT_MAX + 1_005]
    [rows] = desk.call("read.status:select", ["r", 2], {"iterator": "GT", "limit": 3})
    assert [row[5] for row in rows] == [3, 3, 3] and desk.slices <= count / 1_000 + 2


@pytest.mark.parametrize("policy", [FIFO, FIFOTTL, UTUBE, UTUBETTL], ids=lambda policy: policy.type)
def test_stored_orders_need_no_scan(shop: CommandEngine, desk: Desk, policy: TubePolicy) -> None:
    tube, jobs = filled(shop, policy, 5_000)
    timed, keyed = policy.has_ttl, tube.keys is not None
    last = [len(jobs) - 1]
    assert desk.call("read.task_id:max")[0][0] == last[0] and desk.slices == 1
    for key, iterator, expected in (
        ([4_000], "GE", 4_000),
        ([4_000], "LT", 3_999),
        ([], "LE", last[0]),
        (last, "EQ", 4_999),
    ):
        [rows] = desk.call("read:select", key, {"iterator": iterator, "limit": 2})
        assert rows[0][0] == expected and desk.slices == 1
    assert desk.call("read.status:count", ["r"]) == [5_000] and desk.slices == 1
    assert desk.call("read.status:count", ["!"]) == desk.call("read.status:count", ["nope"]) == [0]
    if not keyed:
        [rows] = desk.call("read.status:select", ["r"], {"limit": 3, "offset": 2})
        assert [row[0] for row in rows] == ([10, 15, 20] if timed else [2, 3, 4]) and desk.slices == 1
    else:
        index = "utube_pri" if timed else "utube"
        [rows] = desk.call(f"read.{index}:select", ["r", "1"], {"limit": 3, "offset": 1})
        assert [row[0] for row in rows] == ([25, 40, 55] if timed else [4, 7, 10]) and desk.slices == 1
        # Without the priority in the index, the heap has another order.
        [rows] = desk.call("read.utube:select", ["r", "1"], {"limit": 3})
        assert [row[0] for row in rows] == [1, 4, 7]
    shop.engine.bury(shop.caller.connection.session, jobs[7], NOW)
    [rows] = desk.call("read.status:select", ["!"])
    assert [row[0] for row in rows] == [7] and desk.slices == 1


@pytest.mark.parametrize("policy", PRESETS.values(), ids=lambda policy: policy.type)
def test_tubes_of_every_type_can_be_read_by_all_of_their_indexes(
    shop: CommandEngine, desk: Desk, policy: TubePolicy
) -> None:
    tube = shop.engine.create_tube(NAME, policy, NOW)
    for number in range(5):
        shop.engine.put(tube, Draft(b"%d" % number), NOW)
    shop.engine.take(shop.caller.connection.session, tube, NOW)
    number = 1_024 + tube.number
    rows = sorted(desk.select(number, 0, 2, [], shop.caller))
    assert len(rows) == 5 and len({row[0] for row in rows}) == 5
    for _, index, _, _, _, parts in desk.select(289, 0, 0, [number], shop.caller):
        fields = [part["field"] if isinstance(part, dict) else part[0] for part in parts]
        assert sorted(desk.select(number, index, 2, [], shop.caller)) == rows
        for row in rows:
            for length in range(1, len(fields) + 1):
                key = [row[at] for at in fields[:length]]
                assert row in desk.select(number, index, 0, key, shop.caller)
                assert row in desk.select(number, index, 4, key, shop.caller)
                assert row not in desk.select(number, index, 6, key, shop.caller)
    assert {row[1] for row in rows} == {"r", "t"}
    [[_, task, *_]] = desk.call("_queue_taken_2:select")[0]
    assert desk.call("_queue_taken_2.task:get", [int(tube.number), task])[0][1] == task


def test_rows_are_in_index_order_even_if_jobs_are_served_in_another_order(shop: CommandEngine, desk: Desk) -> None:
    tube, jobs = filled(shop, FIFO, 1_000)
    session = shop.caller.connection.session
    first = shop.engine.take(session, tube, NOW)
    assert first is jobs[0]
    shop.engine.requeue(session, first, NOW)
    [rows] = desk.call("read.status:select", ["r"], {"limit": 2})
    assert [row[0] for row in rows] == [0, 1]


def test_too_many_rows_or_bytes_are_refused_instead_of_cut(shop: CommandEngine, desk: Desk) -> None:
    tube = shop.engine.create_tube(NAME, FIFO, NOW)
    for _ in range(BATCH_JOBS_MAX // 10_000):
        shop.engine.put_many(tube, [Draft(b"")] * 10_000, NOW)
    assert len(desk.call("read:select")[0]) == BATCH_JOBS_MAX
    shop.engine.put(tube, Draft(b""), NOW)
    for args in ((), ([], {"limit": BATCH_JOBS_MAX + 1}), ([0], {"iterator": "GE"})):
        with pytest.raises(BoxError, match="set a limit and continue with iterator GT") as refused:
            desk.call("read:select", *args)
        assert refused.value.number == 5
    [rows] = desk.call("read:select", [BATCH_JOBS_MAX - 1], {"iterator": "GT"})
    assert [row[0] for row in rows] == [BATCH_JOBS_MAX]
    assert desk.call("read:count") == [BATCH_JOBS_MAX + 1]
    big = shop.engine.create_tube(b"big", FIFO, NOW)
    shop.engine.put_many(big, [Draft(b"x" * (1 << 20))] * 18, NOW)
    with pytest.raises(BoxError, match="16777216 bytes"):
        desk.call("big:select")
    assert len(desk.call("big:select", [], {"limit": 10})[0]) == 10


def test_a_long_select_finds_each_row_that_stays_once_while_others_change(shop: CommandEngine, desk: Desk) -> None:
    tube, _ = filled(shop, FIFOTTL, 5_000)
    session = shop.caller.connection.session
    taken = shop.engine.take_many(session, [tube], 2_500, NOW)
    assert len(desk.call("read.status:select", ["t"])[0]) == 2_500 and desk.slices >= 5
    assert desk.call("read.status:count", ["t", 3], {"iterator": "LE"}) == [5_000] and desk.slices >= 5
    stay, leaving = {int(job.local) for job in taken[::2]}, taken[1::2]

    def change(caller: Caller, long: object) -> None:
        assert isinstance(long, SlicedCall)
        shop.long = long
        for job in leaving[:300]:
            shop.engine.release(session, job, NOW)
        del leaving[:300]

    shop.context.continue_sliced = change
    for space, index in (("read", "status"), ("_queue_taken", "task"), ("_queue_taken_2", "task")):
        at = {"read": 0, "_queue_taken": 2, "_queue_taken_2": 1}[space]
        key = ["t"] if space == "read" else [int(tube.number)]
        [rows] = desk.call(f"{space}.{index}:select", key)
        ids = [row[at] for row in rows]
        assert desk.slices > 1 and len(set(ids)) == len(ids) and stay <= set(ids), space
        assert ids == sorted(ids) or space == "read"


def test_consumers_that_leave_during_a_select_do_not_hide_others(shop: CommandEngine, desk: Desk) -> None:
    tube, keyed = shop.engine.create_tube(NAME, FIFO, NOW), shop.engine.create_tube(b"keyed", UTUBE, NOW)
    callers = [shop.another() for _ in range(1_500)]
    waits = [shop.engine.wait(caller.connection, [tube], NOW) for caller in callers]
    shop.engine.wait(callers[0].connection, [keyed], NOW, key=b"k")
    leaving = callers[900:1_100]

    def leave(caller: Caller, long: object) -> None:
        assert isinstance(long, SlicedCall)
        shop.long = long
        for caller in leaving:
            shop.engine.disconnect(caller.connection, NOW)
        leaving.clear()

    shop.context.continue_sliced = leave
    [rows] = desk.call("_queue_consumers:select")
    stayed = [wait.number for wait in waits[:900] + waits[1_100:]]
    assert [row[1] for row in rows if row[2] == tube.number] == stayed and len(rows) == len(stayed) + 1
    assert desk.call("_queue_consumers.consumer:count", [int(keyed.number)]) == [1]
    session = callers[3].connection.session.number
    assert [row[1] for row in desk.call("_queue_consumers:select", [session])[0]] == [waits[3].number]


def test_staged_jobs_are_in_no_space(shop: CommandEngine, desk: Desk) -> None:
    tube, _ = filled(shop, FIFO, 3)
    stage_jobs(shop.engine, b"s", tube, [Draft(b"hidden")], UNSET, NOW)
    assert tube.total() == 4
    assert len(desk.call("read:select")[0]) == 3 and desk.call("read:count") == [3]


def test_the_schema_lists_a_limited_number_of_spaces_and_finds_the_others_by_name(
    shop: CommandEngine, desk: Desk
) -> None:
    for number in range(3_000):
        shop.engine.create_tube(b"disque %d" % number, DISQUE, NOW)
    for number in range(LISTED_MAX + 10):
        shop.engine.create_tube(b"fifo %d" % number, FIFO, NOW)
    spaces = desk.select(281, 0, 2, [], shop.caller)
    assert LISTED_MAX <= len(spaces) <= LISTED_MAX + 1_000 and desk.slices > 10
    assert not [row for row in spaces if row[2].startswith("disque")]
    indexes = desk.select(289, 0, 2, [], shop.caller)
    assert len({row[0] for row in indexes}) >= LISTED_MAX
    for name in ("disque 7", f"fifo {LISTED_MAX + 9}"):
        [row] = desk.select(281, 2, 0, [name], shop.caller)
        assert row[0] == 1_024 + shop.engine.tube(name.encode()).number
        assert [index[2] for index in desk.select(289, 0, 0, [row[0]], shop.caller)][:2] == ["task_id", "status"]
        assert (
            desk.select(281, 0, 0, [row[0]], shop.caller) == [row] and desk.select(row[0], 0, 2, [], shop.caller) == []
        )


def test_a_client_sees_the_spaces_of_its_own_tubes(shop: CommandEngine, desk: Desk) -> None:
    for name in (b"mail.in", b"secret"):
        tube = shop.engine.create_tube(name, FIFO, NOW)
        shop.engine.put(tube, Draft(name), NOW)
        shop.engine.take(shop.caller.connection.session, tube, NOW)
        shop.engine.wait(shop.caller.connection, [tube], NOW)
    secret = 1_024 + shop.engine.tube(b"secret").number
    tenant = shop.another(b"mail.*")
    assert [row[2] for row in desk.select(281, 0, 2, [], tenant)] == ["_vspace", "_vindex", "mail.in"]
    for space, index, key in ((281, 2, ["secret"]), (281, 0, [secret]), (289, 0, [secret]), (281, 2, ["_queue"])):
        assert desk.select(space, index, 0, key, tenant) == []
    for number in (512, 513, 514, 515, secret, secret + 1):
        with pytest.raises(BoxError, match="does not exist") as refused:
            desk.select(number, 0, 2, [], tenant)
        assert refused.value.number == 36
    reader = shop.another(b"mail.*", b"_queue*")
    for name, rows in (("_queue", 1), ("_queue_taken", 1), ("_queue_taken_2", 1), ("_queue_consumers", 1)):
        assert (
            len(desk.call(f"{name}:select", caller=reader)[0]) == rows == desk.call(f"{name}:count", caller=reader)[0]
        )
    secret_id = int(shop.engine.tube(b"secret").number)
    assert desk.call("_queue:get", "secret", caller=reader) == []
    assert desk.call("_queue.tube_id:select", [secret_id], caller=reader) == [[]]
    assert desk.call("_queue_taken.task:get", [secret_id, 0], caller=reader) == []
    assert desk.call("_queue_taken_2:select", [secret_id], caller=reader) == [[]]
    assert desk.call("_queue_consumers.consumer:select", [secret_id], caller=reader) == [[]]


def test_a_client_that_may_not_read_gets_an_empty_schema_and_no_rows(shop: CommandEngine, desk: Desk) -> None:
    filled(shop, FIFO, 1)
    stranger = shop.another()
    stranger.is_authenticated = False
    for space in (272, 277, 281, 289):
        assert desk.select(space, 0, 2, [], stranger) == []
    for space in (512, 1_024 + shop.engine.tube(NAME).number, 9_999):
        with pytest.raises(BoxError, match="log in first") as refused:
            desk.select(space, 0, 2, [], stranger)
        assert refused.value.number == 42


def test_the_uuid_of_another_session_is_neither_shown_nor_searched(shop: CommandEngine, desk: Desk) -> None:
    tube, _ = filled(shop, FIFO, 2)
    other = shop.another()
    for caller in (shop.caller, other):
        shop.engine.take(caller.connection.session, tube, NOW)
    token = other.connection.session.token.decode()
    assert desk.call("_queue_taken_2.uuid:count", [token]) == [0]
    assert desk.call("_queue_taken_2.uuid:count", [token], caller=other) == [1]
    assert [row[3] for row in desk.call("_queue_taken_2:select", caller=other)[0]] == [None, token]


UPGRADED: dict[str, dict[str, Any]] = {
    "without a format": {"fields": {"status": 2}},
    "uuid": {"format": ["id", "status", "tube", "data"], "fields": {"status": "status", "tube": "tube"}},
    "tube in the key": {
        "format": [{"name": "tube", "type": "string"}, {"name": "id", "type": "unsigned"}, "status", "data"],
        "fields": {"status": "status", "tube": "tube"},
        "primary_key": ["tube", "id"],
    },
    "time64": {
        "format": [{"name": "id", "type": "number"}, "status", "runat", "data"],
        "fields": {"status": "status", "runat": "runat"},
        "features": {"id": "time64", "delayed": True},
    },
}


@pytest.mark.parametrize("name", UPGRADED)
def test_spaces_of_xqueue_with_any_key_can_be_read_by_all_of_their_indexes(
    shop: CommandEngine, desk: Desk, name: str
) -> None:
    space = desk.upgraded.upgrade(NAME, UPGRADED[name], NOW).space
    for number in range(6):
        task: Any = {"data": number, "tube": "ab"[number % 2], "id": number}
        if not space.options.format:
            task = [None, None, number]
        else:
            task = {key: value for key, value in task.items() if key in [field.name for field in space.options.format]}
        space.put(shop.caller, [task, {"delay": 10 - number} if name == "time64" and number > 3 else {}], NOW, None)
    space.take(shop.caller, [], NOW, None)
    # Other dialects have no rows.
    shop.engine.put(space.tube, Draft(b"plain", name=b"named"), NOW)
    number = 1_024 + int(space.tube.number)
    rows = desk.select(number, 0, 2, [], shop.caller)
    assert len(rows) == 7
    for _, index, _, _, _, parts in desk.select(289, 0, 0, [number], shop.caller):
        fields = [part["field"] if isinstance(part, dict) else part[0] for part in parts]
        found = desk.select(number, index, 2, [], shop.caller)
        assert sorted(map(repr, found)) == sorted(map(repr, rows))
        assert desk.select(number, index, 4, [], shop.caller) == found[::-1]
        for row in rows:
            for length in range(1, len(fields) + 1):
                key = [row[at] for at in fields[:length]]
                if None not in key and b"named" not in key and "named" not in key:
                    equal = desk.select(number, index, 0, key, shop.caller)
                    assert equal == [each for each in found if [each[at] for at in fields[:length]] == key]
