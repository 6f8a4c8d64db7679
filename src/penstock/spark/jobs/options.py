"""Options of the source and sink `penstock`: for batches, for streams and for writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import OutOfRange, WrongType
from penstock.core.limits import NEVER, STAGE_EXPIRE_MS
from penstock.core.states import STAGED, STATE_NAMES
from penstock.spark.jobs.refused_rows import check_place
from penstock.spark.jobs.schema import select_columns
from penstock.spark.options import Options

NAME: Final = "penstock"

# The kinds of a body, in the order of their numbers.
KINDS: Final = ("bytes", "text", "json", "msgpack")

# The states that a batch reads by default: those of all jobs in a tube. Staged jobs are not in a tube yet.
VISIBLE: Final = tuple(STATE_NAMES[1:STAGED])

_READING: Final = ("tube", "states", "columns", "includeHeaders", "rowsPerPartition")
_STREAMING: Final = ("tube", "columns", "includeHeaders", "maxRowsPerTrigger", "rowsPerPartition", "lease", "consumer")
_WRITING: Final = ("tube", "kind", "stageExpire", "errors", "maxErrors")
_JUDGING: Final = ("tube",)

# A batch of a stream has a fixed cost of a third of a second in Spark. Reading this many rows takes as long again.
_ROWS_PER_TRIGGER: Final = 50_000
_ROWS_PER_PARTITION: Final = 8_000
# A scan reads a million jobs per task in a few seconds. Smaller tasks would only add the cost of starting them.
_ROWS_PER_SCAN: Final = 250_000
_ROWS_MAX: Final = 2**53

# With a shorter time, a busy driver would lose its claims or stages.
_FINITE_MS_MIN: Final = 1_000
_LEASE_MS: Final = 300_000
_ERRORS_MAX: Final = 10_000


@dataclass(frozen=True)
class ReadOptions:
    """Options of a batch, which scans tubes."""

    urls: tuple[str, ...]
    tubes: tuple[str, ...]  # Empty: all tubes.
    states: tuple[str, ...]
    columns: tuple[str, ...]
    rows_per_partition: int

    @classmethod
    def read(cls, given: Mapping[str, str]) -> ReadOptions:
        options = Options(NAME, given, _READING)
        states = options.words("states")
        for state in states:
            if state not in STATE_NAMES[1:]:
                raise OutOfRange(f"states must be some of {', '.join(STATE_NAMES[1:])}, not {state!r}")
        return cls(
            urls=options.urls(),
            tubes=options.words("tube"),
            states=states or VISIBLE,
            columns=_columns(options),
            rows_per_partition=options.integer("rowsPerPartition", _ROWS_PER_SCAN, 1, _ROWS_MAX),
        )


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream, which claims the jobs of one or several tubes."""

    urls: tuple[str, ...]
    tubes: tuple[str, ...]
    columns: tuple[str, ...]
    rows_per_trigger: int
    rows_per_partition: int
    lease_ms: int
    consumer: str | None  # None: the query generates a name.

    @classmethod
    def read(cls, given: Mapping[str, str]) -> StreamOptions:
        options = Options(NAME, given, _STREAMING)
        return cls(
            urls=options.urls(),
            tubes=_tubes(options),
            columns=_columns(options),
            rows_per_trigger=options.integer("maxRowsPerTrigger", _ROWS_PER_TRIGGER, 1, _ROWS_MAX),
            rows_per_partition=options.integer("rowsPerPartition", _ROWS_PER_PARTITION, 1, _ROWS_MAX),
            lease_ms=_finite_duration_ms(options, "lease", _LEASE_MS),
            consumer=options.text("consumer"),
        )


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write."""

    url: str
    tube: str | None  # None: the column `tube` of each row.
    kind: str | None  # None: text for a string column, bytes for a binary one.
    stage_expire_ms: int
    errors: str | None  # Directory or URI for refused rows. None: a refused row fails the write.
    errors_max: int

    @classmethod
    def read(cls, given: Mapping[str, str]) -> WriteOptions:
        options = Options(NAME, given, _WRITING)
        kind = options.text("kind")
        if kind is not None and kind not in KINDS:
            raise WrongType(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        return cls(
            url=_one_url(options),
            tube=options.text("tube"),
            kind=kind,
            stage_expire_ms=_finite_duration_ms(options, "stageExpire", STAGE_EXPIRE_MS),
            errors=_place(options, "errors"),
            errors_max=options.integer("maxErrors", _ERRORS_MAX, 1, 1_000_000),
        )


@dataclass(frozen=True)
class VerdictOptions:
    """Options of a write of verdicts."""

    urls: tuple[str, ...]
    tube: str | None  # The target of moves whose row has no tube.

    @classmethod
    def read(cls, given: Mapping[str, str]) -> VerdictOptions:
        options = Options(NAME, given, _JUDGING)
        return cls(options.urls(), options.text("tube"))


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a batch or a stream reads. The other options are not checked."""
    known = ("columns", "includeHeaders")
    return _columns(Options(NAME, {name: given[name] for name in known if given.get(name) is not None}, known))


def _columns(options: Options) -> tuple[str, ...]:
    given = options.text("includeHeaders")
    return select_columns(options.words("columns"), None if given is None else options.flag("includeHeaders", True))


def _tubes(options: Options) -> tuple[str, ...]:
    options.required("tube", "a stream takes the jobs of one or several tubes")
    tubes = options.words("tube")
    if len(set(tubes)) < len(tubes):
        raise WrongType("a tube is named twice; name each tube once")
    return tubes


def _one_url(options: Options) -> str:
    urls = options.urls()
    if len(urls) > 1:
        raise WrongType("a write uses one server; start one for each URL")
    return urls[0]


def _finite_duration_ms(options: Options, name: str, default: int) -> int:
    ms = options.duration_ms(name, default)
    if not _FINITE_MS_MIN <= ms < NEVER:
        raise OutOfRange(f"{name} must be at least 1s and finite")
    return ms


def _place(options: Options, name: str) -> str | None:
    place = options.text(name)
    if place is not None:
        check_place(place)
    return place
