"""The rows of the command table for pipelines: stages to write, claims and the journal to read."""

from __future__ import annotations

from penstock.dialects.native.claim_commands import ClaimCommands
from penstock.dialects.native.stage_commands import StageCommands
from penstock.node.caller import ADMIN, READ, WRITE
from penstock.server.commands.journal_commands import JournalCommands
from penstock.server.commands.native_table import Row
from penstock.server.server import Server


def pipeline_rows(server: Server) -> list[Row]:
    stages, claims, journal = StageCommands(server.native), ClaimCommands(server.native), JournalCommands(server)
    return [
        (
            *("stage", -5, "wm", WRITE),
            "stage tube [EXPIRE d] [EXISTING] [AFTER n] [option value ...] [JOB body [option value ...] ...]",
            *(
                "Put jobs that stay hidden until their stage is published. Return the stage's number of jobs.",
                stages.stage,
            ),
        ),
        (
            *("publish", -2, "w", WRITE, "stage [stage ...]"),
            *("Publish the jobs of all these stages, or of none. Return their number.", stages.publish),
        ),
        (
            *("publishonce", -3, "w", WRITE, "mark stage [stage ...]"),
            "Publish stages once under a mark. If the mark was used before, discard them instead.",
            stages.publish_once,
        ),
        (
            *("discard", -2, "w", WRITE, "stage [stage ...]"),
            *("Delete the jobs of unpublished stages. Return their number.", stages.discard),
        ),
        (
            *("claim take", -5, "w", WRITE, "tube consumer number [COUNT n] [LEASE d] [TOKEN t] [SHARD i n | SIZE]"),
            *(
                "Claim a batch of jobs. Every call returns the same batch until it is acked or its lease ends.",
                claims.take,
            ),
        ),
        (
            *("claim read", -4, "r", READ, "consumer number [SHARD i n] [PACKED]"),
            *("Read a claim again, or one shard of it.", claims.read),
        ),
        (
            *("claim ack", -4, "w", WRITE, "consumer upto [TOKEN t]"),
            *("Ack the jobs of all claims up to a number. Return how many.", claims.ack),
        ),
        (
            *("claim renew", -3, "wF", WRITE, "consumer [LEASE d] [TOKEN t]"),
            *("Renew the leases of a consumer's claims. Return their number.", claims.renew),
        ),
        (
            *("claim release", -3, "w", WRITE, "consumer [TOKEN t]"),
            *("End a consumer's claims and return their jobs. Return the number of claims.", claims.release),
        ),
        ("claim info", 3, "rF", READ, "consumer", "Show the progress of a consumer.", claims.info),
        ("journal head", 2, "r", READ, "", "Return the first and last positions of the log.", journal.head),
        (
            *("journal read", -3, "r", READ, "position [BYTES n] [TIMEOUT d] [NAMES] [PLACE]"),
            *("Read raw frames of the log, starting at a position.", journal.read),
        ),
        (
            *("journal events", -3, "r", READ, "position [COUNT n] [TIMEOUT d] [TUBE tube]"),
            *("Read decoded events of the log, starting at a position.", journal.events),
        ),
        ("journal files", 2, "ar", ADMIN, "", "Describe the log and list its files, for a standby.", journal.files),
        (
            *("journal fetch", -4, "ar", ADMIN, "file offset [BYTES n]"),
            *("Read a piece of a file of the log.", journal.fetch),
        ),
    ]
