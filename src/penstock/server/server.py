"""A server: a node, its clients, and what it was told, as one thing that starts and stops."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

from penstock.core.errors import CommandError
from penstock.core.limits import NEVER, duration_ms
from penstock.core.policy import DISQUE
from penstock.core.tube import Tube
from penstock.dialects.command import Desk
from penstock.dialects.disque import Disque
from penstock.dialects.jobs import Jobs
from penstock.dialects.native import Native
from penstock.dialects.site import Site
from penstock.dialects.tarantool15 import Queue15
from penstock.dialects.tubes import Tubes
from penstock.dialects.xqueue_spaces import Spaces
from penstock.host.host import Host
from penstock.journal.retention import Retention
from penstock.server.access import DEFAULT_USER, Accounts, chap_of
from penstock.server.bus import OPENING_MAX, STRANGERS_MAX
from penstock.server.clients import Clients, Limits
from penstock.server.config import Config, ConfigError
from penstock.server.connection import Connection
from penstock.server.descriptors import clients_that_fit, share
from penstock.server.logins import Logins
from penstock.server.membership import Membership
from penstock.server.node import Node
from penstock.server.words import to_bytes
from penstock.wire.errors import Elsewhere, Refused, Unclaimed

# An argument may be as long as a body, and a little more: what is accepted can be sent.
ENVELOPE_BYTES: Final = 64 * 1024

# A queue that Disque's commands made goes when it has been empty and unused for so long; sooner when memory is short.
_IDLE_MS: Final = 300_000
_IDLE_MS_SHORT: Final = 10_000
_IDLE_MS_VERY_SHORT: Final = 2_000

# How many queues are looked at in a second.
_IDLE_SCAN: Final = 1_000

# How many dedup ids that are too old are forgotten in a second, of a queue.
_FORGET_MAX: Final = 1_000

# From which part of its memory on a server without a journal evicts, percent.
_EVICT_PERCENT: Final = 95

# How many jobs are evicted at a time: less than a millisecond's work. Others are served before it goes on.
_EVICT_SLICE: Final = 250

# How many threads read the log. Not those that sync it: whoever reads must not hold up whoever commits.
_READERS: Final = 2

# Longer than it takes to stop.
_FOR_EVER_S: Final = 3_600.0

LOG_LEVELS: Final = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}


class Server:
    """Everything that the commands of a server work on."""

    def __init__(self, config: Config, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.host = host
        self.loop = loop
        self.log = logging.getLogger("penstock")
        self.started = time.monotonic()
        self.run_id = secrets.token_hex(20)
        self.node = Node(host, loop)
        self.accounts = Accounts()
        self.logins = Logins(self.node)
        self.clients = Clients(self.node, self.accounts, Limits())
        self.site = Site(host.engine, host.ids, host.node.encode(), host.body_of, host.make_room_now)
        self.site.leaving = host.is_leaving()
        self.site.start_long = self.node.start_long
        self.site.ignored.warn = self._warn
        self.membership = Membership(config, host, self.node)
        self.site.cluster = self.membership.cluster
        self.membership.bus.on_superseded = self._step_down
        self.disque = Disque(self.site)
        self.native = Native(self.site)
        self.jobs = Jobs(self.native)
        self.tubes = Tubes(self.site)
        self.queue15 = Queue15(self.site)
        self.spaces = Spaces(self.site)
        self.desk = Desk([], time.perf_counter_ns)
        self.desk.on_error = self.node.report
        self.desk.ask_others = self.site.ask_others
        self.desk.evict = self.evict_some
        self.node.desk = self.desk
        self.warnings: list[str] = []  # What its operator should hear of once it serves.
        self.readers = ThreadPoolExecutor(_READERS, "penstock-history")
        self.rewriting = False
        self.last_rewrite_s = -1
        self.last_rewrite_ok = True
        self.stopping: asyncio.Future[None] = loop.create_future()
        self.restart_s = -1.0  # When to start again, once it has stopped; negative for not at all.
        self._spaces_left: dict[str, None] = {}  # Spaces of the configuration that other nodes are asked about.
        self._idle_cursor = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def node_id(self) -> str:
        """Who this node is: 40 hex digits."""
        return self.host.node

    # Settings

    def apply_all(self) -> None:
        """Let every setting take effect, before anybody is served."""
        self._add_users()
        names = ("requirepass", "max_memory", "slowlog_log_slower_than", "loglevel", "queue15_pri_mode", "linger")
        for name in (*names, "queue_in_replicaset"):
            self.apply(name)
        for old, new in self.config.rename_command.items():
            command = self.desk.remove(to_bytes(old))
            why = f"there is no command {old}" if command is None else ""
            if to_bytes(new) in self.desk.commands:
                why = f"there is a command {new} already"
            if command is None or why:
                raise ConfigError(f"{self.config.origin('rename_command')}: rename-command: {why}")
            if new:
                self.desk.add(command, to_bytes(new))

    def _warn(self, text: str) -> None:
        self.log.warning("%s", text)

    def _add_users(self) -> None:
        """Let the users of the configuration in. Once: what they are granted later is theirs until the server ends."""
        for user in self.config.users.values():
            secret = user.password_sha256 or hashlib.sha256(to_bytes(user.password)).hexdigest()
            chap = chap_of(to_bytes(user.password)) if user.password else b""
            self.accounts.add(user.name, bytes.fromhex(secret), user.commands, user.tubes, chap)

    def make_spaces(self) -> None:
        """Let the spaces of the configuration be as it says."""
        with self.host.lock, self.host:
            for name in self.config.xqueue:
                try:
                    self._make_space(name)
                except CommandError as error:
                    raise ConfigError(f"{self.config.origin('xqueue')}: space {name}: {error}") from None

    def make_spaces_left(self) -> None:
        """Make spaces of the configuration that other nodes had to be asked about."""
        if self._spaces_left:
            self.node.begin_turn()
            for name in list(self._spaces_left):
                try:
                    self._make_space(name)
                except CommandError as error:
                    del self._spaces_left[name]
                    self.log.error("space %s of the configuration cannot be made: %s", name, error)

    def _make_space(self, name: str) -> None:
        now = self.host.now()
        try:
            upgrade = self.spaces.upgrade(to_bytes(name), self.config.xqueue[name], now)
            for option, (before, after) in upgrade.changed.items():
                self.log.info("xqueue space changed: space=%s option=%s from=%s to=%s", name, option, before, after)
        except Unclaimed as unclaimed:
            self._spaces_left[name] = None
            self.membership.cluster.founding.begin(unclaimed.tube, now)
            return
        except Elsewhere as there:
            self.log.info("space %s of the configuration lives on node %s", name, there.node.decode())
        self._spaces_left.pop(name, None)

    def apply(self, name: str, by: Connection | None = None) -> None:
        """Let a setting take effect that was changed, perhaps by a client."""
        config = self.config
        if name == "requirepass":
            # One that is among the users has a password of its own.
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
            self.site.in_replicaset = config.queue_in_replicaset
        elif name == "session_grace":
            self.host.engine.session_grace_ms = int(config.session_grace * 1000)
        elif name == "queue15_pri_mode":
            self.queue15.pri_is_offset = config.queue15_pri_mode == "offset"
        elif name == "linger":
            self.node.linger.moment_ns = 1_000 * config.linger
        elif name == "fsync":
            self.host.set_fsync(config.fsync)
        elif name == "journal":
            self._keep_journal(config.journal)
        elif name in ("slowlog_log_slower_than", "latency_monitor_threshold"):
            slow_us = [config.slowlog_log_slower_than, config.latency_monitor_threshold * 1000 or -1]
            self.desk.slow_ns = min((us * 1000 for us in slow_us if us >= 0), default=-1)
        elif name == "loglevel":
            self.log.setLevel(LOG_LEVELS[config.loglevel])
        self._limit_clients()
        self.membership.apply()

    def rewrite_config(self) -> None:
        """Let the file of the configuration say what was changed."""
        try:
            self.config.rewrite()
        except (ConfigError, OSError) as error:
            raise Refused(b"ERR Rewriting config file: " + to_bytes(str(error))) from None

    def _limit_clients(self) -> None:
        config, limits = self.config, self.clients.limits
        # More would leave no file for the journal.
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
        self.host.engine.body_bytes_max = self.desk.body_bytes_max = config.max_body

    def _keep_journal(self, wanted: bool) -> None:
        """Begin or end to keep a journal, while everybody waits."""
        if wanted and self.host.journal is None:
            self.start_journal()
        elif not wanted and self.host.journal is not None:
            self.host.stop_journal()

    def start_journal(self) -> None:
        """Begin to keep a journal of what there is."""
        config = self.config
        retention = Retention(config.history_bytes, duration_ms(config.history, "history"), config.history_bodies)
        self.host.start_journal(config.fsync, retention)

    def reset_statistics(self) -> None:
        """Begin to count anew."""
        clients, node, desk = self.clients, self.node, self.desk
        clients.accepted = clients.rejected = 0
        node.bytes_in = node.bytes_out = 0
        desk.executed = 0
        for command in desk.commands.values():
            command.calls = command.ns = 0

    def set_leaving(self, leaving: bool) -> None:
        """Say that this node is about to leave, or not; that survives a restart."""
        self.host.set_leaving(leaving)
        self.site.leaving = leaving
        self.membership.set_leaving(leaving)
        if leaving:
            for connection in self.clients:
                self.node.end_waits(connection, self.site.leaves(connection).line)

    # Housekeeping

    def drop_idle_queues(self) -> None:
        """Drop some of the queues that came by themselves and that nobody uses any more; sooner, if memory is short."""
        engine = self.node.engine
        idle_ms = _IDLE_MS
        if self._uses_more_than(75):
            idle_ms = _IDLE_MS_VERY_SHORT if self._uses_more_than(95) else _IDLE_MS_SHORT
        self.node.begin_turn()
        tubes, self._idle_cursor = engine.scan_tubes(self._idle_cursor, _IDLE_SCAN)
        for tube in tubes:
            if tube.dedups is not None:
                # Where nobody puts any more, nobody else does.
                tube.dedups.forget(self.node.now, _FORGET_MAX)
            if tube.used + idle_ms <= self.node.now and _is_idle(tube):
                engine.drop_if_empty(tube, self.node.now)

    def used_memory(self) -> int:
        """How many bytes the jobs and queues take, as `maxmemory` counts them."""
        return int(self.node.engine.memory_used())

    def _uses_more_than(self, percent: int) -> bool:
        limit = self.config.max_memory
        return bool(limit) and self.used_memory() > limit * percent // 100

    def evict(self) -> bool:
        """Free memory if there is little left; return whether that helped and there is more to do."""
        if not self._uses_more_than(_EVICT_PERCENT):
            return False
        self.node.begin_turn()
        return self.evict_some(_EVICT_PERCENT) and self._uses_more_than(_EVICT_PERCENT)

    def evict_some(self, percent: int = 0) -> bool:
        """Without a journal, delete some jobs or acks that nothing can come of any more; return whether there were any.

        Stop where no more than `percent` of the memory is used. The candidates are delivered
        jobs of RETRY 0, the oldest delivery first, and then acks. A put for which there is no memory calls this, so it
        is not refused while there is such a job.
        """
        if self.host.journal is not None or self.config.max_memory_policy != "acks":
            return False
        engine, cluster = self.node.engine, self.membership.cluster
        # Jobs that are being handed over to another node may still be delivered there.
        handed = cluster.handovers.by_job
        jobs = list(islice((job for job in engine.delivered_once.values() if job.id not in handed), _EVICT_SLICE))
        for job in jobs:
            if not self._uses_more_than(percent):
                break
            engine.delete(job, self.node.now)
        return bool(jobs) or cluster.acks.evict(_EVICT_SLICE, self.node.now) > 0

    def rewrite_in_background(self) -> None:
        """Shorten the journal: take a snapshot, and remove what it stands for."""
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
                self.log.warning("the journal could not be shortened: %s", error)
        finally:
            self.rewriting = False
            self.last_rewrite_s = int(time.monotonic() - began)

    def on_defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop met an exception that nobody meant: it is counted, and told."""
        self.desk.internal_errors += 1
        self.log.error("internal error; please report it: %s", context["message"], exc_info=context.get("exception"))

    # Stopping

    def stop(self) -> None:
        """Stop soon."""
        if not self.stopping.done():
            self.stopping.set_result(None)

    def keep_memory(self) -> None:
        """Have everything on disk that is in memory only, for the next start."""
        if self.host.journal is None:
            self.start_journal()

    def _step_down(self, epoch: int) -> None:
        """Another is this node, in a greater epoch: serve nobody any more, and start again as a new node."""
        self.log.warning("this node was replaced, in epoch %d: it serves nobody any more, and steps down", epoch)
        self.node.pause_clients(_FOR_EVER_S)
        for client in list(self.clients):
            client.abort()
        if self.host.journal is None:
            self.keep_memory()
        self.host.be_superseded(epoch)
        self.restart_s = 0.0
        self.stop()

    def restart(self, crash: bool, delay_s: float) -> None:
        """Stop and start again in this process; or do so as if it had crashed."""
        if crash:
            time.sleep(delay_s)
            start_again()
        if self.config.file is not None:
            self.rewrite_config()
        self.restart_s = delay_s
        self.stop()


def start_again() -> None:
    """Be this program from its beginning. Every file and socket is closed on the way, and every lock with them."""
    os.execv(sys.executable, sys.orig_argv)


def _is_idle(tube: Tube) -> bool:
    """Whether a queue is empty, and nobody has made it on purpose or waits for it."""
    return tube.policy == DISQUE and not (
        tube.total() or tube.line.length or tube.put_line.length or tube.paused_in or tube.paused_out or tube.dedups
    )
