"""Puts the items of a source into a queue, and resumes where an earlier run was interrupted.

Jobs are put in batches. After each batch, the progress is written to the state file. If the process is killed between
the two, the next run puts the same batch again, and the dedup ids of its jobs make sure that no job is put twice. Tubes
that the import creates remember dedup ids until the import has finished, so a run can be resumed days later.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from itertools import islice
from pathlib import Path
from typing import Any, Final

from penstock.api_async import AsyncJob, AsyncQueue, AsyncTube
from penstock.cli.errors import print_error
from penstock.cli.imports.id_map import IdMap
from penstock.cli.imports.import_items import ImportItem, SkippedItem, Source
from penstock.cli.imports.import_state import ImportState
from penstock.cli.progress import count_bar
from penstock.cli.targets import QueueAddress
from penstock.client.async_queue import AsyncQueue as ServerQueue
from penstock.client.async_queue import connect_async
from penstock.core import errors
from penstock.core.limits import BODY_BYTES_MAX, check_body, check_name
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.host.clock import wall_ms
from penstock.opening import open_async
from penstock.options import draft, to_bytes, to_text

BATCH_JOBS: Final = 500

# Number of messages of one kind that are printed. Further ones are only counted.
MESSAGES_MAX: Final = 20

# Dedup window of a tube while an import into it is unfinished.
_RESUMABLE_S: Final = 30 * 86_400

# Refusals that concern the job itself. After any other error the import stops, because a later run may succeed.
_PERMANENT: Final = (
    errors.WrongType,
    errors.OutOfRange,
    errors.BadName,
    errors.BadRetry,
    errors.BodyTooLarge,
    errors.Unsupported,
)

REFUSED: Final = "refused"


def open_queue(place: QueueAddress) -> AsyncQueue:
    """Open the queue that jobs are put into. A directory is created if it does not exist."""
    return connect_async(place.url) if place.directory is None else open_async(place.directory)


def tube_text(name: str | bytes) -> str:
    """Return the name of a tube as text, in the form that `queue.tubes()` returns."""
    return to_text(name) if isinstance(name, bytes) else name


def options_for(policy: TubePolicy, arrival: ImportItem) -> dict[str, Any]:
    """Return the options of a put. Omit a job number that is in the range from which the tube numbers jobs itself."""
    number = arrival.options.get("number")
    if number is None or arrival.old_id is None or number < policy.first_integer:
        return arrival.options
    return {name: value for name, value in arrival.options.items() if name != "number"}


class PutChecker:
    """Checks jobs against existing tubes, or tubes that would be created, without putting them."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._tubes: dict[str, Tube] = {}

    def refusal(self, policy: TubePolicy, arrival: ImportItem) -> str | None:
        """Return why a tube of this policy refuses a job, or None if it accepts it."""
        name = tube_text(arrival.tube)
        try:
            asked = draft(arrival.body, **options_for(policy, arrival))
            tube = self._tubes.get(name)
            if tube is None or tube.policy != policy:
                raw = to_bytes(arrival.tube, "a tube's name")
                check_name(raw, "a tube's name")
                tube = self._tubes[name] = Tube(raw, 0, 0, policy, 0)
            check_body(len(asked.body), self._body_bytes_max)
            tube.make(0, asked, 0)
        except _PERMANENT as error:
            return str(error)
        return None


async def count_only(source: Source, state: ImportState, place: QueueAddress) -> None:
    """Count the jobs that an import would put, and those that tubes would refuse."""
    policies: dict[str, TubePolicy] = {}
    body_bytes_max = BODY_BYTES_MAX
    if place.directory is None or (place.directory / "node.json").exists():
        async with open_queue(place) as queue:
            for name in await queue.tubes():
                policies[name] = (await queue.find_tube(name)).policy
            body_bytes_max = await _body_bytes_max(queue)
    rehearsal = PutChecker(body_bytes_max)
    for item in source.items(state.done, state.cursor, wall_ms):
        if isinstance(item, SkippedItem):
            _pass_over(state, item)
            continue
        policy = policies.get(tube_text(item.tube)) or source.new_tube(item)
        refusal = rehearsal.refusal(policy, item)
        if refusal is None:
            state.imported += 1
        else:
            _pass_over(state, SkippedItem(REFUSED, item.label, refusal))


async def _body_bytes_max(queue: AsyncQueue) -> int:
    if not isinstance(queue, ServerQueue):
        return BODY_BYTES_MAX
    answer = await queue.execute("IDENTIFY")
    return int(answer[b"max-body"])


def _pass_over(state: ImportState, item: SkippedItem) -> None:
    """Count a skipped item. Print a message if the item is invalid."""
    state.pass_over(item.reason)
    count = state.passed[item.reason]
    if item.wrong and count <= MESSAGES_MAX:
        more = "; further messages of this kind are only counted" if count == MESSAGES_MAX else ""
        print_error(f"{item.label}: {item.wrong}{more}")


