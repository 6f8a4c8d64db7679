"""Nemeses: faults of processes, machines, disks, networks and operators.

Each method of `Nemeses` that is named after a fault injects it, and returns a function that undoes it.

Each seed limits how many nodes may lose their jobs. If every node with a copy of a job loses it, no protocol can
deliver the job, so the loss is not a violation. The history records which nodes lost their jobs, and when.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from penstock.core import states as s
from penstock.journal.identity import identity
from penstock.testing.sim.history import Fault
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.options import ALWAYS, NO_JOURNAL
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.world import World

Undo = Callable[[], None]

# Ranges of the duration of a fault. Each range is equally likely.
_SPANS = ((10 * MS, 300 * MS), (300 * MS, 2 * SECOND), (2 * SECOND, 6 * SECOND))


class Nemeses:
    """The fault injectors (nemeses) of one simulation."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._undo: dict[int, Undo] = {}
        self._begun = 0
        self._may_forget = random.randint(0, 2)  # The number of nodes that may lose their jobs.
        self._over = False
        self._bring_back: Undo | None = None

    def begin(self) -> None:
        """Inject faults at random times until `end` is called."""
        options = self._world.options
        if options.nemeses and not self._over:
            pause = int(self._random.expovariate(1.0 / options.faults_every_ms) * MS) + MS
            self._world.schedule.after(pause, self._strike)

    def end(self) -> None:
        """Undo all active faults."""
        self._over = True
        for number in list(self._undo):
            self._mend(number)

    @property
    def someone_is_away(self) -> bool:
        """Return whether a node that `lose` killed is still down."""
        return self._bring_back is not None

    def bring_back(self) -> None:
        """Restart the node that `lose` killed."""
        bring_back, self._bring_back = self._bring_back, None
        if bring_back is not None:
            bring_back()

    def _strike(self) -> None:
        if self._over:
            return
        name = self._random.choice(self._world.options.nemeses)
        undo = getattr(self, name)()
        if undo is not None:
            self._begun += 1
            number = self._begun
            self._undo[number] = undo
            self._world.sometimes(f"nemesis {name}")
            low, high = self._random.choice(_SPANS)
            self._world.schedule.after(self._random.randint(low, high), lambda: self._mend(number))
        self.begin()

    def _undo_later(self, undo: Undo | None) -> None:
        if undo is not None:
            self._begun += 1
            number = self._begun
            self._undo[number] = undo
            self._world.schedule.after(self._random.randint(0, SECOND), lambda: self._mend(number))

    def _mend(self, number: int) -> None:
        undo = self._undo.pop(number, None)
        if undo is not None:
            undo()

    def _begin_fault(self, kind: str, node: int = -1, forgets: bool = False) -> Fault:
        world = self._world
        fault = Fault(kind, node, world.schedule.now, forgets)
        world.history.faults.append(fault)
        world.history.note(fault.began, "fault", kind, node)
        return fault

    def _end_fault(self, fault: Fault) -> None:
        fault.ended = self._world.schedule.now
        self._world.history.note(fault.ended, "fault over", fault.kind, fault.node)

    def _one_up(self) -> SimNode | None:
        up = [node for node in self._world.nodes if node.up and not node.paused]
        return self._random.choice(up) if up else None

    # The network

    def _cut(self, kind: str, links: list[tuple[int, int]]) -> Undo | None:
        network = self._world.network
        if not links:
            return None
        fault = self._begin_fault(kind)
        for sender, receiver in links:
            network.cut(sender, receiver)

        def mend() -> None:
            for sender, receiver in links:
                network.mend(sender, receiver)
            self._end_fault(fault)
            self._world.sometimes("a partition healed")

        return mend

    def partition(self) -> Undo | None:
        """Partition the network in one of four shapes.

        The shapes are two halves, one node apart, a ring (each node reaches a different majority) and a bridge (only
        one node reaches both halves).
        """
        count = len(self._world.nodes)
        order = self._random.sample(range(count), count)
        shape = self._random.choice(("halves", "one", "ring", "bridge"))
        if shape == "ring":
            pairs = [(order[i], order[(i + 2) % count]) for i in range(count) if count > 3]
        elif shape == "bridge":
            half = (count - 1) // 2
            pairs = [(a, b) for a in order[:half] for b in order[half : count - 1]]
        else:
            side = 1 if shape == "one" else self._random.randint(1, max(1, count // 2))
            pairs = [(a, b) for a in order[:side] for b in order[side:]]
        return self._cut(f"partition {shape}", [link for a, b in pairs for link in ((a, b), (b, a))])

    def one_way(self) -> Undo | None:
        """Cut some links in one direction only."""
        count = len(self._world.nodes)
        links = [(a, b) for a in range(count) for b in range(count) if a != b and self._random.random() < 0.25]
        return self._cut("one-way partition", links)

    def swizzle(self) -> Undo | None:
        """Cut nodes off one by one, and reconnect them in another order."""
        schedule, count = self._world.schedule, len(self._world.nodes)
        chosen = self._random.sample(range(count), self._random.randint(1, max(1, count - 1)))
        mends: list[Undo] = []

        def cut_next() -> None:
            if chosen and not self._over:
                node = chosen.pop()
                links = [link for other in range(count) if other != node for link in ((node, other), (other, node))]
                mend = self._cut("swizzle", links)
                if mend is not None:
                    mends.append(mend)
                schedule.after(self._random.randint(50 * MS, 500 * MS), cut_next)

        def mend_next() -> None:
            if mends:
                mends.pop(self._random.randrange(len(mends)))()
                if self._over:
                    mend_next()
                else:
                    schedule.after(self._random.randint(50 * MS, 500 * MS), mend_next)

        def mend_all() -> None:
            chosen.clear()
            mend_next()

        cut_next()
        return mend_all

    # Processes and machines

    def kill(self) -> Undo | None:
        """Kill a process, and start it again."""
        return self._crash("kill", power=False)

    def power_cut(self) -> Undo | None:
        """Cut the power of a machine, and start it again.

        In most cases the power is cut during the next sync, which is the worst time.
        """
        node = self._one_up()
        if node is None or self._random.random() < 0.3:
            return self._crash("power cut", power=True)
        doomed = node
        starts: list[Undo] = []

        def strike() -> None:
            doomed.on_sync = None
            start = self._crash("power cut", power=True, node=doomed) if doomed.up and not self._over else None
            if start is not None:
                starts.append(start)

        def mend() -> None:
            doomed.on_sync = None
            for start in starts:
                start()

        doomed.on_sync = lambda: self._world.schedule.after(self._random.randint(0, doomed.sync_us), strike)
        return mend

    def _crash(self, kind: str, power: bool, wipes: bool = False, node: SimNode | None = None) -> Undo | None:
        node = node or self._one_up()
        journal = self._world.options.journal
        forgets = wipes or journal == NO_JOURNAL or (power and journal != ALWAYS)
        if node is None or (forgets and not self._within_budget(node)):
            return None
        fault = self._begin_fault(kind, node.number, forgets)
        node.crash(power)
        if wipes:
            node.wipe()
            if self._random.random() < 0.5:
                self._world.forget(node)

        def start() -> None:
            self._end_fault(fault)
            if not node.up and node.start():
                self._world.sometimes("a node was started again")
                if wipes:
                    self._world.introduce(node)

        return start

    def _within_budget(self, node: SimNode) -> bool:
        forgetful = {fault.node for fault in self._world.history.faults if fault.forgets} | {node.number}
        return len(forgetful) <= self._may_forget

    def lost_home(self) -> Undo | None:
        """Kill or isolate the next node that creates a tube, often before its peers receive the list of its tubes.

        The node stays away until its peers count it as failed, because only then can they elect another home.
        """
        self._world.on_new_tube = self._lose_home
        return lambda: None

    def _lose_home(self, node: SimNode) -> None:
        world, random = self._world, self._random
        world.on_new_tube = None
        kills = random.random() < 0.7
        away = random.randint(2, 5) * world.options.node_timeout_ms * MS

        def strike() -> None:
            if self._over or not node.up or node.paused:
                return
            undo = self._crash("lost home", power=False, node=node) if kills else self._isolate(node)
            if undo is not None:
                world.sometimes("a node was lost when it had created a tube")
                self._begun += 1
                number = self._begun
                self._undo[number] = undo
                world.schedule.after(away, lambda: self._mend(number))

        world.schedule.after(random.randint(0, node.sync_us), strike)

    def _isolate(self, node: SimNode) -> Undo | None:
        others = [other.number for other in self._world.others(node)]
        return self._cut("lost home", [link for at in others for link in ((node.number, at), (at, node.number))])

    def wipe(self) -> Undo | None:
        """Lose a machine with its disk. A new node takes its address."""
        if len(self._world.nodes) == 1:
            return None
        return self._crash("wipe", power=True, wipes=True)

    def lose(self) -> Undo | None:
        """Kill a node. It stays down until all other faults have ended. Prefer a node that receives a handover."""
        if self.someone_is_away or len(self._world.nodes) == 1:
            return None
        waits = True

        def look() -> None:
            heirs = self._heirs()
            if waits and heirs and not self.someone_is_away:
                self._bring_back = self._crash("lose", power=False, node=self._random.choice(heirs))
            elif waits and not self._over:
                self._world.schedule.after(5 * MS, look)

        def stop() -> None:
            nonlocal waits
            waits = False
            if not self.someone_is_away:
                self._bring_back = self._crash("lose", power=False)

        look()
        return stop

    def _heirs(self) -> list[SimNode]:
        """Return the nodes that other nodes are handing jobs over to."""
        up = [node for node in self._world.nodes if node.up]
        given = {handing.receiver for node in up for handing in node.cluster.handovers.under_way.values()}
        return [node for node in up if node.id in given]

    def pause(self) -> Undo | None:
        """Suspend a process."""
        node = self._one_up()
        if node is None:
            return None
        fault = self._begin_fault("pause", node.number)
        node.pause()
        life = node.life

        def resume() -> None:
            self._end_fault(fault)
            if node.life == life:
                node.resume()

        return resume

    def clock_jump(self) -> Undo | None:
        """Set the wall clock of a machine to another time. Nodes read the wall clock only at their start."""
        node = self._random.choice(self._world.nodes)
        jump = self._random.choice((-3_600_000, -60_000, -1_000, 1_000, 60_000, 3_600_000))
        fault = self._begin_fault("clock jump", node.number)
        node.clock.offset_ms += jump
        return lambda: self._end_fault(fault)

    def rehome(self) -> Undo | None:
        """Replace a node by its standby, on a machine that was not used yet.

        The machine of the node is destroyed, or returns later with its data, or the process runs on without links. In
        the first case the standby has all that was durable, otherwise it may lack the last changes.
        """
        world = self._world
        spares = [node for node in world.nodes if not node.joined]
        lost = self._one_up()
        if not spares or lost is None or lost.log is None or not world.others_up(lost):
            return None
        case = self._random.choice(("destroyed", "returns", "runs on"))
        forgets = case != "destroyed" or world.options.journal != ALWAYS
        if forgets and not self._within_budget(lost):
            return None
        fault = self._begin_fault(f"rehome {case}", lost.number, forgets)
        spare, copy, id = spares[0], lost.disk.durable_copy(), lost.id
        spare.life += 1  # No other fault uses this machine.
        links = [
            link for other in world.others(lost) for link in ((lost.number, other.number), (other.number, lost.number))
        ]
        mend = self._cut("cut off", links) if case == "runs on" else None
        is_done = False

        def crash() -> None:
            if lost.up and lost.id == id:
                lost.crash(power=True)
                if case == "destroyed":
                    lost.wipe()

        def replace_node() -> None:
            nonlocal is_done
            if is_done:
                return
            is_done = True
            others = [node for node in world.others_up(lost) if node is not spare]
            known = [int(node.cluster.members.epoch_of(id)) for node in others]
            epoch = max([identity(copy).node_epoch, *known]) + self._random.randint(1, 1_000)
            for node in others:
                node.raise_epoch(id, epoch)
            spare.become(copy, epoch, others)
            world.rehomed(lost, spare)
            if spare.start():
                world.sometimes("a standby replaced its node")

        def undo() -> None:
            replace_node()
            self._end_fault(fault)
            if mend is not None:
                mend()
            if not lost.up and lost.start():
                if case == "destroyed":
                    world.introduce(lost)
                elif not self._over:
                    # It serves clients until it reaches another node.
                    self._undo_later(self._cut("cut off", links))

        if case == "destroyed":
            crash()
        elif case == "returns":
            world.schedule.after(self._random.randint(0, 300 * MS), crash)
        after = world.options.node_timeout_ms * MS * self._random.choice((1, 2))
        world.schedule.after(after, replace_node)
        return undo

    # Disks and memory

    def slow_disk(self) -> Undo | None:
        """Make syncs slow."""
        node = self._random.choice(self._world.nodes)
        fault = self._begin_fault("slow disk", node.number)
        node.sync_us = self._random.choice((50 * MS, 500 * MS, 2 * SECOND))

        def mend() -> None:
            self._end_fault(fault)
            # Not the former value, because another fault may have made it slow.
            node.sync_us = self._world.options.sync_us

        return mend

    def failing_disk(self) -> Undo | None:
        """Make a sync fail. The node stops, and is started again when the disk works again."""
        node = self._one_up()
        options = self._world.options
        forgets = options.journal != ALWAYS
        if node is None or node.log is None or (forgets and not self._within_budget(node)):
            return None
        fault = self._begin_fault("failing disk", node.number, forgets)
        node.disk.sync_error = OSError(errno.EIO, "the disk failed")

        def mend() -> None:
            self._end_fault(fault)
            node.disk.sync_error = None
            if not node.up:
                node.start()

        return mend

    def full_disk(self) -> Undo | None:
        """Fill the disk of a node."""
        node = self._random.choice(self._world.nodes)
        fault = self._begin_fault("full disk", node.number)
        node.disk.full = True

        def mend() -> None:
            self._end_fault(fault)
            node.disk.full = False

        return mend

    def memory(self) -> Undo | None:
        """Lower the memory limit of a node."""
        node = self._one_up()
        if node is None:
            return None
        fault = self._begin_fault("memory", node.number)
        used = node.engine.memory_used()
        node.set_memory_max(max(64 * 1024, used * self._random.choice((90, 97, 110, 140)) // 100))

        def mend() -> None:
            self._end_fault(fault)
            node.set_memory_max(None)

        return mend

    def snapshot(self) -> Undo | None:
        """Replace the log of a node by a snapshot."""
        node = self._one_up()
        if node is None or not node.snapshot():
            return None
        if node.ids_of(s.TAKEN):
            self._world.sometimes("a snapshot was written while jobs were taken")
        return lambda: None

    # Operators and clients

    def join(self) -> Undo | None:
        """Start a node that has not run yet."""
        waiting = [node for node in self._world.nodes if not node.joined]
        if not waiting or not waiting[0].start():
            return None
        self._world.introduce(waiting[0])
        return lambda: None

    def leave(self) -> Undo | None:
        """Make a node leave the cluster. In half of the cases it stops leaving after a while."""
        node = self._one_up()
        staying = [each for each in self._world.nodes if not each.leaving]
        if node is None or node.leaving or len(staying) < 2:
            return None
        fault = self._begin_fault("leave", node.number)
        node.set_leaving(True)
        stays = self._random.random() < 0.5

        def stay() -> None:
            self._end_fault(fault)
            if stays and node.up:
                node.set_leaving(False)

        return stay

    def hang_up(self) -> Undo | None:
        """Close the connections of some clients, even during a command."""
        for client in self._world.clients:
            if self._random.random() < 0.3:
                client.hang_up()
        return lambda: None

    def closed_queue(self) -> Undo | None:
        """Pause a queue for incoming jobs, outgoing jobs or both, on all nodes."""
        node = self._one_up()
        if node is None:
            return None
        queue = b"q%d" % self._random.randrange(self._world.options.queues)
        fault = self._begin_fault("closed queue", node.number)
        self._world.tell(node, [b"PAUSE", queue, self._random.choice((b"in", b"out", b"all")), b"bcast"])

        def reopen() -> None:
            self._end_fault(fault)
            self._world.reopen(queue)

        return reopen

    def set_aside(self) -> Undo | None:
        """Dequeue all ready jobs of a node.

        At-most-once jobs are not queued again until they are enqueued by a command.
        """
        node = self._one_up()
        ready = node.ids_of(s.READY) if node is not None else []
        if node is None or not ready:
            return None
        fault = self._begin_fault("set aside", node.number)
        self._world.tell(node, [b"DEQUEUE", *ready])
        return lambda: self._end_fault(fault)
