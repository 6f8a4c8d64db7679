"""The options of `xqueue.upgrade`: the format of a space, its primary key, the fields that the queue uses, features.

A space is a tube. Its features are fields of the tube's policy. The options that the engine does not need (names and
types of fields, how ids are made, the form of results) are stored as JSON in the field `notes` of the policy. The
policy is in the journal, so recovery restores them. Users count fields from 1, as in Lua; this code counts from 0.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.core import policy as p
from penstock.core.errors import CommandError
from penstock.core.limits import NEVER, UNSET, duration_ms
from penstock.core.policy import TubePolicy
from penstock.dialects.xqueue.formats import Field, refusal
from penstock.wire.errors import BoxError

NO_FIELD: Final = -1

# Tarantool's error numbers.
_ALTER_SPACE: Final = 12  # A space cannot be altered in this way.
_LUA: Final = 32  # An error that Lua code raised.

# Ways to make the key of a new task.
AUTO_INCREMENT: Final = "auto_increment"
TIME64: Final = "time64"
UUID: Final = "uuid"
REQUIRED: Final = "required"
FUNCTION: Final = "function"
_ID_KINDS: Final = (AUTO_INCREMENT, TIME64, UUID, REQUIRED, FUNCTION)

TABLE: Final = "table"
TUPLE: Final = "tuple"

_OPTIONS: Final = ("format", "fields", "features", "primary_key", "tube_stats", "worker", "workers", "debug")
_QUEUE_FIELDS: Final = ("status", "runat", "priority", "tube")
_FEATURES: Final = (*("id", "retval", "buried", "delayed", "keep", "zombie", "ttl", "ttr", "not_check_session"),)
_TYPES: Final = (
    *("any", "unsigned", "integer", "number", "double", "decimal", "string", "varbinary", "boolean", "scalar"),
    *("uuid", "datetime", "interval", "array", "map"),
)
_ALIASES: Final = {"*": "any", "num": "unsigned", "uint": "unsigned", "int": "integer", "str": "string"}
_NUMBERS: Final = ("unsigned", "integer", "number")
_KEY_TYPES: Final = ("string", *_NUMBERS, "any", "scalar")
# The allowed types of the queue's own fields.
_QUEUE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "status": ("string", "any", "scalar"),
    "runat": ("number", "double", "any", "scalar"),
    "priority": (*_NUMBERS, "any", "scalar"),
    "tube": ("string", "any", "scalar"),
}


class XqueueError(CommandError, BoxError):
    """The space refused the call; docs/reference/xqueue.md describes the methods."""

    code = "XQUEUE"

    def __init__(self, message: str | None = None, number: int = _LUA) -> None:
        BoxError.__init__(self, number, message or str(XqueueError.__doc__))


class BadFormat(XqueueError):
    """The format of a space cannot be changed in this way; only nullable fields can be added, at the end."""

    code = "BADFORMAT"

    def __init__(self, message: str | None = None) -> None:
        XqueueError.__init__(self, message or str(BadFormat.__doc__), _ALTER_SPACE)


@dataclass(frozen=True)
class Options:
    """The options of a space. A field is given by its position from 0, or by NO_FIELD if the space does not have it."""

    format: tuple[Field, ...]  # The newest format. Empty: rows are arrays of any length.
    lengths: tuple[int, ...]  # The number of fields of each format that the space has had, by the number of the format.
    key: tuple[int, ...]
    status: int
    runat: int
    priority: int
    tube: int
    id: str
    retval: str
    buried: bool
    delayed: bool
    keep: bool
    zombie: bool | float  # A number is the default in seconds. True: without a default. False: the feature is off.
    ttl: bool | float
    ttr: bool | float
    not_check_session: bool
    tube_stats: tuple[str, ...]

    def same_queue_fields(self, other: Options) -> bool:
        """Return whether the options `other` have the same primary key and the same fields for the queue."""
        mine = (self.key, self.status, self.runat, self.priority, self.tube)
        return mine == (other.key, other.status, other.runat, other.priority, other.tube)

    def format_number(self) -> int:
        """Return the number of the newest format."""
        return len(self.lengths) - 1

    def key_type(self, part: int = 0) -> str:
        at = self.key[part]
        return self.format[at].type if at < len(self.format) else "any"


def as_map(value: object, what: str) -> dict[Any, Any]:
    """Convert a Lua table to a map. An empty table can arrive as an array, and a missing one as nil."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return {}
    if not isinstance(value, dict):
        raise XqueueError(f"{what} must be a table, not {lua_type(value)}")
    return value


