"""`penstock import`: bring jobs from elsewhere, and go on where it was interrupted.

Jobs are put in batches; after each, how far it has come is written to a file. Whoever is killed in between puts a batch
twice, and the jobs' dedup ids make one of it.
"""

from __future__ import annotations

import asyncio
import json as json_format
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.cli.arrivals import AofSource, Arrival, JsonLinesSource, Passed, Progress, Source, beside
from penstock.cli.disque_aof import DamagedAof
from penstock.cli.import_state import ImportState, OtherImport, load
from penstock.cli.output import fail, told
from penstock.cli.progress import bytes_bar, count_bar
from penstock.core import errors
from penstock.embedded_async import AsyncQueue, AsyncTube, open_async
from penstock.host import wall_ms
from penstock.options import to_text

app = typer.Typer(help="Bring jobs from elsewhere.", no_args_is_help=True)

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

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The file to import.")]
Into = Annotated[
    str, typer.Option("--into", metavar="URL|DIR", envvar="PENSTOCK_URL", help="A server, or a queue's directory.")
]
State = Annotated[
    Path | None,
    typer.Option("--state", dir_okay=False, help="Where to remember how far it has come. Default: beside the file."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be imported.")]
Json = Annotated[bool, typer.Option("--json", help="Tell the outcome as JSON.")]


@app.command("disque-aof")
def disque_aof(
    file: File,
    into: Into,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Also jobs that may be delivered once at most (retry 0). They may have been, already."
        ),
    ] = False,
    state: State = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import the jobs that are left in an append-only file of Disque. Stop Disque before.

    Jobs keep body, queue, what is left of ttl and delay, retry and nacks; their old ids become their names.
    """
    _import(file, into, state, dry_run, json, lambda opened, progress: AofSource(opened, once, progress))


@app.command()
def jsonl(
    file: File,
    into: Into,
    tube: Annotated[str | None, typer.Option("--tube", help="The tube of lines that do not name one.")] = None,
    state: State = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import jobs from a file of JSON lines: {"tube": "emails", "body": {"to": "ann"}, "delay": "2s", "ttr": 30}."""
    _import(file, into, state, dry_run, json, lambda opened, progress: JsonLinesSource(opened, tube, progress))


def _import(
    path: Path,
    into: str,
    state_path: Path | None,
    dry_run: bool,
    json: bool,
    open_source: Callable[[Any, Progress], Source],
) -> None:
    state_path = state_path or beside(path)
    with path.open("rb") as file, told(into):
        try:
            with bytes_bar("reading") as progress:
                source = open_source(file, progress)
            state = load(state_path, source.fingerprint, _absolute(into))
        except (DamagedAof, OtherImport) as error:
            fail(f"{path}: {error}")
        for note in source.notes:
            typer.echo(f"penstock: {path}: {note}", err=True)
        if dry_run:
            _count(source, state)
        else:
            try:
                asyncio.run(_Importer(source, state, state_path).run(into))
            except (errors.PenstockError, OSError) as error:
                fail(f"{error}; {state.imported:,} jobs are imported. Run the same command again to go on")
    _report(source, state, into, dry_run, json)
    raise typer.Exit(1 if any(reason in _WRONG for reason in state.passed) else 0)


def _absolute(into: str) -> str:
    """A target by a name that is the same from everywhere."""
    return into if "://" in into else str(Path(into).absolute())


_WRONG: Final = ("lines that are no jobs", "refused")


class _Importer:
    """Puts the items of a source, from where an import has come to."""

    def __init__(self, source: Source, state: ImportState, path: Path) -> None:
        self._source = source
        self._state = state
        self._path = path
        self._tubes: dict[str, AsyncTube] = {}

    async def run(self, into: str) -> None:
        state = self._state
        if state.finished:
            return
        async with open_queue(into) as queue:
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

    async def _put(self, queue: AsyncQueue, existing: set[str], batch: list[Arrival | Passed]) -> None:
        """Put a batch: all at a time, so that they share a commit, or a round trip."""
        arrivals = [item for item in batch if isinstance(item, Arrival)]
        places = [await self._tube(queue, existing, arrival) for arrival in arrivals]
        puts = [_outcome(place, arrival) for place, arrival in zip(places, arrivals)]
        for arrival, refusal in zip(arrivals, await asyncio.gather(*puts)):
            if refusal is None:
                self._state.imported += 1
            else:
                self._tell(Passed("refused", arrival.label, refusal))
        for item in batch:
            if isinstance(item, Passed):
                self._tell(item)

    async def _tube(self, queue: AsyncQueue, existing: set[str], arrival: Arrival) -> AsyncTube | None:
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
            typer.echo(f"penstock: {item.label}: {item.wrong}{more}", err=True)


async def _outcome(tube: AsyncTube | None, arrival: Arrival) -> str | None:
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


def open_queue(into: str) -> AsyncQueue:
    """The queue that jobs go to."""
    return open_async(into)


def _count(source: Source, state: ImportState) -> None:
    """Go through what is left to do, and do nothing."""
    for item in source.items(state.done, wall_ms):
        if isinstance(item, Arrival):
            state.imported += 1
        else:
            state.pass_over(item.reason)


def _report(source: Source, state: ImportState, into: str, dry_run: bool, json: bool) -> None:
    passed = {**source.passed, **state.passed}
    if json:
        told = {"imported": state.imported, "passed_over": passed, "into": into, "dry_run": dry_run}
        typer.echo(json_format.dumps(told))
        return
    typer.echo(f"{state.imported:,} jobs {'would be' if dry_run else 'are'} imported into {into}")
    for reason, count in passed.items():
        typer.echo(f"{count:,} were passed over: {reason}")
