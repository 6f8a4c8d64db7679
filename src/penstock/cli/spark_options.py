"""Options of the commands that work on a lake, and the wording of errors of Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

LakeDirectory = Annotated[str, typer.Option("--lake", metavar="DIR", help="The directory of the lake.")]


# Options of Spark's source that a sentence may name, and what they are here.
_OURS: Final = {"failOnDataLoss=false": "--allow-gaps"}


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day; write it as 2026-11-16") from None


def day_option(name: str, help: str) -> Any:
    """An option that is a day, in UTC as the lake has them."""
    return typer.Option(name, metavar="DAY", parser=_day, help=help)


@contextmanager
def worded() -> Iterator[None]:
    """Around what Spark does: what goes wrong is one sentence, and names our options where it names Spark's."""
    from penstock.pipeline.errors import PipelineError, spoken

    try:
        with spoken():
            yield
    except PipelineError as error:
        sentence = str(error)
        for option, ours in _OURS.items():
            sentence = sentence.replace(option, ours)
        raise type(error)(sentence) from None
