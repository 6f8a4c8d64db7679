"""The tube policies that the machines run: all presets, policies that no preset covers, and mixtures."""

from __future__ import annotations

from dataclasses import replace

from penstock.core import policy as p
from penstock.core.policy import DISQUE, FIFO, FIFOTTL, PRESETS, QUEUE15, STUBE, UTUBE, UTUBETTL, TubePolicy

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

KEPT = replace(FIFOTTL, type="kept", after_ack=p.KEPT)
LINGERING = replace(UTUBETTL, type="lingering", after_ack=p.LINGERS, zombie_ms=6)
FAIR = replace(UTUBE, type="fair", key_order=p.FAIR, key_limit=2)
FAIR_TAGGED = replace(STRICT, type="fair and tagged", keys=p.KEYS_TAGGED, key_limit=1, key_order=p.FAIR)

FAILING = [
    replace(FIFOTTL, type="moves on", default_ttr_ms=9, retry="2x const(3ms) then move tube 1"),
    replace(UTUBETTL, type="buries", default_ttr_ms=9, retry="3x linear(2ms..5ms) then bury"),
    replace(DISQUE, type="drops", default_ttr_ms=9, retry="3x exp(1ms..4ms) then drop"),
    replace(FIFO, type="moves out", retry="2x then move tube of the dead"),
]

LIMITED = [
    replace(FIFO, type="few", capacity=3),
    replace(UTUBETTL, type="few and small", capacity=4, capacity_bytes=12, key_limit=2),
    replace(DISQUE, type="small", capacity_bytes=8),
]

ALIKE = [
    replace(QUEUE15, type="alike", dedup_count=3, dedup_ms=12),
    replace(FIFOTTL, type="seen lately", dedup_count=2, unique_bodies=True, capacity=6),
]

KINDS: dict[str, list[TubePolicy]] = {
    **{name: [policy] for name, policy in PRESETS.items()},
    "strict": [STRICT],
    "tagged": [TAGGED],
    "many at once": [FIFOTTL, UTUBE, DISQUE, STUBE, FIFO],
    "kept": [KEPT, LINGERING],
    "fair": [FAIR, FAIR_TAGGED],
    "failing": FAILING,
    "limited": LIMITED,
    "alike": ALIKE,
    "all": [*PRESETS.values(), STRICT, TAGGED, KEPT, LINGERING, FAIR, *FAILING[2:], *LIMITED, *ALIKE],
}
