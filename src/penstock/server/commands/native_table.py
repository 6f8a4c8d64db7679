"""The rows of the command table for Penstock's native commands. A name of two words is a subcommand."""

from __future__ import annotations

from typing import Final

from penstock.dialects.native.global_commands import GlobalCommands
from penstock.node.caller import ADMIN, EVERYTHING, READ, WRITE
from penstock.server.commands.history_commands import HistoryCommands
from penstock.server.server import Server

Row = tuple[str, int, str, int, str, str, object]

_PUT: Final = (
    "[DELAY d] [AT t] [TTL d] [TTR d] [PRIORITY n] [KEY k] [URGENT] [ONCE] [RETRY policy] [NAME n] [UNIQUE v] "
    "[DEDUP id] [NACKS n] [OPTIONS json] [NUMBER n] [STATE ready|buried|done] [NEW] [AS bytes|text|json|msgpack]"
)
_TUBE: Final = (
    "[TTL d] [TTR d] [PRIORITY n] [TTL-WHILE-TAKEN waits|kills] [KEY-LIMIT n] [FAIR yes|no] [CAPACITY n] "
    "[CAPACITY-BYTES n] [RETRY policy] [MAX-DELIVERIES n] [DEAD-LETTER tube] [KEEP yes|no] [ZOMBIE d] "
    "[DEDUP-WINDOW d] [DEDUP-COUNT n] [TEMPORARY yes|no]"
)


