"""What a client knows of a job, from when it last heard of it."""

from __future__ import annotations

from typing import Any

from penstock.core.errors import BadAnswer
from penstock.options import decode_body


class JobFacts:
    """A job as a server told it."""

    __slots__ = ("body_kind", "deliveries", "id", "is_guess", "nacks", "once", "raw_body", "raw_tube", "state")

    def __init__(
        self,
        id: str,
        raw_tube: bytes,
        raw_body: bytes,
        body_kind: int,
        deliveries: int,
        nacks: int,
        once: bool,
        state: str,
    ) -> None:
        self.id = id
        self.raw_tube = raw_tube
        self.raw_body = raw_body
        self.body_kind = body_kind
        self.deliveries = deliveries
        self.nacks = nacks
        self.once = once
        self.state = state
        self.is_guess = False  # It was put, but may be another that was there before; only its id is certain.

    def body(self) -> Any:
        """What was put: bytes as bytes, text as text, any other value as it came out of JSON."""
        try:
            return decode_body(self.raw_body, self.body_kind)
        except (ValueError, AssertionError, AttributeError, TypeError):
            raise BadAnswer(f"the body of job {self.id} is not what the server says it is") from None

    def hold(self) -> int:
        """Which delivery of it whoever holds it has; 0 if it was not taken when it was heard of."""
        return self.deliveries if self.state == "taken" else 0
