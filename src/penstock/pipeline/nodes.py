"""What the lake knows of the nodes: since when it has their history, and what their tubes promise.

Events do not say either. It is asked while the nodes are there, and kept for those who judge history. Of a promise that
was changed, the weaker is kept: nobody is accused by a rule that did not hold then.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.core.policy import ANYONE, KEYS_LIMITED, TubePolicy
from penstock.pipeline.errors import BadLake
from penstock.pipeline.lake import Lake, write_json
from penstock.pipeline.source import Source
from penstock.spark.node import Head

# By node: `since`, the position from which on the lake has everything, and `tubes`, what they promise by their names.
Nodes = dict[str, dict[str, Any]]


def check(lake: Lake, source: Source) -> None:
    """Refuse a node whose log is not the one that the lake has the beginning of.

    One that was restored to an earlier position uses the positions after it again. What is at them now would be taken
    for what the lake has already.
    """
    positions, newest = lake.manifest.positions, lake.manifest.newest
    for node in source.strayed({node: (end - 1, newest[node]) for node, end in positions.items()}):
        raise BadLake(
            f"node {node} was restored, or has lost the end of its log: at position {positions[node] - 1} it has not "
            f"what {lake.root} has, so the two do not go together any more; make a new lake"
        )


def learn(lake: Lake, source: Source, from_first: bool = False) -> None:
    """Ask the nodes, and remember it. `from_first`: all that they keep is about to be read."""
    check(lake, source)
    known = recall(lake)
    _find_gaps(lake, source.heads(), known, from_first)
    for node, policies in source.policies().items():
        tubes = known[node]["tubes"]
        for tube, policy in policies.items():
            tubes[tube] = _weaker(tubes.get(tube), _promise(policy))
    _remember(lake, known)


def were_read(lake: Lake, source: Source, ends: dict[str, int]) -> dict[str, int]:
    """Logs were read to some positions: remember what was trimmed before that. Tell how far the lake has read them now.

    What is trimmed while it is read counts as a gap, too: nobody knows which was first.
    """
    heads, known = source.heads(), recall(lake)
    if _find_gaps(lake, heads, known):
        _remember(lake, known)
    reached = read_to(lake, heads)
    return {node: max(end, reached.get(node, 0)) for node, end in ends.items()}


def read_to(lake: Lake, heads: dict[str, Head]) -> dict[str, int]:
    """By node, the first position of its log that the lake has not read."""
    manifest, found = lake.manifest, dict(lake.manifest.positions)
    for node, end in manifest.read.items():
        # A log that ends before that was restored: what is at such positions by now was never read.
        if node not in heads or end <= heads[node].end:
            found[node] = max(end, found.get(node, 0))
    return found


def _find_gaps(lake: Lake, heads: dict[str, Head], known: Nodes, from_first: bool = False) -> bool:
    """Let history begin behind what was trimmed before it was read. Tell whether anything is new."""
    reached, before = read_to(lake, heads), json.dumps(known)
    for node, head in heads.items():
        mine = known.setdefault(node, {"since": head.first, "tubes": {}})
        begun: int = mine["since"]
        if head.first > reached.get(node, begun):
            mine["since"] = head.first
        elif from_first:
            mine["since"] = min(begun, head.first)
    return json.dumps(known) != before


def _remember(lake: Lake, known: Nodes) -> None:
    lake.make()
    write_json(lake.state / "nodes.json", known)


def recall(lake: Lake) -> Nodes:
    """What was learnt."""
    path = lake.state / "nodes.json"
    try:
        found: Nodes = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadLake(f"{path} cannot be read ({error}); remove it, and the next `once` asks the nodes again") from None
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
