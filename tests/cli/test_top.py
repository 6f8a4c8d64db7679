"""`penstock top`, driven by keys: what is on the screen, and what is asked before anything is destroyed."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.target import place_of
from penstock.cli.top import watcher_of
from penstock.cli.top_app import Top
from penstock.cli.watching import DirectorySide, Watcher
from penstock.embedded import Queue
from tests.cli.terminal import Terminal, restarted
from tests.server.serving import PATIENCE_S, Server, environment


class Screen:
    """The terminal as somebody who types sees it."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top = top
        self._pilot = pilot

    async def press(self, *keys: str) -> str:
        """Press keys, and see what the screen says when all that came of it is done."""
        for key in keys:
            await self._pilot.press(key)
            await self.settled()
        return self.text

    async def settled(self) -> None:
        # What a thread has found comes as a message, and may start another one.
        for _ in range(3):
            await self.top.workers.wait_for_complete()
            await self._pilot._wait_for_screen()
        self.top.screen._on_timer_update()

    async def until(self, words: str) -> str:
        """Look again until the screen says so."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            await self.press("r")
        return self.text

    @property
    def text(self) -> str:
        lines = self.top.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)

    def said(self) -> list[str]:
        """What was told in passing."""
        return [note.message for note in self.top._notifications]


@asynccontextmanager
async def shown(watcher: Watcher, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Screen]:
    top = Top(watcher, "here", every_s=0, clock=clock)
    top.animation_level = "none"
    async with top.run_test(size=(150, 24)) as pilot:
        screen = Screen(top, pilot)
        await screen.settled()
        yield screen
    watcher.close()


@pytest.fixture
def queue() -> Iterator[Queue]:
    """A queue with something in every state."""
    with penstock.open(":memory:") as queue:
        emails, pages = queue.tube("emails"), queue.tube("pages", "utube")
        for number in range(4):
            emails.put({"to": f"user{number}"})
        emails.put("later", delay=900)
        for reason in ("no route", "no host"):
            job = emails.take()
            assert job is not None
            job.bury(reason)
        emails.take()
        pages.put("\x1b[31mred", key="a")
        yield queue


def looking_at(queue: Queue) -> Watcher:
    return Watcher(queue.session, DirectorySide(None), clock=lambda: 0.0)


def driven(queue: Queue, script: Callable[[Screen], Awaitable[None]]) -> None:
    """Run a script of keys against a queue."""

    async def run() -> None:
        async with shown(looking_at(queue)) as screen:
            await script(screen)

    asyncio.run(run())


SNAPSHOT = """\
 here  2 tubes: 2 ready, 1 taken, 1 delayed, 2 buried
 Tubes  Jobs  Consumers  Journal  Server
━
 tube    type     ready  taken  delayed  buried  kept  oldest  waiting  paused  in/s  out/s
 emails  fifottl      1      1        1       2     0  AGE            0  -       -     -
 pages   utube        1      0        0       0     0  AGE            0  -       -     -
