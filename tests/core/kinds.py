"""The kinds of tubes that the machines run: every preset, and what a policy can say and no preset does.

A new preset is a new line in KINDS.
"""

from __future__ import annotations

from penstock.core import policy as p
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, UTUBE, TubePolicy

KEYED_TTL = TubePolicy(
    type="keyed with ttl", order=p.BY_PRIORITY, keys=p.KEYS_LIMITED, has_ttl=True, has_ttr=True, has_delay=True
)
NAMED = TubePolicy(type="named", keys=p.KEYS_NAMED)
STRICT = TubePolicy(
    type="strict",
    order=p.BY_PRIORITY,
    default_priority=5,
    has_ttl=True,
    has_ttr=True,
    has_delay=True,
    default_ttl_ms=50,
    default_ttr_ms=7,
    ttl_while_taken=p.KILLS,
    keys=p.KEYS_LIMITED,
    key_limit=2,
    bury_by=p.SESSION,
    ids=p.ID_HEX,
)

KINDS: dict[str, list[TubePolicy]] = {
    "fifo": [FIFO],
    "fifottl": [FIFOTTL],
    "utube": [UTUBE],
    "disque": [DISQUE],
    "keyed with ttl": [KEYED_TTL],
    "named": [NAMED],
    "strict": [STRICT],
    "many at once": [FIFOTTL, UTUBE, DISQUE, NAMED, FIFO],
}
