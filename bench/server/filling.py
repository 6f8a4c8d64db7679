"""Fills a queue before a measurement."""

from __future__ import annotations

from bench.server.processes import Server, command

_BATCH = 1_000
_BODY = b"x" * 40


def fill(server: Server, queue: str, jobs: int, *options: object) -> None:
    """Add the given number of jobs to a queue."""
    batch = command("ADDJOB", queue, _BODY, 0, *options) * _BATCH
    with server.connect() as connection:
        answers = connection.makefile("rb")
        for _ in range(jobs // _BATCH):
            connection.sendall(batch)
            for _ in range(_BATCH):
                answer = answers.readline()
                if answer[:1] != b"+":
                    raise RuntimeError(f"a job was refused: {answer.decode().strip()}")
