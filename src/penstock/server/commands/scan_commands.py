"""QSCAN, JSCAN and QPEEK."""

from __future__ import annotations

from penstock.dialects.disque import require_integer
from penstock.dialects.disque_scans import JobScan, PeekNewest, QueueScan, parse_query
from penstock.node.caller import check_tube
from penstock.server.net.connection import Connection
from penstock.server.server import Server


class ScanCommands:
    """The QSCAN, JSCAN and QPEEK commands."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def qscan(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]: list queues."""
        query = parse_query(args, jobs=False)
        self._server.context.run_sliced(caller, QueueScan(self._server.turn.engine, self._server.disque, query), now)

    def jscan(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE q] [STATE s ...] [REPLY all|id]: list jobs."""
        query = parse_query(args, jobs=True)
        if query.queue is not None:
            check_tube(caller, query.queue)
            self._seek(query.queue)
        self._server.context.run_sliced(caller, JobScan(self._server.turn.engine, self._server.disque, query), now)

    def qpeek(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run QPEEK queue count: reply with the oldest jobs of a queue, or with the newest if `count` is negative."""
        count = require_integer(args[2])
        check_tube(caller, args[1])
        self._seek(args[1])
        if count < 0:
            self._server.context.run_sliced(
                caller, PeekNewest(self._server.turn.engine, self._server.disque, args[1], -count), now
            )
        else:
            self._server.disque.peek_oldest(caller, args[1], count, now)

    def _seek(self, queue: bytes) -> None:
        """Raise Elsewhere if a queue is on another node, so that the command is forwarded."""
        if queue not in self._server.turn.engine.tubes:
            self._server.context.raise_if_elsewhere([queue])
