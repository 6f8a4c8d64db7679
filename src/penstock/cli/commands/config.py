"""`penstock config`: show the settings that a server would start with."""

from __future__ import annotations

import json as json_format
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import USAGE, fail, printable_json
from penstock.cli.options import CommandGroup
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.server.config.configuration import Config, Setting

app = CommandGroup(help="Show the settings of a server.")


# Every setting is a flag, so `load` parses the options that this command does not define.
@app.command(context_settings={"ignore_unknown_options": True})
def show(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [--SETTING VALUE]...",
            help="Arguments of `penstock serve`: a file in TOML or Disque's format, then settings as flags.",
        ),
    ] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also show the origin of each value.")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only settings that differ from their default.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show all settings that `penstock serve` would use with these arguments. Passwords are hidden."""
    from penstock.server.config.configuration import ConfigError, load
    from penstock.server.config.settings import SETTINGS

    flags = list(words or [])
    file = flags.pop(0) if flags and not flags[0].startswith("--") else None
    try:
        config = load(file, flags, os.environ, Path.cwd())
    except ConfigError as error:
        fail(str(error), USAGE)
    settings = [setting for setting in SETTINGS if not (changed and config.is_default(setting))]
    if json:
        values = {each.name: _as_json(config, each, origin) for each in settings}
        typer.echo(printable_json(json_format.dumps(values, indent=2)))
    else:
        _show_lines([[each.name, _text(config, each), config.origin(each.name)] for each in settings], origin)


def _text(config: Config, setting: Setting) -> str:
    value = config.value(setting)
    text = setting.kind.masked(value) if setting.secret else setting.kind.text(value)
    return printable(text) or '""'


def _as_json(config: Config, setting: Setting, origin: bool) -> object:
    value = config.value(setting)
    if setting.secret:
        value = setting.kind.masked(value)
    elif not isinstance(value, (bool, int, float)):
        value = setting.kind.text(value)
    return {"value": value, "origin": config.origin(setting.name)} if origin else value


def _show_lines(rows: Iterable[list[str]], origin: bool) -> None:
    shown = [row if origin else row[:2] for row in rows]
    widths = [max((len(row[column]) for row in shown), default=0) for column in range(2 + origin)]
    for row in shown:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
