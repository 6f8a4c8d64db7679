"""The options of the Python API, and their conversion into the engine's types: drafts, policies, durations, bodies.

Seconds become milliseconds, text becomes bytes, and a wrong type raises an error that names the right one. The embedded
queue and the clients share this module, so an option has the same meaning everywhere.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import EllipsisType
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar, Unpack
from uuid import UUID

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.errors import BadHeaders, OutOfRange, TubeExists, Unsupported, WrongType
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_TEXT, Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET, check_number, check_priority
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry
from penstock.core.states import state_of
from penstock.keywords import check_keywords
from penstock.wire.bodies import to_python
from penstock.wire.headers import decode_headers, encode_headers

T = TypeVar("T")

Seconds = float | int | timedelta
# None means no limit.
Duration = float | int | timedelta | None


class EncodedBody(NamedTuple):
    """A body in the form in which the log stores it. It is put unchanged."""

    raw: bytes
    kind: int


# Dates, times, UUIDs and decimals become text, also within lists and dicts.
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

# The type of a tube that is created with options but without a type.
DEFAULT_TYPE: Final = "fifottl"


class PutOptions(TypedDict, total=False):
    """Options of a put. For options that are not given, the defaults of the tube are used."""

    delay: Seconds  # Wait this long before the job can be taken.
    at: datetime  # Wait until this time before the job can be taken. Without a time zone, it is local time.
    ttl: Duration  # Expire the job after this long, not counting the delay. None: never.
    ttr: Duration  # Time that a consumer has before the job returns to the tube. None: no limit.
    priority: int  # A job with a lower priority is taken first.
    key: str | bytes  # Key of the job, for tubes that limit jobs per key.
    urgent: bool  # Put the job in front of all others.
    once: bool  # In disque tubes: deliver the job at most once.
    retry: str  # Retry policy, for example "5x exp(1s..10m) jitter then bury".
    name: str | bytes  # An id of your own, unique in the tube.
    unique: str | bytes  # If an unfinished job of the tube has this value, return it instead of adding a new one.
    dedup: str | bytes  # If a job was put with this value recently, return that job instead.
    nacks: int  # Initial number of failures, for jobs imported from another system.
    options: dict[str, Any]  # In tubes with a driver: options for the driver.
    number: int  # Number of the job in its tube, below the tube's first_integer, for imported jobs.
    state: Literal["ready", "buried", "done"]  # Initial state, for imported jobs.
    new: bool  # Raise JobExists where `unique` or `dedup` would return an existing job.
    headers: Mapping[str, str | bytes]  # Metadata next to the body, for example a trace context.
    batch: str | bytes  # The batch to which the job belongs: see `queue.create_batch`.


class TubeOptions(TypedDict, total=False):
    """Options of a tube, besides its type."""

    ttl: Duration  # Default ttl of its jobs.
    ttr: Duration  # Default ttr of its jobs.
    priority: int  # Default priority of its jobs.
    ttl_while_taken: Literal["waits", "kills"]  # Whether the ttl of a taken job stops or can end the job.
    key_limit: int  # Maximum number of taken jobs per key.
    fair: bool  # Serve the keys in turn instead of in the order of their jobs.
    capacity: int  # Maximum number of jobs, in any state.
    capacity_bytes: int  # Maximum number of bytes of all bodies.
    retry: str  # Default retry policy of its jobs.
    max_deliveries: int  # Short for retry: this many tries, then bury, or move to `dead_letter`.
    dead_letter: str  # With max_deliveries: the tube that receives jobs that failed too often.
    keep: bool  # Keep acked jobs in the state done.
    zombie: Seconds  # Keep acked jobs in the state zombie for this long.
    dedup_window: Seconds  # How long a dedup id is kept.
    dedup_count: int  # How many dedup ids are kept.
    temporary: bool  # Do not write its jobs to the log. After a restart, the tube exists and is empty.


class TakeOptions(TypedDict, total=False):
    """Options of a take."""

    key: str | bytes | None  # Take only a job of this key. Default: any.
    ttr: Duration | None  # Time that the session has for the job. Default: that of the job.


class ReleaseOptions(TypedDict, total=False):
    """Options of a release. An option that is not given, or is None, leaves the job as it is."""

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
    """The outcome of a wait for a job. It is true if the job was acked."""

    # "gone": the job ended before the wait began, and its end is not known. "timeout": it has not ended yet.
    outcome: Outcome
    reason: str = ""  # The reason that was given for a failure, if any.

    def __bool__(self) -> bool:
        return self.outcome == "acked"


# The outcome for each event that can be the last one of a job.
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
    """Return the outcome of a removed job. `history` has each event, the state before it, and its reason."""
    last = list(history)[-1:]
    for event, before, reason in last:
        if event in _OUTCOMES:
            # A kept job was acked before. Only its result has ended.
            acked = before in ("done", "zombie") or event == "acked"
            return JobOutcome("acked") if acked else JobOutcome(_OUTCOMES[event], reason or "")
    return JobOutcome("gone")


class ProgressValue(NamedTuple):
    """A value that the consumer of a job reported."""

    number: int  # The values of a job have consecutive numbers. A gap means that values were dropped.
    value: Any


class JobProgress(NamedTuple):
    """News about a job that is watched."""

    after: int  # Number of the newest value. The next call continues there.
    values: list[ProgressValue]
    outcome: JobOutcome | None  # None if the job has not ended.


SignalName = Literal["cancelled", "lost"]


class SessionEvent(NamedTuple):
    """A signal about a job that the session holds, or has just lost."""

    event: SignalName
    job: str  # The job's id.
    reason: str  # Of the cancellation; or the event by which the session lost the job, for example `ttr passed`.


class SessionEvents(NamedTuple):
    """Signals about the jobs of a session."""

    after: int  # Number of the newest signal. The next call continues there.
    events: list[SessionEvent]


BatchState = Literal["open", "sealed", "ended", "expired"]


class BatchInfo(NamedTuple):
    """The state of a batch and the numbers of its members."""

    state: BatchState
    total: int  # Jobs that were put into the batch.
    pending: int  # Members that have not ended.
    failed: int  # Members that ended without an ack.
    callbacks: int  # Jobs that are put when all members have ended.


class ClaimInfo(NamedTuple):
    """The progress of a consumer of claims."""

    acked: int  # Every claim up to this number is acked.
    newest: int  # The number of the newest claim.
    token: int  # The greatest fencing token that the consumer has used.
    open: list[int]  # The numbers of the claims that are not acked yet.


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
    headers: Mapping[str, str | bytes] | None = None,
    batch: str | bytes | None = None,
) -> Draft:
    """Return the draft of a put: the job to be added, in the types of the engine."""
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
        b"" if headers is None else headers_to_bytes(headers),
        None if batch is None else to_bytes(batch, "a batch"),
    )


def put_draft(method: str, body: Body, options: PutOptions) -> Draft:
    """Return the draft of a put. `method` is the method that was called, for the error about a misspelt keyword."""
    check_keywords(method, options, PUT_KEYWORDS, *(["body", "timeout"] if method == "put" else ["bodies"]))
    return draft(body, **options)


def each_put(bodies: Iterable[Body | NewJob], options: PutOptions) -> list[tuple[Body, PutOptions]]:
    """Return each body with the options of its put: `options`, overridden by the options and headers of a `NewJob`."""
    if isinstance(bodies, (str, bytes, NewJob)) or not isinstance(bodies, Iterable):
        raise WrongType("give a list of bodies")
    return [
        (each.body, _merged(options, each.options)) if isinstance(each, NewJob) else (each, options) for each in bodies
    ]


def follow_up_draft(follow: object) -> tuple[Any, Draft]:
    """Return the tube and the draft of an element of `then`. Raise WrongType if it is not such a pair."""
    if not isinstance(follow, tuple) or len(follow) != 2:
        raise WrongType("then is a list of pairs of a tube and a body")
    tube, body = follow
    return tube, draft(body.body, **body.options) if isinstance(body, NewJob) else draft(body)


def _merged(common: PutOptions, own: PutOptions) -> PutOptions:
    merged = common | own
    if "headers" in common and "headers" in own:
        merged["headers"] = {**_header_map(common["headers"]), **_header_map(own["headers"])}
    return merged


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
    """Return a copy of a policy in which the given options are changed."""
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
            raise Unsupported("keep and zombie exclude each other: acked jobs stay without limit, or for a while")
        if zombie is None:
            changes["after_ack"], changes["zombie_ms"] = p.KEPT if keep else p.GOES, UNSET
    return dataclasses.replace(base, **{field: value for field, value in changes.items() if value is not None})


def policy_of(type: str | TubePolicy | None) -> TubePolicy:
    """Return the policy of a type of tube."""
    if isinstance(type, TubePolicy):
        return type
    return p.preset(DEFAULT_TYPE if type is None else text(type, "the type of a tube"))


def new_policy(type: str | TubePolicy | None, options: dict[str, Any]) -> TubePolicy:
    """Return the policy of a new tube. Without a type and options it is the default policy."""
    if type is None and not options:
        return p.DEFAULT
    return altered(policy_of(type), **options)


def changed_policy(name: bytes, old: TubePolicy, type: str | TubePolicy | None, options: dict[str, Any]) -> TubePolicy:
    """Return a copy of a tube's policy in which some options are changed.

    If `type` is a policy, it replaces the old policy. Raise TubeExists if `type` names another type than the tube has.
    """
    if isinstance(type, TubePolicy):
        return altered(type, **options)
    if type is not None and text(type, "the type of a tube") != old.type:
        raise TubeExists(p.exists_text(name, old, p.preset(type)))
    return altered(old, **options)


def policy_from(fields: object) -> TubePolicy:
    """Return the policy that has these fields. A time that is None means no limit."""
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
    """Convert seconds or a timedelta into milliseconds. None and infinity mean no limit."""
    return limits.duration_ms(value.total_seconds() if isinstance(value, timedelta) else value, what)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def moment_ms(moment: datetime, what: str) -> int:
    """Convert a datetime into milliseconds since 1970, rounded up. Without a time zone, it is local time."""
    if not isinstance(moment, datetime):
        raise WrongType(f"{what} must be a datetime, not {type(moment).__name__}")
    try:
        since = moment.astimezone(UTC) - _EPOCH
    except (OverflowError, ValueError, OSError):
        raise OutOfRange(f"{what} is outside of the range of times that this system supports") from None
    return max(0, -(-since // _MS))


def check_tubes(tubes: Iterable[object], kind: type[T]) -> list[T]:
    """Return the tubes as a list. Raise WrongType if one is not of the class `kind`, or if `tubes` is a single tube.

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
    """Return the index of a shard and the number of shards. Raise WrongType or OutOfRange if they are invalid."""
    if not isinstance(shard, tuple) or len(shard) != 2:
        raise WrongType("a shard is a pair of whole numbers: its index, and the number of shards")
    index, count = integer(shard[0], "the number of a shard"), integer(shard[1], "how many shards there are")
    if not 0 <= index < count:
        raise OutOfRange("shards are numbered from 0, and there is at least one")
    return index, count


