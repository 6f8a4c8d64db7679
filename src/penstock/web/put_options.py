"""The options of puts and tubes in requests, and their conversion to those of the Python API.

Times of requests are milliseconds here, because `shapes.Time` has converted them. The Python API has seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.limits import NEVER
from penstock.options import EncodedBody
from penstock.web.json_text import JsonText
from penstock.web.names import bytes_of, encode_body
from penstock.web.refusals import bad_request
from penstock.web.shapes import Body, Map, Null, Record, Shape, Text, Time, Whole, Yes

# The last millisecond of the year 9999.
_MOMENT_MAX: Final = 253_402_300_799_999
_PRIORITY: Final = {"least": -(2**31), "most": 2**31 - 1}

_TIMES: Final = frozenset(["delay", "ttl", "ttr", "zombie", "dedup_window"])
_NAMES: Final = frozenset(["key", "name", "unique", "dedup"])

BODY_FORM: Final = Text(
    "The form of `body`. By default, a string is `text`, and any other value is `json`. `base64` are bytes, and "
    "`msgpack` is a msgpack value in base64.",
    choices=("json", "text", "base64", "msgpack"),
    example="json",
)

PUT_OPTIONS: Final[dict[str, Shape]] = {
    "delay": Time("Wait this long before the job can be taken.", example="10s"),
    "at_ms": Whole("Wait until this time before the job can be taken. Milliseconds since 1970.", most=_MOMENT_MAX),
    "ttl": Null(Time("Expire the job after this long, not counting the delay. null: never.", example="1h")),
    "ttr": Null(Time("Time that a consumer has before the job returns to the tube. null: no limit.")),
    "priority": Whole("A job with a lower priority is taken first.", **_PRIORITY),
    "key": Text("Key of the job, for tubes that limit jobs per key."),
    "urgent": Yes("Put the job in front of all others."),
    "once": Yes("In disque tubes: deliver the job at most once."),
    "retry": Text("Retry policy of the job.", length=(1, 200)),
    "name": Text("An id of your own, unique in the tube."),
    "unique": Text("If an unfinished job of the tube has this value, return it instead of adding a new one."),
    "dedup": Text("If a job was put with this value recently, return that job instead."),
    "nacks": Whole("Initial number of failures, for jobs imported from another system.", most=2**31 - 1),
    "options": Map(Shape(), "In tubes with a driver: options for the driver.", most=1_000),
    "number": Whole("Number of the job in its tube, for imported jobs."),
    "state": Text("Initial state, for imported jobs.", choices=("ready", "buried", "done")),
    "new": Yes("Refuse the put where `unique` or `dedup` would return an existing job."),
    "headers": Map(Text(length=(0, 8_192)), "Metadata next to the body, for example a trace context.", most=64),
}

PUT_JOB: Final = Record({"body": Body("The body of the job.", example={"to": "ada"})}, {"as": BODY_FORM, **PUT_OPTIONS})

TUBE_OPTIONS: Final[dict[str, Shape]] = {
    "ttl": Null(Time("Default ttl of its jobs. null: none.", example="1h")),
    "ttr": Null(Time("Default ttr of its jobs. null: no limit.")),
    "priority": Whole("Default priority of its jobs.", **_PRIORITY),
    "ttl_while_taken": Text("Whether the ttl of a taken job stops or can end it.", choices=("waits", "kills")),
    "key_limit": Whole("Maximum number of taken jobs per key.", least=1, most=2**31 - 1),
    "fair": Yes("Serve the keys in turn instead of in the order of their jobs."),
    "capacity": Whole("Maximum number of jobs, in any state."),
    "capacity_bytes": Whole("Maximum number of bytes of all bodies."),
    "retry": Text("Default retry policy.", length=(0, 200), example="5x exp(1s..10m) then bury"),
    "max_deliveries": Whole("Short for retry: this many tries, then bury, or move to `dead_letter`."),
    "dead_letter": Text("With max_deliveries: the tube that receives jobs that failed too often."),
    "keep": Yes("Keep acked jobs in the state done."),
    "zombie": Time("Keep acked jobs in the state zombie for this long."),
    "dedup_window": Time("How long a dedup id is kept."),
    "dedup_count": Whole("How many dedup ids are kept.", most=2**31 - 1),
    "temporary": Yes("Do not write its jobs to the journal."),
}


def seconds(ms: int | None) -> float | int | None:
    """Return a time in seconds. None means no limit."""
    if ms is None or ms == NEVER:
        return None
    # Whole seconds stay integers, because a fraction of a very long time is not exact.
    return ms // 1_000 if ms % 1_000 == 0 else ms / 1_000


def finite_seconds(ms: int, what: str) -> float | int:
    """Return a time that must have an end, in seconds."""
    found = seconds(ms)
    if found is None:
        raise bad_request(f"{what} must not be forever")
    return found


def python_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return options as keywords of the Python API."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("delay", "zombie", "dedup_window"):
            found[name] = finite_seconds(value, name)
        elif name in _TIMES:
            found[name] = seconds(value)
        elif name in _NAMES:
            found[name] = bytes_of(value)
        elif name == "at_ms":
            found["at"] = datetime.fromtimestamp(value // 1_000, UTC).replace(microsecond=value % 1_000 * 1_000)
        elif name == "headers":
            found[name] = {header: bytes_of(text) for header, text in value.items()}
        else:
            found[name] = value
    return found


def put_of(given: dict[str, Any]) -> tuple[EncodedBody, dict[str, Any]]:
    """Return the body and the options of a put."""
    options = dict(given)
    body: JsonText = options.pop("body")
    return encode_body(body, options.pop("as", None)), python_options(options)
