"""Hostile names and bodies on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.top.data import DirectoryBackend, QueueReader, ServerBackend
from penstock.core.errors import BadAnswer
from penstock.embedded import Queue
from tests.cli.test_top import Screen, shown
from tests.security.attempts import attempt
from tests.security.test_clients import NONSENSE, HostileServer
from tests.server.serving import PATIENCE_S, environment

# A name of each kind, and how it has to be displayed.
NAMES = {
    "markup": ("[bold red]big[/] [@click=app.quit]x[/]", "[bold red]big[/] [@click=app.quit]x[/]"),
    "link": ("[link=https://evil.example]pay[/link]", "[link=https://evil.example]pay[/link]"),
    "unclosed": ("[/bold][", "[/bold]["),
    "colour": ("\x1b[31;5mred\x1b[2J", r"\x1b[31;5mred\x1b[2J"),
    "title": ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    "C1": ("\x9b31mred\x9d0;t\x9c", r"\x9b31mred\x9d0;t\x9c"),
    "bidi": ("user\u202etxt.exe\u2066", r"user\u202etxt.exe\u2066"),
    "newline": ("one\ntwo\r\tthree\x0b\x0c\u2028", r"one\ntwo\r\tthree\x0b\x0c\u2028"),
    "nothing": ("\u200b\u200d\ufeff", r"\u200b\u200d\ufeff"),
    "backspace": ("safe\b\b\b\bevil\x7f", r"safe\x08\x08\x08\x08evil\x7f"),
}
LONG = "\x1b" + "x" * 65_000

# Characters that no name may send to a terminal: C0, C1, format characters and separators.
ORDERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
# Sequences that rich itself sends to a terminal: colours and so on.
STYLES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue whose tubes, keys, bodies and reasons are hostile."""
    directory = tmp_path_factory.mktemp("hostile") / "queue"
    with penstock.open(directory) as queue:
        for text, _ in NAMES.values():
            tube = queue.tube(text, "utubettl")
            tube.put(text, key=text)
            tube.put({text: [text]}, key="other")
            job = tube.take(key=text)
            assert job is not None
            job.bury(text)
        queue.tube(LONG).put(LONG)
    return directory


def driven(queue: Queue, script: str) -> list[str]:
    """Press keys in `penstock top`. Return the screen after each."""

    async def run() -> list[str]:
        watcher = QueueReader(queue.session, DirectoryBackend(None), clock=lambda: 0.0)
        async with shown(watcher) as screen:
            seen = [screen.text]
            for key in script.split():
                await screen.press(key)
                seen.append(screen.text)
            return seen

    return asyncio.run(run())


@attempt(
    "markup, links, ANSI, C1, bidi and control characters in names of tubes, in keys, bodies and reasons; penstock top",
    port="terminal",
    caller="user who may put jobs",
    result="shown escaped, on one line; markup is text; nothing crashes",
)
def test_top_shows_names_as_text() -> None:
    with penstock.open(":memory:") as queue:
        for text, _ in NAMES.values():
            tube = queue.tube(text, "utubettl")
            tube.put(text, key=text)
            tube.put("to be buried", key="b")
            job = tube.take(key="b")
            assert job is not None
            job.bury(text)

        async def run() -> None:
            watcher = QueueReader(queue.session, DirectoryBackend(None), clock=lambda: 0.0)
            async with shown(watcher) as screen:
                for _, escaped in NAMES.values():
                    assert escaped in screen.text, screen.text
                for kind in ("markup", "colour", "newline"):
                    screen.top._tube = NAMES[kind][0]
                    await screen.press("right")
                    await screen.sees(f"{NAMES[kind][1]}: ")
                    assert screen.text.count(NAMES[kind][1]) >= 2  # In the title, and as a body.
                    await screen.press("T")
                    await screen.sees(f"of tube {NAMES[kind][1]}, in any state?")
                    assert not ORDERS.search(screen.text)
                    await screen.press("escape", "left")
                await screen.press("right", "right", "right")
                assert not ORDERS.search(screen.text)

        asyncio.run(run())


