"""`penstock top`, driven by keys: the content of the screen, and the questions before destructive commands."""

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
from penstock.cli.commands.top import open_reader
from penstock.cli.main import app
from penstock.cli.targets import parse_address
from penstock.cli.top.data import DirectoryBackend, QueueReader
from penstock.cli.top.screen import Top
from penstock.embedded import Queue
from tests.cli.terminal import Terminal, restarted
from tests.server.serving import PATIENCE_S, Server, environment


class Screen:
    """The screen of a running `penstock top`."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top = top
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until all their effects have happened."""
        for key in keys:
            await self._pilot.press(key)
            await self.settled()

    async def settled(self) -> None:
        # A thread sends its result as a message, which may start another thread.
        for _ in range(3):
            await self.top.workers.wait_for_complete()
            await self._pilot._wait_for_screen()

    async def sees(self, *words: str) -> None:
        """Wait until all of these texts are on the screen. Textual lays out a widget when it is idle."""
        await self.until(lambda: all(word in self.text for word in words), f"see {words}")

    async def sees_not(self, *words: str) -> None:
        """Wait until none of these texts is on the screen."""
        await self.until(lambda: not any(word in self.text for word in words), f"not see {words}")

    async def matches(self, pattern: str) -> None:
        """Wait until the screen matches a pattern."""
        await self.until(lambda: re.search(pattern, self.text), f"see what is like {pattern}")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"does not {what}:\n{self.text}"
            await self._pilot.pause()

    async def told(self, words: str) -> None:
        """Wait until a notification with this text has appeared."""
        await self.until(lambda: words in [note.message for note in self.top._notifications], f"hear {words!r}")

    @property
    def text(self) -> str:
        lines = self.top.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)


