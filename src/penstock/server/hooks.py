"""The hooks of a server: all calls from the node, the loop, the host and the bus back to the server are set here."""

from __future__ import annotations

from collections.abc import Callable

from penstock.node.caller import Caller
from penstock.node.client import Client
from penstock.server.commands.slowlog_commands import Latency, Slowlog
from penstock.server.loop import LoopHooks, TurnLoop
from penstock.server.server import Server


class ServerHooks(LoopHooks):
    """Shows commands to MONITOR, records slow commands, traced puts and syncs, and frees memory."""

    def __init__(
        self, server: Server, show: Callable[[Client, list[bytes]], None], slowlog: Slowlog, latency: Latency
    ) -> None:
        super().__init__(server.turn_loop)
        self._server = server
        self._show = show
        self._slowlog = slowlog
        self._latency = latency

    def command_runs(self, caller: Caller, args: list[bytes]) -> None:
        assert isinstance(caller, Client)
        self._show(caller, args)

    def record_slow(self, caller: Caller, args: list[bytes], ns: int) -> None:
        assert isinstance(caller, Client)
        self._slowlog.add(caller, args, ns)
        command = self._server.dispatcher.find(args[0])
        traces = self._server.trace_log
        if traces is not None and command is not None:
            traces.add(command.name, args, caller.address, ns)
        self._latency.add(b"fast-command" if command and "F" in command.flags else b"command", ns // 1_000_000)

    def evict(self) -> bool:
        return self._server.evict_some()

    def synced(self, seconds: float) -> None:
        self._latency.add(b"aof-fsync-always", int(seconds * 1000))


def connect_server(server: Server, hooks: ServerHooks) -> None:
    """Set all hooks of a server."""
    connect_loop(server.turn_loop, hooks)
    server.context.continue_sliced = server.turn.start_long
    server.context.ignored.warn = server.warn
    server.membership.bus.on_superseded = server.step_down


def connect_loop(loop: TurnLoop, hooks: LoopHooks) -> None:
    """Set the hooks of a loop and of its host and dispatcher."""
    loop.hooks = loop.turn.dispatcher.hooks = hooks
    loop.host.on_failure = loop.on_failure
    loop.host.on_ended_waits = loop.on_ended_waits
