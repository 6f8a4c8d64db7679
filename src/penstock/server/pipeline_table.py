"""The rows of THE table of commands that pipelines are made of: what happened, by position."""

from __future__ import annotations

from penstock.dialects.command import READ
from penstock.server.journal_commands import JournalCommands
from penstock.server.native_table import Row
from penstock.server.server import Server


def pipeline_rows(server: Server) -> list[Row]:
    """Every one of them."""
    journal = JournalCommands(server)
    return [
        ("journal head", 2, "r", READ, "", "Tell how far the log is, and what of it is kept.", journal.head),
        (
            *("journal read", -3, "r", READ, "position [BYTES n] [TIMEOUT d] [NAMES]"),
            *("Read frames of the log as they are, from a position on.", journal.read),
        ),
        (
            *("journal events", -3, "r", READ, "position [COUNT n] [TIMEOUT d] [TUBE tube]"),
            *("The same, decoded: what happened.", journal.events),
        ),
    ]
