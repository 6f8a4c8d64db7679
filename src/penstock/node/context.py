"""The context of commands: the engine, job ids, bodies that are on disk, room in the log, and other nodes.

All dialects share one context. The behaviour that they have in common is implemented here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from penstock.cluster.messages import NODE_FAILED, STAGE
from penstock.cluster.node import Cluster
from penstock.cluster.questions import QuestionWait
from penstock.core.engine import Engine, quoted_name
from penstock.core.errors import CommandError, CrossHome, Exhausted, NoHome
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID, IdForms, is_long
from penstock.core.job import Draft, Job
from penstock.core.limits import REASON_BYTES_MAX, UNSET
from penstock.core.moves import puts_bytes, tube_bytes
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.core.waits import Waiting
from penstock.node.caller import Caller, SlicedCommand, check_tube
from penstock.node.ignored_options import IgnoredOptions
from penstock.node.remote import NO_REMOTE_COMMANDS, RemoteCommands
from penstock.node.routing import Elsewhere, NeedsAnswer, NeedsDecision, NeedsHome, NeedsLookup, OnSeveralNodes
from penstock.wire.bodies import to_plain
from penstock.wire.errors import Refused
from penstock.wire.reply import Reply

# The maximum of body bytes in a reply, for any COUNT. A reply always has at least one job.
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024

# Other nodes have this long to answer a question, ms.
_ANSWER_MS: Final = 1_000

# Which of the other nodes must answer before a stage or a consumer counts as missing.
NO_NODE: Final = 0
NODES_UP: Final = 1  # All that are not failed.
ALL_NODES: Final = 2

_LEAVING: Final = b"LEAVING This node is leaving the cluster, please connect to a different one"

# Its first argument is a caller, as the server's own subclass of `Caller`.
StartLong = Callable[[Any, SlicedCommand], None]


class CommandContext:
    """The state and the services of a node that commands use."""

    engine: Engine
    ids: IdForms
    node: bytes  # 40 hex digits.
    cluster: Cluster | None  # None if the cluster is off.
    leaving: bool  # The node is leaving its cluster and accepts no new jobs.
    in_replicaset: bool  # `queue.cfg{in_replicaset = true}`: queue.create_tube makes no temporary tubes.
    ignored: IgnoredOptions  # Logs the options of Tarantool's queue that are ignored.
    continue_sliced: StartLong | None  # Continues a command in slices. None: commands run in one piece.
    remote: RemoteCommands  # The commands that run on other nodes.
    _body_of: Callable[[Job], bytes]
    _make_room: Callable[[int], None]

    def __init__(
        self,
        engine: Engine,
        ids: IdForms,
        node: bytes,
        body_of: Callable[[Job], bytes],
        make_room: Callable[[int], None],
    ) -> None:
        """Create the context of a node.

        `body_of` reads a body from disk. `make_room` tries to make room in the log for a number of bytes.
        """
        self.engine = engine
        self.ids = ids
        self.node = node
        self.cluster = None
        self.leaving = False
        self.in_replicaset = False
        self.ignored = IgnoredOptions()
        self.continue_sliced = None
        self.remote = NO_REMOTE_COMMANDS
        self._make_room = make_room
        self._body_of = body_of

    def leaving_error(self, caller: Caller) -> Refused:
        """Return the error for a command that this node refuses because it is leaving the cluster.

        Clients of another node get a text that names this node.
        """
        if not caller.entry_node:
            return Refused(_LEAVING)
        return Refused(b"NOHOME the tube lives on node " + self.node + b", which is leaving the cluster")

    def id_of(self, job: Job) -> bytes:
        """Return the id of a job in its form of 40 characters."""
        if job.extra is not None and self.cluster is not None:
            return self.cluster.state.id_of(job)
        return self.ids.long(job.id, job.ttl_minutes)

    def number_of(self, id: bytes) -> int:
        """Return the engine's number for an id of 40 characters, or NOT_AN_ID if this node cannot have such a job."""
        cluster = self.cluster
        number = self.ids.parse_long(id) if cluster is None else cluster.state.number_of(id)
        if number != NOT_AN_ID or not self.engine.old_ids:
            return number
        # Ids of nodes of this cluster are not looked up. Only jobs imported from another system keep foreign ids.
        if cluster is not None and cluster.node_of(id[2:10]):
            return NOT_AN_ID
        job = self.engine.old_ids.get(id)
        return NOT_AN_ID if job is None else job.id

    def may_be_elsewhere(self, id: bytes) -> bool:
        """Return whether another node of the cluster may have given this id to a job."""
        return self.cluster is not None and is_long(id) and self.cluster.may_be_elsewhere(id)

    def find(self, caller: Caller, number: int, now: i64) -> Job | None:
        """Return the job with a number, or None if it does not exist. Raise an error if its tube is forbidden."""
        if number == NOT_AN_ID:
            return None
        job = self.engine.find(number, now)
        if job is not None and not caller.any_tube:
            check_tube(caller, self.engine.tube_of(job).name)
        return job

    # Tubes and jobs of other nodes

    def tube(self, name: bytes) -> Tube:
        """Return the tube with a name. Raise Elsewhere if another node has it, and UnknownTube if it does not exist."""
        tube = self.engine.tubes.get(name)
        if tube is None:
            self.raise_if_elsewhere([name])
            tube = self.engine.tube(name)
        return tube

    def raise_if_elsewhere(self, names: list[bytes]) -> None:
        """Raise Elsewhere if these tubes are on one other node, and CrossHome if they are on different nodes."""
        if self.cluster is None or not self.cluster.homes.by_tube:
            return
        homes = [self._home_of(name) for name in names]
        for at in range(1, len(names)):
            if homes[at] != homes[0]:
                text = f"tubes {quoted_name(names[0])} and {quoted_name(names[at])} are not on one node"
                raise CrossHome(text + "; name only tubes of one node in a command")
        if homes[0]:
            promised = names[0] if self.cluster.homes.is_promised(names[0]) else b""
            raise Elsewhere(homes[0], f"tube {quoted_name(names[0])}", promised)

    def _home_of(self, name: bytes) -> bytes:
        """Return the id of the other node that has a tube, or b"" if the tube is here or does not exist."""
        assert self.cluster is not None
        return b"" if name in self.engine.tubes else self.cluster.homes.home_of(name)

    def is_elsewhere(self, name: bytes) -> bool:
        """Return whether a tube that this node does not have is on another node."""
        return self.cluster is not None and self.cluster.homes.home_of(name) != b""

    def raise_if_job_elsewhere(self, caller: Caller, id: bytes, used: bool = False) -> None:
        """Raise Elsewhere if a job that this node does not have may be on another node.

        If `used` is set, only the nodes that the caller's session uses are considered.
        """
        node = self._home_of_job(caller, id, used)
        if node:
            raise Elsewhere(node, f"job {quoted_name(id)}")

    def _home_of_job(self, caller: Caller, id: bytes, used: bool) -> bytes:
        """Return the other node that may have a job, or b"" if it is unknown.

        An id contains the node or the tube. If it has neither, return the only other node that the session uses.
        """
        cluster = self.cluster
        if cluster is None or not cluster.members.peers:
            return b""
        if len(id) == LONG_ID_BYTES and id[:2] == b"D-":
            node = cluster.node_of(id[2:10])
            return node if node and (not used or node in self.remote.nodes_in_use(caller)) else b""
        if len(id) == HEX_ID_BYTES and id.find(b"#") < 0:
            # The id does not contain the node. Most sessions use at most one other node, so that one is tried.
            nodes = self.remote.nodes_in_use(caller)
            return nodes[0] if len(nodes) == 1 else b""
        name, mark, _ = id.rpartition(b"#")
        return self._home_of(name) if mark else b""

    def split_by_node(self, caller: Caller, args: list[bytes], at: i64, used: bool = False) -> None:
        """Raise an error if the jobs that a command names may be on other nodes. `args[at]` is the first job id.

        Raise Elsewhere if all of them are on one other node, and OnSeveralNodes if they are on different nodes.
        """
        cluster = self.cluster
        if cluster is None or not cluster.members.peers:
            return
        parts: dict[bytes, list[bytes]] = {}
        for id in args[at:]:
            node = b""
            if id[2:10] != self.node[:8] and self.number_of(id) == NOT_AN_ID:
                node = self._home_of_job(caller, id, used)
            node = node or self.node
            part = parts.get(node)
            if part is None:
                part = parts[node] = args[:at]
            part.append(id)
        if len(parts) > 1:
            for part in parts.values():
                if len(part) == at + 1 and not used:
                    # A command with one id replies with an error if it fails. A second id makes it reply with a count,
                    # which can be added to the counts of the other nodes.
                    part.append(part[at])
            raise OnSeveralNodes(parts)
        for node in parts:
            if node != self.node:
                raise Elsewhere(node, f"job {quoted_name(args[at])}")

    def spread_to_used_nodes(self, caller: Caller, args: list[bytes]) -> None:
        """If the caller's session uses other nodes, raise OnSeveralNodes, so that the command runs on all of them."""
        nodes = self.remote.nodes_in_use(caller)
        if nodes:
            raise OnSeveralNodes({node: list(args) for node in [self.node, *nodes]})

    def find_node_with(self, caller: Caller, about: i64, names: list[bytes], must_answer: i64 = NO_NODE) -> bytes:
        """Return the other node that has a stage or a consumer with one of these names, or b"" if there is none.

        Raise NeedsLookup if the other nodes have not been asked yet. `about` is STAGE or CONSUMER. Raise NoHome if no
        node has it, and one of the nodes that `must_answer` has not answered: NO_NODE, NODES_UP or ALL_NODES.
        """
        if self.cluster is None or self.cluster.members.size() == 1:
            return b""
        answers = caller.answers
        for name in names:
            wait = None if answers is None else answers.get(name)
            if wait is None:
                raise NeedsLookup(int(about), name)
            if wait.where:
                return wait.where
        if answers is not None:
            for name in names:
                self._check_answers(about, name, answers[name], must_answer)
        return b""

    def _check_answers(self, about: i64, name: bytes, wait: QuestionWait, must_answer: i64) -> None:
        assert self.cluster is not None
        for peer in self.cluster.members.peers.values():
            is_failed = bool(peer.flags & NODE_FAILED)
            if must_answer == NO_NODE or (is_failed and must_answer == NODES_UP):
                continue
            if peer.is_member() and peer.id not in wait.answered:
                what = f"{'stage' if about == STAGE else 'consumer'} {quoted_name(name)}"
                where = f"{what} may be on {self.cluster.state.describe(peer.id)}"
                if not is_failed:
                    raise NoHome(f"{where}, which has not answered; try again")
                back = "wait until it is back, or remove it for good: penstock cluster forget"
                raise NoHome(f"{where}, which cannot be reached; {back} {peer.id.decode()}")

    def ask_others(self, caller: Caller, what: NeedsAnswer, tag: object, now: int) -> Waiting:
        """Ask the other nodes the question on which a command depends. Return the wait that ends with their answers."""
        assert self.cluster is not None
        if isinstance(what, NeedsHome):
            return self.cluster.elections.start_and_wait(caller.connection, what.tube, tag, now)
        if isinstance(what, NeedsDecision):
            return self.cluster.elections.wait_for_decision(caller.connection, what.where.promised, tag, now)
        assert isinstance(what, NeedsLookup)
        return self.cluster.ask(caller.connection, what.about, what.name, 0, _ANSWER_MS, tag, now)

    def _check_home(self, name: bytes, policy: TubePolicy) -> None:
        if self.cluster is not None and not self.cluster.elections.may_make(name, policy):
            raise NeedsHome(name)

    # Room in the log, and new tubes

    def check_new(self, names: list[bytes], policy: TubePolicy) -> None:
        """Raise an error if there is no room for new tubes, or if this node must not create them. Change nothing."""
        self.raise_if_elsewhere(names)
        needed: i64 = 0
        for name in names:
            needed += tube_bytes(name, policy)
        self.reserve_log(needed)
        self.engine.check_new(names, policy)
        for name in names:
            self._check_home(name, policy)

    def new_tube(self, name: bytes, policy: TubePolicy, drafts: list[Draft], now: i64) -> Tube:
        """Create a tube for these jobs. If it cannot accept all of them, raise an error before anything is changed."""
        self.raise_if_elsewhere([name])
        self.reserve_log(_log_bytes(drafts) + tube_bytes(name, policy))
        self.engine.check_first(name, policy, drafts, now)
        self._check_home(name, policy)
        return self.engine.create_tube(name, policy, now)

    def reserve_log_for(self, drafts: list[Draft]) -> None:
        """Try to make room in the log for new jobs. If this fails, the engine refuses the jobs."""
        self.reserve_log(_log_bytes(drafts))

    def reserve_log(self, needed: i64) -> None:
        """Try to make room in the log for `needed` bytes. If this fails, the engine refuses the command."""
        if needed > self.engine.room_bytes:
            self._make_room(needed)

    def body_of(self, job: Job) -> bytes:
        """Return the body of a job in the form that users see, from memory or from disk."""
        body = job.user_body()
        return body if isinstance(body, bytes) else self._body_of(job)

    def take(
        self, caller: Caller, tubes: list[Tube], count: int, now: i64, key: bytes | None = None, ttr_ms: int = UNSET
    ) -> list[Job]:
        """Take up to `count` jobs, one from each tube in turn. Stop when they fill one reply."""
        session = caller.connection.session
        return self.engine.take_many(session, tubes, count, now, key, ttr_ms, ANSWER_BYTES_MAX)

    def request_skipped(self, names: list[bytes], jobs: list[Job], count: int, now: i64) -> None:
        """Ask other nodes for jobs of the empty queues that a take skipped before it found `jobs` in a later queue.

        Otherwise a queue that is named first would get no jobs from other nodes while a later one has jobs here.
        """
        cluster = self.cluster
        if cluster is None or not cluster.members.peers:
            return
        served = {self.engine.tube_of(job).name for job in jobs}
        last = self.engine.tube_of(jobs[len(jobs) - 1]).name
        for name in names:
            if name == last and len(jobs) == count:
                # The take did not reach the queues after this one.
                return
            if name not in served:
                cluster.wants(name, 0, now)

    def delete(self, job: Job, now: i64) -> int:
        """Delete a job, and its copies on other nodes."""
        return self.engine.delete(job, now) if self.cluster is None else self.cluster.delete(job, now)

    def bodies(self, caller: Caller, jobs: list[Job], now: i64) -> list[bytes]:
        """Return the bodies of jobs that a caller has just taken. All are read before the reply begins.

        A body on disk may be damaged. Its job is removed from `jobs` and left to another node that has a copy. If there
        is none, the job is buried, or returned to its tube if the tube has no bury.
        """
        bodies: list[bytes] = []
        for job in jobs:
            body = job.user_body()
            if not isinstance(body, bytes):
                return self._read_bodies(caller, jobs, now)
            bodies.append(body)
        return bodies

    def _read_bodies(self, caller: Caller, jobs: list[Job], now: i64) -> list[bytes]:
        bodies: list[bytes] = []
        damage: CommandError | None = None
        lost: set[int] = set()
        for job in jobs:
            try:
                bodies.append(self.body_of(job))
            except Exhausted:
                # The job is not damaged. A later take may be able to read it.
                for taken in jobs:
                    if taken.id not in lost:
                        self.engine.undelivered(taken, now)
                raise
            except CommandError as error:
                damage = error
                lost.add(job.id)
                if self.cluster is not None and self.cluster.leave_to_others(job, now):
                    continue
                if self.engine.tube_of(job).policy.has_bury:
                    # If it were returned to the tube, every take would fail on it again.
                    self.engine.bury(caller.connection.session, job, now, str(error).encode()[:REASON_BYTES_MAX])
                else:
                    self.engine.undelivered(job, now)
        if damage is not None:
            # Compared by id, because a job that was returned may already be delivered to a waiting client.
            jobs[:] = [job for job in jobs if job.id not in lost]
            if not jobs:
                raise damage
        return bodies

    def write_body(self, reply: Reply, job: Job) -> None:
        """Write the body of a job that a client inspects, or null if it cannot be read."""
        body = self.body_or_none(job)
        if body is None:
            reply.null()
        else:
            reply.bulk(body)

    def write_plain(self, reply: Reply, job: Job) -> None:
        """Write the body of a job as plain bytes, for protocols without types, or null if it cannot be read."""
        body = self.body_or_none(job)
        if body is None:
            reply.null()
        else:
            reply.bulk(to_plain(body, job.user_body_kind()))

    def body_or_none(self, job: Job) -> bytes | None:
        body = job.user_body()
        if isinstance(body, bytes):
            return body
        try:
            return self._body_of(job)
        except CommandError:
            return None

    def run_sliced(self, caller: Caller, long: SlicedCommand, now: i64) -> None:
        """Run a command in slices: the first slice now, the others in later turns."""
        while not long.step(caller, now):
            if self.continue_sliced is not None:
                self.continue_sliced(caller, long)
                return


def _log_bytes(drafts: list[Draft]) -> i64:
    length: i64 = 0
    for draft in drafts:
        length += draft.log_bytes()
    return puts_bytes(len(drafts), length)
