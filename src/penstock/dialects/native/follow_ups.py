"""THEN PUT: the puts that follow the end of a delivery in the same command. core/tasks/follow_ups.py explains them."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from penstock.core.engine import quoted_name
from penstock.core.errors import BadSyntax, CrossHome, OutOfRange, refuse
from penstock.core.job import Draft, Job
from penstock.core.limits import FOLLOW_UPS_MAX
from penstock.core.policy import DEFAULT
from penstock.core.states import NO_JOB, OK
from penstock.core.tasks.follow_ups import hold_refusal, open_tubes, settle_then, were_put
from penstock.dialects.native.arguments import PUT_OPTIONS, Words, check_kind, read_put
from penstock.node.caller import Caller
from penstock.node.context import CommandContext
from penstock.wire.headers import encode_headers


class FollowUp:
    """One put of a command: the name of its tube, the job, and whether the tube must exist."""

    def __init__(self, tube: bytes, draft: Draft) -> None:
        self.tube = tube
        self.draft = draft
        self.existing = False


def read_follow_ups(words: Words) -> list[FollowUp]:
    """Read all words THEN PUT tube body [option value ...] [EXISTING] to the end of the command."""
    puts: list[FollowUp] = []
    while words.has_more():
        if words.option() != b"THEN":
            raise words.unknown([*PUT_OPTIONS, "EXISTING", "THEN"])
        if not words.has_more() or words.option() != b"PUT":
            raise BadSyntax("THEN must be followed by PUT, a tube and a body")
        if len(puts) == FOLLOW_UPS_MAX:
            raise OutOfRange(f"a command may put up to {FOLLOW_UPS_MAX} jobs after it has settled one")
        put = FollowUp(words.value(), Draft(words.value()))
        draft = put.draft
        while words.has_more() and words.args[words.at].upper() != b"THEN":
            word = words.option()
            if word == b"EXISTING":
                put.existing = True
            elif not read_put(words, draft, word):
                raise words.unknown([*PUT_OPTIONS, "EXISTING", "THEN"])
        headers = words.end_headers()
        if headers is not None:
            draft.headers = encode_headers(headers.items())
        check_kind(draft.body, draft.body_kind)
        puts.append(put)
    return puts


def settle_job_then(
    context: CommandContext,
    caller: Caller,
    job: Job | None,
    puts: list[FollowUp],
    settle: Callable[[Job], int],
    now: i64,
) -> list[Job]:
    """Settle a job and put others, or raise an error and change nothing. Return the jobs that were put.

    `job` is None if it is gone. If the command was executed before, return the jobs that it put then.
    """
    engine = context.engine
    drafts = [put.draft for put in puts]
    refusal = NO_JOB if job is None else hold_refusal(engine, caller.connection.session, job)
    if refusal != OK or job is None:
        before = were_put(engine, [engine.tubes.get(put.tube) for put in puts], drafts, now)
        if before is None:
            refuse(refusal)
        return before
    check_homes(context, b"tube " + engine.tube_of(job).name, puts)
    context.reserve_log_for(drafts)
    tubes = open_tubes(engine, [put.tube for put in puts], drafts, now)
    outcome, jobs = settle_then(engine, caller.connection.session, job, lambda: settle(job), tubes, drafts, now)
    if outcome != OK:
        refuse(outcome)
    return jobs


def check_homes(context: CommandContext, near: bytes, puts: list[FollowUp]) -> None:
    """Raise an error if the tube of a put is on another node than `near`, or must not be created."""
    missing: list[bytes] = []
    for put in puts:
        if put.tube in context.engine.tubes:
            continue
        if context.is_elsewhere(put.tube):
            raise CrossHome(
                f"tube {quoted_name(put.tube)} is not on the node of {near.decode('utf-8', 'backslashreplace')}; "
                "name only tubes of one node, or put the job with a command of its own"
            )
        if put.existing:
            context.engine.tube(put.tube)
        missing.append(put.tube)
    if missing:
        context.check_new(missing, DEFAULT)
