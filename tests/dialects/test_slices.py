"""Commands about many jobs run in slices, so that other clients do not have to wait."""

from __future__ import annotations

import pytest

from penstock.core import states as s
from penstock.core.job import Draft
from penstock.core.limits import BATCH_JOBS_MAX
from penstock.core.policy import FIFO, FIFOTTL, UTUBE, TubePolicy
from penstock.core.tube import Tube
from penstock.dialects.spaces.methods import SpaceFunctions
from penstock.dialects.tarantool.calls import FunctionFamily, SlicedCall
from penstock.dialects.tarantool.queue_functions import TubeMethods
from penstock.dialects.xqueue.spaces import XqueueSpaces as XqueueSpaces
from penstock.node.caller import SLICE, SlicedCommand
from penstock.wire.iproto import CALL, Request
from penstock.wire.msgpack import pack, unpack

from .command_engine import NOW, CommandEngine, decoded

MANY = 2 * SLICE + 1
QUEUE = b"queue"


def add(shop: CommandEngine, count: int) -> list[bytes]:
    return [shop.ask(b"ADDJOB", QUEUE, b"", b"0")[1:-2] for _ in range(count)]


@pytest.mark.parametrize("name", [b"ACKJOB", b"DELJOB", b"DEQUEUE"])
def test_many_jobs_are_done_a_slice_at_a_time(shop: CommandEngine, name: bytes) -> None:
    ids = add(shop, MANY)
    tube = shop.engine.tube(QUEUE)
    assert shop.ask(name, *ids) == b""
    assert shop.long is not None
    left = [tube.count_in(s.READY)]
    while not shop.dispatcher.step(shop.caller, shop.long, NOW):
        left.append(tube.count_in(s.READY))
    assert left[0] == MANY
    assert max(before - after for before, after in zip(left, [*left[1:], 0], strict=True)) <= SLICE
    assert shop.caller.reply.take() == b":%d\r\n" % MANY


@pytest.mark.parametrize("name", [b"NACK", b"ENQUEUE"])
def test_many_jobs_are_put_back_a_slice_at_a_time(shop: CommandEngine, name: bytes) -> None:
    ids = add(shop, MANY)
    for _ in range(3):
        shop.ask(b"GETJOB", b"COUNT", b"%d" % SLICE, b"FROM", QUEUE)
    tube = shop.engine.tube(QUEUE)
    assert tube.count_in(s.TAKEN) == MANY
    shop.ask(name, *ids)
    assert shop.long is not None
    steps = 1
    while not shop.dispatcher.step(shop.caller, shop.long, NOW):
        steps += 1
    assert steps >= 2 * MANY // SLICE
    assert shop.caller.reply.take() == b":%d\r\n" % MANY
    assert tube.count_in(s.READY) == MANY


def test_a_wrong_id_after_many_correct_ones_prevents_all_changes(shop: CommandEngine) -> None:
    ids = add(shop, MANY)
    shop.ask(b"ACKJOB", *ids, b"no id")
    assert shop.long is not None
    while not shop.dispatcher.step(shop.caller, shop.long, NOW):
        pass
    assert shop.caller.reply.take().startswith(b"-BADID ")
    assert shop.engine.jobs.count == MANY


def test_one_slice_of_jobs_is_handled_at_once(shop: CommandEngine) -> None:
    assert shop.ask(b"ACKJOB", *add(shop, SLICE)) == b":%d\r\n" % SLICE
    assert shop.long is None


def test_count_is_an_upper_bound_and_no_take_gets_more_than_a_slice(shop: CommandEngine) -> None:
    add(shop, SLICE + 1)
    assert shop.ask(b"GETJOB", b"COUNT", b"100000", b"FROM", QUEUE).startswith(b"*%d\r\n" % SLICE)
    assert shop.ask(b"GETJOB", b"COUNT", b"100000", b"FROM", QUEUE).startswith(b"*1\r\n")


def test_a_peek_into_many_keys_examines_a_slice_at_a_time(shop: CommandEngine) -> None:
    tube = shop.engine.create_tube(QUEUE, UTUBE, NOW)
    jobs = shop.engine.put_many(tube, [Draft(b"%d" % number, key=b"%d" % number) for number in range(MANY)], NOW)
    shop.disque.peek_oldest(shop.caller, QUEUE, 2, NOW)
    assert shop.caller.reply.take() == b"" and shop.long is not None
    while not shop.dispatcher.step(shop.caller, shop.long, NOW):
        pass
    shown = [[QUEUE, shop.context.id_of(job), job.body] for job in jobs[:2]]
    assert decoded(shop.caller.reply.take()) == shown


