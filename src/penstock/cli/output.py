"""What every command says in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from penstock.core.errors import CommandError, DamagedJournal


def fail(message: str, code: int = 1) -> NoReturn:
    """Say on standard error what went wrong, and end."""
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(code)


@contextmanager
def told(directory: str) -> Iterator[None]:
    """Whatever is refused while a directory is looked at is said in a sentence."""
    try:
        yield
    except DamagedJournal as error:
        fail(f"{directory}: {error}; see `penstock journal repair`")
    except CommandError as error:
        fail(f"{directory}: {error}")
    except PermissionError as error:
        fail(f"{error.filename or directory} may not be read or written by you; ask its owner, or become its owner")
    except FileNotFoundError as error:
        fail(f"{error.filename or directory} is not there; see whether the path is right, and try again")
    except NotADirectoryError as error:
        fail(f"{error.filename or directory} is no directory; name the one that the queue was opened with")
    except BrokenPipeError:
        # Whoever reads what is written has read enough.
        raise
    except OSError as error:
        fail(f"{directory}: {error.strerror or error}; see whether the disk is in order, and try again")
