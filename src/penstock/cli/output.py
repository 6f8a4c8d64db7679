"""What every command says in the same way."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Say on standard error what went wrong, and end with exit code 1."""
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(1)
