"""The shapes of responses that several routes share."""

from __future__ import annotations

from typing import Final

from penstock.web.shapes import Items, Map, Null, Number, Record, Shape, Text, Whole, Yes

ID_EXAMPLE: Final = "D-77764aa0-6YXdE7ZcWR/phc0TtlxZH+Ln-ffff"
URL_EXAMPLE: Final = "/api/v1/jobs/D-77764aa0-6YXdE7ZcWR_phc0TtlxZH-Ln-ffff"
STATE_NAMES: Final = ("ready", "taken", "delayed", "buried", "done", "zombie", "staged", "gone")

MOMENT_MAX: Final = 2**63 - 1


def moment(about: str, example: int = 1_795_031_234_335) -> Shape:
    return Null(Whole(about + " Milliseconds since 1970."), example=example)


def span(about: str, example: int = 92) -> Shape:
    return Null(Whole(about + " Milliseconds."), example=example)


CURSOR: Final = Null(
    Text("Give it as `cursor` to get the next page. null: this was the last page."),
    example=None,
)

ERROR: Final = Record(
    {
        "error": Record(
            {
                "code": Text("Stable; programs can compare it.", example="NOJOB"),
                "message": Text("A sentence for people.", example="There is no such job here."),
                "hint": Null(Text("What to do, if the API knows more than the sentence says."), example=None),
            }
        )
    },
    title="Error",
)

_COUNTS: Final = {
    name: Whole(f"Number of {name} jobs.", example=0)
    for name in ("ready", "taken", "delayed", "buried", "done", "zombie", "staged")
}
_RATES: Final = {
    "in_rate": Null(Number("Jobs put per second, since the last sample. null: there is only one sample."), example=2.5),
    "take_rate": Null(Number("Jobs taken per second."), example=2.5),
    "ack_rate": Null(Number("Jobs acked per second."), example=2.5),
    "fail_rate": Null(Number("Failures per second: nacks, passed ttrs and buries."), example=0),
    "out_rate": Null(Number("Jobs per second that have left the tube."), example=2.5),
}

TUBE_ROW: Final = Record(
    {
        "name": Text("A byte that is not UTF-8 is a lone surrogate, as in Python.", example="emails"),
        "url": Text("The path of the tube.", example="/api/v1/tubes/emails"),
        "type": Text("The type of the tube.", example="fifottl"),
        "paused_in": Yes("Puts are refused.", example=False),
        "paused_out": Yes("Takes get no jobs.", example=False),
        **_COUNTS,
        "oldest_ms": span("How long the oldest job that can be taken has been ready."),
        "consumers": Whole("Number of takes that wait for a job.", example=0),
        "keys": Whole("Number of keys.", example=0),
        **_RATES,
    },
    open=True,
    title="Tube",
)

OVERVIEW: Final = Record(
    {
        "tubes": Whole("Number of tubes.", example=1),
        **_COUNTS,
        "oldest_ms": span("How long the oldest job that can be taken has been ready."),
        "consumers": Whole("Number of takes that wait for a job.", example=0),
        "paused": Whole("Number of tubes that are paused.", example=0),
        **_RATES,
    },
    open=True,
    title="Overview",
)

BODY_FIELDS: Final[dict[str, Shape]] = {
    "body": Shape("The body, in the form that `as` names.", example={"to": "ada"}),
    "as": Text(
        "The form of `body` in this response. If it is `damaged` (the node cannot read the body) or `hidden` (by "
        "--hide-bodies), `body` is null.",
        choices=("json", "text", "base64", "damaged", "hidden"),
        example="json",
    ),
    "kind": Text("What the body is in the queue.", choices=("bytes", "text", "json", "msgpack"), example="json"),
}

JOB: Final = Record(
    {
        "id": Text("The id of the job.", example=ID_EXAMPLE),
        "url": Text("The path of the job.", example=URL_EXAMPLE),
        "tube": Text("The name of its tube.", example="emails"),
        "state": Text("Its state.", example="ready"),
        "number": Null(Whole("Its number in the tube."), example=0),
        "key": Null(Text("Its key."), example=None),
        "deliveries": Whole("How often it was delivered.", example=0),
        "nacks": Whole("How often it failed.", example=0),
        "once": Yes("It is delivered at most once.", example=False),
        "created_ms": Whole("When it was put. Milliseconds since 1970.", example=1_795_031_234_335),
        "headers": Map(Text(), "Its headers.", example={}),
        **BODY_FIELDS,
    },
    open=True,
    title="Job",
)

JOB_DETAILS: Final = Record(
    {
        **JOB.required,
        "meta": Record(
            {},
            about="All properties of the job; times end with _ms.",
            open=True,
            example={"priority": 0, "ttr_ms": 300_000},
        ),
    },
    {
        **JOB.optional,
        "copies": Items(
            Record(
                {
                    "node": Text("The id of the node.", example="77764aa047a51c809a0fc3bb5d40cca7699e4033"),
                    "has_ack": Yes("The node has confirmed that the job is acked.", example=False),
                }
            ),
            "The nodes that have a copy, for a job of a disque tube.",
        ),
    },
    open=True,
    title="JobDetails",
)

EVENT: Final = Record(
    {
        "position": Whole("Its position in the journal.", example=7),
        "time_ms": Whole("When it happened. Milliseconds since 1970.", example=1_795_031_234_407),
        "event": Text("What happened.", example="put"),
    },
    {
        "tube": Text("The name of the tube.", example="emails"),
        "job": Text("The id of the job.", example=ID_EXAMPLE),
        "url": Text("The path of the job.", example=URL_EXAMPLE),
        "before": Text("The state before.", example="gone"),
        "after": Text("The state after.", example="ready"),
        "reason": Text("Why, if it is known."),
    },
    open=True,
    title="Event",
)


def page(name: str, of: Shape, about: str, extra: dict[str, Shape] | None = None) -> Record:
    return Record({name: Items(of, about, most=100_000), "cursor": CURSOR, **(extra or {})}, open=True)
