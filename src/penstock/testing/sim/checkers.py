"""Checkers of the guarantees C1 to C13 and V1 to V3. They examine the history of the clients and the jobs of the nodes.

The docstring of each checker says which guarantee it checks. A failed check names the guarantee, the job and the
evidence. A loss is excused only if a fault that was active can have caused it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.cluster.messages import ENQUEUE, HOLDERS, NODE_FAILED, NODE_SUSPECTED, NOTTAKEN, QUEUED, WILLQUEUE
from penstock.core import states as s
from penstock.core.job import Job
from penstock.core.limits import NEVER
from penstock.testing.invariants import check
from penstock.testing.sim.history import DONE, Ack, Add, Delivery, Violation
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.world import World

# Shorter ttls may expire during a run. A job that expired without a delivery is not lost.
_LONG_TTL_MS = 3_600_000

# The retry time of a copy deviates by up to this much, in ms.
_JITTER_MS = 250

# In a cluster without faults, every holder has received an ack by then.
_HEARD_AFTER = 500 * MS

# The longest time that a message is in transit, unless it is lost.
_NETWORK_MAX = 3 * SECOND

# An ack that is not collected is sent again after three minutes at most.
_COLLECTED_AFTER = 190 * SECOND

# Nemeses that can leave a copy that no other holder knows of. It is delivered once more and then acked.
_COPIES_ASTRAY = ("kill", "power_cut", "failing_disk", "wipe", "leave", "memory", "lose")

# Memory that acks may use beyond the limit. They are not refused, because each ends a larger job.
_MEMORY_SLACK = 16 * 1024

_CRASHES = ("kill", "power cut", "wipe", "failing disk", "lose")

# Messages that are sent only after a race or a fault.
_TOLD_KINDS = {QUEUED: "QUEUED", WILLQUEUE: "WILLQUEUE", ENQUEUE: "ENQUEUE", NOTTAKEN: "NOTTAKEN", HOLDERS: "HOLDERS"}

# Violations of one guarantee that are reported. More would not add information.
_TOLD_MAX = 5


def judge(world: World) -> list[str]:
    """Return all violations that the final state and the history show."""
    by_id = _by_id(world)
    found: list[str] = []
    for checker in (_total_queue, _at_most_once, _contents, _ids, _spacing, _acked, _counters, _quiet, _engines):
        found += list(checker(world, by_id))[:_TOLD_MAX]
    _note_sometimes(world, by_id)
    return found


def _by_id(world: World) -> dict[bytes, list[Delivery]]:
    """Return the deliveries of each job, in the order in which they were sent."""
    found: dict[bytes, list[Delivery]] = {}
    for delivery in world.history.deliveries:
        found.setdefault(delivery.id, []).append(delivery)
    for deliveries in found.values():
        deliveries.sort(key=lambda delivery: (delivery.sent, delivery.local_ms))
    return found


# The history of the clients


def _total_queue(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C1 and C4: if the reply to an ADDJOB is a job id, the job is delivered, unless it expires."""
    delivered = {delivery.body for delivery in world.history.deliveries}
    for add in world.history.adds.values():
        if add.outcome != DONE or add.body in delivered or add.ttl_ms < _LONG_TTL_MS:
            continue
        excuse = _excuse(world, add)
        if excuse:
            world.sometimes(f"a job was lost: {excuse}")
        else:
            yield f"C1: {_describe(add)} was never delivered; {_where(world, add.id)}"


def _excuse(world: World, add: Add) -> str:
    """Return the reason why the loss of a job is allowed, or "" if it is not allowed."""
    history = world.history
    since = [fault for fault in history.faults if max(fault.began, fault.ended) >= add.invoked]
    if add.retry_ms == 0:
        if history.written[add.id]:
            return "at most once, and it was sent to a client, but the connection or the node ended"
        if any(fault.forgets for fault in since):
            return "at most once, and its node lost its jobs"
        # It is unknown whether the job arrived there before.
        return "at most once, and it was handed over to a process that had ended" if history.astray[add.id] else ""
    copies = 1 if add.is_async else add.replicate
    # A node that lost its jobs twice may have held two copies in succession. A node that leaves gives its copy to
    # another one; if all other nodes have a copy, there is one fewer.
    forgot = [fault for fault in since if fault.forgets]
    left = [fault for fault in since if fault.kind == "leave"]
    return "all its holders lost their jobs" if forgot and len(forgot) + len(left) >= copies else ""


