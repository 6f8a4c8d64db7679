"""Options of the source `penstock_events`. Their names and meanings follow Spark's source for Kafka.

OPTIONS is the only list of them. The documentation is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import OutOfRange, WrongType
from penstock.core.states import EVENT_NAMES
from penstock.spark.events.places import EARLIEST, LATEST, Place, Times, parse_positions, parse_times
from penstock.spark.events.schema import select_columns
from penstock.spark.options import Options

NAME: Final = "penstock_events"

ROWS_MAX: Final = 2**53
_BYTES_MAX: Final = 2**53

# Positions per task: about half a second of work. The overhead of a task is some hundredths of a second.
_ROWS_PER_PARTITION: Final = 250_000

# Kafka's default. A stream with minRowsPerTrigger then processes rare events at least this often.
_TRIGGER_DELAY_MS: Final = 15 * 60_000

BOTH, BATCH, STREAM = "both", "batch", "stream"


@dataclass(frozen=True)
class Option:
    """An option as the documentation shows it."""

    name: str
    meaning: str
    default: str = ""
    aliases: tuple[str, ...] = ()  # Names in Spark's source for Kafka.
    of: str = BOTH


OPTIONS: Final = (
    Option("url", "one URL per node, separated by commas", "penstock://127.0.0.1:7711"),
    Option(
        "startingOffsets",
        'the first position to read: `earliest`, `latest`, or one per node: `{"1f0e…": 4711}`; in this form, -2 is the '
        "earliest and -1 the latest position, and nodes that are not named are read from the earliest one",
        "`earliest`; of a stream `latest`",
    ),
    Option(
        "startingTimestamp",
        "instead of `startingOffsets`: read events from this time on. A time like `2026-11-16T08:00:00Z`, or ms since "
        '1970, or one per node: `{"1f0e…": "2026-11-16T08:00:00Z"}`',
        aliases=("startingOffsetsByTimestamp",),
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "if a node has no event from `startingTimestamp` on: `latest` starts at its end, `error` fails",
        "`latest`",
    ),
    Option("endingOffsets", "the first position that is not read, as in `startingOffsets`", "`latest`", of=BATCH),
    Option(
        "endingTimestamp",
        "instead of `endingOffsets`: read events before this time, as in `startingTimestamp`",
        aliases=("endingOffsetsByTimestamp",),
        of=BATCH,
    ),
    Option("maxRowsPerTrigger", "largest number of positions in a batch", aliases=("maxOffsetsPerTrigger",), of=STREAM),
    Option(
        "maxBytesPerTrigger",
        "largest number of bytes of the journals in a batch: a number, or text like `64m`",
        of=STREAM,
    ),
    Option(
        "minRowsPerTrigger",
        "wait until there are this many new positions, or until `maxTriggerDelay` has passed since the last batch",
        aliases=("minOffsetsPerTrigger",),
        of=STREAM,
    ),
    Option("maxTriggerDelay", "longest wait for `minRowsPerTrigger`", "15m", of=STREAM),
    Option("failOnDataLoss", "true: deleted history, or a missing node, is an error. false: it is skipped.", "true"),
    Option("tube", "one or more tubes, separated by commas", "all", aliases=("subscribe",)),
    Option(
        "tubePattern",
        "instead of `tube`: a regular expression that matches the whole name of a tube",
        aliases=("subscribePattern",),
    ),
    Option("event", "one or more [events](states.md#the-events), separated by commas", "all"),
    Option("columns", "the columns to read, separated by commas", "all"),
    Option("includeBodies", "whether to read the bodies. false: the column is null", "true"),
    Option("includeHeaders", "whether to read the headers. false: the column is null", "true"),
    Option("rowsPerPartition", "largest number of positions per task", "250000", aliases=("maxRecordsPerPartition",)),
    Option("minPartitions", "least number of tasks, if there are enough positions", "1"),
)

_NAMES: Final = tuple(option.name for option in OPTIONS if option.name != "url")
_ALIASES: Final = {alias: option.name for option in OPTIONS for alias in option.aliases}


@dataclass(frozen=True)
class EventsOptions:
    """The parsed options of the source `penstock_events`."""

    urls: tuple[str, ...]
    start: Place
    end: Place
    fails_without_start: bool  # Fail if a node has no event since the time of `start`.
    rows_per_trigger: int | None
    bytes_per_trigger: int | None
    rows_per_trigger_min: int
    trigger_delay_ms: int  # `limits.NEVER`: wait for `rows_per_trigger_min` without a limit.
    fails_on_loss: bool
    tubes: tuple[str, ...]  # Empty: all tubes.
    tube_pattern: str | None
    events: tuple[str, ...]  # Empty: all events.
    columns: tuple[str, ...]
    bodies: bool
    headers: bool
    rows_per_partition: int
    partitions_min: int

    @classmethod
    def read(cls, given: Mapping[str, str], streaming: bool, columns: Iterable[str] = ()) -> EventsOptions:
        """Parse the options of a stream or of a batch.

        `columns`: the columns of the schema that Spark uses, instead of those of the option. They differ if the schema
        is given in the query or stored in the catalog.
        """
        options = Options(NAME, given, _NAMES, _ALIASES)
        _check_kind(options, streaming)
        _check_contradictions(options)
        rows = options.integer("maxRowsPerTrigger", 0, 1, ROWS_MAX)
        least = options.integer("minRowsPerTrigger", 0, 1, ROWS_MAX)
        if rows and rows < least:
            raise WrongType("minRowsPerTrigger must not be greater than maxRowsPerTrigger")
        start, end = _start(options, streaming), _end(options)
        _check_order(start, end)
        return cls(
            urls=options.urls(),
            start=start,
            end=end,
            fails_without_start=_fails_without_start(options),
            rows_per_trigger=rows or None,
            bytes_per_trigger=options.bytes("maxBytesPerTrigger", 0, 1, _BYTES_MAX) or None,
            rows_per_trigger_min=least,
            trigger_delay_ms=options.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS),
            fails_on_loss=options.flag("failOnDataLoss", True),
            tubes=options.words("tube"),
            tube_pattern=_pattern(options),
            events=_events(options),
            columns=select_columns(tuple(columns) or options.words("columns")),
            bodies=options.flag("includeBodies", True),
            headers=options.flag("includeHeaders", True),
            rows_per_partition=options.integer("rowsPerPartition", _ROWS_PER_PARTITION, 1, ROWS_MAX),
            partitions_min=options.integer("minPartitions", 1, 1, 1_000_000),
        )


def _check_kind(options: Options, streaming: bool) -> None:
    """Refuse options of a stream in a batch, and options of a batch in a stream."""
    for option in OPTIONS:
        if options.text(option.name) is None:
            continue
        if option.of == BATCH and streaming:
            raise WrongType(f"a stream has no {option.name}; read a batch, or use the trigger availableNow")
        if option.of == STREAM and not streaming:
            raise WrongType(f"a batch has no {option.name}; use endingOffsets or limit")


def _check_contradictions(options: Options) -> None:
    for one, other in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("tube", "tubePattern"),
    ):
        if options.text(one) is not None and options.text(other) is not None:
            raise WrongType(f"give {one} or {other}, not both")
    for name, needed in (
        ("maxTriggerDelay", "minRowsPerTrigger"),
        ("startingOffsetsByTimestampStrategy", "startingTimestamp"),
    ):
        if options.text(name) is not None and options.text(needed) is None:
            raise WrongType(f"{name} has no effect without {needed}; give both or none")


def _start(options: Options, streaming: bool) -> Place:
    moment = options.text("startingTimestamp")
    if moment is not None:
        return parse_times(moment, "startingTimestamp")
    start = parse_positions(options.text("startingOffsets"), "startingOffsets", LATEST if streaming else EARLIEST)
    if start == LATEST and not streaming:
        raise WrongType("a batch that starts at latest is empty; use startingOffsets=earliest")
    return start


def _end(options: Options) -> Place:
    moment = options.text("endingTimestamp")
    if moment is not None:
        return parse_times(moment, "endingTimestamp")
    end = parse_positions(options.text("endingOffsets"), "endingOffsets", LATEST)
    if end == EARLIEST or (isinstance(end, dict) and EARLIEST in end.values()):
        raise WrongType("endingOffsets must be latest or positions by node, not earliest")
    return end


def _check_order(start: Place, end: Place) -> None:
    """Raise OutOfRange if the end of a batch is before its start, as far as the options alone show it."""
    if isinstance(start, Times) and isinstance(end, Times):
        times = [(start.by_node.get(node, start.ms), end.by_node.get(node, end.ms)) for node in _nodes(start, end)]
        is_wrong = any(first is not None and last is not None and last < first for first, last in times)
    elif isinstance(start, dict) and isinstance(end, dict):
        pairs = [(start[node], end[node]) for node in start.keys() & end.keys()]
        is_wrong = any(isinstance(first, int) and isinstance(last, int) and last < first for first, last in pairs)
    else:
        is_wrong = False
    if is_wrong:
        raise OutOfRange("the batch ends before its start; give a later endingOffsets or endingTimestamp")


def _nodes(start: Times, end: Times) -> set[str]:
    """Return the nodes that have times of their own, and "" for all others."""
    return {"", *start.by_node, *end.by_node}


def _fails_without_start(options: Options) -> bool:
    strategy = (options.text("startingOffsetsByTimestampStrategy") or LATEST).lower()
    if strategy not in (LATEST, "error"):
        raise WrongType(f"startingOffsetsByTimestampStrategy must be latest or error, not {strategy!r}")
    return strategy == "error"


def _pattern(options: Options) -> str | None:
    pattern = options.text("tubePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise WrongType(f"tubePattern is not a regular expression: {error}") from None
    return pattern


def _events(options: Options) -> tuple[str, ...]:
    events = options.words("event")
    for event in events:
        if event not in EVENT_NAMES:
            raise WrongType(f"there is no event {event!r}; the events are {', '.join(filter(None, EVENT_NAMES))}")
    return events
