"""THE table of commands over RESP: dispatch, COMMAND, permissions and docs/reference/protocol.md are made from it.

Flags are those of Disque's COMMAND: w writes, r only reads, m is refused when memory is full, a is for administrators,
l also runs while loading, F is fast.
"""

from __future__ import annotations

from typing import Final

from penstock.dialects.command import ADMIN, DEBUG, EVERYTHING, READ, WRITE, Command, Family
from penstock.server.client_commands import ClientCommands
from penstock.server.cluster_commands import ClusterCommands
from penstock.server.config_commands import ConfigCommands
from penstock.server.connection import Connection
from penstock.server.debugging import GRAMMAR, Debugging
from penstock.server.functions import function_rows
from penstock.server.greeting import Greeting
from penstock.server.info import Info
from penstock.server.native_table import Row, native_rows
from penstock.server.observing import Latency, Slowlog
from penstock.server.persistence import Persistence
from penstock.server.pipeline_table import pipeline_rows
from penstock.server.scan_commands import ScanCommands
from penstock.server.server import Server

# Commands that show or change what belongs to every tube.
_WHOLE_SERVER: Final = frozenset(["monitor", "slowlog", "latency", "config", "bgrewriteaof", "shutdown", "debug"])


def commands_of(rows: list[Row]) -> list[Command]:
    """The commands of some rows; rows of two words make one command for each first word."""
    commands: list[Command] = []
    families: dict[str, Family] = {}
    for name, arity, flags, group, grammar, summary, handler in rows:
        is_open = name in ("hello", "auth")
        is_whole = name in _WHOLE_SERVER
        command = Command(name, arity, flags, group, grammar, summary, handler, is_open, is_whole)  # type: ignore[arg-type]
        first, _, second = name.partition(" ")
        if second:
            families.setdefault(first, Family(first)).add(command)
        else:
            commands.append(command)
    return commands + [family.as_command() for family in families.values()]


