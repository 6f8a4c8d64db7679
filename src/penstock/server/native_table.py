"""The rows of THE table of commands that are Penstock's own. A name of two words is a member of a family."""

from __future__ import annotations

from typing import Final

from penstock.dialects.command import EVERYTHING, READ, WRITE
from penstock.server.server import Server

Row = tuple[str, int, str, int, str, str, object]

_PUT: Final = (
    "[DELAY d] [TTL d] [TTR d] [PRIORITY n] [KEY k] [URGENT] [ONCE] [RETRY policy] [NAME n] [UNIQUE v] [DEDUP id] "
    "[NACKS n] [AS bytes|text|json]"
)
_TUBE: Final = (
    "[TTL d] [TTR d] [PRIORITY n] [TTL-WHILE-TAKEN waits|kills] [KEY-LIMIT n] [FAIR yes|no] [CAPACITY n] "
    "[CAPACITY-BYTES n] [RETRY policy] [MAX-DELIVERIES n] [DEAD-LETTER tube] [KEEP yes|no] [ZOMBIE d] "
    "[DEDUP-WINDOW d] [DEDUP-COUNT n] [TEMPORARY yes|no]"
)


def native_rows(server: Server) -> list[Row]:
    """Every native command."""
    native, tubes = server.native, server.tubes
    return [
        # Jobs
        ("put", -3, "wmF", WRITE, f"tube body {_PUT} [TIMEOUT d]", "Put a job into a tube: its id.", native.put),
        (
            *("mput", -4, "wm", WRITE, "tube [option value ...] JOB body [option value ...] [JOB body ...]"),
            *("Put many jobs, all or none, with the options of PUT: their ids.", native.mput),
        ),
        (
            *("take", -2, "wF", WRITE, "tube [COUNT n] [TIMEOUT d] [KEY k] [TTR d] [AND tube [tube ...]]"),
            *("Take jobs, or wait for one.", native.take),
        ),
        ("ack", -2, "wF", WRITE, "id [id ...]", "Say that jobs are done: how many were yours to ack.", native.ack),
        (
            *("release", -2, "wF", WRITE, "id [DELAY d] [TTL d] [PRIORITY n] [KEY k]"),
            *("Give a job back unfinished.", native.release),
        ),
        ("bury", -2, "wF", WRITE, "id [REASON text]", "Put a job aside, and say why.", native.bury),
        # Tubes
        (
            *("tube create", -3, "wm", WRITE, f"name [TYPE type] {_TUBE} [POLICY json]"),
            *("Make a tube, or find it.", tubes.create),
        ),
        ("tube info", 3, "rF", READ, "name", "Tell what a tube promises.", tubes.info),
        ("tube stats", 3, "rF", READ, "name", "Tell what is in a tube, and what happened there.", tubes.stats),
        ("tube list", 2, "r", READ, "", "Tell the names of all tubes.", tubes.names),
        # The session
        (
            *("identify", -1, "wF", EVERYTHING, "[token] [GRACE d]"),
            *(
                "Tell which session this is, or join one; say how long it outlives its connections.",
                native.identify,
            ),
        ),
    ]
