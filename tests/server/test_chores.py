"""Periodic tasks of a server continue after a failure."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.node.dispatch import DispatchHooks
from penstock.server import chores
from penstock.server.gc_schedule import GarbageCollection

from . import in_process
from .serving import PATIENCE_S, Word, command


def test_a_failed_task_is_reported_and_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            done = asyncio.Event()
            fails = [ZeroDivisionError("by what is not there"), KeyError("nor is this")]

            def chore() -> None:
                if fails:
                    raise fails.pop()
                done.set()

            with caplog.at_level(logging.ERROR, "penstock"):
                task = asyncio.ensure_future(chores.every(server, 0, chore, 0))
                await asyncio.wait_for(done.wait(), PATIENCE_S)
            task.cancel()
            assert server.dispatcher.internal_errors == 2
            told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
            assert told == ["'nor is this'", "by what is not there"]

    in_process.run(main())


class Loop:
    """An object that is part of a reference cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("thought_s", [1.0, 0.0], ids=["short", "long"])
def test_a_full_collection_runs_only_if_it_is_estimated_to_be_short(tmp_path: Path, thought_s: float) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            garbage = GarbageCollection(server, thought_s)
            gc.disable()
            try:
                loop = Loop()
                for _ in range(20):
                    garbage.collect()
                gone = weakref.ref(loop)
                del loop
                for _ in range(40):
                    garbage.collect()
            finally:
                gc.enable()
            assert (gone() is None) == (thought_s > 0)

    in_process.run(main())


def test_a_task_with_more_to_do_runs_again_after_other_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path) as server:
            slept: list[float] = []

            async def noted(seconds: float) -> None:
                slept.append(seconds)
                await asyncio.sleep(0)

            monkeypatch.setattr(chores, "asyncio", SimpleNamespace(sleep=noted))
            more = [None, False, True, True]
            with pytest.raises(IndexError):
                # The error is checked elsewhere.
                server.dispatcher.hooks = DispatchHooks()
                await chores.every(server, 60.0, more.pop)
            assert slept == [60.0, 0, 0, 60.0, 60.0]

    in_process.run(main())


def test_delivered_at_most_once_jobs_are_evicted_for_new_ones(tmp_path: Path) -> None:
    """According to Disque's manual, these jobs need no ack."""

    async def main() -> None:
        async with (
            in_process.server(tmp_path, "--no-journal", "--maxmemory", "8mb") as server,
            in_process.client(server.config.port) as (reader, writer),
        ):

            async def said(*words: Word) -> bytes:
                writer.write(command(*words))
                return await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE_S)

            assert not server.evict()
            await said("ADDJOB", "again", "", 0)
            await said("ADDJOB", "once", "", 0, "RETRY", 0)
            # A client takes them and never acks.
            assert await said("CONFIG", "SET", "maxmemory-policy", "noeviction") == b"+OK\r\n"
            while not (await said("ADDJOB", "taken", "", 0, "RETRY", 0)).startswith(b"-OOM"):
                writer.write(command("CLIENT", "REPLY", "SKIP") + command("GETJOB", "FROM", "taken"))
            assert await said("CONFIG", "SET", "maxmemory-policy", "acks") == b"+OK\r\n"
            limit = 4 << 20
            assert await said("CONFIG", "SET", "maxmemory", limit) == b"+OK\r\n"
            slices = 1
            while server.evict():
                slices += 1
            # Other clients were served often enough, and no more was deleted than necessary.
            assert slices > 10
            assert limit * 94 // 100 < server.used_memory() <= limit * 95 // 100
            assert await said("QLEN", "again") == await said("QLEN", "once") == b":1\r\n"
            assert (await said("ADDJOB", "taken", "", 0, "RETRY", 0)).startswith(b"+")

    in_process.run(main())


def test_no_add_is_refused_while_there_is_a_job_that_can_be_evicted(tmp_path: Path) -> None:
    """Many other jobs are taken and cannot be evicted. Only the adds themselves free memory here."""

    async def main() -> None:
        async with (
            in_process.server(tmp_path, "--no-journal", "--maxmemory", "6mb") as server,
            in_process.client(server.config.port) as (reader, writer),
        ):

            async def said(*words: Word) -> bytes:
                writer.write(command(*words))
                return await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE_S)

            silent = command("CLIENT", "REPLY", "SKIP")
            for _ in range(6):
                writer.write(silent + command("MPUT", "other", *(["JOB", ""] * 1_000)))
                writer.write(silent + command("TAKE", "other", "COUNT", 1_000))
            for _ in range(300):
                assert (await said("ADDJOB", "once", "x" * 8_000, 0, "RETRY", 0)).startswith(b"+")
                writer.write(silent + command("GETJOB", "FROM", "once"))
            await said("PING")
            engine = server.turn.engine
            evicted, before = 0, len(engine.delivered_once)
            while engine.delivered_once:
                answer = await said("ADDJOB", "more", "x" * 2_000, 0)
                assert answer.startswith(b"+") or not engine.delivered_once, answer
                evicted = before - len(engine.delivered_once)
            assert evicted == before == 300
            assert len(engine.tubes[b"other"].taken.items) == 6_000

    in_process.run(main())


def test_nothing_is_evicted_with_a_journal_or_with_noeviction(tmp_path: Path) -> None:
    async def main() -> None:
        async with in_process.server(tmp_path, "--no-journal", "--maxmemory", "1mb") as server:
            for _ in range(2):
                assert (await in_process.ask(server.config.port, "ADDJOB", "q", "x" * 500_000, 0, "RETRY", 0))[
                    :1
                ] == b"+"
                assert (await in_process.ask(server.config.port, "GETJOB", "FROM", "q"))[:2] == b"*1"
            used = server.used_memory()
            for setting, value, other in (("maxmemory-policy", "noeviction", "acks"), ("appendonly", "yes", "no")):
                assert await in_process.ask(server.config.port, "CONFIG", "SET", setting, value) == b"+OK\r\n"
                assert not server.evict()
                assert server.used_memory() == used
                assert await in_process.ask(server.config.port, "CONFIG", "SET", setting, other) == b"+OK\r\n"
            assert not server.evict()
            assert server.used_memory() < used

    in_process.run(main())
