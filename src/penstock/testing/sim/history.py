"""The history of a simulation as clients saw it. Most checkers use nothing else.

Every call has one of three outcomes: done, refused or unknown. Unknown is separate, because treating it as refused
would hide lost jobs.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from penstock.core.limits import NEVER

# Outcomes of a call.
UNKNOWN = "unknown"  # No answer, or one that leaves the outcome open: NOREPL, a timeout, a lost connection.
DONE = "done"
REFUSED = "refused"


class Violation(AssertionError):
    """Raised when a guarantee is violated during the run."""


class Add:
    """The ADDJOB of one job. Every job has a different body, so the body of a delivery identifies the ADDJOB."""

    __slots__ = (
        *("body", "queue", "retry_ms", "ttl_ms", "delay_ms", "replicate", "is_async"),
        *("invoked", "node", "outcome", "ended", "id", "refusal"),
    )

    def __init__(self, body: bytes, queue: bytes, invoked: int, node: int) -> None:
        self.body = body
        self.queue = queue
        self.retry_ms = 0  # 0: at most once.
        self.ttl_ms = 0
        self.delay_ms = 0
        self.replicate = 1
        self.is_async = False
        self.invoked = invoked  # Simulated time in microseconds.
        self.node = node
        self.outcome = UNKNOWN
        self.ended = 0
        self.id = b""
        self.refusal = b""


class Delivery:
    """A job that a client received."""

    __slots__ = ("at", "body", "client", "id", "local_ms", "nacks", "node", "queue", "returns", "sent")

    def __init__(self, id: bytes, queue: bytes, body: bytes) -> None:
        self.id = id
        self.queue = queue
        self.body = body
        self.at = 0  # When the client received it.
        self.sent = 0  # When the node sent it.
        self.node = 0
        self.local_ms = 0  # When the node delivered it, by its own clock.
        self.nacks = 0
        self.returns = 0
        self.client = 0


class Ack:
    """An ACKJOB or FASTACK of one job."""

    __slots__ = ("counted", "ended", "fast", "id", "invoked", "node", "outcome")

    def __init__(self, id: bytes, invoked: int, node: int, fast: bool) -> None:
        self.id = id
        self.invoked = invoked
        self.node = node
        self.fast = fast
        self.counted = False  # Whether the node had the job.
        self.outcome = UNKNOWN
        self.ended = 0


class Nack:
    """A NACK of one job."""

    __slots__ = ("ended", "invoked")

    def __init__(self, invoked: int) -> None:
        self.invoked = invoked
        self.ended = NEVER  # NEVER: it may still arrive.


class Fault:
    """A fault of the cluster, with its begin and end."""

    __slots__ = ("began", "ended", "forgets", "kind", "node")

    def __init__(self, kind: str, node: int, began: int, forgets: bool = False) -> None:
        self.kind = kind
        self.node = node  # -1: it does not concern one node.
        self.began = began
        self.ended = began
        self.forgets = forgets  # The node loses jobs that it had confirmed to others.


class History:
    """The history of one simulation."""

    def __init__(self) -> None:
        self.adds: dict[bytes, Add] = {}  # By body.
        self.deliveries: list[Delivery] = []
        self.acks: dict[bytes, list[Ack]] = {}  # By id.
        self.nacks: dict[bytes, list[Nack]] = {}  # By id.
        # How often each at-most-once job was sent to a client, which may not have received it.
        self.written: Counter[bytes] = Counter()
        # How often each job was handed over to a process that no longer existed.
        self.astray: Counter[bytes] = Counter()
        self.faults: list[Fault] = []
        self.errors: Counter[str] = Counter()  # Error codes of refusals.
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, *words: object) -> None:
        """Add an event to the digest of the history."""
        self._hash.update(repr(words).encode())

    def digest(self) -> str:
        """Return a hash of all events."""
        return self._hash.hexdigest()