class Importer:
    """One run of an import."""

    def __init__(self, source: Source, state: ImportState, path: Path, ids: IdMap) -> None:
        self._source = source
        self._state = state
        self._path = path
        self._ids = ids
        self._tubes: dict[str, AsyncTube] = {}
        self._rehearsal = PutChecker(BODY_BYTES_MAX)
        self.imported_now = 0

    async def run(self, place: QueueAddress) -> None:
        state = self._state
        if state.finished:
            return
        async with open_queue(place) as queue:
            existing = set(await queue.tubes())
            items = self._source.items(state.done, state.cursor, wall_ms)
            with count_bar("importing") as progress:
                while batch := list(islice(items, BATCH_JOBS)):
                    await self._put_batch(queue, existing, batch)
                    state.done += len(batch)
                    state.cursor = batch[-1].cursor
                    self._ids.sync()
                    state.save(self._path)
                    progress(state.done, self._source.total)
            await self._finish(queue)

    async def _finish(self, queue: AsyncQueue) -> None:
        """Set the dedup windows of the tubes that the import created back to their normal length."""
        for name, window_s in self._state.created.items():
            # A user may have dropped the tube since, or may not be allowed to alter it.
            with contextlib.suppress(errors.CommandError):
                await (await queue.find_tube(name)).alter(dedup_window=window_s)
        self._state.finished = True
        self._state.save(self._path)

    async def _put_batch(self, queue: AsyncQueue, existing: set[str], batch: list[ImportItem | SkippedItem]) -> None:
        """Put a batch. All puts are sent together, so that they share a commit or a round trip."""
        # Creating a tube writes the state file, which must not count items of this batch yet.
        passed: list[SkippedItem] = []
        arrivals: list[ImportItem] = []
        for item in batch:
            if isinstance(item, SkippedItem):
                passed.append(item)
            elif (refusal := await self._open(queue, existing, item)) is not None:
                passed.append(SkippedItem(REFUSED, item.label, refusal))
            else:
                arrivals.append(item)
        puts = [_outcome(self._tubes[tube_text(arrival.tube)], arrival) for arrival in arrivals]
        for arrival, outcome in zip(arrivals, await asyncio.gather(*puts)):
            if outcome.refusal:
                passed.append(SkippedItem(REFUSED, arrival.label, outcome.refusal))
                continue
            self._state.imported += 1
            self.imported_now += outcome.is_new
            if outcome.number is not _KEPT:
                self._ids.add(tube_text(arrival.tube), arrival.old_id, outcome.id, outcome.number)
        for item in passed:
            _pass_over(self._state, item)

    async def _open(self, queue: AsyncQueue, existing: set[str], arrival: ImportItem) -> str | None:
        """Open or create the tube of a job. If a new tube would refuse the job, return the reason instead."""
        name = tube_text(arrival.tube)
        if name in self._tubes:
            return None
        if name in existing:
            self._tubes[name] = await queue.find_tube(arrival.tube)
            return None
        policy = self._source.new_tube(arrival)
        refusal = self._rehearsal.refusal(policy, arrival)
        if refusal is None:
            self._state.created[name] = policy.dedup_ms / 1_000
            self._state.save(self._path)
            remembers = dataclasses.replace(policy, dedup_ms=max(policy.dedup_ms, _RESUMABLE_S * 1_000))
            self._tubes[name] = await queue.tube(arrival.tube, remembers)
        return refusal


# Stands for a new number: the job kept its old id, so the id map does not list it.
_KEPT: Final = object()


@dataclasses.dataclass(slots=True)
class _Outcome:
    refusal: str = ""  # Reason of a permanent refusal.
    is_new: bool = True  # False if the job was put before.
    id: str = ""
    number: Any = _KEPT  # The new number, or None if the job has none.


async def _outcome(tube: AsyncTube, arrival: ImportItem) -> _Outcome:
    """Put a job. Return the result, also if the tube refuses the job permanently. Raise all other errors."""
    outcome = _Outcome()
    options = options_for(tube.policy, arrival)
    try:
        try:
            job = await tube.put(arrival.body, **{**options, "new": True})
        except errors.NumberTaken:
            # Another job has the number. It is the same job only if its dedup id is equal, so put without the number.
            options = {name: value for name, value in options.items() if name != "number"}
            job = await tube.put(arrival.body, **{**options, "new": True})
    except (errors.JobExists, errors.NameTaken) as error:
        outcome.is_new = False
        if "number" not in arrival.options or "number" in options or isinstance(error, errors.NameTaken):
            return outcome
        job = await tube.put(arrival.body, **options)
    except _PERMANENT as error:
        outcome.refusal = str(error)
        return outcome
    if "number" in arrival.options and "number" not in options:
        outcome.id, outcome.number = job.id, await _number(job)
    return outcome


async def _number(job: AsyncJob) -> int | None:
    """Return the number of a job, or None if it has none or no longer exists."""
    try:
        number: int | None = (await job.meta())["number"]
    except errors.UnknownJob:
        return None
    return number
