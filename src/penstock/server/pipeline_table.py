"""The rows of THE table of commands that pipelines are made of: stages to write, claims and the journal to read."""

from __future__ import annotations

from penstock.dialects.claims import Claims
from penstock.dialects.command import ADMIN, READ, WRITE
from penstock.dialects.stages import StageCommands
from penstock.server.journal_commands import JournalCommands
from penstock.server.native_table import Row
from penstock.server.server import Server


def pipeline_rows(server: Server) -> list[Row]:
    """Every one of them."""
    stages, claims, journal = StageCommands(server.native), Claims(server.native), JournalCommands(server)
    return [
        (
            *("stage", -5, "wm", WRITE),
            "stage tube [EXPIRE d] [EXISTING] [AFTER n] [option value ...] [JOB body [option value ...] ...]",
            *("Put jobs that nobody sees until their stage is published: how many it has.", stages.stage),
        ),
        (
            *("publish", -2, "w", WRITE, "stage [stage ...]"),
            *("Let the jobs of all of these stages be in their tubes, or of none: how many.", stages.publish),
        ),
        (
            *("publishonce", -3, "w", WRITE, "mark stage [stage ...]"),
            "The same, once under this mark: if that was done before, these stages are discarded.",
            stages.publish_once,
        ),
        (
            *("discard", -2, "w", WRITE, "stage [stage ...]"),
            *("Remove the jobs of stages that were not published: how many.", stages.discard),
        ),
        (
            *("claim take", -5, "w", WRITE, "tube consumer number [COUNT n] [LEASE d] [TOKEN t] [SHARD i n | SIZE]"),
            *("Claim a batch of jobs: the same on every call, until it is acked or its lease ends.", claims.take),
        ),
        (
            *("claim read", -4, "r", READ, "consumer number [SHARD i n] [PACKED]"),
            *("Read a claim again, or one shard of it.", claims.read),
        ),
        (
            *("claim ack", -4, "w", WRITE, "consumer upto [TOKEN t]"),
            *("Ack the jobs of all claims up to a number: how many.", claims.ack),
        ),
        (
            *("claim renew", -3, "wF", WRITE, "consumer [LEASE d] [TOKEN t]"),
            *("Let the leases of a consumer's claims begin anew: how many.", claims.renew),
        ),
        (
            *("claim release", -3, "w", WRITE, "consumer [TOKEN t]"),
            *("End a consumer's claims; their jobs go back: how many claims.", claims.release),
        ),
        ("claim info", 3, "rF", READ, "consumer", "Tell how far a consumer is.", claims.info),
        ("journal head", 2, "r", READ, "", "Tell how far the log is, and what of it is kept.", journal.head),
        (
            *("journal read", -3, "r", READ, "position [BYTES n] [TIMEOUT d] [NAMES] [PLACE]"),
            *("Read frames of the log as they are, from a position on.", journal.read),
        ),
        (
            *("journal events", -3, "r", READ, "position [COUNT n] [TIMEOUT d] [TUBE tube]"),
            *("The same, decoded: what happened.", journal.events),
        ),
        ("journal files", 2, "ar", ADMIN, "", "Tell whose log this is, and its files, for a standby.", journal.files),
        (
            *("journal fetch", -4, "ar", ADMIN, "file offset [BYTES n]"),
            *("Read a piece of a file of the log as it is.", journal.fetch),
        ),
    ]
