"""A stage that a task has filled: what the driver has to know of it, and does with it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.client import commands
from penstock.client.commands import AGAIN, Call
from penstock.core.errors import PenstockError
from penstock.spark.node import Node


@dataclass(frozen=True)
class Filled:
    """A stage, and how many jobs it has to have when it is published."""

    name: bytes
    tube: bytes  # One that it has jobs for.
    jobs: int

    def check(self, node: Node) -> None:
        """Refuse a stage that has lost jobs: all of it is to be done again then, in other stages.

        Somebody has emptied their tube, or the server has crashed and does not wait for its disk.
        """
        node.call(Call([b"STAGE", self.name, self.tube, b"AFTER", b"%d" % self.jobs], commands.nothing, AGAIN))

    def discard(self, node: Node) -> None:
        """Drop it if that is possible; what led to it is what is told."""
        try:
            node.call(commands.close_stages(b"DISCARD", [self.name]))
        except PenstockError:
            pass  # It expires.
