"""Serving: from a configuration to a node that answers, and back to a process that ends well."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.core.errors import Interrupted, JournalFailed, PenstockError
from penstock.core.limits import NEVER, duration_ms
from penstock.host.host import Host, Store
from penstock.journal.disk import RealDisk
from penstock.journal.retention import Retention
from penstock.server import chores, table
from penstock.server.bus import NEEDS_SECRET, is_loopback
from penstock.server.config import Config, ConfigError
from penstock.server.descriptors import clients_that_fit, share
from penstock.server.forwarding import open_tunnels
from penstock.server.garbage import leave_alone
from penstock.server.http import CONNECTIONS_MAX, Answer, HttpPort, Pages
from penstock.server.iproto import Door, doors
from penstock.server.links import HANDSHAKE_S
from penstock.server.listening import listen, listen_unix
from penstock.server.membership import bracketed, load_tls_files, tls_contexts
from penstock.server.server import Server, start_again
from penstock.server.settings import CannotListen
from penstock.server.stepping_down import go_on_as_another

_log = logging.getLogger("penstock")

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

# How long clients get to fetch their last answers when the server stops.
_DRAIN_S: Final = 2.0

# How long to wait until the system says that they are gone; over TLS it does not say so.
_PART_S: Final = 0.2

# A thread that works beside the loop, the steward, gives way to it this soon.
_SWITCH_S: Final = 0.0005


def open_host(config: Config, progress: Callable[[int, int], None] | None = None) -> Host:
    """Read back what the directory of a configuration holds."""
    os.makedirs(config.dir, mode=0o700, exist_ok=True)
    retention = Retention(config.history_bytes, duration_ms(config.history, "history"), config.history_bodies)
    keeps = config.journal or config.aof_enqueue_jobs_once
    store = Store(RealDisk(str(config.dir)), config.fsync, retention, progress, journal=keeps)
    host = Host(int(config.session_grace * 1000), config.max_memory or NEVER, store)
    host.engine.body_bytes_max = config.max_body
    return host


def serve(config: Config, ready: Callable[[Server], None] | None = None) -> int:
    """Serve until told to stop; gives the exit code of the process."""
    _check_doors(config)
    go_on_as_another(config)
    host = open_host(config, _tell_progress())
    for warning in host.warnings:
        _log.warning("%s", warning)
    if config.aof_enqueue_jobs_once:
        _be_ordinary_again(config, host)
    sys.setswitchinterval(_SWITCH_S)
    if (fit := clients_that_fit(config.max_clients)) < config.max_clients:
        _log.warning("the system allows so few open files that no more than %d clients are served at a time", fit)
    leave_alone()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        code, restart_s = runner.run(_serve(config, host, ready))
    if restart_s >= 0:
        time.sleep(restart_s)
        start_again()
    return code


def _be_ordinary_again(config: Config, host: Host) -> None:
    """What was kept for one start has been read: from now on there is a journal only where one was asked for."""
    config.change("aof-enqueue-jobs-once", "no")
    if config.file is not None:
        try:
            config.rewrite()
        except ConfigError as error:
            _log.warning("aof-enqueue-jobs-once is still yes in the file, which cannot be written: %s", error)
    if not config.journal:
        with host.lock:
            host.stop_journal()


async def _serve(config: Config, host: Host, ready: Callable[[Server], None] | None) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    server = Server(config, host, loop)
    info = table.install(server)
    loop.set_exception_handler(server.on_defect)
    server.apply_all()
    server.make_spaces()
    server.warnings += _warnings_of_secrets(config)
    iproto_doors = doors(server)
    open_tunnels(server, list(dict.fromkeys(iproto_doors.values())))
    listeners = await _listen(server, iproto_doors)
    server.node.begin_turn()  # In which the links to other nodes are opened.
    _heed_signals(server)
    _log.info("penstock %s serves %s from %s", __version__, _doors(config), config.dir)
    for warning in server.warnings:
        _log.warning("%s", warning)
    _tell_locked_bus(server)
    if not is_compiled():
        _log.warning("this installation is interpreted: expect a tenth of the speed")
    if ready is not None:
        ready(server)
    tasks = chores.start(server, info)
    code = 0
    try:
        ends: list[asyncio.Future[Any]] = [server.stopping, server.node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        code = _failure(server)
    finally:
        for task in tasks:
            task.cancel()
        for listener in listeners:
            listener.close()
        server.clients.handshakes.close()
        if config.unixsocket:
            config.within_dir(config.unixsocket).unlink(missing_ok=True)
    if code == 0:
        await _stop(server)
        code = _failure(server)
    try:
        with host.lock:
            host.close()
    except (PenstockError, OSError) as error:
        _log.error("the journal could not be closed: %s", error)
        code = 1
    for signum in _STOPPING:
        # Nobody listens any more.
        signal.signal(signum, signal.SIG_DFL)
    _log.info("stopped")
    return code, server.restart_s


def _failure(server: Server) -> int:
    """Say why the node failed, if it did; gives the exit code."""
    if not server.node.failed.done():
        return 0
    error = server.node.failed.exception()
    if isinstance(error, JournalFailed):
        _log.error("the journal failed, and nothing more can be promised: %s", error)
    elif isinstance(error, Interrupted):
        _log.error("a command broke off half-way, so this node ends; its directory is whole: start it again")
    else:
        _log.error("internal error; please report it", exc_info=error)
    return 1


async def _stop(server: Server) -> None:
    """Let clients have their last answers, and everything be on disk."""
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until and any(client.has_answers() for client in server.clients):
        await asyncio.sleep(0.01)
    for client in server.clients:
        client.abort()
    until = time.monotonic() + _PART_S
    while time.monotonic() < until and len(server.clients):
        await asyncio.sleep(0.01)
    server.membership.bus.close()
    server.node.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        _log.warning("uvloop is not installed, so this is slower than it need be: pip install 'penstock[server]'")
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _heed_signals(server: Server) -> None:
    """Let signals stop a server. Not by the loop: uvloop tells of some twice, and a second SIGINT means more."""

    def tell(signum: int, _: object) -> None:
        server.loop.call_soon_threadsafe(_on_signal, server, signum)

    for signum in _STOPPING:
        signal.signal(signum, tell)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _on_signal(server: Server, signum: int) -> None:
    if server.stopping.done() and signum == signal.SIGINT:
        os._exit(1)
    _log.info("%s: stopping", signal.Signals(signum).name)
    server.stop()


# The doors


def _check_doors(config: Config) -> None:
    """Refuse to be open to everybody by mistake."""
    elsewhere = [address for address in config.bind if not is_loopback(address)]
    is_open = config.port or config.iproto_port or config.iproto15_port
    if elsewhere and is_open and config.protected_mode and not (config.requirepass or config.users):
        raise ConfigError(
            f"binding {elsewhere[0]} without a password would let everybody in: write `requirepass <a long password>` "
            "(or users, or only a tls-port with tls-auth-clients yes), or `bind 127.0.0.1`; "
            "`protected-mode no` if you mean it"
        )
    others_may_connect = config.unixsocket and config.unixsocketperm & stat.S_IWOTH
    if others_may_connect and config.protected_mode and not (config.requirepass or config.users):
        raise ConfigError(
            f"unixsocketperm {config.unixsocketperm:o} without a password would let all users of this machine in: "
            "write `requirepass <a long password>` (or users), or `unixsocketperm 770`; "
            "`protected-mode no` if you mean it"
        )


def _warnings_of_secrets(config: Config) -> list[str]:
    """Return a warning for each secret that other users of the machine can read."""
    return [
        f"secret on the command line: {config.origin(setting.name)}: other users of this machine can read it in the "
        f"process list; write it to a file, and set PENSTOCK_{setting.name.upper()}_FILE to the path of that file"
        for setting in config.secrets_on_command_line()
    ]


def _doors(config: Config) -> str:
    """Where clients find the server, for people."""
    bind = [bracketed(address) for address in config.bind]
    doors = [f"{address}:{config.port}" for address in bind if config.port]
    doors += [f"{address}:{config.iproto_port} (IPROTO)" for address in bind if config.iproto_port]
    doors += [f"{address}:{config.iproto15_port} (IPROTO, 1.5)" for address in bind if config.iproto15_port]
    doors += [f"{bracketed(address)}:{config.http_port} (HTTP)" for address in config.http_bind if config.http_port]
    doors += [f"{address}:{config.tls_port} (TLS)" for address in bind if config.tls_port]
    for port in (config.iproto_tls_port, config.iproto15_tls_port):
        doors += [f"{address}:{port} (IPROTO, TLS)" for address in bind if port]
    return ", ".join([*doors, config.unixsocket] if config.unixsocket else doors)


async def _listen(server: Server, iproto_doors: dict[str, Door]) -> list[asyncio.AbstractServer]:
    config, loop = server.config, server.loop
    listeners: list[asyncio.AbstractServer] = []
    accept, backlog = server.clients.accept, config.tcp_backlog
    setting, port, where = "http-port", config.http_port, config.http_bind  # What is being opened.
    try:
        if config.http_port:
            http = HttpPort(_pages(server), lambda: config.http_hosts, share(CONNECTIONS_MAX))
            listeners.append(await listen(loop, http.accept, config.http_bind, config.http_port, backlog))
        listeners += await _listen_iproto(server, iproto_doors)
        listeners += await _listen_bus(server)
        setting, port, where = "tls-port", config.tls_port, config.bind
        if config.tls_port:
            listeners.append(await _listen_tls(server, accept, config.tls_port))
        if config.unixsocket:
            listeners.append(await _listen_unix(server))
        # The last one: where it answers, all others are open.
        setting, port = "port", config.port
        if config.port:
            listeners.append(await listen(loop, accept, config.bind, config.port, backlog))
    except OSError as error:
        for listener in listeners:
            listener.close()
        why = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            why = f"somebody else listens on port {port}; stop them, or choose another with --{setting}"
        raise CannotListen(f"cannot listen on {', '.join(where)}: {why}") from None
    return listeners


async def _listen_unix(server: Server) -> asyncio.AbstractServer:
    """Open the Unix socket. One that a crash has left behind makes way; any other file is somebody's."""
    config = server.config
    path = config.within_dir(config.unixsocket)
    try:
        if path.exists() and not path.is_socket():
            raise CannotListen(f"cannot listen on {config.unixsocket}: there is a file of this name, and no socket")
        path.unlink(missing_ok=True)
        sock = _unix_socket(path, config.unixsocketperm)
        return await listen_unix(server.loop, server.clients.accept, sock, config.tcp_backlog)
    except OSError as error:
        raise CannotListen(f"cannot listen on {config.unixsocket}: {error.strerror or error}") from None


