"""The table of commands over RESP. Dispatch, COMMAND, permissions and docs/reference/protocol.md are derived from it.

Flags are those of Disque's COMMAND: w writes, r only reads, m is refused when memory is full, a is for administrators,
l also runs while loading, F is fast.
"""

from __future__ import annotations

from typing import Final

from penstock.node.caller import ADMIN, DEBUG, EVERYTHING, READ, WRITE
from penstock.node.dispatch import Command, CommandFamily
from penstock.server.commands.client_commands import ClientCommands
from penstock.server.commands.cluster_commands import ClusterCommands
from penstock.server.commands.config_commands import ConfigCommands
from penstock.server.commands.connection_commands import ConnectionCommands
from penstock.server.commands.debug_commands import GRAMMAR, Debugging
from penstock.server.commands.function_table import function_rows
from penstock.server.commands.info_command import Info
from penstock.server.commands.native_table import Row, native_rows
from penstock.server.commands.persistence_commands import Persistence
from penstock.server.commands.pipeline_table import pipeline_rows
from penstock.server.commands.scan_commands import ScanCommands
from penstock.server.commands.slowlog_commands import Latency, Slowlog
from penstock.server.hooks import ServerHooks, connect_server
from penstock.server.server import Server

# Commands that show or change the data of all tubes.
_WHOLE_SERVER: Final = frozenset(["monitor", "slowlog", "latency", "config", "bgrewriteaof", "shutdown", "debug"])


def commands_of(rows: list[Row]) -> list[Command]:
    """Make commands from rows of the table. Rows with the same first word become one command (see CommandFamily)."""
    commands: list[Command] = []
    families: dict[str, CommandFamily] = {}
    for name, arity, flags, group, grammar, summary, handler in rows:
        is_open = name in ("hello", "auth")
        is_whole = name in _WHOLE_SERVER
        command = Command(name, arity, flags, group, grammar, summary, handler, is_open, is_whole)  # type: ignore[arg-type]
        first, _, second = name.partition(" ")
        if second:
            families.setdefault(first, CommandFamily(first)).add(command)
        else:
            commands.append(command)
    return commands + [family.as_command() for family in families.values()]


