"""THE table of settings: one row each. Flags, environment, files, CONFIG and the documentation are all read off it.

A setting has a name, for Python, TOML, flags (`--max-clients`) and the environment (`PENSTOCK_MAX_CLIENTS`), and a
directive, which is Disque's word where Disque has the setting: in its config files, in CONFIG, and as a flag
(`--maxclients`). Either is understood wherever settings are given. Defaults are written as people write values. A
server started from a config file of Disque's has Disque's defaults where its operators may rely on them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.core.limits import BODY_BYTES_HARD_MAX
from penstock.server.driver_modules import DriverModules
from penstock.server.kinds import (
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
    Whole,
    YesNo,
)
from penstock.server.spaces import XqueueSpaces
from penstock.server.users import Users

INT_MAX: Final = (1 << 31) - 1
PORT: Final = Whole(0, 65_535)
# Longer than any setting's name: what CONFIG SET brings may be of any length.
WORD_CHARACTERS_MAX: Final = 64
PASSWORD: Final = Text(512)  # As long as Disque's may be.


class ConfigError(PenstockError):
    """Something is wrong with how the server is configured; the message is one sentence for its operator."""


class CannotListen(PenstockError):
    """A port or a socket that was asked for cannot be had; the message is one sentence for the server's operator."""


class UnknownSetting(ConfigError):
    """There is no such setting, or none that can be changed at run time."""

    def __init__(self, directive: str, message: str) -> None:
        super().__init__(message)
        self.directive = directive


class BadValue(ConfigError):
    """A setting cannot have this value."""

    def __init__(self, directive: str, text: str, message: str) -> None:
        super().__init__(message)
        self.directive = directive
        self.text = text


@dataclass(frozen=True)
class Setting:
    """One row."""

    name: str
    directive: str
    kind: Kind[Any]
    default: str
    description: str  # One sentence.
    disque_default: str | None = None  # The default in a config file of Disque's, where it is another.
    changeable: bool = False  # By CONFIG SET.
    secret: bool = False  # Never shown: CONFIG GET and `penstock config show` only say whether there is one.
    only_in_file: bool = False  # Neither flags nor the environment may give it.

    @property
    def in_config_get(self) -> bool:
        return not isinstance(self.kind, Collected)


