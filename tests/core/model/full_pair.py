"""Further commands for engine and model: see model_pair.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from penstock.core import claims
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import REFUSALS
from penstock.core.job import BODY_BYTES, VERDICT_BURY, VERDICT_MOVE, VERDICT_NACK, Draft, Job, Verdict
from penstock.core.limits import UNSET
from penstock.core.states import OK

from .model_pair import FIRST_ID, ModelPair
from .model_parts import ModelJob, ModelVerdict

_KINDS = {"nack": VERDICT_NACK, "bury": VERDICT_BURY, "move": VERDICT_MOVE}


class FullPair(ModelPair):
    """A pair with all commands of the engine."""

    def alter(self, i: int, **changes: object) -> None:
        """Change some fields of a tube's policy."""
        tube, its = self.tube(i), self.model_tube(i)
        policy = dataclasses.replace(its.policy, **changes)
        self.advance()
        opened = [] if tube.keys is None else [key.name for key in tube.keys.open_keys()]
        self.both(
            lambda: self.engine.alter(tube, policy, self.now),
            lambda: self.model.alter(its, policy, self.now, opened),
        )

    def fits(self, i: int, **changes: object) -> bool:
        """Return whether the policy of a tube can have these changes."""
        policy = self.model_tube(i).policy
        limited = policy.keys == p.KEYS_LIMITED or "key_limit" not in changes
        lingers = policy.after_ack == p.LINGERS or "zombie_ms" not in changes
        return limited and lingers and (policy.keys != p.KEYS_NONE or "key_order" not in changes)

    # Waits

    def wait_put(self, c: int, i: int, draft: Draft, timeout_ms: int) -> None:
        mine, its = self.connections[c]
        self.begin_wait(
            lambda: self.engine.wait_put(mine, self.tube(i), draft, self.now, timeout_ms),
            lambda: self.model.wait_put(its, self.model_tube(i), draft, self.now, timeout_ms),
        )

    def wait_end(self, c: int, number: int, timeout_ms: int, failures: bool, home: int) -> None:
        mine, its = self.connections[c]
        job = self.engine.find(FIRST_ID + number, self.now)
        model_job = self.model.find(number, self.now)
        assert (job is None) == (model_job is None)
        if job is not None and model_job is not None:
            self.begin_wait(
                lambda: self.engine.wait_end(mine, job, self.now, timeout_ms, None, failures, self.tube(home)),
                lambda: self.model.wait_end(its, model_job, self.now, timeout_ms, failures, self.model_tube(home)),
            )

    # Jobs

    def with_job(self, number: int, on_engine: Callable[[Job], int], on_model: Callable[[ModelJob], str]) -> object:
        def ask_engine() -> str:
            job = self.engine.find(FIRST_ID + number, self.now)
            outcome = None if job is None else on_engine(job)
            return "NOJOB" if outcome is None else "OK" if outcome == OK else REFUSALS[outcome].code

        def ask_model() -> str:
            job = self.model.find(number, self.now)
            return "NOJOB" if job is None else on_model(job)

        return self.both(ask_engine, ask_model)

    def done(self, number: int, c: int, body: bytes, ttl_ms: int = UNSET) -> object:
        mine, its = self.connections[c]
        return self.with_job(
            number,
            lambda job: self.engine.done(mine.session, job, body, BODY_BYTES, self.now, ttl_ms),
            lambda job: self.model.done(its.session, job, body, self.now, ttl_ms),
        )

    def switch(self, number: int, state: str, delay_ms: int) -> object:
        return self.with_job(
            number,
            lambda job: self.engine.switch(job, s.STATE_NAMES.index(state), self.now, delay_ms),
            lambda job: self.model.switch(job, state, self.now, delay_ms),
        )

    def move(self, number: int, c: int, target: int, delay_ms: int) -> object:
        mine, its = self.connections[c]
        return self.with_job(
            number,
            lambda job: self.engine.move(mine.session, job, self.tube(target), self.now, delay_ms),
            lambda job: self.model.move(its.session, job, self.model_tube(target), self.now, delay_ms),
        )

    def release_all(self, i: int) -> None:
        def release() -> int:
            self.engine.advance(self.now)
            return self.engine.release_many(self.tube(i), list(self.tube(i).taken.items), self.now)

        self.both(
            release,
            lambda: self.model.release_all(self.model_tube(i), self.now),
        )

    # Claims

    def claim(self, name: bytes, token: int, number: int, i: int, count: int, lease_ms: int) -> object:
        return self.both(
            lambda: claims.claim(self.engine, name, token, number, self.tube(i), count, lease_ms, self.now),
            lambda: self.model.claim(name, token, number, self.model_tube(i), count, lease_ms, self.now),
        )

    def on_claims(self, command: str, *args: object) -> object:
        """Run read_claim, renew_claims, ack_claims or release_claims."""
        return self.both(
            lambda: getattr(claims, command)(self.engine, *args, self.now),
            lambda: getattr(self.model, command)(*args, self.now),
        )

    def judge(self, name: bytes, token: int, number: int, given: list[tuple[int, ModelVerdict | None]]) -> object:
        """Give verdicts on jobs that exist."""
        engine_jobs = [self.engine.jobs.find(FIRST_ID + job) for job, _ in given]
        model_jobs = [next(each for each in self.model.jobs if each.number == job) for job, _ in given]
        verdicts = [verdict for _, verdict in given]
        native = [
            None if each is None else Verdict(_KINDS[each.kind], each.reason, each.delay_ms, each.tube)
            for each in verdicts
        ]
        return self.both(
            lambda: claims.judge_jobs(self.engine, name, token, number, engine_jobs, native, self.now),
            lambda: self.model.judge(name, token, number, list(zip(model_jobs, verdicts, strict=True)), self.now),
        )

    def next_claim(self, name: bytes) -> int:
        return self.model.consumers[name].newest + 1 if name in self.model.consumers else 1

    def token(self, name: bytes) -> int:
        return self.model.consumers[name].token if name in self.model.consumers else 1
