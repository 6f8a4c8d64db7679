"""Conversion between the rows of a space and jobs.

Users see rows, and the queue stores jobs. The fields of a row are stored as follows:

    primary key       the job's name. Keys of auto_increment and uuid are not stored: they are the job's number and id
    tube, priority    the job's key and priority
    status, runat     not stored, and ignored in a put: they follow from the job's state and its next deadline
    other fields      (the payload) the job's body. A single field is stored as its value. Several fields are stored as
                      a map by name, or as an array if the space has no format

If fields are added to a space, a body keeps the form of the format that it was written with (formats.py). The new
fields of its row are nil.

Clients of other dialects find only the payload in the body. A job that they put is also a row. If its body is not a map
of the space's fields, the first payload field shows the whole body.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from penstock.core.deadlines import NOWHERE
from penstock.core.engine import Engine
from penstock.core.errors import ProtocolError, WrongType
from penstock.core.ids import NOT_AN_ID, IdForms
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, NO_KEY, Job
from penstock.core.limits import NEVER, PRIORITY_UNSET, check_priority
from penstock.core.tube import Tube
from penstock.dialects.xqueue.formats import Field
from penstock.dialects.xqueue.options import NO_FIELD, TABLE, Options, XqueueError
from penstock.dialects.xqueue.statuses import STATUS_LETTERS
from penstock.wire.bodies import from_value, to_plain, to_python
from penstock.wire.msgpack import VALUE_DEPTH_MAX, Ext, Reader, pack

Row = list[Any]

# Tarantool's error numbers.
FIELD_TYPE: Final = 23
FIELD_MISSING: Final = 39
FIELD_COUNT: Final = 38

# A body with several fields is nested one level deeper than its fields may be.
_ROW_DEPTH_MAX: Final = VALUE_DEPTH_MAX + 1

# The range of integers in msgpack.
_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1

# The numbers of Tarantool's extension types.
_EXTENSIONS: Final = {"decimal": 1, "uuid": 2, "datetime": 4, "interval": 6}


# Tarantool's names of types. A bool is also an int, so it comes first.
_TYPE_NAMES: Final[list[tuple[type, str]]] = [
    *((type(None), "nil"), (bool, "boolean"), (int, "unsigned"), (float, "double"), (str, "string")),
    *((bytes, "varbinary"), (dict, "map"), (list, "array"), (tuple, "array")),
]


class Rows:
    """Converts between the rows of one space and jobs. `set_options` changes the options of the space."""

    options: Options
    space: str
    _names: list[str]
    _queue_fields: frozenset[int]  # Positions of the fields that are not in the body.
    _payload: list[int]  # Positions of the fields that are in the body, if there is a format.
    _payload_counts: list[int]  # By the number of a format: how many fields of `_payload` it has.
    _payload_names: dict[object, int]  # The position of each field that is in the body, by its name.

    def __init__(self, options: Options, space: str) -> None:
        self.space = space
        self.set_options(options)

    def set_options(self, options: Options) -> None:
        """Set the options of the space. Bodies that were written in an earlier format can still be read."""
        self.options = options
        self._names = [field.name for field in options.format]
        fields = (options.status, options.runat, options.priority, options.tube)
        self._queue_fields = frozenset([*options.key, *(at for at in fields if at != NO_FIELD)])
        self._payload = [at for at in range(len(options.format)) if at not in self._queue_fields]
        self._payload_counts = [sum(1 for at in self._payload if at < length) for length in options.lengths]
        self._payload_names = {self._names[at]: at for at in self._payload}

    # From users

    def read(self, task: object) -> Row:
        """Return the row of a task that a client sent as a table, an array or a tuple.

        The primary key can be missing. The types of the other fields are checked.
        """
        if isinstance(task, dict):
            row = self._from_map(task)
        elif isinstance(task, (list, tuple)):
            row = list(task)
        else:
            raise XqueueError("Wrong argument to put. Expected table or tuple")
        row = self.check(row)
        self.check_given(row)
        return row

    def _from_map(self, task: dict[Any, Any]) -> Row:
        if not self._names:
            raise XqueueError("Task from table requires space format; put an array")
        row: Row = [None] * len(self._names)
        for name, value in task.items():
            if name not in self._names:
                raise XqueueError(
                    f"Unknown field {name!r} of space '{self.space}'; use one of {', '.join(self._names)}"
                )
            row[self._names.index(name)] = value
        return row

    def check(self, row: Row) -> Row:
        """Check the types of all fields except the primary key. Return the row, with missing fields as nil."""
        format, key = self.options.format, self.options.key
        if format and len(row) > len(format):
            raise XqueueError(
                f"Tuple field count {len(row)} does not match space field count {len(format)}", FIELD_COUNT
            )
        length = max(len(format), len(row), self.options.status + 1, *(at + 1 for at in key))
        row = row + [None] * (length - len(row))
        for at, field in enumerate(format):
            if at not in key and at not in (self.options.status, self.options.runat):
                _check_field(row[at], field, at, at in (self.options.priority, self.options.tube))
        self.priority(row)
        self.tube(row)
        return row

    def check_given(self, row: Row, before: Row | None = None) -> None:
        """Raise an error if a row has no tube or no priority, and the format does not allow nil there.

        A field that is also nil in `before`, the row before an update, is accepted, because a job that was put through
        another dialect can have no tube and no priority.
        """
        for at in (self.options.priority, self.options.tube):
            if at == NO_FIELD or at >= len(self.options.format) or at in self.options.key or row[at] is not None:
                continue
            field = self.options.format[at]
            if not field.nullable and (before is None or before[at] is not None):
                raise _wrong_type(at, field.name, field.type, None)

    def key(self, row: Row) -> list[Any] | None:
        """Return the primary key in a row, or None if a part of it is missing."""
        parts = [row[at] for at in self.options.key]
        return None if None in parts else self.check_key(parts)

    def check_key(self, parts: list[Any]) -> list[Any]:
        """Return a primary key in its canonical form. Raise an error if it is not valid."""
        return [self._key_part(part, value) for part, value in enumerate(parts)]

    def _key_part(self, part: int, value: Any) -> Any:
        wanted = self.options.key_type(part)
        if isinstance(value, bytes) and wanted in ("string", "any", "scalar"):
            # Some clients send text as binary.
            value = value.decode("utf-8", "surrogateescape")
        if isinstance(value, float) and value.is_integer() and wanted != "string" and abs(value) < 1 << 53:
            value = int(value)  # Lua has only one type of numbers.
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and not (isinstance(value, float) and not math.isfinite(value)):
            whole = isinstance(value, int) and _INT_MIN <= value <= _INT_MAX
            if wanted in ("any", "scalar", "number") or (whole and (wanted == "integer" or value >= 0)):
                if wanted != "string":
                    return value
        elif isinstance(value, str) and value and wanted in ("string", "any", "scalar") and _is_writable(value):
            return value
        raise XqueueError(
            f"Supplied key type of part {part + 1} does not match index part type: expected {wanted}"
            + (", not empty" if value == "" else ""),
            18,
        )

    def priority(self, row: Row) -> int:
        at = self.options.priority
        if at == NO_FIELD:
            return PRIORITY_UNSET
        value = row[at] if at < len(row) else None
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type(at, "priority", "integer", value)
        return check_priority(value)

    def tube(self, row: Row) -> bytes | None:
        """Return the tube in a row, which becomes the key of its job, or None if the row has none."""
        at = self.options.tube
        if at == NO_FIELD:
            return None
        value = row[at] if at < len(row) else None
        if value is None:
            return NO_KEY
        return tube_key(value, at)

    def body(self, row: Row) -> tuple[bytes, int]:
        """Return the body for the job of a row, and the kind of the body."""
        if self._names:
            if not self._payload:
                return b"", BODY_BYTES
            if len(self._payload) == 1:
                return encode(row[self._payload[0]])
            fields = {self._names[at]: row[at] for at in self._payload if row[at] is not None}
            return encode(fields, _ROW_DEPTH_MAX)
        values = [value for at, value in enumerate(row) if at not in self._queue_fields]
        if not values:
            return b"", BODY_BYTES
        is_plain = len(values) == 1 and isinstance(values[0], (str, bytes))
        return encode(values[0] if is_plain else values, _ROW_DEPTH_MAX)

    # To users

    def row(self, job: Job, key: list[Any], tube: bytes, body: bytes, kind: int, format: int, state: int) -> Row:
        """Return the row of a job with a body of this kind and format. `state` determines the status in the row."""
        options = self.options
        row = self._with_payload(_body_value(body, kind), kind, format)
        for at, value in zip(options.key, key, strict=True):
            row[at] = value
        row[options.status] = STATUS_LETTERS[state]
        if options.runat != NO_FIELD:
            row[options.runat] = runat_of(job)
        if options.priority != NO_FIELD:
            row[options.priority] = priority_of(job)
        if options.tube != NO_FIELD and options.tube not in options.key:
            row[options.tube] = tube.decode("utf-8", "surrogateescape") if tube else None
        return row

    def as_result(self, row: Row) -> object:
        """Return a row in the form that the space returns: a tuple or a table."""
        return dict(zip(self._names, row, strict=True)) if self.options.retval == TABLE else row

    def _with_payload(self, value: Any, kind: int, format: int) -> Row:
        """Return a row that has the fields of a body, and nil in all other fields."""
        if self._names:
            row: Row = [None] * len(self._names)
            # A job that was moved here from another space can have a number that this space does not have.
            count = self._payload_counts[min(format, len(self._payload_counts) - 1)]
            if count > 1 and isinstance(value, dict) and self._are_fields(value, self._payload[count - 1]):
                for name, each in value.items():
                    row[self._payload_names[name]] = each
            elif count > 0:
                row[self._payload[0]] = value
            return row
        fields = value if kind in (BODY_JSON, BODY_MSGPACK) and isinstance(value, list) else [value]
        if kind == BODY_BYTES and not value:
            fields = []
        row, rest = [], list(fields)
        while rest or len(row) <= max(self._queue_fields):
            row.append(None if len(row) in self._queue_fields or not rest else rest.pop(0))
        return row

    def _are_fields(self, body: dict[Any, Any], last: int) -> bool:
        """Return whether every name in a body is the name of a payload field at the position `last` or before it."""
        return all(self._payload_names.get(name, NEVER) <= last for name in body)


def tube_key(value: object, at: int) -> bytes:
    """Convert the tube of a row to the key of a job. `at` is the position of the field, for errors."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not _is_writable(value):
        raise _wrong_type(at, "tube", "string", value)
    return value.encode("utf-8", "surrogateescape")


