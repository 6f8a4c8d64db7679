"""A client process that loads the nodes of a cluster.

python -m bench.cluster.load move 7711 7712 SECONDS    adds on one, takes and acks on the other; jobs/s
python -m bench.cluster.load finish 7711 ACKJOB COUNT  takes and acks COUNT jobs; prints how many
"""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

from bench.server.processes import command

# Few connections with large batches. With many small commands, this process would be the bottleneck, not the nodes.
_CLIENTS = 8
_TOGETHER = 32
_BODY = b"x" * 40
_QUEUE = "moved"
_BATCH = 100

# Maximum number of jobs that are added and not taken, because the growth of a queue is not measured.
_AHEAD_MAX = 1_000


class _Moving:
    """Producers on one node, consumers on the other."""

    def __init__(self, seconds: float) -> None:
        self._until = time.perf_counter() + seconds
        self._added = 0
        self._taken = 0

    async def run(self, giver: int, taker: int) -> int:
        """Return how many jobs were added, taken and acked."""
        tasks = [self._produce(giver) for _ in range(_CLIENTS)] + [self._consume(taker) for _ in range(_CLIENTS)]
        await asyncio.gather(*tasks)
        return self._taken

    async def _produce(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        put = command("ADDJOB", _QUEUE, _BODY, 0, "REPLICATE", 1) * _TOGETHER
        while time.perf_counter() < self._until:
            if self._added - self._taken > _AHEAD_MAX:
                await asyncio.sleep(0.001)
                continue
            self._added += _TOGETHER
            writer.write(put)
            for _ in range(_TOGETHER):
                answer = await reader.readline()
                if answer[:1] != b"+":
                    raise RuntimeError(f"a job was refused: {answer!r}")
        writer.close()

    async def _consume(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        get = command("GETJOB", "TIMEOUT", 100, "COUNT", _TOGETHER, "FROM", _QUEUE)
        while time.perf_counter() < self._until:
            writer.write(get)
            ids = await _taken(reader)
            if ids:
                writer.write(command("FASTACK", *ids))
                await reader.readline()
                self._taken += len(ids)
        writer.close()


async def _taken(reader: asyncio.StreamReader) -> list[bytes]:
    """Return the ids of the jobs in a reply to GETJOB."""
    ids = []
    for _ in range(int((await reader.readline())[1:])):
        lines = [await reader.readline() for _ in range(7)]
        ids.append(lines[4].strip())
    return ids


async def _finish(port: int, word: str, count: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    done = 0
    while done < count:
        writer.write(command("GETJOB", "NOHANG", "COUNT", min(_BATCH, count - done), "FROM", "bench"))
        ids = await _taken(reader)
        if not ids:
            raise RuntimeError("there are no more jobs")
        writer.write(command(word, *ids))
        await reader.readline()
        done += len(ids)
    writer.close()
    return done


async def _main(what: str, *words: str) -> None:
    if what == "move":
        giver, taker, seconds = words
        print(await _Moving(float(seconds)).run(int(giver), int(taker)) / float(seconds))
    else:
        port, word, count = words
        print(await _finish(int(port), word, int(count)))


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
