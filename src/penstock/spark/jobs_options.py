"""What `penstock` may be told: a source that reads jobs, and one that puts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlparse
from urllib.request import url2pathname

from penstock.core.errors import OutOfRange, WrongType
from penstock.core.limits import NEVER, STAGE_EXPIRE_MS
from penstock.core.states import STAGED, STATE_NAMES
from penstock.spark.jobs_schema import chosen
from penstock.spark.options import Options

NAME: Final = "penstock"

# What a body can be said to be.
KINDS: Final = ("bytes", "text", "json", "msgpack")

# What is read unless states are named: everything that is in a tube.
VISIBLE: Final = tuple(STATE_NAMES[1:STAGED])

_READING: Final = ("tube", "states", "columns")
_STREAMING: Final = ("tube", "columns", "maxRowsPerTrigger", "rowsPerPartition", "lease", "consumer")
_WRITING: Final = ("tube", "kind", "stageExpire", "errors", "maxErrors")

# A batch of a stream costs Spark a third of a second whatever is in it, and these as much again.
_ROWS_PER_TRIGGER: Final = 50_000
_ROWS_PER_PARTITION: Final = 8_000
_ROWS_MAX: Final = 2**53

# In less, a driver that is only busy would lose what it holds.
_FINITE_MS_MIN: Final = 1_000
_LEASE_MS: Final = 300_000
_ERRORS_MAX: Final = 10_000


@dataclass(frozen=True)
class ReadOptions:
    """Of a batch: a scan of tubes."""

    urls: tuple[str, ...]
    tubes: tuple[str, ...]  # None named: all.
    states: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def read(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read them."""
        options = Options(NAME, given, _READING)
        states = options.words("states")
        for state in states:
            if state not in STATE_NAMES[1:]:
                raise OutOfRange(f"a state is one of {', '.join(STATE_NAMES[1:])}, not {state!r}")
        return cls(options.urls(), options.words("tube"), states or VISIBLE, chosen(options.words("columns")))


@dataclass(frozen=True)
class StreamOptions:
    """Of a stream: claims of one tube."""

    url: str
    tube: str
    columns: tuple[str, ...]
    rows_per_trigger: int
    rows_per_partition: int
    lease_ms: int
    consumer: str | None  # None: one of the query's own.

    @classmethod
    def read(cls, given: Mapping[str, str]) -> StreamOptions:
        """Read them."""
        options = Options(NAME, given, _STREAMING)
        return cls(
            url=_one_url(options),
            tube=options.needed("tube", "a stream takes the jobs of one tube"),
            columns=chosen(options.words("columns")),
            rows_per_trigger=options.integer("maxRowsPerTrigger", _ROWS_PER_TRIGGER, 1, _ROWS_MAX),
            rows_per_partition=options.integer("rowsPerPartition", _ROWS_PER_PARTITION, 1, _ROWS_MAX),
            lease_ms=_finite(options, "lease", _LEASE_MS),
            consumer=options.text("consumer"),
        )


@dataclass(frozen=True)
class WriteOptions:
    """Of a sink."""

    url: str
    tube: str | None  # None: each row says it.
    kind: str | None  # None: text for text, bytes for bytes.
    stage_expire_ms: int
    errors: Path | None  # Where rows that are refused go; None: they are not tolerated.
    errors_max: int

    @classmethod
    def read(cls, given: Mapping[str, str]) -> WriteOptions:
        """Read them."""
        options = Options(NAME, given, _WRITING)
        kind = options.text("kind")
        if kind is not None and kind not in KINDS:
            raise WrongType(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
        return cls(
            url=_one_url(options),
            tube=options.text("tube"),
            kind=kind,
            stage_expire_ms=_finite(options, "stageExpire", STAGE_EXPIRE_MS),
            errors=_directory(options, "errors"),
            errors_max=options.integer("maxErrors", _ERRORS_MAX, 1, 1_000_000),
        )


def _one_url(options: Options) -> str:
    urls = options.urls()
    if len(urls) > 1:
        raise WrongType("a stream of jobs and a sink are for one server; run one for each")
    return urls[0]


def _finite(options: Options, name: str, default: int) -> int:
    ms = options.duration_ms(name, default)
    if not _FINITE_MS_MIN <= ms < NEVER:
        raise OutOfRange(f"{name} is a second or more, and ends some time")
    return ms


def _directory(options: Options, name: str) -> Path | None:
    """A directory on this machine, named as a path or a file: URL."""
    path = options.text(name)
    if path is None:
        return None
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file"):
        raise WrongType(f"{name} is a directory that the driver can write to, not {path!r}")
    return Path(url2pathname(parsed.path) if parsed.scheme else path)
