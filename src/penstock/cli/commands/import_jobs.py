"""`penstock import`: import jobs from other queues and from files. An interrupted import can be resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli.errors import ERROR, OK, USAGE, exit_code_of, fail, message_of, print_error
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output, jobs_text
from penstock.cli.targets import QueueAddress, Target, parse_address
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.imports.id_map import IdMap
    from penstock.cli.imports.import_items import Progress, Source
    from penstock.cli.imports.import_state import ImportState

app = CommandGroup(help="Import jobs from other queues and from files.")

File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="File to import.")]
Into = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="URL|DIR",
        help="Server or queue directory. [env: PENSTOCK_URL; default: penstock://127.0.0.1:7711]",
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", dir_okay=False, help="File for the progress. Default: next to the imported file."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check and count the jobs.")]


@app.command("disque-aof")
def disque_aof(
    file: File,
    into: Into = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Also import jobs with retry 0 (deliver at most once), if you know that none was taken."
        ),
    ] = False,
    state: State = None,
    dry_run: DryRun = False,
    *,
    out: Output,
) -> None:
    """Import the unfinished jobs in an append-only file of Disque. Stop Disque first.

    Jobs keep body, queue, retry, nacks and the remaining ttl and delay. Their old ids become their names.
    """
    from penstock.cli.imports.import_items import AofSource

    _import(file, into, state, dry_run, out, lambda raw, progress: AofSource(raw, once, progress))


@app.command()
def jsonl(
    file: File,
    into: Into = None,
    tube: Annotated[str | None, typer.Option("--tube", help="Tube for lines that do not name one.")] = None,
    type: Annotated[
        str | None,
        typer.Option("--type", help="Type of new tubes. Default: fifottl, or utubettl for jobs with keys."),
    ] = None,
    state: State = None,
    dry_run: DryRun = False,
    *,
    out: Output,
) -> None:
    """Import jobs from a JSON lines file, like {"tube": "emails", "body": {"to": "ann"}, "delay": "2s", "ttr": 30}."""
    from penstock.cli.imports.import_items import JsonLinesSource
    from penstock.core.policy import preset

    if type is not None:
        preset(type)
    _import(file, into, state, dry_run, out, lambda raw, progress: JsonLinesSource(raw, tube, type, progress))


@app.command()
def tarantool(
    source: Annotated[
        str,
        typer.Argument(
            metavar="URL|FILE", help="Running Tarantool, tarantool://user:password@host:3301, or a dump as JSON lines."
        ),
    ],
    into: Into = None,
    tube: Annotated[
        list[str] | None,
        typer.Option("--tube", help="Import only this tube or xqueue space. Repeatable. [default: all queues]"),
    ] = None,
    upgrade: Annotated[
        str | None,
        typer.Option(
            "--upgrade",
            metavar="JSON|@FILE",
            help="With one --tube: options of xqueue.upgrade, with fields and features. [default: from its format]",
        ),
    ] = None,
    id_map: Annotated[
        Path | None,
        typer.Option("--id-map", dir_okay=False, help="File for the new ids of tasks that cannot keep their ids."),
    ] = None,
    state: State = None,
    dry_run: DryRun = False,
    *,
    out: Output,
) -> None:
    """Import the tasks of tarantool/queue and of xqueue. Stop producers and consumers first.

    Tasks keep their order, data, priority, key (utube), and the remaining ttl and delay. Taken tasks become ready.
    """
    from penstock.cli.imports.tarantool_client import SCHEME, TarantoolServer
    from penstock.cli.imports.tarantool_dump import TarantoolDump
    from penstock.cli.imports.tarantool_source import TarantoolSource
    from penstock.cli.imports.tarantool_spaces import BadSource, Database

    if upgrade is not None and len(tube or []) != 1:
        fail("--upgrade describes one space; name it with --tube", USAGE)
    options = None if upgrade is None else _upgrade_options(upgrade)
    place = _place(into)

    def opened(database: Database) -> Source:
        return TarantoolSource(database, tube or [], options, place.directory is None)

    try:
        if source.startswith(SCHEME):
            with closing(TarantoolServer(source)) as server:
                path = _state_file(Path(re.sub(r"[^\w.-]+", "-", server.label)), tube or [])
                _transfer(opened(server), server.label, place, state or path, id_map, dry_run, out)
        elif "://" in source:
            fail("write the URL as tarantool://user:password@host:3301", USAGE)
        else:
            from penstock.cli.progress import bytes_bar

            with Path(source).open("rb") as file:
                with bytes_bar("reading") as progress:
                    dump = TarantoolDump(file, source, progress)
                path = _state_file(Path(source), tube or [])
                _transfer(opened(dump), source, place, state or path, id_map, dry_run, out)
    except BadSource as error:
        fail(str(error), error.code)


def _state_file(source: Path, tubes: list[str]) -> Path:
    """Return the path of the state file for these tubes. Imports of other tubes have other files."""
    from penstock.cli.imports.import_items import default_state_file

    names = "".join(f"-{name}" for name in sorted(tubes))
    return default_state_file(source.with_name(source.name + re.sub(r"[^\w.-]+", "-", names)[:100]))


def _upgrade_options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(Path(text[1:]).read_bytes() if text.startswith("@") else text)
    except ValueError as error:
        fail(f"--upgrade is not JSON: {error}", USAGE)
    if not isinstance(options, dict):
        fail('--upgrade must be a JSON object like {"fields": {"status": "status"}, "features": {"keep": true}}', USAGE)
    return options


def _place(into: str | None) -> QueueAddress:
    return Target().address() if into is None else parse_address(into)


def _import(
    path: Path,
    into: str | None,
    state_path: Path | None,
    dry_run: bool,
    out: Output,
    open_source: Callable[[BinaryIO, Progress], Source],
) -> None:
    from penstock.cli.imports.disque_aof import DamagedAof
    from penstock.cli.imports.import_items import default_state_file
    from penstock.cli.progress import bytes_bar

    place = _place(into)
    with path.open("rb") as file:
        try:
            with bytes_bar("reading") as progress:
                source = open_source(file, progress)
        except DamagedAof as error:
            fail(f"{path}: {error}")
        _transfer(source, str(path), place, state_path or default_state_file(path), None, dry_run, out)


def _transfer(
    source: Source, label: str, place: QueueAddress, state_path: Path, id_map: Path | None, dry_run: bool, out: Output
) -> None:
    """Put all items of a source into a queue, print a summary and exit."""
    from penstock.cli.imports.id_map import IdMap
    from penstock.cli.imports.import_items import BAD_LINES
    from penstock.cli.imports.import_state import StateMismatch, load
    from penstock.cli.imports.importer import REFUSED
    from penstock.cli.imports.tarantool_source import UNREADABLE
    from penstock.cli.imports.tarantool_tubes import BAD_ROWS

    try:
        state = load(state_path, source.fingerprint, place.without_password())
    except StateMismatch as error:
        fail(f"{label}: {error}")
    for note in source.notes:
        print_error(f"{label}: {note}")
    ids = IdMap(id_map or state_path.with_name(f"{state_path.name.removesuffix('.penstock-import')}.penstock-ids"))
    now = _run(source, state, state_path, place, ids, dry_run)
    passed = {**source.passed, **state.passed}
    before = state.imported - now
    words = [_summary(state.imported, now, dry_run, place)]
    words += [f"{count:,} {_were(count)} passed over: {reason}" for reason, count in passed.items()]
    if ids.count:
        words.append(f"{ids.count:,} have new ids, see {ids.path}")
    out.report_done(
        "; ".join(words),
        imported=state.imported,
        imported_now=now,
        already_there=before,
        passed_over=passed,
        new_ids=ids.count,
        id_map=str(ids.path) if ids.count else None,
        into=place.without_password(),
        dry_run=dry_run,
    )
    raise typer.Exit(ERROR if passed.keys() & {REFUSED, BAD_LINES, BAD_ROWS, UNREADABLE} else OK)


def _summary(imported: int, now: int, dry_run: bool, place: QueueAddress) -> str:
    """Return a sentence with the number of imported jobs, in total and in this run."""
    if dry_run:
        return f"{jobs_text(imported)} would be imported into {place.without_password()}"
    verb = "is" if imported == 1 else "are"
    parts = "" if now == imported else f": {now:,} now, {imported - now:,} {_were(imported - now)} already there"
    return f"{jobs_text(imported)} {verb} imported into {place.without_password()}{parts}"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _run(source: Source, state: ImportState, state_path: Path, place: QueueAddress, ids: IdMap, dry_run: bool) -> int:
    """Import the items of a source, or only count them. Return the number of jobs that this run has put."""
    import asyncio

    from penstock.cli.imports.importer import Importer, count_only
    from penstock.cli.imports.tarantool_spaces import BadSource

    importer = Importer(source, state, state_path, ids)
    try:
        asyncio.run(count_only(source, state, place) if dry_run else importer.run(place))
    except (PenstockError, OSError, BadSource) as error:
        code = error.code if isinstance(error, BadSource) else exit_code_of(error)
        hint = f"imported so far: {jobs_text(state.imported)}; run the same command again to continue"
        fail(f"{message_of(error)}; {hint}", code)
    finally:
        ids.close()
    return importer.imported_now
