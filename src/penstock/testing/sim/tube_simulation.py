"""A simulation with the workload `tubes`: tubes of several types, each with a home, used through all nodes."""

from __future__ import annotations

from penstock.core.limits import NEVER
from penstock.testing.invariants import check
from penstock.testing.sim import tube_checkers
from penstock.testing.sim.claim_clients import ClaimReader
from penstock.testing.sim.clients import Client
from penstock.testing.sim.history import Violation
from penstock.testing.sim.node import SimNode
from penstock.testing.sim.options import CLAIMS, FEW_GUESTS, LOADING, ONCE, PIPELINES, STAGES, USERS, Options
from penstock.testing.sim.pipelining_clients import PipeliningClient
from penstock.testing.sim.schedule import MS, SECOND
from penstock.testing.sim.simulation import Simulation
from penstock.testing.sim.stage_clients import StageWriter
from penstock.testing.sim.tube_checkers import TubeWorld
from penstock.testing.sim.tube_clients import HastyProducer, TubeClient, TubeConsumer, TubeProducer
from penstock.testing.sim.tube_history import TubeHistory
from penstock.testing.sim.tubes import KINDS
from penstock.testing.sim.user_clients import UserClient

# The time that a healed cluster has to accept a put, and to agree on the homes.
_WORKS_AFTER = 60 * SECOND

# The time in which all tubes must be emptied, or at least one job must end: more than the longest grace time and ttr.
_EMPTY_AFTER = 120 * SECOND


# The limit of forwarded clients of a node, with the feature FEW_GUESTS.
_GUESTS_MAX = 2


