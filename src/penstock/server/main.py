"""Serving: start a node from a configuration, serve until it is stopped, and shut down cleanly."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock._build import is_compiled
from penstock._extras import not_installed
from penstock._version import __version__
from penstock.cluster.roster import BUS_OFFSET
from penstock.core.errors import Interrupted, JournalFailed, PenstockError
from penstock.core.limits import NEVER, duration_ms
from penstock.host.host import Host, Store
from penstock.journal.maintenance.retention import Retention
from penstock.journal.real_disk import RealDisk
from penstock.server import chores
from penstock.server.commands import command_table
from penstock.server.config.configuration import Config, ConfigError
from penstock.server.config.driver_modules import CannotLoad, load_drivers
from penstock.server.gc_schedule import freeze_loaded
from penstock.server.loading import Loading
from penstock.server.metrics.page import CONTENT_TYPE
from penstock.server.metrics.scrape import Scrapes
from penstock.server.net.descriptors import clients_that_fit
from penstock.server.net.http import Answer, HttpRequest, Pages
from penstock.server.net.iproto_port import iproto_ports
from penstock.server.net.metrics_access import metrics_refusal
from penstock.server.net.ports import Ports
from penstock.server.peers.admission import open_forwarding
from penstock.server.peers.bus import NEEDS_SECRET, is_loopback
from penstock.server.peers.links import HANDSHAKE_S
from penstock.server.peers.membership import BUS_PORT_MAX, tls_contexts
from penstock.server.peers.step_down import restart_as_new_node
from penstock.server.server import LOG_LEVELS, Server, start_again
from penstock.server.service_manager import report_ready, report_stopping

_log = logging.getLogger("penstock")

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

# When the server stops, clients have this long to read their last replies.
_DRAIN_S: Final = 2.0

# The server then waits this long for the connections to close. TLS connections do not report their end.
_CLOSE_S: Final = 0.2

# Background threads release the interpreter to the event loop after this long.
_SWITCH_S: Final = 0.0005


def open_host(config: Config, progress: Callable[[int, int], None] | None = None) -> Host:
    """Open the queue directory that a configuration names, and recover its jobs."""
    os.makedirs(config.dir, mode=0o700, exist_ok=True)
    retention = Retention(config.history_bytes, duration_ms(config.history, "history"), config.history_bodies)
    keeps = config.journal or config.aof_enqueue_jobs_once
    store = Store(RealDisk(str(config.dir)), config.fsync, retention, progress, journal=keeps)
    host = Host(int(config.session_grace * 1000), config.max_memory or NEVER, store)
    host.engine.body_bytes_max = config.max_body
    return host


def serve(config: Config, ready: Callable[[Server], None] | None = None) -> int:
    """Serve until the server is stopped. Return the exit code of the process."""
    _log.setLevel(LOG_LEVELS[config.loglevel])
    _check_bindings(config)
    try:
        load_drivers(config.drivers)
    except CannotLoad as error:
        raise ConfigError(f"{config.origin('drivers')}: {error}") from error
    restart_as_new_node(config)
    sys.setswitchinterval(_SWITCH_S)
    if (fit := clients_that_fit(config.max_clients)) < config.max_clients:
        _log.warning("client limit lowered, because the system allows too few open files: max_clients=%d", fit)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        code, restart_s = runner.run(_load_and_serve(config, ready))
    if restart_s >= 0:
        time.sleep(restart_s)
        start_again()
    return code


async def _load_and_serve(config: Config, ready: Callable[[Server], None] | None) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()
    _handle_signals(loop, partial(_stop_loading, stopped))
    loading = Loading(config, loop)
    host = await loading.run(open_host, stopped)
    if host is None:
        _log.info("shutdown finished")
        return 0, -1.0
    for warning in [*host.warnings, *host.start_drivers()]:
        _log.warning("%s", warning)
    if config.aof_enqueue_jobs_once:
        _reset_enqueue_once(config, host)
    freeze_loaded()
    return await _serve(config, host, loading, ready)


def _reset_enqueue_once(config: Config, host: Host) -> None:
    """Set aof-enqueue-jobs-once to no, because the journal was loaded. Close it, unless the setting `journal` is on."""
    config.change("aof-enqueue-jobs-once", "no")
    if config.file is not None:
        try:
            config.rewrite()
        except ConfigError as error:
            _log.warning("configuration file not updated: aof-enqueue-jobs-once is still yes there: error=%s", error)
    if not config.journal:
        with host.lock:
            host.stop_journal()


async def _serve(
    config: Config, host: Host, loading: Loading, ready: Callable[[Server], None] | None
) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    ports = loading.ports
    await ports.bind()  # This comes first, because the node announces the ports that are open.
    server = Server(config, host, loop)
    info = command_table.install(server)
    loop.set_exception_handler(server.on_loop_error)
    server.apply_all()
    server.make_spaces()
    iproto_doors = iproto_ports(server)
    open_forwarding(server, list(dict.fromkeys(iproto_doors.values())))
    await open_bus(server, ports)
    loading.hand_over(server, iproto_doors, pages(server) if config.http_port or config.http_tls_port else {})
    await ports.accept()
    server.warnings += [*_warnings_of_secrets(config), *ports.warnings]
    server.turn.begin()  # This turn opens the links to other nodes.
    _handle_signals(loop, partial(_on_signal, server))
    _log.info("server started: version=%s ports=%s dir=%s", __version__, ports, config.dir)
    report_ready(str(ports))
    for warning in server.warnings:
        _log.warning("%s", warning)
    _log_locked_bus(server)
    if not is_compiled():
        _log.warning("interpreted build: expect a tenth of the speed of a compiled one")
    if ready is not None:
        ready(server)
    tasks = chores.start(server, info)
    server.loop_lag.start()
    code = 0
    try:
        ends: list[asyncio.Future[Any]] = [server.stopping, server.turn_loop.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        report_stopping()
        code = _failure(server)
    finally:
        for task in tasks:
            task.cancel()
        server.loop_lag.stop()
        ports.close()
    if code == 0:
        await _stop(server)
        code = _failure(server)
    try:
        with host.lock:
            host.close()
    except (PenstockError, OSError) as error:
        _log.error("journal not closed: error=%s", error)
        code = 1
    for signum in _STOPPING:
        # The handler would call a loop that is about to be closed.
        signal.signal(signum, signal.SIG_DFL)
    _log.info("shutdown finished")
    return code, server.restart_s


def _failure(server: Server) -> int:
    """Return the exit code: 1 if the node failed, otherwise 0. Log the failure."""
    if not server.turn_loop.failed.done():
        return 0
    error = server.turn_loop.failed.exception()
    if isinstance(error, JournalFailed):
        _log.error("journal failed, so the server stops: error=%s", error)
    elif isinstance(error, Interrupted):
        _log.error("command interrupted half-way, so the server stops: its directory is intact; start it again")
    else:
        _log.error("internal error; please report it", exc_info=error)
    return 1


async def _stop(server: Server) -> None:
    """Let clients read their last replies. Then close the clients, the bus and the node."""
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and any(client.has_answers() for client in server.clients):
        await asyncio.sleep(0.01)
    for client in server.clients:
        client.abort()
    until = time.monotonic() + _CLOSE_S
    while time.monotonic() < until and len(server.clients):
        await asyncio.sleep(0.01)
    server.logins.close()
    if server.trace_log is not None:
        server.trace_log.close()
    server.membership.bus.close()
    server.turn_loop.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        _log.warning("slower event loop: %s", not_installed("uvloop", "server"))
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _handle_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[int], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT.

    The loop's own handlers are not used, because uvloop reports some signals twice, and a second SIGINT exits
    immediately.
    """

    def tell(signum: int, _: object) -> None:
        loop.call_soon_threadsafe(stop, signum)

    for signum in _STOPPING:
        signal.signal(signum, tell)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _stop_loading(stopped: asyncio.Future[None], signum: int) -> None:
    if not stopped.done():
        _log.info("shutdown started: signal=%s", signal.Signals(signum).name)
        stopped.set_result(None)


