"""The table of settings, one row each. Flags, environment, files, CONFIG and the documentation are derived from it.

A setting has a name for Python, TOML, flags (`--max-clients`) and the environment (`PENSTOCK_MAX_CLIENTS`). It also has
a directive for Disque's config files, CONFIG and flags (`--maxclients`), which is Disque's word if Disque has the
setting. Both are accepted everywhere. Defaults are written as users write values. With a config file in Disque's
form, some settings have Disque's defaults instead, because operators of Disque may rely on them.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.core.limits import BODY_BYTES_HARD_MAX
from penstock.server.config.driver_modules import DriverModules
from penstock.server.config.kinds import (
    Choice,
    Collected,
    File,
    Folder,
    HostNames,
    Keepalive,
    Kind,
    Mode,
    OutputLimits,
    Renames,
    Seconds,
    Secret,
    Size,
    Text,
    Texts,
    WholeNumber,
    YesNo,
)
from penstock.server.config.users import Users
from penstock.server.config.xqueue_spaces import XqueueSpaces

INT_MAX: Final = (1 << 31) - 1
PORT: Final = WholeNumber(0, 65_535)
# Longer than the name of any setting. CONFIG SET can receive a word of any length.
WORD_CHARACTERS_MAX: Final = 64
PASSWORD: Final = Text(512)  # Disque's maximum length.


class ConfigError(PenstockError):
    """The configuration is wrong. The message is one sentence for the operator."""


class CannotListen(PenstockError):
    """A requested port or socket cannot be opened. The message is one sentence for the operator."""


class UnknownSetting(ConfigError):
    """There is no such setting, or it cannot be changed at run time."""

    def __init__(self, directive: str, message: str) -> None:
        super().__init__(message)
        self.directive = directive


class BadValue(ConfigError):
    """A setting was given an invalid value."""

    def __init__(self, directive: str, text: str, message: str) -> None:
        super().__init__(message)
        self.directive = directive
        self.text = text


@dataclass(frozen=True)
class Setting:
    """One setting: its names, kind, default and documentation."""

    name: str
    directive: str
    kind: Kind[Any]
    default: str
    description: str  # One sentence.
    disque_default: str | None = None  # The default with a config file in Disque's form, if it differs.
    changeable: bool = False  # CONFIG SET can change it.
    secret: bool = False  # CONFIG GET and `penstock config show` only show whether it is set.
    only_in_file: bool = False  # Neither flags nor the environment can set it.

    @property
    def in_config_get(self) -> bool:
        return not isinstance(self.kind, Collected)


def _setting(directive: str, kind: Kind[Any], default: str, description: str, name: str = "", **more: Any) -> Setting:
    """Return a setting. Without `name`, its name is the directive with underscores."""
    return Setting(name or directive.replace("-", "_"), directive, kind, default, description, **more)


# A setting that CONFIG SET can change.
_changeable: Final = functools.partial(_setting, changeable=True)

# Settings by topic. Each group is a table in the documentation. If a row has several lines, the first one has its
# directive, kind and default.
GROUPS: Final[dict[str, tuple[Setting, ...]]] = {
    "Listening": (
        _setting("port", PORT, "7711", "The TCP port for RESP clients; 0 opens none."),
        _setting(
            *("iproto-port", PORT, "3301"),
            "The TCP port for clients of Tarantool's queues; 0 opens none.",
            disque_default="0",
        ),
        _setting(
            *("iproto15-port", PORT, "0"),
            "The TCP port for clients of Tarantool's 1.5 queue API, where `queue.statistics` has the form of that "
            "API; usually 33020; 0 opens none.",
        ),
        _setting("bind", Texts("addresses", 16), "127.0.0.1", "The addresses to listen on."),
        _changeable(
            *("protected-mode", YesNo(), "yes"),
            "Whether clients on other machines are refused while there is neither a password nor TLS.",
        ),
        _setting("tcp-backlog", WholeNumber(0, INT_MAX), "511", "The length of the accept queue."),
        _setting(
            "unixsocket", Text(107), "", "The path of a Unix socket to listen on, relative to `dir`; empty for none."
        ),
        _setting(
            *("unixsocketperm", Mode(), "0"),
            "The permissions of the Unix socket; 0 leaves them to the umask, but others can never write.",
        ),
        _setting("http-port", PORT, "0", "The port for metrics and health checks over HTTP; 0 opens none."),
        _setting(
            *("dashboard-port", PORT, "0"),
            "The port of the dashboard, which runs as a child process on this machine; 0 starts none, and "
            "`--dashboard` is short for `--dashboard-port 7780`.",
        ),
        _setting("http-bind", Texts("addresses", 16), "127.0.0.1", "The addresses to listen on for HTTP."),
        _changeable(
            *("http-hosts", HostNames(), ""),
            "The domain names that HTTP requests may give in `Host`, besides IP addresses, names without a dot, "
            "`*.localhost` and the hostname of this machine; `*` allows every name.",
        ),
        _changeable(
            *("metrics-tubes", WholeNumber(0, 10_000), "200"),
            "The maximum number of tubes in /metrics; if there are more, those with the most jobs are shown.",
        ),
    ),
    "TLS": (
        _setting("tls-port", PORT, "0", "The TCP port for RESP clients that use TLS; 0 opens none."),
        _setting(
            "iproto-tls-port", PORT, "0", "The TCP port for clients of Tarantool's queues that use TLS; 0 opens none."
        ),
        _setting(
            *("iproto15-tls-port", PORT, "0"),
            "The TCP port for clients of Tarantool's 1.5 queue API that use TLS; 0 opens none.",
        ),
        _setting("http-tls-port", PORT, "0", "The port for metrics and health checks over HTTPS; 0 opens none."),
        _setting("tls-cert-file", File(), "", "The server's certificate and its chain, in PEM."),
        _setting("tls-key-file", File(), "", "The key of the certificate, in PEM."),
        _setting(
            *("tls-ca-cert-file", File(), ""),
            "The certificates of the authorities that clients' certificates are checked against, in PEM.",
        ),
        _setting("tls-auth-clients", Choice("no", "optional", "yes"), "no", "Whether clients must have a certificate."),
    ),
    "Access control": (
        _changeable(
            "requirepass", PASSWORD, "", "The password that clients must give with AUTH; empty for none.", secret=True
        ),
        _setting("user", Users(), "", "Users with passwords and permissions of their own.", name="users", secret=True),
        _setting("rename-command", Renames(), "", "Commands to rename or remove.", secret=True),
        _setting(
            "debug-commands", YesNo(), "no", "Whether DEBUG can stop the server, and can be used from other machines."
        ),
        _setting(
            *("driver", DriverModules(), ""),
            "Types of tubes that are Python code, each with its module and class, like `my_drivers:Lifo`; only the "
            "configuration file can set them.",
            name="drivers",
            only_in_file=True,
        ),
    ),
    "Clients of Tarantool": (
        _changeable(
            *("queue-in-replicaset", YesNo(), "no"),
            "Refuse temporary tubes in queue.create_tube, as Tarantool's queue does with in_replicaset.",
        ),
        _changeable(
            *("queue15-pri-mode", Choice("absolute", "offset"), "absolute"),
            "Whether priorities of the 1.5 API are absolute (0 to 255, as its document says) or an offset to 127 (as "
            "its code did).",
        ),
        _setting("xqueue", XqueueSpaces(), "", "Spaces of xqueue that are created, or changed, at the start."),
    ),
    "Client limits": (
        _changeable(
            *("maxclients", WholeNumber(1, 1_000_000), "10000"),
            "The maximum number of connected clients and unfinished TLS handshakes; the system must allow 256 more "
            "open files.",
            name="max_clients",
        ),
        _changeable(
            *("timeout", Seconds(), "0"),
            "Disconnect a client that is idle this long and does not wait for a reply; 0 never does.",
        ),
        _changeable(
            *("tcp-keepalive", Keepalive(), "300"),
            "The idle time of a connection before TCP checks that the client is still there; 0 never checks, and the "
            "maximum is 32,767 s.",
            disque_default="0",
        ),
        _changeable(
            *("auth-timeout", Seconds(0.001), "10s"),
            "The time that a new client has to authenticate, if a password is required.",
        ),
        _changeable(
            *("progress-timeout", Seconds(0.001), "30s"),
            "The time that a client has to send one command, from its first byte to its last.",
        ),
        _changeable(
            *("session-grace", Seconds(), "0"),
            "Keep the taken jobs of a disconnected client for this long, so that it can come back and continue.",
        ),
        _changeable("max-body", Size(0, BODY_BYTES_HARD_MAX), "64mb", "The maximum size of a job's body."),
        _changeable(
            *("max-query-buffer", Size(1 << 20), "1gb"),
            "Disconnect a client that has sent more than this amount of commands that are not executed yet.",
        ),
        _changeable(
            *("client-output-buffer-limit", OutputLimits(), "64mb 16mb 30"),
            "Disconnect a client whose unread replies exceed the hard limit, or exceed the soft limit for this many "
            "seconds; 0 is no limit.",
            name="output_limit",
            disque_default="0 0 0",
        ),
    ),
    "Memory": (
        _changeable(
            *("maxmemory", Size(1, of_memory=True), "50%"),
            "The maximum memory that jobs may use.",
            name="max_memory",
            disque_default="1gb",
        ),
        _changeable(
            *("maxmemory-policy", Choice("acks", "noeviction"), "acks"),
            "Whether a server without a journal may drop delivered jobs of RETRY 0, and then acks that other nodes have"
            " not confirmed, before it refuses puts for lack of memory.",
            name="max_memory_policy",
        ),
        _changeable(
            *("maxmemory-samples", WholeNumber(1, INT_MAX), "5"),
            "Has no effect: eviction does not use sampling.",
            name="max_memory_samples",
        ),
    ),
    "Journal": (
        _setting(
            *("dir", Folder(), "./penstock-data"),
            "The directory of the journal and of the node's identity; it is created if it does not exist.",
            disque_default=".",
        ),
        _changeable(
            "appendonly", YesNo(), "yes", "Whether jobs are stored on disk.", name="journal", disque_default="no"
        ),
        _changeable(
            *("appendfsync", Choice("always", "everysec", "never", disque={"never": "no"}), "always"),
            "When the journal is synced to disk: before each reply (always), once per second (everysec), or when the "
            "system decides or little is written (never).",
            name="fsync",
            disque_default="everysec",
        ),
        _setting("history", Seconds(off=True), "7d", "Keep the history of jobs for this long."),
        _setting("history-bytes", Size(), "1gb", "The maximum size of the history."),
        _setting("history-bodies", YesNo(), "yes", "Whether the history includes the bodies of jobs."),
        _changeable(
            *("aof-enqueue-jobs-once", YesNo(), "no"),
            "Whether the next start loads the journal even if `journal` is no; the start resets it to no.",
        ),
        _changeable(
            *("aof-load-truncated", YesNo(), "yes"),
            "Has no effect: a torn end left by a crash is always cut off, with a warning.",
        ),
        _setting("appendfilename", Text(255), "disque.aof", "Has no effect: the journal's files have fixed names."),
        _setting("no-appendfsync-on-rewrite", YesNo(), "no", "Has no effect: a snapshot never delays a sync."),
        _changeable(
            *("auto-aof-rewrite-percentage", WholeNumber(0, INT_MAX), "100"),
            "Has no effect: the journal decides when to take a snapshot.",
        ),
        _changeable(
            "auto-aof-rewrite-min-size", Size(), "64mb", "Has no effect: the journal decides when to take a snapshot."
        ),
        _changeable(
            "aof-rewrite-incremental-fsync", YesNo(), "yes", "Has no effect: snapshots are always written in slices."
        ),
    ),
    "Log and process": (
        _changeable(
            *("loglevel", Choice("debug", "verbose", "notice", "warning"), "notice"),
            "The lowest level of messages that are logged.",
        ),
        _setting("logfile", Text(), "", "The file to log to, relative to `dir`; empty for standard output."),
        _setting("log-format", Choice("text", "json"), "text", "The format of log lines."),
        _setting(
            *("trace-log", Text(), ""),
            "The file, relative to `dir`, to which a span is written for each put of a sampled trace, as OTLP JSON; "
            "empty for none.",
        ),
        _setting("daemonize", YesNo(), "no", "Whether the server runs in the background."),
        _setting(
            *("pidfile", Text(), "/var/run/penstock.pid"),
            "The file to which a server in the background writes its process id, relative to `dir`.",
            disque_default="/var/run/disque.pid",
        ),
        _changeable(
            *("slowlog-log-slower-than", WholeNumber(-1), "10000"),
            "Log commands that take at least this many microseconds in the slow log; 0 logs all, -1 none.",
        ),
        _changeable(
            "slowlog-max-len", WholeNumber(0, 1_000_000), "128", "The number of commands that the slow log keeps."
        ),
        _changeable(
            *("latency-monitor-threshold", WholeNumber(0), "0"),
            "Record events that take at least this many milliseconds for LATENCY; 0 records none.",
        ),
        _changeable(
            *("linger", WholeNumber(0, 10_000), "100"),
            "Poll for this many microseconds after a command before sleeping, if commands usually follow that soon, "
            "because waking up takes longer than a command; 0 sleeps at once and uses less processor time.",
        ),
        _setting("syslog-enabled", YesNo(), "no", "Has no effect: syslog is not supported."),
        _setting("syslog-ident", Text(), "disque", "Has no effect: syslog is not supported."),
        _setting(
            *("syslog-facility", Choice("user", *(f"local{n}" for n in range(8))), "local0"),
            "Has no effect: syslog is not supported.",
        ),
        _setting("databases", WholeNumber(1, INT_MAX), "16", "Has no effect, as in Disque."),
        _changeable(
            "hz", WholeNumber(1, 500, clamps=True), "10", "Has no effect: timers are accurate to the millisecond."
        ),
        _changeable("activerehashing", YesNo(), "yes", "Has no effect: no table is rehashed."),
        _changeable("watchdog-period", WholeNumber(0, INT_MAX), "0", "Has no effect: there is no watchdog."),
    ),
    "Cluster": (
        _setting(
            *("cluster-port", PORT, "0"),
            "The TCP port for other nodes; 0 uses `port` + 10,000, or opens none if that is above 65,535.",
        ),
        _setting(
            *("cluster-secret", Secret(), ""),
            "The secret that all nodes of a cluster share; without it or `tls-cluster`, only nodes on this machine "
            "can connect, and only while the server has no password and no users.",
            secret=True,
        ),
        _setting(
            *("tls-cluster", YesNo(), "no"),
            "Whether nodes connect over TLS, each with a certificate signed by `tls-cluster-ca-cert-file`.",
        ),
        _setting(
            *("tls-cluster-ca-cert-file", File(), ""),
            "The certificates of the authorities that sign nodes' certificates, in PEM; they must sign nothing else, "
            "because every certificate they sign can join the cluster.",
        ),
        _setting(
            *("tls-cluster-cert-file", File(), ""),
            "This node's certificate for other nodes, in PEM; empty uses `tls-cert-file`.",
        ),
        _setting("tls-cluster-key-file", File(), "", "The key of that certificate, in PEM; empty uses `tls-key-file`."),
        _setting(
            *("tls-cluster-name", Text(255), ""),
            "A DNS name that the certificate of every node must contain; if empty, each certificate must contain the "
            "IP address of its node.",
        ),
        _setting(
            *("cluster-announce-ip", Text(45), ""),
            "The IP address that this node announces to nodes and clients, if it differs from the one they see.",
        ),
        _setting(
            *("cluster-announce-port", PORT, "0"),
            "The port that this node announces to clients, if it differs from `port`; 0 announces `port`.",
        ),
        _setting(
            *("cluster-announce-bus-port", PORT, "0"),
            "The port that this node announces to other nodes, if it differs from `cluster_port`; 0: the same.",
        ),
        _changeable(
            *("cluster-node-timeout", WholeNumber(1, INT_MAX), "15000"),
            "Suspect a node to have failed after it has not answered for this many milliseconds.",
        ),
        _setting(
            *("cluster-config-file", Text(255), "nodes.conf"),
            "The file, relative to `dir`, in which the node stores its peers; do not edit it.",
        ),
    ),
}
SETTINGS: Final[tuple[Setting, ...]] = tuple(setting for group in GROUPS.values() for setting in group)

# The order of Disque's reply to CONFIG GET. Our own settings follow.
DISQUE_ORDER: Final = (
    *("requirepass", "unixsocket", "logfile", "pidfile"),
    *("maxmemory", "maxmemory-samples", "timeout", "tcp-keepalive"),
    *("auto-aof-rewrite-percentage", "auto-aof-rewrite-min-size"),
    *("slowlog-log-slower-than", "latency-monitor-threshold", "slowlog-max-len"),
    *("port", "tcp-backlog", "databases", "maxclients", "watchdog-period", "hz", "cluster-node-timeout"),
    *("no-appendfsync-on-rewrite", "daemonize", "activerehashing"),
    *("aof-rewrite-incremental-fsync", "aof-load-truncated", "aof-enqueue-jobs-once"),
    *("appendonly", "dir", "maxmemory-policy", "appendfsync", "loglevel", "syslog-facility"),
    *("client-output-buffer-limit", "unixsocketperm", "bind"),
)


def _spelled(word: str) -> str:
    """Return a name of a setting in the spelling that is used to look it up."""
    return word.lower().replace("_", "-")


_BY_WORD: Final[dict[str, Setting]] = {
    _spelled(word): setting for setting in SETTINGS for word in (setting.name, setting.directive)
}


def find(word: str) -> Setting | None:
    """Return the setting with this name or Disque directive, or None."""
    return _BY_WORD.get(_spelled(word)) if len(word) <= WORD_CHARACTERS_MAX else None


def suggestion(word: str, prefix: str = "") -> str:
    """Return the end of an error sentence that suggests the setting with the most similar name, or ""."""
    if len(word) > WORD_CHARACTERS_MAX:
        return ""
    close = difflib.get_close_matches(_spelled(word), _BY_WORD, 1, 0.7)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def quoted_input(text: str) -> str:
    """Return a user's input for an error message: shortened, and without characters that could garble a terminal."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
