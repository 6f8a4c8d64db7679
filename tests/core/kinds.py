"""The kinds of tubes that the machines run: every preset, what a policy can say and no preset does, and a mixture."""

from __future__ import annotations

from penstock.core import policy as p
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, PRESETS, STUBE, UTUBE, TubePolicy

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

TAGGED = TubePolicy(type="tagged", keys=p.KEYS_TAGGED, owner=p.ANYONE, has_ttl=True)

KINDS: dict[str, list[TubePolicy]] = {
    **{name: [policy] for name, policy in PRESETS.items()},
    "strict": [STRICT],
    "tagged": [TAGGED],
    "many at once": [FIFOTTL, UTUBE, DISQUE, STUBE, FIFO],
    "all": [*PRESETS.values(), STRICT, TAGGED],
}
