"""Options of the commands that use a lake, and the translation of Spark's errors."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

LakeDirectory = Annotated[str, typer.Option("--lake", metavar="DIR", help="Directory of the lake.")]


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day; write it as 2026-11-16") from None


def day_option(name: str, help: str) -> Any:
    """Return an option that is a day in UTC."""
    return typer.Option(name, metavar="DAY", parser=_day, help=help)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn errors of Spark into one sentence, with options of the command line instead of Spark's options."""
    from penstock.pipeline.errors import PipelineError, as_pipeline_error

    try:
        with as_pipeline_error():
            yield
    except PipelineError as error:
        # The option of the Spark source that an error may name, and the option of the command line for it.
        raise type(error)(str(error).replace("failOnDataLoss=false", "--allow-gaps")) from None
