"""An engine with all RESP commands and one client, to test commands without a server."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, cast

from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.outbox import Outbox
from penstock.core.tube import Tube
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.dialects.disque import Disque
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.job_commands import JobCommands
from penstock.dialects.native.tube_commands import TubeCommands
from penstock.node.caller import WRITE, Caller, SlicedCommand
from penstock.node.context import CommandContext
from penstock.node.dispatch import Command, Dispatcher
from penstock.server.commands.command_table import commands_of
from penstock.server.commands.native_table import native_rows

if TYPE_CHECKING:
    from penstock.server.server import Server

NODE = b"0123456789abcdef0123456789abcdef01234567"
NOW = 1_000_000


class Log(Outbox):
    """Records the tubes that were made (+) and dropped (-)."""

    def __init__(self) -> None:
        super().__init__()
        self.tube_changes: list[bytes] = []

    def tube_made(self, tube: Tube, now: int) -> None:
        self.tube_changes.append(b"+" + tube.name)

    def tube_dropped(self, tube: Tube, now: int) -> None:
        self.tube_changes.append(b"-" + tube.name)


class CommandEngine:
    """An engine and a client of it."""

    def __init__(self) -> None:
        self.log = Log()
        self.engine = Engine(1, NOW, self.log)
        self.now = NOW
        self.asked_for = 0  # The room in the log that a command asked for last, in bytes.
        self.slices = 0  # The number of slices that commands continued in.
        ids = IdForms(NODE[:8], b"k" * 32)
        self.context = CommandContext(self.engine, ids, NODE, lambda job: b"", self._make_room)
        self.context.continue_sliced = self._start_long
        self.disque = Disque(self.context)
        self.native = DeliveryCommands(self.context)
        self.jobs = JobCommands(self.native)
        self.tubes = TubeCommands(self.context)
        self.long: SlicedCommand | None = None  # The command that runs in slices.
        names = ["addjob", "getjob", "pause", "ackjob", "deljob", "nack", "enqueue", "dequeue"]
        commands = [Command(name, -1, "", WRITE, "", "", getattr(self.disque, name)) for name in names]
        self.dispatcher = Dispatcher(commands + commands_of(native_rows(cast("Server", self))), lambda: 0)
        self.caller = Caller(self.engine.connect(b"token"))

    def _make_room(self, length: int) -> None:
        self.asked_for = length

    def _start_long(self, caller: Caller, long: SlicedCommand) -> None:
        self.long = long

    def another(self, *tubes: bytes) -> Caller:
        """Return another client. If tubes are named, it may use only these."""
        caller = Caller(self.engine.connect(b"token %d" % len(self.engine.sessions)))
        caller.restrict(TubePatterns(list(tubes)) if tubes else EVERY_TUBE)
        return caller

    def ask(self, *words: bytes, caller: Caller | None = None) -> bytes:
        """Return the immediate reply of a command."""
        caller = caller or self.caller
        self.dispatcher.run_all(caller, [list(words)], 0, self.now)
        return caller.reply.take()

    def call(self, *words: bytes | str | int, caller: Caller | None = None) -> Any:
        """Return the reply of a native command after all of its slices, with maps as dicts."""
        caller = caller or self.caller
        caller.reply.resp3 = True
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        answer = self.ask(*encoded, caller=caller)
        while self.long is not None:
            self.slices += 1
            long, self.long = self.long, None
            if not self.dispatcher.step(caller, long, self.now):
                self.long = long
            answer += caller.reply.take()
        return decoded(answer)

    def pass_ms(self, ms: int) -> None:
        """Let time pass, and answer the clients whose waits ended."""
        self.now += ms
        self.engine.advance(self.now)
        self.serve()

    def serve(self) -> None:
        """Answer the clients whose waits ended."""
        for wait in self.log.ended_waits:
            self.dispatcher.end_wait(cast(Caller, wait.tag), wait, self.now)
        self.log.ended_waits.clear()

    def reply_of(self, caller: Caller) -> Any:
        """Return the reply to a client that waited, or None if it has none yet."""
        self.serve()
        answer = caller.reply.take()
        return decoded(answer) if answer else None


def decoded(answer: bytes) -> Any:
    """Return the value of a reply. An error becomes its line as text."""
    return _decode(io.BytesIO(answer))


def _decode(file: io.BytesIO) -> Any:
    line = file.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return rest.decode()
    if kind == b"_":
        return None
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return file.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_decode(file) for _ in range(int(rest))]
    if kind == b"%":
        return {_decode(file).decode(): _decode(file) for _ in range(int(rest))}
    assert kind == b"+", line
    return rest
