"""Facts about the nodes that the audit needs and that events do not have, stored in the lake's nodes.json.

The facts are the position at which the complete history of a node starts in the lake, and the guarantees of its tubes.
They are requested while the nodes can be reached. If the policy of a tube changes, only the guarantees that the
old and the new policy share are stored. Otherwise the audit could report a violation from a time when the guarantee did
not apply.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.core.policy import ANYONE, KEYS_LIMITED, TubePolicy
from penstock.pipeline.errors import BadLake
from penstock.pipeline.lake import Lake, write_json
from penstock.pipeline.source import Source
from penstock.spark.node import Head

# By node: `since`, the position from which on the lake has everything, and `tubes`, the guarantees by tube name.
Nodes = dict[str, dict[str, Any]]


def check(lake: Lake, source: Source) -> None:
    """Raise BadLake if the log of a node does not continue the history that the lake has.

    A node that was restored to an earlier position uses the later positions again. Its new events would be mistaken for
    events that the lake already has.
    """
    positions, newest = lake.manifest.positions, lake.manifest.newest
    for node in source.diverged({node: (end - 1, newest[node]) for node, end in positions.items()}):
        raise BadLake(
            f"node {node} was restored, or has lost the end of its log: at position {positions[node] - 1} its log "
            f"differs from {lake.root}; create a new lake"
        )


def refresh(lake: Lake, source: Source, from_first: bool = False) -> None:
    """Request the facts from the nodes and store them. `from_first` means that the logs will be read from the start."""
    check(lake, source)
    known = load(lake)
    _find_gaps(lake, source.heads(), known, from_first)
    for node, policies in source.policies().items():
        tubes = known[node]["tubes"]
        for tube, policy in policies.items():
            tubes[tube] = _weaker(tubes.get(tube), _promise(policy))
    _store(lake, known)


def record_read(lake: Lake, source: Source, ends: dict[str, int]) -> dict[str, int]:
    """Store the gaps in the history, after logs were read up to `ends`. Return the first unread position of each log.

    History that a node trimmed during the read also counts as a gap, because it may not have been read before.
    """
    heads, known = source.heads(), load(lake)
    if _find_gaps(lake, heads, known):
        _store(lake, known)
    reached = read_to(lake, heads)
    return {node: max(end, reached.get(node, 0)) for node, end in ends.items()}


def read_to(lake: Lake, heads: dict[str, Head]) -> dict[str, int]:
    """Return for each node the first position of its log that the lake has not read."""
    manifest, found = lake.manifest, dict(lake.manifest.positions)
    for node, end in manifest.read.items():
        # A log that ends before this position was restored. New rows at later positions were never read.
        if node not in heads or end <= heads[node].end:
            found[node] = max(end, found.get(node, 0))
    return found


def _find_gaps(lake: Lake, heads: dict[str, Head], known: Nodes, from_first: bool = False) -> bool:
    """Update `since`, the position from which the lake has all events of a node. Return whether anything changed.

    If the node trimmed events that the lake had not read, `since` becomes the first position that the node still has.
    """
    reached, before = read_to(lake, heads), json.dumps(known)
    for node, head in heads.items():
        mine = known.setdefault(node, {"since": head.first, "tubes": {}})
        begun: int = mine["since"]
        if head.first > reached.get(node, begun):
            mine["since"] = head.first
        elif from_first:
            mine["since"] = min(begun, head.first)
    return json.dumps(known) != before


def _store(lake: Lake, known: Nodes) -> None:
    lake.make()
    write_json(lake.state / "nodes.json", known)


def load(lake: Lake) -> Nodes:
    path = lake.state / "nodes.json"
    try:
        found: Nodes = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadLake(f"{path} cannot be read ({error}); remove it, and the next `once` creates it again") from None
    return found


def _promise(policy: TubePolicy) -> dict[str, Any]:
    return {
        # A command of any session can make a driver change the jobs of others.
        "owned": policy.owner != ANYONE and not policy.driven,
        "cancels": policy.ack_cancels,
        "key_limit": policy.key_limit if policy.keys == KEYS_LIMITED else None,
    }


def _weaker(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """Return the guarantees that hold under both of two policies."""
    if one is None:
        return other
    limits = (one["key_limit"], other["key_limit"])
    return {
        "owned": one["owned"] and other["owned"],
        "cancels": one["cancels"] or other["cancels"],
        "key_limit": None if None in limits else max(limits),
    }
