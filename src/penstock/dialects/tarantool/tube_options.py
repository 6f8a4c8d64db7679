"""The options of Tarantool's queue that a tube supports, and warnings about the others.

tarantool/queue reads the options that the type of a tube uses and ignores all others, even if their values are invalid.
Its clients depend on this: they send the same options to tubes of every type. Here the policy of a tube decides which
options the tube supports. A supported option is checked. Any other option is dropped, and a warning about it is logged
once (ADR 19).
"""

from __future__ import annotations

from typing import Final

from penstock.core.policy import BY_PRIORITY, KEYS_LIMITED, KEYS_NAMED, KEYS_NONE, KEYS_TAGGED, TubePolicy

# Options of `create_tube` for all types. `engine` and `storage_mode` are about storage and have no effect here.
_ALL_TUBES: Final = frozenset(["temporary", "if_not_exists", "on_task_change", "engine", "storage_mode"])
# Options of our own that `create_tube` accepts for all types, as TUBE CREATE does.
_OWN: Final = frozenset(
    ["capacity_bytes", "retry", "max_deliveries", "dead_letter", "keep", "zombie", "dedup_window", "dedup_count"]
)


def has_tube_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `create_tube` supports the option `name` for a type of tube that has this policy."""
    if name == "ttl" or name == "ttl_while_taken":
        return policy.has_ttl
    if name == "ttr":
        return policy.has_ttr
    if name == "pri" or name == "priority":
        return policy.order == BY_PRIORITY
    if name == "capacity":
        return policy.type == "limfifottl"
    if name == "key_limit":
        return policy.keys == KEYS_LIMITED
    if name == "fair":
        return policy.keys != KEYS_NONE
    return name in _ALL_TUBES or name in _OWN


def has_put_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `put` supports the option `name` in tubes that have this policy."""
    if name == "ttr":
        return policy.has_ttr
    if name == "utube":
        return policy.keys == KEYS_LIMITED or policy.keys == KEYS_TAGGED
    if name == "stube":
        return policy.keys == KEYS_NAMED or policy.keys == KEYS_TAGGED
    if name == "timeout":
        return policy.type == "limfifottl" or policy.capacity > 0 or policy.capacity_bytes > 0
    if name == "headers":
        # An option of our own.
        return True
    return has_release_option(policy, name)


def has_take_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `take` supports the option `name` in tubes that have this policy."""
    if name == "utube":
        return policy.keys == KEYS_TAGGED
    return name == "stube" and (policy.keys == KEYS_NAMED or policy.keys == KEYS_TAGGED)


def has_release_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `release` supports the option `name` in tubes that have this policy."""
    if name == "delay":
        return policy.has_delay
    if name == "ttl":
        return policy.has_ttl
    return name == "pri" and policy.order == BY_PRIORITY
