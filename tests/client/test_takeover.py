"""A session that is taken over by its token, with its jobs."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

import penstock
from penstock.client.backoff import Backoff
from penstock.client.connection import Connection
from penstock.core.errors import ConnectionLost
from tests.client.proxy import Proxy, proxy_to, url
from tests.server.serving import Server


def leave_behind(server: Server, name: str) -> tuple[str, Any]:
    """Return the token of a session whose client crashed, and the job that it holds."""
    with proxy_to(server.port) as way:
        crashed = penstock.connect(url(way.port), grace=60)
        tube = crashed.tube(name, "fifo")
        tube.put_many(["first", "second"])
        job = tube.take()
        token = crashed.token
        way.cut_all()
    for connection in crashed._session._idle:
        connection.close()
    return token, job


def test_a_job_of_a_session_that_was_taken_over_is_not_given_back(server: Server, proxy: Proxy, name: str) -> None:
    token, left = leave_behind(server, name)
    with penstock.connect(url(proxy.port)) as queue:
        tube = queue.tube(name)
        queue.identify(token)
        mine = queue.job(left.id)
        proxy.to_client = 20  # In the reply to the take.
        job = tube.take()
        assert job is not None and job.body == "second" and mine.state == "taken"
        assert not queue._session.held_jobs.is_empty(), "and no node is left with it"
        mine.ack()
        job.ack()
        assert queue._session.held_jobs.is_empty()


async def test_tasks_do_not_give_back_a_job_of_a_session_that_was_taken_over(
    server: Server, proxy: Proxy, name: str
) -> None:
    token, left = await asyncio.to_thread(leave_behind, server, name)
    async with penstock.connect_async(url(proxy.port)) as queue:
        tube = await queue.tube(name)
        await queue.identify(token)
        mine = await queue.job(left.id)
        proxy.to_client = 20
        job = await tube.take()
        assert job is not None and job.body == "second" and (await mine.meta())["state"] == "taken"
        assert not queue._session.held_jobs.is_empty()
        await mine.ack()
        await job.ack()
        assert queue._session.held_jobs.is_empty()


async def test_a_takeover_on_a_lost_connection_raises_or_succeeds(server: Server, proxy: Proxy, name: str) -> None:
    for at in range(0, 400, 37):
        token, left = await asyncio.to_thread(leave_behind, server, f"{name} {at}")
        async with penstock.connect_async(url(proxy.port)) as queue:
            proxy.to_client = at
            try:
                await queue.identify(token)
            except ConnectionLost:
                await queue.identify(token)
            proxy.to_client = None
            await (await queue.job(left.id)).ack()
            assert queue.token == token and queue._session.held_jobs.is_empty()


async def test_a_takeover_that_is_cancelled_leaves_no_connection_between_two_sessions(
    server: Server, name: str
) -> None:
    token, left = await asyncio.to_thread(leave_behind, server, name)
    for steps in range(1, 30):
        async with penstock.connect_async(url(server.port)) as queue:
            await queue.tubes()
            joining = asyncio.ensure_future(queue.identify(token))
            for _ in range(steps):
                await asyncio.sleep(0)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            said = await queue.execute("IDENTIFY")
            assert said[b"token"].decode() == queue.token
            await queue.identify(grace=60)  # The session has to outlive this client.
    async with penstock.connect_async(url(server.port)) as queue:
        await queue.identify(token)
        await (await queue.job(left.id)).ack()


def test_a_connection_made_during_a_takeover_does_not_undo_it(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, left = leave_behind(server, name)
    joined, go_on = threading.Event(), threading.Event()

    class Slow(Connection):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            joined.set()
            assert go_on.wait(20)

    with penstock.connect(url(server.port)) as queue:
        monkeypatch.setattr("penstock.client.session.Connection", Slow)
        opening = threading.Thread(target=lambda: queue._session._put_back(queue._session._open(Backoff(0), math.inf)))
        opening.start()
        assert joined.wait(20)
        taking_over = threading.Thread(target=queue.identify, args=(token,))
        taking_over.start()
        taking_over.join(0.2)  # It has finished, or waits for the other thread.
        go_on.set()
        opening.join(20)
        taking_over.join(20)
        assert queue.token == token
        queue.job(left.id).ack()


async def test_a_connection_made_during_a_takeover_does_not_undo_it_for_tasks(server: Server, name: str) -> None:
    token, left = await asyncio.to_thread(leave_behind, server, name)
    joined, go_on = asyncio.Event(), asyncio.Event()
    async with penstock.connect_async(url(server.port)) as queue:
        session = queue._session
        made = session._connect

        async def slowly(*args: Any) -> Any:
            connection = await made(*args)
            joined.set()
            await go_on.wait()
            return connection

        session._connect = slowly  # type: ignore[method-assign]
        opening = asyncio.ensure_future(session._open(False))
        await joined.wait()
        await queue.identify(token)
        go_on.set()
        connection = await opening
        assert queue.token == token == connection.token
        await (await queue.job(left.id)).ack()
