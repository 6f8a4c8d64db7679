"""What a server does by itself goes on, whatever becomes of it once."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from pathlib import Path

import pytest

from penstock.server import chores
from penstock.server.garbage import Garbage

from . import inside
from .serving import PATIENCE_S


def test_a_chore_that_failed_is_told_of_and_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with inside.server(tmp_path) as server:
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
            assert server.desk.internal_errors == 2
            told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
            assert told == ["'nor is this'", "by what is not there"]

    inside.run(main())


class Loop:
    """What keeps itself alive."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("thought_s", [1.0, 0.0], ids=["short", "long"])
def test_old_garbage_is_collected_where_that_is_thought_to_be_short(tmp_path: Path, thought_s: float) -> None:
    async def main() -> None:
        async with inside.server(tmp_path) as server:
            garbage = Garbage(server, thought_s)
            gc.disable()
            try:
                loop = Loop()
                for _ in range(20):
                    garbage.look()
                gone = weakref.ref(loop)
                del loop
                for _ in range(40):
                    garbage.look()
            finally:
                gc.enable()
            assert (gone() is None) == (thought_s > 0)

    inside.run(main())
