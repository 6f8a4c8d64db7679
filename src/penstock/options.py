"""What users may say in Python, checked and turned into what the engine takes: drafts, policies, durations, bodies.

Seconds become milliseconds here, text becomes bytes, and a wrong type becomes an error that says what is wanted. A
misspelt keyword is a TypeError that names the method and the closest keyword. The embedded queue and the clients share
this file, so an option means the same everywhere.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import EllipsisType
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar, Unpack
from uuid import UUID

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.errors import OutOfRange, TubeExists, Unsupported, WrongType
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_TEXT, Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET, check_number, check_priority
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry
from penstock.core.states import state_of
from penstock.keywords import check_keywords
from penstock.wire.bodies import to_python

T = TypeVar("T")

Seconds = float | int | timedelta
# None stands for "for ever".
Duration = float | int | timedelta | None


class EncodedBody(NamedTuple):
    """A body as it is in a log: it is put as it is, whatever it was."""

    raw: bytes
    kind: int


# Moments, UUIDs and decimals become text, at the top as within lists and dicts.
Body = (
    EncodedBody
    | bytes
    | bytearray
    | memoryview
    | str
    | int
    | float
    | bool
    | date
    | time
    | UUID
    | Decimal
    | list[Any]
    | tuple[Any, ...]
    | dict[str, Any]
    | None
)
TubeType = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube", "disque", "queue15", "xqueue"]
StateName = Literal["ready", "taken", "delayed", "buried", "done", "zombie", "staged"]

# The type of a tube that is made with options, and without a type.
DEFAULT_TYPE: Final = "fifottl"


class PutOptions(TypedDict, total=False):
    """What a put may say about its job. What it leaves out, the tube decides."""

    delay: Seconds  # Not before so many seconds.
    at: datetime  # Not before this moment. One without a time zone is in local time; one that has passed means now.
    ttl: Duration  # Not after so many seconds, the delay not counted. None: no end.
    ttr: Duration  # How long a taker may hold it before it goes back. None: no end.
    priority: int  # Lower is served first.
    key: str | bytes  # In tubes with keys: whose job it is.
    urgent: bool  # Before all others.
    once: bool  # In disque tubes: deliver at most once.
    retry: str  # What becomes of it when it fails: "5x exp(1s..10m) jitter then bury".
    name: str | bytes  # An id of your own, unique in the tube.
    unique: str | bytes  # If an unfinished job of this value is in the tube, that one is returned instead.
    dedup: str | bytes  # If a put of this value was seen lately, its job is returned instead.
    nacks: int  # How often it has failed already, if it comes from elsewhere.
    options: dict[str, Any]  # In tubes with a driver: what the driver gets, as it is.
    number: int  # Its integer within the tube, below the tube's first_integer, if it comes from elsewhere.
    state: Literal["ready", "buried", "done"]  # The state that it arrives in, if it comes from elsewhere.
    new: bool  # Raise JobExists where `unique` or `dedup` would return a job that is there.


class TubeOptions(TypedDict, total=False):
    """What a tube may be given beside its type."""

    ttl: Duration  # Default of its jobs.
    ttr: Duration  # Default of its jobs.
    priority: int  # Default of its jobs.
    ttl_while_taken: Literal["waits", "kills"]  # Whether a ttl can end a job that is being worked on.
    key_limit: int  # How many jobs of one key may be taken at a time.
    fair: bool  # Serve keys in turn instead of in the order of their jobs.
    capacity: int  # How many jobs fit, in any state.
    capacity_bytes: int  # How many bytes of bodies fit.
    retry: str  # What becomes of its jobs when they fail.
    max_deliveries: int  # Short for retry: so many tries, then bury, or then move to `dead_letter`.
    dead_letter: str  # With max_deliveries: the tube that gets what failed too often.
    keep: bool  # Keep acked jobs as done.
    zombie: Seconds  # Keep acked jobs as zombies for so long.
    dedup_window: Seconds  # How long a dedup id is remembered.
    dedup_count: int  # How many dedup ids are remembered.
    temporary: bool  # Not in the log.


class TakeOptions(TypedDict, total=False):
    """Options of a take."""

    key: str | bytes | None  # Take only a job of this key. Default: any.
    ttr: Duration | None  # Time that the session has for the job. Default: that of the job.


class ReleaseOptions(TypedDict, total=False):
    """Options of a release. What is not given, or None, stays as it is."""

    ttl: Duration | None  # Time to live from now on.
    priority: int | None  # A job with a lower priority is taken first.
    key: str | bytes | None  # The new key of the job.
    options: dict[str, Any] | None  # For the driver of the tube, if it has one.


PUT_KEYWORDS: Final = frozenset(PutOptions.__annotations__)
TUBE_KEYWORDS: Final = frozenset(TubeOptions.__annotations__)
TAKE_KEYWORDS: Final = frozenset(TakeOptions.__annotations__)
RELEASE_KEYWORDS: Final = frozenset(ReleaseOptions.__annotations__)


class NewJob:
    """A body with options of its own, for `put_many`: `NewJob(page, key="example.org")`."""

    __slots__ = ("body", "options")

    def __init__(self, body: Body, **options: Unpack[PutOptions]) -> None:
        check_keywords("NewJob", options, PUT_KEYWORDS, "body")
        self.body = body
        self.options = options

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"NewJob({self.body!r}{options})"


Outcome = Literal["acked", "buried", "dead-lettered", "dropped", "expired", "deleted", "gone", "timeout"]


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a wait for a job ended. It is true if the job was acked."""

    # "gone": the job ended before the wait began, and how is not known. "timeout": it has not ended yet.
    outcome: Outcome
    reason: str = ""  # Why the job failed, if it did and somebody said so.

    def __bool__(self) -> bool:
        return self.outcome == "acked"


