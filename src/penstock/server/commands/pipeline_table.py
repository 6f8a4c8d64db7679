"""The rows of the command table for pipelines, which write with stages, and read with claims or from the journal."""

from __future__ import annotations

from penstock.dialects.native.batch_commands import BatchCommands
from penstock.dialects.native.claim_commands import ClaimCommands
from penstock.dialects.native.stage_commands import StageCommands
from penstock.node.dispatch import Command
from penstock.server.commands.journal_commands import JournalCommands
from penstock.server.commands.native_table import command
from penstock.server.server import Server


def pipeline_rows(server: Server) -> list[Command]:
    batches = BatchCommands(server.native)
    stages, claims, journal = StageCommands(server.native), ClaimCommands(server.native), JournalCommands(server)
    return [
        command(
            "stage -5 wm write",
            "stage tube [EXPIRE d] [EXISTING] [AFTER n] [option value ...] [JOB body [option value ...] ...]",
            "Put jobs that stay hidden until their stage is published. Return the stage's number of jobs.",
            stages.stage,
        ),
        command(
            *("publish -2 w write", "stage [stage ...]"),
            *("Publish the jobs of all these stages, or of none. Return their number.", stages.publish),
        ),
        command(
            *("publishonce -3 w write", "mark stage [stage ...]"),
            "Publish stages once under a mark. If the mark was used before, discard them instead.",
            stages.publish_once,
        ),
        command(
            *("discard -2 w write", "stage [stage ...]"),
            *("Delete the jobs of unpublished stages. Return their number.", stages.discard),
        ),
        command(
            "batch create -3 wm write",
            "name [EXPIRE d] [THEN PUT tube body [option value ...] ...]",
            "Create a batch of jobs. The jobs after THEN are put when all members of the batch have ended.",
            batches.create,
        ),
        command(
            *("batch seal 3 w write", "name"),
            *("State that all members of a batch were put. Return how many have not ended.", batches.seal),
        ),
        command(
            *("batch info 3 r read", "name"),
            *("Show the state of a batch, and how many members it has.", batches.info),
        ),
        command(
            *("claim take -5 w write", "tube consumer number [COUNT n] [LEASE d] [TOKEN t] [SHARD i n | SIZE]"),
            "Claim a batch of jobs. Every call returns the same batch until it is acked or its lease ends.",
            claims.take,
        ),
        command(
            *("claim read -4 r read", "consumer number [SHARD i n] [PACKED] [HEADERS] [SINCE]"),
            *("Read a claim again, or one shard of it.", claims.read),
        ),
        command(
            *("claim ack -4 w write", "consumer upto [TOKEN t]"),
            *("Ack the jobs of all claims up to a number. Return how many.", claims.ack),
        ),
        command(
            "claim verdict -5 w write",
            "consumer number [TOKEN t] CLEAR | JOB id ack|nack|bury|move [REASON r] [DELAY d] [TUBE t] ...",
            "Decide what happens to jobs of a claim when it is acked. Return the number of jobs.",
            claims.verdict,
        ),
        command(
            *("claim renew -3 wF write", "consumer [LEASE d] [TOKEN t]"),
            *("Renew the leases of a consumer's claims. Return their number.", claims.renew),
        ),
        command(
            *("claim release -3 w write", "consumer [TOKEN t]"),
            *("End a consumer's claims and return their jobs. Return the number of claims.", claims.release),
        ),
        command(
            *("claim find -3 r read", "id [id ...]"),
            *("Show which claim holds each job: its consumer, number and token.", claims.find),
        ),
        command("claim info 3 rF read", "consumer", "Show the progress of a consumer.", claims.info),
        command("journal head 2 r read", "", "Return the first and last positions of the log.", journal.head),
        command(
            *("journal read -3 r read", "position [BYTES n] [TIMEOUT d] [NAMES] [PLACE]"),
            *("Read raw frames of the log, starting at a position.", journal.read),
        ),
        command(
            *("journal events -3 r read", "position [COUNT n] [TIMEOUT d] [TUBE tube]"),
            *("Read decoded events of the log, starting at a position.", journal.events),
        ),
        command(
            *("journal digest -4 r read", "from to [COUNT n]"),
            *("Return SHA-256 digests of the rows in a range of positions, in blocks.", journal.digest),
        ),
        command("journal files 2 ar admin", "", "Describe the log and list its files, for a standby.", journal.files),
        command(
            "journal fetch -4 ar admin", "file offset [BYTES n]", "Read a piece of a file of the log.", journal.fetch
        ),
    ]
