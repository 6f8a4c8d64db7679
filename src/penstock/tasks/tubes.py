"""The tubes of an app: which options its tasks declare, and how they compare with the tube that exists.

The version of the app that declared the options last is stored in the notes of the tube. A worker of a newer version
alters the tube. A worker of the same or an older version uses it as it is, and logs each difference.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.core.durations import write_duration
from penstock.core.limits import NEVER, UNSET
from penstock.core.policy import DEFAULT, FIFOTTL, UTUBETTL, TubePolicy
from penstock.options import TubeOptions, altered
from penstock.tasks.declaration import TaskDeclaration
from penstock.tasks.failures import BadTask

_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*")

# The options that a task declares, and the fields of a policy that they set.
_FIELDS: Final = {
    "ttr": "default_ttr_ms",
    "retry": "retry",
    "priority": "default_priority",
    "key_limit": "key_limit",
    "ttl": "default_ttl_ms",
    "ttl_while_taken": "ttl_while_taken",
    "fair": "key_order",
    "capacity": "capacity",
    "capacity_bytes": "capacity_bytes",
    "dedup_window": "dedup_ms",
    "dedup_count": "dedup_count",
}


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared: "2026.11" is (2026, 11)."""
    if not _VERSION.fullmatch(version):
        raise BadTask(f"a version is numbers with dots between them, such as 2026.11.1, and not {version!r}")
    return tuple(int(part) for part in version.split("."))


@dataclasses.dataclass(frozen=True)
class Difference:
    """An option of which a tube has another value than the app declares."""

    option: str
    declared: str
    actual: str


@dataclasses.dataclass(frozen=True)
class DeclaredTube:
    """A tube with the options that an app declares for it."""

    name: str
    options: Mapping[str, Any]  # Without the options that are not declared.
    has_keys: bool

    def policy(self, version: str) -> TubePolicy:
        """Return the policy of a new tube."""
        base = UTUBETTL if self.has_keys else FIFOTTL
        defaults = dataclasses.replace(base, default_ttr_ms=DEFAULT.default_ttr_ms, retry=DEFAULT.retry)
        return _with_version(altered(defaults, **self.options), version)

    def differences(self, actual: TubePolicy) -> list[Difference]:
        """Return the declared options of which the tube has another value."""
        wanted = altered(actual, **self.options)
        found = [
            Difference(option, _text(field, getattr(wanted, field)), _text(field, getattr(actual, field)))
            for option, field in _FIELDS.items()
            if getattr(wanted, field) != getattr(actual, field)
        ]
        if self.has_keys and actual.keys == "none":
            found.append(Difference("type", "utubettl", actual.type))
        return found

    def altered(self, actual: TubePolicy, version: str) -> TubePolicy:
        """Return the policy of the existing tube, changed to the declared options."""
        return _with_version(altered(actual, **self.options), version)


def is_newer(version: str, actual: TubePolicy) -> bool:
    """Return whether an app of this version may change a tube. An app without a version never does."""
    stored = _stored_version(actual)
    return bool(version) and (not stored or version_key(version) > version_key(stored))


def declared_tubes(tasks: Iterable[TaskDeclaration[Any]], extra: Mapping[str, TubeOptions]) -> dict[str, DeclaredTube]:
    """Return the tubes of the tasks by name, and those that `extra` declares.

    An option that all tasks of a tube agree on is an option of the tube. Other options are put with each job.
    """
    by_tube: dict[str, list[TaskDeclaration[Any]]] = {name: [] for name in extra}
    for task in tasks:
        by_tube.setdefault(task.options.tube, []).append(task)
    return {name: _declared(name, some, dict(extra.get(name, {}))) for name, some in by_tube.items()}


def _declared(name: str, tasks: list[TaskDeclaration[Any]], options: dict[str, Any]) -> DeclaredTube:
    for option in ("ttr", "retry", "priority"):
        values = {getattr(task.options, option) for task in tasks}
        if option not in options and len(values) == 1 and (value := values.pop()) is not None:
            options[option] = value
    limits = {task.options.limit_per_key for task in tasks} - {None}
    if len(limits) > 1:
        raise BadTask(f"the tasks of tube {name} declare different values of limit_per_key; use one tube for each")
    if limits:
        options.setdefault("key_limit", limits.pop())
    has_keys = "key_limit" in options or "fair" in options or any(task.options.key is not None for task in tasks)
    return DeclaredTube(name, options, has_keys)


def _with_version(policy: TubePolicy, version: str) -> TubePolicy:
    return dataclasses.replace(policy, notes=json.dumps({"app_version": version})) if version else policy


def _stored_version(policy: TubePolicy) -> str:
    try:
        stored = json.loads(policy.notes or "{}").get("app_version", "")
    except (ValueError, AttributeError):
        return ""
    return stored if isinstance(stored, str) and _VERSION.fullmatch(stored) else ""


def _text(field: str, value: Any) -> str:
    if field.endswith("_ms"):
        return "none" if value == UNSET else "no limit" if value == NEVER else write_duration(value)
    return repr(value) if isinstance(value, str) else str(value)
