"""BATCH CREATE, BATCH SEAL and BATCH INFO. core/tasks/batch.py explains batches. PUT has the option BATCH."""

from __future__ import annotations

from mypy_extensions import i64

from penstock.cluster.messages import STAGE
from penstock.core.batches import BATCH_PREFIX
from penstock.core.engine import Engine, quoted_name
from penstock.core.limits import UNSET
from penstock.core.tasks import batch
from penstock.dialects.native.arguments import Words
from penstock.dialects.native.delivery_commands import DeliveryCommands
from penstock.dialects.native.follow_ups import check_homes, read_follow_ups
from penstock.node.caller import Caller, check_own
from penstock.node.context import ALL_NODES
from penstock.node.routing import Elsewhere


class BatchCommands:
    """The commands that begin with BATCH."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native
        self._engine: Engine = native.context.engine

    def create(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run BATCH CREATE name [EXPIRE duration] [THEN PUT tube body [option value ...] ...].

        Create a batch. The jobs after THEN are put when the batch is sealed and all of its members have ended.
        """
        context = self._native.context
        words = Words(args, 3)
        expire = UNSET
        while words.has_more() and words.args[words.at].upper() != b"THEN":
            if words.option() != b"EXPIRE":
                raise words.unknown(["EXPIRE", "THEN"])
            expire = words.duration()
        puts = read_follow_ups(words) if words.has_more() else []
        check_own(caller, args[2], b"batch")
        for put in puts:
            self._native.check_puts(caller, put.tube, [put.draft])
        names = [put.tube for put in puts]
        if names and not any(name in self._engine.tubes for name in names):
            context.raise_if_elsewhere(names)
        check_homes(context, b"batch " + args[2], puts)
        drafts = [put.draft for put in puts]
        if drafts:
            context.reserve_log_for(drafts)
        batch.create_batch(self._engine, args[2], names, drafts, expire, now)
        caller.reply.ok()

    def seal(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run BATCH SEAL name: state that all members were put. Reply with the number of those that have not ended."""
        self._find_node(caller, args[2])
        caller.reply.integer(batch.seal_batch(self._engine, args[2], now))

    def info(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run BATCH INFO name: reply with the state of a batch and the numbers of its members."""
        self._find_node(caller, args[2])
        self._engine.advance(now)
        stage = batch.find_batch(self._engine, args[2], now)
        members = stage.members
        assert members is not None
        reply = caller.reply
        reply.map(6)
        reply.bulk(b"state")
        reply.bulk(batch.state_of(stage).encode())
        for name, number in (
            (b"total", members.total),
            (b"pending", members.pending),
            (b"failed", members.failed),
            (b"callbacks", max(stage.count, stage.published)),
            (b"until", stage.until),
        ):
            reply.bulk(name)
            reply.integer(int(number))

    def _find_node(self, caller: Caller, name: bytes) -> None:
        """Raise an error if the caller may not use the batch, or Elsewhere if another node has it."""
        check_own(caller, name, b"batch")
        stage = BATCH_PREFIX + name
        if stage not in self._engine.stages.by_name:
            node = self._native.context.find_node_with(caller, STAGE, [stage], ALL_NODES)
            if node:
                raise Elsewhere(node, f"batch {quoted_name(name)}")
