"""The journal of a server through its clients: events, histories, checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock.core.errors import BadId, NoJournal, OutOfRange
from penstock.journal.history.reader import Reader
from penstock.journal.real_disk import ReadOnlyDisk
from tests.server.serving import Server


def url(server: Server) -> str:
    return f"penstock://127.0.0.1:{server.port}"


async def test_both_clients_read_the_same_history_as_the_embedded_queue(start: Callable[..., Server]) -> None:
    server = start("--dir", "data")
    with penstock.connect(url(server)) as queue:
        tube = queue.tube("history", "fifottl")
        tube.put_many(range(1_500))
        job = tube.take()
        assert job is not None
        job.nack("no reason")
        queue.checkpoint()
        told, found = queue.history(job.id), list(queue.events())
        assert [event.event for event in told] == ["put", "taken", "nacked"] and job.history() == told
        assert told[-1].reason == "no reason" and told[0].body == b"0" and len(found) > 1_500
        assert [event for event in found if event.job == job.id] == told
        assert list(queue.events(found[-3].position)) == found[-3:]
        end = found[-1].position + 1
        digests = list(queue.digests(end=end))
        assert digests[-1].end == end and sum(block.rows for block in digests) > 1_500
        assert list(queue.digests())[: len(digests) - 1] == digests[:-1]
        with pytest.raises(OutOfRange, match="beyond the end"):
            queue.digests(end + 1_000)
    async with penstock.connect_async(url(server)) as both:
        assert await both.history(job.id) == told
        assert [event async for event in await both.events()][: len(found)] == found
        assert [block async for block in await both.digests(1, end)] == digests
        # The tables of a lake have the number of a job instead of its id. It is valid for the history only.
        number = str(Reader(ReadOnlyDisk(str(server.home / "data"))).number_of(job.id))
        assert await both.history(number) == told
        assert await both.history("7") == []
        for bad in (str(1 << 63), "-1", "+1", "²"):
            with pytest.raises(BadId):
                await both.history(bad)
        with pytest.raises(BadId):
            await both.job(number)
    server.stop()
    with penstock.open(server.home / "data") as embedded:
        assert embedded.history(job.id)[:3] == embedded.history(number)[:3] == told
        assert list(embedded.digests(1, end)) == digests
        with pytest.raises(OutOfRange, match="beyond the end"):
            embedded.digests(end + 1_000)
    async with penstock.open_async(server.home / "data") as embedded_async:
        assert [block async for block in await embedded_async.digests(1, end)] == digests


def test_a_server_without_a_journal_has_no_history(start: Callable[..., Server]) -> None:
    server = start("--no-journal")
    with penstock.connect(url(server)) as queue:
        job = queue.tube("forgetful").put("x")
        for call in (queue.events, queue.digests, job.history, lambda: queue.subscribe(print)):
            with pytest.raises(NoJournal):
                call()
