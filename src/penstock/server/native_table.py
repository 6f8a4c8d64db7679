"""The rows of THE table of commands that are Penstock's own. A name of two words is a member of a family."""

from __future__ import annotations

from typing import Final

from penstock.dialects.command import ADMIN, EVERYTHING, READ, WRITE
from penstock.dialects.everywhere import Everywhere
from penstock.server.history_commands import HistoryCommands
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
    """Every native command."""
    native, tubes, jobs, history = server.native, server.tubes, server.jobs, HistoryCommands(server)
    everywhere = Everywhere(server.site)
    return [
        # Jobs
        (
            "put",
            -3,
            "wmF",
            WRITE,
            f"tube body {_PUT} [EXISTING] [TIMEOUT d]",
            "Put a job into a tube: its id.",
            native.put,
        ),
        (
            *("mput", -4, "wm", WRITE, "tube [EXISTING] [option value ...] JOB body [option value ...] [JOB body ...]"),
            *("Put many jobs, all or none, with the options of PUT: their ids.", native.mput),
        ),
        (
            *("take", -2, "wF", WRITE, "tube [COUNT n] [TIMEOUT d] [KEY k] [TTR d] [AND tube [tube ...]]"),
            *("Take jobs, or wait for one.", native.take),
        ),
        ("ack", -2, "wF", WRITE, "id [id ...]", "Say that jobs are done: how many were yours to ack.", native.ack),
        (
            *("release", -2, "wF", WRITE, "id [DELAY d] [TTL d] [PRIORITY n] [KEY k] [OPTIONS json]"),
            *("Give a job back unfinished.", native.release),
        ),
        ("requeue", 2, "wF", WRITE, "id", "Give a job back to behind all others.", native.requeue),
        ("bury", -2, "wF", WRITE, "id [REASON text]", "Put a job aside, and say why.", native.bury),
        (
            *("dig", -2, "wF", WRITE, "id [DELAY d] [TTL d] [PRIORITY n]"),
            *("Dig a buried job up.", native.dig),
        ),
        (
            *("kick", -2, "w", WRITE, "tube [count] [DELAY d] [TTL d]"),
            *("Dig the first buried jobs up, one unless told: how many there were.", native.kick),
        ),
        ("job touch", -3, "wF", WRITE, "id [d]", "Ask for more time, or for a whole ttr from now.", jobs.touch),
        (
            *("job nack", -3, "wF", WRITE, "id [REASON text]"),
            *("Give a job back because it failed: its retry policy decides.", jobs.nack),
        ),
        (
            *("job done", -4, "wmF", WRITE, "id result [AS bytes|text|json|msgpack] [TTL d]"),
            *("Say that a job is done, and keep its result in place of its body: for a day, or for TTL.", jobs.done),
        ),
        ("job delete", -3, "w", WRITE, "id [id ...]", "Remove jobs, whatever their state: how many.", jobs.delete),
        ("job snatch", -3, "wF", WRITE, "id [DELAY d]", "Take a job away from whoever holds it.", jobs.snatch),
        ("job restart", -3, "wF", WRITE, "id [DELAY d]", "Bring a delayed or kept job back.", jobs.restart),
        (
            *("job switch", -4, "wF", WRITE, "id ready|delayed|buried|done|zombie [DELAY d]"),
            *("Turn a job that is not taken into another state.", jobs.switch),
        ),
        ("job move", -4, "wF", WRITE, "id tube [DELAY d]", "Move a job to the end of another tube.", jobs.move),
        ("job peek", 3, "rF", READ, "id", "Look at a job.", jobs.peek),
        ("job named", 4, "rF", READ, "tube name", "Look at the job that was put under a name.", jobs.named),
        ("job meta", 3, "rF", READ, "id", "Tell everything about a job but its body.", jobs.meta),
        (
            *("job wait", -3, "r", READ, "id [TIMEOUT d] [TUBE t] [OUTCOME]"),
            *("Wait until a job ends or fails for good: 1 if it was acked, 0 if not, or the OUTCOME.", jobs.wait),
        ),
        (
            *("job list", -4, "r", READ, "tube state [COUNT n]"),
            *("Look at the first jobs of a state, 1,000 unless told, in the order served.", jobs.list_jobs),
        ),
        (
            *("job scan", -3, "r", READ, "cursor [TUBE t] [STATE s ...] [COUNT n] [IDS | PACKED] [NOBODIES]"),
            *("Go through the jobs.", jobs.scan),
        ),
        (
            *("job held", -2, "w", WRITE, "[ENDWAITS]"),
            *("Tell what this session holds; first, let no take of it wait any longer.", jobs.held),
        ),
        ("job history", 3, "r", READ, "id", "Tell what happened to a job, also when it is gone.", history.history),
        # Tubes
        (
            *("tube create", -3, "wm", WRITE, f"name [TYPE type] {_TUBE} [OPTIONS json] [POLICY json]"),
            *("Make a tube, or find it.", tubes.create),
        ),
        ("tube info", 3, "rF", READ, "name", "Tell what a tube promises.", tubes.info),
        ("tube stats", 3, "rF", READ, "name", "Tell what is in a tube, and what happened there.", tubes.stats),
        (
            *("tube alter", -5, "w", ADMIN, f"name [TYPE type] {_TUBE} [POLICY json]"),
            *("Change what a tube promises while it runs.", tubes.alter),
        ),
        (
            *("tube pause", 4, "wF", WRITE, "name in|out|all|none"),
            *("Refuse puts, hold takes back, both or neither.", tubes.pause),
        ),
        ("tube release", 3, "w", ADMIN, "name", "Give every taken job back: how many there were.", tubes.release),
        ("tube truncate", 3, "w", ADMIN, "name", "Remove every job: how many there were.", tubes.truncate),
        ("tube drop", 3, "w", ADMIN, "name", "Remove a tube with its jobs.", tubes.drop),
        (
            *("tube scan", -3, "r", READ, "cursor [COUNT n] [MATCH pattern]"),
            *("Go through the tubes, and tell what is in each.", tubes.scan),
        ),
        ("tube list", 2, "r", READ, "", "Tell the names of all tubes.", tubes.names),
        # All nodes of a cluster
        (
            *("global qlen", 3, "rF", READ, "queue"),
            *("Count the jobs of a queue on all nodes that can be reached.", everywhere.qlen),
        ),
        (
            *("global qpeek", 4, "r", READ, "queue count"),
            *("Look at the first jobs of a queue on all nodes that can be reached.", everywhere.qpeek),
        ),
        (
            *("global scan", -3, "r", READ, "cursor [TUBE t] [STATE s ...] [COUNT n]"),
            *("Go through the jobs of all nodes, one node after the other.", everywhere.scan),
        ),
        (
            *("global empty", 3, "w", ADMIN, "queue"),
            *(
                "Remove jobs of a queue on all nodes that can be reached; repeat it until none is left.",
                everywhere.empty,
            ),
        ),
        # The session
        (
            *("identify", -1, "wF", EVERYTHING, "[token] [GRACE d]"),
            *(
                "Tell which session this is, or join one; say how long it outlives its connections.",
                native.identify,
            ),
        ),
    ]
