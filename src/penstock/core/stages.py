"""Stages: puts that are invisible until all of them are published together.

Several writers of one batch put their jobs into stages of their own. A coordinator then publishes all of these stages
together, or none. A staged job is already in the table of its tube, with its id, body and name. Everything that could
refuse it was checked when it was put, so that publishing cannot fail.

One row of the log publishes all stages of a command. After that, each turn moves a limited number of jobs to their
tubes, in the order in which stages were published and jobs were staged. A crash in between does not undo the
publication. The names of closed stages, which were published or discarded, are kept for a while, so that a repeated
request does not publish twice.
"""

from __future__ import annotations

from mypy_extensions import i64

from penstock.core.batches import BATCH_PREFIX, DISCARDED, OPEN, PUBLISHED, STAGE_WORDS, Stage
from penstock.core.engine import Engine, quoted_name
from penstock.core.errors import BadName, OutOfRange, StageOver, UnknownStage, Unsupported
from penstock.core.job import ARRIVES_READY, Draft, Job
from penstock.core.limits import STAGE_EXPIRE_MS, STAGES_PER_COMMAND_MAX, UNSET, check_finite, check_name
from penstock.core.tube import Tube


def check_stage(engine: Engine, name: bytes, drafts: list[Draft], expire_ms: int, now: i64) -> None:
    """Raise an error if these drafts cannot be put into a stage of this name, independent of the tube."""
    engine.advance(now)
    check_stage_name(name)
    if expire_ms != UNSET:
        check_finite(expire_ms, "expire")
    check_drafts(drafts)
    stage = engine.stages.find(name, now)
    if stage is not None and stage.phase != OPEN:
        raise StageOver(f"stage {quoted_name(name)} was {STAGE_WORDS[stage.phase]}; choose another name")


def check_stage_name(name: bytes) -> None:
    """Raise BadName if a stage cannot have this name."""
    check_name(name, "the name of a stage")
    if name.startswith(BATCH_PREFIX):
        raise BadName("the name of a stage must not begin like the internal name of a batch")


def check_drafts(drafts: list[Draft]) -> None:
    """Raise Unsupported if one of these drafts cannot be put into a stage."""
    for draft in drafts:
        if draft.batch is not None:
            raise Unsupported("a staged job cannot belong to a batch, because it may never be published")
        if draft.unique is not None or draft.dedup is not None or draft.same_body:
            # Another put with the same value would return this job, which may never be published.
            raise Unsupported("a staged job cannot have a unique value or dedup id, because it may never be published")
        if draft.at_ms != UNSET:
            raise Unsupported("a staged job cannot have a time (at): its delay starts when its stage is published")
        if draft.initial_state != ARRIVES_READY:
            raise Unsupported("a staged job cannot have a state: it becomes ready or delayed when it is published")


def stage_jobs(engine: Engine, name: bytes, tube: Tube, drafts: list[Draft], expire_ms: int, now: i64) -> list[Job]:
    """Put all of these jobs into a stage, or none. Create the stage if necessary, and restart its expiry.

    If `expire_ms` is UNSET, the stage keeps its time to expire. A new stage gets a day.
    """
    check_stage(engine, name, drafts, expire_ms, now)
    if tube.driven:
        raise tube.lacks("staged puts: its driver decides which jobs it serves")
    engine._check_many(tube, drafts, now, 0)
    stage = engine.stages.find(name, now)
    if stage is None:
        stage = Stage(name, STAGE_EXPIRE_MS)
        engine.stages.by_name[name] = stage
    if expire_ms != UNSET:
        stage.expire_ms = i64(expire_ms)
    stage.until = now + stage.expire_ms
    engine.deadlines.set(stage, stage.until)
    engine.outbox.stages_changed([stage], now)
    jobs: list[Job] = []
    for draft in drafts:
        job = tube.make(engine.next_id, draft, now)
        engine._admit_staged(job, tube, draft, stage, now)
        jobs.append(job)
    return jobs


def publish(engine: Engine, names: list[bytes], now: i64, mark: bytes | None = None) -> int:
    """Publish all of these stages, or none. Return how many jobs they have. Repeating the call returns the same number.

    A mark makes the publication of one piece of work unique. If stages were published with this mark before, the
    present ones are discarded instead. So work that was done twice in stages of different names reaches its tubes once.

    Each turn moves a limited number of jobs to their tubes. `are_closing` returns whether some are left.
    """
    engine.advance(now)
    found = _all(engine, names, now)
    if mark is not None:
        check_name(mark, "a mark")
        before = engine.stages.find(mark, now)
        if before is not None:
            if before.phase != PUBLISHED:
                raise StageOver(f"{quoted_name(mark)} is a stage, not a mark; choose another name")
            _close(engine, found, DISCARDED, now)
            return before.published
    total = 0
    for stage in found:
        if stage.phase == DISCARDED:
            raise UnknownStage(f"stage {quoted_name(stage.name)} was discarded, or expired; nothing was published")
        total += stage.count if stage.phase == OPEN else stage.published
    if len(found) < len(set(names)):
        missing = next(name for name in names if engine.stages.find(name, now) is None)
        raise UnknownStage(f"there is no stage {quoted_name(missing)}; nothing was published")
    if mark is not None:
        # A mark is stored as a stage without jobs, in the same row of the log as the others.
        marking = Stage(mark, STAGE_EXPIRE_MS)
        marking.published = total
        engine.stages.by_name[mark] = marking
        found.append(marking)
    _close(engine, found, PUBLISHED, now)
    return total


def discard(engine: Engine, names: list[bytes], now: i64) -> int:
    """Remove the jobs of all of these stages. Return how many. Unknown and discarded stages have none."""
    engine.advance(now)
    found = _all(engine, names, now)
    total = 0
    for stage in found:
        if stage.phase == PUBLISHED:
            raise StageOver(
                f"stage {quoted_name(stage.name)} was published, and its jobs are in their tubes; nothing was discarded"
            )
        total += stage.count if stage.phase == OPEN else 0
    _close(engine, found, DISCARDED, now)
    return total


def are_closing(stages: list[Stage]) -> bool:
    """Return whether any of these published or discarded stages still has jobs.

    Remove stages without jobs from the end of the list.
    """
    while stages and not stages[-1].closing:
        stages.pop()
    return len(stages) > 0


def of_names(engine: Engine, names: list[bytes]) -> list[Stage]:
    return [engine.stages.by_name[name] for name in names if name in engine.stages.by_name]


def _all(engine: Engine, names: list[bytes], now: i64) -> list[Stage]:
    """Return those of the named stages that exist, each once, in the given order."""
    if len(names) < 1 or len(names) > STAGES_PER_COMMAND_MAX:
        raise OutOfRange(f"a command may name 1 to {STAGES_PER_COMMAND_MAX} stages")
    found: list[Stage] = []
    for name in dict.fromkeys(names):
        check_stage_name(name)
        stage = engine.stages.find(name, now)
        if stage is not None:
            found.append(stage)
    return found


def _close(engine: Engine, stages: list[Stage], phase: i64, now: i64) -> None:
    """Publish or discard (`phase`) those of the stages that are open, in one row of the log.

    Then move the first of their jobs.
    """
    opened = [stage for stage in stages if stage.phase == OPEN]
    for stage in opened:
        engine._close_stage(stage, phase, now)
    if opened:
        engine.outbox.stages_changed(opened, now)
        engine._empty_stages(now)
    engine.settle(now)
