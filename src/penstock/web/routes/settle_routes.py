"""Settle taken jobs, and change single jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.client.commands import NO_REPEAT, REPEAT, Call, duration, number, octets
from penstock.core.errors import UnknownJob
from penstock.core.limits import NEVER
from penstock.web.exchange import Exchange
from penstock.web.names import bytes_of, encode_body
from penstock.web.put_options import BODY_FORM, finite_seconds
from penstock.web.refusals import bad_request
from penstock.web.route_table import READ, WRITE, Route
from penstock.web.routes.job_routes import job_id
from penstock.web.shapes import Body, Null, Record, Shape, Text, Time, Whole, Yes

Words = list[bytes]
_KINDS: Final = (b"bytes", b"text", b"json", b"msgpack")
_WAIT_S: Final = 300.0

_REASON: Final = Text("Why. It is stored with the job.", length=(0, 8_192), example="HTTP 503")
_DELAY: Final = Time("Wait this long before the job can be taken.", example="10s")
_TTL: Final = Null(Time("Expire the job after this long. null: never.", example="1h"))
_PRIORITY: Final = Whole("The new priority.", least=-(2**31), most=2**31 - 1, example=0)

_TAKEN: Final = ("NOJOB", "BADID", "NOTTAKEN", "NOTOWNER", "NOSESSION")


def time_words(request: Mapping[str, Any], *names: str) -> Words:
    """Return the words of options that are times, for those that the request has."""
    words: Words = []
    for name in names:
        if name in request:
            ms = request[name]
            if name == "delay":
                finite_seconds(ms, name)
            words += [name.upper().encode(), duration(NEVER if ms is None else ms)]
    return words


def text_words(request: Mapping[str, Any], *names: str) -> Words:
    """Return the words of options that are text or numbers, for those that the request has."""
    words: Words = []
    for name in names:
        value = request.get(name)
        if value is not None and value != "":
            words += [name.upper().encode(), bytes_of(value) if isinstance(value, str) else b"%d" % value]
    return words


def body_words(request: Mapping[str, Any], name: str) -> Words:
    """Return the words of a new body: the body and its kind."""
    raw, kind = encode_body(request[name], request.get("as"))
    return [raw, b"AS", _KINDS[kind]]


# ---- The commands, as words with the id of a job and a request -------------------------------------------------------


def _ack(id: bytes, request: dict[str, Any]) -> Words:
    return [b"ACK", id]


def _nack(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"NACK", id, *text_words(request, "reason")]


def _release(id: bytes, request: dict[str, Any]) -> Words:
    return [b"RELEASE", id, *time_words(request, "delay", "ttl"), *text_words(request, "priority", "key")]


def _requeue(id: bytes, request: dict[str, Any]) -> Words:
    return [b"REQUEUE", id]


def _bury(id: bytes, request: dict[str, Any]) -> Words:
    return [b"BURY", id, *text_words(request, "reason")]


def _dig(id: bytes, request: dict[str, Any]) -> Words:
    return [b"DIG", id, *time_words(request, "delay", "ttl"), *text_words(request, "priority")]


def _touch(id: bytes, request: dict[str, Any]) -> Words:
    words = [b"JOB", b"TOUCH", id]
    if "by" in request:
        words.append(duration(request["by"]))
    return words


def _done(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"DONE", id, *body_words(request, "result"), *time_words(request, "ttl")]


def _move(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"MOVE", id, bytes_of(request["tube"]), *time_words(request, "delay")]


def _snatch(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"SNATCH", id, *time_words(request, "delay")]


def _restart(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"RESTART", id, *time_words(request, "delay")]


def _switch(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"SWITCH", id, request["state"].encode(), *time_words(request, "delay")]


def delete_words(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"DELETE", id]


def _run_now(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"RUN", id]


def _priority(id: bytes, request: dict[str, Any]) -> Words:
    return [b"JOB", b"PRIORITY", id, b"%d" % request["priority"]]


# Commands that need nothing but the id, for actions on many jobs.
ACTIONS: Final[dict[str, Callable[[bytes, dict[str, Any]], Words]]] = {
    "delete": delete_words,
    "bury": _bury,
    "dig": _dig,
    "move": _move,
    "snatch": _snatch,
    "restart": _restart,
    "run": _run_now,
    "priority": _priority,
}


def _handler(words: Callable[[bytes, dict[str, Any]], Words]) -> Callable[[Exchange], Any]:
    async def run(exchange: Exchange) -> None:
        await exchange.ask(*words(job_id(exchange), exchange.body), repeat=NO_REPEAT)

    return run


async def _delete(exchange: Exchange) -> None:
    if number(await exchange.ask(*delete_words(job_id(exchange), {}), repeat=NO_REPEAT)) == 0:
        raise UnknownJob()


async def _change(exchange: Exchange) -> None:
    request, id = exchange.body, job_id(exchange)
    if "body" not in request and "priority" not in request:
        raise bad_request("the body needs the field 'body', or the field 'priority'")
    if "body" not in request and "as" in request:
        raise bad_request("the field 'as' needs the field 'body'")
    # The priority is first: if it is refused, the body is not changed either.
    if "priority" in request:
        await exchange.ask(*_priority(id, request), repeat=NO_REPEAT)
    if "body" in request:
        await exchange.ask(b"JOB", b"EDIT", id, *body_words(request, "body"), repeat=NO_REPEAT)


async def _cancel(exchange: Exchange) -> dict[str, Any]:
    words = [b"JOB", b"CANCEL", job_id(exchange), *text_words(exchange.body, "reason")]
    return {"ended": number(await exchange.ask(*words, repeat=NO_REPEAT)) == 1}


async def _wait(exchange: Exchange) -> dict[str, Any]:
    words = [b"JOB", b"WAIT", job_id(exchange), b"TIMEOUT", duration(exchange.query.get("timeout", 0))]
    if "tube" in exchange.query:
        words += [b"TUBE", bytes_of(exchange.query["tube"])]
    timeout = exchange.query.get("timeout", 0)
    answer = await exchange.wait(Call([*words, b"OUTCOME"], dict, REPEAT, timeout, 4))
    return {
        "outcome": octets(answer[b"outcome"]).decode(),
        "reason": octets(answer[b"reason"]).decode("utf-8", "surrogateescape"),
    }


def _settle(
    name: str,
    summary: str,
    words: Callable[[bytes, dict[str, Any]], Words],
    fields: Mapping[str, Shape] | None = None,
    errors: tuple[str, ...] = _TAKEN,
    required: Mapping[str, Shape] | None = None,
    about: str = "",
) -> Route:
    return Route(
        method="POST",
        path=f"/jobs/{{id}}/{name}",
        group="Settling jobs" if errors[:1] == _TAKEN[:1] and "NOTTAKEN" in errors else "Changing jobs",
        summary=summary,
        about=about,
        handler=_handler(words),
        access=WRITE,
        status=204,
        body=Record(required or {}, fields or {}),
        body_required=bool(required),
        returns=None,
        errors=errors,
        session=True,
    )


_NO_JOB: Final = ("NOJOB", "BADID")

ROUTES: Final = [
    _settle("ack", "Finish a job successfully.", _ack),
    _settle(
        "done",
        "Finish a job successfully, and keep a result in place of its body.",
        _done,
        {"as": BODY_FORM, "ttl": _TTL},
        required={"result": Body("The result.", example={"sent": True})},
        errors=(*_TAKEN, "TOOBIG", "UNSUPPORTED"),
    ),
    _settle(
        "nack",
        "Report that the work on a job failed.",
        _nack,
        {"reason": _REASON},
        errors=(*_TAKEN, "ONLYONCE"),
        about="The retry policy of the job decides whether it is tried again, and when.",
    ),
    _settle(
        "release",
        "Return a job unfinished to its place in the tube.",
        _release,
        {"delay": _DELAY, "ttl": _TTL, "priority": _PRIORITY, "key": Text("The new key.")},
        errors=(*_TAKEN, "ONLYONCE", "UNSUPPORTED"),
    ),
    _settle("requeue", "Return a job unfinished to the end of its tube.", _requeue, errors=(*_TAKEN, "ONLYONCE")),
    _settle(
        "bury",
        "Set a job aside, with a reason.",
        _bury,
        {"reason": _REASON},
        errors=(*_TAKEN, "UNSUPPORTED"),
    ),
    _settle(
        "touch",
        "Extend the time for a taken job.",
        _touch,
        {"by": Time("Add this time. Without it, the whole ttr begins again.", example="30s")},
        errors=(*_TAKEN, "UNSUPPORTED"),
    ),
    _settle(
        "dig",
        "Return a buried job to its tube.",
        _dig,
        {"delay": _DELAY, "ttl": _TTL, "priority": _PRIORITY},
        errors=(*_NO_JOB, "NOTBURIED", "UNSUPPORTED"),
    ),
    _settle(
        "snatch",
        "Take a job away from the consumer that has it.",
        _snatch,
        {"delay": _DELAY},
        errors=(*_NO_JOB, "NOTTAKEN", "UNSUPPORTED"),
    ),
    _settle(
        "restart",
        "Make a delayed or kept job ready again.",
        _restart,
        {"delay": _DELAY},
        errors=(*_NO_JOB, "NOTKEPT", "UNSUPPORTED"),
    ),
    _settle(
        "switch",
        "Change the state of a job that is not taken.",
        _switch,
        {"delay": _DELAY},
        required={"state": Text(choices=("ready", "delayed", "buried", "done", "zombie"), example="ready")},
        errors=(*_NO_JOB, "ISTAKEN", "UNSUPPORTED"),
    ),
    _settle(
        "move",
        "Move a job to the end of another tube.",
        _move,
        {"delay": _DELAY},
        required={"tube": Text("The name of the other tube.", length=(1, 65_535), example="emails-2")},
        errors=(*_NO_JOB, "NOTUBE", "NOTOWNER", "UNSUPPORTED", "CROSSHOME"),
    ),
    _settle("run", "Make a delayed job ready now.", _run_now, errors=(*_NO_JOB, "NOTKEPT", "UNSUPPORTED")),
    Route(
        method="POST",
        path="/jobs/{id}/cancel",
        group="Changing jobs",
        summary="Cancel a job. If it is taken, its consumer is told, and the job ends with its delivery.",
        handler=_cancel,
        access=WRITE,
        body=Record({}, {"reason": _REASON}),
        body_required=False,
        returns=Record({"ended": Yes("The job has ended. false: it is still taken.", example=True)}),
        errors=_NO_JOB,
    ),
    Route(
        method="PATCH",
        path="/jobs/{id}",
        group="Changing jobs",
        summary="Change the priority or the body of a job that is not taken.",
        handler=_change,
        access=WRITE,
        status=204,
        body=Record(
            {},
            {"priority": _PRIORITY, "body": Body("The new body.", example={"to": "bob"}), "as": BODY_FORM},
            example={"priority": 5},
        ),
        returns=None,
        errors=(*_NO_JOB, "ISTAKEN", "ISSTAGED", "TOOBIG", "UNSUPPORTED"),
    ),
    Route(
        method="DELETE",
        path="/jobs/{id}",
        group="Changing jobs",
        summary="Delete a job, in any state.",
        handler=_delete,
        access=WRITE,
        status=204,
        returns=None,
        errors=_NO_JOB,
    ),
    Route(
        method="GET",
        path="/jobs/{id}/wait",
        group="Jobs",
        summary="Wait until a job ends or fails for good.",
        handler=_wait,
        access=READ,
        query={
            "timeout": Time("How long to wait.", example="20s", most_s=_WAIT_S),
            "tube": Text("The tube of the job, in case it has ended.", length=(1, 65_535)),
        },
        returns=Record(
            {
                "outcome": Text(
                    "acked, buried, dead_lettered, dropped, expired, deleted, gone, or timeout.", example="acked"
                ),
                "reason": Text("The reason, if it is known.", example=""),
            }
        ),
        errors=_NO_JOB,
        waits=True,
    ),
]
