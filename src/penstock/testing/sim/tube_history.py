"""The history of the workload `tubes`, as clients saw it: puts, takes, leases and the commands that end leases.

Every call has one of three outcomes, as in history.py: done, refused or unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.limits import NEVER
from penstock.testing.sim.history import DONE, UNKNOWN, Fault
from penstock.testing.sim.tubes import TubeKind


@dataclass
class Put:
    """The put of one job. Every job has a different body, so the body of a delivery identifies its put."""

    body: bytes
    tube: TubeKind
    key: bytes
    priority: int
    delay_ms: int
    node: int  # The node that the client is connected to.
    is_iproto: bool
    invoked: int  # Simulated time in microseconds.
    ended: int = NEVER
    outcome: str = UNKNOWN
    id: bytes = b""  # Empty if the reply does not contain it.
    # The stage or pipeline of the job, if it has one, and its place there. A staged job is put when its stage is
    # published; until that is requested, `invoked` is NEVER.
    batch: bytes = b""
    place: int = 0


@dataclass
class StageRecord:
    """A stage, as its writer sees it. Each of its commands staged a group of jobs."""

    name: bytes
    tube: TubeKind
    mark: bytes  # The mark of PUBLISHONCE, or empty.
    expire_ms: int
    groups: list[list[Put]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)  # Of each group.
    touched: int = 0  # When the last command that staged jobs was sent.
    published_through: int = -1  # The node through which it was published.

    def count(self) -> int:
        """Return the number of jobs that were certainly staged."""
        return sum(len(group) for group, outcome in zip(self.groups, self.outcomes, strict=True) if outcome == DONE)

    def puts(self) -> list[Put]:
        """Return the puts of all groups."""
        return [put for group in self.groups for put in group]


@dataclass
class Take:
    """A take, with or without jobs in its reply."""

    tube: TubeKind
    node: int
    client: int
    token: bytes
    is_iproto: bool
    invoked: int
    ended: int = NEVER
    outcome: str = UNKNOWN


@dataclass
class Lease:
    """A job that a client received. Its session holds the job until the lease ends."""

    body: bytes
    tube: TubeKind
    id: bytes  # As the client names the job.
    number: int  # The number of the job in its tube.
    deliveries: int  # How often the job was delivered, as the reply says; 0 if it does not.
    take: Take
    grace_ms: int
    sent: int  # When the node of the client sent the reply.
    delivered: int  # When the home delivered the job: earlier than `sent` if the take was forwarded.
    at: int  # When the client received it.
    # When the job can be released at the earliest: the client sent a command that releases it, or disconnected.
    free_from: int = NEVER
    resumed: bool = False  # The client resumed its session after it had received the job.
    claim_until: int = 0  # If a claim holds the job: the lease of the claim does not end before this time.
    finishes: list[Finish] = field(default_factory=list)

    def verb_count(self) -> int:
        """Return how many commands of the session that holds the job tried to end the lease."""
        return sum(not each.intruder for each in self.finishes)


@dataclass
class Finish:
    """A command that ends a lease: ack, release, nack or bury. `intruder` marks a command of another session."""

    verb: str
    token: bytes
    client: int
    invoked: int
    intruder: bool = False
    ended: int = NEVER
    outcome: str = UNKNOWN
    refusal: str = ""


class TubeHistory:
    """The history of the tubes in one simulation."""

    def __init__(self) -> None:
        self.puts: dict[bytes, Put] = {}  # By body.
        self.takes: list[Take] = []
        self.leases: list[Lease] = []
        # When homes delivered jobs to clients of other nodes: by the token of the session and the body of the job, and
        # by the number of the delivery.
        self.forwarded: dict[tuple[bytes, bytes], dict[int, int]] = {}
        self.stages: list[StageRecord] = []
        self.kicks: list[tuple[TubeKind, int]] = []  # The tubes that were kicked, and when.

    @staticmethod
    def are_once_jobs_buried(faults: list[Fault]) -> bool:
        """Return whether a node may have buried its at-most-once jobs, because its log may lack deliveries."""
        return any(fault.kind == "power cut" or fault.kind.startswith("rehome") or fault.forgets for fault in faults)

    def delivered_at(self, take: Take, body: bytes, sent: int) -> int:
        """Return when the home delivered a job. The client's node sent the job, in the reply to `take`, at `sent`."""
        times = self.forwarded.get((take.token, body), {}).values()
        return min((at for at in times if take.invoked <= at <= sent), default=sent)
