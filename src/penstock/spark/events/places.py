"""Places in the logs of all nodes: where a query starts or ends. Parses the options that name one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.errors import OutOfRange, WrongType

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# The numbers that stand for a place in the JSON of Spark's source for Kafka.
_KAFKA_PLACES: Final = {-2: EARLIEST, -1: LATEST}


@dataclass(frozen=True)
class Times:
    """Times in ms since 1970: one for all nodes, or one per node id."""

    ms: int | None
    by_node: dict[str, int]


# A position, EARLIEST or LATEST for each of some nodes, one of the two words for all nodes, or times.
Place = dict[str, int | str] | str | Times


def parse_positions(text: str | None, option: str, default: str) -> Place:
    """Parse the value of an option like startingOffsets."""
    if text is None:
        return default
    word = text.strip()
    if word.lower() in (EARLIEST, LATEST):
        return word.lower()
    wrong = f'{option} must be earliest, latest, or positions by node like {{"1f0e…": 4711}}, not {text!r}'
    found = _object(word)
    if found is None or not all(type(position) is int for position in found.values()):
        raise WrongType(wrong)
    places = {node: _KAFKA_PLACES.get(position, position) for node, position in found.items()}
    if any(isinstance(position, int) and position < 1 for position in places.values()):
        raise OutOfRange(f"{option}: positions of a log start at 1; -2 is the earliest, -1 the latest")
    return places


def parse_times(text: str, option: str) -> Times:
    """Parse the value of an option like startingTimestamp."""
    found = _object(text.strip())
    if found is None:
        return Times(_time_ms(text, option), {})
    return Times(None, {node: _time_ms(str(moment), option) for node, moment in found.items()})


def _object(word: str) -> dict[str, Any] | None:
    """Return the JSON object in `word`, or None if it is something else or empty."""
    try:
        found = json.loads(word)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found else None


def _time_ms(text: str, option: str) -> int:
    """Return a time in ms since 1970. `text` is this number, or an ISO time, in UTC if it has no time zone."""
    word = text.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise WrongType(f"{option} must be a time like 2026-11-16T08:00:00Z, or ms since 1970, not {text!r}") from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