def as_list(value: object, what: str) -> list[Any]:
    """Convert a Lua table to a list. An empty table can arrive as a map, and a missing one as nil."""
    if value is None or value == {}:
        return []
    if not isinstance(value, (list, tuple)):
        raise XqueueError(f"{what} must be a list, not {lua_type(value)}")
    return list(value)


def lua_type(value: object) -> str:
    """Return Lua's name for the type of a value."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (str, bytes)):
        return "string"
    return "table" if isinstance(value, (dict, list, tuple)) else "cdata"


def read_options(
    given: object, before: Options | None = None, space: str = "", accept_earlier: bool = False
) -> Options:
    """Parse the options of an upgrade. If the space exists, options that are left out are taken from `before`.

    `space` is the name of the space, for errors. If `accept_earlier` is set and the format is an earlier one of the
    space, the space keeps its newest format.
    """
    opts = as_map(given, "options")
    _check_known(opts, _OPTIONS, "option")
    if opts.get("worker") is not None or opts.get("workers") is not None:
        raise XqueueError("workers run only in your process; use penstock.compat.xqueue")
    if before is not None and opts.get("format") is None:
        format, lengths = before.format, before.lengths
    else:
        format = _read_format(opts.get("format"))
        lengths = (len(format),)
        if before is not None:
            if accept_earlier and format == before.format[: len(format)] and len(format) in before.lengths:
                format = before.format
            lengths = _next_lengths(before, format, space)
    if before is not None and opts.get("fields") is None:
        status, runat, priority, tube = before.status, before.runat, before.priority, before.tube
    else:
        if opts.get("fields") is None:
            raise XqueueError("opts.fields required")
        status, runat, priority, tube = _read_fields(as_map(opts["fields"], "opts.fields"), format)
    if before is not None and opts.get("primary_key") is None:
        key = before.key
    else:
        key = _read_key(opts.get("primary_key"), format)
    _check_apart(key, [status, runat, priority, tube])
    features = as_map(opts.get("features"), "opts.features")
    _check_known(features, _FEATURES, "feature")
    stats = opts.get("tube_stats")
    rows = Options(
        format, lengths, key, status, runat, priority, tube,
        REQUIRED, TUPLE, True, False, False, False, False, False, False, (),
    )  # fmt: skip
    # If these fields differ, `upgrade` refuses the change in any case.
    if before is not None and before.same_queue_fields(rows):
        features = {**_features(before), **{name: value for name, value in features.items() if value is not None}}
        stats = before.tube_stats if stats is None else stats
    return _with_features(features, stats, rows)


def _next_lengths(before: Options, format: tuple[Field, ...], space: str) -> tuple[int, ...]:
    """Return the lengths of all formats of a space whose format becomes `format`. Raise BadFormat if it cannot."""
    why = refusal(before.format, format, len(before.lengths))
    if why:
        raise BadFormat(f"Can't modify space '{space}': {why}")
    return before.lengths if len(format) == len(before.format) else (*before.lengths, len(format))


def _check_known(given: dict[Any, Any], names: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in names:
            raise XqueueError(f"unknown {what} {name!r}; use one of {', '.join(names)}")


def _read_format(given: object) -> tuple[Field, ...]:
    fields = tuple(_read_field(each, number) for number, each in enumerate(as_list(given, "format"), 1))
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise XqueueError(f"Space field '{name}' is duplicate")
    return fields


def _read_field(given: object, number: int) -> Field:
    if isinstance(given, str):
        given = {"name": given}
    elif isinstance(given, (list, tuple)):
        given = {"name": given[0] if given else None, "type": given[1] if len(given) > 1 else None}
    if not isinstance(given, dict):
        raise XqueueError(f"field {number} of format must be a table or a name, not {lua_type(given)}")
    # A Lua table with positions and names, {"name", "string", is_nullable = true}, arrives with the keys 1 and 2.
    name, type = given.get("name", given.get(1)), given.get("type", given.get(2))
    if not isinstance(name, str) or not name:
        raise XqueueError(f"field {number} of format has no name")
    if type is None:
        type = "any"
    if not isinstance(type, str) or _ALIASES.get(type.lower(), type.lower()) not in _TYPES:
        raise XqueueError(f"field {name} of format has unknown type {type!r}; use one of {', '.join(_TYPES)}")
    return Field(name, _ALIASES.get(type.lower(), type.lower()), given.get("is_nullable") is True)


def _position(given: object, format: tuple[Field, ...], what: str) -> int:
    """Return the position, from 0, of a field that is given by its name or its number."""
    if isinstance(given, str):
        for at, field in enumerate(format):
            if field.name == given:
                return at
        raise XqueueError(f"unknown field {given} for {what}")
    if isinstance(given, float) and given.is_integer():
        given = int(given)  # Lua has only one type of numbers.
    if isinstance(given, bool) or not isinstance(given, int):
        raise XqueueError(f"wrong type {lua_type(given)} for {what}, a field is a name or a number")
    if given < 1 or (format and given > len(format)) or given > _FIELDS_MAX:
        raise XqueueError(f"unknown field {given} for {what}")
    return given - 1


# The maximum number of fields in a row without a format.
_FIELDS_MAX: Final = 1_000


def _read_fields(given: dict[Any, Any], format: tuple[Field, ...]) -> tuple[int, int, int, int]:
    _check_known(given, _QUEUE_FIELDS, "queue field")
    if given.get("status") is None:
        raise XqueueError("status field required")
    found = [NO_FIELD if given.get(what) is None else _position(given[what], format, what) for what in _QUEUE_FIELDS]
    for what, at in zip(_QUEUE_FIELDS, found, strict=True):
        if 0 <= at < len(format) and format[at].type not in _QUEUE_TYPES[what]:
            expected = _QUEUE_TYPES[what][0]
            raise XqueueError(f"type mismatch for field {what}, expected {expected}, got {format[at].type}")
    return found[0], found[1], found[2], found[3]


def _read_key(given: object, format: tuple[Field, ...]) -> tuple[int, ...]:
    parts = [1] if given is None else [given] if isinstance(given, (str, int)) else as_list(given, "primary_key")
    if not parts:
        raise XqueueError("primary_key must have at least one field")
    key = tuple(_position(part, format, "primary_key") for part in parts)
    for at in key:
        if key.count(at) > 1:
            raise XqueueError("primary_key has a field twice")
        if at < len(format) and format[at].type not in _KEY_TYPES:
            raise XqueueError(f"Unknown key type {format[at].type}")
    return key


def _check_apart(key: tuple[int, ...], fields: list[int]) -> None:
    used = [at for at in fields if at != NO_FIELD]
    for what, at in zip(_QUEUE_FIELDS, fields, strict=True):
        if at != NO_FIELD and used.count(at) > 1:
            raise XqueueError(f"field {at + 1} is used twice in opts.fields")
        # The tube may be part of the key. Then a task cannot be moved to another tube.
        if at in key and what != "tube":
            raise XqueueError(f"field {at + 1} is part of the primary key, so it cannot be {what}")


def _with_features(given: dict[Any, Any], tube_stats: object, rows: Options) -> Options:
    has_runat = rows.runat != NO_FIELD
    delayed, keep = _flag(given, "delayed"), _flag(given, "keep")
    if delayed and not has_runat:
        raise XqueueError("Delayed feature requires runat field and index")
    timed: dict[str, bool | float] = {}
    for name in ("zombie", "ttl", "ttr"):
        timed[name] = _time(given, name)
        if timed[name] is not False and not has_runat:
            raise XqueueError(f"feature {name} requires runat field and index")
    if keep and timed["zombie"] is not False:
        raise XqueueError("features keep and zombie are mutually exclusive")
    not_check_session = _flag(given, "not_check_session")
    if not_check_session and timed["ttr"] is False:
        raise XqueueError("feature not_check_session requires ttr")
    stats = as_list(tube_stats, "tube_stats")
    for tube in stats:
        if not isinstance(tube, str):
            raise XqueueError(f"tube_stats must be names of tubes, not {lua_type(tube)}")
        if not tube.isprintable():
            raise XqueueError("tube_stats must be printable names of tubes")
    if stats and rows.tube == NO_FIELD:
        raise XqueueError("tube_stats requires tube field")
    return dataclasses.replace(
        rows,
        id=_read_id(given.get("id"), rows),
        retval=_read_retval(given.get("retval"), rows),
        buried=given.get("buried") is None or _flag(given, "buried"),
        delayed=delayed,
        keep=keep,
        zombie=timed["zombie"],
        ttl=timed["ttl"],
        ttr=timed["ttr"],
        not_check_session=not_check_session,
        tube_stats=tuple(dict.fromkeys(stats)),
    )


def _flag(given: dict[Any, Any], name: str) -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise XqueueError(f"feature {name} must be true or false, not {lua_type(value)}")
    return value is True


def _time(given: dict[Any, Any], name: str) -> bool | float:
    value = given.get(name)
    if value is None or isinstance(value, bool):
        return value is True
    if not isinstance(value, (int, float)) or math.isnan(value) or value <= 0:
        raise XqueueError(f"feature {name} must be true or a number of seconds above 0")
    if duration_ms(value, name) == NEVER:
        if name == "zombie":
            raise XqueueError("feature zombie must be finite; use keep to store tasks without limit")
        return True
    return value


def _read_id(given: object, rows: Options) -> str:
    kinds = [rows.key_type(part) for part in range(len(rows.key))]
    numeric, textual = kinds[0] != "string", kinds[0] not in _NUMBERS
    if given is None:
        if len(kinds) > 1:
            return REQUIRED
        return AUTO_INCREMENT if kinds[0] in _NUMBERS else UUID
    if isinstance(given, Callable):  # type: ignore[arg-type]
        return FUNCTION
    if not isinstance(given, str) or given not in _ID_KINDS:
        raise XqueueError(
            f"Wrong type for features.id {given!r}, may be [auto_increment, time64, uuid, required, function]"
        )
    if given in (AUTO_INCREMENT, TIME64, UUID) and len(kinds) > 1:
        raise XqueueError(f"features.id {given} needs a primary key of one field; use required or a function")
    if given in (AUTO_INCREMENT, TIME64) and not numeric:
        raise XqueueError(f"For {given} numeric pk is mandatory")
    if given == UUID and not textual:
        raise XqueueError("For uuid string pk is mandatory")
    return given


def _read_retval(given: object, rows: Options) -> str:
    if given is None:
        return TABLE if rows.format else TUPLE
    if given not in (TABLE, TUPLE):
        raise XqueueError(f"features.retval must be 'table' or 'tuple', not {given!r}")
    if given == TABLE and not rows.format:
        raise XqueueError("features.retval 'table' requires space format")
    return str(given)


def policy_of(options: Options, base: TubePolicy = p.XQUEUE) -> TubePolicy:
    """Return the policy of a space's tube. Settings that xqueue does not have (capacity, retry) are those of `base`."""
    zombie = options.zombie
    return dataclasses.replace(
        base,
        order=p.BY_PRIORITY if options.priority != NO_FIELD else p.BY_ARRIVAL,
        keys=p.KEYS_TAGGED if options.tube != NO_FIELD else p.KEYS_NONE,
        key_stats=options.tube_stats,
        has_bury=options.buried,
        has_delay=options.delayed,
        has_ttl=options.ttl is not False,
        default_ttl_ms=_ms(options.ttl, "ttl", NEVER),
        has_ttr=options.ttr is not False,
        default_ttr_ms=UNSET if options.ttr is False else _ms(options.ttr, "ttr", NEVER),
        owner=p.ANYONE if options.not_check_session else p.SESSION,
        after_ack=p.KEPT if options.keep else p.GOES if zombie is False else p.LINGERS,
        zombie_ms=_ms(zombie, "zombie", UNSET),
        row_format=options.format_number(),
        notes=_notes(options),
    )