def _is_writable(text: str) -> bool:
    """Return whether a text can be encoded. Text that was decoded from invalid UTF-8 can be encoded, too."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def key_text(key: list[Any]) -> str:
    """Return a primary key as text for error messages."""
    return str(key[0]) if len(key) == 1 else json.dumps(key)


def key_name(key: list[Any], options: Options) -> bytes:
    """Convert the primary key of a task to the name of its job. Text stays unchanged; other values become JSON."""
    if len(key) == 1 and options.key_type() == "string":
        return bytes(key[0].encode("utf-8", "surrogateescape"))
    written = json.dumps(key if len(key) > 1 else key[0], separators=(",", ":"), ensure_ascii=False)
    return written.encode("utf-8", "surrogateescape")


def named_key(name: bytes, options: Options) -> list[Any]:
    """Convert the name of a job to the primary key of its task. A name from another dialect can be any text."""
    text = name.decode("utf-8", "surrogateescape")
    if len(options.key) == 1 and options.key_type() == "string":
        return [text]
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if len(options.key) == 1:
        return [value]
    parts = value if isinstance(value, list) else [value]
    return (parts + [None] * len(options.key))[: len(options.key)]


def made_key(job: Job, options: Options, ids: IdForms) -> list[Any]:
    """Return the primary key of a job without a name: the number of the job, or its id as a uuid."""
    first: Any = int(job.local)
    if options.key_type() in ("string", "any", "scalar") and options.id != "auto_increment":
        digits = ids.hex(job.id).decode()
        first = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return [first] + [None] * (len(options.key) - 1)


def key_of_job(job: Job, options: Options, ids: IdForms) -> list[Any]:
    if job.extra is not None and job.extra.name:
        return named_key(job.extra.name, options)
    return made_key(job, options, ids)


def find_unnamed(engine: Engine, tube: Tube, ids: IdForms, key: list[Any]) -> Job | None:
    """Find a job by a primary key that the queue made from the job's number or id. Return None if there is none."""
    if len(key) != 1:
        return None
    job: Job | None = None
    if isinstance(key[0], str):
        number = id_of_uuid(key[0], ids)
        job = None if number == NOT_AN_ID else engine.jobs.find(number)
    elif isinstance(key[0], int) and 0 <= key[0] < NEVER and tube.jobs_by_number is not None:
        job = tube.jobs_by_number.find(key[0])
    if job is None or job.tube != tube.slot or (job.extra is not None and job.extra.name):
        return None
    return job


