"""A server's membership in a cluster: its peers, the file that keeps them over a restart, and its bus."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from typing import Final

from penstock.cluster.members import Members
from penstock.cluster.node import Cluster
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.roster import BUS_OFFSET, Roster, file_text, read_file
from penstock.core.errors import ProtocolError
from penstock.host.host import Host
from penstock.node.turn import Turn
from penstock.server.config import text_file
from penstock.server.config.configuration import Config, ConfigError
from penstock.server.config.words import to_bytes
from penstock.server.peers.bus import Bus
from penstock.wire import bus as wire

_log = logging.getLogger("penstock")

BUS_PORT_MAX: Final = 65_535

# Addresses that stand for all addresses of the machine.
_ALL_ADDRESSES: Final = ("0.0.0.0", "::", "*")


class Membership:
    """This server as a member of a cluster."""

    def __init__(self, config: Config, host: Host, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._host = host
        self._turn = turn
        self._path = config.within_dir(config.cluster_config_file)
        self.bus_port = bus_port_of(config)  # 0: the cluster bus is off.
        self.mail = PeerOutbox()
        roster = self._load()
        memory = secrets.token_bytes(wire.INCARNATION_BYTES)
        self.members = Members(host.node.encode(), memory, secrets.randbits(32), self.mail, config.cluster_node_timeout)
        self.members.epoch = host.node_epoch()
        self.cluster = Cluster(
            host.engine, host.ids, self.members, self.mail, secrets.randbits(32), host.body_of, host.make_room_now
        )
        self.bus = Bus(turn, loop, self.cluster, self._save_and_log)
        self.members.leaving = host.is_leaving()
        self.members.announced = self.members.host = announced_ip(config)
        self.members.port = config.cluster_announce_port or config.port or config.tls_port
        self.members.bus_port = config.cluster_announce_bus_port or self.bus_port
        self.members.restore(roster.peers, turn.now, roster.past)
        self.members.given_up = roster.given_up
        self.apply()

    @property
    def is_alone(self) -> bool:
        """Return whether this server has no peers."""
        return not self.members.peers

    def close_bus(self) -> None:
        """Record that this node has no bus port, because the port cannot be opened."""
        self.bus_port = 0
        self.members.bus_port = 0

    def address_for(self, found_at: str) -> str:
        """Return the address at which clients reach this node. It is the announced address, if one is configured.

        Otherwise it is `found_at`, the local address of the client's own connection. For a client of a Unix socket,
        `found_at` is empty, and the address is the first one that the server listens on.
        """
        config = self._config
        host, _, port = found_at.rpartition(":")
        if not found_at:
            host = "127.0.0.1" if config.bind[0] in _ALL_ADDRESSES else bracketed(config.bind[0])
            port = str(config.port or config.tls_port)
        return f"{bracketed(self.members.announced) or host}:{config.cluster_announce_port or port}"

    def apply(self) -> None:
        """Apply the settings that can change at run time."""
        self.members.timeout_ms = self._config.cluster_node_timeout
        self.bus.secret = to_bytes(self._config.cluster_secret)
        self.bus.tls_name = self._config.tls_cluster_name
        has_users = bool(self._config.requirepass or self._config.users)
        self.bus.set_needs_secret(has_users and not self._config.tls_cluster)

    # The file that survives a restart

    def save(self) -> None:
        """Write the peers to disk. Raise OSError if that fails."""
        text_file.replace(self._path, file_text(self.members))

    def _save_and_log(self) -> None:
        try:
            self.save()
        except OSError as error:
            _log.error("peers not saved: file=%s error=%s", self._path, error.strerror)

    def _load(self) -> Roster:
        myself = self._host.node.encode()
        if not self._path.exists():
            return Roster(myself)
        try:
            roster = read_file(text_file.read(self._path, str(self._path)))
        except ValueError as error:
            raise ConfigError(f"{self._path}: {error}; restore it, or remove it and meet the peers again") from None
        if roster.myself != myself:
            aside = self._path.with_name(f"{self._path.name}.{roster.myself[:8].decode()}")
            self._path.rename(aside)
            _log.warning(
                "peers not loaded, because the file belongs to another node: file=%s renamed_to=%s; "
                "meet them again with CLUSTER MEET",
                self._path,
                aside.name,
            )
            return Roster(myself)
        return roster

    def new_incarnation(self) -> None:
        """Start a new incarnation, because all jobs were removed and peers must not count on this node's copies."""
        self.cluster.set_incarnation(secrets.token_bytes(wire.INCARNATION_BYTES), self._turn.now)

    # Commands of the operator

    def meet(self, host: str, port: int, bus_port: int) -> str:
        """Start to connect to the node at an address. Return why that is not possible, or "" if it was started."""
        if not self.bus_port:
            return "the cluster bus of this node is off; start it with --cluster-port"
        why_not = self.bus.why_not(host)
        if why_not:
            return why_not
        self._turn.begin()
        if not self.members.meet(host, port, bus_port or port + BUS_OFFSET, self._turn.now):
            return "too many nodes are being met or are known; try again later"
        return ""

    def set_leaving(self, leaving: bool) -> None:
        """Announce to the peers whether this node is leaving."""
        self._turn.begin()
        self.cluster.set_leaving(leaving, self._turn.now)

    def reset(self, hard: bool) -> None:
        """Drop all peers, because all jobs are about to be removed. If `hard` is set, give this node a new id."""
        self._turn.begin()
        if hard:
            self._host.rename()
        node = self._host.node.encode()
        self.cluster.reset(node, self._turn.now)
        self.new_incarnation()
        self.bus.begin_anew(node)


def bus_port_of(config: Config) -> int:
    """Return the port of the cluster bus: `cluster-port`, or `port` plus 10,000. Return 0 if there is no such port."""
    if config.cluster_port:
        return config.cluster_port
    usual = config.port + BUS_OFFSET
    return usual if config.port and usual <= BUS_PORT_MAX else 0


def bracketed(host: str) -> str:
    """Return an address in the form that can be followed by a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def announced_ip(config: Config) -> str:
    """Return the address that this node announces to its peers, or "" if they use the one from which it connects."""
    if not config.cluster_announce_ip:
        return ""
    try:
        return wire.address(config.cluster_announce_ip)
    except ProtocolError as error:
        raise ConfigError(f"{config.origin('cluster_announce_ip')}: cluster-announce-ip: {error}") from None


def tls_contexts(config: Config) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """Return the two TLS contexts of the bus, for incoming and for outgoing links, or None without TLS.

    Both sides of a link need a certificate.
    """
    if not config.tls_cluster:
        return None
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in contexts:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        load_tls_files(context, config, config.tls_cluster_settings())
    return contexts


def load_tls_files(context: ssl.SSLContext, config: Config, settings: tuple[str, str, str]) -> None:
    """Load three files into a TLS context: a certificate, its key, and the authorities of the other side.

    `settings` are the names of the three settings that contain the paths of these files.
    """
    for name in settings:
        path = getattr(config, name)
        try:
            # OpenSSL's error does not name the file that it cannot read.
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{config.origin(name)}: {path}: {error.strerror}") from None
    cert, key, authorities = (getattr(config, name) for name in settings)
    try:
        context.load_cert_chain(str(cert), key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{config.origin(settings[0])}: {cert} and {key} cannot be used: {error}") from None
    try:
        if authorities is not None:
            context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{config.origin(settings[2])}: {authorities} cannot be used: {error}") from None
