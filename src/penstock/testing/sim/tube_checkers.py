"""Checkers of the promises W1 to W9 of tubes that live on one node, for the workload `tubes`.

    W1  A name has one home: two nodes that have met never have tubes of the same name, and in the end all nodes agree.
    W2  A delivered job was put into this tube, and its delay was over.
    W3  At most `key_limit` jobs of a key are taken at a time.
    W4  A job whose put was answered is delivered, if necessary again, until it is acked.
    W5  A job is acked once, and is not delivered after its ack.
    W6  Only the session that holds a job can ack it, and in a cluster without faults it always can.
    W7  Jobs are delivered in the order of their tube.
    W8  A session can be resumed within its grace time. Until then its jobs are delivered to no other session, and each
        delivery reaches one client once.
    W9  A job returns when its session has ended: in the end, all tubes can be emptied.

batch_checkers.py and stage_clients.py have W10, about stages. The readers in claim_clients.py check W11: a claim has
the same jobs each time it is read, ends as a whole, and belongs to the reader with the greatest token. W14: an
at-most-once job is delivered at most once. W15: an id names one job, also after a standby has replaced its node.
tube_clients.py has W0: without faults, every command has a reply, even if its client sends no more; no reply contains
an error; and a node has no more forwarded clients than its limit.

The clients see only the begin and the end of their calls. A checker therefore reports a violation only if every
possible order of the calls violates the promise.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cluster import messages as m
from penstock.core import states as s
from penstock.core import views
from penstock.core.copy_commands import is_shared
from penstock.core.limits import NEVER
from penstock.testing.invariants import check
from penstock.testing.sim.batch_checkers import check_stages
from penstock.testing.sim.history import DONE, REFUSED, UNKNOWN
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.tube_history import Finish, Lease, Put, TubeHistory
from penstock.testing.sim.tubes import ARRIVAL, PRIORITY
from penstock.testing.sim.world import World

# Violations of one promise that are reported. More would not add information.
_SHOWN_MAX = 5

# An engine counts whole milliseconds, and rounds the start of an interval down.
_ROUNDING = 2 * MS


class TubeWorld(World):
    """The world of a simulation with the workload `tubes`."""

    tubes: TubeHistory
    disputed: set[bytes]  # The tubes that two nodes created before they met, or of which a home lost its jobs.


def judge(world: TubeWorld) -> list[str]:
    """Return all violations that the final state and the history show."""
    found: list[str] = []
    for checker in (_contents, _lost, _acked, _order, _keys, _leases, _left, _stages, _once, _ids):
        found += list(checker(world))[:_SHOWN_MAX]
    for node in world.nodes:
        check(node.engine)
    _note_sometimes(world)
    return found


def strict_tubes(node: SimNode) -> list[bytes]:
    """Return the tubes that live on a node."""
    return [name for name, tube in node.engine.tubes.items() if not is_shared(tube)]


def homes_agree(world: TubeWorld) -> bool:
    """Return whether W1 holds: every tube has one home, and all nodes know it."""
    homes: dict[bytes, list[bytes]] = {}
    for node in world.nodes:
        for name in strict_tubes(node):
            homes.setdefault(name, []).append(node.id)
    for name, nodes in homes.items():
        if name in world.disputed:
            continue
        if len(nodes) > 1:
            return False
        for node in world.nodes:
            if node.id != nodes[0] and node.cluster.homes.home_of(name) != nodes[0]:
                return False
    return True


def _is_excused(world: TubeWorld, tube: bytes) -> bool:
    """Return whether a tube is not checked, because a node lost its jobs or two nodes created it before they met."""
    return tube in world.disputed or any(fault.forgets for fault in world.history.faults)


def _contents(world: TubeWorld) -> Iterator[str]:
    """Check W2: a delivered job was put into this tube, its put was not refused, and its delay was over."""
    jumps = "clock_jump" in world.options.nemeses
    slow = 1_000_000 + world.options.drift_ppm
    for lease in world.tubes.leases:
        put = world.tubes.puts.get(lease.body)
        if put is None:
            yield f"W2: {_short(lease.body)}, which was never put, was delivered from {lease.tube.name!r}"
        elif put.tube is not lease.tube:
            yield f"W2: {_shown(put)} was delivered from {lease.tube.name!r}"
        elif put.id and lease.id and put.id != lease.id:
            yield f"W2: {_shown(put)} was delivered as {lease.id!r}"
        elif put.outcome == REFUSED:
            yield f"W2: {_shown(put)}, whose put was refused, was delivered"
        elif not jumps and lease.sent < put.invoked + put.delay_ms * MS * 1_000_000 // slow - _ROUNDING:
            yield f"W2: {_shown(put)} was delivered before its delay was over"


def _lost(world: TubeWorld) -> Iterator[str]:
    """Check W4: every job whose put was answered with success is delivered."""
    delivered = {lease.body for lease in world.tubes.leases}
    # A take whose reply was lost may have delivered a job that is not delivered again.
    lost = {take.tube.name for take in world.tubes.takes if take.tube.once and take.outcome == UNKNOWN}
    for put in world.tubes.puts.values():
        if put.tube.once and (put.tube.name in lost or world.tubes.are_once_jobs_buried(world.history.faults)):
            continue
        if put.outcome == DONE and put.body not in delivered and not _is_excused(world, put.tube.name):
            yield f"W4: {_shown(put)} was never delivered"


def _acked(world: TubeWorld) -> Iterator[str]:
    """Check W5 and W6: a job is acked once and not delivered after that. Without faults, its holder can ack it.

    Also check a part of W9: every delivered job is acked in the end.
    """
    for body, leases in _by_body(world).items():
        tube = leases[0].tube
        if _is_excused(world, tube.name):
            continue
        acks = [each for lease in leases for each in lease.finishes if each.verb == "ack"]
        done = [each for each in acks if each.outcome == DONE]
        if len(done) > 1:
            yield f"W5: {_short(body)} was acked {len(done)} times, by clients {[each.client for each in done]}"
        for lease in leases:
            if done and lease.take.invoked > done[0].ended:
                acked = done[0]
                yield f"W5: {_short(body)} was acked at {_moment(acked.ended)} and delivered at {_moment(lease.sent)}"
        if not acks and not tube.once:
            yield f"W9: {_short(body)} of {tube.name!r} was delivered and not acked at the end"
        if world.options.is_calm and not tube.ttr_ms and not tube.once:
            for lease in leases:
                first = lease.finishes[0] if lease.finishes else None
                if first is None or first.intruder or first.outcome != REFUSED or lease.claim_until:
                    continue
                if any(_may_end(each, first) for other in leases if other is not lease for each in other.finishes):
                    continue
                # A session that was resumed at the end of its grace time may have lost the job.
                if lease.free_from == NEVER or (not lease.resumed and lease.free_from >= first.invoked):
                    yield f"W6: the {first.verb} of {_short(body)} was refused: {first.refusal}"


def _may_end(earlier: Finish, finish: Finish) -> bool:
    """Return whether `earlier` is a command of the same session that may have ended the job before `finish`."""
    return earlier.token == finish.token and earlier.invoked < finish.invoked and earlier.outcome != REFUSED


def _order(world: TubeWorld) -> Iterator[str]:
    """Check W7: a take does not deliver a job if an earlier job of the tube was ready during the whole take."""
    first_take: dict[bytes, int] = {}
    for lease in world.tubes.leases:
        first_take[lease.body] = min(first_take.get(lease.body, NEVER), lease.take.invoked)
    lost = [take for take in world.tubes.takes if take.outcome == UNKNOWN]
    for lease in world.tubes.leases:
        tube, take = lease.tube, lease.take
        second = world.tubes.puts.get(lease.body)
        if second is None or not tube.order or _is_excused(world, tube.name):
            continue
        if tube.once and world.tubes.are_once_jobs_buried(world.history.faults):
            continue
        # A take whose reply was lost may have held any job until its session ended.
        if any(each.tube is tube and each.invoked <= lease.at for each in lost):
            continue
        for first in world.tubes.puts.values():
            if first.tube is not tube or first.outcome != DONE or first.delay_ms or first.key != second.key:
                continue
            if first.ended < take.invoked and first_take.get(first.body, NEVER) > lease.at and _precedes(first, second):
                yield f"W7: {_shown(second)} was delivered at {_moment(lease.sent)} before {_shown(first)}"


def _precedes(first: Put, second: Put) -> bool:
    """Return whether a job is certainly delivered before another one, if both are ready."""
    if first.tube.order == PRIORITY and first.priority != second.priority:
        return first.priority < second.priority
    if first.batch and first.batch == second.batch:
        return first.tube.order in (ARRIVAL, PRIORITY) and first.place < second.place
    return first.tube.order in (ARRIVAL, PRIORITY) and first.ended < second.invoked


def _keys(world: TubeWorld) -> Iterator[str]:
    """Check W3: at most `key_limit` jobs of a key are taken at a time.

    A fault can end a lease unnoticed, so a job counts only while its session certainly holds it.
    """
    by_key: dict[tuple[bytes, bytes], list[tuple[int, int, Lease]]] = {}
    by_body = _by_body(world)
    for lease in world.tubes.leases:
        put = world.tubes.puts.get(lease.body)
        if put is not None and lease.tube.key_limit and not _is_excused(world, lease.tube.name):
            until = _held_until(world, lease, by_body[lease.body])
            by_key.setdefault((lease.tube.name, put.key), []).append((lease.at, until, lease))
    for (name, key), spans in by_key.items():
        limit = spans[0][2].tube.key_limit
        for at, _, _ in spans:
            held = [each for begin, end, each in spans if begin <= at < end]
            if len(held) > limit:
                bodies = [_short(each.body) for each in held]
                yield f"W3: {len(held)} jobs of the key {key!r} of {name!r} were taken at {_moment(at)}: {bodies}"


def _held_until(world: TubeWorld, lease: Lease, of_job: list[Lease]) -> int:
    """Return until when a session certainly holds a job. `of_job` are all leases of the job."""
    until = lease.free_from
    for finish in [each for other in of_job for each in other.finishes]:
        # A command names a job and not a delivery. So the session may have sent it because of an earlier delivery. Any
        # session can bury a job.
        may_end = finish.token == lease.take.token or finish.verb == "bury"
        if may_end and (finish.outcome == UNKNOWN or finish.ended >= lease.delivered):
            until = min(until, finish.invoked)
    if world.options.drift_ppm:
        # A standby continues on its own clock, which may be ahead. Then a ttr, lease or grace time ends early.
        replaced = [fault for fault in world.history.faults if fault.kind.startswith("rehome")]
        until = min(
            [until, *(max(fault.began, lease.delivered) for fault in replaced if fault.ended > lease.delivered)]
        )
    if lease.claim_until:
        return min(until, lease.claim_until)
    if lease.tube.ttr_ms:
        until = min(until, lease.take.invoked + lease.tube.ttr_ms * MS * 9 // 10)
    if not world.options.is_calm:
        # The session can lose its last connection at its home at once, even before the node of the client has sent the
        # reply, and keeps the job for its grace time.
        slow = 1_000_000 + world.options.drift_ppm
        grace = 0 if "clock_jump" in world.options.nemeses else lease.grace_ms * MS * 1_000_000 // slow - _ROUNDING
        until = min(until, lease.delivered + grace)
    return until


def _leases(world: TubeWorld) -> Iterator[str]:
    """Check W8: while a session certainly holds a job, the job is not delivered to another session."""
    for body, leases in _by_body(world).items():
        if _is_excused(world, leases[0].tube.name):
            continue
        counts = [lease.deliveries for lease in leases if lease.deliveries]
        if len(set(counts)) < len(counts):
            yield f"W8: {_short(body)} was delivered twice under the same number: {counts}"
        for lease in leases:
            until = _held_until(world, lease, leases)
            for other in leases:
                if other.take.token != lease.take.token and _began_within(other, lease.at, until):
                    yield (
                        f"W8: {_short(body)} of {lease.tube.name!r} was delivered to client {lease.take.client} at "
                        f"{_moment(lease.delivered)}, which held it until {_moment(until)}, and to client "
                        f"{other.take.client} at {_moment(other.delivered)}"
                    )


def _began_within(lease: Lease, begin: int, end: int) -> bool:
    """Return whether a lease certainly began between the times `begin` and `end`."""
    if lease.claim_until:
        return begin <= lease.take.invoked and lease.sent < end
    return begin <= lease.delivered < end


def _left(world: TubeWorld) -> Iterator[str]:
    """Check W9: no tube has jobs at the end."""
    for node in world.nodes:
        for job in jobs_of(node):
            state = s.STATE_NAMES[job[1]]
            yield f"W9: node {node.number} still has {job[0].decode()} of {job[2]!r}, which is {state}"


def _stages(world: TubeWorld) -> Iterator[str]:
    """Check W10: the jobs of a stage are delivered together, after its publication was requested."""
    for tube, complaint in check_stages(world.tubes):
        if not _is_excused(world, tube):
            yield complaint


def _once(world: TubeWorld) -> Iterator[str]:
    """Check W14, even after faults: no at-most-once job is delivered twice.

    A job whose delivery may be lost must be buried.
    """
    for body, leases in _by_body(world).items():
        if leases[0].tube.once:
            world.sometimes("an at-most-once job was delivered")
            if len(leases) > 1:
                moments = [_moment(lease.sent) for lease in leases]
                yield f"W14: {_short(body)} was delivered {len(leases)} times, at {moments}"


def _ids(world: TubeWorld) -> Iterator[str]:
    """Check W15, even after faults: an id names one job. A node that may have lost jobs must not reuse their ids."""
    by_id: dict[bytes, bytes] = {}
    for put in world.tubes.puts.values():
        if put.id and by_id.setdefault(put.id, put.body) != put.body:
            yield f"W15: {_short(put.body)} and {_short(by_id[put.id])} have the id {put.id!r}"


def jobs_of(node: SimNode) -> list[tuple[bytes, int, bytes]]:
    """Return the jobs of a node that have to end: their ids, states and tubes.

    At-most-once jobs that are taken or buried are left out: they may never end, because their consumer can be lost.
    """
    jobs = node.engine.jobs.scan(0, node.engine.jobs.count + 1)
    jobs = [job for job in jobs if not job.once or job.state not in (s.TAKEN, s.BURIED)]
    return [(node.context.id_of(job), job.state, node.engine.tube_of(job).name) for job in jobs]


def _by_body(world: TubeWorld) -> dict[bytes, list[Lease]]:
    found: dict[bytes, list[Lease]] = {}
    for lease in world.tubes.leases:
        found.setdefault(lease.body, []).append(lease)
    return found


# Coverage


def _note_sometimes(world: TubeWorld) -> None:
    """Count in `world.counted` events that must occur in some seeds."""
    homes = {name: node.number for node in world.nodes for name in strict_tubes(node)}
    for put in world.tubes.puts.values():
        if put.outcome == DONE and homes.get(put.tube.name, put.node) != put.node:
            world.sometimes("a put was forwarded")
            if put.is_iproto:
                world.sometimes("an IPROTO call was forwarded")
    for lease in world.tubes.leases:
        if homes.get(lease.tube.name, lease.take.node) == lease.take.node:
            continue
        world.sometimes("a take was forwarded")
        now_put = world.tubes.puts.get(lease.body)
        if now_put is not None and now_put.invoked > lease.take.invoked:
            world.sometimes("a forwarded take waited and was served")
    for stage in world.tubes.stages:
        if stage.published_through >= 0 and homes.get(stage.tube.name, -1) not in (-1, stage.published_through):
            world.sometimes("a stage was published through another node")
    for leases in _by_body(world).values():
        if len({lease.take.token for lease in leases}) > 1:
            world.sometimes("a job was delivered to two sessions, one after the other")
        for lease in leases:
            if lease.resumed and any(each.outcome == DONE for each in lease.finishes):
                world.sometimes("a resumed session finished a job")
    for word, times in world.history.errors.items():
        world.counted[f"refused with {word}"] += times
    for node in world.nodes:
        _note_node(world, node)


def _note_node(world: TubeWorld, node: SimNode) -> None:
    sent = node.cluster.outbox.sent
    for kind, what in (
        (m.CLAIM, "the home of a tube was elected"),
        (m.FORWARD, "a command was forwarded"),
        (m.TUNNELEND, "a tunnel was closed"),
    ):
        if sent[kind]:
            world.counted[what] += sent[kind]
    for tube in node.engine.tubes.values():
        events = views.events(tube)
        for event, what in (
            (s.UNDELIVERED, "a delivery was taken back"),
            (s.DISCONNECTED, "a job returned because its session ended"),
            (s.TTR_PASSED, "a job returned because its ttr passed"),
        ):
            if events[event]:
                world.counted[what] += events[event]


def _short(body: bytes) -> str:
    return repr(body.rstrip(b"."))


def _shown(put: Put) -> str:
    return f"{_short(put.body)} ({put.tube.name.decode()}, put through node {put.node} at {_moment(put.invoked)})"


def _moment(us: int) -> str:
    return f"{us / SECOND:.3f} s" if us < NEVER else "its end"
