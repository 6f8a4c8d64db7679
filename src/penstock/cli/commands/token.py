"""`penstock token`: create access tokens, which programs use in place of a password."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.errors import parsing_answer
from penstock.cli.option_values import duration_option
from penstock.cli.options import CommandGroup
from penstock.cli.output import Output
from penstock.cli.targets import Target, execute

app = CommandGroup(help="Create access tokens, which programs use in place of a password.")


# With a callback, `create` stays a subcommand although it is the only one.
@app.callback()
def token() -> None: ...


@app.command()
def create(
    ttl: Annotated[
        float, duration_option("--ttl", help="Time until the token expires, at most 366 days.", default="12h")
    ] = 43_200.0,
    commands: Annotated[
        str | None,
        typer.Option("--commands", help="Limit the token to these command classes, like read,write.", metavar="LIST"),
    ] = None,
    tubes: Annotated[
        str | None,
        typer.Option("--tubes", help="Limit the token to tubes that match these patterns.", metavar="LIST"),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="A name that TOKEN INFO shows.")] = "",
    *,
    target: Target,
    out: Output,
) -> None:
    """Print a new access token for the user in the URL of the server.

    Programs connect with the token in place of the password: penstock://USER:TOKEN@host. A new password of the user
    revokes all tokens of the user.
    """
    words = ["TTL", f"{round(ttl * 1_000)}ms", "NAME", name]
    words += ["COMMANDS", commands] if commands is not None else []
    words += ["TUBES", tubes] if tubes is not None else []
    with parsing_answer():
        made = str(execute(target, "TOKEN", "CREATE", *words), "ascii")
    out.report_done(made, token=made)
