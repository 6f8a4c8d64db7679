"""Options of the commands that use a lake, and the translation of Spark's errors."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="Setting of the object store, for example AWS_REGION=eu-west-1. Repeatable. Environment variables "
        "such as AWS_ACCESS_KEY_ID are used, too.",
    ),
]


@dataclass(frozen=True)
class LakeOptions:
    """The options that name a lake."""

    place: Annotated[
        str,
        typer.Option(
            "--lake", metavar="PLACE", help="Place of the lake: a directory, or a folder like s3://bucket/lake."
        ),
    ]
    storage: StorageOptions = None

    def open(self, converting: bool = False) -> Lake:
        """Open the lake. Nothing is created. With `converting`, it may be a lake of an older version."""
        from penstock.lake.lake import Lake

        return Lake(self.place, dict(map(_storage_option, self.storage or ())), converting)


def require_spark() -> None:
    """Report that Spark is not installed before another package is found missing. The extra of Spark installs all."""
    if find_spec("pyspark") is None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")


def _storage_option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not a setting; write it as NAME=VALUE")
    return name, value


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
    from penstock.lake.errors import PipelineError
    from penstock.pipeline.errors import as_pipeline_error

    try:
        with as_pipeline_error():
            yield
    except PipelineError as error:
        # The option of the Spark source that an error may name, and the option of the command line for it.
        raise type(error)(str(error).replace("failOnDataLoss=false", "--allow-gaps")) from None
