"""The CLAIM commands: numbered batches of jobs that can be read again. core/claims.py explains claims.

A claim is made in one turn, so its number of jobs is limited. A claim is read and acked in slices.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import CONSUMER
from penstock.core import claims
from penstock.core.batches import Claim
from penstock.core.engine import Engine
from penstock.core.errors import BadSyntax, ClaimGone, CrossHome, OutOfRange, WrongType
from penstock.core.job import HELD_BY_CLAIM, VERDICT_ACK, VERDICT_MOVE, VERDICT_NACK, VERDICT_NAMES, Job, Verdict
from penstock.core.limits import UNSET, check_count
from penstock.dialects.disque import NOT_A_NUMBER, parse_integer
from penstock.dialects.native.arguments import Words, excerpt, read_shard
from penstock.dialects.native.delivery_commands import DeliveryCommands, write_headers
from penstock.dialects.native.packed_jobs import write_packed
from penstock.dialects.pages import PAGE_BYTES_MAX, SCAN_SLICE, PagedReply
from penstock.node.caller import SLICE, Caller, SlicedCommand, check_own, check_tube
from penstock.node.context import ALL_NODES, NODES_UP
from penstock.node.routing import Elsewhere
from penstock.wire.reply import Reply

# The default and the maximum number of jobs in a claim. A claim is made in one turn, so a turn limits it.
_COUNT_DEFAULT: Final = 100
CLAIM_JOBS_MAX: Final = 4 * SLICE

_LEASE_MS_DEFAULT: Final = 60_000

# A turn stores at most this many verdicts.
VERDICTS_PER_COMMAND_MAX: Final = SLICE

_VERDICTS: Final[dict[bytes, int]] = {name.encode(): kind for kind, name in enumerate(VERDICT_NAMES)}

# The estimated bytes of a job in a reply, without its body.
JOB_BYTES: Final = 400


class ClaimCommands:
    """The CLAIM commands."""

    def __init__(self, native: DeliveryCommands) -> None:
        self._native = native
        self._engine: Engine = native.context.engine

    def take(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM TAKE tube consumer number [COUNT n] [LEASE duration] [TOKEN t] [SHARD i n | SIZE].

        Claim a batch of jobs. Until the batch is acked or its lease ends, every call with this number returns the same
        batch. SHARD replies only with the jobs of shard `i` of `n`, and SIZE only with the size of the batch.
        """
        check_tube(caller, args[2])
        check_own(caller, args[3], b"consumer")
        self._check_claimed(caller, args[3])
        number = _parse_number(args[4])
        count = _COUNT_DEFAULT
        lease = _LEASE_MS_DEFAULT
        token = 0
        shard = _WHOLE_CLAIM
        size = False
        words = Words(args, 5)
        while words.has_more():
            word = words.option()
            if word == b"COUNT":
                count = check_count(words.integer(), "COUNT")
            elif word == b"LEASE":
                lease = words.duration()
            elif word == b"TOKEN":
                token = words.integer()
            elif word == b"SHARD":
                shard = read_shard(words)
            elif word == b"SIZE":
                size = True
            else:
                raise words.unknown(["COUNT", "LEASE", "TOKEN", "SHARD", "SIZE"])
        tube = self._native.context.tube(args[2])
        made = claims.claim(self._engine, args[3], token, number, tube, min(count, CLAIM_JOBS_MAX), lease, now)
        if made is None:
            caller.reply.null_array()
        elif size:
            _write_size(caller.reply, made)
        else:
            self._read(caller, made, shard, False, False, False, now)

    def read(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM READ consumer number [SHARD i n] [PACKED] [HEADERS] [SINCE]: reply with a claim, or with a shard.

        HEADERS and SINCE add columns to those of PACKED. Without PACKED, jobs always have their headers.
        """
        self._check(caller, args[2])
        shard = _WHOLE_CLAIM
        packed = False
        headers = False
        since = False
        words = Words(args, 4)
        while words.has_more():
            word = words.option()
            if word == b"SHARD":
                shard = read_shard(words)
            elif word == b"PACKED":
                packed = True
            elif word == b"HEADERS":
                headers = True
            elif word == b"SINCE":
                since = True
            else:
                raise words.unknown(["SHARD", "PACKED", "HEADERS", "SINCE"])
        claim = claims.read_claim(self._engine, args[2], _parse_number(args[3]), now)
        self._read(caller, claim, shard, packed, headers, since, now)

    def _read(
        self, caller: Caller, claim: Claim, shard: tuple[int, int], packed: bool, headers: bool, since: bool, now: i64
    ) -> None:
        # All jobs of a claim are in one tube.
        check_tube(caller, self._engine.tube_of(claim.jobs[0]).name)
        self._native.context.run_sliced(
            caller, _ReadClaim(self._native, claim, claim.shard(shard[0], shard[1]), packed, headers, since), now
        )

    def ack(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM ACK consumer upto [TOKEN t]: ack the jobs of all claims whose number is at most `upto`."""
        upto = _parse_number(args[3])
        token, _ = _token_and_lease(Words(args, 4), False)
        self._check(caller, args[2])
        acked = claims.ack_claims(self._engine, args[2], token, upto, now)
        self._native.context.run_sliced(caller, _AckClaims(self._engine, args[2], acked), now)

    def verdict(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM VERDICT consumer number [TOKEN t] CLEAR | JOB id verdict [REASON r] [DELAY d] [TUBE t] ...

        Store what happens to jobs of an open claim when it is acked. The verdicts are ack (the default), nack, bury and
        move. CLEAR removes all verdicts of the claim.
        """
        self._check(caller, args[2])
        number = _parse_number(args[3])
        token = 0
        words = Words(args, 4)
        word = words.option()
        if word == b"TOKEN":
            token = words.integer()
            if not words.has_more():
                raise BadSyntax("CLAIM VERDICT needs CLEAR, or JOB with an id and a verdict")
            word = words.option()
        if word == b"CLEAR":
            words.check_end()
            caller.reply.integer(claims.clear_verdicts(self._engine, args[2], token, number, now))
            return
        # Checked first, because the jobs of a claim that has ended may not exist any more.
        self._engine.advance(now)
        claims.open_claim(self._engine, args[2], token, number)
        jobs: list[Job] = []
        verdicts: list[Verdict | None] = []
        while True:
            if word != b"JOB":
                raise words.unknown(["JOB"] if jobs else ["TOKEN", "CLEAR", "JOB"])
            if len(jobs) == VERDICTS_PER_COMMAND_MAX:
                raise OutOfRange(f"a command can have at most {VERDICTS_PER_COMMAND_MAX} verdicts; send several")
            jobs.append(self._native.job(caller, words.value(), now))
            verdicts.append(self._parse_verdict(caller, words))
            if not words.has_more():
                break
            word = words.option()
        caller.reply.integer(claims.judge_jobs(self._engine, args[2], token, number, jobs, verdicts, now))

    def find(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM FIND id [id ...]: reply with the consumer, number and token of each job's claim, or with nil."""
        if len(args) - 2 > VERDICTS_PER_COMMAND_MAX:
            raise OutOfRange(f"a command can name at most {VERDICTS_PER_COMMAND_MAX} jobs; send several")
        jobs = [self._native.find(caller, id, now) for id in args[2:]]
        reply = caller.reply
        reply.array(len(jobs))
        for job in jobs:
            consumer = None
            if job is not None and job.holder == HELD_BY_CLAIM and job.extra is not None:
                consumer = self._engine.consumers.get(job.extra.consumer)
            if job is None or job.extra is None or consumer is None:
                reply.null_array()
                continue
            reply.array(3)
            reply.bulk(consumer.name)
            reply.integer(job.extra.claim)
            reply.integer(consumer.token)

    def _parse_verdict(self, caller: Caller, words: Words) -> Verdict | None:
        """Read a verdict and its options, up to the next word JOB. Return None for an ack."""
        name = words.value()
        kind = _VERDICTS.get(name.lower(), -1)
        if kind < 0:
            raise OutOfRange(f"a verdict is one of {', '.join(VERDICT_NAMES)}, not {excerpt(name)}")
        reason = tube = b""
        delay = UNSET
        while words.has_more() and words.args[words.at].upper() != b"JOB":
            word = words.option()
            if word == b"REASON":
                reason = words.value()
            elif word == b"DELAY":
                delay = words.duration()
            elif word == b"TUBE":
                tube = words.value()
                check_tube(caller, tube)
            else:
                raise words.unknown(["REASON", "DELAY", "TUBE", "JOB"])
        if bool(tube) != (kind == VERDICT_MOVE):
            raise BadSyntax("a move needs a TUBE, and other verdicts have none")
        if delay != UNSET and kind != VERDICT_NACK and kind != VERDICT_MOVE:
            raise BadSyntax("only a nack or a move can have a DELAY")
        if tube and tube not in self._engine.tubes and self._native.context.is_elsewhere(tube):
            raise CrossHome("the tube is on another node, and a job can only move to a tube of its own node")
        return Verdict(kind, reason, delay, tube) if kind != VERDICT_ACK else None

    def renew(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM RENEW consumer [LEASE duration] [TOKEN t]: renew the leases of all claims of a consumer."""
        token, lease = _token_and_lease(Words(args, 3), True)
        self._check(caller, args[2])
        if lease is None:
            lease = claims.last_lease(self._engine, args[2])
        caller.reply.integer(claims.renew_claims(self._engine, args[2], token, lease, now))

    def release(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM RELEASE consumer [TOKEN t]: end the claims of a consumer and return their jobs to the tube."""
        token, _ = _token_and_lease(Words(args, 3), False)
        self._check(caller, args[2])
        caller.reply.integer(claims.release_claims(self._engine, args[2], token, now))

    def _check(self, caller: Caller, consumer: bytes, must_answer: i64 = ALL_NODES) -> None:
        """Raise an error if the caller may not use a consumer's claims. Raise Elsewhere if another node has them.

        Raise NoHome if a node that must answer (see `CommandContext.find_node_with`) has not answered.
        """
        check_own(caller, consumer, b"consumer")
        self._check_claimed(caller, consumer)
        if consumer not in self._engine.consumers:
            node = self._native.context.find_node_with(caller, CONSUMER, [consumer], must_answer)
            if node:
                raise Elsewhere(node, f"consumer {excerpt(consumer)}")

    def _check_claimed(self, caller: Caller, consumer: bytes) -> None:
        """Raise an error if a consumer has claimed jobs in a tube that the caller is not allowed to use."""
        known = None if caller.any_tube else self._engine.consumers.get(consumer)
        if known is not None:
            for claim in known.claims.values():
                check_tube(caller, self._engine.tube_of(claim.jobs[0]).name)

    def info(self, caller: Caller, args: list[bytes], now: i64) -> None:
        """Run CLAIM INFO consumer: reply with the progress of a consumer."""
        self._engine.advance(now)
        # A new consumer can start while a node is failed.
        self._check(caller, args[2], NODES_UP)
        consumer = self._engine.consumers.get(args[2])
        reply = caller.reply
        reply.map(4)
        reply.bulk(b"acked")
        reply.integer(0 if consumer is None else consumer.acked)
        reply.bulk(b"newest")
        reply.integer(0 if consumer is None else consumer.newest)
        reply.bulk(b"token")
        reply.integer(0 if consumer is None else consumer.token)
        reply.bulk(b"open")
        numbers: list[int] = [] if consumer is None else list(consumer.claims)
        reply.array(len(numbers))
        for number in numbers:
            reply.integer(number)


def _write_size(reply: Reply, claim: Claim) -> None:
    """Write how many jobs a claim has and the size of their bodies, so that clients can choose a number of shards."""
    length: i64 = 0
    for job in claim.jobs:
        length += job.body_length()
    reply.array(2)
    reply.integer(len(claim.jobs))
    reply.integer(length)


class _ReadClaim(PagedReply):
    """Writes the jobs of a claim, or of one shard of it, in slices. Stops if the claim ends in the meantime."""

    def __init__(
        self, native: DeliveryCommands, claim: Claim, jobs: list[Job], packed: bool, headers: bool, since: bool
    ) -> None:
        super().__init__()
        self._native = native
        self._claim = claim
        self._jobs = jobs
        self._at: i64 = 0  # The index of the next job.
        self._packed = packed
        self._headers = headers
        self._since = since

    def scan(self, caller: Caller, now: i64) -> bool:
        claim = self._claim
        if claim.number not in claim.consumer.claims:
            raise ClaimGone()
        page = self.page(caller)
        jobs = self._jobs
        end = min(self._at + SCAN_SLICE, len(jobs))
        if self._packed:
            self._pack(page, end)
        else:
            while self._at < end and self.fits(page, JOB_BYTES + jobs[self._at].reply_length(), True):
                job = jobs[self._at]
                encoded = job.headers()
                page.map(11 if encoded else 10)
                self._native.write_job(page, job, None)
                if encoded:
                    write_headers(page, encoded)
                self._at += 1
                self.found += 1
        self.add(page)
        return self._at == len(jobs)

    def _pack(self, page: Reply, end: i64) -> None:
        """Write some jobs as columns (`packed_jobs.py`). All columns together are one item of the reply's array."""
        some: list[Job] = []
        length: i64 = 0
        while self._at < end:
            length += JOB_BYTES + self._jobs[self._at].reply_length()
            if some and length > PAGE_BYTES_MAX:
                break
            some.append(self._jobs[self._at])
            self._at += 1
        # The page is empty, so this only refuses a reply that is too long.
        self.fits(page, length, True)
        if some:
            write_packed(self._native, page, some, True, self._headers, self._since)
            self.found += 1


class _AckClaims(SlicedCommand):
    """Runs CLAIM ACK: ends the jobs of the acked claims in slices, then replies."""

    def __init__(self, engine: Engine, consumer: bytes, acked: int) -> None:
        self._engine = engine
        self._consumer = consumer
        self._acked = acked

    def step(self, caller: Caller, now: i64) -> bool:
        """End as many jobs of the acked claims as fit into one turn. Return whether all have ended."""
        if claims.is_acking(self._engine, self._consumer):
            self._engine.advance(now)
            return False
        caller.reply.integer(self._acked)
        return True


# The whole claim: shard 0 of 1.
_WHOLE_CLAIM: Final = (0, 1)


def _parse_number(word: bytes) -> int:
    number = parse_integer(word)
    if number == NOT_A_NUMBER:
        raise WrongType(f"{excerpt(word)} is not a whole number")
    return number


def _token_and_lease(words: Words, leased: bool) -> tuple[int, int | None]:
    token = 0
    lease: int | None = None
    while words.has_more():
        word = words.option()
        if word == b"TOKEN":
            token = words.integer()
        elif leased and word == b"LEASE":
            lease = words.duration()
        else:
            raise words.unknown(["LEASE", "TOKEN"] if leased else ["TOKEN"])
    return token, lease