class TubeSimulation(TubeWorld, Simulation):
    """Runs the workload `tubes` through the phases of a simulation, and checks it."""

    def __init__(self, seed: int, options: Options) -> None:
        self.tubes = TubeHistory()
        self.disputed = set()
        self._homes: dict[bytes, set[tuple[int, int]]] = {}  # The homes of each tube: numbers and installs of nodes.
        super().__init__(seed, options)

    # The homes of tubes

    def serving(self) -> list[SimNode]:
        """Return the nodes that clients can connect to. A new node accepts clients after it has met another one."""
        alone = len(self.nodes) == 1
        return [node for node in self.nodes if alone or not node.up or node.cluster.members.size() > 1] or self.nodes

    def tubes_changed(self, node: SimNode) -> None:
        """Check W1: a node does not create a tube that exists on another node, if the two nodes have met."""
        if any(other.is_successor_of(node) for other in self.others(node)):
            # It serves its tubes until another node refuses it.
            return
        here = node.number, node.installs
        names = set(tube_checkers.strict_tubes(node))
        for name, homes in self._homes.items():
            if name not in names:
                homes.discard(here)
        for name in sorted(names):
            homes = self._homes.setdefault(name, set())
            if here not in homes:
                if self.on_new_tube is not None and len(self.nodes) > 1:
                    self.on_new_tube(node)
                for number, _ in sorted(homes):
                    self._check_home(node, self.nodes[number], name)
                homes.add(here)

    def forwarded_delivery(self, token: bytes, body: bytes, delivery: int) -> None:
        """Record when a home delivered a job to a client of another node."""
        self.tubes.forwarded.setdefault((token, body), {}).setdefault(delivery, self.schedule.now)

    def rehomed(self, lost: SimNode, standby: SimNode) -> None:
        for homes in self._homes.values():
            homes.discard((lost.number, lost.installs))

    def _check_home(self, node: SimNode, other: SimNode, name: bytes) -> None:
        forgot = any(fault.forgets for fault in self.history.faults)
        met = other.joined and node.cluster.members.is_member(other.id) and other.cluster.members.is_member(node.id)
        if met and not forgot:
            raise Violation(f"W1: the tube {name.decode()} lives on node {node.number} and on node {other.number}")
        self.disputed.add(name)
        self.sometimes("a tube has two homes, because its nodes had not met or lost their jobs")

    # Phases

    def _chaos(self) -> None:
        options = self.options
        chaos = options.chaos_ms * MS
        for number in range(options.producers):
            producer = TubeProducer(self, number, self.streams.stream(f"producer {number}"))
            producer.jobs_left = max(1, options.jobs // options.producers)
            producer.pause_us = chaos // producer.jobs_left
            self._let_in(producer)
        for number in range(options.consumers):
            self._let_in(TubeConsumer(self, 100 + number, self.streams.stream(f"consumer {number}")))
        self._let_in_others()
        if FEW_GUESTS in options.features and not options.is_calm:
            for node in self.nodes:
                node.guests_max = _GUESTS_MAX
        self._run_with_faults(chaos)

    def _let_in_others(self) -> None:
        """Start the clients of the features that the seed uses."""
        features = self.options.features
        if STAGES in features:
            for number in range(300, 302):
                writer = StageWriter(self, number, self.streams.stream(f"writer {number}"))
                writer.works_left = self.options.chaos_ms // 1_000
                self._let_in(writer)
        if CLAIMS in features:
            for number in range(400, 402):
                self._let_in(ClaimReader(self, number, self.streams.stream(f"reader {number}")))
            feeder = TubeProducer(self, 410, self.streams.stream("producer of claims"))
            feeder.kind = feeder.kinds[0]
            feeder.is_iproto = feeder.is_iproto and feeder.kind.over_iproto
            feeder.jobs_left, feeder.pause_us = self.options.chaos_ms // 100, 100 * MS
            self._let_in(feeder)
        if LOADING in features:
            for number in range(700, 702):
                hasty = HastyProducer(self, number, self.streams.stream(f"hasty producer {number}"))
                hasty.jobs_left, hasty.pause_us = self.options.chaos_ms // 200, 200 * MS
                self._let_in(hasty)
        if PIPELINES in features:
            for number in range(500, 502):
                self._let_in(PipeliningClient(self, number, self.streams.stream(f"pipelining client {number}")))
        if USERS in features:
            for number in range(600, 602):
                self._let_in(UserClient(self, number, self.streams.stream(f"user {number}")))

    def _heal(self) -> None:
        super()._heal()
        for node in self.nodes:
            node.guests_max = NEVER
            if node.leaving:
                node.set_leaving(False)

    def _stop_producers(self) -> None:
        for client in self.clients:
            if isinstance(client, (TubeProducer, StageWriter, ClaimReader)):
                client.stopped = True

    def _traffic(self) -> None:
        """Check W1 and V2: the healed cluster agrees on its members and homes, and accepts jobs through every node."""
        self._until(self._is_whole, self._whole_after(), "C12: the nodes do not agree on the members")
        self._stop_producers()
        producers: list[TubeProducer] = []
        for node in self.nodes:
            for at in self.options.tubes:
                number = 50 + 10 * node.number + at
                producer = TubeProducer(self, number, self.streams.stream(f"producer {number} after"))
                producer.home, producer.must_work, producer.kind = node, True, KINDS[at]
                producer.kinds = [KINDS[at]]
                producer.is_iproto = producer.is_iproto and KINDS[at].over_iproto
                producer.jobs_left, producer.pause_us = 1, 100 * MS
                producers.append(producer)
        self._make_careful()
        # Buried jobs can fill a tube.
        self._kick_all()
        for producer in producers:
            self._let_in(producer)
        self._until(
            lambda: all(each.jobs_left == 0 for each in producers) and not self._is_waiting(producers),
            _WORKS_AFTER,
            "V2: the healed cluster accepts no jobs",
        )
        self._until(lambda: tube_checkers.homes_agree(self), _WORKS_AFTER, "W1: the nodes do not agree on the homes")

    def _is_waiting(self, producers: list[TubeProducer]) -> bool:
        numbers = {producer.number for producer in producers}
        return any(
            put.ended > self.schedule.now and int(put.body.split(b"-")[0]) in numbers
            for put in self.tubes.puts.values()
        )

    def _make_careful(self) -> None:
        for client in self.clients:
            if isinstance(client, TubeConsumer):
                client.careful = True
        for node in self.nodes:
            consumer = TubeConsumer(self, 200 + node.number, self.streams.stream(f"consumer at {node.number}"))
            consumer.home, consumer.careful = node, True
            if ONCE in self.options.features and node is self.nodes[0]:
                # Clients over IPROTO do not use the tube of this feature.
                consumer.use_resp()
            self._let_in(consumer)

    def _drain(self) -> None:
        """Wait until all tubes are empty. A few slow consumers can need long for many jobs."""
        left, before = 0, NEVER
        while left < before:
            self._until(self._is_quiet, _EMPTY_AFTER, "")
            before = left or before
            left = sum(len(tube_checkers.jobs_of(node)) for node in self.nodes)
            if left == 0:
                break
        for client in self.clients:
            client.stopped = True

    def _kick_all(self) -> None:
        """Return buried jobs to their tubes. Repeat this once a second."""
        for node in self.nodes:
            for name in tube_checkers.strict_tubes(node):
                self.tell(node, [b"KICK", name, b"1000"])
        self.schedule.after(SECOND, self._kick_all)

    def _is_quiet(self) -> bool:
        return not any(tube_checkers.jobs_of(node) for node in self.nodes) and not any(
            isinstance(client, TubeClient) and client.held for client in self.clients
        )

    def _look_around(self) -> None:
        for node in self.nodes:
            if node.up:
                check(node.engine)
                if len(node.forwarding.guests) > node.guests_max:
                    raise Violation(f"W0: node {node.number} has {len(node.forwarding.guests)} forwarded clients")

    def _judge(self) -> list[str]:
        return tube_checkers.judge(self)

    def _counts(self) -> dict[str, int]:
        history = self.tubes
        return {
            "puts": len(history.puts),
            "takes": len(history.takes),
            "deliveries": len(history.leases),
            "faults": len(self.history.faults),
        }

    def _let_in(self, client: Client) -> None:
        self.clients.append(client)
        client.begin()
