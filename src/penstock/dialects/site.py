"""The node as commands see it: its engine, its ids, bodies that live on disk, and room in its log.

Every dialect of RESP stands on one of these; what they do alike, they do here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from penstock.cluster.node import Cluster
from penstock.cluster.questions import QuestionWait
from penstock.core.engine import Engine, shown
from penstock.core.errors import CommandError, CrossHome, Exhausted
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID, IdForms, is_long
from penstock.core.job import Draft, Job
from penstock.core.limits import REASON_BYTES_MAX, UNSET
from penstock.core.moves import puts_bytes, tube_bytes
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.core.waits import Waiting
from penstock.dialects.command import Caller, Long, check_tube
from penstock.dialects.tarantool_options import IgnoredOptions
from penstock.wire.bodies import to_plain
from penstock.wire.errors import AskFirst, Elsewhere, Refused, Sought, Spread, Unclaimed
from penstock.wire.reply import Reply

# An answer holds no more bytes of bodies than this, whatever COUNT says; there is always one job in it.
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024

# How long other nodes have to answer whether they know something, ms.
_ANSWER_MS: Final = 1_000

# What clients that left had asked for is forgotten when there is so much of it.
_SOUGHT_MAX: Final = 4_096

_LEAVING: Final = b"LEAVING This node is leaving the cluster, please connect to a different one"

# Its first argument is a caller, of whatever kind the shell has.
StartLong = Callable[[Any, Long], None]


class Site:
    """What the commands of a node work on."""

    engine: Engine
    ids: IdForms
    node: bytes  # 40 hex digits.
    cluster: Cluster | None  # The other nodes, if there may be any.
    leaving: bool  # It is about to leave its cluster, and takes no new jobs.
    in_replicaset: bool  # `queue.cfg{in_replicaset = true}`: queue.create_tube makes no temporary tubes.
    ignored: IgnoredOptions  # Logs the options of Tarantool's queue that are ignored.
    start_long: StartLong | None  # Lets a command go on in slices; without it, commands run in one go.
    uses: Callable[[Any], list[bytes]] | None  # On which other nodes the session of a caller uses tubes.
    on_identified: Callable[[Any], None] | None  # Told of a caller that is of another session now, or of another grace.
    _sought: dict[int, dict[bytes, QuestionWait]]  # What was asked for a command, by the number of its connection.
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
        """Take functions that read a body which lives on disk, and that try to make room in the log for a long one."""
        self.engine = engine
        self.ids = ids
        self.node = node
        self.cluster = None
        self.leaving = False
        self.in_replicaset = False
        self.ignored = IgnoredOptions()
        self.start_long = None
        self.uses = None
        self.on_identified = None
        self._sought = {}
        self._make_room = make_room
        self._body_of = body_of

    def leaves(self, caller: Caller) -> Refused:
        """Why this node, which leaves, does not do what a caller wants. Whoever came from another is not sent there."""
        if not caller.entry:
            return Refused(_LEAVING)
        return Refused(b"NOHOME the tube lives on node " + self.node + b", which is leaving the cluster")

    def id_of(self, job: Job) -> bytes:
        """The id of a job in 40 characters."""
        if job.extra is not None and self.cluster is not None:
            return self.cluster.place.id_of(job)
        return self.ids.long(job.id, job.ttl_minutes)

    def number_of(self, id: bytes) -> int:
        """The number of a job here, by its id in 40 characters; NOT_AN_ID if no such job could be here."""
        cluster = self.cluster
        number = self.ids.parse_long(id) if cluster is None else cluster.place.number_of(id)
        if number != NOT_AN_ID or not self.engine.old_ids:
            return number
        # A node of this cluster may have made a job of this id. Ids from another system are of other nodes.
        if cluster is not None and cluster.node_of(id[2:10]):
            return NOT_AN_ID
        job = self.engine.old_ids.get(id)
        return NOT_AN_ID if job is None else job.id

    def may_be_elsewhere(self, id: bytes) -> bool:
        """Whether an id is one that another node of the cluster may have given to a job."""
        return self.cluster is not None and is_long(id) and self.cluster.may_be_elsewhere(id)

    def find(self, caller: Caller, number: int, now: i64) -> Job | None:
        """The job of a number, if there is one; refused if it is of a tube that the caller may not use."""
        if number == NOT_AN_ID:
            return None
        job = self.engine.find(number, now)
        if job is not None and not caller.any_tube:
            check_tube(caller, self.engine.tube_of(job).name)
        return job

    # What is on other nodes

    def tube(self, name: bytes) -> Tube:
        """The tube of a name, which has to be here or elsewhere."""
        tube = self.engine.tubes.get(name)
        if tube is None:
            self.seek([name])
            tube = self.engine.tube(name)
        return tube

    def seek(self, names: list[bytes]) -> None:
        """Raise Elsewhere if these tubes, of which not all are here, live on another node; refuse those of several."""
        if self.cluster is None or not self.cluster.homes.of:
            return
        homes = [self._home_of(name) for name in names]
        for at in range(1, len(names)):
            if homes[at] != homes[0]:
                text = f"tubes {shown(names[0])} and {shown(names[at])} are not on one node"
                raise CrossHome(text + "; ask for those of one node at a time")
        if homes[0]:
            raise Elsewhere(homes[0], f"tube {shown(names[0])}", self.cluster.homes.is_promised(names[0]))

    def _home_of(self, name: bytes) -> bytes:
        """The other node that a tube lives on; empty where it is here, or nowhere."""
        assert self.cluster is not None
        return b"" if name in self.engine.tubes else self.cluster.homes.home_of(name)

    def is_elsewhere(self, name: bytes) -> bool:
        """Whether a tube that is not here lives on another node."""
        return self.cluster is not None and self.cluster.homes.home_of(name) != b""

    def seek_job(self, caller: Caller, id: bytes, used: bool = False) -> None:
        """Raise Elsewhere if a job that is not here may be on another node, which its client has to use if `used`."""
        node = self._home_of_job(caller, id, used)
        if node:
            raise Elsewhere(node, f"job {shown(id)}")

    def _home_of_job(self, caller: Caller, id: bytes, used: bool) -> bytes:
        """The node that a job which is not here may be on: its id begins with it, or its tube is there."""
        cluster = self.cluster
        if cluster is None or not cluster.members.peers:
            return b""
        if len(id) == LONG_ID_BYTES and id[:2] == b"D-":
            node = cluster.node_of(id[2:10])
            return node if node and (not used or node in self._used(caller)) else b""
        if len(id) == HEX_ID_BYTES and id.find(b"#") < 0:
            # It does not tell; but most clients have to do with one other node at most.
            nodes = self._used(caller)
            return nodes[0] if len(nodes) == 1 else b""
        name, mark, _ = id.rpartition(b"#")
        return self._home_of(name) if mark else b""

    def _used(self, caller: Caller) -> list[bytes]:
        return [] if self.uses is None else self.uses(caller)

    def divide(self, caller: Caller, args: list[bytes], at: i64, used: bool = False) -> None:
        """Raise Elsewhere or Spread if jobs that a command names, from a word on, may be on other nodes."""
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
                    # Of one job alone it would be told why it could not be done, and of many they are counted.
                    part.append(part[at])
            raise Spread(parts)
        for node in parts:
            if node != self.node:
                raise Elsewhere(node, f"job {shown(args[at])}")

    def ask_all(self, caller: Caller, args: list[bytes]) -> None:
        """Raise Spread if a command is about all that a session of several nodes has."""
        nodes = self._used(caller)
        if nodes:
            raise Spread({node: list(args) for node in [self.node, *nodes]})

    def who_has(self, caller: Caller, about: i64, names: list[bytes]) -> bytes:
        """The other node that knows any of these, which are not known here; empty if none does. Raises to ask first."""
        if self.cluster is None or self.cluster.members.size() == 1:
            return b""
        asked = self._sought.pop(int(caller.connection.number), {})
        for name in names:
            wait = asked.get(name)
            if wait is None:
                self._sought[int(caller.connection.number)] = asked
                raise Sought(int(about), name)
            if wait.where:
                return wait.where
        return b""

    def ask_others(self, caller: Caller, what: AskFirst, tag: object, now: int) -> Waiting:
        """Ask all other nodes what has to be known before a command can be run."""
        assert self.cluster is not None
        if isinstance(what, Unclaimed):
            return self.cluster.founding.claim(caller.connection, what.tube, tag, now)
        assert isinstance(what, Sought)
        wait = self.cluster.ask(caller.connection, what.about, what.name, 0, _ANSWER_MS, tag, now)
        if len(self._sought) > _SOUGHT_MAX:
            self._sought = {}
        self._sought.setdefault(int(caller.connection.number), {})[what.name] = wait
        return wait

    def _check_home(self, name: bytes, policy: TubePolicy) -> None:
        if self.cluster is not None and not self.cluster.founding.may_make(name, policy):
            raise Unclaimed(name)

    # Making room, and tubes

    def check_new(self, names: list[bytes], policy: TubePolicy) -> None:
        """Refuse tubes that there is no room for, or that may not be made here, while nothing has been done yet."""
        self.seek(names)
        needed: i64 = 0
        for name in names:
            needed += tube_bytes(name, policy)
        self.have_room(needed)
        self.engine.check_new(names, policy)
        for name in names:
            self._check_home(name, policy)

    def new_tube(self, name: bytes, policy: TubePolicy, drafts: list[Draft], now: i64) -> Tube:
        """Make a tube for these jobs; if it cannot have them all, nothing has been done."""
        self.seek([name])
        self.have_room(_log_bytes(drafts) + tube_bytes(name, policy))
        self.engine.check_first(name, policy, drafts, now)
        self._check_home(name, policy)
        return self.engine.create_tube(name, policy, now)

    def have_room_for(self, drafts: list[Draft]) -> None:
        """Try to have room in the log for jobs."""
        self.have_room(_log_bytes(drafts))

    def have_room(self, needed: i64) -> None:
        """Try to have room in the log for so many bytes."""
        if needed > self.engine.room_bytes:
            self._make_room(needed)

    def body_of(self, job: Job) -> bytes:
        """The body of a job as users see it, wherever it lives."""
        body = job.shown_body()
        return body if isinstance(body, bytes) else self._body_of(job)

    def take(
        self, caller: Caller, tubes: list[Tube], count: int, now: i64, key: bytes | None = None, ttr_ms: int = UNSET
    ) -> list[Job]:
        """Take up to so many jobs, one of each tube in turn, and not more than fits in an answer."""
        session = caller.connection.session
        return self.engine.take_many(session, tubes, count, now, key, ttr_ms, ANSWER_BYTES_MAX)

    def ask_for_passed(self, names: list[bytes], jobs: list[Job], count: int, now: i64) -> None:
        """Ask other nodes for jobs of the empty queues that a take has passed before it found these jobs.

        Otherwise a queue that is named first would get nothing from other nodes while a later one has jobs here.
        """
        cluster = self.cluster
        if cluster is None or not cluster.members.peers:
            return
        served = {self.engine.tube_of(job).name for job in jobs}
        last = self.engine.tube_of(jobs[len(jobs) - 1]).name
        for name in names:
            if name == last and len(jobs) == count:
                # The queues behind it were not looked at.
                return
            if name not in served:
                cluster.wants(name, 0, now)

    def delete(self, job: Job, now: i64) -> int:
        """Delete a job, and its copies on other nodes."""
        return self.engine.delete(job, now) if self.cluster is None else self.cluster.delete(job, now)

    def bodies(self, caller: Caller, jobs: list[Job], now: i64) -> list[bytes]:
        """The bodies of jobs that a caller has just taken, all read before a byte of them is answered.

        One on disk may turn out to be damaged: that job is buried, or left to a node that has a copy, and no longer in
        the list. Where its tube has no bury it goes back.
        """
        bodies: list[bytes] = []
        for job in jobs:
            body = job.shown_body()
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
                # Nothing is wrong with the job: whoever takes it next may be able to read it.
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
                    # Put back it would be met by every take.
                    self.engine.bury(caller.connection.session, job, now, str(error).encode()[:REASON_BYTES_MAX])
                else:
                    self.engine.undelivered(job, now)
        if damage is not None:
            # By their ids: one that went back may be taken already, by somebody who waited.
            jobs[:] = [job for job in jobs if job.id not in lost]
            if not jobs:
                raise damage
        return bodies

    def write_body(self, reply: Reply, job: Job) -> None:
        """The body of a job that is looked at; nothing, if it cannot be read."""
        body = self.readable(job)
        if body is None:
            reply.null()
        else:
            reply.bulk(body)

    def write_plain(self, reply: Reply, job: Job) -> None:
        """The same for those who know nothing but bytes."""
        body = self.readable(job)
        if body is None:
            reply.null()
        else:
            reply.bulk(to_plain(body, job.shown_kind()))

    def readable(self, job: Job) -> bytes | None:
        body = job.shown_body()
        if isinstance(body, bytes):
            return body
        try:
            return self._body_of(job)
        except CommandError:
            return None

    def run(self, caller: Caller, long: Long, now: i64) -> None:
        """Run a command that may take many slices: the first at once, and the others in turns of their own."""
        while not long.step(caller, now):
            if self.start_long is not None:
                self.start_long(caller, long)
                return


def _log_bytes(drafts: list[Draft]) -> i64:
    length: i64 = 0
    for draft in drafts:
        length += draft.log_bytes()
    return puts_bytes(len(drafts), length)
