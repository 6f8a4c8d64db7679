"""What a tube promises, as data: the policy, and the presets under the names that users know.

The engine never asks for a type's name. It asks the policy's fields, compiled into integers when the tube is made, so
a user's own policy is as fast and as well tested as `fifo`. The name is kept for people: errors say it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import OutOfRange, UnknownType, Unsupported
from penstock.core.limits import NEVER, UNSET, check_duration, check_priority

# By what the jobs of a tube are ordered.
BY_ARRIVAL: Final = "arrival"
BY_PRIORITY: Final = "priority"  # Then by arrival.
BY_CREATION: Final = "creation"  # The time of creation on whichever node created it.

# What a key does.
KEYS_NONE: Final = "none"
KEYS_LIMITED: Final = "limited"  # At most `key_limit` jobs of a key are taken at a time.
KEYS_NAMED: Final = "named"  # A taker names the key; without one it gets the jobs put without one.

# Who may do a thing to a taken job.
SESSION: Final = "session"  # The session that took it.
ANYONE: Final = "anyone"

# What a job's ttl does while the job is taken.
WAITS: Final = "waits"  # A job is not taken out of its worker's hands; it expires when it comes back.
KILLS: Final = "kills"

# Where a job's ttr comes from when neither the job nor the tube says.
TTR_IS_TTL: Final = "ttl"
TTR_IS_TENTH: Final = "tenth"  # Disque's RETRY: a tenth of the ttl in whole seconds, 1 s to 5 min.

# Which id its own vocabulary shows.
ID_INTEGER: Final = "integer"
ID_LONG: Final = "long"
ID_HEX: Final = "hex"


@dataclass(frozen=True, kw_only=True)
class TubePolicy:
    """What a tube promises. Durations in milliseconds; NEVER stands for "for ever"."""

    type: str
    order: str = BY_ARRIVAL
    has_ttl: bool = False
    has_ttr: bool = False
    has_delay: bool = False
    default_ttl_ms: int = NEVER
    default_ttr_ms: int = UNSET
    default_priority: int = 0
    ttr_rule: str = TTR_IS_TTL
    ttl_while_taken: str = WAITS
    delay_stretches_ttl: bool = True
    keys: str = KEYS_NONE
    key_limit: int = 1
    owner: str = SESSION  # Who may ack, release, nack and touch.
    bury_by: str = ANYONE
    ids: str = ID_INTEGER

    def check(self) -> None:
        """Refuse a policy that contradicts itself."""
        _one_of(self.order, "order", [BY_ARRIVAL, BY_PRIORITY, BY_CREATION])
        _one_of(self.keys, "keys", [KEYS_NONE, KEYS_LIMITED, KEYS_NAMED])
        _one_of(self.owner, "owner", [SESSION, ANYONE])
        _one_of(self.bury_by, "bury_by", [SESSION, ANYONE])
        _one_of(self.ttl_while_taken, "ttl_while_taken", [WAITS, KILLS])
        _one_of(self.ttr_rule, "ttr_rule", [TTR_IS_TTL, TTR_IS_TENTH])
        _one_of(self.ids, "ids", [ID_INTEGER, ID_LONG, ID_HEX])
        check_duration(self.default_ttl_ms, "ttl")
        check_priority(self.default_priority)
        if self.default_ttr_ms != UNSET:
            check_duration(self.default_ttr_ms, "ttr")
        if not 1 <= self.key_limit <= 1_000_000:
            raise OutOfRange("key_limit must be 1 to 1000000")
        if not self.has_ttl and self.default_ttl_ms != NEVER:
            raise Unsupported(f"a {self.type} tube has no ttl, so it cannot have a default one")
        if not self.has_ttr and self.default_ttr_ms != UNSET:
            raise Unsupported(f"a {self.type} tube has no ttr, so it cannot have a default one")
        if self.order != BY_PRIORITY and self.default_priority != 0:
            raise Unsupported(f"a {self.type} tube has no priorities, so it cannot have a default one")


def _one_of(value: str, what: str, choices: list[str]) -> None:
    if value not in choices:
        raise OutOfRange(f"{what} must be one of {', '.join(choices)}, not {value!r}")


FIFO: Final = TubePolicy(type="fifo")
FIFOTTL: Final = TubePolicy(type="fifottl", order=BY_PRIORITY, has_ttl=True, has_ttr=True, has_delay=True)
UTUBE: Final = TubePolicy(type="utube", keys=KEYS_LIMITED)
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
    owner=ANYONE,
    ids=ID_LONG,
)

PRESETS: Final[dict[str, TubePolicy]] = {policy.type: policy for policy in [FIFO, FIFOTTL, UTUBE, DISQUE]}


def preset(name: str) -> TubePolicy:
    """The policy behind the name of a type."""
    policy = PRESETS.get(name)
    if policy is None:
        raise UnknownType(f"there is no type of tube called {name!r}; choose one of {', '.join(PRESETS)}")
    return policy


def with_defaults(policy: TubePolicy, ttl_ms: int, ttr_ms: int, priority: int) -> TubePolicy:
    """A policy with a tube's own defaults for ttl, ttr and priority."""
    return dataclasses.replace(policy, default_ttl_ms=ttl_ms, default_ttr_ms=ttr_ms, default_priority=priority)
