"""STAGE, PUBLISH and DISCARD: puts that become visible together. core/stages.py explains stages."""

from __future__ import annotations

from mypy_extensions import i64

from penstock.cluster.messages import STAGE
from penstock.core import stages
from penstock.core.batches import Stage
from penstock.core.engine import Engine, quoted_name
from penstock.core.errors import CrossHome, StageOver
from penstock.core.job import Draft
from penstock.core.limits import UNSET
from penstock.core.policy import DEFAULT
from penstock.dialects.native.arguments import Words
from penstock.dialects.native.delivery_commands import DeliveryCommands, read_drafts
from penstock.node.caller import Caller, SlicedCommand, check_own, check_tube
from penstock.node.context import ALL_NODES
from penstock.node.routing import Elsewhere


class StageCommands:
    """The STAGE, PUBLISH, PUBLISHONCE and DISCARD commands."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native
        self._engine: Engine = native.context.engine

    def stage(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run STAGE stage tube [EXPIRE duration] [EXISTING] [AFTER n] [IDS] [option value ...] [JOB body ...].

        Add jobs to a stage. With AFTER, raise an error unless the stage has `n` jobs before this command. A command
        without jobs only checks this number.
        """
        words = Words(args, 3)
        expire = UNSET
        after = -1
        existing = False
        ids = False
        while words.has_more():
            word = args[words.at].upper()
            if word == b"EXPIRE":
                words.option()
                expire = words.duration()
            elif word == b"AFTER":
                words.option()
                after = words.integer()
            elif word == b"EXISTING":
                existing = True
                words.option()
            elif word == b"IDS":
                ids = True
                words.option()
            else:
                break
        drafts: list[Draft] = []
        if after < 0 or words.has_more():
            drafts = read_drafts(words)
        check_own(caller, args[1], b"stage")
        check_tube(caller, args[2])
        if drafts:
            # A node that leaves the cluster accepts no more jobs, but the stage can still be checked.
            self._native.check_puts(caller, args[2], drafts)
        engine = self._engine
        if args[2] not in engine.tubes:
            self._native.context.raise_if_elsewhere([args[2]])
        if args[1] not in engine.stages.by_name and self._native.context.find_node_with(caller, STAGE, [args[1]]):
            raise CrossHome(
                f"stage {quoted_name(args[1])} has jobs on another node; use only tubes of one node in a stage"
            )
        stages.check_stage(engine, args[1], drafts, expire, now)
        if after >= 0 and self._was_staged(caller, args[1], after, len(drafts), now):
            return
        tube = engine.tube(args[2]) if existing else engine.tubes.get(args[2])
        if tube is None:
            tube = self._native.context.new_tube(args[2], DEFAULT, drafts, now)
        else:
            self._native.context.reserve_log_for(drafts)
        jobs = stages.stage_jobs(engine, args[1], tube, drafts, expire, now)
        if ids:
            caller.reply.bulks([self._native.context.id_of(job) for job in jobs])
        else:
            caller.reply.integer(engine.stages.by_name[args[1]].count)

    def _was_staged(self, caller: Caller, name: bytes, after: int, count: int, now: i64) -> bool:
        """Return whether an earlier copy of the command has added these `count` jobs, and reply if so.

        `after` is the number of jobs in the stage before the command. Return False if the stage has `after` jobs: the
        command is new. If the stage has `after + count` jobs, the client repeats a command whose reply was lost. With
        any other number, jobs were deleted or lost in a crash. Then raise StageOver: the client must use another stage.
        """
        stage = self._engine.stages.find(name, now)
        there = 0 if stage is None else int(stage.count)
        if there == after and count > 0:
            return False
        if there != after + count:
            raise StageOver(f"stage {quoted_name(name)} has {there} jobs, not {after}; start again with another stage")
        caller.reply.integer(there)
        return True

    def publish(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run PUBLISH stage [stage ...]: publish all these stages or none, and reply with the number of their jobs."""
        names = self._names(caller, args)
        self._close(caller, names, stages.publish(self._engine, names, now), now)

    def publish_once(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run PUBLISHONCE mark stage [stage ...]: publish stages, or discard them if `mark` was used before."""
        names = self._names(caller, args)
        self._close(caller, names[1:], stages.publish(self._engine, names[1:], now, names[0]), now)

    def discard(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run DISCARD stage [stage ...]: delete the jobs of unpublished stages, and reply with their number."""
        names = self._names(caller, args)
        self._close(caller, names, stages.discard(self._engine, names, now), now)

    def _names(self, caller: Caller, args: list[bytes]) -> list[bytes]:
        """Return the names of the stages if the caller may use them. Raise Elsewhere if another node has the stages."""
        names = args[1:]
        for name in names:
            check_own(caller, name, b"stage")
        known = self._engine.stages.by_name
        if not any(name in known for name in names):
            # All stages of a command are on one node, so only the first two names are asked for: a mark and a stage.
            node = self._native.context.find_node_with(caller, STAGE, names[:2], ALL_NODES)
            if node:
                raise Elsewhere(node, f"stage {quoted_name(names[0])}")
        return names

    def _close(self, caller: Caller, names: list[bytes], jobs: int, now: i64) -> None:
        self._native.context.run_sliced(
            caller, _CloseStages(self._engine, stages.of_names(self._engine, names), jobs), now
        )


class _CloseStages(SlicedCommand):
    """Publishes or deletes the jobs of stages in slices, then replies with the number of jobs."""

    def __init__(self, engine: Engine, left: list[Stage], jobs: int) -> None:
        self._engine = engine
        self._left = left
        self._jobs = jobs

    def step(self, caller: Caller, now: i64) -> bool:
        """Publish or delete as many jobs as fit into one turn. Return whether none is left."""
        if stages.are_closing(self._left):
            self._engine.advance(now)
            return False
        caller.reply.integer(self._jobs)
        return True
