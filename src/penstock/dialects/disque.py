"""Disque's job and queue commands, with its grammar, its replies and its errors.

docs/reference/compatibility.md says where we differ from Disque and why. ADDJOB and GETJOB create a missing tube as a
`disque` tube. Tubes of other types can be used as far as they support the command.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.acks import Ack
from penstock.cluster.node import Cluster
from penstock.core import states as s
from penstock.core.commands.scans import Listing
from penstock.core.copy_commands import is_shared
from penstock.core.deadlines import NOWHERE
from penstock.core.engine import Engine
from penstock.core.ids import NOT_AN_ID, is_long
from penstock.core.job import Draft, Job
from penstock.core.limits import (
    BATCH_JOBS_MAX,
    DURATION_MS_MAX,
    NEVER,
    UNSET,
    WAIT_TUBES_MAX,
    check_name,
)
from penstock.core.policy import DISQUE
from penstock.core.states import OK, ONLY_ONCE
from penstock.core.tube import Tube
from penstock.core.views import rule_counts
from penstock.core.waits import SERVED, CopyWait, TakeWait, Waiting
from penstock.node.caller import SLICE, Caller, SlicedCommand, WaitReply, check_tube
from penstock.node.context import ANSWER_BYTES_MAX, CommandContext
from penstock.wire.bodies import to_plain
from penstock.wire.errors import NOT_AN_INTEGER, SYNTAX, Refused
from penstock.wire.headers import add_header, decode_headers, encode_headers
from penstock.wire.reply import Reply

# Other nodes have at least this long to store their copies of a job, ms. Disque checks timeouts only ten times a
# second, so some producers send a timeout of 1 ms and rely on that.
_COPIES_MS_MIN: Final = 100

# Disque's words for the states, by the number of the state. A delayed or buried job is "active" in Disque. A staged job
# corresponds to a job of Disque that waits for its replicas: it exists, but is not delivered yet.
STATE_WORDS: Final = [b"acked", b"queued", b"active", b"active", b"active", b"acked", b"acked", b"wait-repl"]

# Stands for text that is not a number. It is larger than any field, so it also fails every range check.
NOT_A_NUMBER: Final = 1 << 70
_INTEGER_MAX: Final = (1 << 63) - 1
# Any number with this many digits fits into 64 bits.
_DIGITS_FAST_MAX: Final = 18

_NOREPL: Final = b"NOREPL Not enough reachable nodes for the requested replication level"
_UNABLE: Final = b", since I'm unable to hold a copy of the message for the following reason: "
_NOREPL_IN_TIME: Final = b"NOREPL Timeout reached before replicating to the requested number of nodes"
_BAD_ID: Final = b"BADID Invalid Job ID format."
_SECONDS_MAX: Final = DURATION_MS_MAX // 1000

# The transitions into and out of READY, which QSTAT counts as jobs-in and jobs-out.
_IN_RULES: Final = [rule for rule, (_, source, target) in enumerate(s.TRANSITIONS) if target == s.READY != source]
_OUT_RULES: Final = [rule for rule, (_, source, target) in enumerate(s.TRANSITIONS) if source == s.READY != target]

# The fields that a GETJOB can ask for in addition, as bits.
_COUNTERS: Final = 1
_HEADERS: Final = 2

# The operations that a command can apply to each job that it names.
_ACK: Final = 0
_DELETE: Final = 1
_ENQUEUE: Final = 2
_NACK: Final = 3
_DEQUEUE: Final = 4
_FAST_ACK: Final = 5


class Disque:
    """Disque's commands about jobs and queues."""

    context: CommandContext
    _engine: Engine
    _getjob_replies: list[WaitReply]  # Answer a GETJOB that waited, by the additional fields that it asked for.
    _addjob_reply: WaitReply  # Answers an ADDJOB that waited for copies.

    def __init__(self, context: CommandContext) -> None:
        self.context = context
        self._engine = context.engine
        self._getjob_replies = [_GetjobReply(self, fields) for fields in range(4)]
        self._addjob_reply = _AddjobReply(context)

    # Adding

    def addjob(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run ADDJOB queue body ms-timeout [options]: add a job to a queue and reply with its id.

        If the job needs copies on other nodes, wait for them until the timeout, unless ASYNC is given.
        """
        name = args[1]
        draft = Draft(args[2])
        maxlen = 0
        replicate = UNSET
        asynchronous = False
        retry = UNSET
        delay = 0
        headers: dict[str, bytes] | None = None
        if len(args) > 4:
            at = 4
            last = len(args) - 1
            while at <= last:
                word = args[at].upper()
                at += 1
                if word == b"ASYNC":
                    asynchronous = True
                    continue
                if at > last:
                    raise Refused(SYNTAX)
                if word == b"HEADER":
                    if at == last:
                        raise Refused(SYNTAX)
                    if headers is None:
                        headers = {}
                    add_header(headers, args[at], args[at + 1])
                    at += 2
                    continue
                value = parse_integer(args[at])
                at += 1
                if word == b"TTL":
                    if value <= 0 or value > _SECONDS_MAX:
                        raise Refused(b"ERR TTL must be a number > 0")
                    draft.ttl_ms = value * 1000
                elif word == b"RETRY":
                    if value < 0 or value > _SECONDS_MAX:
                        raise Refused(b"ERR RETRY time must be a non negative number")
                    retry = value
                elif word == b"DELAY":
                    if value < 0 or value > _SECONDS_MAX:
                        raise Refused(b"ERR DELAY time must be a non negative number")
                    delay = value
                elif word == b"REPLICATE":
                    if value <= 0 or value > 65_535:
                        raise Refused(b"ERR REPLICATE must be between 1 and 65535")
                    replicate = value
                elif word == b"MAXLEN":
                    if value <= 0 or value > _INTEGER_MAX:
                        raise Refused(b"ERR MAXLEN must be a positive number")
                    maxlen = value
                else:
                    raise Refused(SYNTAX)
            if headers is not None:
                draft.headers = encode_headers(headers.items())
        timeout = _parse_timeout(args[3])
        check_tube(caller, name)
        engine = self._engine
        tube = engine.tubes.get(name)
        if tube is None:
            self.context.raise_if_elsewhere([name])
        cluster = self.context.cluster
        is_default = replicate == UNSET
        if is_default:
            replicate = 1 if cluster is None else cluster.copies_for(name, tube, now)
        if retry == 0:
            if replicate > 1:
                raise Refused(b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)")
            draft.once = True
        elif retry > 0:
            draft.ttr_ms = retry * 1000
        if delay > 0:
            draft.delay_ms = delay * 1000
            policy = DISQUE if tube is None else tube.policy
            ttl_ms = policy.default_ttl_ms if draft.ttl_ms == UNSET else draft.ttl_ms
            if draft.delay_ms >= ttl_ms and not policy.delay_stretches_ttl:
                raise Refused(
                    b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
                )
        external = False
        if cluster is not None:
            # A tube that lives on one node cannot store its jobs on another.
            external = cluster.state.keeps_nothing() and (tube is None or is_shared(tube))
            self._check_reachable(cluster, tube, replicate, external)
        elif replicate > 1:
            raise Refused(_NOREPL)
        elif self.context.leaving:
            raise Refused(_NOREPL + _UNABLE + b"I'm leaving the cluster")
        if tube is not None:
            if maxlen > 0 and tube.count_in(s.READY) >= maxlen:
                raise Refused(b"MAXLEN Queue is already longer than the specified MAXLEN count")
            if tube.paused_in:
                raise Refused(b"PAUSED Queue paused in input, try later")
        if tube is None:
            tube = self.context.new_tube(name, DISQUE, [draft], now)
        else:
            self.context.reserve_log(len(draft.body) + len(draft.headers))
        if cluster is None or (replicate == 1 and not external):
            caller.reply.simple(self.context.id_of(engine.put(tube, draft, now)))
            if is_default and cluster is not None and is_shared(tube):
                cluster.added_alone()
        elif asynchronous:
            caller.reply.simple(cluster.replicate_async(tube, draft, replicate, external, now))
        else:
            patience = NEVER if timeout == 0 else max(timeout, _COPIES_MS_MIN)
            wait = cluster.replicate(
                caller.connection, tube, draft, replicate, is_default, external, patience, caller, now
            )
            caller.wait_for(wait, self._addjob_reply)

    def _check_reachable(self, cluster: Cluster, tube: Tube | None, replicate: int, external: bool) -> None:
        """Raise an error if fewer nodes are reachable than a job needs for its copies."""
        if tube is not None and not is_shared(tube):
            if replicate > 1:
                raise Refused(b"ERR a queue of this type lives on one node; REPLICATE must be 1")
            return
        short = (replicate if external else replicate - 1) - cluster.members.reachable_count()
        if short > 0:
            if external and short == 1:
                reason = b"I'm leaving the cluster" if self.context.leaving else b"I'm out of memory"
                raise Refused(_NOREPL + _UNABLE + reason)
            raise Refused(_NOREPL)

    # Getting

    def getjob(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] [WITHHEADERS] FROM queue [queue ...].

        Reply with up to `n` jobs of these queues. If there are none, wait for one until TIMEOUT, unless NOHANG is
        given.
        """
        nohang = False
        fields: i64 = 0
        timeout = 0
        count = 1
        at = 1
        last = len(args) - 1
        while True:
            if at >= last:
                # FROM is missing, or no queue follows it.
                raise Refused(SYNTAX)
            word = args[at]
            if word != b"FROM" and word != b"NOHANG":
                word = word.upper()
            at += 1
            if word == b"FROM":
                break
            if word == b"NOHANG":
                nohang = True
            elif word == b"WITHCOUNTERS":
                fields |= _COUNTERS
            elif word == b"WITHHEADERS":
                fields |= _HEADERS
            elif word == b"TIMEOUT":
                timeout = _parse_timeout(args[at])
                at += 1
            elif word == b"COUNT":
                count = parse_integer(args[at])
                at += 1
                if count <= 0 or count > _INTEGER_MAX:
                    raise Refused(b"ERR COUNT must be a number greater than zero")
            else:
                raise Refused(SYNTAX)
        names = args[at:]
        if len(names) > WAIT_TUBES_MAX:
            raise Refused(b"ERR a GETJOB may name up to %d queues" % WAIT_TUBES_MAX)
        for name in names:
            check_tube(caller, name)
            check_name(name, "the name of a queue")
        engine = self._engine
        count = min(count, SLICE)
        if len(names) == 1 and count == 1:
            tube = engine.tubes.get(names[0])
            if tube is None:
                self.context.raise_if_elsewhere(names)
            job = None if tube is None else engine.take(caller.connection.session, tube, now)
            if job is not None:
                self.deliver(caller, [job], fields, now)
                return
        else:
            tubes = [engine.tubes[name] for name in names if name in engine.tubes]
            if len(tubes) < len(names):
                self.context.raise_if_elsewhere(names)
            jobs = self.context.take(caller, tubes, count, now)
            if jobs:
                self.context.request_skipped(names, jobs, count, now)
                self.deliver(caller, jobs, fields, now)
                return
        if self.context.cluster is not None:
            patience = 0 if nohang else NEVER if timeout == 0 else timeout
            for name in names:
                self.context.cluster.wants(name, patience, now)
        if nohang:
            caller.reply.null_array()
            return
        if self.context.leaving:
            raise self.context.leaving_error(caller)
        missing = [name for name in names if name not in engine.tubes]
        if missing:
            self.context.check_new(list(dict.fromkeys(missing)), DISQUE)
        tubes = [engine.tubes.get(name) or engine.create_tube(name, DISQUE, now) for name in names]
        wait = engine.wait(
            caller.connection,
            tubes,
            now,
            NEVER if timeout == 0 else timeout,
            count,
            tag=caller,
            count_bytes=ANSWER_BYTES_MAX,
        )
        caller.wait_for(wait, self._getjob_replies[fields])

    def deliver(self, caller: Caller, jobs: list[Job], fields: i64, now: i64) -> None:
        """Reply with jobs that were just taken.

        If `fields` has the bit _COUNTERS, include how often each job was nacked and redelivered. If it has the bit
        _HEADERS, include the headers of each job.
        """
        length: i64 = 3
        if fields != 0:
            length += (4 if fields & _COUNTERS else 0) + (2 if fields & _HEADERS else 0)
        bodies = self.context.bodies(caller, jobs, now)
        reply = caller.reply
        reply.array(len(jobs))
        for i in range(len(jobs)):
            job = jobs[i]
            caller.unsent.append(job)
            caller.unsent_deliveries.append(job.deliveries)
            reply.array(length)
            reply.bulk(self._engine.tube_of(job).name)
            reply.bulk(self.context.id_of(job))
            reply.bulk(to_plain(bodies[i], job.user_body_kind()))
            if fields & _COUNTERS:
                reply.bulk(b"nacks")
                reply.integer(job.nacks)
                reply.bulk(b"additional-deliveries")
                reply.integer(job.returns)
            if fields & _HEADERS:
                _write_headers(reply, job)

    # Finishing, and putting back

    def ackjob(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run ACKJOB id [id ...]: ack jobs on all nodes."""
        self._apply_to_all(caller, args, now, _ACK)

    def fastack(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run FASTACK id [id ...]: ack jobs with fewer messages between nodes. Without a cluster, it equals ACKJOB."""
        self._apply_to_all(caller, args, now, _FAST_ACK)

    def deljob(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run DELJOB id [id ...]: delete jobs in any state."""
        self._apply_to_all(caller, args, now, _DELETE)

    def enqueue(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run ENQUEUE id [id ...]: queue jobs that are not queued."""
        self._apply_to_all(caller, args, now, _ENQUEUE)

    def nack(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run NACK id [id ...]: report that jobs failed, and queue them again immediately."""
        self._apply_to_all(caller, args, now, _NACK)

    def dequeue(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run DEQUEUE id [id ...]: remove jobs from their queues without delivering them."""
        self._apply_to_all(caller, args, now, _DEQUEUE)

    def _apply_to_all(self, caller: Caller, args: list[bytes], now: i64, what: i64) -> None:
        """Apply the operation `what` to every job that a command names. Reply with the number of changed jobs."""
        if len(args) == 2:
            caller.reply.integer(
                1 if self.apply(caller, args[1], self._number_or_elsewhere(caller, args[1]), now, what) else 0
            )
            return
        if len(args) > BATCH_JOBS_MAX + 1:
            raise Refused(b"ERR a command may name up to %d jobs" % BATCH_JOBS_MAX)
        self.context.split_by_node(caller, args, 1, True)
        self.context.run_sliced(caller, _ApplyToMany(self, args, what), now)

    def apply(self, caller: Caller, id: bytes, number: int, now: i64, what: i64) -> bool:
        """Apply the operation `what` to one job. Return whether it succeeded."""
        job = self.context.find(caller, number, now)
        cluster = self.context.cluster
        session = caller.connection.session
        if cluster is not None:
            if what == _FAST_ACK:
                return cluster.fast_ack(session, id, job, caller.tubes, now)
            if what == _ACK and job is None:
                cluster.acknowledge_unknown(id, caller.tubes, now)
        if job is None:
            return False
        engine = self._engine
        if what in (_ACK, _FAST_ACK):
            return engine.ack(session, job, now) == OK
        if what == _DELETE:
            return engine.delete(job, now) == OK
        if what == _DEQUEUE:
            return job.state == s.READY and self._dequeue(caller, job, now) == OK
        # Active jobs can be queued: taken, delayed, or removed from the queue by DEQUEUE.
        if job.state == s.TAKEN:
            return (engine.nack(session, job, now) if what == _NACK else engine.release(session, job, now)) == OK
        if job.state == s.DELAYED or job.state == s.BURIED:
            return self._queue_now(job, what == _NACK, now) == OK
        return False

    def _queue_now(self, job: Job, failed: bool, now: i64) -> int:
        """Make a delayed or buried job ready. If `failed` is set (for NACK), count a failure of the job."""
        if job.once and job.deliveries > 0:
            return ONLY_ONCE
        return self._engine.switch(job, s.READY, now, 0, failed)

    def _dequeue(self, caller: Caller, job: Job, now: i64) -> int:
        """Remove a job from its queue until its retry time passes. A job without a retry time waits for ENQUEUE."""
        if job.once or job.ttr == NEVER:
            return self._engine.bury(caller.connection.session, job, now, b"dequeued")
        return self._engine.switch(job, s.DELAYED, now, min(job.ttr, DURATION_MS_MAX))

    def working(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run WORKING id: postpone the next delivery of a job by its retry time, and reply with that time."""
        job = self.context.find(caller, self._number_or_elsewhere(caller, args[1]), now)
        if job is None or job.state >= s.DONE:
            raise Refused(b"NOJOB Job not known in the context of this node.")
        if job.once:
            caller.reply.integer(0)
            return
        if job.expiry != NEVER and now - job.created > (job.expiry - job.created) // 2:
            raise Refused(
                b"TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
            )
        if job.state == s.TAKEN:
            outcome = self._engine.touch(caller.connection.session, job, now)
        elif job.ttr != NEVER and job.state != s.BURIED:
            outcome = self._engine.switch(job, s.DELAYED, now, min(job.ttr, DURATION_MS_MAX))
            if self.context.cluster is not None:
                self.context.cluster.requeue.postponed(job, now)
        else:
            outcome = OK
        if outcome != OK:
            raise Refused(b"NOTOWNER The job is taken by another session; only that one may postpone it.")
        caller.reply.integer(0 if job.ttr == NEVER else job.ttr // 1000)

    # Inspecting

    def show(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run SHOW id: reply with all fields of a job, or with null if the job is unknown."""
        id = args[1]
        job = self.context.find(caller, self.number(id), now)
        if job is not None:
            self.write_job(caller.reply, job, now)
            return
        ack = self._ack_of(caller, id)
        if ack is not None:
            self._write_acked(caller.reply, ack, now)
            return
        self._number_or_elsewhere(caller, id)
        caller.reply.null()

    def _ack_of(self, caller: Caller, id: bytes) -> Ack | None:
        """Return the ack of a job that was on this node, or None if this node has no such ack.

        An ack is kept until all holders have recorded it. It does not contain the name of the queue. Therefore only
        callers that may use every queue get it.
        """
        cluster = self.context.cluster
        ack = None if cluster is None or not caller.any_tube else cluster.acks.by_id.get(id)
        return None if ack is None or ack.is_dummy() else ack

    def write_job(self, reply: Reply, job: Job, now: i64) -> None:
        """Write all fields of a job, for SHOW and JSCAN. The headers are an extension, written if the job has any."""
        tube = self._engine.tube_of(job)
        delayed = job.state == s.DELAYED and job.deliveries == 0
        has_headers = job.headers() != b""
        reply.array(32 if has_headers else 30)
        reply.bulk(b"id")
        reply.bulk(self.context.id_of(job))
        reply.bulk(b"queue")
        reply.bulk(tube.name)
        reply.bulk(b"state")
        reply.bulk(STATE_WORDS[job.state])
        copy = job.copy()
        self._write_pair(reply, b"repl", 1 if copy is None else copy.repl)
        self._write_pair(reply, b"ttl", _seconds_left(job.expiry, now))
        self._write_pair(reply, b"ctime", job.order if tube.by_creation else job.created * 1_000_000)
        self._write_pair(reply, b"delay", (job.wake - job.created) // 1000 if delayed else 0)
        self._write_pair(reply, b"retry", 0 if job.ttr == NEVER else job.ttr // 1000)
        self._write_pair(reply, b"nacks", job.nacks)
        self._write_pair(reply, b"additional-deliveries", job.returns)
        reply.bulk(b"nodes-delivered")
        reply.bulks([self.context.node] if copy is None else copy.holders)
        reply.bulk(b"nodes-confirmed")
        reply.bulks([] if self.context.cluster is None else self.context.cluster.confirmed(job))
        reply.bulk(b"next-requeue-within")
        _write_within(reply, _requeue_moment(job, now), now)
        reply.bulk(b"next-awake-within")
        # Without a deadline, `due` has the value of an earlier one.
        _write_within(reply, job.due if job.deadline_pos != NOWHERE else NEVER, now)
        reply.bulk(b"body")
        self.context.write_plain(reply, job)
        if has_headers:
            _write_headers(reply, job)

    def _write_acked(self, reply: Reply, ack: Ack, now: i64) -> None:
        """Write the fields of a job of which this node has only the ack. Unknown fields are null or 0."""
        reply.array(30)
        reply.bulk(b"id")
        reply.bulk(ack.id)
        reply.bulk(b"queue")
        reply.null()
        reply.bulk(b"state")
        reply.bulk(STATE_WORDS[s.DONE])
        self._write_pair(reply, b"repl", len(ack.holders))
        self._write_pair(reply, b"ttl", _seconds_left(ack.expiry, now))
        for name in (b"ctime", b"delay", b"retry", b"nacks", b"additional-deliveries"):
            self._write_pair(reply, name, 0)
        reply.bulk(b"nodes-delivered")
        reply.bulks(ack.holders)
        reply.bulk(b"nodes-confirmed")
        reply.bulks(list(ack.confirmed))
        reply.bulk(b"next-requeue-within")
        reply.null()
        reply.bulk(b"next-awake-within")
        _write_within(reply, ack.due, now)
        reply.bulk(b"body")
        reply.null()

    def _write_pair(self, reply: Reply, name: bytes, value: int) -> None:
        reply.bulk(name)
        reply.integer(value)

    def qlen(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run QLEN queue: reply with the number of jobs that can be taken."""
        check_tube(caller, args[1])
        self._engine.advance(now)
        tube = self._find_tube(args[1])
        caller.reply.integer(0 if tube is None else tube.count_in(s.READY))

    def qstat(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run QSTAT queue: reply with the statistics of a queue, or with null if it does not exist."""
        check_tube(caller, args[1])
        self._engine.advance(now)
        reply = caller.reply
        tube = self._find_tube(args[1])
        if tube is None:
            reply.null_array()
            return
        counts = rule_counts(tube, True)
        reply.array(20)
        reply.bulk(b"name")
        reply.bulk(tube.name)
        self._write_pair(reply, b"len", tube.count_in(s.READY))
        self._write_pair(reply, b"age", (now - tube.created) // 1000)
        self._write_pair(reply, b"idle", (now - tube.used) // 1000)
        self._write_pair(reply, b"blocked", tube.take_line.length)
        cluster = self.context.cluster
        reply.bulk(b"import-from")
        reply.bulks([] if cluster is None else cluster.federation.sources(tube.name, now))
        self._write_pair(reply, b"import-rate", self.import_rate(tube, now))
        self._write_pair(reply, b"jobs-in", _sum(counts, _IN_RULES))
        self._write_pair(reply, b"jobs-out", _sum(counts, _OUT_RULES))
        reply.bulk(b"pause")
        reply.bulk(_pause_word(tube))

    def import_rate(self, tube: Tube, now: i64) -> int:
        """Return how many jobs per second a queue receives from other nodes, for QSTAT and QSCAN."""
        cluster = self.context.cluster
        return 0 if cluster is None else cluster.federation.rate(tube.name, now)

    def peek_oldest(self, caller: Caller, name: bytes, count: int, now: i64) -> None:
        """Run QPEEK for a positive count: reply with the oldest jobs. `PeekNewest` handles negative counts."""
        self._engine.advance(now)
        self.context.run_sliced(caller, PeekCommand(self, self._find_tube(name), count, False), now)

    def write_peeked(self, reply: Reply, tube: Tube, jobs: list[Job]) -> None:
        """Write the jobs of a QPEEK. Stop when the reply has its maximum size."""
        length = 0
        fit = 0
        while fit < len(jobs) and length <= ANSWER_BYTES_MAX:
            length += jobs[fit].body_length()
            fit += 1
        reply.array(fit)
        for job in jobs[:fit]:
            reply.array(3)
            reply.bulk(tube.name)
            reply.bulk(self.context.id_of(job))
            self.context.write_plain(reply, job)

    # Queues

    def pause(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run PAUSE queue option [option ...]: pause or resume a queue, and reply with its state."""
        check_tube(caller, args[1])
        inward = False
        outward = False
        changes = False
        everywhere = False
        for option in args[2:]:
            word = option.lower()
            if word == b"none":
                inward = outward = False
            elif word == b"in":
                inward = True
            elif word == b"out":
                outward = True
            elif word == b"all":
                inward = outward = True
            elif word != b"state" and word != b"bcast":
                raise Refused(SYNTAX)
            changes = changes or (word != b"state" and word != b"bcast")
            everywhere = everywhere or word == b"bcast"
        engine = self._engine
        engine.advance(now)
        tube = self._find_tube(args[1])
        if changes:
            if tube is None and (inward or outward):
                self.context.check_new([args[1]], DISQUE)
                tube = engine.create_tube(args[1], DISQUE, now)
            if tube is not None:
                engine.pause(tube, inward, outward, now)
        if everywhere and self.context.cluster is not None:
            if not changes and tube is not None:
                inward, outward = tube.paused_in, tube.paused_out
            self.context.cluster.pause_all(args[1], inward, outward)
        caller.reply.simple(b"none" if tube is None else _pause_word(tube))

    def _find_tube(self, name: bytes) -> Tube | None:
        """Return the queue with a name, or None if it does not exist. Raise Elsewhere if it is on another node."""
        tube = self._engine.tubes.get(name)
        if tube is None:
            self.context.raise_if_elsewhere([name])
        return tube

    # Ids

    def _number_or_elsewhere(self, caller: Caller, text: bytes) -> int:
        """Return the engine's number for a job id, or NOT_AN_ID if this node cannot have the job.

        If the caller's session uses the node that made this job, raise Elsewhere instead of returning NOT_AN_ID.
        Otherwise the command is not forwarded, because commands on `disque` jobs take effect in the whole cluster,
        even if the node that made the job is unreachable.
        """
        number = self.number(text)
        if number == NOT_AN_ID:
            self.context.raise_if_job_elsewhere(caller, text, True)
        return number

    def number(self, text: bytes) -> int:
        """Return the engine's number for a job id, or NOT_AN_ID if this node cannot have the job.

        Raise an error if the id is malformed.
        """
        if not is_long(text):
            raise Refused(_BAD_ID)
        return self.context.number_of(text)


class _GetjobReply(WaitReply):
    """Writes the reply of a GETJOB that waited."""

    def __init__(self, disque: Disque, fields: i64) -> None:
        self._disque = disque
        self._fields = fields

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Reply with the jobs, or with null if the timeout passed."""
        assert isinstance(wait, TakeWait)
        if wait.jobs:
            self._disque.deliver(caller, wait.jobs, self._fields, now)
        else:
            caller.reply.null_array()


class _AddjobReply(WaitReply):
    """Writes the reply of an ADDJOB that waited for copies on other nodes."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Reply with the id of the job, or with NOREPL if too few nodes have a copy."""
        assert isinstance(wait, CopyWait)
        if wait.outcome == SERVED:
            caller.reply.simple(self._context.id_of(wait.job))
        else:
            caller.reply.error(wait.refusal or _NOREPL_IN_TIME)


class _ApplyToMany(SlicedCommand):
    """Runs a command about many jobs in slices. All ids are checked before the first job is changed."""

    def __init__(self, disque: Disque, args: list[bytes], what: i64) -> None:
        self._disque = disque
        self._args = args  # The name of the command, then the ids.
        self._operation = what
        self._numbers: list[int] = []
        self._at: i64 = 0
        self._done: i64 = 0

    def step(self, caller: Caller, now: i64) -> bool:
        disque = self._disque
        args = self._args
        numbers = self._numbers
        ids: i64 = len(args) - 1
        known: i64 = len(numbers)
        if known < ids:
            for text in args[known + 1 : known + 1 + SLICE]:
                number = disque.number(text)
                if not caller.any_tube:
                    disque.context.find(caller, number, now)
                numbers.append(number)
            if ids > SLICE:
                return False
        end = min(self._at + SLICE, ids)
        while self._at < end:
            if disque.apply(caller, args[self._at + 1], numbers[self._at], now, self._operation):
                self._done += 1
            self._at += 1
        if end < ids:
            return False
        caller.reply.integer(self._done)
        return True


def _write_headers(reply: Reply, job: Job) -> None:
    """Write the word "headers" and an array of the names and values of a job's headers."""
    headers = decode_headers(job.headers())
    reply.bulk(b"headers")
    reply.array(2 * len(headers))
    for name, value in headers.items():
        reply.bulk(name.encode())
        reply.bulk(value)


def _seconds_left(expiry: i64, now: i64) -> int:
    if expiry == NEVER:
        return _SECONDS_MAX
    return (expiry - now + 999) // 1000 if expiry > now else 0


def _requeue_moment(job: Job, now: i64) -> i64:
    """Return when a job will be queued again. If it is queued now, compute this as if it were delivered now."""
    if job.state == s.TAKEN or job.state == s.DELAYED:
        return job.wake
    return NEVER if job.state != s.READY or job.ttr == NEVER else now + job.ttr


def _write_within(reply: Reply, moment: i64, now: i64) -> None:
    """Write the milliseconds until a moment, or null if it never comes."""
    if moment == NEVER:
        reply.null()
    else:
        reply.integer(max(moment - now, 0))


def _pause_word(tube: Tube) -> bytes:
    if tube.paused_in:
        return b"all" if tube.paused_out else b"in"
    return b"out" if tube.paused_out else b"none"


class PeekCommand(SlicedCommand):
    """Runs QPEEK: replies with the first ready jobs of a queue, or with the last ones."""

    def __init__(self, disque: Disque, tube: Tube | None, count: int, last: bool) -> None:
        self._disque = disque
        self._tube = tube
        self._listing: Listing | None = None
        if tube is not None:
            self._listing = Listing(disque.context.engine, tube, s.READY, min(count, SLICE), SLICE, last)

    def step(self, caller: Caller, now: i64) -> bool:
        tube = self._tube
        listing = self._listing
        if tube is None or listing is None or tube.dropped:
            caller.reply.array(0)
            return True
        if not listing.step(SLICE):
            return False
        self._disque.write_peeked(caller.reply, tube, listing.jobs())
        return True


def _sum(counts: list[int], rules: list[int]) -> int:
    return sum([counts[rule] for rule in rules])


def _parse_timeout(text: bytes) -> int:
    """Return a timeout in ms. 0 means no limit."""
    timeout = parse_integer(text)
    if timeout == NOT_A_NUMBER or timeout > DURATION_MS_MAX:
        raise Refused(b"ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Refused(b"ERR timeout is negative")
    return timeout


def require_integer(text: bytes) -> int:
    """Parse a number. Raise an error for any other text."""
    value = parse_integer(text)
    if value == NOT_A_NUMBER:
        raise Refused(NOT_AN_INTEGER)
    return value


def parse_integer(text: bytes) -> int:
    """Parse a number in Disque's form: an optional sign and digits, within 64 bits. Otherwise return NOT_A_NUMBER."""
    size: i64 = len(text)
    if size <= _DIGITS_FAST_MAX:
        value: i64 = 0
        at: i64 = 0
        while at < size and 48 <= text[at] <= 57:
            value = 10 * value + text[at] - 48
            at += 1
        if at == size > 0:
            return value
    digits = text[1:] if text[:1] == b"-" or text[:1] == b"+" else text
    if not digits.isdigit() or len(digits) > 64:
        return NOT_A_NUMBER
    number = int(text)
    return number if -_INTEGER_MAX - 1 <= number <= _INTEGER_MAX else NOT_A_NUMBER