# What happened last to a job that is gone, and which outcome that is.
_OUTCOMES: Final[dict[str, Outcome]] = {
    "acked": "acked",
    "discarded": "dropped",
    "expired": "expired",
    "deleted": "deleted",
    "truncated": "deleted",
    "withdrawn": "deleted",
    "zombie passed": "acked",
}


def outcome_in(history: Iterable[tuple[str, str | None, str | None]]) -> JobOutcome:
    """Return how a job that is gone ended, by its history: events, the states before them, and reasons."""
    last = list(history)[-1:]
    for event, before, reason in last:
        if event in _OUTCOMES:
            # A job that was kept was acked before, and only its result has ended.
            acked = before in ("done", "zombie") or event == "acked"
            return JobOutcome("acked") if acked else JobOutcome(_OUTCOMES[event], reason or "")
    return JobOutcome("gone")


class ClaimInfo(NamedTuple):
    """How far a consumer of claims is."""

    acked: int  # Every claim up to this number is acked.
    newest: int
    token: int
    open: list[int]


def draft(
    body: Body,
    *,
    delay: Seconds = 0,
    at: datetime | None = None,
    ttl: Duration | EllipsisType = ...,
    ttr: Duration | EllipsisType = ...,
    priority: int | None = None,
    key: str | bytes | None = None,
    urgent: bool = False,
    once: bool = False,
    retry: str | None = None,
    name: str | bytes | None = None,
    unique: str | bytes | None = None,
    dedup: str | bytes | None = None,
    nacks: int = 0,
    options: dict[str, Any] | None = None,
    number: int | None = None,
    state: str = "ready",
    new: bool = False,
) -> Draft:
    """What a put asks for."""
    raw, kind = encode_body(body)
    return Draft(
        raw,
        UNSET if ttl is ... else duration_ms(ttl, "ttl"),
        UNSET if ttr is ... else duration_ms(ttr, "ttr"),
        duration_ms(delay, "delay"),
        PRIORITY_UNSET if priority is None else check_priority(integer(priority, "priority")),
        None if key is None else to_bytes(key, "a key"),
        boolean(once, "once"),
        kind,
        boolean(urgent, "urgent"),
        None if retry is None else parse_retry(text(retry, "retry")),
        None if name is None else to_bytes(name, "a job's name"),
        None if unique is None else to_bytes(unique, "a unique value"),
        False,
        None if dedup is None else to_bytes(dedup, "a dedup id"),
        integer(nacks, "nacks"),
        None if options is None else mapping(options, "options"),
        UNSET if number is None else check_number(integer(number, "a number")),
        state_of(text(state, "state")),
        boolean(new, "new"),
        UNSET if at is None else moment_ms(at, "at"),
    )


def put_draft(method: str, body: Body, options: PutOptions) -> Draft:
    """What a put asks for, by the method that was called."""
    check_keywords(method, options, PUT_KEYWORDS, *(["body", "timeout"] if method == "put" else ["bodies"]))
    return draft(body, **options)


def each_put(bodies: Iterable[Body | NewJob], options: PutOptions) -> list[tuple[Body, PutOptions]]:
    """The jobs of a put of many with their options. Those of a `NewJob` go before those that all jobs have."""
    if isinstance(bodies, (str, bytes, NewJob)) or not isinstance(bodies, Iterable):
        raise WrongType("give a list of bodies")
    return [(each.body, options | each.options) if isinstance(each, NewJob) else (each, options) for each in bodies]