def find_job(engine: Engine, tube: Tube, options: Options, ids: IdForms, key: list[Any]) -> Job | None:
    job = tube.names.get(key_name(key, options))
    return find_unnamed(engine, tube, ids, key) if job is None else job


def runat_of(job: Job) -> float:
    """Return the next deadline of a job in seconds since 1970, or 0 if it has none."""
    return job.due / 1000 if job.deadline_pos != NOWHERE else 0


def priority_of(job: Job) -> int:
    """Return the priority that a job was put with."""
    given = PRIORITY_UNSET if job.extra is None else job.extra.priority_given
    return int(job.priority if given == PRIORITY_UNSET else given)


def id_of_uuid(text: str, ids: IdForms) -> int:
    """Return the engine's number for a job whose id is this uuid, or NOT_AN_ID."""
    digits = text.replace("-", "") if len(text) == 36 else ""
    return ids.parse_hex(digits.encode("ascii", "replace")) if len(digits) == 32 else NOT_AN_ID


def _check_field(value: Any, field: Field, at: int, is_queues: bool) -> None:
    if value is None:
        if field.nullable or is_queues or field.type == "any":
            return
        raise XqueueError(f"Tuple field {at + 1} ({field.name}) required by space format is missing", FIELD_MISSING)
    if not _is_of_type(value, field.type):
        raise _wrong_type(at, field.name, field.type, value)


