"""The errors of the HTTP API: a status, a stable code, a sentence, and a hint if there is more to say.

Most errors come from the node and keep its code. `STATUS_BY_CODE` gives each code its status. The codes of the API
itself are listed in `OWN_CODES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.errors import BadAnswer, CommandError, ConnectionLost, NoServer, PenstockError

# What the codes of the API mean. The codes of the node are in docs/reference/embedded.md and protocol.md.
OWN_CODES: Final[dict[str, tuple[int, str]]] = {
    "BADREQUEST": (400, "The request is malformed: its path, query, headers or JSON."),
    "BADJSON": (400, "The body of the request is not JSON, or too deeply nested, or has a number that is too long."),
    "BADCURSOR": (400, "The cursor is not one that this API returned for the same request."),
    "BADHOST": (421, "The API does not answer to the name in `Host`."),
    "BADORIGIN": (403, "A page of another origin sent the request."),
    "CSRF": (403, "The request is authenticated by a cookie, and `X-CSRF-Token` is missing or wrong."),
    "NOTFOUND": (404, "There is no such path."),
    "NOLAKE": (404, "No lake is configured, or there is none at its place."),
    "BADMETHOD": (405, "The path does not support the method."),
    "REQUESTTOOBIG": (413, "The body of the request is too long."),
    "BADMEDIA": (415, "The content type of the request is not one that the path reads."),
    "TOOMANY": (429, "Too many failed logins, streams or waiting requests; `Retry-After` says when to try again."),
    "INTERNAL": (500, "A defect of the API. Its log has the details."),
    "NOSERVER": (503, "The node does not answer."),
    "CONNECTIONLOST": (503, "The connection to the node was lost, so it is unknown whether the request was executed."),
    "STOPPING": (503, "The API is stopping."),
    "TIMEOUT": (504, "The node did not answer in time."),
}

# The statuses of the codes of a node. All other codes of a node are 400.
STATUS_BY_CODE: Final[dict[str, int]] = {
    **dict.fromkeys(("NOAUTH", "WRONGPASS"), 401),
    **dict.fromkeys(("NOPERM",), 403),
    **dict.fromkeys(("NOTUBE", "NOJOB", "NOSTAGE", "NOJOURNAL"), 404),
    **dict.fromkeys(
        (
            *("TUBEEXISTS", "TUBETAKEN", "TUBEAWAITED", "PAUSED", "NOTTAKEN", "NOTOWNER", "NOTBURIED", "ONLYONCE"),
            *("FULL", "NAMETAKEN", "NUMBERTAKEN", "JOBEXISTS", "ISTAKEN", "NOTKEPT", "ISSTAGED", "NOSESSION"),
            *("CLAIMGONE", "FENCED", "STAGEOVER", "STALE", "CROSSHOME", "TOOLATE"),
        ),
        409,
    ),
    "TRIMMED": 410,
    "TOOBIG": 413,
    **dict.fromkeys(("BUSY", "TOOMANYWAITS"), 429),
    **dict.fromkeys(("DAMAGED", "BADDRIVER"), 500),
    **dict.fromkeys(
        (
            *("NOSERVER", "CONNECTIONLOST", "LOADING", "LEAVING", "NOHOME", "OOM", "NOMEMORY", "NOSPACE", "NOREPL"),
            *("EXHAUSTED", "JOURNALFAILED", "CLOSED", "SUPERSEDED"),
        ),
        503,
    ),
    **{code: status for code, (status, _) in OWN_CODES.items()},
}

# Seconds after which a client may try again.
RETRY_AFTER_S: Final = {429: 1, 503: 1}


class Refused(Exception):
    """A request that is refused. The exception is the response."""

    def __init__(self, code: str, message: str, hint: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def status(self) -> int:
        return STATUS_BY_CODE.get(self.code, 400)

    def document(self) -> Mapping[str, Any]:
        """Return the body of the response."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


def bad_request(message: str, hint: str | None = None) -> Refused:
    return Refused("BADREQUEST", message, hint)


def refusal_of(error: Exception) -> Refused:
    """Return the response to a request for which a node or a connection raised this error."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, CommandError):
        hint = _HINTS.get(error.code)
        if error.code == "NOAUTH":
            return Refused(error.code, "this server requires a user and a password, or a token", hint)
        if error.code == "WRONGPASS":
            return Refused(error.code, "wrong user, password or token", hint)
        return Refused(error.code, str(error), hint)
    if isinstance(error, BadAnswer):
        return Refused("CONNECTIONLOST", str(error))
    if isinstance(error, ConnectionLost):
        return Refused("CONNECTIONLOST", str(error), "put with `dedup`, and repeat the request")
    if isinstance(error, NoServer):
        return Refused("NOSERVER", str(error))
    if isinstance(error, TimeoutError):
        return Refused("TIMEOUT", "the node did not answer in time")
    if isinstance(error, (OSError, EOFError)):
        return Refused("NOSERVER", "the connection to the node was lost")
    if isinstance(error, PenstockError):
        return Refused("NOSERVER", str(error))
    raise error


_HINTS: Final = {
    "NOAUTH": "authenticate with HTTP Basic, with a bearer token, or sign in with POST /api/v1/login",
    "WRONGPASS": "authenticate with HTTP Basic, with a bearer token, or sign in with POST /api/v1/login",
    "NOSESSION": "create a session with POST /api/v1/sessions, and name it in the header Penstock-Session",
    "NOTOWNER": "name the session that took the job in the header Penstock-Session",
}
