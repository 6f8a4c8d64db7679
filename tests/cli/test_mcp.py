"""`penstock mcp`, with a client of the protocol: an assistant reads a queue, and changes nothing without the flag."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import penstock
from tests.server.serving import environment

READING = {"list_tubes", "find_jobs", "show_job", "job_history", "failed_jobs"}
Answers = dict[str, Any]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A queue with a job that was buried twice for the same cause, one that is ready, and one that is done."""
    with penstock.open(tmp_path / "queue") as queue:
        tube = queue.tube("orders", "fifo")
        for number in (10_001, 10_002):
            tube.put({"order": number})
            job = tube.take()
            assert job is not None
            job.bury(f"order {number} not found")
        tube.put({"order": 3, "note": "x" * 5_000})
    return tmp_path / "queue"


def ask(home: Path, calls: Callable[[ClientSession], Any], *words: str) -> Any:
    """Start `penstock mcp`, and return what `calls` returns."""

    async def talk() -> Any:
        command = ["-m", "penstock", "mcp", "--dir", str(home), *words]
        server = StdioServerParameters(command=sys.executable, args=command, env=environment())
        async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            return await calls(session)

    return asyncio.run(talk())


def text_of(answer: Any) -> str:
    return "\n".join(part.text for part in answer.content)


def test_an_assistant_finds_out_why_jobs_failed(home: Path) -> None:
    async def calls(session: ClientSession) -> list[Any]:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        failed = await session.call_tool("failed_jobs", {"tube": "orders"})
        (group,) = failed.structured_content["result"]
        history = await session.call_tool("job_history", {"id": group["example"]})
        found = await session.call_tool("find_jobs", {"tube": "orders", "where": "body.order == 3"})
        return [group, text_of(history), found.structured_content["result"]]

    group, history, (found,) = ask(home, calls)
    assert group["cause"] == "order … not found" and group["jobs"] == 2
    assert "put into orders" in history and "buried" in history and "order 10001 not found" in history
    assert found["state"] == "ready" and len(found["body"]) < 2_100 and found["body"].endswith("… (cut)")


def test_errors_are_answers_and_bodies_can_be_hidden(home: Path) -> None:
    async def calls(session: ClientSession) -> list[Any]:
        wrong = [
            await session.call_tool("failed_jobs", {"tube": "nowhere"}),
            await session.call_tool("find_jobs", {"tube": "orders", "where": "import os"}),
            await session.call_tool("show_job", {"id": "nothing"}),
            await session.call_tool("redrive", {"tube": "orders", "dry_run": False}),
        ]
        assert all(answer.is_error for answer in wrong)
        found = await session.call_tool("find_jobs", {"tube": "orders"})
        return [text_of(wrong[0]), found.structured_content["result"]]

    said, found = ask(home, calls, "--hide-bodies")
    assert "nowhere" in said and len(found) == 3
    assert not any("body" in record or "headers" in record for record in found)


def test_buried_jobs_return_only_with_the_flag_and_when_asked_twice(home: Path) -> None:
    async def calls(session: ClientSession) -> list[Any]:
        planned = await session.call_tool("redrive", {"tube": "orders"})
        before = await session.call_tool("list_tubes", {})
        done = await session.call_tool("redrive", {"tube": "orders", "dry_run": False})
        after = await session.call_tool("list_tubes", {})
        return [answer.structured_content for answer in (planned, before, done, after)]

    planned, before, done, after = ask(home, calls, "--allow-redrive")
    assert planned["would_redrive"] == 2 and before["result"][0]["buried"] == 2
    assert done["redriven"] == 2 and done["refused"] == []
    assert after["result"][0]["buried"] == 0 and after["result"][0]["ready"] == 3
