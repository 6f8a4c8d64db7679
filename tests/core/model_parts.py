"""What the model is made of: its jobs, tubes and clients, and the rules that need nothing but these."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core import limits
from penstock.core import policy as p
from penstock.core.job import Draft
from penstock.core.limits import NEVER, PRIORITY_UNSET, UNSET
from penstock.core.policy import TubePolicy
from penstock.core.retry import CONST, EXP, LINEAR, RetryPolicy


class Refused(Exception):
    """The command is refused; `code` says why."""

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
    taken: list[ModelJob] = field(default_factory=list)  # A bag: see swap_out.
    seen: list[tuple[bytes, ModelJob, int]] = field(default_factory=list)  # Puts with a dedup id: it, what, when.
    alike: dict[tuple[str, bytes], list[ModelJob]] = field(default_factory=dict)  # Bags, by state and body.
    keys: list[bytes] = field(default_factory=list)  # Those that have jobs, in the order they came.
    turns: dict[bytes, int] = field(default_factory=dict)  # In fair tubes: the tick at which each key got its turn.
    key_lines: list[bytes] = field(default_factory=list)  # Keys that takes wait for, in order of the first such take.
    woken_keys: list[bytes] = field(default_factory=list)  # Keys whose takes have to be served, first woken first.

    def __post_init__(self) -> None:
        self.next_local = self.policy.first_integer


@dataclass(eq=False)
class ModelSession:
    token: bytes
    connections: int = 1
    due: int = NEVER  # The end of its grace time, while nobody is connected.
    set_at: int = 0
    held: list[ModelJob] = field(default_factory=list)


@dataclass(eq=False)
class ModelConnection:
    session: ModelSession


@dataclass(eq=False, kw_only=True)
class ModelWaiting:
    """Anybody who waits."""

    connection: ModelConnection
    due: int
    set_at: int
    outcome: str = "waiting"


@dataclass(eq=False, kw_only=True)
class ModelWait(ModelWaiting):
    """For a job to take."""

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
    """For room to put a job."""

    tube: ModelTube
    draft: Draft
    job: ModelJob | None = None
    refusal: str = ""


@dataclass(eq=False, kw_only=True)
class ModelEndWait(ModelWaiting):
    """For a job to end; with `failures`, also to be buried or dead-lettered."""

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
    given: int = PRIORITY_UNSET  # Its priority before urgent or requeue set it aside.
    claim: ModelClaim | None = None
    doomed: bool = False
    wake: int = NEVER  # When being delayed, taken or a zombie ends by itself.
    state: str = "gone"
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
    """Jobs are served by priority, then in the order in which they came; urgent ones before, the last first."""
    return job.priority, job.order


def not_held(job: ModelJob, session: ModelSession) -> str:
    """Why this session may not act as the taker of this job, or OK."""
    if job.state != "taken":
        return "NOTTAKEN"
    if job.claim is not None:
        return "NOTOWNER"
    return "OK" if job.holder in (session, None) else "NOTOWNER"


def is_spent(job: ModelJob) -> bool:
    return job.once and job.deliveries > 0


def not_returnable(job: ModelJob, session: ModelSession) -> str:
    """Why this session may not give this job back, or OK."""
    refusal = not_held(job, session)
    return "ONLYONCE" if refusal == "OK" and job.once else refusal


def is_duration(ms: int) -> bool:
    return 0 <= ms <= limits.DURATION_MS_MAX or ms == NEVER


def later(moment: int, ms: int) -> int:
    return NEVER if moment == NEVER else moment + ms


def ttl_of(tube: ModelTube, draft: Draft) -> int:
    return tube.policy.default_ttl_ms if draft.ttl_ms == UNSET else draft.ttl_ms


def ttr_of(tube: ModelTube, draft: Draft) -> int:
    """What the job says, else what its tube says, else its ttl (in disque tubes a tenth of it, 1 s to 5 min)."""
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
    """Leave a bag: the last takes the place of the one that goes.

    Nothing is promised about the order in which a session that ends gives its jobs back, or which of several jobs of
    one body a put finds. Yet of two tubes it decides which is looked at first, so the model does as the engine does.
    """
    last = held.pop()
    if last is not job:
        held[held.index(job)] = last


def swap_to_doomed(taken: list[ModelJob], job: ModelJob) -> None:
    """Those that go when their claims end stand first in the bag of what is taken."""
    at, doomed = taken.index(job), sum(other.doomed for other in taken)
    taken[at], taken[doomed] = taken[doomed], job


def swap_taken_out(taken: list[ModelJob], job: ModelJob) -> None:
    """Leave the bag of what is taken: one of the doomed goes as the last of them."""
    if job.doomed:
        at, last = taken.index(job), sum(other.doomed for other in taken) - 1
        taken[at], taken[last] = taken[last], job
    swap_out(taken, job)


def retry_wait(retry: RetryPolicy, failures: int) -> int:
    """How long a job waits that failed so often; without jitter."""
    grown = {CONST: retry.first_ms, LINEAR: retry.first_ms * failures, EXP: retry.first_ms * 2 ** (failures - 1)}
    return min(grown.get(retry.shape, 0), retry.longest_ms)