def install(server: Server) -> Info:
    """Add all commands to a server. Return the handler of INFO, whose `sample` has to be called periodically."""
    greeting, clients, info = ConnectionCommands(server), ClientCommands(server), Info(server)
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
            "Add a job to a queue. Return its id.",
            disque.addjob,
        ),
        (
            "getjob",
            -2,
            "wF",
            WRITE,
            "[NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue [queue ...]",
            "Take jobs from queues, or wait for one.",
            disque.getjob,
        ),
        (
            "ackjob",
            -1,
            "wF",
            WRITE,
            ids,
            "Acknowledge jobs on all nodes, so that they are not delivered again.",
            disque.ackjob,
        ),
        (
            "fastack",
            -1,
            "wF",
            WRITE,
            ids,
            "Acknowledge jobs with fewer messages between nodes; on a single node, the same as ACKJOB.",
            disque.fastack,
        ),
        (
            "working",
            2,
            "wF",
            WRITE,
            "id",
            "Postpone the next delivery of a job by its retry time.",
            disque.working,
        ),
        ("nack", -1, "mwF", WRITE, ids, "Report that jobs failed, and queue them again at once.", disque.nack),
        ("enqueue", -1, "mwF", WRITE, ids, "Queue jobs that are active or delayed.", disque.enqueue),
        ("dequeue", -1, "wF", WRITE, ids, "Remove jobs from their queues without delivering them.", disque.dequeue),
        ("deljob", -1, "wF", WRITE, ids, "Delete jobs in any state.", disque.deljob),
        ("show", 2, "rF", READ, "id", "Describe a job.", disque.show),
        (
            "loadjob",
            2,
            "w",
            WRITE,
            "serialized-job",
            "Refused: only Disque's AOF contains this command.",
            persistence.loadjob,
        ),
        # Queues
        ("qlen", 2, "rF", READ, "queue", "Count the jobs of a queue that can be taken.", disque.qlen),
        ("qstat", 2, "rF", READ, "queue", "Describe a queue.", disque.qstat),
        ("qpeek", 3, "r", READ, "queue count", "Show the first jobs of a queue, or the last.", scans.qpeek),
        (
            "pause",
            -3,
            "rF",
            WRITE,
            "queue in|out|all|none|state|bcast [...]",
            "Pause a queue for incoming jobs, outgoing jobs or both, or resume it.",
            disque.pause,
        ),
        (
            "qscan",
            -1,
            "r",
            READ,
            "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]",
            "Iterate over the queues.",
            scans.qscan,
        ),
        (
            "jscan",
            -1,
            "r",
            READ,
            "[cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY all|id]",
            "Iterate over the jobs.",
            scans.jscan,
        ),
        # The connection
        (
            "hello",
            -1,
            "rF",
            EVERYTHING,
            "[2|3 [AUTH user password] [SETNAME name]]",
            "Without arguments, list the nodes. With a version, use RESP 2 or 3.",
            greeting.hello,
        ),
        ("auth", -2, "rlF", EVERYTHING, "[user] password", "Authenticate the connection.", greeting.auth),
        ("ping", -1, "rF", EVERYTHING, "[message]", "Return PONG, or the message.", greeting.ping),
        (
            "time",
            1,
            "rF",
            EVERYTHING,
            "",
            "Return the time in seconds, and the microseconds of the second.",
            greeting.time,
        ),
        (
            "command",
            0,
            "rl",
            EVERYTHING,
            "[COUNT | LIST | INFO name ... | DOCS name ...]",
            "List and describe commands.",
            greeting.command,
        ),
        (
            "client",
            -2,
            "ar",
            EVERYTHING,
            "LIST | ID | GETNAME | SETNAME name | SETINFO what value | KILL … | PAUSE ms | REPLY ON|OFF|SKIP",
            "List, name and close connections.",
            clients.client,
        ),
        # The server
        ("info", -1, "rl", READ, "[section]", "Return statistics of the server.", info.info),
        ("monitor", 1, "ar", ADMIN, "", "Stream all commands that the server runs.", clients.monitor),
        ("slowlog", -2, "r", ADMIN, "GET [count] | LEN | RESET", "List slow commands.", slowlog.slowlog),
        (
            "latency",
            -2,
            "arl",
            ADMIN,
            "HISTORY event | LATEST | RESET [event ...] | GRAPH event | DOCTOR",
            "Show latency spikes by event.",
            latency.latency,
        ),
        (
            "config",
            -2,
            "ar",
            ADMIN,
            "GET pattern | SET name value | RESETSTAT | REWRITE",
            "Show and change the configuration.",
            config.config,
        ),
        (
            "cluster",
            -2,
            "ar",
            ADMIN,
            "MEET ip port [bus-port] | NODES | HOMES | MYID | INFO | SAVECONFIG | FORGET [id] | "
            "COUNT-FAILURE-REPORTS id | EPOCH id [epoch] | RESET [SOFT|HARD] | LEAVING [yes|no]",
            "Show and change the cluster.",
            cluster.cluster,
        ),
        ("bgrewriteaof", 1, "ar", ADMIN, "", "Shorten the journal in the background.", persistence.bgrewriteaof),
        ("shutdown", -1, "arl", ADMIN, "[REWRITE-AOF]", "Stop the server.", persistence.shutdown),
        ("debug", -2, "a", DEBUG, GRAMMAR, "Run a subcommand for tests.", debugging.debug),
    ]
    for command in commands_of([*rows, *native_rows(server), *pipeline_rows(server), *function_rows(server)]):
        server.desk.add(command, command.name)
    connect_server(server, ServerHooks(server, clients.show, slowlog, latency))
    return info
