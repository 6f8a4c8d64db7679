"""Answers are printed exactly as redis-cli prints them."""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from penstock.cli.console.raw_replies import Reply, read
from penstock.cli.console.reply_formats import format_csv, format_json, format_raw, format_text
from penstock.core.errors import ProtocolError

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
    "nested": b"*3\r\n*2\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n*1\r\n*1\r\n+deep\r\n",
    "an error within": b"*2\r\n-ERR no\r\n:1\r\n",
}
ANSWERS_3 = {
    "a map": b"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n*2\r\n:2\r\n:3\r\n",
    "an empty map": b"%0\r\n",
    "a map of maps": b"*2\r\n%1\r\n$1\r\nk\r\n%1\r\n$1\r\nl\r\n_\r\n%1\r\n$1\r\nk\r\n#t\r\n",
    "a map of arrays": b"*1\r\n%2\r\n$1\r\nb\r\n*1\r\n:2\r\n$1\r\nc\r\n~2\r\n:2\r\n%2\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
    "a set": b"~2\r\n:1\r\n:2\r\n",
    "an empty set": b"~0\r\n",
    "a double": b",1.5\r\n",
    "yes": b"#t\r\n",
    "no": b"#f\r\n",
    "null": b"_\r\n",
    "verbatim": b"=9\r\ntxt:lines\r\n",
}


def answer_of(raw: bytes) -> Reply:
    return read(io.BytesIO(raw))


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
                    if b"HELLO" in connection.recv(4096):
                        connection.sendall(b"%0\r\n")
                        connection.recv(4096)
                    connection.sendall(raw)

            thread = threading.Thread(target=serve)
            thread.start()
            command = [str(found), "-p", str(listener.getsockname()[1]), *options, "anything"]
            done = subprocess.run(command, capture_output=True, timeout=20, check=False)
            thread.join()
            return done.stdout

    return show


CASES = [(name, raw, ["-2"]) for name, raw in ANSWERS.items()] + [
    (name, raw, ["-3"]) for name, raw in ANSWERS_3.items()
]


@pytest.mark.parametrize(("raw", "version"), [pytest.param(raw, v, id=name) for name, raw, v in CASES])
def test_an_answer_looks_as_in_redis_cli(redis_cli: Callable[..., bytes], raw: bytes, version: list[str]) -> None:
    assert format_text(answer_of(raw)).encode() == redis_cli(raw, *version, "--no-raw")
    assert format_raw(answer_of(raw)) == redis_cli(raw, *version, "--raw")
    assert format_csv(answer_of(raw)).encode() == redis_cli(raw, *version, "--csv")


def test_control_characters_in_answers_are_escaped() -> None:
    for kind in (b"+", b"-"):
        assert "\x1b" not in format_text(answer_of(kind + b"\x1b[2J\x07\r\n"))


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (ANSWERS["a job"], [["queue", "D-ab", "body"]]),
        (ANSWERS["an error"], {"error": "BADID Invalid Job ID format."}),
        (ANSWERS["nothing"], None),
        (ANSWERS["an integer"], -42),
        (ANSWERS_3["a map"], {"a": 1, "b": [2, 3]}),
        (b"%1\r\n:1\r\n+x\r\n", {"1": "x"}),
        (b"*3\r\n#t\r\n,1.5\r\n,inf\r\n", [True, 1.5, "inf"]),
        (b"$1\r\n\xff\r\n", "\\xff"),
    ],
)
def test_an_answer_is_a_line_of_json(raw: bytes, value: object) -> None:
    line = format_json(answer_of(raw))
    assert line.count("\n") == 1 and json.loads(line) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x00\x01\x02\n",
        b"$x\r\n",
        b"$99999999999\r\n",
        b"$-2\r\n",
        b"*+1\r\n",
        b"*1\r\n" * 100 + b":1\r\n",
        b"\r\n",
    ],
)
def test_an_invalid_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        answer_of(raw)


@pytest.mark.parametrize("raw", list(ANSWERS.values()) + list(ANSWERS_3.values()))
def test_an_incomplete_answer_is_refused(raw: bytes) -> None:
    for end in range(len(raw)):
        with pytest.raises((EOFError, ProtocolError)):
            answer_of(raw[:end])
