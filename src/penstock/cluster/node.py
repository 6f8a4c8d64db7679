"""The cluster protocol of one node. Pure.

The server calls `receive` with messages and `advance` with the time. It sends outgoing messages (`mail`) when the turn
is over and the log is durable. Each part of the protocol has its own file. This file dispatches messages, commands and
events of the engine to these parts.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from penstock.cluster import messages as m
from penstock.cluster.acks import Ack, Acks, is_at_least_once
from penstock.cluster.condition import Condition
from penstock.cluster.copy_states import FOUND_QUEUED, FRESH, move
from penstock.cluster.federation import Federation, LocalDemand, PeerDemands
from penstock.cluster.handover import Handover, Handovers
from penstock.cluster.home_election import ElectionWait, HomeElection, HomeElections
from penstock.cluster.homes import HomeListTransfer, Homes
from penstock.cluster.images import merge_holders, ttl_minutes
from penstock.cluster.leaving import Leaving
from penstock.cluster.members import Members
from penstock.cluster.messages import (
    Answer,
    CopyMessage,
    ElectionMessage,
    FailMessage,
    Greeting,
    HoldersMessage,
    HomesMessage,
    JobImage,
    JobMessage,
    JobsMessage,
    Message,
    Question,
    QueueMessage,
    Receipt,
)
from penstock.cluster.peer_outbox import PeerOutbox
from penstock.cluster.questions import Questions, QuestionWait
from penstock.cluster.replication import Replication, Replications
from penstock.cluster.requeue import Requeue
from penstock.cluster.state import ClusterState, fingerprint
from penstock.core import states as s
from penstock.core.copy_commands import is_shared, wait_copies
from penstock.core.deadlines import NOWHERE
from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.job import Copy, Draft, Job
from penstock.core.limits import FIRED_PER_TURN_MAX, NEVER
from penstock.core.moves import puts_bytes, tube_bytes
from penstock.core.outbox import INCARNATION_NOTE, ReplicationHooks
from penstock.core.policy import DISQUE
from penstock.core.sessions import Session
from penstock.core.states import OK
from penstock.core.tube import Tube
from penstock.core.tube_patterns import TubePatterns
from penstock.core.waits import Connection, CopyWait, PeerWait


class Cluster(ReplicationHooks):
    """The cluster protocol, as the server and the engine use it."""

    def __init__(
        self,
        engine: Engine,
        ids: IdForms,
        members: Members,
        mail: PeerOutbox,
        entropy: int,
        body_of: Callable[[Job], bytes],
        make_room: Callable[[int], None],
    ) -> None:
        """Create the cluster protocol of a node, with the state from the engine's log.

        `body_of` reads bodies that are on disk. `make_room` tries to free the given number of bytes in the log. If
        the log contains no incarnation of this node, the new random one in `members` is used.
        """
        self.state = ClusterState(engine, ids, members.myself, members, mail, entropy, body_of)
        self.outbox = mail
        self.members = members
        self.acks = Acks(self.state)
        self.requeue = Requeue(self.state, self.acks)
        self.condition = Condition(self.state, make_room)
        self.replications = Replications(self.state, self.acks, self.requeue, self.condition)
        self.handovers = Handovers(self.state, self.acks, self.requeue)
        self.federation = Federation(self.state, self.acks, self.requeue, self.handovers)
        self.questions = Questions(self.state)
        self.homes = Homes(self.state)
        self.elections = HomeElections(self.state, self.homes)
        self._leaving = Leaving(self.state, self.acks, self.handovers)
        self._make_room = make_room
        self._began: i64 = engine.now  # Engine time at the start of this process.
        self.ignored: i64 = 0  # Counts messages about jobs from nodes that are not members.
        self._changes: i64 = -1  # The value of `members.changes` when the directory of homes was last updated.
        engine.copies = self
        self._restore(engine.now)

    def _restore(self, now: i64) -> None:
        place = self.state
        self.members.incarnation = place.engine.notes.get(INCARNATION_NOTE, self.members.incarnation)
        for job in place.engine.jobs.scan(0, NEVER):
            copy = job.copy()
            if copy is None:
                continue
            if copy.origin_id:
                place.foreign[copy.origin_id] = job.id
            # A job that only other nodes were to hold is still here if the log ended before it was withdrawn.
            merge_holders(place, copy, [place.myself])
            if copy.state == FRESH and (job.state == s.READY or job.state == s.TAKEN):
                move(copy, FOUND_QUEUED)
        self.acks.restore(now)
        self.handovers.restore(now)
        self.homes.restore()

    def set_incarnation(self, memory: bytes, now: i64) -> None:
        """Set and log the incarnation of this node. It is a new one if this node lost its jobs."""
        self.members.set_incarnation(memory, now)
        self.state.engine.note(INCARNATION_NOTE, memory, now)

    # Events of the server

    @property
    def next_due(self) -> int:
        """Return the time at which `advance` has to be called next. 0 means at the end of this turn."""
        if self.federation.offered:
            return 0
        return min(self.state.deadlines.next_due, self.members.next_due)

    def news(self) -> i64:
        """Return a number that increases when there is work for the server.

        This work is to open or close a link, to write the file of nodes, or to log a message for the operator.
        """
        return self.members.moves + self.members.changes + self.members.superseded + self.homes.changes

    def link_up(self, named: bytes, found: bytes, incarnation: bytes, now: i64) -> bool:
        """Record that our link to a node is up: see `Members.link_up`. Return whether the link can be used."""
        if INCARNATION_NOTE not in self.state.engine.notes:
            # From now on other nodes may rely on the incarnation. A node without peers need not log it.
            self.set_incarnation(self.members.incarnation, now)
        if not self.members.link_up(named, found, incarnation, now):
            return False
        self.handovers.resend_to(found, now)
        self.acks.resend_to(found, now)
        self._tell_homes(found, now)
        self.homes.ask_for_all(found)
        return True

    def link_down(self, node: bytes, now: i64) -> None:
        self.members.link_down(node, now)
        self.homes.cancel_list(node)
        self.elections.link_down(node)

    def advance(self, now: i64) -> None:
        """Fire due timers. If they exceed the limit of one turn, the others fire in the next turn."""
        self.state.engine.advance(now)
        if self.members.next_due <= now:
            self.announce_condition(now)
        self.members.advance(now)
        if self.members.changes != self._changes:
            self._changes = self.members.changes
            self._tidy_homes(now)
        deadlines = self.state.deadlines
        if self.members.leaving and self._leaving.deadline_pos == NOWHERE:
            self._leaving.start(now)
        fired: i64 = 0
        while deadlines.next_due <= now and fired < FIRED_PER_TURN_MAX and not self.state.engine.outbox.full():
            item = deadlines.first()
            fired += 1
            if isinstance(item, Replication):
                self.replications.fire(item, now)
            elif isinstance(item, Ack):
                self.acks.fire(item, now)
            elif isinstance(item, LocalDemand):
                self.federation.fire_want(item, now)
            elif isinstance(item, PeerDemands):
                self.federation.fire_wishes(item, now)
            elif isinstance(item, Handover):
                self.handovers.fire(item, now)
            elif isinstance(item, HomeElection):
                self.elections.fire(item, now)
            elif isinstance(item, HomeListTransfer):
                self.homes.send_next_part(item, now)
            else:
                assert isinstance(item, Leaving)
                item.fire(now)
        if self.federation.offered:
            self.federation.serve(now)

    def reset(self, myself: bytes, now: i64) -> None:
        """Remove all peers, and change the id of this node to `myself`. The caller removes all jobs."""
        self.replications.reset(now)
        self.members.reset(myself)
        self.elections.reset()
        self._tidy_homes(now)
        self.state.rename(myself)
        self.handovers.reset(now)
        self.acks.evict(len(self.acks.by_id), now)

    def receive(self, sender: bytes, message: Message, now: i64) -> None:
        if isinstance(message, (Greeting, FailMessage)):
            greeted = self.members.has_greeted(sender)
            self.members.receive(sender, message, now)
            if not greeted and self.members.has_greeted(sender):
                self.federation.offer_to(sender)
            return
        if isinstance(message, (HomesMessage, ElectionMessage)) and sender in self.members.peers:
            # This includes nodes that are still being met, because these messages are not sent again when they become
            # members.
            self._receive_of_homes(sender, message, now)
            return
        if not self.members.is_member(sender):
            self.ignored += 1
            return
        sender = self.state.node(sender)
        self.state.engine.advance(now)
        if isinstance(message, CopyMessage):
            if message.kind == m.QUEUED:
                self.requeue.receive_queued(sender, message, now)
            else:
                self.requeue.receive_working(sender, message, now)
        elif isinstance(message, HoldersMessage):
            if message.kind == m.GOTACK:
                self.acks.receive_gotack(sender, message, now)
            else:
                self.requeue.receive_holders(sender, message, now)
        elif isinstance(message, JobMessage):
            self._receive_of_job(sender, message, now)
        elif isinstance(message, JobsMessage):
            self._receive_jobs(sender, message, now)
        elif isinstance(message, QueueMessage):
            self._receive_of_queue(sender, message, now)
        elif isinstance(message, Question):
            self.questions.receive_ask(sender, message, now)
        elif isinstance(message, Answer):
            self.questions.receive_answer(sender, message)
        else:
            assert isinstance(message, Receipt)
            if message.kind == m.TAKENOVER:
                self.handovers.receive_takenover(sender, message.number, now)
            else:
                self.handovers.receive_nottaken(sender, message.number, now)

    def _receive_of_job(self, sender: bytes, message: JobMessage, now: i64) -> None:
        kind = message.kind
        if kind == m.GOTJOB:
            self.replications.receive_gotjob(sender, message.id, now)
        elif kind == m.NOTHELD:
            self.replications.receive_notheld(sender, message.id, message.argument, now)
        elif kind == m.SETACK:
            self.acks.receive_setack(sender, message, now)
        elif kind == m.DELJOB:
            self.acks.receive_deljob(sender, message, now)
        elif kind == m.WILLQUEUE:
            self.requeue.receive_willqueue(sender, message, now)
        elif kind == m.ENQUEUE:
            self.requeue.receive_enqueue(message.id, message.argument, now)

    def _receive_of_homes(self, sender: bytes, message: Message, now: i64) -> None:
        self.state.engine.advance(now)
        if isinstance(message, HomesMessage):
            if not message.part & m.LIST_WANTED:
                self.homes.receive_homes(sender, message, now)
            elif self.members.is_linked(sender):
                self._tell_homes(sender, now)
        elif isinstance(message, ElectionMessage):
            if message.kind == m.CLAIM:
                self.elections.receive_claim(sender, message, now)
            elif message.kind == m.CLAIMED:
                self.elections.receive_claimed(sender, message, now)
            else:
                self.homes.take_back(message.tube, sender, message.number, now)
        self.elections.end_decided()

    def _tidy_homes(self, now: i64) -> None:
        """Drop the homes on nodes that were removed from the table, and continue the commands that waited for them."""
        self.homes.tidy(now)
        self.elections.end_decided()

    def _tell_homes(self, node: bytes, now: i64) -> None:
        """Send a node the list of tubes that live on this node, and CLAIM for the elections of this node."""
        self.homes.send_list(node, now)
        self.elections.resend_after_list(node)

    def _receive_jobs(self, sender: bytes, message: JobsMessage, now: i64) -> None:
        self._have_room_for(message.jobs)
        if message.kind == m.REPLJOB:
            for image in message.jobs:
                self.replications.receive_repljob(sender, image, message.quiet, now)
        else:
            if message.number:
                for image in message.jobs:
                    self.replications.given_away(sender, image.id)
            self.federation.receive_yourjobs(sender, message, now)

    def _have_room_for(self, jobs: list[JobImage]) -> None:
        """Try to make room in the log for `jobs` and their queues, as is done for puts of clients."""
        engine = self.state.engine
        needed: i64 = puts_bytes(len(jobs), sum([len(job.body) for job in jobs]))
        for queue in {job.queue for job in jobs}:
            if queue not in engine.tubes:
                needed += tube_bytes(queue, DISQUE)
        if needed > engine.room_bytes:
            self._make_room(needed)

    def _receive_of_queue(self, sender: bytes, message: QueueMessage, now: i64) -> None:
        if message.kind == m.PAUSE:
            tube = self.state.engine.tubes.get(message.queue)
            if tube is None and message.argument & 3:
                tube = self.state.shared_tube(message.queue, now)
            if tube is not None:
                self.state.engine.pause(tube, message.argument & 1 != 0, message.argument & 2 != 0, now)
        else:
            self.federation.receive_needjobs(sender, message, now)

    # Requests of commands

    def copies_for(self, name: bytes, tube: Tube | None, now: i64) -> int:
        """Return how many copies a job of a queue gets if its producer does not give a number of copies."""
        if not self.members.peers or (tube is not None and not is_shared(tube)):
            return 1
        return self.replications.default_level(name, self.state.keeps_nothing(), now)

    def added_alone(self) -> None:
        """Count an added job that exists only on this node, although the default number of copies is greater.

        Its producer gave no number of copies, and no other node accepts copies.
        """
        if self.members.peers:
            self.replications.count_below_default(1)

    def confirmed(self, job: Job) -> list[bytes]:
        """Return the nodes that have confirmed a copy of a job that waits for its copies."""
        started = self.replications.by_id.get(self.state.id_of(job)) if job.state == s.STAGED else None
        return [] if started is None else started.confirmed

    def replicate(
        self,
        connection: Connection,
        tube: Tube,
        draft: Draft,
        repl: int,
        is_default: bool,
        external: bool,
        timeout_ms: int,
        tag: object,
        now: i64,
    ) -> CopyWait:
        """Add a job, and wait until enough nodes have a copy.

        `is_default` means that the producer gave no number of copies.
        """
        if draft.once:
            job = self.handovers.put(tube, draft, now)
            wait = wait_copies(self.state.engine, connection, job, now, timeout_ms, tag)
            self.handovers.wait_for(job, wait)
        else:
            started = self.replications.start(tube, draft, repl, external, now)
            started.is_default = is_default
            wait = wait_copies(self.state.engine, connection, started.job, now, timeout_ms, tag)
            started.wait = wait
        return wait

    def replicate_async(self, tube: Tube, draft: Draft, repl: int, external: bool, now: i64) -> bytes:
        """Add a job, replicate it in the background, and return its id."""
        if draft.once:
            return self.state.id_of(self.handovers.put(tube, draft, now))
        if external:
            return self.replications.start_elsewhere(tube, draft, repl, now)
        return self.state.id_of(self.replications.start_async(tube, draft, repl, now))

    def may_be_elsewhere(self, id: bytes) -> bool:
        """Return whether the job with this 40-character id may have been created by another node."""
        return id[2:10] != self.state.myself[:8] and self.members.size() > 1

    def whom_to_ask(self, id: bytes) -> str:
        """Return a hint for users: which node to ask about a job that is not on this node and was created elsewhere."""
        maker = self.node_of(id[2:10])
        if maker:
            return f"ask its maker, {self.state.describe(maker)}"
        return f"ask the other nodes: its maker {id[2:10].decode('ascii', 'replace')}… is no longer in the cluster"

    def acknowledge_unknown(self, id: bytes, tubes: TubePatterns, now: i64) -> None:
        """Keep the ack of a job that is not on this node. `tubes` are the tubes that the client can use."""
        if not is_at_least_once(id):
            return
        if self.members.leaving:
            # A node that leaves keeps no acks, but holders may receive this.
            self.state.broadcast(JobMessage(m.SETACK, id, 0, tubes))
        else:
            self.acks.keep_unknown(id, i64(ttl_minutes(id)), tubes, now)

    def fast_ack(self, session: Session, id: bytes, job: Job | None, tubes: TubePatterns, now: i64) -> bool:
        """End a job for FASTACK. After a FASTACK, unlike after an ACK, the job may be delivered again.

        `tubes` are the tubes that the client can use. Every node that may have a copy gets one DELJOB, which is not
        repeated. Return whether this node has the job, or its ack.
        """
        place = self.state
        if job is None and not tubes.any_tube:
            # Only a holder knows the tube of the job.
            place.broadcast(JobMessage(m.DELJOB, id, 0, tubes))
            return False
        if job is None:
            ack = self.acks.by_id.get(id)
            # A dummy is for a job that was never here.
            known = ack is not None and not ack.is_dummy()
            holders = self.acks.forget(id, now)
            place.send_all(holders or self.members.linked(), JobMessage(m.DELJOB, id, fingerprint(holders)))
            # A message with the job may still arrive.
            place.recent.add(id, now)
            return known
        copy = job.copy()
        place.begin_remote_change()
        try:
            outcome = place.engine.ack(session, job, now)
        finally:
            # The tube may refuse the ack with an error.
            place.end_remote_change()
        if outcome != OK:
            return False
        if copy is not None:
            self._forget_elsewhere(job, id, copy, now)
        return True

    def delete(self, job: Job, now: i64) -> int:
        """Delete a job, and send DELJOB once to all holders that can be reached."""
        copy = job.copy()
        outcome = self.state.engine.delete(job, now)
        if outcome == OK and copy is not None:
            self._forget_elsewhere(job, self.state.id_of(job), copy, now)
        return outcome

    def _forget_elsewhere(self, job: Job, id: bytes, copy: Copy, now: i64) -> None:
        self.state.send_all(copy.holders, JobMessage(m.DELJOB, id, fingerprint(copy.holders)))
        if not job.once:
            self.state.recent.add(id, now)

    def ask(
        self, connection: Connection, about: i64, queue: bytes, count: int, timeout_ms: int, tag: object, now: i64
    ) -> QuestionWait:
        """Ask every node that can be reached about a queue."""
        return self.questions.ask(connection, about, queue, count, timeout_ms, tag, now)

    def next_node(self, after: bytes) -> bytes:
        """Return the member that follows `after` in the order of ids, or b"" after the last one."""
        behind = [node for node in self.members.member_ids() if node > after]
        return min(behind) if behind else b""

    def leave_to_others(self, job: Job, now: i64) -> bool:
        """Leave a taken job, whose body cannot be read on this node, to another holder of the job.

        Return whether there is another holder.
        """
        return self.requeue.leave_to_others(job, now)

    def node_of(self, prefix: bytes) -> bytes:
        """Return the member whose id starts with `prefix`, or b"" if there is none."""
        for peer in self.members.peers.values():
            if peer.id.startswith(prefix) and peer.is_member():
                return peer.id
        return b""

    def wants(self, queue: bytes, patience_ms: i64, now: i64) -> None:
        """Ask other nodes for jobs, because a client found the queue empty on this node.

        The client waits for `patience_ms`, which is 0 if it does not wait.
        """
        self.federation.want(queue, patience_ms, now)

    def set_leaving(self, leaving: bool, now: i64) -> None:
        """Start or stop leaving the cluster. A node that leaves hands over all its jobs and accepts none."""
        self.members.set_leaving(leaving, now)
        if leaving:
            self._leaving.start(now)
        else:
            self._leaving.stop()

    def announce_condition(self, now: i64) -> None:
        """Compute the condition of this node, and announce it if it has changed."""
        self.members.set_condition(self.condition.flags(now), now)

    def registered(self) -> int:
        """Return how many jobs and acks this node has. A node that leaves can be stopped when this is 0."""
        return self.state.engine.jobs.count + len(self.acks.by_id)

    def pause_all(self, queue: bytes, inward: bool, outward: bool) -> None:
        self.state.broadcast(QueueMessage(m.PAUSE, queue, (1 if inward else 0) | (2 if outward else 0)))

    # Events of the engine

    def moved(self, job: Job, tube: Tube, rule: i64, now: i64) -> None:
        """Send the messages that follow from a state change of a job with copies. `rule` is the applied transition."""
        copy = job.copy()
        assert copy is not None
        event: i64 = s.EVENT_OF[rule]
        came_from: i64 = s.SOURCE_OF[rule]
        if came_from == s.STAGED:
            self.replications.left(job)
        elif came_from == s.GONE and not is_shared(tube):
            self._live_here_alone(job, copy, now)
        state = job.state
        if state == s.GONE:
            if event == s.MOVED_OUT:
                return
            if copy.origin_id:
                self.state.foreign.pop(copy.origin_id, None)
            self.handovers.gone(job, now)
            if event == s.ACKED and not self.state.is_remote_change and not job.once:
                if len(copy.holders) < copy.repl and not copy.origin_id and job.created <= self._began:
                    # The log may have ended while one more node was being asked to hold a copy.
                    merge_holders(self.state, copy, self.members.member_ids())
                self.acks.begin(self.state.id_of(job), copy.holders, job.expiry, now)
        elif event == s.TOOK or event == s.CLAIMED:
            self.requeue.delivered(job, copy, now)
            if tube.count_in(s.READY) == 0:
                self.federation.emptied(tube.name, now)
        elif state == s.READY:
            self.handovers.queued(job, now)
            self.requeue.queued(job, copy, event, now)
        elif event == s.TOUCHED and state == s.TAKEN:
            self.requeue.delivered(job, copy, now)
        elif state == s.DELAYED or state == s.BURIED:
            self.requeue.end_warning(copy)

    def _live_here_alone(self, job: Job, copy: Copy, now: i64) -> None:
        """Delete the copies of a job that was moved to a tube which lives on this node only.

        Otherwise the other holders would queue the job again in its old queue.
        """
        self.handovers.gone(job, now)
        self.state.send_all(copy.holders, JobMessage(m.DELJOB, self.state.id_of(job), m.MOVED_AWAY))
        copy.holders = [self.state.myself]
        copy.logged = False

    def delays_requeue(self, job: Job, tube: Tube, now: i64) -> bool:
        """Return whether a copy has to wait before it is queued, because the other holders get a WILLQUEUE first."""
        copy = job.copy()
        assert copy is not None
        return self.requeue.delays_requeue(job, copy, now)

    def wait_ended(self, wait: PeerWait) -> None:
        """Drop the question, election, replication or handover that a client no longer waits for."""
        if isinstance(wait, QuestionWait):
            self.questions.wait_ended(wait)
            return
        if isinstance(wait, ElectionWait):
            self.elections.wait_ended(wait)
            return
        assert isinstance(wait, CopyWait)
        self.replications.wait_ended(wait, self.state.engine.now)
        self.handovers.wait_ended(wait, self.state.engine.now)

    def tube_made(self, tube: Tube) -> None:
        self.federation.tube_made(tube)
        self.elections.tube_made(tube)
        self.homes.tube_made(tube)

    def tube_dropped(self, tube: Tube) -> None:
        self.homes.tube_dropped(tube)
        self.condition.tube_dropped(tube)

    def tube_paused(self, tube: Tube) -> None:
        self.condition.tube_paused(tube)

    def job_ready(self, tube: Tube) -> None:
        self.federation.job_ready(tube)
