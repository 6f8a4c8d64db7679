"""The retry policy: a text that says how a failed job is retried. It is parsed once and kept with the job or tube.

    5x exp(1s..10m) jitter then bury

This means: deliver the job at most five times. Wait one second before the second delivery, and twice as long each time
up to ten minutes. Shorten each wait at random by up to half. After the fifth failure, bury the job. All parts are
optional:

    policy   = [count "x"] [waits] ["jitter"] ["then" end]        at least one part
    waits    = "const(" time ")" | "linear(" time ".." time ")" | "exp(" time ".." time ")"
    end      = "bury" | "drop" | "move" tube                      the default is bury
    time     = number ("ms" | "s" | "m" | "h" | "d" | "w")

Without a count, a job is retried without limit. A failure is a nack, an expired ttr or a disconnect. A release is not a
failure.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core.durations import UNITS_MS
from penstock.core.errors import BadRetry
from penstock.core.limits import DURATION_MS_MAX, NAME_BYTES_MAX

AT_ONCE: Final = 0
CONST: Final = 1
LINEAR: Final = 2
EXP: Final = 3

THEN_BURY: Final = 0
THEN_DROP: Final = 1
THEN_MOVE: Final = 2

TRIES_MAX: Final = 1_000_000

_SHAPES: Final[dict[str, int]] = {"const": CONST, "linear": LINEAR, "exp": EXP}


@mypyc_attr(acyclic=True)
class RetryPolicy:
    def __init__(self, text: str) -> None:
        self.text = text  # The original text, as the log and clients show it.
        self.tries: i64 = 0  # Maximal number of deliveries; 0 for no limit.
        self.shape: i64 = AT_ONCE
        self.first_ms: i64 = 0
        self.longest_ms: i64 = 0
        self.jitter = False
        self.then: i64 = THEN_BURY
        self.target = b""  # Name of the tube to which an exhausted job is moved.

    def is_spent(self, deliveries: i64) -> bool:
        """Return whether a job that failed has had all its attempts, so that it is not retried."""
        return self.tries > 0 and deliveries >= self.tries

    def wait_ms(self, failures: i64, random32: i64) -> i64:
        """Return how many ms to wait after this number of failures. `random32` is a random number of 32 bits."""
        if self.shape == AT_ONCE:
            return 0
        wait = self.first_ms
        if self.shape == LINEAR:
            wait = self.longest_ms if failures > self.longest_ms else self.first_ms * failures
        elif self.shape == EXP:
            # Stop at the longest wait, because the power could overflow.
            doublings: i64 = 1
            while doublings < failures and wait < self.longest_ms:
                wait = wait * 2
                doublings += 1
        if wait > self.longest_ms:
            wait = self.longest_ms
        if self.jitter:
            wait -= (wait // 2) * (random32 & 0xFFFF) // 0x10000
        return wait


class _Reader:
    """The text of a retry policy, and the present position of the parser in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, expected: str) -> BadRetry:
        """Return the error that says what was expected at the present position of the text."""
        rest = self.text[self.at : self.at + 12]
        found = f"found {rest!r}" if rest else "it ends there"
        return BadRetry(f"retry policy {self.text[:80]!r}: at character {self.at + 1}, expected {expected}; {found}")

    def skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def done(self) -> bool:
        self.skip_spaces()
        return self.at >= len(self.text)

    def word(self) -> str:
        """Return the letters at the present position without consuming them."""
        end = self.at
        while end < len(self.text) and "a" <= self.text[end] <= "z":
            end += 1
        return self.text[self.at : end]

    def take(self, token: str) -> bool:
        """Consume `token` if the text continues with it. Return whether it did."""
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.error(repr(token))

    def number(self, expected: str) -> int:
        end = self.at
        while end < len(self.text) and "0" <= self.text[end] <= "9" and end - self.at < 16:
            end += 1
        if end == self.at:
            raise self.error(expected)
        value = int(self.text[self.at : end])
        self.at = end
        return value

    def time_ms(self) -> int:
        start = self.at
        value = self.number("a time such as 10s")
        unit = self.word()
        unit_ms = UNITS_MS.get(unit.encode()) if unit else None
        if unit_ms is None:
            raise self.error("a unit: ms, s, m, h, d or w")
        self.at += len(unit)
        value *= unit_ms
        if value < 1 or value > DURATION_MS_MAX:
            self.at = start
            raise self.error("a time between 1ms and 1,000 years")
        return value


def parse_retry(text: str) -> RetryPolicy:
    """Parse a retry policy. The error names the character at which parsing failed."""
    reader = _Reader(text)
    policy = RetryPolicy(text)
    if reader.done():
        raise reader.error("a policy such as 5x exp(1s..10m) jitter then bury")
    if "0" <= reader.text[reader.at] <= "9":
        start = reader.at
        tries = reader.number("a number of tries")
        if not reader.take("x"):
            raise reader.error(f"'x', as in {tries}x")
        if tries < 1 or tries > TRIES_MAX:
            reader.at = start
            raise reader.error(f"1x to {TRIES_MAX}x")
        policy.tries = tries
    reader.skip_spaces()
    if reader.word() in _SHAPES:
        _read_waits(reader, policy)
    reader.skip_spaces()
    if reader.word() == "jitter":
        if policy.shape == AT_ONCE:
            raise reader.error("const(…), linear(…) or exp(…) before jitter")
        reader.take("jitter")
        policy.jitter = True
    reader.skip_spaces()
    if reader.word() == "then":
        reader.take("then")
        _read_end(reader, policy)
    if not reader.done():
        raise reader.error("Nx, const(…), linear(…), exp(…), jitter or then, in this order")
    return policy


def _read_waits(reader: _Reader, policy: RetryPolicy) -> None:
    shape = reader.word()
    reader.take(shape)
    policy.shape = _SHAPES[shape]
    reader.need("(")
    policy.first_ms = reader.time_ms()
    policy.longest_ms = policy.first_ms
    if policy.shape != CONST:
        reader.need("..")
        start = reader.at
        policy.longest_ms = reader.time_ms()
        if policy.longest_ms < policy.first_ms:
            reader.at = start
            raise reader.error("a longest wait that is not shorter than the first")
    reader.need(")")


def _read_end(reader: _Reader, policy: RetryPolicy) -> None:
    reader.skip_spaces()
    word = reader.word()
    if word == "bury" or word == "drop":
        reader.take(word)
        policy.then = THEN_BURY if word == "bury" else THEN_DROP
    elif word == "move":
        reader.take(word)
        reader.skip_spaces()
        name = reader.text[reader.at :].strip().encode()
        if not 1 <= len(name) <= NAME_BYTES_MAX:
            raise reader.error("the name of a tube")
        policy.then = THEN_MOVE
        policy.target = name
        reader.at = len(reader.text)
    else:
        raise reader.error("bury, drop or move TUBE")
