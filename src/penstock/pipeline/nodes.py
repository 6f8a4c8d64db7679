"""What the lake knows of the nodes: since when it has their history, and what their tubes promise.

Events do not say either. It is asked while the nodes are there, and kept for those who judge history. Of a promise that
was changed, the weaker is kept: nobody is accused by a rule that did not hold then.
"""

from __future__ import annotations

import json
import os
from typing import Any

from penstock.core.policy import ANYONE, KEYS_LIMITED, TubePolicy
from penstock.pipeline.lake import Lake
from penstock.pipeline.source import Source

# By node: `since`, the position from which on the lake has everything, and `tubes`, what they promise by their names.
Nodes = dict[str, dict[str, Any]]


def learn(lake: Lake, source: Source, from_first: bool = False) -> None:
    """Ask the nodes, and remember it. `from_first`: all that they keep is about to be read."""
    known = recall(lake)
    for node, head in source.heads().items():
        mine = known.setdefault(node, {"since": head.first, "tubes": {}})
        if from_first:
            mine["since"] = min(mine["since"], head.first)
        elif head.first > lake.manifest.positions.get(node, head.first):
            mine["since"] = head.first  # It was trimmed before it was read.
    for node, policies in source.policies().items():
        tubes = known[node]["tubes"]
        for tube, policy in policies.items():
            tubes[tube] = _weaker(tubes.get(tube), _promise(policy))
    lake.state.mkdir(parents=True, exist_ok=True)
    new = lake.state / "nodes.new"
    new.write_text(json.dumps(known))
    os.replace(new, lake.state / "nodes.json")


def recall(lake: Lake) -> Nodes:
    """What was learnt."""
    path = lake.state / "nodes.json"
    found: Nodes = json.loads(path.read_text()) if path.exists() else {}
    return found


def _promise(policy: TubePolicy) -> dict[str, Any]:
    return {
        "owned": policy.owner != ANYONE,
        "cancels": policy.ack_cancels,
        "key_limit": policy.key_limit if policy.keys == KEYS_LIMITED else None,
    }


def _weaker(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """What holds whichever of two promises did."""
    if one is None:
        return other
    limits = (one["key_limit"], other["key_limit"])
    return {
        "owned": one["owned"] and other["owned"],
        "cancels": one["cancels"] or other["cancels"],
        "key_limit": None if None in limits else max(limits),
    }