def install(server: Server) -> Info:
    """Give a server its commands; one of them wants to look at its figures now and then."""
    greeting, clients, info = Greeting(server), ClientCommands(server), Info(server)
    cluster, debugging, persistence = ClusterCommands(server), Debugging(server), Persistence(server)
    slowlog, latency, scans = Slowlog(server), Latency(server), ScanCommands(server)
    config, disque = ConfigCommands(server, info), server.disque
    ids = "id [id ...]"
    rows: list[Row] = [
        # Jobs
        (
            "addjob",
            -4,
            "wmF",
            WRITE,
            "queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC]",
            "Add a job to a queue, and answer its id.",
            disque.addjob,
        ),
        (
            "getjob",
            -2,
            "wF",
            WRITE,
            "[NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue [queue ...]",
            "Take jobs from the queues, or wait for one.",
            disque.getjob,
        ),
        ("ackjob", -1, "wF", WRITE, ids, "Say that jobs are done: they go, and are delivered no more.", disque.ackjob),
        (
            "fastack",
            -1,
            "wF",
            WRITE,
            ids,
            "The same with less ado between nodes; on one node, the same.",
            disque.fastack,
        ),
        (
            "working",
            2,
            "wF",
            WRITE,
            "id",
            "Ask for another retry time before a job is delivered again.",
            disque.working,
        ),
        ("nack", -1, "mwF", WRITE, ids, "Say that jobs failed: they are queued again at once.", disque.nack),
        ("enqueue", -1, "mwF", WRITE, ids, "Queue jobs that are active or delayed.", disque.enqueue),
        ("dequeue", -1, "wF", WRITE, ids, "Take jobs out of their queues without delivering them.", disque.dequeue),
        ("deljob", -1, "wF", WRITE, ids, "Delete jobs, whatever their state.", disque.deljob),
        ("show", 2, "rF", READ, "id", "Tell everything about a job.", disque.show),
        ("loadjob", 2, "w", WRITE, "serialized-job", "Not for clients: a line of Disque's AOF.", persistence.loadjob),
        # Queues
        ("qlen", 2, "rF", READ, "queue", "Count the jobs of a queue that can be taken.", disque.qlen),
        ("qstat", 2, "rF", READ, "queue", "Tell everything about a queue.", disque.qstat),
        ("qpeek", 3, "r", READ, "queue count", "Look at the first jobs of a queue, or the last.", scans.qpeek),
        (
            "pause",
            -3,
            "rF",
            WRITE,
            "queue in|out|all|none|state|bcast [...]",
            "Close a queue for jobs in, jobs out or both, or open it.",
            disque.pause,
        ),
        (
            "qscan",
            -1,
            "r",
            READ,
            "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]",
            "Go through the queues.",
            scans.qscan,
        ),
        (
            "jscan",
            -1,
            "r",
            READ,
            "[cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY all|id]",
            "Go through the jobs.",
            scans.jscan,
        ),
        # The connection
        (
            "hello",
            -1,
            "rF",
            EVERYTHING,
            "[2|3 [AUTH user password] [SETNAME name]]",
            "Alone: who the nodes are. With a version: speak RESP 2 or 3.",
            greeting.hello,
        ),
        ("auth", -2, "rlF", EVERYTHING, "[user] password", "Say who you are.", greeting.auth),
        ("ping", -1, "rF", EVERYTHING, "[message]", "Answer PONG, or the message.", greeting.ping),
        ("time", 1, "rF", EVERYTHING, "", "Tell the time: seconds, and microseconds of the second.", greeting.time),
        (
            "command",
            0,
            "rl",
            EVERYTHING,
            "[COUNT | LIST | INFO name ... | DOCS name ...]",
            "Tell which commands there are.",
            greeting.command,
        ),
        (
            "client",
            -2,
            "ar",
            EVERYTHING,
            "LIST | ID | GETNAME | SETNAME name | SETINFO what value | KILL … | PAUSE ms | REPLY ON|OFF|SKIP",
            "See, name and close connections.",
            clients.client,
        ),
        # The server
        ("info", -1, "rl", READ, "[section]", "Tell the figures of the server.", info.info),
        ("monitor", 1, "ar", ADMIN, "", "Show every command that the server runs.", clients.monitor),
        ("slowlog", -2, "r", ADMIN, "GET [count] | LEN | RESET", "Tell which commands took long.", slowlog.slowlog),
        (
            "latency",
            -2,
            "arl",
            ADMIN,
            "HISTORY event | LATEST | RESET [event ...] | GRAPH event | DOCTOR",
            "Tell what else took long.",
            latency.latency,
        ),
        (
            "config",
            -2,
            "ar",
            ADMIN,
            "GET pattern | SET name value | RESETSTAT | REWRITE",
            "See and change the configuration.",
            config.config,
        ),
        (
            "cluster",
            -2,
            "ar",
            ADMIN,
            "MEET ip port [bus-port] | NODES | HOMES | MYID | INFO | SAVECONFIG | FORGET [id] | "
            "COUNT-FAILURE-REPORTS id | EPOCH id [epoch] | RESET [SOFT|HARD] | LEAVING [yes|no]",
            "See and change the cluster.",
            cluster.cluster,
        ),
        ("bgrewriteaof", 1, "ar", ADMIN, "", "Shorten the journal in the background.", persistence.bgrewriteaof),
        ("shutdown", -1, "arl", ADMIN, "[REWRITE-AOF]", "Stop the server.", persistence.shutdown),
        ("debug", -2, "a", DEBUG, GRAMMAR, "What testing needs.", debugging.debug),
    ]
    for command in commands_of([*rows, *native_rows(server), *pipeline_rows(server), *function_rows(server)]):
        server.desk.add(command, command.name)
    server.desk.on_show = clients.show
    server.node.on_sync = lambda seconds: latency.add(b"aof-fsync-always", int(seconds * 1000))

    def was_slow(caller: Connection, args: list[bytes], ns: int) -> None:
        slowlog.add(caller, args, ns)
        command = server.desk.named(args[0])
        latency.add(b"fast-command" if command and "F" in command.flags else b"command", ns // 1_000_000)

    server.desk.on_slow = was_slow
    return info