"""


def test_every_tube_is_seen_at_a_glance(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        # How old the jobs are takes more room or less.
        seen = re.sub(r"[\d.]+ m?s(?= )", "AGE", re.sub("[╸╺━]+", "━", screen.text))
        told = [line.split() for line in seen.splitlines()]
        assert told[: SNAPSHOT.count("\n")] == [line.split() for line in SNAPSHOT.splitlines()]
        await screen.until("? Help")

    driven(queue, script)


def test_the_tabs_show_jobs_consumers_what_happens_and_the_server(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        jobs = await screen.press("enter")
        assert "emails: 1 ready, 1 taken, 1 delayed, 2 buried" in jobs and re.search(r"taken +1 +0 +\{\"to\"", jobs)
        assert re.search(r"session +tube +jobs held.*\n +1 +emails +1 +never", await screen.press("right"))
        assert "Nothing has happened since you look." in await screen.press("tab")
        queue.tube("pages").put("news", key="b")
        await screen.until("put")
        assert re.search(r"\d\d:\d\d:\d\d\.\d{3} +pages +put +ready +D-", screen.text)
        assert "memory" in await screen.press("right")
        assert "emails" in await screen.press("right") and "fifottl" in screen.text
        # Back in the first tab the second tube is chosen, and the jobs are its own; no body orders the terminal about.
        jobs = await screen.press("j", "enter")
        assert "pages: 2 ready" in jobs and "\\x1b[31mred" in jobs and "\x1b" not in jobs
        queue.tube("pages").drop()
        assert "There is no tube pages any more." in await screen.press("r") and "no answer" not in screen.text

    driven(queue, script)


def test_rows_are_filtered_and_looking_is_paused(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        assert "emails" not in await screen.press("slash", *"PAGE") and "pages" in screen.text
        # Keys are letters while something is typed.
        assert "No row has 'pagek' in it." in await screen.press("k")
        assert "fifottl" in await screen.press("backspace", "enter", "escape")
        assert "paused; p goes on" in await screen.press("p")
        assert "paused" not in (await screen.press("p")).lower().replace("oldest  waiting  paused", "")
        assert "Capitals destroy, and ask first" in await screen.press("question_mark")
        assert "Capitals destroy" not in await screen.press("escape")

    driven(queue, script)


def test_what_destroys_asks_with_the_number_and_the_tube(queue: Queue) -> None:
    emails = queue.tube("emails")

    async def script(screen: Screen) -> None:
        assert "Kick 2 buried jobs of tube emails?" in await screen.press("K")
        await screen.press("n")
        assert emails.stats()["buried"] == 2
        await screen.press("K", "y")
        assert emails.stats()["buried"] == 0 and "kicked 2 jobs of tube emails" in screen.said()
        await screen.press("K")
        assert "tube emails has no buried jobs" in screen.said()
        # A job is chosen in the second tab only.
        assert "Delete" not in (await screen.press("D")).replace("Delete job", "")
        await screen.press("enter", "j")
        assert re.search(r"Delete 1 job of tube emails: D-\S{38}\?", await screen.press("D"))
        await screen.press("y")
        assert emails.stats()["ready"] == 2 and "deleted 1 job of tube emails" in screen.said()
        assert "Delete all 4 jobs of tube emails, in whatever state?" in await screen.press("T")
        await screen.press("escape")
        assert sum(emails.stats().values()) == 4
        await screen.press("T", "y")
        assert sum(emails.stats().values()) == 0 and "deleted 4 jobs of tube emails" in screen.said()
        assert "Tube emails is empty." in screen.text
        await screen.press("T")
        assert "tube emails is empty" in screen.said()

    driven(queue, script)


def test_a_server_that_goes_away_is_said_and_found_again(tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendfsync", "never")
    url = f"penstock://127.0.0.1:{server.port}"
    now = 0.0

    async def script() -> None:
        nonlocal now
        async with shown(watcher_of(place_of(url)), lambda: now) as screen:
            assert "penstock put emails" in screen.text  # An empty server says what to do.
            with penstock.connect(url) as queue:
                queue.tube("emails").put("hello")
                assert "emails" in await screen.press("r")
            assert "penstock-top" in await screen.press("right", "right")
            assert "registered_jobs" in await screen.press("left", "left", "left", "slash", *"regi", "enter")
            await screen.press("escape", "right")
            server.kill()
            now = 12.0
            assert "no answer since 12 s: " in await screen.press("r") and "emails" in screen.text
            with restarted(server):
                assert "no answer" not in await screen.press("r")

    asyncio.run(script())


def test_without_a_queue_or_a_terminal_it_is_said_in_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["top", "-d", str(tmp_path)])
    assert result.exit_code == 2 and "this needs a terminal" in result.stderr
    terminal = Terminal(tmp_path, "top", "-d", str(tmp_path / "nothing"))
    assert "there is no queue here" in terminal.until("is right\n")
    assert terminal.ended() == 3


def test_without_textual_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['textual'] = None; from penstock.cli.main import app; app()"
    words = [sys.executable, "-c", code, "top", "-d", str(tmp_path)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and "pip install 'penstock[cli]'" in done.stderr and "Traceback" not in done.stderr
