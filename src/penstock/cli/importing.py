"""`penstock import`: bring jobs from elsewhere, and go on where it was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli.bundles import bundled
from penstock.cli.exits import ERROR, OK, code_of, complain, fail, sentence_of
from penstock.cli.output import Output, jobs_text
from penstock.cli.target import Place, Target, place_of
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.arrivals import Progress, Source
    from penstock.cli.import_state import ImportState

app = typer.Typer(help="Bring jobs from elsewhere.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The file to import.")]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="URL|DIR",
        help="A server, or a queue's directory. [env: PENSTOCK_URL; penstock://127.0.0.1:7711]",
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", dir_okay=False, help="Where to remember how far it has come. Default: beside the file."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be imported.")]


@app.command("disque-aof")
@bundled
def disque_aof(
    file: File,
    into: Into = None,
    once: Annotated[
        bool, typer.Option("--once", help="Also jobs of retry 0, to be delivered once at most: nobody had taken them.")
    ] = False,
    state: State = None,
    dry_run: DryRun = False,
    *,
    out: Output,
) -> None:
    """Import the jobs that are left in an append-only file of Disque. Stop Disque before.

    Jobs keep body, queue, what is left of ttl and delay, retry and nacks; their old ids become their names.
    """

    def opened(raw: BinaryIO, progress: Progress) -> Source:
        from penstock.cli.arrivals import AofSource

        return AofSource(raw, once, progress)

    _import(file, into, state, dry_run, out, opened)


@app.command()
@bundled
def jsonl(
    file: File,
    into: Into = None,
    tube: Annotated[str | None, typer.Option("--tube", help="The tube of lines that do not name one.")] = None,
    state: State = None,
    dry_run: DryRun = False,
    *,
    out: Output,
) -> None:
    """Import jobs from a file of JSON lines: {"tube": "emails", "body": {"to": "ann"}, "delay": "2s", "ttr": 30}."""

    def opened(raw: BinaryIO, progress: Progress) -> Source:
        from penstock.cli.arrivals import JsonLinesSource

        return JsonLinesSource(raw, tube, progress)

    _import(file, into, state, dry_run, out, opened)


def _import(
    path: Path,
    into: str | None,
    state_path: Path | None,
    dry_run: bool,
    out: Output,
    open_source: Callable[[BinaryIO, Progress], Source],
) -> None:
    from penstock.cli.arrivals import BAD_LINES, beside
    from penstock.cli.disque_aof import DamagedAof
    from penstock.cli.import_state import OtherImport, load
    from penstock.cli.importer import REFUSED
    from penstock.cli.progress import bytes_bar

    place = Target().place() if into is None else place_of(into)
    state_path = state_path or beside(path)
    with path.open("rb") as file:
        try:
            with bytes_bar("reading") as progress:
                source = open_source(file, progress)
            state = load(state_path, source.fingerprint, place.shown())
        except (DamagedAof, OtherImport) as error:
            fail(f"{path}: {error}")
        for note in source.notes:
            complain(f"{path}: {note}")
        if dry_run:
            _count(source, state)
        else:
            _run(source, state, state_path, place)
    passed = {**source.passed, **state.passed}
    verb = "would be" if dry_run else "is" if state.imported == 1 else "are"
    words = [f"{jobs_text(state.imported)} {verb} imported into {place.shown()}"]
    words += [f"{count:,} were passed over: {reason}" for reason, count in passed.items()]
    out.done("; ".join(words), imported=state.imported, passed_over=passed, into=place.shown(), dry_run=dry_run)
    raise typer.Exit(ERROR if passed.keys() & {REFUSED, BAD_LINES} else OK)


def _run(source: Source, state: ImportState, state_path: Path, place: Place) -> None:
    import asyncio

    from penstock.cli.importer import Importer

    try:
        asyncio.run(Importer(source, state, state_path).run(place))
    except (PenstockError, OSError) as error:
        hint = f"imported so far: {jobs_text(state.imported)}; run the same command again to go on"
        fail(f"{sentence_of(error)}; {hint}", code_of(error))


def _count(source: Source, state: ImportState) -> None:
    """Go through what is left to do, and do nothing."""
    from penstock.cli.arrivals import Arrival
    from penstock.host.ledger import wall_ms

    for item in source.items(state.done, wall_ms):
        if isinstance(item, Arrival):
            state.imported += 1
        else:
            state.pass_over(item.reason)