@asynccontextmanager
async def shown(watcher: QueueReader, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Screen]:
    top = Top(watcher, "here", every_s=0, clock=clock)
    top.animation_level = "none"
    async with top.run_test(size=(150, 24)) as pilot:
        screen = Screen(top, pilot)
        await screen.settled()
        yield screen
    watcher.close()


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Yield a queue with jobs in every state."""
    with penstock.open(":memory:") as queue:
        emails, pages = queue.tube("emails", "fifottl"), queue.tube("pages", "utube")
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


def looking_at(queue: Queue) -> QueueReader:
    return QueueReader(queue.session, DirectoryBackend(None), clock=lambda: 0.0)


def driven(queue: Queue, script: Callable[[Screen], Awaitable[None]]) -> None:
    """Run a script of keys with a queue."""

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


def test_the_first_tab_shows_every_tube(queue: Queue) -> None:
    def seen(screen: Screen) -> list[list[str]]:
        # The ages of jobs have different widths.
        text = re.sub(r"[\d.]+ m?s(?= )", "AGE", re.sub("[╸╺━]+", "━", screen.text))
        return [line.split() for line in text.splitlines()]

    async def script(screen: Screen) -> None:
        expected = [line.split() for line in SNAPSHOT.splitlines()]
        await screen.until(lambda: seen(screen)[: len(expected)] == expected, "look as it should")
        await screen.sees("? Help", "q Quit")

    driven(queue, script)


def test_the_tabs_show_jobs_consumers_changes_and_the_server(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("enter")
        await screen.sees("emails: 1 ready, 1 taken, 1 delayed, 2 buried")
        await screen.matches(r"taken +[\d.]+ m?s +1 +0 +- +- +\{\"to\"")
        await screen.matches(r"buried +[\d.]+ m?s +1 +0 +- +no host +\{\"to\"")
        await screen.press("right")
        await screen.matches(r"session +tube +jobs held.*\n +1 +emails +1 +never")
        await screen.press("tab")
        await screen.sees("No changes since the start.")
        queue.tube("pages").put("news", key="b")
        # A thread delivers the change, which may take a while.
        await screen.until(lambda: screen.top._watcher._changes, "hear of a change")
        await screen.press("r")
        await screen.matches(r"\d\d:\d\d:\d\d\.\d{3} +pages +put +ready +D-")
        await screen.press("right")
        await screen.sees("kept in", "memory")
        await screen.press("right")
        await screen.sees("emails", "fifottl")
        # Select the second tube in the first tab. The second tab shows its jobs, with control characters escaped.
        await screen.press("j", "enter")
        await screen.sees("pages: 2 ready", "\\x1b[31mred")
        assert "\x1b" not in screen.text
        queue.tube("pages").drop()
        await screen.press("r")
        await screen.sees("The tube pages no longer exists.")
        assert "no answer" not in screen.text

    driven(queue, script)


def test_a_job_is_opened_with_its_properties_and_its_history(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "jobs") as queue:
        tube = queue.tube("pages", "utube")
        tube.put({"url": "\x1b[31mred"}, key="host a", headers={"tenant": "acme"})
        job = tube.take()
        assert job is not None
        job.bury("no [bold]route")

        async def script(screen: Screen) -> None:
            await screen.sees("pages")
            await screen.press("enter")
            await screen.matches(r"buried +[\d.]+ m?s +1 +0 +host a +no \[bold\]route")
            await screen.press("enter")
            await screen.sees(job.id, "key       host a", "reason    no [bold]route", "header tenant acme")
            await screen.sees("put into pages", "taken by session 1 (delivery 1)", "buried", "because no [bold]route")
            await screen.matches(r"has been buried for [\d.]+ m?s")
            assert "\x1b" not in screen.text and "[31mred" in screen.text
            await screen.press("j", "k", "escape")
            await screen.sees_not("has been buried")
            # A job that has ended meanwhile still has its history.
            await screen.press("p")
            job.delete()
            await screen.press("enter")
            await screen.sees("state     gone", "deleted")

        driven(queue, script)


def test_a_queue_without_a_journal_says_why_there_is_no_history(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        await screen.press("enter", "enter")
        await screen.sees("This queue has no journal", "tries     0, of which 0 failed")

    driven(queue, script)


def test_rows_are_filtered_and_refreshes_are_paused(queue: Queue) -> None:
    async def script(screen: Screen) -> None:
        await screen.sees("emails")
        await screen.press("slash", *"PAGE")
        await screen.sees_not("emails")
        # While a filter is typed, keys are text.
        await screen.press("k")
        await screen.sees("No row has 'pagek' in it.")
        await screen.press("backspace", "enter", "escape")
        await screen.sees("fifottl")
        await screen.press("p")
        await screen.sees("paused; press p to resume")
        await screen.press("p")
        await screen.sees_not("paused; press p to resume")
        await screen.press("question_mark")
        await screen.sees("Capitals are destructive and ask first")
        await screen.press("escape")
        await screen.sees_not("Capitals are destructive")

    driven(queue, script)


def test_destructive_keys_ask_with_the_number_of_jobs_and_the_tube(queue: Queue) -> None:
    emails = queue.tube("emails")

    async def script(screen: Screen) -> None:
        await screen.press("K")
        await screen.sees("Kick 2 buried jobs of tube emails?")
        await screen.press("n")
        await screen.sees_not("Kick 2 buried")
        assert emails.stats()["buried"] == 2
        await screen.press("K", "y")
        await screen.told("kicked 2 jobs of tube emails")
        assert emails.stats()["buried"] == 0
        await screen.press("K")
        await screen.told("tube emails has no buried jobs")
        # A job can be selected only in the second tab.
        await screen.press("D", "enter", "j")
        await screen.sees("emails: 3 ready", "later")
        await screen.press("D")
        await screen.matches(r"Delete 1 job of tube emails: D-\S{38}\?")
        await screen.press("y")
        await screen.told("deleted 1 job of tube emails")
        assert emails.stats()["ready"] == 2
        await screen.press("T")
        await screen.sees("Delete all 4 jobs of tube emails, in any state?")
        await screen.press("escape")
        await screen.sees_not("Delete all")
        assert sum(emails.stats().values()) == 4
        await screen.press("T", "y")
        await screen.told("deleted 4 jobs of tube emails")
        assert sum(emails.stats().values()) == 0
        await screen.sees("Tube emails is empty.")
        await screen.press("T")
        await screen.told("tube emails is empty")

    driven(queue, script)


def test_a_lost_server_is_reported_and_reconnected(tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendfsync", "never")
    url = f"penstock://127.0.0.1:{server.port}"
    now = 0.0

    async def script() -> None:
        nonlocal now
        async with shown(open_reader(parse_address(url)), lambda: now) as screen:
            await screen.sees("penstock put emails")  # An empty server shows a hint.
            with penstock.connect(url) as queue:
                queue.tube("emails").put("hello")
            await screen.press("r")
            await screen.matches("emails +fifottl +1")
            await screen.press("right", "right")
            await screen.sees("penstock-top")
            await screen.press("left", "left", "left")
            await screen.matches(r"version +\d+\.\d+\.\d+, (compiled|interpreted), Python 3")
            await screen.matches(r"clients +\d+, of which \d+ wait\n +commands per second +\d+")
            await screen.matches(r"memory +\S+ \S+ of .* for jobs, .* in all\n +journal +.* fsync never")
            await screen.sees("fsync time", "event loop lag", "this node is not in a cluster")
            await screen.press("slash", *"regi", "enter")
            await screen.sees("registered_jobs")
            await screen.press("escape", "right")
            await screen.sees("fifottl")
            server.kill()
            now = 12.0
            await screen.press("r")
            await screen.sees("no answer for 12 s: ", "fifottl")
            with restarted(server):
                await screen.press("r")
                await screen.sees_not("no answer")

    try:
        asyncio.run(script())
    finally:
        server.kill()


def test_a_missing_queue_or_terminal_is_reported_in_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["top", "-d", str(tmp_path)])
    assert result.exit_code == 2 and "`penstock top` needs a terminal" in result.stderr
    terminal = Terminal(tmp_path, "top", "-d", str(tmp_path / "nothing"))
    assert "there is no queue here" in terminal.until("to create a queue\n")
    assert terminal.ended() == 3


def test_without_textual_the_error_names_the_package(tmp_path: Path) -> None:
    code = "import sys; sys.modules['textual'] = None; from penstock.cli.main import app; app()"
    words = [sys.executable, "-c", code, "top", "-d", str(tmp_path)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (
        done.returncode == 1 and "pip install 'penstock-queue[cli]'" in done.stderr and "Traceback" not in done.stderr
    )