def results(shop: CommandEngine, family: FunctionFamily, method: bytes, tube: bytes, *args: object) -> list[object]:
    """Return the results of a call after all of its slices."""
    call = Request(CALL, 0)
    call.args = [pack(arg) for arg in args]
    found = family.method(tube, method)
    assert found is not None
    answer = found.function(shop.caller, call, tube, NOW)
    while answer is None:
        assert isinstance(shop.long, SlicedCall)
        answer = shop.long.run_slice(shop.caller, NOW)
    told = unpack(answer)
    assert isinstance(told, list)
    return told


@pytest.mark.parametrize("policy", [FIFO, FIFOTTL, UTUBE], ids=lambda policy: policy.type)
@pytest.mark.parametrize("method", [b"tasks_by_state", b"select"])
def test_a_listing_of_a_tube_that_is_dropped_meanwhile_has_no_jobs_of_another_tube(
    shop: CommandEngine, policy: TubePolicy, method: bytes
) -> None:
    engine = shop.engine
    tube = engine.create_tube(QUEUE, policy, NOW)
    engine.put_many(tube, [Draft(b"mine")] * MANY, NOW)
    family, args = (
        (TubeMethods(shop.context), ["r"])
        if method == b"tasks_by_state"
        else (SpaceFunctions(shop.context, XqueueSpaces(shop.context)), [])
    )
    shop.context.continue_sliced = lambda caller, long: drop_and_go_on(shop, tube, long)
    [rows] = results(shop, family, method, QUEUE, *args)
    assert isinstance(rows, list) and SLICE <= len(rows) < MANY
    assert {row[-1] for row in rows} == {b"mine"}


def drop_and_go_on(shop: CommandEngine, tube: Tube, long: SlicedCommand) -> None:
    """Between two slices, replace a tube by another one in the same slot."""
    shop.engine.drop(tube, NOW)
    other = shop.engine.create_tube(b"secret", FIFO, NOW)
    assert other.slot == tube.slot
    shop.engine.put_many(other, [Draft(b"secret")] * MANY, NOW)
    shop.long = long


def test_a_list_of_a_dropped_tube_shows_nothing_that_went_to_the_one_in_its_place(shop: CommandEngine) -> None:
    engine = shop.engine
    tube = engine.create_tube(QUEUE, FIFO, NOW)
    jobs = engine.put_many(tube, [Draft(b"mine")] * MANY, NOW)
    shop.ask(b"JOB", b"LIST", QUEUE, b"ready", b"COUNT", b"%d" % SLICE)
    long = shop.long
    assert long is not None
    refuge = engine.create_tube(b"refuge", FIFO, NOW)
    engine.move(shop.caller.connection.session, jobs[SLICE - 1], refuge, NOW)
    drop_and_go_on(shop, tube, long)
    engine.move(shop.caller.connection.session, jobs[SLICE - 1], engine.tube(b"secret"), NOW)
    while not shop.dispatcher.step(shop.caller, long, NOW):
        pass
    answer = shop.caller.reply.take()
    assert QUEUE in answer and b"secret" not in answer


def test_counts_of_spaces_include_rows_beyond_the_limit_of_a_reply(shop: CommandEngine) -> None:
    engine, spaces = shop.engine, SpaceFunctions(shop.context, XqueueSpaces(shop.context))
    shop.context.continue_sliced = None
    tube = engine.create_tube(b"taken", FIFO, NOW)
    for _ in range(BATCH_JOBS_MAX // 10_000 + 1):
        engine.put_many(tube, [Draft(b"")] * 10_000, NOW)
        engine.take_many(shop.caller.connection.session, [tube], 10_000, NOW)
    awaited, keyed = engine.create_tube(b"awaited", FIFO, NOW), engine.create_tube(b"keyed", UTUBE, NOW)
    for number in range(MANY):
        engine.wait(shop.another().connection, [awaited], NOW)
        engine.wait(shop.another().connection, [keyed], NOW, key=b"%d" % number)
    for name in (b"_queue_taken", b"_queue_taken_2"):
        assert results(shop, spaces, b"count", name) == [BATCH_JOBS_MAX + 10_000]
    assert results(shop, spaces, b"len", b"_queue_consumers") == [2 * MANY]
    assert results(shop, spaces, b"len", b"_queue") == [3]
    shop.caller = shop.another(b"keyed", b"_queue*")
    assert results(shop, spaces, b"len", b"_queue_consumers") == [MANY]
    assert results(shop, spaces, b"len", b"_queue") == [1] and results(shop, spaces, b"len", b"_queue_taken") == [0]
