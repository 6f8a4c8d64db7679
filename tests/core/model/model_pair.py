"""The engine and the model side by side: each command goes to both, and their results and states must be equal.

Jobs are identified by their number in the order of puts, connections by their index in `connections`. A number without
a job stands for a forged id. The callers (test_machine.py, history.py) only choose commands. full_pair.py has further
commands.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core import states as s
from penstock.core import waits as w
from penstock.core.batches import Claim
from penstock.core.commands import edits
from penstock.core.engine import Engine
from penstock.core.errors import REFUSALS, CommandError
from penstock.core.ids import first_id
from penstock.core.job import Draft, Extra, Job
from penstock.core.limits import UNSET
from penstock.core.outbox import Outbox
from penstock.core.policy import TubePolicy
from penstock.core.states import OK
from penstock.core.tube import Tube, key_of
from penstock.testing import check

from .model_claims import FullModel
from .model_parts import ModelClaim, ModelEndWait, ModelJob, ModelPutWait, ModelTube, ModelWait, ModelWaiting, Refused

EPOCH = 7
FIRST_ID = first_id(EPOCH)
START_MS = 1_000_000


OUTCOMES = {w.WAITING: "waiting", w.SERVED: "served", w.TIMED_OUT: "timed out", w.CANCELLED: "cancelled"}


class RecordedMoves(Outbox):
    """The outbox of the engine. It records the same facts about each transition as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: dict[int, bytes] = {}  # By number of the session.
        self.happened: list[tuple[int, str, int, bytes | None]] = []

    def moved(self, job: Job, tube: Tube, rule: int, since: int, holder: int, now: int) -> None:
        event = s.EVENT_NAMES[s.EVENT_OF[rule]]
        self.happened.append((job.id - FIRST_ID, event, since, self.tokens[holder] if holder else None))


