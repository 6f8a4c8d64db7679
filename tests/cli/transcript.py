"""Transcripts: files with commands and their output, which tests run again.

A line that begins with `$ ` is a command. The lines up to the next command are its output on both streams, and its exit
code if that is not 0. Ids and times differ between runs, so they are masked: the first job is `ID-1`, and a command can
use this name. `pytest tests/cli --update` rewrites the transcripts with the current output.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.main import app

JOB_ID = re.compile(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"), "MOMENT"),
    (
        re.compile(r'("(?:created|expires|wakes|next_event|time_ms|since_ms|wake_ms|expiry_ms)": )[0-9.]+'),
        r"\g<1>MOMENT",
    ),
    (re.compile(r'("(?:age|oldest|seconds|connect|answer|ttl|sync)": )[0-9.e-]+'), r"\g<1>TIME"),
    (
        re.compile(r'("(?:holder|session|actor|position|free|bytes|jobs_per_second|p\d\d_ms|max_ms)": )[0-9.]+'),
        r"\g<1>N",
    ),
    (re.compile(r"(oldest|connect|answer|age|sync)=[0-9.]+s"), r"\1=TIME"),
    (re.compile(r"(_seconds\{[^}]*\}) [0-9.]+"), r"\1 TIME"),
    (re.compile(r'("?(?:size|free|segments|behind)"?:?) [0-9]+(?:,[0-9]{3})*'), r"\1 N"),
    (re.compile(r"size is [0-9]+(?:,[0-9]{3})*"), "size is N"),
    (re.compile(r"127\.0\.0\.1:\d{4,5}"), "ADDRESS"),
    (re.compile(r"\b\d[\d.]* (?:ms|s|min|h|d)(?: \d+ (?:s|min|h))?\b"), "TIME"),
    (re.compile(r"(holder +|session )\d+"), r"\1N"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "NODE"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SECRET"),
    (re.compile(r"[ \t]{2,}"), "  "),
]


# Created once, because it takes longer than most commands.
COMMAND = get_command(app)


def run(words: list[str], piped: bytes, env: dict[str, str | None]) -> tuple[bytes, str, int]:
    """Run a command in this process. Return its standard output, its output on both streams, and its exit code."""
    code = 0
    with CliRunner(env=env).isolation(input=piped) as (stdout, _, output):
        try:
            COMMAND.main(words, prog_name="penstock")
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return stdout.getvalue(), output.getvalue().decode(errors="replace"), code


class Session:
    """A shell session: an environment in which commands run one after another."""

    def __init__(self, directory: Path, env: dict[str, str | None], names: dict[str, str]) -> None:
        self.directory = directory
        self.env = env
        self.names = names  # Real paths and addresses, and their names in the transcript.
        self.ids: list[str] = []

    def type(self, line: str) -> str:
        """Run a line and return its masked output."""
        for number in range(len(self.ids), 0, -1):
            line = line.replace(f"ID-{number}", self.ids[number - 1])
        for real, name in self.names.items():
            line = line.replace(name, real)
        piped, printed, code = b"", "", 0
        for stage in line.split(" | "):
            words = shlex.split(stage)
            if words[0] != "penstock":
                shell = subprocess.run(
                    ["bash", "-c", stage], input=piped, stdout=subprocess.PIPE, check=False, cwd=self.directory
                )
                piped, code = shell.stdout, shell.returncode
                printed = piped.decode(errors="replace")
                continue
            piped, printed, code = run(words[1:], piped, self.env)
        if printed and printed[-1] != "\n":
            printed += "\n"
        return self.mask(printed + (f"[exit code {code}]\n" if code else ""))

    def mask(self, text: str) -> str:
        """Replace the parts that differ between runs."""
        for id in JOB_ID.findall(text):
            if id not in self.ids:
                self.ids.append(id)
        text = JOB_ID.sub(lambda found: f"ID-{self.ids.index(found[0]) + 1}", text)
        for real, name in self.names.items():
            text = text.replace(real, name)
        for pattern, mask in MASKS:
            text = pattern.sub(mask, text)
        return "\n".join(line.rstrip() for line in text.split("\n"))


def commands(text: str) -> list[str]:
    """Return the commands of a transcript."""
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def replay(text: str, type: Callable[[str], str]) -> str:
    """Return the transcript with the current output. Lines before the first command are a comment and are kept."""
    head = text[: text.index("$ ")] if "$ " in text else text
    return head + "".join(f"$ {line}\n{type(line)}" for line in commands(text))
