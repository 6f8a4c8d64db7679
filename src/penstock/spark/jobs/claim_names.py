"""The column `claim` of a stream: the claim that holds the job of a row, and the fencing token of the driver.

A verdict that comes with this value is refused if the claim has ended or if another driver has taken over the consumer.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.errors import WrongType


class ClaimName(NamedTuple):
    """A claim of a consumer, and the token with which a driver uses it."""

    consumer: str
    number: int
    token: int

    def __str__(self) -> str:
        return f"{self.token}/{self.number}/{self.consumer}"


def parse_claim(text: str) -> ClaimName:
    """Return the claim that a value of the column `claim` names."""
    token, _, rest = text.partition("/")
    number, _, consumer = rest.partition("/")
    if not (token.isascii() and token.isdigit() and number.isascii() and number.isdigit() and consumer):
        raise WrongType(f"{text[:60]!r} is not a value of the column claim of a stream")
    return ClaimName(consumer, int(number), int(token))
