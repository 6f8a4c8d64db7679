"""The options of Tarantool's queue that a tube supports, and warnings about the others.

tarantool/queue reads the options that the type of a tube uses and ignores all others with any value. Its clients depend
on this: they send the same options to tubes of every type. Here the policy of a tube decides. A supported option is
checked. Any other option is dropped, and a warning about it is logged once (ADR 19).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.policy import BY_PRIORITY, KEYS_LIMITED, KEYS_NAMED, KEYS_NONE, KEYS_TAGGED, TubePolicy

# Options of `create_tube` for all types. `engine` and `storage_mode` are about storage and have no effect here.
_ALL_TUBES: Final = frozenset(["temporary", "if_not_exists", "on_task_change", "engine", "storage_mode"])
# Options of our own that `create_tube` accepts for all types, as TUBE CREATE does.
_OWN: Final = frozenset(
    ["capacity_bytes", "retry", "max_deliveries", "dead_letter", "keep", "zombie", "dedup_window", "dedup_count"]
)

# The maximum number of different warnings. Clients choose the names of options, so the number has to be limited.
WARNINGS_MAX: Final = 1_000
# A warning shows at most this many characters of an option's name.
_NAME_CHARS_MAX: Final = 64

# Returns whether a tube with this policy has an option of this name.
HasOption = Callable[[TubePolicy, str], bool]


def has_tube_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `create_tube` has this option for the type whose preset is `policy`."""
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
    """Return whether `put` has this option in tubes with this policy."""
    if name == "ttr":
        return policy.has_ttr
    if name == "utube":
        return policy.keys == KEYS_LIMITED or policy.keys == KEYS_TAGGED
    if name == "stube":
        return policy.keys == KEYS_NAMED or policy.keys == KEYS_TAGGED
    if name == "timeout":
        return policy.type == "limfifottl" or policy.capacity > 0 or policy.capacity_bytes > 0
    return has_release_option(policy, name)


def has_take_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `take` has this option in tubes with this policy."""
    if name == "utube":
        return policy.keys == KEYS_TAGGED
    return name == "stube" and (policy.keys == KEYS_NAMED or policy.keys == KEYS_TAGGED)


def has_release_option(policy: TubePolicy, name: str) -> bool:
    """Return whether `release` has this option in tubes with this policy."""
    if name == "delay":
        return policy.has_delay
    if name == "ttl":
        return policy.has_ttl
    return name == "pri" and policy.order == BY_PRIORITY


class IgnoredOptions:
    """Removes options that a tube does not support from calls, and logs a warning about each of them once.

    A warning names the function, the type of the tube and the option. At most WARNINGS_MAX warnings are logged.
    """

    warn: Callable[[str], None] | None  # Logs a warning. None: warnings are dropped.
    _logged: set[str]

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self.warn = warn
        self._logged = set()

    def supported(
        self, function: str, policy: TubePolicy, options: dict[object, object], has: HasOption
    ) -> dict[str, object]:
        """Return the options of a call that the tube supports. An option with the value nil counts as missing.

        If the tube has a driver, all options are returned, because the driver interprets them.
        """
        found: dict[str, object] = {}
        for name, value in options.items():
            if value is None:
                continue
            if isinstance(name, str) and (policy.driven or has(policy, name)):
                found[name] = value
            else:
                self._ignore(function, policy.type, name)
        return found

    def _ignore(self, function: str, type: str, name: object) -> None:
        if self.warn is None or len(self._logged) > WARNINGS_MAX:
            return
        # Clients choose the names, so they are shown in ASCII: a log line stays one line.
        shown = ascii(name)[:_NAME_CHARS_MAX]
        text = f"option ignored: function={function} type={type} option={shown}"
        if text in self._logged:
            return
        self._logged.add(text)
        if len(self._logged) > WARNINGS_MAX:
            text = f"further ignored options are not logged: logged={WARNINGS_MAX}"
        self.warn(text)
