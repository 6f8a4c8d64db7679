"""An engine with xqueue spaces and clients of them. Time passes only when a test says so."""

from __future__ import annotations

from typing import Any

from penstock.core.engine import Engine
from penstock.core.errors import DamagedJournal
from penstock.core.ids import IdForms
from penstock.core.job import Job
from penstock.core.outbox import Outbox
from penstock.core.waits import WAITING
from penstock.dialects.xqueue.options import XqueueError
from penstock.dialects.xqueue.space import Space, Steps, Waits
from penstock.dialects.xqueue.spaces import XqueueSpaces
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.testing import check

NODE = b"0123456789abcdef0123456789abcdef01234567"
NOW = 1_000_000

FORMAT: list[Any] = [
    {"name": "id", "type": "unsigned"},
    {"name": "status", "type": "string"},
    {"name": "runat", "type": "number"},
    {"name": "priority", "type": "integer", "is_nullable": True},
    {"name": "tube", "type": "string", "is_nullable": True},
    {"name": "name", "type": "string"},
    {"name": "data", "type": "any", "is_nullable": True},
]
FIELDS = {"status": "status", "runat": "runat", "priority": "priority", "tube": "tube"}
FEATURES: dict[str, Any] = {"id": "auto_increment", "buried": True, "delayed": True, "ttl": True, "ttr": True}


def options(**features: Any) -> dict[str, Any]:
    """Return the options of a space with all fields and with these features."""
    return {"format": FORMAT, "fields": FIELDS, "features": {**FEATURES, **features}, "tube_stats": ["A", "B", "C"]}


class Client:
    """A client that calls the methods of a space."""

    def __init__(self, stand: SpaceEngine, space: str) -> None:
        self.stand = stand
        self.space = space
        self.caller = Caller(stand.engine.connect(b"session %08d" % stand.count()))

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> Any:
            return self.stand.call(self, method, list(args))

        return call


class SpaceEngine:
    """An engine and its spaces."""

    def __init__(self) -> None:
        self.now = NOW
        self.engine = Engine(1, NOW, Outbox())
        self.context = CommandContext(self.engine, IdForms(NODE[:8], b"k" * 32), NODE, self._read, lambda length: None)
        self.spaces = XqueueSpaces(self.context)
        self._count = 0

    def _read(self, job: Job) -> bytes:
        """Read a body from disk. All bodies there are damaged."""
        raise DamagedJournal("segment-1 is damaged")

    def count(self) -> int:
        self._count += 1
        return self._count

    def upgrade(self, given: Any, name: str = "space") -> Client:
        """Make or change a space, and return a client of it."""
        self.spaces.upgrade(name.encode(), given, self.now)
        return Client(self, name)

    def space(self, name: str = "space") -> Space:
        found = self.spaces.find(name.encode())
        assert found is not None
        return found

    def call(self, client: Client, method: str, args: list[Any]) -> Any:
        """Return a single result as it is, none as None, several as a tuple, and a `Waits` if the call waits."""
        function = self.space(client.space).method(method)
        assert function is not None, f"there is no method {method}"
        outcome = function(client.caller, args, self.now, None)
        while isinstance(outcome, Steps):
            results = outcome.step(self.now)
            outcome = outcome if results is None else results
        check(self.engine)
        return outcome if isinstance(outcome, Waits) else one(outcome)

    def end(self, waits: Waits) -> Any:
        """Return the result of a call that waited, or "waiting" if it still waits."""
        self.engine.advance(self.now)
        return "waiting" if waits.wait.outcome == WAITING else one(waits.finish(waits.wait, self.now))

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1000)
        self.engine.advance(self.now)
        check(self.engine)

    def leave(self, client: Client) -> None:
        self.engine.disconnect(client.caller.connection, self.now)

    def transitions(self, name: str = "space") -> dict[str, int]:
        told: Any = self.call(Client(self, name), "stats", [])
        found: dict[str, int] = told["transition"]
        return found


def one(results: list[Any]) -> Any:
    return None if not results else results[0] if len(results) == 1 else tuple(results)


def refused(call: Any, *args: Any) -> str:
    """Return the text of the error that a call raises."""
    try:
        answer = call(*args)
    except XqueueError as error:
        return str(error)
    raise AssertionError(f"it was not refused, but answered {answer!r}")