def _notes(options: Options) -> str:
    noted: dict[str, Any] = {"xqueue": _noted_options(options)}
    if len(options.lengths) > 1:
        noted["lengths"] = list(options.lengths)
    return json.dumps(noted, separators=(",", ":"))


def _ms(value: bool | float, what: str, unsaid: int) -> int:
    return unsaid if isinstance(value, bool) else duration_ms(value, what)


def as_upgrade_options(options: Options) -> dict[str, Any]:
    """Return the complete options of a space in the form of `upgrade`, including those that the user left out."""
    return {**_noted_options(options), "features": _features(options), "tube_stats": list(options.tube_stats)}


def _features(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _FEATURES}


def changes(before: Options, after: Options) -> dict[str, list[Any]]:
    """Return the options that an upgrade changed, by name, with the values before and after."""
    old, new = _features(before), _features(after)
    found = {f"features.{name}": [old[name], new[name]] for name in _FEATURES if old[name] != new[name]}
    if before.format != after.format:
        found["format"] = [format_of(before), format_of(after)]
    if before.tube_stats != after.tube_stats:
        found["tube_stats"] = [list(before.tube_stats), list(after.tube_stats)]
    return found


def format_of(options: Options) -> list[dict[str, Any]]:
    """Return the newest format of a space, in the form of `upgrade`."""
    return [{"name": field.name, "type": field.type, "is_nullable": field.nullable} for field in options.format]


