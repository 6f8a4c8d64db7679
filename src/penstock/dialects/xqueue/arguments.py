"""Functions that check and convert the arguments of a space's methods. Keys are checked in `rows.py`."""

from __future__ import annotations

import math
from typing import Any

from penstock.core import states as s
from penstock.core.limits import NEVER, duration_ms
from penstock.dialects.xqueue.options import XqueueError, as_map, lua_type
from penstock.dialects.xqueue.statuses import STATUS_LETTERS, STATUS_WORDS


def argument(args: list[object], at: int) -> object:
    return args[at] if at < len(args) else None


def attributes(args: list[object], at: int, method: str, known: tuple[str, ...]) -> dict[Any, Any]:
    attr = as_map(argument(args, at), "attr")
    for name in attr:
        if name not in known:
            raise XqueueError(f"unknown attribute {name!r} of {method}; use one of {', '.join(known)}")
    return attr


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def state_back(delay_ms: int) -> int:
    """Return the state of a task that was returned to the queue: READY, or DELAYED if there is a delay."""
    return s.READY if delay_ms == 0 else s.DELAYED


def count_of(given: object) -> int:
    """Convert an argument to a number of tasks. nil and infinity mean all."""
    if given is None or (isinstance(given, float) and math.isinf(given) and given > 0):
        return NEVER
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise XqueueError("Wrong number of tasks to dig. Expected a number, infinity or nil")
    return given


def timeout_ms_of(value: object) -> int:
    if not is_number(value) or not (isinstance(value, (int, float)) and value >= 0):
        raise XqueueError("timeout required")
    return duration_ms(value, "timeout")


def duration_of(value: object, what: str) -> int:
    if not is_number(value):
        raise XqueueError(f"{what} must be a number of seconds, not {lua_type(value)}")
    return duration_ms(value, what)


def seconds_ms(value: object, what: str) -> int:
    """Convert a finite time in seconds to milliseconds. `what` names the argument in errors."""
    ms = duration_of(value, what)
    if ms == NEVER:
        raise XqueueError(f"{what} must be finite")
    return ms


def state_of(given: object) -> int:
    """Return the state that a status names, by its letter or its word. Raise an error for any other value."""
    word = given.capitalize() if isinstance(given, str) else ""
    for names, name in ((STATUS_LETTERS, given), (STATUS_WORDS, word)):
        if name in names:
            state = names.index(str(name))
            if state == s.TAKEN:
                raise XqueueError("A task cannot be switched to T; use take")
            if s.READY <= state <= s.ZOMBIE:
                return state
    raise XqueueError(f"Wrong status {'nil' if given is None else repr(given)}, may be [R, W, B, D, Z]")
