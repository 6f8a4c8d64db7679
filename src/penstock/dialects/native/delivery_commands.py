"""Penstock's own commands for jobs: PUT, TAKE, ACK and others.

Each command works like the method of the same name in the Python API. A PUT to a tube that does not exist creates the
tube with the default policy, as `queue.tube(name)` does. Times in replies are in milliseconds. A job is written as a
map (`write_job`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.errors import BadId, BadSyntax, Full, OutOfRange, UnknownJob, WrongType, refuse
from penstock.core.ids import HEX_ID_BYTES, LONG_ID_BYTES, NOT_AN_ID, is_long
from penstock.core.job import NO_KEY, Draft, Job
from penstock.core.limits import (
    BATCH_JOBS_MAX,
    PRIORITY_UNSET,
    UNSET,
    WAIT_TUBES_MAX,
    check_count,
)
from penstock.core.policy import DEFAULT
from penstock.core.states import OK
from penstock.core.tube import Tube, key_of
from penstock.core.waits import PutWait, TakeWait, Waiting
from penstock.dialects.disque import NOT_A_NUMBER, parse_integer
from penstock.dialects.native.arguments import KIND_WORDS, PUT_OPTIONS, Words, check_kind, read_driver_options, read_put
from penstock.dialects.native.follow_ups import read_follow_ups, settle_job_then
from penstock.dialects.native.permissions import check_target
from penstock.node.caller import SLICE, Caller, SlicedCommand, WaitReply, check_join, check_own, check_tube
from penstock.node.context import ANSWER_BYTES_MAX, CommandContext
from penstock.wire.headers import decode_headers, encode_headers
from penstock.wire.reply import Reply

_PUT_WORDS: Final = [*PUT_OPTIONS, "EXISTING", "TIMEOUT"]
_MPUT_WORDS: Final = [*PUT_OPTIONS, "EXISTING", "JOB"]
_TAKE_WORDS: Final = ["COUNT", "TIMEOUT", "KEY", "TTR", "HEADERS", "AND"]
_RELEASE_WORDS: Final = ["DELAY", "TTL", "PRIORITY", "KEY", "OPTIONS"]
_DIG_WORDS: Final = ["DELAY", "TTL", "PRIORITY"]
_KICK_WORDS: Final = ["DELAY", "TTL"]

# Constant parts of the map of a job. They are written for each job that is taken.
_ID: Final = b"$2\r\nid\r\n"
_TUBE: Final = b"$4\r\ntube\r\n"
_BODY: Final = b"$4\r\nbody\r\n"
_AS: Final = [b"$2\r\nas\r\n$%d\r\n%s\r\n$6\r\nnumber\r\n" % (len(kind), kind) for kind in KIND_WORDS]
_KEY: Final = b"$3\r\nkey\r\n"
_DELIVERIES: Final = b"$10\r\ndeliveries\r\n"
_NACKS: Final = b"$5\r\nnacks\r\n"
_ONCE: Final = b"$4\r\nonce\r\n:1\r\n$7\r\ncreated\r\n"
_NOT_ONCE: Final = b"$4\r\nonce\r\n:0\r\n$7\r\ncreated\r\n"


class DeliveryCommands:
    """The commands that put, take and finish jobs, and IDENTIFY. Other native commands find jobs with this class."""

    def __init__(self, context: CommandContext) -> None:
        self.context = context
        self._engine: Engine = context.engine
        self._take_reply: WaitReply = _TakeReply(self, False)
        self._take_headers_reply: WaitReply = _TakeReply(self, True)
        self._put_reply: WaitReply = _PutReply(self)

    # Putting

    def put(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run PUT tube body [option value ...] [EXISTING] [TIMEOUT duration]: put a job and reply with its id.

        If the tube is full, wait for room until TIMEOUT.
        """
        draft = Draft(args[2])
        timeout = 0
        existing = False
        if len(args) > 3:
            words = Words(args, 3)
            while words.has_more():
                word = words.option()
                if word == b"TIMEOUT":
                    timeout = words.duration()
                elif word == b"EXISTING":
                    existing = True
                elif not read_put(words, draft, word):
                    raise words.unknown(_PUT_WORDS)
            headers = words.end_headers()
            if headers is not None:
                draft.headers = encode_headers(headers.items())
            check_kind(draft.body, draft.body_kind)
        self._check_put(caller, args[1])
        if draft.retry is not None:
            check_target(caller, draft.retry)
        if draft.batch is not None:
            check_own(caller, draft.batch, b"batch")
        tube = self.context.tube(args[1]) if existing else self._engine.tubes.get(args[1])
        if tube is None:
            tube = self.context.new_tube(args[1], DEFAULT, [draft], now)
        else:
            self.context.reserve_log(len(draft.body) + len(draft.headers))
        try:
            job = self._engine.put(tube, draft, now)
        except Full:
            if timeout == 0:
                raise
            wait = self._engine.wait_put(caller.connection, tube, draft, now, timeout, caller)
            caller.wait_for(wait, self._put_reply)
            return
        caller.reply.bulk(self.context.id_of(job))

    def mput(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run MPUT tube [EXISTING] [option value ...] JOB body [option value ...] [JOB body ...].

        Put all jobs or none, and reply with their ids. Options before the first JOB are for all jobs.
        """
        existing = args[2].upper() == b"EXISTING"
        drafts = read_drafts(Words(args, 3 if existing else 2))
        self.check_puts(caller, args[1], drafts)
        tube = self.context.tube(args[1]) if existing else self._engine.tubes.get(args[1])
        if tube is None:
            tube = self.context.new_tube(args[1], DEFAULT, drafts, now)
        else:
            self.context.reserve_log_for(drafts)
        jobs = self._engine.put_many(tube, drafts, now)
        caller.reply.array(len(jobs))
        for job in jobs:
            caller.reply.bulk(self.context.id_of(job))

    def check_puts(self, caller: Caller, name: bytes, drafts: list[Draft]) -> None:
        """Raise an error if the caller may not use the tube of these puts, or a tube to which failed jobs move."""
        self._check_put(caller, name)
        if not caller.any_tube:
            for draft in drafts:
                if draft.retry is not None:
                    check_target(caller, draft.retry)
                if draft.batch is not None:
                    check_own(caller, draft.batch, b"batch")

    def _check_put(self, caller: Caller, name: bytes) -> None:
        check_tube(caller, name)
        if self.context.leaving:
            raise self.context.leaving_error(caller)

    def finish_put(self, caller: Caller, wait: PutWait) -> None:
        """Write the reply of a PUT that waited for room."""
        job = wait.job
        if job is None:
            raise wait.refusal or Full("the tube stayed full until the timeout; take jobs from it, or wait longer")
        caller.reply.bulk(self.context.id_of(job))

    # Taking

    def take(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run TAKE tube [COUNT n] [TIMEOUT duration] [KEY key] [TTR duration] [HEADERS] [AND tube [tube ...]].

        Reply with up to `n` jobs of these tubes. If there is no job, wait for one until TIMEOUT. HEADERS adds the
        headers of the jobs to the reply.
        """
        engine = self._engine
        check_tube(caller, args[1])
        found = engine.tubes.get(args[1])
        tube = self._first_tube(caller, args) if found is None else found
        session = caller.connection.session
        if len(args) == 2 or (len(args) == 3 and args[2] == b"HEADERS"):
            # A fast path for the forms that most clients send.
            job = engine.take(session, tube, now)
            if job is None:
                self._request_jobs([tube], 0, now)
            self.deliver(caller, [] if job is None else [job], len(args) == 3, now)
            return
        headers = False
        tubes = [tube]
        count = 1
        timeout = 0
        key: bytes | None = None
        ttr = UNSET
        words = Words(args, 2)
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                count = check_count(words.integer(), "COUNT")
            elif word == b"TIMEOUT":
                timeout = words.duration()
            elif word == b"KEY":
                key = words.value()
            elif word == b"TTR":
                ttr = words.duration()
            elif word == b"HEADERS":
                headers = True
            elif word == b"AND":
                tubes = self._tubes(caller, tube, words)
            else:
                raise words.unknown(_TAKE_WORDS)
        count = min(count, SLICE)
        jobs = self.context.take(caller, tubes, count, now, key, ttr)
        if not jobs:
            self._request_jobs(tubes, timeout, now)
        elif len(tubes) > 1:
            self.context.request_skipped([each.name for each in tubes], jobs, count, now)
        if jobs or timeout == 0:
            self.deliver(caller, jobs, headers, now)
            return
        if self.context.leaving:
            raise self.context.leaving_error(caller)
        wait = engine.wait(caller.connection, tubes, now, timeout, count, key, ttr, caller, ANSWER_BYTES_MAX)
        caller.wait_for(wait, self._take_headers_reply if headers else self._take_reply)

    def _first_tube(self, caller: Caller, args: list[bytes]) -> Tube:
        """Return the first tube that a TAKE names. Raise UnknownTube if that tube does not exist.

        Raise Elsewhere if all tubes of the TAKE are on one other node.
        """
        at = 2
        while at < len(args) and (word := args[at].upper()) != b"AND":
            at += 1 if word == b"HEADERS" else 2
        for name in args[at + 1 :]:
            check_tube(caller, name)
        self.context.raise_if_elsewhere([args[1], *args[at + 1 :]])
        return self._engine.tube(args[1])

    def _request_jobs(self, tubes: list[Tube], patience_ms: i64, now: i64) -> None:
        """Ask other nodes for jobs of these tubes, because this node has none."""
        if self.context.cluster is not None:
            for tube in tubes:
                self.context.cluster.wants(tube.name, patience_ms, now)

    def _tubes(self, caller: Caller, first: Tube, words: Words) -> list[Tube]:
        """Return all tubes of a TAKE with AND: `first`, and the tubes that the next words name."""
        tubes = [first]
        words.value()
        words.at -= 1
        for name in words.args[words.at :]:
            check_tube(caller, name)
            if name not in self._engine.tubes:
                self.context.raise_if_elsewhere([first.name, name])
            tubes.append(self._engine.tube(name))
        words.at = len(words.args)
        if len(tubes) > WAIT_TUBES_MAX:
            raise OutOfRange(f"a take may name 1 to {WAIT_TUBES_MAX} tubes")
        return tubes

    def deliver(self, caller: Caller, jobs: list[Job], headers: bool, now: i64) -> None:
        """Reply with jobs that were just taken. If `headers` is set, include the headers of the jobs."""
        bodies = self.context.bodies(caller, jobs, now)
        reply = caller.reply
        reply.array(len(jobs))
        for i in range(len(jobs)):
            job = jobs[i]
            caller.unsent.append(job)
            caller.unsent_deliveries.append(job.deliveries)
            encoded = job.headers() if headers else b""
            reply.map(11 if encoded else 10)
            self.write_job(reply, job, bodies[i])
            if encoded:
                write_headers(reply, encoded)

    def write_job(self, reply: Reply, job: Job, body: bytes | None) -> None:
        """Write ten fields of a job, as clients get them. If `body` is None, the body is read from memory or disk."""
        tube = self._engine.tube_of(job)
        reply.raw(_ID)
        reply.bulk(self.context.id_of(job))
        reply.raw(_TUBE)
        reply.bulk(tube.name)
        reply.raw(_BODY)
        if body is None:
            self.context.write_body(reply, job)
        else:
            reply.bulk(body)
        reply.raw(_AS[job.user_body_kind()])
        if job.local >= 0:
            reply.integer(job.local)
        else:
            reply.null()
        reply.raw(_KEY)
        if tube.keys is None or (key := key_of(tube, job)) == NO_KEY:
            reply.null()
        else:
            reply.bulk(key)
        reply.raw(_DELIVERIES)
        reply.integer(job.deliveries)
        reply.raw(_NACKS)
        reply.integer(job.nacks)
        reply.raw(_ONCE if job.once else _NOT_ONCE)
        reply.integer(job.created)

    # Finishing

    def ack(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run ACK id [id ...]: ack jobs, and reply with the number of jobs that the caller's session held.

        Run ACK id THEN PUT tube body [option value ...] [THEN PUT ...]: ack a job and put others, all or nothing.
        """
        if len(args) == 2:
            # A fast path for the form that most clients send. `AckOrDeleteMany` does the same.
            job = self.find(caller, args[1], now)
            if job is not None:
                self.reply_with_one(caller, self._engine.ack(caller.connection.session, job, now))
            elif self.announce_done(caller, args[1], now):
                caller.reply.integer(0)
            else:
                raise UnknownJob()
        elif args[2].upper() == b"THEN":
            engine, session = self._engine, caller.connection.session
            self.settle_then(caller, args[1], Words(args, 2), now, lambda job: engine.ack(session, job, now))
        else:
            self.context.split_by_node(caller, args, 1)
            self.ack_or_delete(caller, AckOrDeleteMany(self, args[1:], False), now)

    def settle_then(self, caller: Caller, text: bytes, words: Words, now: i64, settle: Callable[[Job], int]) -> None:
        """Settle the job with an id by a call of `settle`, and put the jobs that the remaining words describe.

        Reply with the ids of these jobs.
        """
        puts = read_follow_ups(words)
        if self.context.leaving:
            raise self.context.leaving_error(caller)
        for put in puts:
            self.check_puts(caller, put.tube, [put.draft])
        job = self.find(caller, text, now)
        if job is None:
            self.refuse_elsewhere(text)
        jobs = settle_job_then(self.context, caller, job, puts, settle, now)
        caller.reply.array(len(jobs))
        for each in jobs:
            caller.reply.bulk(self.context.id_of(each))

    def announce_done(self, caller: Caller, id: bytes, now: i64) -> bool:
        """Send an ack to the other nodes, because its job is not on this node.

        Return whether another node may have created the job.
        """
        cluster = self.context.cluster
        if cluster is None or not is_long(id):
            return False
        cluster.acknowledge_unknown(id, caller.tubes, now)
        return cluster.may_be_elsewhere(id)

    def ack_or_delete(self, caller: Caller, many: AckOrDeleteMany, now: i64) -> None:
        """Ack or delete the jobs that a command names. Reply with the number of jobs that were acked or deleted.

        If the command names only one job and fails, the reply is an error instead of 0.
        """
        if len(many.ids) == 1:
            self.reply_with_one(caller, many.apply(caller, self.job(caller, many.ids[0], now), now))
        else:
            self.context.run_sliced(caller, many, now)

    def reply_with_one(self, caller: Caller, outcome: int) -> None:
        """Reply to a command that acks or deletes only one job: with 1, or with the error of `outcome`."""
        if outcome != OK:
            refuse(outcome)
        caller.reply.integer(1)

    def release(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run RELEASE id [DELAY duration] [TTL duration] [PRIORITY n] [KEY key] [OPTIONS json].

        Return a taken job to its tube. The options change the job.
        """
        back = _ReturnOptions(args, 2, _RELEASE_WORDS)
        job = self.job(caller, args[1], now)
        session = caller.connection.session
        if back.options is not None:
            self.reply_with_outcome(caller, self._engine.release_driven(session, job, back.options, now))
            return
        self.reply_with_outcome(
            caller, self._engine.release(session, job, now, back.delay, back.ttl, back.priority, back.key)
        )

    def requeue(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run REQUEUE id: return a taken job to the end of its tube."""
        job = self.job(caller, args[1], now)
        self.reply_with_outcome(caller, self._engine.requeue(caller.connection.session, job, now))

    def bury(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run BURY id [REASON text] [THEN PUT tube body ...]: bury a taken job, and put others."""
        words = Words(args, 2)
        reason, then = read_reason_then(words)
        engine, session = self._engine, caller.connection.session
        if then:
            self.settle_then(caller, args[1], words, now, lambda job: engine.bury(session, job, now, reason))
            return
        job = self.job(caller, args[1], now)
        self.reply_with_outcome(caller, engine.bury(session, job, now, reason))

    def dig(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run DIG id [DELAY duration] [TTL duration] [PRIORITY n]: move one buried job back to its tube."""
        back = _ReturnOptions(args, 2, _DIG_WORDS)
        job = self.job(caller, args[1], now)
        self.reply_with_outcome(caller, self._engine.dig(job, now, back.delay, back.ttl, back.priority))

    def kick(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run KICK tube [count] [DELAY duration] [TTL duration]: move the first buried jobs back to their tube."""
        counted = len(args) > 2 and parse_integer(args[2]) != NOT_A_NUMBER
        count = check_count(parse_integer(args[2]) if counted else 1, "the number of jobs to kick")
        back = _ReturnOptions(args, 3 if counted else 2, _KICK_WORDS)
        check_tube(caller, args[1])
        tube = self.context.tube(args[1])
        self.context.run_sliced(caller, _Kicking(self, tube, count, back.delay, back.ttl), now)

    def reply_with_outcome(self, caller: Caller, outcome: int) -> None:
        """Reply with OK, or with the error of `outcome`, to a command about one job."""
        if outcome != OK:
            refuse(outcome)
        caller.reply.ok()

    # Sessions

    def identify(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run IDENTIFY [token] [GRACE duration]: join a session, set its grace time, and describe the session."""
        words = Words(args, 1)
        token = b""
        grace = UNSET
        while words.has_more():
            word = words.option()
            if word == b"GRACE":
                grace = words.duration()
            elif words.at == 2:
                token = _parse_token(args[1])
            else:
                raise words.unknown(["GRACE"])
        connection = caller.connection
        check_join(caller, self._engine.sessions.get(token))
        self._engine.identify(connection, token or connection.session.token, now, grace)
        caller.introduce()
        self.context.remote.identified(caller)
        session = connection.session
        reply = caller.reply
        reply.map(4)
        reply.bulk(b"token")
        reply.bulk(session.token.hex().encode())
        reply.bulk(b"session")
        reply.integer(session.number)
        reply.bulk(b"grace")
        reply.integer(self._engine.grace_of(session))
        reply.bulk(b"max-body")
        reply.integer(self._engine.body_bytes_max)

    # Ids

    def job(self, caller: Caller, text: bytes, now: i64) -> Job:
        """Return the job with an id. Raise UnknownJob if it does not exist, or Elsewhere if another node may have it.

        An id is 40 characters, 32 hex digits, or tube#number. In a tube with a driver it can also be tube#id.
        """
        job = self.find(caller, text, now)
        if job is None:
            self.refuse_elsewhere(text)
            raise UnknownJob()
        return job

    def may_still_use(self, caller: Caller, job: Job) -> bool:
        """Return whether the caller is allowed to use the tube that a job is in now. Jobs can move between tubes."""
        if caller.any_tube or job.state == s.GONE:
            return True
        return caller.may_use(self._engine.tube_of(job).name)

    def refuse_elsewhere(self, text: bytes) -> None:
        """If another node may have created the job, raise UnknownJob with a hint which node to ask."""
        if self.context.may_be_elsewhere(text):
            assert self.context.cluster is not None
            raise UnknownJob(f"this node does not have the job; {self.context.cluster.whom_to_ask(text)}")

    def number(self, caller: Caller, text: bytes, now: i64) -> int:
        """Return the engine's number for a job id, even if the job has ended.

        For an id of the form tube#number, raise UnknownJob if the job has ended.
        """
        number = self._parse_id(text)
        return self.job(caller, text, now).id if number == NOT_AN_ID else number

    def _parse_id(self, text: bytes) -> int:
        if len(text) == LONG_ID_BYTES:
            return self.context.number_of(text)
        return self.context.ids.parse_hex(text) if len(text) == HEX_ID_BYTES else NOT_AN_ID

    def find(self, caller: Caller, text: bytes, now: i64) -> Job | None:
        """Return the job with an id, or None if it does not exist. Raise BadId if the text cannot be an id."""
        number = self._parse_id(text)
        if number != NOT_AN_ID:
            return self.context.find(caller, number, now)
        self.context.raise_if_job_elsewhere(caller, text)
        if self.context.may_be_elsewhere(text):
            return None
        name, mark, digits = text.rpartition(b"#")
        tube = self._engine.tubes.get(name)
        local = parse_integer(digits)
        is_driven = tube is not None and tube.driven
        if not mark or (not is_driven and (local < 0 or local == NOT_A_NUMBER)):
            raise BadId()
        check_tube(caller, name)
        if tube is not None and tube.driven:
            return self._engine.find_named(tube, digits, now)
        return None if tube is None else self._engine.find_local(tube, local, now)


def write_headers(reply: Reply, encoded: bytes) -> None:
    """Write the field `headers` of a job: a map of names and values."""
    headers = decode_headers(encoded)
    reply.bulk(b"headers")
    reply.map(len(headers))
    for name, value in headers.items():
        reply.bulk(name.encode())
        reply.bulk(value)


def read_drafts(words: Words) -> list[Draft]:
    """Parse the jobs of a batch: options for all jobs, then for each job the word JOB, a body and its own options.

    A job gets the headers that are given for all jobs, and its own. If a name is given in both places, the job's own
    value is used.
    """
    common = Draft(b"")
    word = b""
    while words.has_more():
        word = words.option()
        if word == b"JOB":
            break
        if not read_put(words, common, word):
            raise words.unknown(_MPUT_WORDS)
    if word != b"JOB":
        raise BadSyntax("the command has no job; write JOB before each body")
    headers = words.end_headers()
    if headers is not None:
        common.headers = encode_headers(headers.items())
    drafts: list[Draft] = []
    while True:
        if len(drafts) == BATCH_JOBS_MAX:
            raise OutOfRange(f"a command may put up to {BATCH_JOBS_MAX} jobs")
        draft = common.with_body(words.value())
        drafts.append(draft)
        word = b""
        while words.has_more():
            word = words.option()
            if word == b"JOB":
                break
            if not read_put(words, draft, word):
                raise words.unknown(_MPUT_WORDS)
        own = words.end_headers()
        if own is not None:
            draft.headers = encode_headers((own if headers is None else {**headers, **own}).items())
        check_kind(draft.body, draft.body_kind)
        if word != b"JOB":
            return drafts


class _ReturnOptions:
    """The options of a command that returns a job to its tube."""

    def __init__(self, args: list[bytes], at: int, allowed: list[str]) -> None:
        self.delay = 0
        self.ttl: int = UNSET
        self.priority: int = PRIORITY_UNSET
        self.key: bytes | None = None
        self.options: dict[str, object] | None = None  # For the driver of the tube.
        words = Words(args, at)
        while words.has_more():
            word = words.option()
            if word.decode("ascii", "replace") not in allowed:
                raise words.unknown(allowed)
            if word == b"DELAY":
                self.delay = words.duration()
            elif word == b"TTL":
                self.ttl = words.duration()
            elif word == b"PRIORITY":
                self.priority = words.priority()
            elif word == b"OPTIONS":
                self.options = read_driver_options(words.value())
            else:
                self.key = words.value()


def read_delay(words: Words) -> int:
    """Return the value of the option DELAY in milliseconds, or 0 if it is missing."""
    delay = 0
    while words.has_more():
        if words.option() != b"DELAY":
            raise words.unknown(["DELAY"])
        delay = words.duration()
    return delay


def read_reason(words: Words) -> bytes:
    """Return the value of the option REASON, or empty bytes if it is missing."""
    reason = b""
    while words.has_more():
        if words.option() != b"REASON":
            raise words.unknown(["REASON"])
        reason = words.value()
    return reason


def read_reason_then(words: Words) -> tuple[bytes, bool]:
    """Return the value of the option REASON, and whether THEN follows, which is the next word then."""
    reason = b""
    while words.has_more():
        word = words.option()
        if word == b"THEN":
            words.at -= 1
            return reason, True
        if word != b"REASON":
            raise words.unknown(["REASON", "THEN"])
        reason = words.value()
    return reason, False


def _parse_token(word: bytes) -> bytes:
    try:
        return bytes.fromhex(word.decode("ascii"))
    except ValueError:
        raise WrongType("a session's token is 32 hexadecimal digits") from None


class _TakeReply(WaitReply):
    """Writes the reply of a TAKE that waited."""

    def __init__(self, native: DeliveryCommands, headers: bool) -> None:
        self._native = native
        self._headers = headers

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, TakeWait)
        self._native.deliver(caller, wait.jobs, self._headers, now)


class _PutReply(WaitReply):
    """Writes the reply of a PUT that waited for room in its tube."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        assert isinstance(wait, PutWait)
        self._native.finish_put(caller, wait)


class AckOrDeleteMany(SlicedCommand):
    """Acks or deletes many jobs in slices, and replies with their number.

    All ids are checked before the first job is changed.
    """

    def __init__(self, native: DeliveryCommands, ids: list[bytes], deletes: bool) -> None:
        if len(ids) > BATCH_JOBS_MAX:
            raise OutOfRange(f"a command may name up to {BATCH_JOBS_MAX} jobs")
        self.ids = ids
        self._native = native
        self._deletes = deletes
        self._jobs: list[Job | None] = []
        self._at = 0
        self._done = 0

    def apply(self, caller: Caller, job: Job, now: i64) -> int:
        """Ack or delete one job. Return the engine's outcome code."""
        context = self._native.context
        if self._deletes:
            return context.delete(job, now)
        return context.engine.ack(caller.connection.session, job, now)

    def step(self, caller: Caller, now: i64) -> bool:
        native = self._native
        jobs = self._jobs
        count = len(self.ids)
        if len(jobs) < count:
            for text in self.ids[len(jobs) : len(jobs) + SLICE]:
                jobs.append(native.find(caller, text, now))
            if count > SLICE:
                return False
        end = min(self._at + SLICE, count)
        while self._at < end:
            job = jobs[self._at]
            self._at += 1
            if job is not None:
                native.context.engine.refresh(job, now)
                if native.may_still_use(caller, job) and self.apply(caller, job, now) == OK:
                    self._done += 1
            elif not self._deletes:
                native.announce_done(caller, self.ids[self._at - 1], now)
        if end < count:
            return False
        caller.reply.integer(self._done)
        return True


class _Kicking(SlicedCommand):
    """Runs KICK: moves buried jobs back to their tube, one slice per turn."""

    def __init__(self, native: DeliveryCommands, tube: Tube, count: int, delay: int, ttl: int) -> None:
        self._native = native
        self._tube = tube
        self._left = count
        self._delay = delay
        self._ttl = ttl
        self._done = 0

    def step(self, caller: Caller, now: i64) -> bool:
        some = min(self._left, SLICE)
        kicked = 0
        if not self._tube.dropped:
            kicked = self._native.context.engine.kick(self._tube, some, now, self._delay, self._ttl)
        self._done += kicked
        self._left -= kicked
        if kicked == some and self._left > 0:
            return False
        caller.reply.integer(self._done)
        return True