def native_rows(server: Server) -> list[Row]:
    native, tubes, jobs, history = server.native, server.tubes, server.jobs, HistoryCommands(server)
    everywhere = GlobalCommands(server.site)
    return [
        # Jobs
        (
            "put",
            -3,
            "wmF",
            WRITE,
            f"tube body {_PUT} [EXISTING] [TIMEOUT d]",
            "Put a job into a tube. Return its id.",
            native.put,
        ),
        (
            *("mput", -4, "wm", WRITE, "tube [EXISTING] [option value ...] JOB body [option value ...] [JOB body ...]"),
            *("Put many jobs with the options of PUT, all or none. Return their ids.", native.mput),
        ),
        (
            *("take", -2, "wF", WRITE, "tube [COUNT n] [TIMEOUT d] [KEY k] [TTR d] [AND tube [tube ...]]"),
            *("Take jobs, or wait for one.", native.take),
        ),
        (
            "ack",
            -2,
            "wF",
            WRITE,
            "id [id ...]",
            "Acknowledge jobs. Return the number of acknowledged jobs.",
            native.ack,
        ),
        (
            *("release", -2, "wF", WRITE, "id [DELAY d] [TTL d] [PRIORITY n] [KEY k] [OPTIONS json]"),
            *("Return a job to its tube unfinished.", native.release),
        ),
        ("requeue", 2, "wF", WRITE, "id", "Return a job to the end of its tube.", native.requeue),
        ("bury", -2, "wF", WRITE, "id [REASON text]", "Bury a job, with a reason.", native.bury),
        (
            *("dig", -2, "wF", WRITE, "id [DELAY d] [TTL d] [PRIORITY n]"),
            *("Make a buried job ready again.", native.dig),
        ),
        (
            *("kick", -2, "w", WRITE, "tube [count] [DELAY d] [TTL d]"),
            *("Make buried jobs ready again in their order, one by default. Return their number.", native.kick),
        ),
        ("job touch", -3, "wF", WRITE, "id [d]", "Restart the TTR of a taken job, or add a time to it.", jobs.touch),
        (
            *("job nack", -3, "wF", WRITE, "id [REASON text]"),
            *("Return a job because it failed. Its retry policy decides what follows.", jobs.nack),
        ),
        (
            *("job done", -4, "wmF", WRITE, "id result [AS bytes|text|json|msgpack] [TTL d]"),
            *("Acknowledge a job, and keep its result in place of its body for a day, or for TTL.", jobs.done),
        ),
        ("job delete", -3, "w", WRITE, "id [id ...]", "Delete jobs in any state. Return their number.", jobs.delete),
        ("job snatch", -3, "wF", WRITE, "id [DELAY d]", "Take a job away from the consumer that has it.", jobs.snatch),
        ("job restart", -3, "wF", WRITE, "id [DELAY d]", "Make a delayed or kept job ready again.", jobs.restart),
        (
            *("job switch", -4, "wF", WRITE, "id ready|delayed|buried|done|zombie [DELAY d]"),
            *("Change the state of a job that is not taken.", jobs.switch),
        ),
        ("job move", -4, "wF", WRITE, "id tube [DELAY d]", "Move a job to the end of another tube.", jobs.move),
        ("job peek", 3, "rF", READ, "id", "Show a job.", jobs.peek),
        ("job named", 4, "rF", READ, "tube name", "Show the job that was put with this name.", jobs.named),
        ("job meta", 3, "rF", READ, "id", "Describe a job without its body.", jobs.meta),
        (
            *("job wait", -3, "r", READ, "id [TIMEOUT d] [TUBE t] [OUTCOME]"),
            *(
                "Wait until a job ends or fails for good. Return 1 if it was acked, 0 if not, or the OUTCOME.",
                jobs.wait,
            ),
        ),
        (
            *("job list", -4, "r", READ, "tube state [COUNT n]"),
            *("List the first jobs of a state in the order of delivery, 1,000 by default.", jobs.list_jobs),
        ),
        (
            *("job scan", -3, "r", READ, "cursor [TUBE t] [STATE s ...] [COUNT n] [IDS | PACKED] [NOBODIES]"),
            *("Iterate over the jobs.", jobs.scan),
        ),
        (
            *("job held", -2, "w", WRITE, "[ENDWAITS]"),
            *("List the jobs that this session holds. With ENDWAITS, end its waiting takes first.", jobs.held),
        ),
        ("job history", 3, "r", READ, "id", "List the events of a job, even if it is gone.", history.history),
        # Tubes
        (
            *("tube create", -3, "wm", WRITE, f"name [TYPE type] {_TUBE} [OPTIONS json] [POLICY json]"),
            *("Create a tube, or return it if it exists with the same options.", tubes.create),
        ),
        ("tube info", 3, "rF", READ, "name", "Show the options of a tube.", tubes.info),
        ("tube stats", 3, "rF", READ, "name", "Show the jobs of a tube by state, and its counters.", tubes.stats),
        (
            *("tube alter", -5, "w", ADMIN, f"name [TYPE type] {_TUBE} [POLICY json]"),
            *("Change the options of a tube.", tubes.alter),
        ),
        (
            *("tube pause", 4, "wF", WRITE, "name in|out|all|none"),
            *("Refuse puts, suspend takes, both or neither.", tubes.pause),
        ),
        (
            "tube release",
            3,
            "w",
            ADMIN,
            "name",
            "Return all taken jobs to the tube. Return their number.",
            tubes.release,
        ),
        ("tube truncate", 3, "w", ADMIN, "name", "Delete all jobs of a tube. Return their number.", tubes.truncate),
        ("tube drop", 3, "w", ADMIN, "name", "Delete a tube and its jobs.", tubes.drop),
        (
            *("tube scan", -3, "r", READ, "cursor [COUNT n] [MATCH pattern]"),
            *("Iterate over the tubes and their numbers of jobs.", tubes.scan),
        ),
        ("tube list", 2, "r", READ, "", "List the names of all tubes.", tubes.names),
        # All nodes of a cluster
        (
            *("global qlen", 3, "rF", READ, "queue"),
            *("Count the jobs of a queue on all reachable nodes.", everywhere.qlen),
        ),
        (
            *("global qpeek", 4, "r", READ, "queue count"),
            *("Show the first jobs of a queue on all reachable nodes.", everywhere.qpeek),
        ),
        (
            *("global scan", -3, "r", READ, "cursor [TUBE t] [STATE s ...] [COUNT n]"),
            *("Iterate over the jobs of all nodes, one node after the other.", everywhere.scan),
        ),
        (
            *("global empty", 3, "w", ADMIN, "queue"),
            *(
                "Delete up to 1,000 jobs of a queue on each reachable node. Return how many are left.",
                everywhere.empty,
            ),
        ),
        # The session
        (
            *("identify", -1, "wF", EVERYTHING, "[token] [GRACE d]"),
            *(
                "Show or join a session, and set how long it outlives its connections.",
                native.identify,
            ),
        ),
    ]