def _wrong_type(at: int, name: str, expected: str, value: object) -> XqueueError:
    got = f"expected {expected}, got {_type_of(value)}"
    return XqueueError(
        f"Tuple field {at + 1} ({name}) type does not match one required by operation: {got}", FIELD_TYPE
    )


def _is_of_type(value: Any, type: str) -> bool:
    if type == "any":
        return True
    if isinstance(value, (dict, list, tuple)):
        return type == ("map" if isinstance(value, dict) else "array")
    if type in ("array", "map"):
        return False
    if type == "scalar":
        return True
    if isinstance(value, bool):
        return type == "boolean"
    if isinstance(value, (int, float)):
        if isinstance(value, float):
            return type in ("number", "double") or (value.is_integer() and type in ("integer", "unsigned", "decimal"))
        return type in ("number", "double", "integer", "decimal") or (type == "unsigned" and value >= 0)
    if isinstance(value, str):
        return type == "string"
    if isinstance(value, bytes):
        return type in ("string", "varbinary")  # Some clients send text as binary.
    return isinstance(value, Ext) and value.code == _EXTENSIONS.get(type, -1)


def _type_of(value: object) -> str:
    if isinstance(value, int) and value < 0:
        return "integer"
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "extension")


def _body_value(body: bytes, kind: int) -> Any:
    """Decode a body. If it is nested too deep for a reply, return it as text."""
    try:
        if kind == BODY_MSGPACK:
            # A body is an array of fields, so it is one level deeper than its fields.
            Reader(body).skip(_ROW_DEPTH_MAX + 1)
        value = to_python(body, kind)
        if kind == BODY_JSON:
            pack(value, _ROW_DEPTH_MAX)
        return value
    except (WrongType, ProtocolError, RecursionError):
        return to_plain(body, kind).decode("utf-8", "replace")


def encode(value: Any, depth: int = VALUE_DEPTH_MAX) -> tuple[bytes, int]:
    """Encode a value as the body of a job. Return the body and its kind. `depth` limits the nesting."""
    if isinstance(value, bytes):
        return value, BODY_BYTES
    packed = pack(value, depth)
    if isinstance(value, str):
        body = from_value(packed)
        return body.data, body.kind
    return b"\x91" + packed, BODY_MSGPACK
