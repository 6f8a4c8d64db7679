"""SLOWLOG and LATENCY: slow commands and latency spikes."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from penstock.dialects.disque import require_integer
from penstock.node.client import Client
from penstock.server.commands.client_commands import redacted
from penstock.server.net.connection import Connection
from penstock.server.server import Server
from penstock.wire.errors import SYNTAX, Refused

# This many samples of an event are kept.
_SAMPLES_MAX: Final = 160


class Slowlog:
    """The SLOWLOG commands, and the last slow commands, newest first."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._entries: deque[tuple[int, int, int, list[bytes]]] = deque()
        self._number = 0

    def add(self, caller: Client, args: list[bytes], ns: int) -> None:
        """Record a command that took `ns` nanoseconds, if that is above the threshold."""
        if not 0 <= self._server.config.slowlog_log_slower_than * 1000 <= ns:
            return
        kept = redacted(self._server.dispatcher, args)
        self._entries.appendleft((self._number, int(time.time()), ns // 1000, kept))
        self._number += 1
        while len(self._entries) > self._server.config.slowlog_max_len:
            self._entries.pop()

    def slowlog(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run SLOWLOG GET [count] | LEN | RESET: show, count or drop the slow commands."""
        word, reply = args[1].upper(), caller.reply
        if word == b"GET" and len(args) <= 3:
            count = require_integer(args[2]) if len(args) == 3 else 10
            entries = list(self._entries)[: count if count >= 0 else None]
            reply.array(len(entries))
            for number, when, us, words in entries:
                reply.array(4)
                for value in (number, when, us):
                    reply.integer(value)
                reply.bulks(words)
        elif word == b"LEN" and len(args) == 2:
            reply.integer(len(self._entries))
        elif word == b"RESET" and len(args) == 2:
            self._entries.clear()
            reply.ok()
        else:
            raise Refused(b"ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.")


class Latency:
    """The LATENCY commands, and latency spikes by event.

    A spike is an operation that kept the event loop from serving other clients.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: dict[bytes, deque[tuple[int, int]]] = {}
        self._worst: dict[bytes, int] = {}

    def add(self, event: bytes, ms: int) -> None:
        """Record that an event took `ms` milliseconds, unless this is below the threshold.

        For each second, only the longest event is kept.
        """
        threshold = self._server.config.latency_monitor_threshold
        if threshold == 0 or ms < threshold:
            return
        when = int(time.time())
        samples = self._samples.setdefault(event, deque(maxlen=_SAMPLES_MAX))
        if samples and samples[-1][0] == when:
            ms = max(ms, samples.pop()[1])
        samples.append((when, ms))
        self._worst[event] = max(ms, self._worst.get(event, 0))

    def latency(self, caller: Connection, args: list[bytes], now: int) -> None:
        """Run LATENCY HISTORY event | LATEST | RESET [event ...] | GRAPH event | DOCTOR."""
        word, reply = args[1].upper(), caller.reply
        if word == b"HISTORY" and len(args) == 3:
            samples = self._samples.get(args[2], deque())
            reply.array(len(samples))
            for when, ms in samples:
                reply.array(2)
                reply.integer(when)
                reply.integer(ms)
        elif word == b"LATEST" and len(args) == 2:
            reply.array(len(self._samples))
            for event, samples in self._samples.items():
                reply.array(4)
                reply.bulk(event)
                for value in (*samples[-1], self._worst[event]):
                    reply.integer(value)
        elif word == b"RESET":
            events = [event for event in dict.fromkeys(args[2:] or self._samples) if event in self._samples]
            for event in events:
                del self._samples[event], self._worst[event]
            reply.integer(len(events))
        elif word == b"GRAPH" and len(args) == 3:
            if args[2] not in self._samples:
                raise Refused(b"ERR No samples available for event '" + args[2][:64] + b"'")
            reply.bulk(self._graph(args[2]))
        elif word == b"DOCTOR" and len(args) == 2:
            reply.bulk(self._advice().encode())
        else:
            raise Refused(SYNTAX)

    def _graph(self, event: bytes) -> bytes:
        """Return a text chart with a bar for each sample of an event, oldest first."""
        samples, now = self._samples[event], int(time.time())
        worst = max(ms for _, ms in samples)
        lines = [f"{event.decode()} - high {worst} ms, all time high {self._worst[event]} ms"]
        for when, ms in samples:
            lines.append(f"{now - when:6d}s ago {'#' * max(1, 40 * ms // max(worst, 1))} {ms} ms")
        return ("\n".join(lines) + "\n").encode()

    def _advice(self) -> str:
        if self._server.config.latency_monitor_threshold == 0:
            return "Latency monitoring is off. Set latency-monitor-threshold to the least milliseconds to record.\n"
        if not self._samples:
            return "No latency spike was seen since latency-monitor-threshold was set.\n"
        lines = []
        for event, samples in self._samples.items():
            mean = sum(ms for _, ms in samples) // len(samples)
            lines.append(
                f"{event.decode()}: {len(samples)} spikes, {mean} ms on average, {self._worst[event]} ms at worst."
            )
        if b"aof-fsync-always" in self._samples:
            lines.append(
                "The disk is slow to sync: use a faster one, or `appendfsync everysec` if a second may be lost."
            )
        if b"command" in self._samples or b"fast-command" in self._samples:
            lines.append("Some commands are slow: see SLOWLOG GET.")
        return "\n".join(lines) + "\n"
