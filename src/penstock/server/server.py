"""A server: a node, its clients, its commands and its settings, as one object that starts and stops."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from penstock.core.errors import CommandError
from penstock.core.limits import NEVER, duration_ms
from penstock.core.policy import DISQUE
from penstock.core.tube import Tube
from penstock.dialects.disque import Disque
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.job_commands import JobCommands
from penstock.dialects.native.tube_commands import TubeCommands
from penstock.dialects.tarantool.queue15_functions import Queue15Functions
from penstock.dialects.xqueue.spaces import XqueueSpaces
from penstock.host.host import Host
from penstock.journal.identity import identity
from penstock.journal.maintenance.retention import Retention
from penstock.node.context import CommandContext
from penstock.node.dispatch import Dispatcher
from penstock.node.routing import Elsewhere, NeedsHome
from penstock.server.config.configuration import Config, ConfigError
from penstock.server.config.scrypt import read_hash
from penstock.server.config.words import to_bytes
from penstock.server.loop import TurnLoop
from penstock.server.metrics.loop_lag import LoopLag
from penstock.server.net.access import DEFAULT_USER, Accounts, chap_of
from penstock.server.net.clients import Clients, Limits
from penstock.server.net.connection import Connection
from penstock.server.net.descriptors import clients_that_fit, share
from penstock.server.net.logins import Logins
from penstock.server.net.tokens import Tokens
from penstock.server.peers.bus import OPENING_MAX, STRANGERS_MAX
from penstock.server.peers.membership import Membership
from penstock.server.trace_log import TraceLog
from penstock.wire.errors import Refused

# An argument may be a little longer than a body, so that every accepted body can be sent.
ENVELOPE_BYTES: Final = 64 * 1024

# A queue created by Disque's commands is dropped after it was empty and unused this long; sooner if memory is short.
_IDLE_MS: Final = 300_000
_IDLE_MS_SHORT: Final = 10_000
_IDLE_MS_VERY_SHORT: Final = 2_000

# This many queues are checked per second.
_IDLE_SCAN: Final = 1_000

# This many expired dedup ids of a queue are removed per second.
_FORGET_MAX: Final = 1_000

# A server without a journal starts to evict at this percentage of its memory.
_EVICT_PERCENT: Final = 95

# This many jobs are evicted at a time: less than a millisecond of work. Other commands run in between.
_EVICT_SLICE: Final = 250

# This many threads read the log. They are not the threads that sync it, so reads do not delay commits.
_READERS: Final = 2

LOG_LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}


@dataclass(frozen=True)
class Totals:
    """The traffic of clients."""

    accepted: int = 0  # Connections.
    rejected: int = 0
    received: int = 0  # Bytes.
    sent: int = 0


class Server:
    """A server: the objects that its commands use."""

    def __init__(self, config: Config, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.host = host
        self.loop = loop
        self.log = logging.getLogger("penstock")
        self.started = time.monotonic()
        self.run_id = secrets.token_hex(20)
        self.dispatcher = Dispatcher([], time.perf_counter_ns)
        self.turn_loop = TurnLoop(host, loop, self.dispatcher)
        self.turn = self.turn_loop.turn
        self.accounts = Accounts()
        self.tokens = Tokens(_token_secret(config, host), self.accounts)
        self.logins = Logins(self.turn, loop)
        self.clients = Clients(self.turn, self.accounts, Limits())
        self.context = CommandContext(host.engine, host.ids, host.node.encode(), host.body_of, host.make_room_now)
        self.context.leaving = host.is_leaving()
        self.membership = Membership(config, host, self.turn, loop)
        self.context.cluster = self.membership.cluster
        self.disque = Disque(self.context)
        self.native = DeliveryCommands(self.context)
        self.jobs = JobCommands(self.native)
        self.tubes = TubeCommands(self.context)
        self.queue15 = Queue15Functions(self.context)
        self.spaces = XqueueSpaces(self.context)
        self.warnings: list[str] = []  # Logged for the operator when the server has started.
        self.trace_log = TraceLog(config.within_dir(config.trace_log), host.node) if config.trace_log else None
        self.readers = ThreadPoolExecutor(_READERS, "penstock-history")
        self.rewriting = False
        self.last_rewrite_s = -1
        self.last_rewrite_ok = True
        self.stopping: asyncio.Future[None] = loop.create_future()
        self.restart_s = -1.0  # Seconds from the shutdown to the restart; negative for no restart.
        self.loop_lag = LoopLag(loop)
        self._before_reset = Totals()
        self._spaces_left: dict[str, None] = {}  # Configured spaces whose names other nodes are being asked about.
        self._idle_cursor = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def node_id(self) -> str:
        """Return the id of this node: 40 hex digits."""
        return self.host.node

    # Settings

    def apply_all(self) -> None:
        """Apply all settings. This happens before any client is served."""
        self._add_users()
        names = ("requirepass", "max_memory", "slowlog_log_slower_than", "loglevel", "queue15_pri_mode", "linger")
        for name in (*names, "queue_in_replicaset"):
            self.apply(name)
        for old, new in self.config.rename_command.items():
            command = self.dispatcher.remove(to_bytes(old))
            why = f"there is no command {old}" if command is None else ""
            if to_bytes(new) in self.dispatcher.commands:
                why = f"there is a command {new} already"
            if command is None or why:
                raise ConfigError(f"{self.config.origin('rename_command')}: rename-command: {why}")
            if new:
                self.dispatcher.add(command, to_bytes(new))

    def warn(self, text: str) -> None:
        """Log a warning."""
        self.log.warning("%s", text)

    def _add_users(self) -> None:
        """Add the configured users. This happens only at the start, so that tubes which are granted later are kept."""
        for user in self.config.users.values():
            digest = user.password_sha256 or hashlib.sha256(to_bytes(user.password)).hexdigest()
            secret = read_hash(user.password_scrypt) or bytes.fromhex(digest)
            chap = chap_of(to_bytes(user.password)) if user.password else b""
            self.accounts.add(user.name, secret, user.commands, user.tubes, chap)

    def make_spaces(self) -> None:
        """Create or change the configured xqueue spaces."""
        with self.host.lock, self.host:
            for name in self.config.xqueue:
                try:
                    self._make_space(name)
                except CommandError as error:
                    raise ConfigError(f"{self.config.origin('xqueue')}: space {name}: {error}") from None

    def make_spaces_left(self) -> None:
        """Create the configured xqueue spaces that wait for answers of other nodes."""
        if self._spaces_left:
            self.turn.begin()
            for name in list(self._spaces_left):
                try:
                    self._make_space(name)
                except CommandError as error:
                    del self._spaces_left[name]
                    self.log.error("configured xqueue space not created: space=%s error=%s", name, error)

    def _make_space(self, name: str) -> None:
        now = self.host.now()
        try:
            # Fields can be added while the server runs. It must start again although its configuration lacks them.
            upgrade = self.spaces.upgrade(to_bytes(name), self.config.xqueue[name], now, accept_earlier=True)
            for option, (before, after) in upgrade.changed.items():
                self.log.info("xqueue space changed: space=%s option=%s from=%s to=%s", name, option, before, after)
            if upgrade.missing:
                fields = ", ".join(upgrade.missing)
                self.log.warning("configured xqueue space has more fields: space=%s add_to_format=%s", name, fields)
        except NeedsHome as unclaimed:
            self._spaces_left[name] = None
            self.membership.cluster.elections.start(unclaimed.tube, now)
            return
        except Elsewhere as there:
            self.log.info("configured xqueue space is on another node: space=%s node=%s", name, there.node.decode())
        self._spaces_left.pop(name, None)

    def apply(self, name: str, by: Connection | None = None) -> None:
        """Apply a changed setting. `by` is the client that changed it, or None."""
        config = self.config
        if name == "requirepass":
            # If `default` is a configured user, it has a password of its own.
            if DEFAULT_USER not in config.users:
                self.accounts.set_password(config.requirepass)
                self.clients.close_outdated(by)
        elif name == "max_memory":
            self.host.engine.memory_max = config.max_memory or NEVER
        elif name == "max_clients":
            fit = clients_that_fit(config.max_clients)
            if fit < config.max_clients:
                raise Refused(
                    b"ERR The operating system is not able to handle the specified number of clients, try with %d" % fit
                )
        elif name == "queue_in_replicaset":
            self.context.in_replicaset = config.queue_in_replicaset
        elif name == "session_grace":
            self.host.engine.session_grace_ms = int(config.session_grace * 1000)
        elif name == "queue15_pri_mode":
            self.queue15.pri_is_offset = config.queue15_pri_mode == "offset"
        elif name == "linger":
            self.turn_loop.linger.linger_ns = 1_000 * config.linger
        elif name == "fsync":
            self.host.set_fsync(config.fsync)
        elif name == "journal":
            self._keep_journal(config.journal)
        elif name in ("slowlog_log_slower_than", "latency_monitor_threshold"):
            slow_us = [config.slowlog_log_slower_than, config.latency_monitor_threshold * 1000 or -1]
            # The trace log needs the durations of all commands.
            slow_us += [0] if self.trace_log is not None else []
            self.dispatcher.slow_ns = min((us * 1000 for us in slow_us if us >= 0), default=-1)
        elif name == "loglevel":
            self.log.setLevel(LOG_LEVELS[config.loglevel])
        self._limit_clients()
        self.membership.apply()

    def rewrite_config(self) -> None:
        """Write the changed settings to the configuration file."""
        try:
            self.config.rewrite()
        except (ConfigError, OSError) as error:
            raise Refused(b"ERR Rewriting config file: " + to_bytes(str(error))) from None

    def _limit_clients(self) -> None:
        config, limits = self.config, self.clients.limits
        # More clients would leave no descriptor for the journal.
        limits.clients = clients_that_fit(config.max_clients)
        bus = self.membership.bus
        bus.opening_max, bus.strangers_max = share(OPENING_MAX), share(STRANGERS_MAX)
        self.clients.limit_bulks(config.max_body + ENVELOPE_BYTES)
        limits.buffer_max = config.max_query_buffer
        limits.output_hard, limits.output_soft, limits.output_soft_s = config.output_limit
        limits.progress_s = config.progress_timeout
        limits.auth_s = config.auth_timeout
        limits.idle_s = config.timeout
        limits.keepalive_s = config.tcp_keepalive
        limits.protected = config.protected_mode
        limits.buffers_max = config.max_memory // 4
        self.host.engine.body_bytes_max = self.dispatcher.body_bytes_max = config.max_body

    def _keep_journal(self, wanted: bool) -> None:
        """Start or stop the journal. All clients wait until this is done."""
        if wanted and self.host.journal is None:
            self.start_journal()
        elif not wanted and self.host.journal is not None:
            self.host.stop_journal()
            self.turn.log = None

    def start_journal(self) -> None:
        """Start a journal that begins with the present jobs."""
        config = self.config
        retention = Retention(config.history_bytes, duration_ms(config.history, "history"), config.history_bodies)
        self.host.start_journal(config.fsync, retention)
        self.turn.log = self.host.log

    def totals(self) -> Totals:
        """Return the traffic of clients since the start."""
        before, clients, turn = self._before_reset, self.clients, self.turn
        return Totals(
            before.accepted + clients.accepted,
            before.rejected + clients.rejected,
            before.received + int(turn.bytes_in),
            before.sent + int(turn.bytes_out),
        )

    def reset_statistics(self) -> None:
        """Set the counters of INFO to 0. Those of /metrics never decrease."""
        clients, turn, dispatcher = self.clients, self.turn, self.dispatcher
        self._before_reset = self.totals()
        clients.accepted = clients.rejected = 0
        turn.bytes_in = turn.bytes_out = 0
        dispatcher.executed = 0
        for command in dispatcher.commands.values():
            command.calls = command.ns = 0

    def set_leaving(self, leaving: bool) -> None:
        """Set whether this node is about to leave the cluster. The value survives a restart."""
        self.host.set_leaving(leaving)
        self.context.leaving = leaving
        self.membership.set_leaving(leaving)
        if leaving:
            for connection in self.clients:
                self.turn.end_waits(connection, self.context.leaving_error(connection).line)

    # Housekeeping

    def drop_idle_queues(self) -> None:
        """Drop some idle queues that clients created by using them. If memory is short, drop them sooner."""
        engine = self.turn.engine
        idle_ms = _IDLE_MS
        if self._uses_more_than(75):
            idle_ms = _IDLE_MS_VERY_SHORT if self._uses_more_than(95) else _IDLE_MS_SHORT
        self.turn.begin()
        tubes, self._idle_cursor = engine.scan_tubes(self._idle_cursor, _IDLE_SCAN)
        for tube in tubes:
            if tube.dedups is not None:
                # Only puts remove expired ids, and an unused queue gets none.
                tube.dedups.expire(self.turn.now, _FORGET_MAX)
            if tube.used + idle_ms <= self.turn.now and _is_idle(tube):
                engine.drop_if_empty(tube, self.turn.now)

    def used_memory(self) -> int:
        """Return how many bytes the jobs and queues use, in the way that `maxmemory` counts them."""
        return int(self.turn.engine.memory_used())

    def _uses_more_than(self, percent: int) -> bool:
        limit = self.config.max_memory
        return bool(limit) and self.used_memory() > limit * percent // 100

    def evict(self) -> bool:
        """If memory is almost full, free some. Return whether some was freed, but not enough."""
        if not self._uses_more_than(_EVICT_PERCENT):
            return False
        self.turn.begin()
        return self.evict_some(_EVICT_PERCENT) and self._uses_more_than(_EVICT_PERCENT)

    def evict_some(self, percent: int = 0) -> bool:
        """If there is no journal, free memory by deleting some jobs or acks. Return whether there were any to delete.

        Jobs with RETRY 0 that were delivered are deleted, the oldest delivery first, until at most `percent` of the
        memory is used. If there are none, acks are deleted. A put calls this before it is refused for lack of memory.
        """
        if self.host.journal is not None or self.config.max_memory_policy != "acks":
            return False
        engine, cluster = self.turn.engine, self.membership.cluster
        # Jobs that are being handed over to another node may still be delivered there.
        handed = cluster.handovers.by_job
        jobs = list(islice((job for job in engine.delivered_once.values() if job.id not in handed), _EVICT_SLICE))
        for job in jobs:
            if not self._uses_more_than(percent):
                break
            engine.delete(job, self.turn.now)
        return bool(jobs) or cluster.acks.evict(_EVICT_SLICE, self.turn.now) > 0

    def rewrite_in_background(self) -> None:
        """Start a snapshot in the background, so that older rows of the log can be removed."""
        task = self.loop.create_task(self._rewrite())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rewrite(self) -> None:
        self.rewriting, began = True, time.monotonic()
        try:
            if self.host.journal is not None:
                await self.loop.run_in_executor(None, self.host.journal.take_snapshot)
            self.last_rewrite_ok = True
        except (CommandError, OSError) as error:
            self.last_rewrite_ok = False
            if not self.stopping.done():
                self.log.warning("snapshot failed, so the journal was not shortened: error=%s", error)
        finally:
            self.rewriting = False
            self.last_rewrite_s = int(time.monotonic() - began)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an unexpected exception of the event loop."""
        self.dispatcher.internal_errors += 1
        self.log.error("internal error; please report it: %s", context["message"], exc_info=context.get("exception"))

    # Stopping

    def stop(self) -> None:
        if not self.stopping.done():
            self.stopping.set_result(None)

    def keep_memory(self) -> None:
        """If there is no journal, write all jobs to disk for the next start."""
        if self.host.journal is None:
            self.start_journal()

    def step_down(self, epoch: int) -> None:
        """Stop serving and restart as a new node, because another process has replaced this node in `epoch`."""
        self.log.warning("node replaced, so it stops serving and restarts as a new node: epoch=%d", epoch)
        self.turn.pause_clients(NEVER)
        for client in list(self.clients):
            client.abort()
        if self.host.journal is None:
            self.keep_memory()
        self.host.set_superseded(epoch)
        self.restart_s = 0.0
        self.stop()

    def restart(self, crash: bool, delay_s: float) -> None:
        """Restart the server in this process after `delay_s` seconds. If `crash` is set, do not shut it down first."""
        if crash:
            time.sleep(delay_s)
            start_again()
        if self.config.file is not None:
            self.rewrite_config()
        self.restart_s = delay_s
        self.stop()


def _token_secret(config: Config, host: Host) -> bytes:
    """Return the secret that tokens are signed with: all nodes of a cluster must have the same one."""
    if config.cluster_secret:
        return to_bytes(config.cluster_secret)
    return secrets.token_bytes(32) if host.disk is None else identity(host.disk).key


def start_again() -> None:
    """Replace this process by a new run of the program. The system closes all its files, sockets and locks."""
    os.execv(sys.executable, sys.orig_argv)


def _is_idle(tube: Tube) -> bool:
    """Return whether an implicitly created queue is empty, and no client waits for it."""
    return tube.policy == DISQUE and not (
        tube.total()
        or tube.take_line.length
        or tube.put_line.length
        or tube.paused_in
        or tube.paused_out
        or tube.dedups
    )
