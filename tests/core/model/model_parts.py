"""The data classes of the model, and rules that need only these."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import CONST, EXP, LINEAR, RetryPolicy


class Refused(Exception):
    """A command is refused with this code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class ModelTube:
    name: bytes
    policy: TubePolicy
    paused_in: bool = False
    paused_out: bool = False
    next_local: int = 0
    taken: list[ModelJob] = field(default_factory=list)  # In the engine's order: see swap_out.
    # Puts with a dedup id: the id, the job, the time.
    seen: list[tuple[bytes, ModelJob, int]] = field(default_factory=list)
    # Jobs by state and body, in the engine's order.
    alike: dict[tuple[str, bytes], list[ModelJob]] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)  # Keys that have jobs, in order of their creation.
    turns: dict[bytes, int] = field(default_factory=dict)  # In fair tubes: the tick at which each key got its turn.
    key_lines: list[bytes] = field(default_factory=list)  # Keys that takes wait for, in order of the first such take.
    woken_keys: list[bytes] = field(default_factory=list)  # Keys whose takes have to be served, first woken first.

    def __post_init__(self) -> None:
        self.next_local = self.policy.first_integer


@dataclass(eq=False)
class ModelSession:
    token: bytes
    connections: int = 1
    due: int = NEVER  # The end of the grace time, while there is no connection.
    set_at: int = 0
    held: list[ModelJob] = field(default_factory=list)


@dataclass(eq=False)
class ModelConnection:
    session: ModelSession


@dataclass(eq=False, kw_only=True)
class ModelWaiting:
    """A client that waits."""

    connection: ModelConnection
    due: int
    set_at: int
    outcome: str = "waiting"


@dataclass(eq=False, kw_only=True)
class ModelWait(ModelWaiting):
    """A take that waits for a job."""

    tubes: list[ModelTube]
    key: bytes | None
    want: int
    ttr: int
    jobs: list[ModelJob] = field(default_factory=list)

    def line(self, tube: ModelTube) -> bytes | None:
        """Return the key that it waits for in this tube, or None if it takes any job."""
        return b"" if self.key is None and tube.policy.keys == p.KEYS_NAMED else self.key


@dataclass(eq=False, kw_only=True)
class ModelPutWait(ModelWaiting):
    """A put that waits for room."""

    tube: ModelTube
    draft: Draft
    job: ModelJob | None = None
    refusal: str = ""


@dataclass(eq=False, kw_only=True)
class ModelEndWait(ModelWaiting):
    """A wait for the end of a job; with `failures`, also for a bury or dead letter."""

    job: ModelJob
    failures: bool = False
    end: str = "timeout"
    reason: bytes = b""


@dataclass(eq=False)
class ModelClaim:
    number: int
    jobs: list[ModelJob]
    due: int = NEVER
    set_at: int = 0


@dataclass(frozen=True)
class ModelVerdict:
    """What happens to a job instead of an ack when its claim is acked."""

    kind: str  # nack, bury or move.
    reason: bytes = b""
    delay_ms: int = UNSET
    tube: bytes = b""


@dataclass(eq=False)
class ModelConsumer:
    name: bytes
    token: int
    acked: int = 0
    newest: int = 0
    claims: dict[int, ModelClaim] = field(default_factory=dict)


@dataclass(eq=False)
class ModelJob:
    number: int
    local: int
    tube: ModelTube
    body: bytes
    key: bytes
    once: bool
    priority: int
    ttr: int
    expiry: int
    order: int
    retry: RetryPolicy | None = None
    name: bytes = b""
    unique: bytes = b""
    given: int = PRIORITY_UNSET  # Priority before urgent or requeue replaced it.
    claim: ModelClaim | None = None
    doomed: bool = False
    verdict: ModelVerdict | None = None
    wake: int = NEVER  # Time at which the state delayed, taken or zombie ends by itself.
    state: str = "gone"
    since: int = 0  # Time at which it entered this state.
    holder: ModelSession | None = None
    deliveries: int = 0
    nacks: int = 0
    returns: int = 0
    buries: int = 0
    reason: bytes = b""
    set_at: int = 0

    @property
    def due(self) -> int:
        ttl_waits = self.tube.policy.ttl_while_taken == p.WAITS or self.claim is not None
        if self.state == "zombie" or (self.state == "taken" and ttl_waits):
            return self.wake
        return min(self.wake, self.expiry)


def require(truth: bool, code: str) -> None:
    if not truth:
        raise Refused(code)


def rank(job: ModelJob) -> tuple[int, int]:
    """Return the sort key: priority, then order of arrival.

    Urgent jobs have negative orders, the last one the lowest.
    """
    return job.priority, job.order