def encode_body(body: Body) -> tuple[bytes, int]:
    """Return the bytes of a body and its kind (bytes, text, JSON or msgpack)."""
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
    """Return the text for a value that JSON has no type for."""
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def headers_to_bytes(headers: Mapping[str, str | bytes]) -> bytes:
    """Return headers in the form in which the log stores them. Raise BadHeaders or WrongType if they are not valid."""
    return encode_headers((name, _header_value(value)) for name, value in _header_map(headers).items())


def headers_from_bytes(encoded: bytes) -> dict[str, str]:
    """Return the headers of a job as text. A value that is not UTF-8 has surrogate escapes."""
    return {name: header_text(value) for name, value in decode_headers(encoded).items()}


def header_text(value: bytes) -> str:
    """Return the value of a header as text. `text.encode("utf-8", "surrogateescape")` returns its bytes."""
    return value.decode("utf-8", "surrogateescape")


def _header_map(headers: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise WrongType("headers must be a mapping of text to text or bytes")
    return headers


def _header_value(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise WrongType(f"the value of a header is text or bytes, not {type(value).__name__}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadHeaders("the value of a header is text that cannot be written as UTF-8 (a lone surrogate)") from None


def decode_body(raw: bytes, kind: int) -> Any:
    return to_python(raw, kind)


def to_bytes(value: object, what: str) -> bytes:
    """Return text or bytes as bytes. Raise WrongType for anything else."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise WrongType(f"{what} is text that cannot be written as UTF-8 (a lone surrogate)") from None
    if isinstance(value, bytes):
        return value
    raise WrongType(f"{what} is text or bytes, not {type(value).__name__}")


def to_text(raw: bytes) -> str:
    """Return a name or key as text."""
    return raw.decode("utf-8", "backslashreplace")


def text(value: str, what: str) -> str:
    """Return the value if it is text. Raise WrongType otherwise."""
    if not isinstance(value, str):
        raise WrongType(f"{what} must be text, not {type(value).__name__}")
    return value


def mapping(value: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the value if it is a dict with text as keys. Raise WrongType otherwise."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise WrongType(f"{what} must be a dict with text as keys")
    return value


def boolean(value: bool, what: str) -> bool:
    """Return the value if it is True or False. Raise WrongType otherwise."""
    if not isinstance(value, bool):
        raise WrongType(f"{what} must be True or False, not {type(value).__name__}")
    return value


def integer(value: int, what: str) -> int:
    """Return the value if it is a whole number. Raise WrongType otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number, not {type(value).__name__}")
    return value