def _on_signal(server: Server, signum: int) -> None:
    if server.stopping.done() and signum == signal.SIGINT:
        os._exit(1)
    _log.info("shutdown started: signal=%s", signal.Signals(signum).name)
    server.stop()


# Ports


def _check_bindings(config: Config) -> None:
    """Raise ConfigError if clients of other machines or users could connect without a password by mistake."""
    elsewhere = [address for address in config.bind if not is_loopback(address)]
    is_open = config.port or config.iproto_port or config.iproto15_port
    if elsewhere and is_open and config.protected_mode and not (config.requirepass or config.users):
        raise ConfigError(
            f"binding {elsewhere[0]} without a password would let everyone in: set `requirepass <a long password>` "
            "(or users, or only a tls-port with tls-auth-clients yes), or `bind 127.0.0.1`; "
            "to allow it, set `protected-mode no`"
        )
    others_may_connect = config.unixsocket and config.unixsocketperm & stat.S_IWOTH
    if others_may_connect and config.protected_mode and not (config.requirepass or config.users):
        raise ConfigError(
            f"unixsocketperm {config.unixsocketperm:o} without a password would let all users of this machine in: "
            "set `requirepass <a long password>` (or users), or `unixsocketperm 770`; "
            "to allow it, set `protected-mode no`"
        )


