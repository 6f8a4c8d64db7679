"""The tables of a lake: their sizes, and their newest rows."""

from __future__ import annotations

import asyncio
import base64
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.client.commands import items, octets
from penstock.web.exchange import Exchange
from penstock.web.refusals import Refused
from penstock.web.route_table import Route
from penstock.web.shapes import Items, Map, Record, Shape, Text, Whole

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.tables import Table

_ROWS_MAX: Final = 500
_TEXT_MAX: Final = 2_000
# The columns with the content of jobs.
_BODIES: Final = frozenset(["body", "headers"])


async def _tables(exchange: Exchange) -> dict[str, Any]:
    place = await _place(exchange)
    return await asyncio.to_thread(_read_tables, place)


def _read_tables(place: str) -> dict[str, Any]:
    lake, tables = _open(place)
    return {"turn": lake.turn, "grain": lake.grain, "tables": [_summary(lake, table) for table in tables.values()]}


def _summary(lake: Lake, table: Table) -> dict[str, Any]:
    files = lake.files(table)
    return {
        "name": table.path,
        "rows": lake.rows(table),
        "bytes": sum(file.size for file in files),
        "files": len(files),
        "columns": [name for name, _ in table.columns],
    }


async def _rows(exchange: Exchange) -> dict[str, Any]:
    place = await _place(exchange)
    query = exchange.query
    return await asyncio.to_thread(
        _read_rows, place, query["name"], query.get("limit", 100), exchange.settings.hide_bodies
    )


def _read_rows(place: str, name: str, limit: int, hides_bodies: bool) -> dict[str, Any]:
    from penstock.lake.files import read_table

    lake, tables = _open(place)
    table = tables.get(name)
    if table is None:
        raise Refused("NOTFOUND", f"the lake has no table of this name; there are {', '.join(tables)}")
    # The newest file is enough to show how the rows look.
    found = read_table(lake.place, table, lake.files(table)[-1:])
    columns = [each for each in found.column_names if not (hides_bodies and each in _BODIES)]
    rows = found.select(columns).slice(max(0, len(found) - limit)).to_pylist()
    return {
        "name": table.path,
        "columns": columns,
        "rows": [{column: _plain(row[column]) for column in columns} for row in rows[::-1]],
    }


def _open(place: str) -> tuple[Lake, dict[str, Table]]:
    """Return the lake and its tables that exist, at the last complete turn."""
    from penstock.lake.errors import PipelineError
    from penstock.lake.lake import Lake
    from penstock.lake.tables import ALL

    try:
        lake = Lake(place).require_exists().pin()
        tables = [*ALL, *lake.user_tables()]
        return lake, {table.path: table for table in tables if lake.log(table).exists}
    except PipelineError as error:
        raise Refused("NOLAKE", str(error)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = base64.b64encode(value[:_TEXT_MAX]).decode("ascii")
    if isinstance(value, str):
        return value[:_TEXT_MAX]
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, float) and value - value != 0:
        return None  # JSON has neither infinity nor NaN.
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)[:_TEXT_MAX]


async def _place(exchange: Exchange) -> str:
    """Return the place of the lake, if the user may read all tubes: a lake has the events of all."""
    answer = await exchange.ask(b"TOKEN", b"INFO")
    if b"read" not in items(answer[b"commands"]) or b"*" not in map(octets, items(answer[b"tubes"])):
        raise Refused("NOPERM", "the lake has the events of all tubes, and this user may not read all of them")
    if not exchange.settings.lake:
        raise Refused("NOLAKE", "no lake is configured; start the dashboard with --lake")
    return exchange.settings.lake


ROUTES: Final = [
    Route(
        method="GET",
        path="/lake",
        group="Lake",
        summary="List the tables of the lake that `penstock dashboard --lake` names.",
        handler=_tables,
        returns=Record(
            {
                "turn": Whole("The last turn of the pipeline.", example=3),
                "grain": Text("The time unit of the gold tables.", example="minute"),
                "tables": Items(
                    Record(
                        {
                            "name": Text(example="gold/rates"),
                            "rows": Whole(example=120),
                            "bytes": Whole("Size of its files.", example=4_096),
                            "files": Whole(example=1),
                            "columns": Items(Text(), example=["minute", "tube"]),
                        }
                    )
                ),
            }
        ),
        errors=("NOLAKE",),
    ),
    Route(
        method="GET",
        path="/lake/rows",
        group="Lake",
        summary="Show the newest rows of a table.",
        handler=_rows,
        query={
            "name": Text("The name of the table.", length=(1, 300), example="gold/rates"),
            "limit": Whole("Number of rows.", least=1, most=_ROWS_MAX, example=100),
        },
        required_query=("name",),
        returns=Record(
            {
                "name": Text(example="gold/rates"),
                "columns": Items(Text(), example=["tube"]),
                "rows": Items(Map(Shape()), "The newest row is first.", most=_ROWS_MAX, example=[{"tube": "emails"}]),
            }
        ),
        errors=("NOLAKE",),
    ),
]
