"""One simulation: a cluster is run with faults, healed, used once more, drained and checked.

    chaos → heal → traffic → drain → quiesce → check

Everything follows from the seed and the options. There is no real clock, no thread and no other randomness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core import states as s
from penstock.testing.invariants import check
from penstock.testing.sim import checkers
from penstock.testing.sim.clients import Client, Consumer, Producer
from penstock.testing.sim.history import Violation
from penstock.testing.sim.nemeses import Nemeses
from penstock.testing.sim.node import SYNC_MAX
from penstock.testing.sim.options import REHOME, Options
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.world import World

# An ack that is not collected is sent again after three minutes at most. After twice that time, all nodes must be
# empty.
QUIET_AFTER = 400 * SECOND

# The longest time that earlier messages are in transit, on the network or waiting for a slow disk.
_UNDER_WAY_MAX = 3 * SECOND + SYNC_MAX

# The time that a healed cluster has to agree on its members, in addition to the detection of failures.
_WHOLE_AFTER = 15 * SECOND

# The time in which jobs must be delivered while a node is away: more than the longest retry time.
_WITHOUT_AFTER = 120 * SECOND


@dataclass
class Report:
    """The result of the simulation of one seed."""

    seed: int
    options: Options
    violations: list[str]
    digest: str
    events: int
    simulated_s: float
    counts: dict[str, int]
    sometimes: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return not self.violations

    def shown(self, settings: list[str]) -> str:
        """Return the violations, all options and the command that replays the seed."""
        again = "".join(f" --set {setting}" for setting in settings)
        lines = [f"seed {self.seed} failed:", *(f"  {violation}" for violation in self.violations)]
        lines += [f"options: {self.options.shown()}", f"digest: {self.digest}"]
        return "\n".join([*lines, f"replay: penstock sim --seed {self.seed}{again}"])


class Simulation(World):
    """Runs a world through the phases of a simulation, and checks it."""

    def __init__(self, seed: int, options: Options) -> None:
        super().__init__(seed, options)
        self.seed = seed
        self.nemeses = Nemeses(self, self.streams.stream("nemeses"))

    def run(self) -> Report:
        """Run all phases and checks."""
        violations: list[str] = []
        try:
            self._begin()
            self._chaos()
            self._heal()
            self._traffic()
            self._drain()
            violations = self._judge()
        except Violation as broken:
            violations = [str(broken)]
        return Report(
            self.seed,
            self.options,
            violations,
            self.history.digest(),
            self.schedule.events,
            self.schedule.now / SECOND,
            self._counts(),
            self.counted,
        )

    def _judge(self) -> list[str]:
        return checkers.judge(self)

    def _counts(self) -> dict[str, int]:
        history = self.history
        return {
            "adds": len(history.adds),
            "deliveries": len(history.deliveries),
            "acks": sum(map(len, history.acks.values())),
            "faults": len(history.faults),
        }

    # Phases

    def _begin(self) -> None:
        drift = self.streams.stream("clocks")
        for node in self.nodes:
            node.clock.set_drift(drift.randint(-self.options.drift_ppm, self.options.drift_ppm))
        has_spare = "join" in self.options.nemeses or REHOME in self.options.nemeses
        there = self.nodes[:-1] if has_spare and len(self.nodes) > 1 else self.nodes
        for node in there:
            node.start()
        for node in there[1:]:
            self.introduce(node)
        self._until(self._is_whole, self._whole_after(), "C12: the nodes have not found each other")

    def _chaos(self) -> None:
        options = self.options
        chaos = options.chaos_ms * MS
        for number in range(options.producers):
            producer = Producer(self, number, self.streams.stream(f"producer {number}"))
            producer.jobs_left = max(1, options.jobs * 4 // 5 // options.producers)
            producer.pause_us = chaos // producer.jobs_left
            self._let_in(producer)
        for number in range(options.consumers):
            self._let_in(Consumer(self, 100 + number, self.streams.stream(f"consumer {number}")))
        self._run_with_faults(chaos)

    def _run_with_faults(self, duration: int) -> None:
        """Let the nemeses cause faults for `duration`, and check the state of the nodes every few seconds."""
        work = self.streams.stream("work")
        self.nemeses.begin()
        end = self.schedule.now + duration
        while self.schedule.now < end:
            self.schedule.run(min(end, self.schedule.now + work.randint(SECOND, 3 * SECOND)))
            self._look_around()

    def _heal(self) -> None:
        self._look_around()
        self.nemeses.end()
        self.network.heal()
        for node in self.nodes:
            node.clock.set_drift(0)
            node.clock.offset_ms = 0
            node.disk.full = False
            node.sync_us = self.options.sync_us
            node.disk.sync_error = None
            if node.paused:
                node.resume()
        self._do_without()
        for node in self.nodes:
            if not node.up:
                assert node.start()
        # Reinstalled nodes that could not meet any other node during the faults are introduced once more.
        for node in self.nodes[1:]:
            self.introduce(node)
        self.healed_at = self.schedule.now
        self.history.note(self.schedule.now, "healed")

    def _do_without(self) -> None:
        """Check that the jobs of the other nodes are delivered while one node is down and there are no other faults."""
        if not self.nemeses.someone_is_away:
            return
        self._stop_producers()
        self._reopen_all()
        self._until(self._is_all_delivered, _WITHOUT_AFTER, "")
        for job in checkers.kept_back(self):
            raise Violation(f"C4: {job} is not delivered while another node is away")
        self.nemeses.bring_back()

    def _stop_producers(self) -> None:
        for client in self.clients:
            if isinstance(client, Producer):
                client.stopped = True

    def _reopen_all(self) -> None:
        # A command that paused a queue may have been in transit until now.
        self.schedule.run(self.schedule.now + _UNDER_WAY_MAX)
        for number in range(self.options.queues):
            self.reopen(b"q%d" % number)

    def _traffic(self) -> None:
        """Check that the healed cluster agrees on its members and accepts jobs."""
        self._until(self._is_whole, self._whole_after(), "C12: the nodes do not agree on the members")
        self._reopen_all()
        self._stop_producers()
        jobs = max(1, self.options.jobs // 5)
        producer = Producer(self, 50, self.streams.stream("producer after"))
        producer.jobs_left = jobs
        producer.pause_us = SECOND // jobs
        self._let_in(producer)
        self.schedule.run(self.schedule.now + SECOND)
        self._until(lambda: producer.jobs_left == 0, 60 * SECOND, "V2: the healed cluster accepts no jobs")

    def _drain(self) -> None:
        for client in self.clients:
            if isinstance(client, Consumer):
                client.careful = True
        for node in self.nodes:
            consumer = Consumer(self, 200 + node.number, self.streams.stream(f"consumer at {node.number}"))
            consumer.home, consumer.careful = node, True
            self._let_in(consumer)
        self._dig_up()
        self._until(self._is_quiet, QUIET_AFTER, "")
        for client in self.clients:
            client.stopped = True

    def _dig_up(self) -> None:
        """Enqueue the jobs that the nemesis `set_aside` dequeued. Repeat this once a second."""
        if "set_aside" in self.options.nemeses:
            for node in self.nodes:
                buried = node.ids_of(s.BURIED) if node.up else []
                if buried:
                    self.tell(node, [b"ENQUEUE", *buried])
            self.schedule.after(SECOND, self._dig_up)

    def _let_in(self, client: Client) -> None:
        self.clients.append(client)
        client.begin()

    def _until(self, over: Callable[[], bool], limit: int, complaint: str) -> None:
        """Run until the condition `over` holds, for at most `limit`.

        If it does not hold by then, raise Violation with the text `complaint`. If `complaint` is empty, just return.
        """
        end = self.schedule.now + limit
        while not over():
            if self.schedule.now >= end:
                if complaint:
                    raise Violation(complaint)
                return
            self.schedule.run(self.schedule.now + 250 * MS)

    # Conditions

    def added(self, id: bytes, words: list[bytes]) -> None:
        checkers.check_copies(self, id, words)

    def _whole_after(self) -> int:
        # A silent link is dropped after half a timeout or more, and a missing node is removed after two.
        return _WHOLE_AFTER + 4 * self.options.node_timeout_ms * MS

    def _is_whole(self) -> bool:
        self._meet_again()
        return checkers.views_agree(self)

    def _is_all_delivered(self) -> bool:
        self._meet_again()
        return not checkers.kept_back(self)

    def _meet_again(self) -> None:
        """Run CLUSTER MEET between nodes that cannot learn of each other, as an operator would.

        A node is in this state if all nodes that it met are down or were wiped, or if messages were lost. After a
        meeting, gossip spreads all entries of the nodes' tables, so one meeting is enough for each group.
        """
        groups = checkers.acquainted(self)
        for group in groups[1:]:
            group[0].meet(groups[0][0])

    def _is_quiet(self) -> bool:
        return all(checkers.is_empty(node) for node in self.nodes)

    def _look_around(self) -> None:
        for node in self.nodes:
            if node.up:
                check(node.engine)
        checkers.check_owners(self)
        checkers.check_acks(self)
        checkers.check_memory(self)
        checkers.check_forgotten(self)