def _warnings_of_secrets(config: Config) -> list[str]:
    """Return a warning for each secret on the command line, because other users of the machine can read it there."""
    return [
        f"secret on the command line: {config.origin(setting.name)}: other users of this machine can read it in the "
        f"process list; write it to a file, and set PENSTOCK_{setting.name.upper()}_FILE to the path of that file"
        for setting in config.secrets_on_command_line()
    ]


async def open_bus(server: Server, ports: Ports) -> None:
    """Open the port of the cluster bus, if there is one."""
    config, membership = server.config, server.membership
    contexts = tls_contexts(config)
    bus = membership.bus
    accept: Callable[[], asyncio.BaseProtocol] = bus.accept
    if contexts is not None:
        bus.tls = contexts[1]
        accept = partial(bus.handshakes.accept, bus.accept, contexts[0], HANDSHAKE_S)
    if not membership.bus_port:
        if config.port:
            ports.warnings.append(
                f"port {config.port} is above {BUS_PORT_MAX - BUS_OFFSET}, so the cluster bus is off; "
                "choose a port for it with --cluster-port"
            )
        return
    # A node that belongs to a cluster needs the port, so it does not start without it.
    if not await ports.bind_bus(membership.bus_port, accept, is_needed=not membership.is_alone):
        membership.close_bus()


def _log_locked_bus(server: Server) -> None:
    """If the bus refuses other nodes, log this and the setting to change.

    It is logged as a warning, unless the server has no peers and no configured bus port.
    """
    membership = server.membership
    if membership.bus.is_locked:
        alone = membership.is_alone and server.config.origin("cluster_port") == "default"
        _log.log(logging.INFO if alone else logging.WARNING, "cluster bus closed: %s", NEEDS_SECRET)


def pages(server: Server) -> Pages:
    """Return the functions that make the pages of the HTTP port, by path."""
    scrapes = Scrapes(server)

    def ready() -> Answer:
        if server.stopping.done() or server.context.leaving:
            return Answer(503, "leaving\n")
        return Answer(200, "ready\n")

    async def metrics(request: HttpRequest) -> Answer:
        refusal = metrics_refusal(server, request)
        return refusal or Answer(200, await scrapes.page(), CONTENT_TYPE)

    return {"/livez": lambda _: Answer(200, "alive\n"), "/readyz": lambda _: ready(), "/metrics": metrics}