def _unix_socket(path: Path, mode: int) -> socket.socket:
    """Return a Unix socket that is bound to a path. A mode of 0 leaves its permissions to the umask, except others'.

    The socket does not listen yet, so nobody can connect before it has its permissions.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file these permissions, less the umask. Other systems refuse, and the umask alone counts.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), mode or 0o775)
        sock.bind(str(path))
        if mode:
            path.chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock


async def _listen_tls(server: Server, accept: Callable[[], asyncio.BaseProtocol], port: int) -> asyncio.AbstractServer:
    config, clients = server.config, server.clients
    protocols = clients.handshakes.protocols(accept, _tls_context(config), lambda: clients.limits.auth_s)
    return await listen(server.loop, protocols, config.bind, port, config.tcp_backlog)


async def _listen_iproto(server: Server, iproto_doors: dict[str, Door]) -> list[asyncio.AbstractServer]:
    config, loop = server.config, server.loop
    listeners: list[asyncio.AbstractServer] = []
    for name, door in iproto_doors.items():
        port = getattr(config, name)
        if not port:
            continue
        try:
            if "tls" in name:
                listeners.append(await _listen_tls(server, door.accept, port))
            else:
                listeners.append(await listen(loop, door.accept, config.bind, port, config.tcp_backlog))
        except OSError as error:
            # A Tarantool may well run beside us; but what somebody asked for, they get or hear of.
            if config.origin(name) != "default":
                why, flag = _why_closed(port, error), f"--{name.replace('_', '-')}"
                raise CannotListen(f"cannot listen for IPROTO: {why}; choose another with {flag}") from None
            server.warnings.append(
                f"{_why_closed(port, error)}, so there is no IPROTO; say --iproto-port to have it elsewhere"
            )
            setattr(config, name, 0)
    return listeners


def _why_closed(port: int, error: OSError) -> str:
    """Why nobody can come by a port, for people."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken"
    return f"port {port} cannot be opened ({os.strerror(error.errno) if error.errno else error})"


