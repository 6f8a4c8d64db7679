"""Attacks as data: each test in this folder is an attempt or a variant, with a row in docs/explanation/security.md.

`scripts/generate_docs.py` reads the rows from the tests, so the table lists exactly what is tested.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

_FOLDER = Path(__file__).parent
_FIELD = "__attempt__"


@dataclass(frozen=True)
class Attempt:
    """One row of the table."""

    tried: str  # The attack: "send CONFIG GET through the bus".
    port: str  # The target: RESP, IPROTO, TLS, HTTP, bus, or the file or program that is attacked.
    caller: str  # The attacker: "no password", "user with tubes = mail.*", "node with the secret".
    result: str  # The outcome, as the test asserts it: "refused: NOPERM".


def attempt(tried: str, *, port: str, caller: str, result: str) -> Callable[[Test], Test]:
    """Mark a test as an attempt."""

    def mark(test: Test) -> Test:
        setattr(test, _FIELD, Attempt(tried, port, caller, result))
        return test

    return mark


def all_attempts() -> Iterator[tuple[str, list[Attempt]]]:
    """Yield the first line of each test module's docstring with its attempts, in the order of their definition."""
    for path in sorted(_FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.security.{path.stem}")
        found = [getattr(each, _FIELD) for each in vars(module).values() if hasattr(each, _FIELD)]
        assert module.__doc__ and found, f"{path.name} needs a docstring and an attempt"
        yield module.__doc__.partition("\n")[0].rstrip("."), found