@attempt(
    "a name and a body of 64 KB in penstock top, and a tube that is gone when its jobs are shown",
    port="terminal",
    caller="user who may put jobs",
    result="cells are cut at 200 characters; the other columns stay on the screen",
)
def test_top_cuts_long_names() -> None:
    with penstock.open(":memory:") as queue:
        queue.tube(LONG).put(LONG)
        queue.tube("short").put("body")
        seen = driven(queue, "enter left end enter")
        assert "short" in seen[0] and not any(ORDERS.search(screen) for screen in seen)

        async def gone() -> str:
            watcher = QueueReader(queue.session, DirectoryBackend(None), clock=lambda: 0.0)
            async with shown(watcher) as screen:
                name = "\x1b[2Jgone\n[bold]"
                screen.top._tube = name
                await screen.press("right")
                await _sees(screen, "no longer exists.")
                return screen.text

        text = asyncio.run(gone())
        assert r"\x1b[2Jgone\n[bold]" in text and not ORDERS.search(text)


async def _sees(screen: Screen, words: str) -> None:
    await screen.sees(words)


@attempt(
    "answer penstock top's CLIENT LIST and INFO with malformed text and escapes",
    port="RESP, as the server",
    caller="hostile server",
    result="BadAnswer, which the screen shows as a sentence; figures are escaped",
)
def test_top_survives_any_reply_of_a_server() -> None:
    server = HostileServer()
    answers = [*NONSENSE.values(), b"$8\r\nid=1 x=y\r\n", b"$14\r\nid=1 age=x\x1b[2J\r\n", b"$0\r\n\r\n"]
    with contextlib.closing(server):
        for answer in answers:
            server.answers = {b"CLIENT": answer, b"INFO": answer}
            for ask in (ServerBackend().consumers, ServerBackend().figures):
                with contextlib.suppress(BadAnswer, ConnectionError), penstock.connect(server.url) as queue:
                    ask(queue)


def at_terminal(*words: object) -> str:
    """Return the output of a command on a terminal, without the styles that rich adds."""
    ours, theirs = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "160"}
    code = "from penstock.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=env,
    ) as process:
        os.close(theirs)
        seen = b"".join(_chunks(ours))
        assert process.wait(PATIENCE_S) == 0, seen
    os.close(ours)
    text = STYLES.sub("", seen.decode()).replace("\r\n", "\n")
    return text


def _chunks(descriptor: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # The other end is closed.
        while chunk := os.read(descriptor, 65_536):
            yield chunk


@attempt(
    "the same names in tables, records and timelines on a terminal: tube ls, dlq ls, job find, job show, job history",
    port="terminal",
    caller="user who may put jobs",
    result="shown escaped; markup is text; a name of 64 KB does not widen the other rows",
)
def test_tables_show_names_as_text(directory: Path) -> None:
    with penstock.open(directory) as queue:
        [job] = queue.tube(NAMES["colour"][0], "utubettl").jobs("buried")
        id = job.id
    for words in (["tube", "ls"], ["dlq", "ls"], ["job", "find"], ["job", "show", id], ["job", "history", id]):
        text = at_terminal(*words, "--dir", directory)
        assert not ORDERS.search(text), (words, ascii(ORDERS.search(text)))
        assert r"\x1b[31;5mred\x1b[2J" in text or words[:2] == ["job", "find"], (words, text[:500])
        if words == ["tube", "ls"]:
            # This includes shortened names: their visible part is text.
            assert all(escaped[:20] in text for _, escaped in NAMES.values())
            assert max(map(len, text.splitlines())) < 1_000


@attempt(
    "the same names in a pipe: tube ls, job show, tube info",
    port="standard output",
    caller="user who may put jobs",
    result="one line for each row, without control characters, and not padded to 64 KB",
)
def test_pipes_get_one_line_for_each_row(directory: Path) -> None:
    listed = CliRunner().invoke(app, ["tube", "ls", "--dir", str(directory)])
    assert listed.exit_code == 0 and len(listed.stdout.splitlines()) == len(NAMES) + 2
    assert not ORDERS.search(listed.stdout)
    assert sum(len(line) > 1_000 for line in listed.stdout.splitlines()) == 1
    for text, escaped in NAMES.values():
        told = CliRunner().invoke(app, ["tube", "info", text, "--dir", str(directory)])
        assert told.exit_code == 0 and escaped in told.stdout and not ORDERS.search(told.stdout)
