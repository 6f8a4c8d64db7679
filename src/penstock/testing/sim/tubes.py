"""The kinds of tubes that the workload `tubes` uses. Each tube lives on one node, its home."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from penstock.core.policy import ANYONE, FIFOTTL

ARRIVAL = "arrival"
PRIORITY = "priority"


@dataclass(frozen=True)
class TubeKind:
    """One kind of tube, as clients create it and as checkers see it."""

    name: bytes
    type: bytes
    words: tuple[bytes, ...] = ()  # Further options of TUBE CREATE.
    options: tuple[tuple[str, object], ...] = ()  # The same options of queue.create_tube.
    order: str = ARRIVAL  # The order in which jobs are delivered.
    key_limit: int = 0  # How many jobs of a key can be taken at a time; 0: the tube has no keys.
    ttr_ms: int = 0  # How long a consumer can hold a job; 0: without limit.
    capacity: int = 0  # The number of jobs that fit; 0: any number.
    over_iproto: bool = True  # queue.create_tube can create it.
    once: bool = False  # Its jobs are delivered at most once, and every session can ack them.


KINDS = (
    TubeKind(b"fifo", b"fifo"),
    TubeKind(b"priorities", b"fifottl", order=PRIORITY),
    TubeKind(b"timed", b"fifottl", (b"TTR", b"2s"), (("ttr", 2),), order=PRIORITY, ttr_ms=2_000),
    TubeKind(b"keys", b"utube", key_limit=1),
    TubeKind(b"pairs", b"utube", (b"KEY-LIMIT", b"2"), key_limit=2, over_iproto=False),
    TubeKind(b"limited", b"limfifottl", (b"CAPACITY", b"4"), (("capacity", 4),), order=PRIORITY, capacity=4),
    TubeKind(b"fair", b"utubettl", (b"FAIR", b"yes"), order="", key_limit=1, over_iproto=False),
)

# With the feature `once`, RESP clients also use this tube. Its policy is that of `fifottl`, but for its owner.
_ANYONE = json.dumps(asdict(replace(FIFOTTL, type="anyone", owner=ANYONE))).encode()
ONCE_KIND = TubeKind(b"once", b"fifottl", (b"POLICY", _ANYONE), order=PRIORITY, over_iproto=False, once=True)
