"""Options of the source `penstock_events`. Their names and meanings follow Spark's source for Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.core.errors import OutOfRange, WrongType
from penstock.spark.events.schema import select_columns
from penstock.spark.options import Options

NAME: Final = "penstock_events"

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# Where reading starts or ends: positions by node id, EARLIEST or LATEST for all nodes, or a time in ms since 1970.
StartPoint = dict[str, int] | str | int

_ROWS_MAX: Final = 2**53
_NAMES: Final = (
    *("startingOffsets", "endingOffsets", "startingTimestamp", "maxRowsPerTrigger", "failOnDataLoss"),
    *("tube", "columns", "includeBodies", "rowsPerPartition"),
)

# Positions per task: about half a second of work. The overhead of a task is some hundredths of a second.
_ROWS_PER_PARTITION: Final = 250_000


@dataclass(frozen=True)
class EventsOptions:
    """The parsed options of the source `penstock_events`."""

    urls: tuple[str, ...]
    start: StartPoint
    end: StartPoint
    rows_per_trigger: int | None
    fails_on_loss: bool
    tubes: tuple[str, ...]  # Empty: all tubes.
    columns: tuple[str, ...]
    bodies: bool
    rows_per_partition: int

    @classmethod
    def read(cls, given: Mapping[str, str], streaming: bool) -> EventsOptions:
        """Parse the options of a stream or of a batch."""
        options = Options(NAME, given, _NAMES)
        start = _parse_start_point(
            options.text("startingOffsets"), "startingOffsets", LATEST if streaming else EARLIEST
        )
        moment = options.text("startingTimestamp")
        if moment is not None:
            if options.text("startingOffsets") is not None:
                raise WrongType("give startingOffsets or startingTimestamp, not both")
            start = _parse_time_ms(moment)
        elif start == LATEST and not streaming:
            raise WrongType("a batch that starts at latest is empty; use startingOffsets=earliest")
        end = _parse_start_point(options.text("endingOffsets"), "endingOffsets", LATEST)
        if end == EARLIEST:
            raise WrongType("endingOffsets must be latest or positions by node, not earliest")
        if streaming and options.text("endingOffsets") is not None:
            raise WrongType("a stream has no endingOffsets; read a batch, or use the trigger availableNow")
        if not streaming and options.text("maxRowsPerTrigger") is not None:
            raise WrongType("a batch has no maxRowsPerTrigger; use endingOffsets or limit")
        rows = options.integer("maxRowsPerTrigger", 0, 1, _ROWS_MAX)
        return cls(
            urls=options.urls(),
            start=start,
            end=end,
            rows_per_trigger=rows or None,
            fails_on_loss=options.flag("failOnDataLoss", True),
            tubes=options.words("tube"),
            columns=select_columns(options.words("columns")),
            bodies=options.flag("includeBodies", True),
            rows_per_partition=options.integer("rowsPerPartition", _ROWS_PER_PARTITION, 1, _ROWS_MAX),
        )


def _parse_start_point(text: str | None, name: str, default: str) -> StartPoint:
    if text is None:
        return default
    word = text.strip()
    if word.lower() in (EARLIEST, LATEST):
        return word.lower()
    wrong = f'{name} must be earliest, latest, or positions by node like {{"1f0e…": 4711}}, not {text!r}'
    try:
        found = json.loads(word)
    except ValueError:
        raise WrongType(wrong) from None
    if not isinstance(found, dict) or not found or not all(type(position) is int for position in found.values()):
        raise WrongType(wrong)
    if any(position < 1 for position in found.values()):
        raise OutOfRange(f"{name}: positions of a log start at 1")
    return found


def _parse_time_ms(text: str) -> int:
    """Return a time in ms since 1970. `text` is this number, or an ISO time, in UTC if it has no time zone."""
    word = text.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise WrongType(
            f"startingTimestamp must be a time like 2026-11-16T08:00:00Z, or ms since 1970, not {text!r}"
        ) from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