class ModelPair:
    """One engine, one model and one clock."""

    def __init__(self, policies: list[TubePolicy], grace_ms: int = 0) -> None:
        self.now = START_MS
        self.moves = RecordedMoves()
        self.engine = Engine(EPOCH, START_MS, self.moves)
        self.model = FullModel(START_MS)
        self.engine.session_grace_ms = self.model.grace_ms = grace_ms
        self.engine.body_bytes_max = self.model.body_bytes_max = 100
        self.policies = policies
        self.names = [b"tube %d" % i for i in range(len(policies))]
        for i in range(len(policies)):
            self.create_tube(i)
        self.connections: list[tuple[w.Connection, object]] = []
        self.tokens: list[bytes] = []
        self.waits: list[tuple[w.Waiting, ModelWaiting]] = []
        self.emptied = False  # A tube was truncated or dropped since the last comparison.
        self.connect()

    # Running a command on both sides

    def both(self, on_engine: Callable[[], object], on_model: Callable[[], object]) -> object:
        """Run one command on both sides, and return the common result."""
        refused = ""
        try:
            said = _plain(on_engine())
        except CommandError as refusal:
            said = refused = f"refused: {refusal.code}"
        try:
            expected = _plain(on_model())
        except Refused as refusal:
            expected = f"refused: {refusal.code}"
        assert said == expected, f"the engine returned {said!r}, the model {expected!r}"
        if refused:
            # The sides may differ in whether time passes before a refusal or with the next command.
            self.engine.advance(self.now)
            self.model.advance(self.now)
        return said

    def on_job(self, number: int, command: str, *args: object, session: int | None = None) -> object:
        """Find a job and run a command on it, with or without a session."""
        who = () if session is None else (self.connections[session],)
        return self.both(
            lambda: self._on_engine_job(number, command, [c.session for c, _ in who], args),
            lambda: self._on_model_job(number, command, [c.session for _, c in who], args),
        )

    def _on_engine_job(self, number: int, command: str, who: list[object], args: tuple[object, ...]) -> str:
        job = self.engine.find(FIRST_ID + number, self.now)
        if job is None:
            return "NOJOB"
        if hasattr(edits, command):
            outcome = getattr(edits, command)(self.engine, job, self.now, *args)
        else:
            outcome = getattr(self.engine, command)(*who, job, self.now, *args)
        return "OK" if outcome == OK else REFUSALS[outcome].code

    def _on_model_job(self, number: int, command: str, who: list[object], args: tuple[object, ...]) -> str:
        job = self.model.find(number, self.now)
        return "NOJOB" if job is None else getattr(self.model, command)(*who, job, self.now, *args)

    # Choices by an arbitrary number

    def client(self, n: int) -> int:
        return n % len(self.connections)

    def job(self, n: int, *states: str) -> int:
        """Return the number of a job in one of these states, or an unused number if there is none."""
        those = [job.number for job in self.model.jobs if job.state in states]
        return those[n % len(those)] if those else self.model.made + n

    def holder(self, number: int) -> int:
        """Return a client of the session that holds this job, or the first client."""
        holders = [job.holder for job in self.model.jobs if job.number == number]
        own = [i for i, (_, its) in enumerate(self.connections) if its.session in holders]
        return own[0] if own else 0

    def policy_of(self, number: int) -> TubePolicy:
        return next((job.tube.policy for job in self.model.jobs if job.number == number), self.policies[0])

    # Time, tubes

    def pass_time(self, ms: int) -> None:
        """Advance the clock. Both sides get the new time with the next command."""
        self.now += ms

    def advance(self) -> None:
        self.both(lambda: self.engine.advance(self.now), lambda: self.model.advance(self.now))

    def create_tube(self, i: int) -> None:
        name, policy = self.names[i], self.policies[i]
        self.engine.create_tube(name, policy, self.now)
        self.model.create_tube(name, policy, self.now)

    def tube(self, i: int) -> Tube:
        return self.engine.tubes[self.names[i]]

    def model_tube(self, i: int) -> ModelTube:
        return self.model.tubes[self.names[i]]

    def pause(self, i: int, inward: bool, outward: bool) -> None:
        self.both(
            lambda: self.engine.pause(self.tube(i), inward, outward, self.now),
            lambda: self.model.pause(self.model_tube(i), inward, outward, self.now),
        )

    def truncate(self, i: int) -> None:
        self.emptied = True
        self.both(
            lambda: self.engine.truncate(self.tube(i), self.now),
            lambda: self.model.truncate(self.model_tube(i), self.now),
        )

    def drop(self, i: int) -> None:
        """Drop a tube. If it was dropped, create it again."""
        self.emptied = True
        self.both(
            lambda: self.engine.drop(self.tube(i), self.now),
            lambda: self.model.drop(self.model_tube(i), self.now),
        )
        if self.names[i] not in self.engine.tubes:
            self.create_tube(i)

    # Jobs

    def put(self, i: int, draft: Draft) -> object:
        return self.both(
            lambda: self.engine.put(self.tube(i), draft, self.now),
            lambda: self.model.put(self.model_tube(i), draft, self.now),
        )

    def put_many(self, i: int, drafts: list[Draft]) -> object:
        return self.both(
            lambda: self.engine.put_many(self.tube(i), drafts, self.now),
            lambda: self.model.put_many(self.model_tube(i), drafts, self.now),
        )

    def take(self, c: int, i: int, key: bytes | None = None, ttr_ms: int = UNSET) -> object:
        mine, its = self.connections[c]
        return self.both(
            lambda: self.engine.take(mine.session, self.tube(i), self.now, key, ttr_ms),
            lambda: self.model.take(its.session, self.model_tube(i), self.now, key, ttr_ms),
        )

    def take_many(self, c: int, tubes: list[int], count: int, key: bytes | None = None, ttr_ms: int = UNSET) -> object:
        mine, its = self.connections[c]
        return self.both(
            lambda: self.engine.take_many(mine.session, [self.tube(i) for i in tubes], count, self.now, key, ttr_ms),
            lambda: self.model.take_many(
                its.session, [self.model_tube(i) for i in tubes], count, self.now, key, ttr_ms
            ),
        )

    def wait(self, c: int, tubes: list[int], timeout_ms: int, count: int, key: bytes | None, ttr_ms: int) -> None:
        mine, its = self.connections[c]
        self.begin_wait(
            lambda: self.engine.wait(mine, [self.tube(i) for i in tubes], self.now, timeout_ms, count, key, ttr_ms),
            lambda: self.model.wait(its, [self.model_tube(i) for i in tubes], self.now, timeout_ms, count, key, ttr_ms),
        )

    def begin_wait(self, on_engine: Callable[[], w.Waiting], on_model: Callable[[], ModelWaiting]) -> None:
        made: list[object] = []
        self.both(lambda: made.append(on_engine()), lambda: made.append(on_model()))
        if made:
            self.waits.append((made[0], made[1]))

    def cancel(self, n: int) -> None:
        mine, its = self.waits[n]
        self.both(lambda: self.engine.cancel(mine), lambda: self.model.cancel(its))

    def undelivered(self, number: int) -> None:
        """Take a job back as if its consumer had disconnected before the delivery."""
        job = self.engine.find(FIRST_ID + number, self.now)
        its = self.model.find(number, self.now)
        assert (job is None) == (its is None)
        if job is not None and its is not None and its.claim is None:
            self.both(lambda: self.engine.undelivered(job, self.now), lambda: self.model.undelivered(its, self.now))

    def kick(self, i: int, count: int, delay_ms: int = 0, ttl_ms: int = UNSET) -> None:
        self.both(
            lambda: self.engine.kick(self.tube(i), count, self.now, delay_ms, ttl_ms),
            lambda: self.model.kick(self.model_tube(i), count, self.now, delay_ms, ttl_ms),
        )

    # Sessions

    def connect(self) -> None:
        token = b"token %d" % len(self.tokens)
        self.tokens.append(token)
        mine = self.engine.connect(token)
        self.moves.tokens[mine.session.number] = token
        self.connections.append((mine, self.model.connect(token)))

    def identify(self, c: int, token: bytes) -> None:
        mine, its = self.connections[c]
        self.both(
            lambda: _nothing(self.engine.identify(mine, token, self.now)),
            lambda: self.model.identify(its, token, self.now),
        )

    def disconnect(self, c: int) -> None:
        mine, its = self.connections.pop(c)
        self.both(lambda: self.engine.disconnect(mine, self.now), lambda: self.model.disconnect(its, self.now))

    # Comparison

    def compare(self) -> None:
        """Check that both are equal in everything that the model contains, and that the engine's invariants hold."""
        self.compare_moves()
        self.compare_ended()
        for name, its in self.model.tubes.items():
            self.compare_tube(self.engine.tubes[name], its)
        assert list(self.engine.tubes) == list(self.model.tubes)
        jobs = self.engine.jobs.scan(0, self.engine.jobs.count + 1)
        assert [self.shown(job) for job in jobs] == [_model_shown(job) for job in self.model.jobs]
        assert list(self.engine.sessions) == list(self.model.sessions)
        assert self.engine.deadlines.next_due == self.model.next_due()
        self.compare_consumers()
        check(self.engine)

    def compare_moves(self) -> None:
        """Check that the same transitions happened, and the facts about them that a log records."""
        said, expected = self.moves.happened, self.model.happened
        if self.emptied:
            # The order in which the jobs of a tube are removed is not promised.
            said, expected = sorted(said, key=repr), sorted(expected, key=repr)
        assert said == expected
        self.moves.happened = []
        self.model.happened = []

    def compare_ended(self) -> None:
        """Check that the same waits ended in the same order with the same results."""
        ended = [(x.number, OUTCOMES[x.outcome], _outcome(x)) for x in self.engine.outbox.ended_waits]
        numbers = {id(its): mine.number for mine, its in self.waits}
        expected = [(numbers[id(x)], x.outcome, _model_outcome(x)) for x in self.model.ended]
        if self.emptied and any(isinstance(x, ModelEndWait) for x in self.model.ended):
            # The order in which the jobs of a tube are removed is not promised.
            ended.sort()
            expected.sort()
        assert ended == expected
        self.engine.outbox.ended_waits.clear()
        self.model.ended.clear()
        self.emptied = False
        for mine, its in self.waits:
            assert OUTCOMES[mine.outcome] == its.outcome
        self.waits = [both for both in self.waits if both[1].outcome == "waiting"]

    def compare_consumers(self) -> None:
        said = {
            name: (x.token, x.acked, x.newest, {n: _plain(claim) for n, claim in x.claims.items()})
            for name, x in self.engine.consumers.items()
        }
        expected = {
            name: (x.token, x.acked, x.newest, {n: _plain(claim) for n, claim in x.claims.items()})
            for name, x in self.model.consumers.items()
        }
        assert said == expected

    def compare_tube(self, tube: Tube, its: ModelTube) -> None:
        states = [job.state for job in self.model.jobs if job.tube is its]
        for state in range(1, s.STATES_COUNT):
            assert tube.count_in(state) == states.count(s.STATE_NAMES[state]), s.STATE_NAMES[state]
        for rule, (event, source, _) in enumerate(s.TRANSITIONS):
            expected = self.model.counts[its, s.EVENT_NAMES[event], s.STATE_NAMES[source]]
            assert tube.counts[rule] == expected, f"{s.EVENT_NAMES[event]} from {s.STATE_NAMES[source]}"
        assert (tube.paused_in, tube.paused_out) == (its.paused_in, its.paused_out)
        assert tube.policy == its.policy
        if tube.keys is not None and tube.keys.fair:
            turns = [key.name for key in sorted(tube.keys.open_keys(), key=lambda key: key.rank)]
            assert turns == sorted(its.turns, key=lambda key: its.turns[key])

    def shown(self, job: Job) -> tuple[object, ...]:
        """Return all fields of a job that the model has, too."""
        tube = self.engine.tube_of(job)
        holder = None if job.holder < 0 else self.engine.session_slots[job.holder]
        extra = job.extra or Extra()
        return (
            job.id - FIRST_ID,
            *(tube.name, s.STATE_NAMES[job.state], job.since, job.local, job.body, key_of(tube, job), job.once),
            *(job.priority, job.expiry, job.ttr, job.wake, job.deliveries, job.nacks, job.returns),
            *(extra.reason, extra.buries, extra.name, extra.unique, extra.priority_given, extra.claim, extra.doomed),
            None if holder is None else holder.token,
        )