# By what they are about; each group is a table in the documentation. A row that takes several lines has on the first
# what the setting is, and then what there is to say about it.
GROUPS: Final[dict[str, tuple[Setting, ...]]] = {
    "Listening": (
        Setting("port", "port", PORT, "7711", "The TCP port for RESP clients; 0 opens none."),
        Setting(
            *("iproto_port", "iproto-port", PORT, "3301"),
            "The TCP port for clients of Tarantool's queues; 0 opens none.",
            disque_default="0",
        ),
        Setting(
            *("iproto15_port", "iproto15-port", PORT, "0"),
            "The TCP port where `queue.statistics` is that of the 1.5 API, mostly 33020; 0 opens none.",
        ),
        Setting("bind", "bind", Texts("addresses", 16), "127.0.0.1", "The addresses to listen on."),
        Setting(
            *("protected_mode", "protected-mode", YesNo(), "yes"),
            "Whether clients from elsewhere are refused while there is neither a password nor TLS.",
            changeable=True,
        ),
        Setting("tcp_backlog", "tcp-backlog", Whole(0, INT_MAX), "511", "How many connections wait to be accepted."),
        Setting(
            *("unixsocket", "unixsocket", Text(107), ""),
            "The path of a Unix socket to listen on, relative to `dir`; empty for none.",
        ),
        Setting(
            *("unixsocketperm", "unixsocketperm", Mode(), "0"),
            "The permissions of the Unix socket; 0 leaves them to the umask, but others may never write.",
        ),
        Setting("http_port", "http-port", PORT, "0", "The port for metrics and health checks over HTTP; 0 opens none."),
        Setting(
            *("http_bind", "http-bind", Texts("addresses", 16), "127.0.0.1"), "The addresses to listen on for HTTP."
        ),
        Setting(
            *("http_hosts", "http-hosts", HostNames(), ""),
            "The domain names that HTTP requests may give in `Host`, besides IP addresses, names without a dot, "
            "`*.localhost` and the hostname of this machine; `*` allows every name.",
            changeable=True,
        ),
    ),
    "TLS": (
        Setting("tls_port", "tls-port", PORT, "0", "The TCP port for RESP clients that use TLS; 0 opens none."),
        Setting(
            *("iproto_tls_port", "iproto-tls-port", PORT, "0"),
            "The TCP port for clients of Tarantool's queues that use TLS; 0 opens none.",
        ),
        Setting(
            *("iproto15_tls_port", "iproto15-tls-port", PORT, "0"),
            "The same where `queue.statistics` is that of the 1.5 API.",
        ),
        Setting("tls_cert_file", "tls-cert-file", File(), "", "The server's certificate and its chain, in PEM."),
        Setting("tls_key_file", "tls-key-file", File(), "", "The key of the certificate, in PEM."),
        Setting(
            *("tls_ca_cert_file", "tls-ca-cert-file", File(), ""),
            "The certificates of the authorities that clients' certificates are checked against, in PEM.",
        ),
        Setting(
            *("tls_auth_clients", "tls-auth-clients", Choice("no", "optional", "yes"), "no"),
            "Whether clients must have a certificate.",
        ),
    ),
    "Who may do what": (
        Setting(
            *("requirepass", "requirepass", PASSWORD, ""),
            "The password that clients must give with AUTH; empty for none.",
            changeable=True,
            secret=True,
        ),
        Setting("users", "user", Users(), "", "Users with passwords and permissions of their own.", secret=True),
        Setting("rename_command", "rename-command", Renames(), "", "Commands under other names, or none.", secret=True),
        Setting(
            *("debug_commands", "debug-commands", YesNo(), "no"),
            "Whether DEBUG may do what can harm the server, for an admin on this machine.",
        ),
        Setting(
            *("drivers", "driver", DriverModules(), ""),
            "Types of tubes that are Python code, each with its module and class, as `my_drivers:Lifo`; only the "
            "configuration file can name them.",
            only_in_file=True,
        ),
    ),
    "Clients of Tarantool": (
        Setting(
            *("queue_in_replicaset", "queue-in-replicaset", YesNo(), "no"),
            "Refuse temporary tubes in queue.create_tube, as Tarantool's queue does with in_replicaset.",
            changeable=True,
        ),
        Setting(
            *("queue15_pri_mode", "queue15-pri-mode", Choice("absolute", "offset"), "absolute"),
            "Whether the priority of the 1.5 API is 0 to 255 as its document says, or is added to 127 as its code did.",
            changeable=True,
        ),
        Setting("xqueue", "xqueue", XqueueSpaces(), "", "Spaces of xqueue that are there from the start."),
    ),
    "Limits of a client": (
        Setting(
            *("max_clients", "maxclients", Whole(1, 1_000_000), "10000"),
            "How many clients may be connected at a time, with unfinished TLS handshakes, if the system allows as "
            "many open files and 256 more.",
            changeable=True,
        ),
        Setting(
            *("timeout", "timeout", Seconds(), "0"),
            "How long a client may be idle before it is disconnected, unless it waits for an answer; 0 for ever.",
            changeable=True,
        ),
        Setting(
            *("tcp_keepalive", "tcp-keepalive", Keepalive(), "300"),
            "How long a connection is quiet before TCP checks that the other side is still there; 0 never checks, and "
            "what is longer than 32,767 s is taken as that.",
            disque_default="0",
            changeable=True,
        ),
        Setting(
            *("auth_timeout", "auth-timeout", Seconds(0.001), "10s"),
            "How long a new client may take to give its password, where one is required.",
            changeable=True,
        ),
        Setting(
            *("progress_timeout", "progress-timeout", Seconds(0.001), "30s"),
            "How long a client may take to send one command, from its first byte to its last.",
            changeable=True,
        ),
        Setting(
            *("session_grace", "session-grace", Seconds(), "0"),
            "How long the jobs of a client that disconnected wait for it to come back.",
            changeable=True,
        ),
        Setting(
            *("max_body", "max-body", Size(0, BODY_BYTES_HARD_MAX), "64mb"),
            "How large the body of a job may be.",
            changeable=True,
        ),
        Setting(
            *("max_query_buffer", "max-query-buffer", Size(1 << 20), "1gb"),
            "How much a client may send ahead of what was executed before it is disconnected.",
            changeable=True,
        ),
        Setting(
            *("output_limit", "client-output-buffer-limit", OutputLimits(), "64mb 16mb 30"),
            "How much may wait to be sent to a client before it is disconnected: at once, or for so many seconds; "
            "0 is no limit.",
            disque_default="0 0 0",
            changeable=True,
        ),
    ),
    "Memory": (
        Setting(
            *("max_memory", "maxmemory", Size(1, of_memory=True), "50%"),
            "How much memory the jobs may take.",
            disque_default="1gb",
            changeable=True,
        ),
        Setting(
            *("max_memory_policy", "maxmemory-policy", Choice("acks", "noeviction"), "acks"),
            "Whether a server without a journal that runs out of memory may forget acked jobs before it refuses puts.",
            changeable=True,
        ),
        Setting(
            *("max_memory_samples", "maxmemory-samples", Whole(1, INT_MAX), "5"),
            "Has no effect: what to forget is not found by sampling.",
            changeable=True,
        ),
    ),
    "Journal": (
        Setting(
            *("dir", "dir", Folder(), "./penstock-data"),
            "The directory of the journal and of the node's identity, made if it is not there.",
            disque_default=".",
        ),
        Setting(
            *("journal", "appendonly", YesNo(), "yes"),
            "Whether jobs are kept on disk.",
            disque_default="no",
            changeable=True,
        ),
        Setting(
            *("fsync", "appendfsync", Choice("always", "everysec", "never", disque={"never": "no"}), "always"),
            "Whether a reply waits until what it says is on disk, or that follows within a second, or when the system "
            "pleases.",
            disque_default="everysec",
            changeable=True,
        ),
        Setting("history", "history", Seconds(off=True), "7d", "How long what happened can be looked up."),
        Setting("history_bytes", "history-bytes", Size(), "1gb", "How much of what happened is kept at most."),
        Setting("history_bodies", "history-bodies", YesNo(), "yes", "Whether history has the bodies of jobs in it."),
        Setting(
            *("aof_enqueue_jobs_once", "aof-enqueue-jobs-once", YesNo(), "no"),
            "Whether the next start loads the journal even if `journal` is no; it is then set back to no.",
            changeable=True,
        ),
        Setting(
            *("aof_load_truncated", "aof-load-truncated", YesNo(), "yes"),
            "Has no effect: the torn end that a crash leaves is always cut off, with a warning.",
            changeable=True,
        ),
        Setting(
            *("appendfilename", "appendfilename", Text(255), "disque.aof"),
            "Has no effect: the files of the journal have names of their own.",
        ),
        Setting(
            *("no_appendfsync_on_rewrite", "no-appendfsync-on-rewrite", YesNo(), "no"),
            "Has no effect: a snapshot never holds up a sync.",
        ),
        Setting(
            *("auto_aof_rewrite_percentage", "auto-aof-rewrite-percentage", Whole(0, INT_MAX), "100"),
            "Has no effect: the journal decides by itself when it takes a snapshot.",
            changeable=True,
        ),
        Setting(
            *("auto_aof_rewrite_min_size", "auto-aof-rewrite-min-size", Size(), "64mb"),
            "Has no effect: the journal decides by itself when it takes a snapshot.",
            changeable=True,
        ),
        Setting(
            *("aof_rewrite_incremental_fsync", "aof-rewrite-incremental-fsync", YesNo(), "yes"),
            "Has no effect: snapshots are always written in slices.",
            changeable=True,
        ),
    ),
    "Log and process": (
        Setting(
            *("loglevel", "loglevel", Choice("debug", "verbose", "notice", "warning"), "notice"),
            "The least important messages that are logged.",
            changeable=True,
        ),
        Setting("logfile", "logfile", Text(), "", "The file to log to, relative to `dir`; empty for standard output."),
        Setting("log_format", "log-format", Choice("text", "json"), "text", "How a line of the log is written."),
        Setting("daemonize", "daemonize", YesNo(), "no", "Whether the server goes into the background when it serves."),
        Setting(
            *("pidfile", "pidfile", Text(), "/var/run/penstock.pid"),
            "The file that a server in the background writes its process id to, relative to `dir`.",
            disque_default="/var/run/disque.pid",
        ),
        Setting(
            *("slowlog_log_slower_than", "slowlog-log-slower-than", Whole(-1), "10000"),
            "From how many microseconds on a command is in the slow log; 0 logs all, -1 none.",
            changeable=True,
        ),
        Setting(
            *("slowlog_max_len", "slowlog-max-len", Whole(0, 1_000_000), "128"),
            "How many commands the slow log keeps.",
            changeable=True,
        ),
        Setting(
            *("latency_monitor_threshold", "latency-monitor-threshold", Whole(0), "0"),
            "From how many milliseconds on LATENCY remembers what took so long; 0 remembers nothing.",
            changeable=True,
        ),
        Setting(
            *("linger", "linger", Whole(0, 10_000), "100"),
            "For how many microseconds the server stays awake after a command, where the next mostly comes as soon, "
            "since being woken takes longer than a command; 0 lets it sleep at once, which costs less of a processor.",
            changeable=True,
        ),
        Setting("syslog_enabled", "syslog-enabled", YesNo(), "no", "Has no effect: let what starts the server log."),
        Setting("syslog_ident", "syslog-ident", Text(), "disque", "Has no effect, as there is no syslog."),
        Setting(
            *("syslog_facility", "syslog-facility", Choice("user", *(f"local{n}" for n in range(8))), "local0"),
            "Has no effect, as there is no syslog.",
        ),
        Setting("databases", "databases", Whole(1, INT_MAX), "16", "Has no effect, as in Disque."),
        Setting(
            *("hz", "hz", Whole(1, 500, clamps=True), "10"),
            "Has no effect: timers are kept to the millisecond.",
            changeable=True,
        ),
        Setting(
            *("activerehashing", "activerehashing", YesNo(), "yes"),
            "Has no effect: there is nothing to rehash.",
            changeable=True,
        ),
        Setting(
            *("watchdog_period", "watchdog-period", Whole(0, INT_MAX), "0"),
            "Has no effect: there is no watchdog.",
            changeable=True,
        ),
    ),
    "Cluster": (
        Setting(
            *("cluster_port", "cluster-port", PORT, "0"),
            "The TCP port for other nodes; 0 is 10,000 above `port`, or none if there is no such port.",
        ),
        Setting(
            *("cluster_secret", "cluster-secret", Secret(), ""),
            "What all nodes of a cluster know and nobody else does; without it, or `tls-cluster`, nodes connect on one "
            "machine only, and only while the server has no password and no users.",
            secret=True,
        ),
        Setting(
            *("tls_cluster", "tls-cluster", YesNo(), "no"),
            "Whether nodes connect over TLS, each with a certificate that `tls-cluster-ca-cert-file` has signed.",
        ),
        Setting(
            *("tls_cluster_ca_cert_file", "tls-cluster-ca-cert-file", File(), ""),
            "The certificates of the authorities that sign nodes, in PEM; they must sign nothing else, because every "
            "certificate of theirs can join the cluster.",
        ),
        Setting(
            *("tls_cluster_cert_file", "tls-cluster-cert-file", File(), ""),
            "This node's certificate for other nodes, in PEM; empty for `tls-cert-file`.",
        ),
        Setting(
            *("tls_cluster_key_file", "tls-cluster-key-file", File(), ""),
            "The key of that certificate, in PEM; empty for `tls-key-file`.",
        ),
        Setting(
            *("tls_cluster_name", "tls-cluster-name", Text(255), ""),
            "A DNS name that the certificate of every node must have; empty if each must have the IP address of its "
            "node instead.",
        ),
        Setting(
            *("cluster_announce_ip", "cluster-announce-ip", Text(45), ""),
            "The address where other nodes and clients find this one, if that is not the one that they see.",
        ),
        Setting(
            *("cluster_announce_port", "cluster-announce-port", PORT, "0"),
            "The port where clients find this node, if it is another from outside; 0 if it is not.",
        ),
        Setting(
            *("cluster_announce_bus_port", "cluster-announce-bus-port", PORT, "0"),
            "The port where other nodes find this one, if it is another from outside; 0 if it is not.",
        ),
        Setting(
            *("cluster_node_timeout", "cluster-node-timeout", Whole(1, INT_MAX), "15000"),
            "The milliseconds after which a node that does not answer is suspected to have failed.",
            changeable=True,
        ),
        Setting(
            *("cluster_config_file", "cluster-config-file", Text(255), "nodes.conf"),
            "The file, relative to `dir`, in which the node keeps whom it knows; it is no file to edit.",
        ),
    ),
}
SETTINGS: Final[tuple[Setting, ...]] = tuple(setting for group in GROUPS.values() for setting in group)

# The order in which Disque answers CONFIG GET. What it does not answer comes after.
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
    """The one spelling by which settings are found."""
    return word.lower().replace("_", "-")


_BY_WORD: Final[dict[str, Setting]] = {
    _spelled(word): setting for setting in SETTINGS for word in (setting.name, setting.directive)
}


def find(word: str) -> Setting | None:
    """The setting that has this name or this directive."""
    return _BY_WORD.get(_spelled(word)) if len(word) <= WORD_CHARACTERS_MAX else None


def meant(word: str, prefix: str = "") -> str:
    """What may have been meant by a word that is no setting: the end of a sentence, or nothing."""
    if len(word) > WORD_CHARACTERS_MAX:
        return ""
    close = difflib.get_close_matches(_spelled(word), _BY_WORD, 1, 0.7)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def cited(text: str) -> str:
    """Something that was given, as an error may repeat it: not too long, and without what could garble a terminal."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
