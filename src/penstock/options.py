"""What users may say in Python, checked and turned into what the engine takes: drafts, policies, durations, bodies.

Seconds become milliseconds here, text becomes bytes, and a wrong type becomes an error that says what is wanted. The
embedded queue and the clients share this file, so an option means the same everywhere.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from types import EllipsisType
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar

from penstock.core import policy as p
from penstock.core.errors import OutOfRange, Unsupported, WrongType
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_TEXT, Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET, check_priority, duration_ms
from penstock.core.policy import TubePolicy
from penstock.core.retry import parse_retry
from penstock.wire.bodies import to_python

T = TypeVar("T")

Seconds = float | int
# None stands for "for ever".
Duration = float | int | None


class EncodedBody(NamedTuple):
    """A body as it is in a log: it is put as it is, whatever it was."""

    raw: bytes
    kind: int


Body = EncodedBody | bytes | bytearray | memoryview | str | int | float | bool | None | list[Any] | dict[str, Any]
TubeType = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl", "stube", "disque", "queue15", "xqueue"]
StateName = Literal["ready", "taken", "delayed", "buried", "done", "zombie", "staged"]

DEFAULT_TYPE: Final = "fifottl"


class PutOptions(TypedDict, total=False):
    """What a put may say about its job. What it leaves out, the tube decides."""

    delay: Seconds  # Not before so many seconds.
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
    )


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


def check_tubes(tubes: Iterable[T], kind: type[T]) -> list[T]:
    """Refuse what is not a list of tubes; a tube itself can be iterated, and would be emptied."""
    if isinstance(tubes, (kind, str, bytes)) or not isinstance(tubes, Iterable):
        raise WrongType("give a list of tubes")
    places = list(tubes)
    if not places:
        raise OutOfRange("give at least one tube")
    for tube in places:
        if not isinstance(tube, kind):
            raise WrongType(f"a tube is what queue.tube() gave, not {type(tube).__name__}")
    return places


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
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode(), BODY_JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongType(f"a body is bytes, text, or a value that JSON can hold: {error}") from None


def decode_body(raw: bytes, kind: int) -> Any:
    """What was put."""
    return to_python(raw, kind)


def to_bytes(value: str | bytes, what: str) -> bytes:
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