def _model_shown(job: ModelJob) -> tuple[object, ...]:
    return (
        job.number,
        *(job.tube.name, job.state, job.since, job.local, job.body, job.key, job.once),
        *(job.priority, job.expiry, job.ttr, job.wake, job.deliveries, job.nacks, job.returns),
        *(job.reason, job.buries, job.name, job.unique, job.given, job.claim.number if job.claim else 0, job.doomed),
        None if job.holder is None else job.holder.token,
    )


def _plain(said: object) -> object:
    """Return a result that can be compared: jobs are replaced by their numbers."""
    if isinstance(said, Job):
        return said.id - FIRST_ID
    if isinstance(said, ModelJob):
        return said.number
    if isinstance(said, Claim | ModelClaim):
        return said.number, _plain(said.jobs)
    if isinstance(said, list):
        return [_plain(one) for one in said]
    return said


def _outcome(wait: w.Waiting) -> object:
    """Return the result of a wait."""
    if isinstance(wait, w.PutWait):
        return _plain(wait.job), wait.refusal.code if wait.refusal else ""
    if isinstance(wait, w.EndWait):
        assert wait.processed == (wait.end == w.END_ACKED)
        return w.END_NAMES[wait.end], wait.reason
    assert isinstance(wait, w.TakeWait)
    return _plain(wait.jobs)


def _model_outcome(wait: ModelWaiting) -> object:
    if isinstance(wait, ModelPutWait):
        return _plain(wait.job), wait.refusal
    if isinstance(wait, ModelEndWait):
        return wait.end, wait.reason
    assert isinstance(wait, ModelWait)
    return _plain(wait.jobs)


def _nothing(_: object) -> None:
    return None
