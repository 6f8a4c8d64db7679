"""The policy of a tube as data, and the presets under the names that users know.

The engine never compares the name of a type. It uses attributes of the tube, which are computed from the policy when
the tube is created. A user's own policy is therefore as fast and as well tested as `fifo`. The name is for people, for
example in error messages.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from penstock.core.durations import write_duration
from penstock.core.errors import OutOfRange, UnknownType, Unsupported, WrongType
from penstock.core.limits import (
    DEDUP_COUNT,
    DEDUP_MS,
    NEVER,
    NOTES_CHARS_MAX,
    ROW_FORMATS_MAX,
    UNSET,
    check_duration,
    check_finite,
    check_priority,
)
from penstock.core.retry import parse_retry

# The order of the jobs in a tube.
BY_ARRIVAL: Final = "arrival"
BY_PRIORITY: Final = "priority"  # Jobs of equal priority are ordered by arrival.
BY_CREATION: Final = "creation"  # By the time of creation, on the node that created the job.

# The meaning of keys.
KEYS_NONE: Final = "none"
KEYS_LIMITED: Final = "limited"  # At most `key_limit` jobs of a key are taken at a time.
KEYS_NAMED: Final = "named"  # A take names the key. Without one it gets the jobs that were put without one.
KEYS_TAGGED: Final = "tagged"  # A take may name the key. Without one it gets any job.

# The order in which keys are served.
STRICT: Final = "strict"  # By their first jobs, as if there were no keys.
FAIR: Final = "fair"  # In turn: each open key is served once before any is served twice.

# Clients that may finish a taken job.
SESSION: Final = "session"  # The session that took it.
ANYONE: Final = "anyone"

# The effect of the ttl while a job is taken.
WAITS: Final = "waits"  # A taken job does not expire. It expires when it is given back.
KILLS: Final = "kills"  # A taken job expires, too.

# The ttr of a job if neither the job nor the tube sets one.
TTR_IS_TTL: Final = "ttl"
TTR_IS_TENTH: Final = "tenth"  # Disque's RETRY: a tenth of the ttl in whole seconds, 1 s to 5 min.

# The effect of an ack on the job.
GOES: Final = "goes"  # It is removed.
KEPT: Final = "kept"  # It is kept as DONE, without a time limit.
# It is kept as ZOMBIE for the delay of the ack or for `zombie_ms`. If neither is set, it is removed.
LINGERS: Final = "lingers"

# The form of job ids in the tube's own dialect.
ID_INTEGER: Final = "integer"
ID_LONG: Final = "long"
ID_HEX: Final = "hex"
ID_NAME: Final = "name"  # The name that its producer chose.


@dataclass(frozen=True, kw_only=True)
class TubePolicy:
    """The behaviour of a tube. Durations are in milliseconds, and NEVER means unlimited."""

    type: str
    order: str = BY_ARRIVAL
    has_ttl: bool = False
    has_ttr: bool = False
    has_delay: bool = False
    has_bury: bool = True
    default_ttl_ms: int = NEVER
    default_ttr_ms: int = UNSET
    default_priority: int = 0
    ttr_rule: str = TTR_IS_TTL
    ttl_while_taken: str = WAITS
    delay_stretches_ttl: bool = True  # Whether a delay extends the ttl.
    release_stretches_ttl: bool = True  # Whether a release with a delay extends the ttl, too, if it sets no ttl itself.
    keys: str = KEYS_NONE
    key_limit: int = 1
    key_order: str = STRICT
    key_stats: tuple[str, ...] = ()  # Keys that are counted separately.
    owner: str = SESSION  # Who may ack, release, nack and touch.
    bury_by: str = ANYONE
    pause_holds: bool = False  # Whether a pause for puts also keeps jobs from becoming ready again.
    ack_cancels: bool = False  # Whether acking a job that is not taken removes it.
    after_ack: str = GOES
    zombie_ms: int = UNSET
    capacity: int = 0  # Maximal number of jobs in all states; 0 for no limit. Puts wait for room or are refused.
    capacity_bytes: int = 0  # Maximal total length of bodies; 0 for no limit.
    retry: str = ""  # Retry policy: see retry.py. Empty: a failed job is ready again immediately.
    # Whether jobs are indexed by body, so that a put can return an existing job with the same body.
    unique_bodies: bool = False
    dedup_count: int = DEDUP_COUNT
    dedup_ms: int = DEDUP_MS
    ids: str = ID_INTEGER
    first_integer: int = 0
    temporary: bool = False  # Its jobs are not logged: they are lost when the process ends.
    driven: bool = False  # A driver decides which job is served next: see driving.py. `notes` has its options.
    row_format: int = 0  # Number of the format of new bodies, for a dialect whose jobs are rows: see Job.format.
    notes: str = ""  # Data of a dialect about the tube. The engine stores it without reading it.

    def check(self) -> None:
        """Raise an error if fields are out of range or contradict each other."""
        if not isinstance(self.type, str) or not self.type:
            raise WrongType("the type of a tube must be a non-empty text")
        _one_of(self.order, "order", [BY_ARRIVAL, BY_PRIORITY, BY_CREATION])
        _one_of(self.keys, "keys", [KEYS_NONE, KEYS_LIMITED, KEYS_NAMED, KEYS_TAGGED])
        _one_of(self.key_order, "key_order", [STRICT, FAIR])
        _one_of(self.owner, "owner", [SESSION, ANYONE])
        _one_of(self.bury_by, "bury_by", [SESSION, ANYONE])
        _one_of(self.ttl_while_taken, "ttl_while_taken", [WAITS, KILLS])
        _one_of(self.ttr_rule, "ttr_rule", [TTR_IS_TTL, TTR_IS_TENTH])
        _one_of(self.after_ack, "after_ack", [GOES, KEPT, LINGERS])
        _one_of(self.ids, "ids", [ID_INTEGER, ID_LONG, ID_HEX, ID_NAME])
        self._check_numbers()
        other = self.type_with_times()
        if not self.has_ttl and self.default_ttl_ms != NEVER:
            raise Unsupported(f"a {self.type} tube has no ttl, so it cannot have a default one; use {other}")
        if not self.has_ttr and self.default_ttr_ms != UNSET:
            raise Unsupported(f"a {self.type} tube has no ttr, so it cannot have a default one; use {other}")
        if self.order != BY_PRIORITY and self.default_priority != 0:
            raise Unsupported(f"a {self.type} tube has no priorities, so it cannot have a default one; use {other}")
        if self.keys != KEYS_LIMITED and self.key_limit != 1:
            raise Unsupported(f"a {self.type} tube does not limit its keys, so it has no key_limit; use utubettl")
        if self.keys == KEYS_NONE and (self.key_order != STRICT or self.key_stats):
            raise Unsupported(f"a {self.type} tube has no keys, so it has no key_order and no key_stats")
        if self.after_ack != LINGERS and self.zombie_ms != UNSET:
            raise Unsupported("zombie_ms needs after_ack = lingers")
        if self.retry:
            parse_retry(self.retry)
        if len(self.notes) > NOTES_CHARS_MAX:
            raise OutOfRange(f"the notes of a tube must have at most {NOTES_CHARS_MAX} characters")

    def type_with_times(self) -> str:
        """Return the preset type that is most like this one and has ttl, ttr, delays and priorities."""
        return "fifottl" if self.keys == KEYS_NONE else "utubettl"

    def _check_numbers(self) -> None:
        check_duration(self.default_ttl_ms, "ttl")
        check_priority(self.default_priority)
        if self.default_ttr_ms != UNSET:
            check_duration(self.default_ttr_ms, "ttr")
            if self.default_ttr_ms == 0:
                raise OutOfRange("ttr must be more than 0 seconds, or the job would be given back immediately")
        if self.zombie_ms != UNSET:
            check_finite(self.zombie_ms, "zombie_ms")
        check_finite(self.dedup_ms, "dedup_ms")
        _between(self.key_limit, "key_limit", 1, 1_000_000)
        _between(self.capacity, "capacity", 0, 1 << 53)
        _between(self.capacity_bytes, "capacity_bytes", 0, 1 << 53)
        _between(self.dedup_count, "dedup_count", 0, 100_000_000)
        _between(self.first_integer, "first_integer", 0, 1 << 53)
        _between(self.row_format, "row_format", 0, ROW_FORMATS_MAX - 1)


def _one_of(value: str, what: str, choices: list[str]) -> None:
    if value not in choices:
        raise OutOfRange(f"{what} must be one of {', '.join(choices)}, not {value!r}")


def _between(value: int, what: str, least: int, most: int) -> None:
    if not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number")
    if value < least or value > most:
        raise OutOfRange(f"{what} must be {least} to {most}")


FIFO: Final = TubePolicy(type="fifo")
FIFOTTL: Final = TubePolicy(type="fifottl", order=BY_PRIORITY, has_ttl=True, has_ttr=True, has_delay=True)
# The policy of tubes that are created without a type and options, by a put or through the native API. Failed jobs are
# retried and finally buried. Jobs of lost workers are given back after the ttr. Other dialects have their own defaults.
DEFAULT: Final = dataclasses.replace(FIFOTTL, default_ttr_ms=300_000, retry="5x exp(1s..10m) jitter then bury")
LIMFIFOTTL: Final = dataclasses.replace(FIFOTTL, type="limfifottl")
UTUBE: Final = TubePolicy(type="utube", keys=KEYS_LIMITED)
UTUBETTL: Final = dataclasses.replace(FIFOTTL, type="utubettl", keys=KEYS_LIMITED)
STUBE: Final = TubePolicy(type="stube", keys=KEYS_NAMED)
DISQUE: Final = TubePolicy(
    type="disque",
    order=BY_CREATION,
    has_ttl=True,
    has_ttr=True,
    has_delay=True,
    default_ttl_ms=86_400_000,
    ttr_rule=TTR_IS_TENTH,
    ttl_while_taken=KILLS,
    delay_stretches_ttl=False,
    release_stretches_ttl=False,
    owner=ANYONE,
    pause_holds=True,
    ack_cancels=True,
    ids=ID_LONG,
)
QUEUE15: Final = TubePolicy(
    type="queue15",
    order=BY_PRIORITY,
    has_ttl=True,
    has_ttr=True,
    has_delay=True,
    default_ttl_ms=25 * 86_400_000,
    default_ttr_ms=60_000,
    # queue15 serves the highest of 0 to 255 first; here the lowest is first, so its p is 255 - p. Its default is 127.
    default_priority=255 - 127,
    release_stretches_ttl=False,
    bury_by=SESSION,
    unique_bodies=True,
    ids=ID_HEX,
)
# An xqueue space without features. Each feature of a space sets fields of its policy.
XQUEUE: Final = TubePolicy(type="xqueue", bury_by=SESSION, first_integer=1)

PRESETS: Final[dict[str, TubePolicy]] = {
    policy.type: policy for policy in [FIFO, FIFOTTL, LIMFIFOTTL, UTUBE, UTUBETTL, STUBE, DISQUE, QUEUE15, XQUEUE]
}


# Names of policy fields as options of a tube, where they differ.
_OPTION_NAMES: Final[dict[str, str]] = {
    "default_ttl_ms": "ttl",
    "default_ttr_ms": "ttr",
    "default_priority": "priority",
    "key_order": "fair",
    "after_ack": "keep",
    "zombie_ms": "zombie",
    "dedup_ms": "dedup_window",
}


def exists_text(name: bytes, old: TubePolicy, new: TubePolicy) -> str:
    """Return the error text for a tube that exists with another policy.

    It lists the old and new value of each option.
    """
    tube = name[:60].decode("utf-8", "backslashreplace")
    if old.type != new.type:
        return (
            f"tube '{tube}' exists as a {old.type} tube, not as a {new.type} tube; a tube keeps its type: "
            "use it as it is, choose another name, or drop it"
        )
    have = dataclasses.asdict(old)
    differences: list[str] = []
    for field, wanted in dataclasses.asdict(new).items():
        if have[field] != wanted:
            option = _OPTION_NAMES.get(field, field)
            differences.append(f"{option} {_value_text(field, have[field])}, not {_value_text(field, wanted)}")
    return (
        f"tube '{tube}' exists with {'; '.join(differences)}; change it with `penstock tube alter`, "
        "TUBE ALTER or queue.tube(…, alter=True), or leave these options out to use it as it is"
    )


def _value_text(field: str, value: object) -> str:
    """Return the value of a policy field as users write it as an option."""
    if field == "key_order":
        return "yes" if value == FAIR else "no"
    if field == "after_ack":
        return "yes" if value == KEPT else "no"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and field.endswith("_ms"):
        return "unset" if value == UNSET else write_duration(value)
    if isinstance(value, str):
        return f"'{value}'" if value else "unset"
    return str(value)


def preset(name: str) -> TubePolicy:
    """Return the policy of the type with this name. Raise UnknownType if there is none."""
    policy = PRESETS.get(name)
    if policy is None:
        raise UnknownType(f"there is no type of tube called {name!r}; choose one of {', '.join(PRESETS)}")
    return policy
