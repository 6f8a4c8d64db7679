"""The writers of stages in the workload `tubes`. They stage jobs in several commands, and publish or discard them.

A writer repeats a command whose reply was lost, as the client library does. It does some work twice, in two stages, and
publishes both with the same mark: only one of them may reach the tube.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.limits import NEVER
from penstock.testing.sim.history import DONE, REFUSED, UNKNOWN, Violation
from penstock.testing.sim.schedule import MS, SECOND, spread
from penstock.testing.sim.tube_clients import KEYS, TubeClient
from penstock.testing.sim.tube_history import Put, StageRecord
from penstock.testing.sim.tubes import PRIORITY, TubeKind
from penstock.wire.resp_client import ErrorReply

# A command whose outcome is unknown is repeated this often.
_TRIES_MAX = 8


class StageWriter(TubeClient):
    """Stages and publishes a fixed number of batches."""

    works_left = 0

    def begin(self) -> None:
        """Begin the first batch after a pause."""
        self.is_iproto = False
        self._number = 0
        self._next()

    def _next(self) -> None:
        if self.works_left > 0:
            self.works_left -= 1
            self.later(spread(self.random, 500 * MS, 3 * SECOND), self._begin_work)

    def _begin_work(self) -> None:
        kind = self.random.choice([kind for kind in self.usable() if not kind.once])
        self._number += 1
        if self.random.random() < 0.4:
            mark = b"work-%d-%d" % (self.number, self._number)
            self._write(kind, mark, lambda: self._write(kind, mark, self._next))
        else:
            self._write(kind, b"", self._next)

    def _write(self, kind: TubeKind, mark: bytes, then: Callable[[], None]) -> None:
        """Stage jobs in one to three commands, and close the stage. Then call `then`."""
        stages = self.world.tubes.stages
        name = b"stage-%d-%d" % (self.number, len(stages))
        record = StageRecord(name, kind, mark, self.random.choice((500, 3_000, 20_000)))
        stages.append(record)
        self._stage(record, self.random.randint(1, 3), then)

    # Staging

    def _stage(self, record: StageRecord, left: int, then: Callable[[], None]) -> None:
        if left == 0:
            self.later(spread(self.random, 100 * MS, 2 * SECOND), lambda: self._close(record, then))
            return
        random = self.random
        group: list[Put] = []
        place = len(record.puts())
        for at in range(random.randint(1, 3)):
            body = b"%d-%s-%d" % (self.number, record.name, place + at)
            put = Put(body, record.tube, b"", 0, 0, -1, False, NEVER, batch=record.name, place=place + at)
            if record.tube.key_limit:
                put.key = random.choice(KEYS)
            if record.tube.order == PRIORITY:
                put.priority = random.choice((0, 0, 0, 1))
            group.append(put)
            self.world.tubes.puts[body] = put
        record.groups.append(group)
        record.outcomes.append(UNKNOWN)
        self._send_group(record, _TRIES_MAX, lambda: self._stage(record, left - 1, then), then)

    def _send_group(
        self, record: StageRecord, tries: int, go_on: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        group = record.groups[-1]
        words = [b"STAGE", record.name, record.tube.name, b"EXPIRE", b"%dms" % record.expire_ms, b"EXISTING"]
        words += [b"AFTER", b"%d" % record.count()]
        for put in group:
            words += [b"JOB", put.body]
            words += [b"KEY", put.key] if put.key else []
            words += [b"PRIORITY", b"%d" % put.priority] if put.priority else []

        def send() -> None:
            if tries == _TRIES_MAX:
                # A repeated command may add nothing. Then it does not restart the expiry of the stage.
                record.touched = self.now
            self.world.history.note(self.now, "stage", self.number, record.name, len(group))
            self.ask(words, 4 * SECOND, lambda answer, local, sent: staged(answer))

        def staged(answer: object | None) -> None:
            outcome = self._outcome(answer)
            record.outcomes[-1] = outcome
            self.world.history.note(self.now, "staged", record.name, outcome)
            if outcome == DONE:
                if answer != record.count():
                    raise Violation(f"W10: {record.name!r} has {answer!r} jobs after STAGE, not {record.count()}")
                self.later(spread(self.random, 50 * MS, SECOND), go_on)
            elif isinstance(answer, ErrorReply) and self.is_missing(answer):
                self.ready(lambda: self.create(record.tube, give_up))
            elif outcome == UNKNOWN and tries > 1:
                self.later(
                    spread(self.random, 200 * MS, SECOND), lambda: self._send_group(record, tries - 1, go_on, give_up)
                )
            else:
                give_up()

        self.ready(send)

    def _outcome(self, answer: object | None) -> str:
        if isinstance(answer, ErrorReply):
            return self.refused(answer)
        return UNKNOWN if answer is None else DONE

    # Closing

    def _close(self, record: StageRecord, then: Callable[[], None]) -> None:
        what = self.random.random()
        if what < 0.75:
            for put in record.puts():
                put.invoked = self.now
            self._publish(record, _TRIES_MAX, then)
        elif what < 0.88:
            self._discard(record, then)
        else:
            # It is never published, and ends after its time.
            then()

    def _publish(self, record: StageRecord, tries: int, then: Callable[[], None]) -> None:
        words = [b"PUBLISHONCE", record.mark, record.name] if record.mark else [b"PUBLISH", record.name]

        def send() -> None:
            self.world.history.note(self.now, "publish", self.number, record.name)
            self.ask(words, 4 * SECOND, lambda answer, local, sent: published(answer))

        def published(answer: object | None) -> None:
            outcome = self._outcome(answer)
            self.world.history.note(self.now, "published", record.name, outcome)
            if isinstance(answer, ErrorReply):
                self._check_refusal(record, answer)
                if b"there is no stage" in answer.line and self._may_be_unknown():
                    outcome = UNKNOWN
            if outcome == UNKNOWN and tries > 1:
                self.later(spread(self.random, 200 * MS, SECOND), lambda: self._publish(record, tries - 1, then))
                return
            if outcome == DONE:
                self._was_published(record, answer)
            elif isinstance(answer, ErrorReply) and b"was discarded, or expired" in answer.line:
                self.world.sometimes("a stage expired")
                _end(record, REFUSED, self.now)
            then()

        self.ready(send)

    def _may_be_unknown(self) -> bool:
        """Return whether a node may have no stage of a node that exists: it has not met that node, or data was lost."""
        options = self.world.options
        has_new_nodes = not {"join", "rehome", "clock_jump"}.isdisjoint(options.nemeses)
        return has_new_nodes or any(fault.forgets for fault in self.world.history.faults)

    def _check_refusal(self, record: StageRecord, answer: ErrorReply) -> None:
        """Check that a stage with jobs is not refused as unknown or over before it expires, even after faults."""
        slow = 1_000_000 + self.world.options.drift_ppm
        is_early = self.now < record.touched + record.expire_ms * MS * 1_000_000 // slow - 2 * MS
        is_sure = self.world.options.is_calm or (DONE in record.outcomes and not self._may_be_unknown())
        if is_sure and is_early and answer.line.startswith((b"NOSTAGE", b"STAGEOVER")):
            raise Violation(f"W10: {record.name!r} was refused before it expired: {answer.line!r}")

    def _was_published(self, record: StageRecord, answer: object) -> None:
        assert self.node is not None
        earlier = [each for each in self.world.tubes.stages if each.mark == record.mark and each is not record]
        if record.mark and any(each.published_through >= 0 for each in earlier):
            if any(fault.forgets for fault in self.world.history.faults):
                # A node may have lost the earlier publication, with its mark. Then this one counts.
                return
            self.world.sometimes("work that was done twice was published once")
            _end(record, REFUSED, self.now)
            return
        if record.mark and any(
            put.invoked < NEVER and put.outcome != REFUSED for each in earlier for put in each.puts()
        ):
            # The publication of the other stage has an unknown outcome, so this one may have been discarded.
            return
        record.published_through = self.node.number
        if answer != record.count() and not any(fault.forgets for fault in self.world.history.faults):
            raise Violation(f"W10: PUBLISH of {record.name!r} returned {answer!r}, not {record.count()}")
        self.world.sometimes("a stage was published")
        _end(record, DONE, self.now)

    def _discard(self, record: StageRecord, then: Callable[[], None]) -> None:
        self.world.history.note(self.now, "discard", self.number, record.name)
        words = [b"DISCARD", record.name]
        self.ready(
            lambda: self.ask(words, 4 * SECOND, lambda answer, local, sent: self._discarded(record, answer, then))
        )

    def _discarded(self, record: StageRecord, answer: object | None, then: Callable[[], None]) -> None:
        if self._outcome(answer) == DONE:
            self.world.sometimes("a stage was discarded")
        then()


def _end(record: StageRecord, outcome: str, now: int) -> None:
    """Record the outcome of the puts of a stage. A group that was not certainly staged has an unknown outcome."""
    for group, staged in zip(record.groups, record.outcomes, strict=True):
        for put in group:
            put.ended = now
            put.outcome = outcome if staged == DONE or outcome == REFUSED else UNKNOWN