def _at_most_once(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C3: an at-most-once job is delivered at most once."""
    times: dict[bytes, list[Delivery]] = {}
    for delivery in world.history.deliveries:
        add = world.history.adds.get(delivery.body)
        if add is not None and add.retry_ms == 0:
            times.setdefault(delivery.body, []).append(delivery)
    for body, deliveries in times.items():
        if len(deliveries) > 1:
            summary = ", ".join(f"by node {each.node} at {_moment(each.at)}" for each in deliveries)
            yield f"C3: {_describe(world.history.adds[body])} was delivered {len(deliveries)} times: {summary}"


def _contents(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C2 and C6: a delivered job was added by a client, with the same contents."""
    # A restarted node uses its wall clock, by which a delay may be over.
    jumps = "clock_jump" in world.options.nemeses
    for delivery in world.history.deliveries:
        add = world.history.adds.get(delivery.body)
        if add is None:
            yield f"C6: {delivery.body!r}, which was never added, was delivered from {delivery.queue!r}"
        elif add.queue != delivery.queue:
            yield f"C6: {_describe(add)} was delivered from {delivery.queue!r}"
        elif add.outcome == DONE and add.id != delivery.id:
            yield f"C6: {_describe(add)} was delivered as {delivery.id!r}"
        elif delivery.nacks > len(world.history.nacks.get(delivery.id, [])):
            yield f"C6: {_describe(add)} shows {delivery.nacks} nacks, which is more than it had"
        elif not jumps and delivery.sent < add.invoked + add.delay_ms * MS * 9 // 10:
            yield f"C6: {_describe(add)} was delivered before its delay was over"
        elif world.options.is_calm and delivery.sent > (add.ended or NEVER) + add.ttl_ms * MS + _HEARD_AFTER:
            yield f"E5: {_describe(add)} was delivered after its ttl was over"


def _ids(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C10: an id belongs to one job only, and encodes whether the job can be delivered again."""
    owner: dict[bytes, bytes] = {}
    named = [(add.id, add.body) for add in world.history.adds.values() if add.id]
    named += [(delivery.id, delivery.body) for delivery in world.history.deliveries]
    for id, body in named:
        if owner.setdefault(id, body) != body:
            yield f"C10: {id!r} names {owner[id]!r} and {body!r}"
        add = world.history.adds.get(body)
        if add is not None and (int(id[36:], 16) % 2 == 1) != (add.retry_ms > 0):
            yield f"C10: {id!r} does not show that its retry time is {add.retry_ms} ms"


def _spacing(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C7: a node does not deliver a job again before the retry time.

    In a simulation without faults, no other node does so either.
    """
    for deliveries in by_id.values():
        add = world.history.adds.get(deliveries[0].body)
        if add is None:
            continue
        least_ms = add.retry_ms - _JITTER_MS
        # A clock that runs fast measures the retry time as shorter.
        least = least_ms * MS * 1_000_000 // (1_000_000 + world.options.drift_ppm)
        for first, second in pairwise(deliveries):
            if world.options.is_calm and not _nacked_between(world, first, second):
                if second.sent - first.sent < least:
                    yield f"C7: {_describe(add)} was delivered {_twice(first, second)}, and nothing had failed"
        last: dict[int, Delivery] = {}
        for second in deliveries:
            before = last.get(second.node)
            last[second.node] = second
            if before is not None and second.local_ms - before.local_ms < least_ms and not _is_over(add, second):
                if _crashed_between(world, before, second) or _nacked_between(world, before, second):
                    continue
                if not _fast_acked_between(world, before, second):
                    yield f"C7: {_describe(add)} was delivered {_twice(before, second)} by the same node"


def _is_over(add: Add, delivery: Delivery) -> bool:
    """Return whether the ttl of a job was almost over at a delivery.

    Such deliveries are not checked, because messages about the job can reach nodes that have already deleted it.
    """
    return delivery.sent > add.invoked + add.ttl_ms * MS * 9 // 10


def _may_be_over_early(world: World, add: Add) -> bool:
    """Return whether a job can have expired too early, because the clock of a restarted node was wrong."""
    return add.ttl_ms < _LONG_TTL_MS and "clock_jump" in world.options.nemeses


def _aged_between(world: World, add: Add, first: Delivery, second: Delivery) -> bool:
    """Return whether the node of two deliveries was restarted between them with a changed wall clock."""
    set_on = {fault.node for fault in world.history.faults if fault.kind == "clock jump"}
    return _may_be_over_early(world, add) and second.node in set_on and _crashed_between(world, first, second)


def _nacked_between(world: World, first: Delivery, second: Delivery) -> bool:
    """Return whether a client nacked the job between two deliveries. A nack shortly before the first counts, too."""
    late = 200 * MS if world.options.is_calm else _NETWORK_MAX
    return any(
        nack.invoked <= second.sent and nack.ended + late >= first.sent
        for nack in world.history.nacks.get(first.id, [])
    )


def _fast_acked_between(world: World, first: Delivery, second: Delivery) -> bool:
    """Return whether a job ended with a FASTACK between two deliveries.

    After a FASTACK, the node deletes the job, and with it the time of the delivery. The FASTACK is sent to the holders
    only once. A holder that could not be reached can bring the job back, and the node may then deliver it at once.
    """
    acks = world.history.acks.get(first.id, [])
    return any(ack.fast and first.sent <= ack.invoked <= second.sent for ack in acks)


def _crashed_between(world: World, first: Delivery, second: Delivery) -> bool:
    """Return whether the node was restarted between two deliveries.

    The jobs that it had delivered can be ready immediately after the restart.
    """
    return any(
        fault.node == second.node
        and fault.kind in _CRASHES
        and fault.began <= second.sent
        and fault.ended >= first.sent
        for fault in world.history.faults
    )


def _acked(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C5: an acked job is not delivered again after every holder must have received the ack."""
    for id, acks in world.history.acks.items():
        done = [ack for ack in acks if _is_kept(world, ack)]
        if not done or id not in by_id:
            continue
        acked = min(ack.ended for ack in done)
        known = _known_at(world, acked, any(ack.fast for ack in acks))
        for delivery in by_id[id]:
            if delivery.sent > known:
                yield f"C5: {id!r} was acked at {_moment(acked)} and delivered at {_moment(delivery.sent)}"
            elif delivery.sent > acked:
                world.sometimes("a job was delivered after its ack")


def _is_kept(world: World, ack: Ack) -> bool:
    """Return whether the node that received an ack guarantees to send it to all holders.

    A node that leaves, or has joined and has no peers yet, guarantees this only for jobs of which it has a copy.
    """
    comes_or_goes = any(name in world.options.nemeses for name in ("leave", "join", "wipe"))
    return ack.outcome == DONE and (ack.counted or not comes_or_goes)


def _known_at(world: World, acked: int, fast: bool) -> int:
    """Return the time at which every holder must have received an ack.

    The ack is sent again at intervals that double. When the faults end, the current interval can be as long
    as the time since the ack, so the next attempt can be this much later.
    """
    if world.options.is_calm:
        return acked + _HEARD_AFTER
    healed = world.healed_at
    if fast or any(name in world.options.nemeses for name in _COPIES_ASTRAY):
        # FASTACK is sent once. A holder that did not receive it delivers the job once more.
        return max(acked, healed) + _COLLECTED_AFTER
    return max(acked, healed) + max(0, healed - acked) + 4 * SECOND


def _counters(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C8: the counters of a job never decrease on a node, unless the node lost its jobs."""
    for id, deliveries in by_id.items():
        # A job that was acked or expired is deleted. A copy that returns has its own counters.
        acked = min((ack.invoked for ack in world.history.acks.get(id, [])), default=NEVER)
        add = world.history.adds.get(deliveries[0].body)
        last: dict[int, Delivery] = {}
        # Deliveries of one turn to two clients arrive in any order.
        for delivery in sorted(deliveries, key=_when_and_counters):
            before = last.get(delivery.node)
            last[delivery.node] = delivery
            if before is None or delivery.sent > acked or _forgot(world, delivery.node):
                continue
            if add is not None and (_is_over(add, delivery) or _aged_between(world, add, before, delivery)):
                continue
            if delivery.nacks < before.nacks or delivery.returns < before.returns:
                yield f"C8: {id!r} shows fewer nacks or deliveries at node {delivery.node} than before"


def _when_and_counters(delivery: Delivery) -> tuple[int, int, int]:
    return delivery.sent, delivery.nacks, delivery.returns


# The jobs of the nodes


def _quiet(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check C9, C13 and V1: at the end of the simulation no node has any jobs or acks."""
    for node in world.nodes:
        for job in _jobs(node):
            if not _is_spent(job):
                what = "C13: a node that leaves" if node.leaving else "V1: node"
                yield f"{what} {node.number} still holds {_shown(node, job)}"
        yield from (f"C9: node {node.number} still keeps {what}" for what in node.leftovers())


def _engines(world: World, by_id: dict[bytes, list[Delivery]]) -> Iterator[str]:
    """Check E1 to E11 of invariants.py: every engine is consistent."""
    for node in world.nodes:
        check(node.engine)
    return iter(())


def is_empty(node: SimNode) -> bool:
    """Return whether a node has no job that can still be delivered."""
    return node.up and all(map(_is_spent, _jobs(node))) and not node.leftovers()


def _is_spent(job: Job) -> bool:
    """Return whether a job is at-most-once and was delivered, so that it only waits for its ack or its ttl."""
    return bool(job.once) and job.deliveries > 0


def _jobs(node: SimNode) -> list[Job]:
    return node.engine.jobs.scan(0, node.engine.jobs.count + 1)


def views_agree(world: World) -> bool:
    """Return whether C12 holds: all nodes are members in the tables of all nodes, and none is suspected."""
    there = [node for node in world.nodes if node.joined]
    everybody = {node.id for node in there}
    for node in there:
        peers = node.cluster.members.peers
        if not node.up or set(peers) | {node.id} != everybody:
            return False
        for peer in peers.values():
            if not peer.is_member() or not peer.linked or peer.flags & (NODE_FAILED | NODE_SUSPECTED):
                return False
    return True


def acquainted(world: World) -> list[list[SimNode]]:
    """Return the running nodes in groups of nodes that can find each other.

    Two nodes are in one group if `_know_each_other` holds for them, or for each pair of a chain between them.
    """
    groups: list[list[SimNode]] = []
    for node in world.nodes:
        if not (node.up and node.joined):
            continue
        known = [group for group in groups if any(_know_each_other(node, other) for other in group)]
        groups = [group for group in groups if group not in known]
        groups.append([*[each for group in known for each in group], node])
    return groups


def _know_each_other(one: SimNode, other: SimNode) -> bool:
    """Return whether two nodes become members for each other without help.

    This is so if each node has the other in its table, or if only one has and an operator ordered a meeting of the two.
    Otherwise the node without an entry ignores greetings of the other, and can learn of it only from a third node.
    """
    known = [other.id in one.cluster.members.peers, one.id in other.cluster.members.peers]
    ordered = other.id in one.ordered_to_meet or one.id in other.ordered_to_meet
    return all(known) or (any(known) and ordered)


def kept_back(world: World) -> list[str]:
    """Return the violations of C4: jobs that running nodes hold ready or delayed, and that were never delivered."""
    delivered = {delivery.id for delivery in world.history.deliveries}
    found: list[str] = []
    for node in world.nodes:
        for job in _jobs(node) if node.up else []:
            if job.state in (s.READY, s.DELAYED) and not job.once and node.context.id_of(job) not in delivered:
                found.append(f"{_shown(node, job)} at node {node.number},")
    return found


def check_copies(world: World, id: bytes, words: list[bytes]) -> None:
    """Check C1: when a client gets the id of its job, enough nodes have a copy, unless the add is ASYNC."""
    add = world.history.adds[words[2]]
    node = world.nodes[add.node]
    if node.left_at < add.invoked and not add.is_async and node.holds(id):
        raise Violation(f"C13: node {node.number}, which leaves, keeps {_describe(add)}")
    if add.is_async or add.retry_ms == 0 or world.schedule.now >= add.invoked + add.ttl_ms * MS * 9 // 10:
        return
    if _may_be_over_early(world, add):
        return
    if id in world.history.acks:
        # A holder delivered the job after its retry time, and the job is done.
        world.sometimes("a job was acked before its add was answered")
        return
    # A node that leaves, or left for some time, gives its copy to other nodes, which may have one already.
    left = [fault.node for fault in world.history.faults if fault.kind == "leave" and fault.ended >= add.invoked]
    away = [each.number for each in world.nodes if not each.up or each.leaving or each.number in left]
    held = [each.number for each in world.nodes if each.number in away or each.holds(id)]
    forgot = [fault for fault in world.history.faults if fault.forgets and fault.began >= add.invoked]
    if len(held) + len(forgot) < add.replicate:
        raise Violation(f"C1: {_describe(add)} was answered with {id!r} while only {held} held it")


def check_owners(world: World) -> None:
    """Check C11: an at-most-once job is in the queue of one node at most."""
    owner: dict[bytes, int] = {}
    for node in world.nodes:
        if not node.up:
            continue
        for job in _jobs(node):
            if job.once and job.deliveries == 0 and job.state in (s.READY, s.DELAYED, s.STAGED):
                id = node.context.id_of(job)
                if id in owner:
                    raise Violation(f"C11: {id!r} is queued at node {owner[id]} and at node {node.number}")
                owner[id] = node.number


def check_acks(world: World) -> None:
    """Check C5: while a node has an acked job, at least one node keeps the ack. FASTACK does not guarantee this."""
    if any(node.up and node.cluster.acks.dummies for node in world.nodes):
        world.sometimes("an ack of an unknown job was kept")
    astray = world.options.loss and any(name in world.options.nemeses for name in _COPIES_ASTRAY)
    if astray or any(fault.forgets for fault in world.history.faults) or not all(node.up for node in world.nodes):
        return
    for node in world.nodes:
        for job in _jobs(node):
            id = node.context.id_of(job)
            acks = world.history.acks.get(id, [])
            if job.once or not any(_is_kept(world, ack) for ack in acks) or any(ack.fast for ack in acks):
                continue
            if job.expiry - node.now() < _LONG_TTL_MS // 2:
                # An ack ends with the ttl of its job, and a suspended node has not processed that yet.
                continue
            if not any(other.keeps_ack(id) for other in world.nodes):
                raise Violation(f"C5: {id!r} was acked, no node keeps the ack, and node {node.number} holds it")


def check_memory(world: World) -> None:
    """Check V3: a node does not exceed its memory limit, unless it already did when the limit was set."""
    for node in world.nodes:
        if node.up and node.has_room and node.engine.memory_used() > node.memory_max + _MEMORY_SLACK:
            used = node.engine.memory_used()
            raise Violation(f"V3: node {node.number} uses {used} bytes of memory, and may use {node.memory_max}")


def check_forgotten(world: World) -> None:
    """Check C12: reports of other nodes do not bring a removed node back into the tables."""
    for node, life, id in world.forgotten:
        if node.up and node.life == life and id in node.cluster.members.peers:
            raise Violation(f"C12: node {node.number} has {id!r} in its table again, which it had removed")


# Coverage


def _note_sometimes(world: World, by_id: dict[bytes, list[Delivery]]) -> None:
    """Count in `world.counted` events that must occur in some seeds. Without them, the simulation tests too little."""
    history = world.history
    for deliveries in by_id.values():
        if len(deliveries) > 1:
            world.sometimes("a job was redelivered")
            if len({delivery.node for delivery in deliveries}) > 1:
                world.sometimes("a job was redelivered by another node")
    for delivery in history.deliveries:
        add = history.adds.get(delivery.body)
        if add is None:
            continue
        if add.node != delivery.node:
            world.sometimes("a job was delivered by another node than it was added at")
            if add.retry_ms == 0:
                world.sometimes("an at-most-once job was handed over")
        if add.outcome != DONE:
            world.sometimes("a job was delivered though its add had failed or was unknown")
    for word, times in history.errors.items():
        world.counted[f"refused with {word}"] += times
    for node in world.nodes:
        _note_node(world, node)


def _note_node(world: World, node: SimNode) -> None:
    """Add the events of a node since its last start to `world.counted`."""
    cluster = node.cluster
    counts = {
        "an ack was collected": cluster.acks.collected,
        "an add was given up for want of copies": cluster.replications.given_up,
        "a job was imported": cluster.federation.imported,
        "a handover was given up because its receiver lost its jobs": cluster.handovers.lost,
    }
    for kind, word in _TOLD_KINDS.items():
        counts[f"{word} was sent"] = cluster.outbox.sent[kind]
    for what, count in counts.items():
        if count:
            world.counted[what] += count


def _forgot(world: World, node: int) -> bool:
    return any(fault.node == node and fault.forgets for fault in world.history.faults)


def _where(world: World, id: bytes) -> str:
    there = [f"node {node.number}" for node in world.nodes if node.up and node.holds(id)]
    return f"it is at {', '.join(there)}" if there else "no node has it"


def _describe(add: Add) -> str:
    how = f"REPLICATE {add.replicate} RETRY {add.retry_ms // 1_000}{' ASYNC' if add.is_async else ''}"
    short = add.body if len(add.body) < 20 else add.body[:20] + b"..."
    return f"{short!r} ({add.id.decode()}, {how}, added at node {add.node} at {_moment(add.invoked)})"


def _twice(first: Delivery, second: Delivery) -> str:
    places = f"at {_moment(first.sent)} by node {first.node} and at {_moment(second.sent)} by node {second.node}"
    return f"twice, {places}"


def _shown(node: SimNode, job: Job) -> str:
    return f"{node.context.id_of(job).decode()}, which is {s.STATE_NAMES[job.state]}"


def _moment(us: int) -> str:
    return f"{us / SECOND:.3f} s"