async def _listen_bus(server: Server) -> list[asyncio.AbstractServer]:
    """Open the port for other nodes."""
    config, membership = server.config, server.membership
    contexts = tls_contexts(config)
    if contexts is not None:
        membership.bus.tls = contexts[1]
    port = membership.bus_port
    if not port:
        return []
    bus = membership.bus
    accept: Callable[[], asyncio.BaseProtocol] = bus.accept
    if contexts is not None:
        accept = bus.handshakes.protocols(bus.accept, contexts[0], lambda: HANDSHAKE_S)
    try:
        return [await listen(server.loop, accept, config.bind, port, config.tcp_backlog)]
    except OSError as error:
        # One that serves alone can do without; but what somebody asked for, they get or hear of.
        if config.origin("cluster_port") != "default" or not membership.is_alone:
            raise CannotListen(
                f"cannot listen for other nodes: {_why_closed(port, error)}; choose another with --cluster-port"
            ) from None
        server.warnings.append(
            f"{_why_closed(port, error)}, so other nodes cannot come; say --cluster-port to have it elsewhere"
        )
        membership.bus_port = 0
        return []


def _tell_locked_bus(server: Server) -> None:
    """Log that other nodes are refused, and what to set. A server that is meant to be alone needs no warning."""
    membership = server.membership
    if membership.bus.is_locked:
        alone = membership.is_alone and server.config.origin("cluster_port") == "default"
        _log.log(logging.INFO if alone else logging.WARNING, "cluster bus closed: %s", NEEDS_SECRET)


def _pages(server: Server) -> Pages:
    """What the HTTP port shows."""
    try:
        from penstock.server.metrics import Metrics
    except ImportError:
        raise ConfigError("the HTTP port needs prometheus-client: pip install 'penstock[server]'") from None
    metrics = Metrics(server)

    def ready() -> Answer:
        if server.stopping.done() or server.site.leaving:
            return Answer(503, "leaving\n")
        return Answer(200, "ready\n")

    return {
        "/livez": lambda: Answer(200, "alive\n"),
        "/readyz": ready,
        "/metrics": lambda: Answer(200, *metrics.page()),
    }


def _tls_context(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_tls_files(context, config, ("tls_cert_file", "tls_key_file", "tls_ca_cert_file"))
    context.verify_mode = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}[
        config.tls_auth_clients
    ]
    return context


def _tell_progress() -> Callable[[int, int], None]:
    """Tell once a second how far the reading of the journal is."""
    told = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told > 1:
            told = time.monotonic()
            _log.info("reading the journal: %d of %d MB", done >> 20, total >> 20)

    return progress