def altered(
    base: TubePolicy,
    *,
    ttl: Duration | EllipsisType = ...,
    ttr: Duration | EllipsisType = ...,
    priority: int | None = None,
    ttl_while_taken: str | None = None,
    key_limit: int | None = None,
    fair: bool | None = None,
    capacity: int | None = None,
    capacity_bytes: int | None = None,
    retry: str | None = None,
    max_deliveries: int | None = None,
    dead_letter: str | None = None,
    keep: bool | None = None,
    zombie: Seconds | None = None,
    dedup_window: Seconds | None = None,
    dedup_count: int | None = None,
    temporary: bool | None = None,
) -> TubePolicy:
    """A policy with some of its fields as these options say."""
    changes: dict[str, Any] = {
        "default_ttl_ms": None if ttl is ... else duration_ms(ttl, "ttl"),
        "default_ttr_ms": None if ttr is ... else duration_ms(ttr, "ttr"),
        "default_priority": None if priority is None else integer(priority, "priority"),
        "ttl_while_taken": None if ttl_while_taken is None else text(ttl_while_taken, "ttl_while_taken"),
        "key_limit": None if key_limit is None else integer(key_limit, "key_limit"),
        "key_order": None if fair is None else (p.FAIR if boolean(fair, "fair") else p.STRICT),
        "capacity": None if capacity is None else integer(capacity, "capacity"),
        "capacity_bytes": None if capacity_bytes is None else integer(capacity_bytes, "capacity_bytes"),
        "retry": _retry(retry, max_deliveries, dead_letter),
        "dedup_ms": None if dedup_window is None else duration_ms(dedup_window, "dedup_window"),
        "dedup_count": None if dedup_count is None else integer(dedup_count, "dedup_count"),
        "temporary": None if temporary is None else boolean(temporary, "temporary"),
    }
    if zombie is not None:
        changes["after_ack"], changes["zombie_ms"] = p.LINGERS, duration_ms(zombie, "zombie")
    if keep is not None:
        if boolean(keep, "keep") and zombie is not None:
            raise Unsupported("keep and zombie exclude each other: acked jobs stay for ever, or for a while")
        if zombie is None:
            changes["after_ack"], changes["zombie_ms"] = p.KEPT if keep else p.GOES, UNSET
    return dataclasses.replace(base, **{field: value for field, value in changes.items() if value is not None})


def policy_of(type: str | TubePolicy | None) -> TubePolicy:
    """The policy behind what a user gave as the type of a tube."""
    if isinstance(type, TubePolicy):
        return type
    return p.preset(DEFAULT_TYPE if type is None else text(type, "the type of a tube"))


def new_policy(type: str | TubePolicy | None, options: dict[str, Any]) -> TubePolicy:
    """Return the policy of a new tube. Without a type and options it is the default policy."""
    if type is None and not options:
        return p.DEFAULT
    return altered(policy_of(type), **options)


def changed_policy(name: bytes, old: TubePolicy, type: str | TubePolicy | None, options: dict[str, Any]) -> TubePolicy:
    """Return the policy of a tube that exists, with these options changed. A type must be the one that it has."""
    if isinstance(type, TubePolicy):
        return altered(type, **options)
    if type is not None and text(type, "the type of a tube") != old.type:
        raise TubeExists(p.exists_text(name, old, p.preset(type)))
    return altered(old, **options)


def policy_from(fields: object) -> TubePolicy:
    """The policy whose fields are given by their names; of a time, None means for ever."""
    if not isinstance(fields, dict) or "type" not in fields:
        raise WrongType("a policy is an object of the fields of TubePolicy, and has a type")
    given: dict[str, Any] = {}
    kinds = {field.name: field.default for field in dataclasses.fields(TubePolicy)}
    for name, value in fields.items():
        if name not in kinds:
            raise Unsupported(f"a policy has no field {name!r}")
        wanted = str if name == "type" else type(kinds[name])
        if value is None and name.endswith("_ms"):
            value = NEVER
        elif wanted is tuple and isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = tuple(value)
        if type(value) is not wanted:
            raise WrongType(f"the field {name} of a policy must be {_KIND_NAMES[wanted]}")
        given[name] = value
    return TubePolicy(**given)


_KIND_NAMES: Final[dict[type, str]] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    tuple: "a list of texts",
}


