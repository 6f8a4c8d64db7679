"""Puts the items of a source into a queue, from where an import has come to.

Jobs are put in batches; after each, how far it has come is written to a file. Whoever is killed in between puts a batch
twice, and the jobs' dedup ids make one of it.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Final

from penstock.cli.arrivals import Arrival, Passed, Source
from penstock.cli.exits import complain
from penstock.cli.import_state import ImportState
from penstock.cli.progress import count_bar
from penstock.cli.target import Place
from penstock.client.async_queue import AsyncQueue as ServerQueue
from penstock.client.async_queue import AsyncTube as ServerTube
from penstock.client.async_queue import connect_async
from penstock.core import errors
from penstock.embedded_async import AsyncQueue, AsyncTube, open_async
from penstock.host.ledger import wall_ms
from penstock.options import to_text

BATCH_JOBS: Final = 500

# So many things that are wrong are told one by one.
TOLD_MAX: Final = 20

# What is wrong with a job itself. Anything else may be better the next time, so the import stops and can go on.
_HOPELESS: Final = (
    errors.WrongType,
    errors.OutOfRange,
    errors.BadName,
    errors.BadRetry,
    errors.BodyTooLarge,
    errors.Unsupported,
)

REFUSED: Final = "refused"


def open_queue(place: Place) -> AsyncQueue | ServerQueue:
    """The queue that jobs go to; in a directory it is made if it is not there."""
    return connect_async(place.url) if place.directory is None else open_async(place.directory)


class Importer:
    """One import."""

    def __init__(self, source: Source, state: ImportState, path: Path) -> None:
        self._source = source
        self._state = state
        self._path = path
        self._tubes: dict[str, AsyncTube | ServerTube] = {}

    async def run(self, place: Place) -> None:
        state = self._state
        if state.finished:
            return
        async with open_queue(place) as queue:
            existing = set(await queue.tubes())
            items = self._source.items(state.done, wall_ms)
            with count_bar("importing") as progress:
                while batch := list(islice(items, BATCH_JOBS)):
                    await self._put(queue, existing, batch)
                    state.done += len(batch)
                    state.save(self._path)
                    progress(state.done, self._source.total)
        state.finished = True
        state.save(self._path)

    async def _put(self, queue: AsyncQueue | ServerQueue, existing: set[str], batch: list[Arrival | Passed]) -> None:
        """Put a batch: all at a time, so that they share a commit, or a round trip."""
        arrivals = [item for item in batch if isinstance(item, Arrival)]
        places = [await self._tube(queue, existing, arrival) for arrival in arrivals]
        puts = [_outcome(place, arrival) for place, arrival in zip(places, arrivals)]
        for arrival, refusal in zip(arrivals, await asyncio.gather(*puts)):
            if refusal is None:
                self._state.imported += 1
            else:
                self._tell(Passed(REFUSED, arrival.label, refusal))
        for item in batch:
            if isinstance(item, Passed):
                self._tell(item)

    async def _tube(
        self, queue: AsyncQueue | ServerQueue, existing: set[str], arrival: Arrival
    ) -> AsyncTube | ServerTube | None:
        """The tube a job goes to, made if it is not there; None if there can be no such tube."""
        name = to_text(arrival.tube) if isinstance(arrival.tube, bytes) else arrival.tube
        if name not in self._tubes:
            try:
                kind = None if name in existing else self._source.tube_type
                self._tubes[name] = await queue.tube(arrival.tube, kind)  # type: ignore[arg-type]
            except errors.BadName:
                return None
        return self._tubes[name]

    def _tell(self, item: Passed) -> None:
        self._state.pass_over(item.reason)
        if item.wrong and self._state.passed[item.reason] <= TOLD_MAX:
            more = "; more of this are only counted" if self._state.passed[item.reason] == TOLD_MAX else ""
            complain(f"{item.label}: {item.wrong}{more}")


async def _outcome(tube: AsyncTube | ServerTube | None, arrival: Arrival) -> str | None:
    """Put a job; tell why it is refused for ever, or None. Raises if it may be better the next time."""
    if tube is None:
        return f"a tube's name must have 1 to 65,535 bytes, and this one has {len(arrival.tube)}"
    try:
        await tube.put(arrival.body, **arrival.options)
    except errors.NameTaken:
        # It was put before, and is not finished.
        return None
    except _HOPELESS as error:
        return str(error)
    return None