def not_held(job: ModelJob, session: ModelSession) -> str:
    """Return OK if this session may finish the job, otherwise the refusal."""
    if job.state != "taken":
        return "NOTTAKEN"
    if job.claim is not None:
        return "NOTOWNER"
    return "OK" if job.holder in (session, None) else "NOTOWNER"


def is_spent(job: ModelJob) -> bool:
    return job.once and job.deliveries > 0


def not_returnable(job: ModelJob, session: ModelSession) -> str:
    """Return OK if this session may give the job back, otherwise the refusal."""
    refusal = not_held(job, session)
    return "ONLYONCE" if refusal == "OK" and job.once else refusal


def is_duration(ms: int) -> bool:
    return 0 <= ms <= limits.DURATION_MS_MAX or ms == NEVER


def later(moment: int, ms: int) -> int:
    return NEVER if moment == NEVER else moment + ms


def ttl_of(tube: ModelTube, draft: Draft) -> int:
    return tube.policy.default_ttl_ms if draft.ttl_ms == UNSET else draft.ttl_ms


def ttr_of(tube: ModelTube, draft: Draft) -> int:
    """Return the ttr of the job, else that of its tube, else the ttl (in disque tubes a tenth of it, 1 s to 5 min)."""
    policy = tube.policy
    ttl = ttl_of(tube, draft)
    if draft.ttr_ms != UNSET:
        return draft.ttr_ms
    if policy.default_ttr_ms != UNSET:
        return policy.default_ttr_ms
    if not policy.has_ttr or ttl == NEVER:
        return NEVER
    if policy.ttr_rule == p.TTR_IS_TENTH:
        return min(max(ttl // 10_000 * 1_000, 1_000), 300_000)
    return ttl or NEVER


def check_ttr(tube: ModelTube, ttr_ms: int) -> None:
    require(tube.policy.has_ttr, "UNSUPPORTED")
    require(ttr_ms != 0 and is_duration(ttr_ms), "RANGE")


def check_key(tube: ModelTube, key: bytes) -> None:
    require(tube.policy.keys != p.KEYS_NONE, "UNSUPPORTED")
    require(len(key) <= limits.NAME_BYTES_MAX, "BADNAME")


def check_label(label: bytes | None) -> None:
    require(label is None or 1 <= len(label) <= limits.NAME_BYTES_MAX, "BADNAME")


def check_taking(tubes: list[ModelTube], key: bytes | None, ttr_ms: int) -> None:
    for tube in tubes:
        if key is not None:
            check_key(tube, key)
        if ttr_ms != UNSET:
            check_ttr(tube, ttr_ms)


def check_return(tube: ModelTube, delay_ms: int, ttl_ms: int, priority: int) -> None:
    if delay_ms != 0:
        require(tube.policy.has_delay, "UNSUPPORTED")
        require(0 < delay_ms <= limits.DURATION_MS_MAX, "RANGE")
    if ttl_ms != UNSET:
        require(tube.policy.has_ttl, "UNSUPPORTED")
        require(is_duration(ttl_ms), "RANGE")
    if priority != PRIORITY_UNSET:
        require(tube.policy.order == p.BY_PRIORITY, "UNSUPPORTED")
        require(abs(priority) <= limits.PRIORITY_MAX, "RANGE")


def swap_out(held: list[ModelJob], job: ModelJob) -> None:
    """Remove a job from a list by replacing it with the last one.

    The order in which a session that ends gives its jobs back is not promised, nor which of several jobs with the same
    body a put finds. But the order decides which of two tubes is served first, so the model uses the same order as the
    engine.
    """
    last = held.pop()
    if last is not job:
        held[held.index(job)] = last


def swap_to_doomed(taken: list[ModelJob], job: ModelJob) -> None:
    """Move a job to the doomed ones, which are at the front of the list of taken jobs."""
    at, doomed = taken.index(job), sum(other.doomed for other in taken)
    taken[at], taken[doomed] = taken[doomed], job


def swap_taken_out(taken: list[ModelJob], job: ModelJob) -> None:
    """Remove a job from the list of taken jobs. A doomed one changes places with the last doomed one first."""
    if job.doomed:
        at, last = taken.index(job), sum(other.doomed for other in taken) - 1
        taken[at], taken[last] = taken[last], job
    swap_out(taken, job)


def retry_wait(retry: RetryPolicy, failures: int) -> int:
    """Return how long a job waits after this many failures, without jitter."""
    grown = {CONST: retry.first_ms, LINEAR: retry.first_ms * failures, EXP: retry.first_ms * 2 ** (failures - 1)}
    return min(grown.get(retry.shape, 0), retry.longest_ms)