def _retry(retry: str | None, max_deliveries: int | None, dead_letter: str | None) -> str | None:
    if max_deliveries is None:
        if dead_letter is not None:
            raise Unsupported("dead_letter goes with max_deliveries; in a retry policy write: then move TUBE")
        return None if retry is None else text(retry, "retry")
    if retry is not None:
        raise Unsupported("give retry or max_deliveries, not both: 5 deliveries are 5x in a retry policy")
    end = "bury" if dead_letter is None else f"move {text(dead_letter, 'dead_letter')}"
    return f"{integer(max_deliveries, 'max_deliveries')}x then {end}"


def duration_ms(value: object, what: str) -> int:
    """Turn seconds, or a timedelta, into milliseconds; None and infinity mean for ever."""
    return limits.duration_ms(value.total_seconds() if isinstance(value, timedelta) else value, what)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def moment_ms(moment: datetime, what: str) -> int:
    """Turn a moment into milliseconds since 1970, rounded up. One without a time zone is in local time."""
    if not isinstance(moment, datetime):
        raise WrongType(f"{what} must be a datetime, not {type(moment).__name__}")
    try:
        since = moment.astimezone(UTC) - _EPOCH
    except (OverflowError, ValueError, OSError):
        raise OutOfRange(f"{what} is outside of what this system can tell as a time") from None
    return max(0, -(-since // _MS))


def check_tubes(tubes: Iterable[object], kind: type[T]) -> list[T]:
    """Return the tubes as a list. Raise WrongType if one is not a `kind`, or if `tubes` is a single tube.

    A tube is iterable, and iterating over it would take its jobs.
    """
    if isinstance(tubes, (kind, str, bytes)) or not isinstance(tubes, Iterable):
        raise WrongType("give a list of tubes")
    places: list[T] = []
    for tube in tubes:
        if not isinstance(tube, kind):
            raise WrongType(f"a tube is what queue.tube() gave, not {type(tube).__name__}")
        places.append(tube)
    if not places:
        raise OutOfRange("give at least one tube")
    return places


def take_options(method: str, options: TakeOptions, *others: str) -> tuple[bytes | None, int]:
    """Return the key and the ttr in milliseconds (or UNSET) that the options of a take ask for."""
    if not options:
        return None, UNSET
    check_keywords(method, options, TAKE_KEYWORDS, "timeout", *others)
    key, ttr = options.get("key"), options.get("ttr")
    return None if key is None else to_bytes(key, "a key"), UNSET if ttr is None else duration_ms(ttr, "ttr")


def check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    """Refuse what is no part of a claim."""
    if not isinstance(shard, tuple) or len(shard) != 2:
        raise WrongType("a shard is a pair of whole numbers: which, and of how many")
    index, count = integer(shard[0], "the number of a shard"), integer(shard[1], "how many shards there are")
    if not 0 <= index < count:
        raise OutOfRange("shards are numbered from 0, and there is at least one")
    return index, count


def encode_body(body: Body) -> tuple[bytes, int]:
    """The bytes of a body, and what they are."""
    if isinstance(body, bytes):
        return body, BODY_BYTES
    if isinstance(body, str):
        return to_bytes(body, "a body"), BODY_TEXT
    if isinstance(body, EncodedBody):
        return body
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body), BODY_BYTES
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_as_text).encode(), BODY_JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongType(f"a body is bytes, text, or a value that JSON can hold: {error}") from None


def _as_text(value: object) -> str:
    """Return the text by which JSON holds a value that it has no type for."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def decode_body(raw: bytes, kind: int) -> Any:
    """What was put."""
    return to_python(raw, kind)


def to_bytes(value: object, what: str) -> bytes:
    """A name or key as the engine has it."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise WrongType(f"{what} is text that cannot be written as UTF-8 (a lone surrogate)") from None
    if isinstance(value, bytes):
        return value
    raise WrongType(f"{what} is text or bytes, not {type(value).__name__}")


def to_text(raw: bytes) -> str:
    """A name or key as people read it."""
    return raw.decode("utf-8", "backslashreplace")


def text(value: str, what: str) -> str:
    """Let text through, and nothing else."""
    if not isinstance(value, str):
        raise WrongType(f"{what} must be text, not {type(value).__name__}")
    return value


def mapping(value: dict[str, Any], what: str) -> dict[str, Any]:
    """Let a dict with text as keys through, and nothing else."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WrongType(f"{what} must be a dict with text as keys")
    return value


def boolean(value: bool, what: str) -> bool:
    """Let True and False through, and nothing else."""
    if not isinstance(value, bool):
        raise WrongType(f"{what} must be True or False, not {type(value).__name__}")
    return value


def integer(value: int, what: str) -> int:
    """Let a whole number through, and nothing else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number, not {type(value).__name__}")
    return value
