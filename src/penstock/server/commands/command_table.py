"""The table of commands over RESP. Dispatch, COMMAND, permissions and docs/reference/protocol.md are derived from it.

Flags are those of Disque's COMMAND: w writes, r only reads, m is refused when memory is full, a is for administrators,
l also runs while loading, F is fast.
"""

from __future__ import annotations

from penstock.node.dispatch import Command, CommandFamily
from penstock.server.commands.client_commands import ClientCommands
from penstock.server.commands.cluster_commands import ClusterCommands
from penstock.server.commands.config_commands import ConfigCommands
from penstock.server.commands.connection_commands import ConnectionCommands
from penstock.server.commands.debug_commands import GRAMMAR, Debugging
from penstock.server.commands.function_table import function_rows
from penstock.server.commands.info_command import Info
from penstock.server.commands.native_table import command, native_rows
from penstock.server.commands.persistence_commands import Persistence
from penstock.server.commands.pipeline_table import pipeline_rows
from penstock.server.commands.scan_commands import ScanCommands
from penstock.server.commands.slowlog_commands import Latency, Slowlog
from penstock.server.commands.token_table import token_rows
from penstock.server.hooks import ServerHooks, connect_server
from penstock.server.server import Server


def commands_of(rows: list[Command]) -> list[Command]:
    """Return the commands of the table. Rows with the same first word become one command (see CommandFamily)."""
    commands: list[Command] = []
    families: dict[str, CommandFamily] = {}
    for row in rows:
        first, _, second = row.name.decode().partition(" ")
        if second:
            families.setdefault(first, CommandFamily(first)).add(row)
        else:
            commands.append(row)
    return commands + [family.as_command() for family in families.values()]


def install(server: Server) -> Info:
    """Add all commands to a server. Return the handler of INFO, whose `sample` has to be called periodically."""
    greeting, clients, info = ConnectionCommands(server), ClientCommands(server), Info(server)
    cluster, debugging, persistence = ClusterCommands(server), Debugging(server), Persistence(server)
    slowlog, latency, scans = Slowlog(server), Latency(server), ScanCommands(server)
    config, disque = ConfigCommands(server, info), server.disque
    ids = "id [id ...]"
    rows = [
        # Jobs
        command(
            "addjob -4 wmF write",
            "queue body ms-timeout [REPLICATE n] [DELAY s] [RETRY s] [TTL s] [MAXLEN n] [ASYNC] [HEADER name value]",
            *("Add a job to a queue. Return its id.", disque.addjob),
        ),
        command(
            *(
                "getjob -2 wF write",
                "[NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] [WITHHEADERS] FROM queue [queue ...]",
            ),
            *("Take jobs from queues, or wait for one.", disque.getjob),
        ),
        command(
            *("ackjob -1 wF write", ids),
            *("Acknowledge jobs on all nodes, so that they are not delivered again.", disque.ackjob),
        ),
        command(
            *("fastack -1 wF write", ids),
            "Acknowledge jobs with fewer messages between nodes; on a single node, the same as ACKJOB.",
            disque.fastack,
        ),
        command("working 2 wF write", "id", "Postpone the next delivery of a job by its retry time.", disque.working),
        command("nack -1 mwF write", ids, "Report that jobs failed, and queue them again at once.", disque.nack),
        command("enqueue -1 mwF write", ids, "Queue jobs that are active or delayed.", disque.enqueue),
        command("dequeue -1 wF write", ids, "Remove jobs from their queues without delivering them.", disque.dequeue),
        command("deljob -1 wF write", ids, "Delete jobs in any state.", disque.deljob),
        command("show 2 rF read", "id", "Describe a job.", disque.show),
        command(
            *("loadjob 2 w write", "serialized-job"),
            *("Refused: only Disque's AOF contains this command.", persistence.loadjob),
        ),
        # Queues
        command("qlen 2 rF read", "queue", "Count the jobs of a queue that can be taken.", disque.qlen),
        command("qstat 2 rF read", "queue", "Describe a queue.", disque.qstat),
        command("qpeek 3 r read", "queue count", "Show the first jobs of a queue, or the last.", scans.qpeek),
        command(
            *("pause -3 rF write", "queue in|out|all|none|state|bcast [...]"),
            *("Pause a queue for incoming jobs, outgoing jobs or both, or resume it.", disque.pause),
        ),
        command(
            *("qscan -1 r read", "[cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n]"),
            *("Iterate over the queues.", scans.qscan),
        ),
        command(
            *("jscan -1 r read", "[cursor] [COUNT n] [BUSYLOOP] [QUEUE queue] [STATE state ...] [REPLY all|id]"),
            *("Iterate over the jobs.", scans.jscan),
        ),
        # The connection
        command(
            *("hello -1 rF all", "[2|3 [AUTH user password] [SETNAME name]]"),
            *("Without arguments, list the nodes. With a version, use RESP 2 or 3.", greeting.hello),
        ),
        command("auth -2 rlF all", "[user] password", "Authenticate the connection.", greeting.auth),
        command("ping -1 rF all", "[message]", "Return PONG, or the message.", greeting.ping),
        command("time 1 rF all", "", "Return the time in seconds, and the microseconds of the second.", greeting.time),
        command(
            *("command 0 rl all", "[COUNT | LIST | INFO name ... | DOCS name ...]"),
            *("List and describe commands.", greeting.command),
        ),
        command(
            "client -2 ar all",
            "LIST | ID | GETNAME | SETNAME name | SETINFO what value | KILL … | PAUSE ms | REPLY ON|OFF|SKIP",
            *("List, name and close connections.", clients.client),
        ),
        # The server
        command("info -1 rl read", "[section]", "Return statistics of the server.", info.info),
        command("monitor 1 ar admin", "", "Stream all commands that the server runs.", clients.monitor),
        command("slowlog -2 r admin", "GET [count] | LEN | RESET", "List slow commands.", slowlog.slowlog),
        command(
            *("latency -2 arl admin", "HISTORY event | LATEST | RESET [event ...] | GRAPH event | DOCTOR"),
            *("Show latency spikes by event.", latency.latency),
        ),
        command(
            *("config -2 ar admin", "GET pattern | SET name value | RESETSTAT | REWRITE"),
            *("Show and change the configuration.", config.config),
        ),
        command(
            "cluster -2 ar admin",
            "MEET ip port [bus-port] | NODES | HOMES | MYID | INFO | SAVECONFIG | FORGET [id] | "
            "COUNT-FAILURE-REPORTS id | EPOCH id [epoch] | RESET [SOFT|HARD] | LEAVING [yes|no]",
            *("Show and change the cluster.", cluster.cluster),
        ),
        command("bgrewriteaof 1 ar admin", "", "Shorten the journal in the background.", persistence.bgrewriteaof),
        command("shutdown -1 arl admin", "[REWRITE-AOF]", "Stop the server.", persistence.shutdown),
        command("debug -2 a debug", GRAMMAR, "Run a subcommand for tests.", debugging.debug),
    ]
    native = [*native_rows(server), *pipeline_rows(server), *token_rows(server), *function_rows(server)]
    for row in commands_of([*rows, *native]):
        server.dispatcher.add(row, row.name)
    connect_server(server, ServerHooks(server, clients.show, slowlog, latency))
    return info
