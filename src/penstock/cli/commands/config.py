"""`penstock config`: show the settings that a server would start with, and hash passwords for them."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.errors import USAGE, fail, printable_json
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output
from penstock.wire.quoting import printable

if TYPE_CHECKING:
    from penstock.server.config.configuration import Config, Setting

app = CommandGroup(help="Show the settings of a server, and hash passwords for users.")

# The longest password that clients can send.
_PASSWORD_BYTES_MAX: Final = 512


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


@app.command("hash-password")
def hash_password(*, out: Output) -> None:
    """Print the scrypt hash of a password, for the field `password_scrypt` of a user.

    The password is read from a prompt, or from standard input if that is not a terminal.
    """
    from penstock.server.config.scrypt import hash_password

    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True).encode()
    else:
        password = sys.stdin.buffer.read().removesuffix(b"\n").removesuffix(b"\r")
    if not password or len(password) > _PASSWORD_BYTES_MAX or b"\n" in password:
        fail(f"a password has 1 to {_PASSWORD_BYTES_MAX} bytes, and only one line", USAGE)
    made = str(hash_password(password))
    out.report_done(made, password_scrypt=made)


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
