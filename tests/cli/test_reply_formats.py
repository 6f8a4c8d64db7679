"""Answers are printed exactly as redis-cli prints them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from penstock.cli.console.raw_connection import RawConnection
from penstock.cli.console.reply_formats import format_raw, format_text
from penstock.client.url import target

ANSWERS = {
    "a status": b"+D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1\r\n",
    "an error": b"-BADID Invalid Job ID format.\r\n",
    "an integer": b":-42\r\n",
    "a bulk": b"$4\r\nbody\r\n",
    "an empty bulk": b"$0\r\n\r\n",
    "any bytes": b'$16\r\n\x00\x1b[2J"\\\n\r\t\a\b\xc3\xa9\xff~\r\n',
    "nothing": b"$-1\r\n",
    "no array": b"*-1\r\n",
    "an empty array": b"*0\r\n",
    "a job": b"*1\r\n*3\r\n$5\r\nqueue\r\n$4\r\nD-ab\r\n$4\r\nbody\r\n",
    "many": b"*12\r\n" + b"".join(b":%d\r\n" % number for number in range(12)),
    "nested": b"*3\r\n*2\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n*1\r\n*1\r\n$4\r\ndeep\r\n",
    "an error within": b"*2\r\n-ERR no\r\n:1\r\n",
}


def answer_of(raw: bytes) -> object:
    """Return the answer that a connection receives from a server that sends these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = RawConnection(target(f"penstock://127.0.0.1:{listener.getsockname()[1]}"))
        with contextlib.closing(connection), listener.accept()[0] as server:
            server.sendall(raw)
            return connection.receive()


@pytest.fixture(scope="module")
def redis_cli(needs: Callable[[object, str], None]) -> Callable[..., bytes]:
    """Return a function that gives the output of redis-cli for an answer."""
    found = shutil.which("redis-cli")
    needs(found, "redis-cli is not installed (Debian: apt-get install redis-tools)")

    def show(raw: bytes, *options: str) -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                connection = listener.accept()[0]
                with connection:
                    connection.recv(4096)
                    connection.sendall(raw)

            thread = threading.Thread(target=serve)
            thread.start()
            command = [str(found), "-p", str(listener.getsockname()[1]), *options, "anything"]
            done = subprocess.run(command, capture_output=True, timeout=20, check=False)
            thread.join()
            return done.stdout

    return show


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in ANSWERS.items()])
def test_an_answer_looks_as_in_redis_cli(redis_cli: Callable[..., bytes], raw: bytes) -> None:
    assert format_text(answer_of(raw)).encode() == redis_cli(raw, "-2", "--no-raw")
    assert format_raw(answer_of(raw)) == redis_cli(raw, "-2", "--raw")


def test_control_characters_in_answers_are_escaped() -> None:
    for kind in (b"+", b"-"):
        assert "\x1b" not in format_text(answer_of(kind + b"\x1b[2J\x07\r\n"))


@pytest.mark.parametrize(
    ("raw", "text", "plain"),
    [
        (
            b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n#t\r\n",
            '1) "a"\n2) (integer) 1\n3) "b"\n4) (true)\n',
            b"a\n1\nb\n(true)\n",
        ),
        (b"~2\r\n:1\r\n,1.5\r\n", "1) (integer) 1\n2) (double) 1.5\n", b"1\n1.5\n"),
        (b"_\r\n", "(nil)\n", b"\n"),
    ],
)
def test_answers_after_hello_3_are_shown(raw: bytes, text: str, plain: bytes) -> None:
    assert format_text(answer_of(raw)) == text
    assert format_raw(answer_of(raw)) == plain
