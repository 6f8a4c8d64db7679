"""What clients did and saw: the only thing that most checkers look at.

Every call is invoked, and ends in one of three ways: it was done, it was refused, or nobody knows. The third is an
outcome of its own: taken for a refusal, it would hide a loss.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from penstock.core.limits import NEVER

# How a call ended.
UNKNOWN = "unknown"  # No answer, or one that leaves it open: NOREPL, a timeout, a lost connection.
DONE = "done"
REFUSED = "refused"


class Violation(AssertionError):
    """A promise was broken, seen while it happened."""


class Add:
    """An ADDJOB. Every body is used once, so that what is delivered tells where it came from."""

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
        self.invoked = invoked  # By the true clock, microseconds.
        self.node = node
        self.outcome = UNKNOWN
        self.ended = 0
        self.id = b""
        self.refusal = b""


class Delivery:
    """A job that came to a client."""

    __slots__ = ("at", "body", "client", "id", "local_ms", "nacks", "node", "queue", "returns", "sent")

    def __init__(self, id: bytes, queue: bytes, body: bytes) -> None:
        self.id = id
        self.queue = queue
        self.body = body
        self.at = 0  # When it came,
        self.sent = 0  # and when it was sent to the client.
        self.node = 0
        self.local_ms = 0  # When the node handed it out, by its own clock.
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
        self.counted = False  # Whether the node knew the job.
        self.outcome = UNKNOWN
        self.ended = 0


class Nack:
    """A NACK of one job."""

    __slots__ = ("ended", "invoked")

    def __init__(self, invoked: int) -> None:
        self.invoked = invoked
        self.ended = NEVER  # It may still come.


class Fault:
    """Something that was done to the cluster, and until when."""

    __slots__ = ("began", "ended", "forgets", "kind", "node")

    def __init__(self, kind: str, node: int, began: int, forgets: bool = False) -> None:
        self.kind = kind
        self.node = node  # -1: not of one node.
        self.began = began
        self.ended = began
        self.forgets = forgets  # The node has lost jobs that it had told others it holds.


class History:
    """One simulation, as it was seen from outside."""

    def __init__(self) -> None:
        self.adds: dict[bytes, Add] = {}  # By body.
        self.deliveries: list[Delivery] = []
        self.acks: dict[bytes, list[Ack]] = {}  # By id.
        self.nacks: dict[bytes, list[Nack]] = {}  # By id.
        self.written: Counter[bytes] = Counter()  # Jobs by id, as nodes wrote them to clients who may not have read.
        self.astray: Counter[bytes] = Counter()  # Jobs by id, as nodes handed them to others that were gone.
        self.faults: list[Fault] = []
        self.errors: Counter[str] = Counter()  # First words of refusals.
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, *words: object) -> None:
        """Let something count for the digest."""
        self._hash.update(repr(words).encode())

    def digest(self) -> str:
        """A hash of everything that was noted."""
        return self._hash.hexdigest()