def _noted_options(options: Options) -> dict[str, Any]:
    """Return the options that are stored in the field `notes` of the policy, which has no other field for them."""
    fields = {what: getattr(options, what) + 1 for what in _QUEUE_FIELDS if getattr(options, what) != NO_FIELD}
    return {
        "format": format_of(options),
        "primary_key": [at + 1 for at in options.key],
        "fields": fields,
        "features": {"id": options.id, "retval": options.retval},
    }


def options_of(policy: TubePolicy) -> Options | None:
    """Return the options of the space whose tube has this policy, or None if the tube is not a space."""
    if not policy.notes:
        return None
    try:
        noted = json.loads(policy.notes)
        rows = read_options(noted["xqueue"])
        lengths = tuple(noted.get("lengths", rows.lengths))
    except (ValueError, KeyError, TypeError, XqueueError):
        return None  # The notes belong to another dialect, or the policy was written by hand.
    if len(lengths) != policy.row_format + 1 or lengths[-1] != len(rows.format) or list(lengths) != sorted(lengths):
        return None  # The policy was written by hand.
    # The features are fields of the policy, so changes by TUBE ALTER are included.
    return dataclasses.replace(
        rows,
        lengths=lengths,
        buried=policy.has_bury,
        delayed=policy.has_delay,
        keep=policy.after_ack == p.KEPT,
        zombie=policy.after_ack == p.LINGERS and _seconds(policy.zombie_ms),
        ttl=policy.has_ttl and _seconds(policy.default_ttl_ms),
        ttr=policy.has_ttr and _seconds(policy.default_ttr_ms),
        not_check_session=policy.owner == p.ANYONE,
        tube_stats=policy.key_stats,
    )


def _seconds(ms: int) -> bool | float:
    return True if ms in (NEVER, UNSET) else ms / 1000 if ms % 1000 else ms // 1000
