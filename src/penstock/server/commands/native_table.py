"""The rows of the command table for Penstock's native commands. A name of two words is a subcommand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.dialects.native.global_commands import GlobalCommands
from penstock.dialects.native.signal_commands import SignalCommands
from penstock.node.caller import EVERYTHING, GROUPS
from penstock.node.dispatch import Command
from penstock.server.commands.history_commands import HistoryCommands
from penstock.server.commands.session_commands import SessionCommands
from penstock.server.server import Server

# Commands that show or change the data of all tubes.
_WHOLE_SERVER: Final = frozenset(["monitor", "slowlog", "latency", "config", "bgrewriteaof", "shutdown", "debug"])

_PUT: Final = (
    "[DELAY d] [AT t] [TTL d] [TTR d] [PRIORITY n] [KEY k] [URGENT] [ONCE] [RETRY policy] [NAME n] [UNIQUE v] "
    "[DEDUP id] [NACKS n] [OPTIONS json] [NUMBER n] [STATE ready|buried|done] [NEW] [AS bytes|text|json|msgpack] "
    "[HEADER name value] [BATCH name]"
)
_THEN: Final = "THEN PUT tube body [option value ...] [THEN PUT ...]"
_TUBE: Final = (
    "[TTL d] [TTR d] [PRIORITY n] [TTL-WHILE-TAKEN waits|kills] [KEY-LIMIT n] [FAIR yes|no] [CAPACITY n] "
    "[CAPACITY-BYTES n] [RETRY policy] [MAX-DELIVERIES n] [DEAD-LETTER tube] [KEEP yes|no] [ZOMBIE d] "
    "[DEDUP-WINDOW d] [DEDUP-COUNT n] [TEMPORARY yes|no]"
)


def command(spec: str, grammar: str, summary: str, handler: Callable[[Any, list[bytes], int], None]) -> Command:
    """Return a command. `spec` has its name, arity, flags and group. Every user may run commands of the group "all"."""
    name, arity, flags, group = spec.rsplit(" ", 3)
    mask = EVERYTHING if group == "all" else GROUPS[group]
    is_open, is_whole = name in ("hello", "auth"), name in _WHOLE_SERVER
    return Command(name, int(arity), flags, mask, grammar, summary, handler, is_open, is_whole)


def native_rows(server: Server) -> list[Command]:
    native, tubes, jobs, history = server.native, server.tubes, server.jobs, HistoryCommands(server)
    everywhere, signals = GlobalCommands(server.context), SignalCommands(server.native)
    return [
        # Jobs
        command(
            *("put -3 wmF write", f"tube body {_PUT} [EXISTING] [TIMEOUT d]"),
            *("Put a job into a tube. Return its id.", native.put),
        ),
        command(
            *("mput -4 wm write", "tube [EXISTING] [option value ...] JOB body [option value ...] [JOB body ...]"),
            *("Put many jobs with the options of PUT, all or none. Return their ids.", native.mput),
        ),
        command(
            *("take -2 wF write", "tube [COUNT n] [TIMEOUT d] [KEY k] [TTR d] [HEADERS] [AND tube [tube ...]]"),
            *("Take jobs, or wait for one.", native.take),
        ),
        command(
            *("ack -2 wF write", f"id [id ...] | id {_THEN}"),
            "Acknowledge jobs, and return their number. With THEN, also put jobs, and return their ids.",
            native.ack,
        ),
        command(
            *("release -2 wF write", "id [DELAY d] [TTL d] [PRIORITY n] [KEY k] [OPTIONS json]"),
            *("Return a job to its tube unfinished.", native.release),
        ),
        command("requeue 2 wF write", "id", "Return a job to the end of its tube.", native.requeue),
        command(
            *("bury -2 wF write", f"id [REASON text] [{_THEN}]"),
            *("Bury a job, with a reason. With THEN, also put jobs.", native.bury),
        ),
        command("dig -2 wF write", "id [DELAY d] [TTL d] [PRIORITY n]", "Make a buried job ready again.", native.dig),
        command(
            *("kick -2 w write", "tube [count] [DELAY d] [TTL d]"),
            *("Make buried jobs ready again in their order, one by default. Return their number.", native.kick),
        ),
        command("job touch -3 wF write", "id [d]", "Restart the TTR of a taken job, or add a time to it.", jobs.touch),
        command(
            *("job nack -3 wF write", f"id [REASON text] [{_THEN}]"),
            "Return a job because it failed. Its retry policy decides what follows. With THEN, also put jobs.",
            jobs.nack,
        ),
        command(
            *("job done -4 wmF write", f"id result [AS bytes|text|json|msgpack] [TTL d] [{_THEN}]"),
            "Acknowledge a job, and keep its result as its body for a day, or for TTL. With THEN, also put jobs.",
            jobs.done,
        ),
        command("job delete -3 w write", "id [id ...]", "Delete jobs in any state. Return their number.", jobs.delete),
        command(
            "job snatch -3 wF write", "id [DELAY d]", "Take a job away from the consumer that has it.", jobs.snatch
        ),
        command("job restart -3 wF write", "id [DELAY d]", "Make a delayed or kept job ready again.", jobs.restart),
        command(
            *("job switch -4 wF write", "id ready|delayed|buried|done|zombie [DELAY d]"),
            *("Change the state of a job that is not taken.", jobs.switch),
        ),
        command(
            *("job priority 4 wF write", "id n"),
            *("Change the priority of a job that is not taken.", jobs.set_priority),
        ),
        command("job run 3 wF write", "id", "Make a delayed job ready now.", jobs.run),
        command(
            *("job edit -4 wmF write", "id body [AS bytes|text|json|msgpack]"),
            *("Replace the body of a job that is not taken.", jobs.edit),
        ),
        command("job move -4 wF write", "id tube [DELAY d]", "Move a job to the end of another tube.", jobs.move),
        command("job peek 3 rF read", "id", "Show a job.", jobs.peek),
        command("job named 4 rF read", "tube name", "Show the job that was put with this name.", jobs.named),
        command("job meta 3 rF read", "id", "Describe a job without its body.", jobs.meta),
        command(
            *("job wait -3 r read", "id [TIMEOUT d] [TUBE t] [OUTCOME]"),
            "Wait until a job ends or fails for good. Return 1 if it was acked, 0 if not, or the OUTCOME.",
            jobs.wait,
        ),
        command(
            *("job cancel -3 w write", "id [REASON text]"),
            "Cancel a job. Return 1 if it has ended, 0 if it is taken: then its consumer is told.",
            signals.cancel,
        ),
        command(
            *("job progress -4 wmF write", "id value [AS bytes|text|json|msgpack]"),
            *("Send a progress value of a taken job to the clients that watch it.", signals.progress),
        ),
        command(
            *("job watch -3 r read", "id [AFTER n] [TIMEOUT d] [TUBE t]"),
            *("Wait for progress of a job after a number, or for its end.", signals.watch),
        ),
        command(
            *("job list -4 r read", "tube state [COUNT n]"),
            *("List the first jobs of a state in the order of delivery, 1,000 by default.", jobs.list_jobs),
        ),
        command(
            "job scan -3 r read",
            "cursor [TUBE t] [STATE s ...] [COUNT n] [SHARD i n] [IDS | PACKED] [NOBODIES] [HEADERS] [SINCE] "
            "[WHERE condition [EXAMINE n]]",
            *("Iterate over the jobs, or over one of n disjoint parts of them.", jobs.scan),
        ),
        command(
            *("job held -2 w write", "[ENDWAITS]"),
            *("List the jobs that this session holds. With ENDWAITS, end its waiting takes first.", jobs.held),
        ),
        command("job history 3 r read", "id", "List the events of a job, even if it is gone.", history.history),
        # Tubes
        command(
            *("tube create -3 wm write", f"name [TYPE type] {_TUBE} [OPTIONS json] [POLICY json]"),
            *("Create a tube, or return it if it exists with the same options.", tubes.create),
        ),
        command("tube info 3 rF read", "name", "Show the options of a tube.", tubes.info),
        command("tube stats 3 rF read", "name", "Show the jobs of a tube by state, and its counters.", tubes.stats),
        command(
            *("tube alter -5 w admin", f"name [TYPE type] {_TUBE} [POLICY json]"),
            *("Change the options of a tube.", tubes.alter),
        ),
        command(
            "tube pause 4 wF write", "name in|out|all|none", "Refuse puts, suspend takes, both or neither.", tubes.pause
        ),
        command(
            "tube release 3 w admin", "name", "Return all taken jobs to the tube. Return their number.", tubes.release
        ),
        command("tube truncate 3 w admin", "name", "Delete all jobs of a tube. Return their number.", tubes.truncate),
        command("tube drop 3 w admin", "name", "Delete a tube and its jobs.", tubes.drop),
        command(
            *("tube scan -3 r read", "cursor [COUNT n] [MATCH pattern] [FLOW | POLICY]"),
            *("Iterate over the tubes and their numbers of jobs, or their policies.", tubes.scan),
        ),
        command(
            *("tube keys -3 r read", "name [COUNT n]"),
            *("Show the keys of a tube that have the most ready jobs.", tubes.keys),
        ),
        command(
            *("tube causes -3 r read", "name [COUNT n]"),
            *("Count the buried jobs of a tube by the cause of their failure.", tubes.causes),
        ),
        command("tube list 2 r read", "", "List the names of all tubes.", tubes.names),
        # All nodes of a cluster
        command("global qlen 3 rF read", "queue", "Count the jobs of a queue on all reachable nodes.", everywhere.qlen),
        command(
            *("global qpeek 4 r read", "queue count"),
            *("Show the first jobs of a queue on all reachable nodes.", everywhere.qpeek),
        ),
        command(
            *("global scan -3 r read", "cursor [TUBE t] [STATE s ...] [COUNT n]"),
            *("Iterate over the jobs of all nodes, one node after the other.", everywhere.scan),
        ),
        command(
            *("global empty 3 w admin", "queue"),
            *("Delete up to 1,000 jobs of a queue on each reachable node. Return how many are left.", everywhere.empty),
        ),
        # The session
        command(
            *("identify -1 wF all", "[token] [GRACE d]"),
            *("Show or join a session, and set how long it outlives its connections.", native.identify),
        ),
        command(
            *("session scan -3 r read", "cursor [COUNT n] [TUBE t]"),
            "Iterate over the sessions: their clients, the jobs that they hold, and the tubes that they wait on.",
            SessionCommands(server).scan,
        ),
        command(
            *("session events -2 w write", "[AFTER n] [TIMEOUT d] [TUBE t]"),
            *("Wait for signals about jobs of this session: cancelled, lost.", signals.events),
        ),
    ]
