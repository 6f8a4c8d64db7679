"""A stage that a Spark task has filled with jobs. The task reports it to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.client import commands
from penstock.client.commands import REPEAT, Call
from penstock.core.errors import PenstockError
from penstock.spark.node import Node


@dataclass(frozen=True)
class FilledStage:
    """A stage, and the number of jobs that it must have when it is published."""

    name: bytes
    tube: bytes  # One of the tubes that it has jobs for.
    jobs: int

    def check(self, node: Node) -> None:
        """Raise an error if the stage has lost jobs, so that the whole write is repeated with new stages.

        A stage loses jobs if their tube is truncated, or if the server crashes and does not sync its journal.
        """
        node.call(Call([b"STAGE", self.name, self.tube, b"AFTER", b"%d" % self.jobs], commands.nothing, REPEAT))

    def discard(self, node: Node) -> None:
        """Discard the stage. Errors are ignored, so that they do not hide the error that led to the discard."""
        try:
            node.call(commands.close_stages(b"DISCARD", [self.name]))
        except PenstockError:
            pass  # The stage expires by itself.
