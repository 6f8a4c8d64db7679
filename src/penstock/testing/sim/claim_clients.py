"""The readers of claims in the workload `tubes`: consumers that take numbered batches, and can read each of them again.

A reader repeats a request whose reply was lost. Now and then it is replaced: a new process continues with a greater
token, and requests of the old process must be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.testing.sim.history import DONE, UNKNOWN, Violation
from penstock.testing.sim.schedule import MS, SECOND, spread
from penstock.testing.sim.tube_clients import TubeClient
from penstock.testing.sim.tube_history import Finish, Lease, Take
from penstock.testing.sim.tubes import TubeKind
from penstock.wire.resp_client import ErrorReply

# A reader has at most this many claims open.
_OPEN_MAX = 3


@dataclass
class ClaimRecord:
    """An open claim, as its reader sees it."""

    number: int
    leases: list[Lease] = field(default_factory=list)
    until: int = 0  # The lease certainly does not end before this time.

    def bodies(self) -> list[bytes]:
        return [lease.body for lease in self.leases]


class ClaimReader(TubeClient):
    """Takes claims of one tube, and reads, renews, acks and releases them, or lets their leases end."""

    def begin(self) -> None:
        """Take the first claim after a pause."""
        self.is_iproto = False
        self.consumer = b"reader-%d" % self.number
        self.kind: TubeKind = self.kinds[0]
        # All requests have the same lease, because one that is executed late must not shorten the lease.
        self.lease_ms = self.random.choice((1_000, 3_000))
        self.fence = 0  # The token of the consumer.
        self.is_known = False  # A command with this token has changed the consumer at its home.
        self.is_current = True  # It knows which claims are open.
        self.newest = 0
        self.open: dict[int, ClaimRecord] = {}
        self.pending: Take | None = None  # The first attempt to take the claim `newest + 1`.
        # Open claims whose jobs it has not received, because the reply of the take was lost, and that take.
        self.unread: dict[int, Take] = {}
        self._pause()

    def _pause(self, mean: int = 80 * MS) -> None:
        self.later(spread(self.random, mean, 2 * SECOND), lambda: self.ready(self._act))

    def _act(self) -> None:
        what, has_open = self.random.random(), bool(self.open)
        if not self.is_current:
            self._ask_info()
        elif self.unread:
            # An ack of a later claim would also end these.
            self._recover(min(self.unread))
        elif has_open and what < 0.3:
            self._ack(min(self.open))
        elif has_open and what < 0.45:
            self._read(self.random.choice(list(self.open)))
        elif has_open and what < 0.55:
            self._renew()
        elif has_open and what < 0.6:
            self._release()
        elif what < 0.65:
            self.later(self.random.randint(500, 3_000) * MS, lambda: self.ready(self._act))
        elif what < 0.7:
            self._replace()
        elif what < 0.8 and self.fence and self.is_known:
            self._send_old_request()
        elif len(self.open) < _OPEN_MAX:
            self._take()
        else:
            self._ack(min(self.open))

    def _forgot(self) -> bool:
        return any(fault.forgets for fault in self.world.history.faults)

    def _words(self, verb: bytes, *more: bytes) -> list[bytes]:
        return [b"CLAIM", verb, self.consumer, *more, b"TOKEN", b"%d" % self.fence]

    def _lease_end(self, asked: int) -> int:
        """Return a time before which the lease of a request, sent at `asked`, certainly does not end."""
        if "clock_jump" in self.world.options.nemeses:
            return asked
        return asked + self.lease_ms * MS * 1_000_000 // (1_000_000 + self.world.options.drift_ppm) - 2 * MS

    def _refuse(self, answer: ErrorReply, numbers: list[int]) -> None:
        """Handle the error of a request about claims. The reader then asks which claims are open."""
        self.refused(answer)
        self.is_current = False
        if answer.line.startswith(b"FENCED"):
            raise Violation(f"W11: the newest reader of {self.consumer!r} was refused with {answer.line!r}")
        held = [number for number in numbers if number in self.open and self.now < self.open[number].until]
        if self.world.options.is_calm and held and answer.line.startswith((b"CLAIMGONE", b"RANGE")):
            raise Violation(f"W11: claim {held[0]} of {self.consumer!r} was refused within its lease: {answer.line!r}")

    # Taking and reading

    def _take(self) -> None:
        random, number = self.random, self.newest + 1
        assert self.node is not None
        take = Take(self.kind, self.node.number, self.number, b"%s#%d" % (self.consumer, number), False, self.now)
        self.world.tubes.takes.append(take)
        if self.pending is None:
            self.pending = take
        words = [b"CLAIM", b"TAKE", self.kind.name, self.consumer, b"%d" % number]
        words += [
            b"COUNT",
            b"%d" % random.choice((1, 3, 5)),
            b"LEASE",
            b"%dms" % self.lease_ms,
            b"TOKEN",
            b"%d" % self.fence,
        ]
        self.world.history.note(self.now, "claim", self.consumer, number)
        self.ask(words, 4 * SECOND, lambda answer, local, sent: self._took(take, number, answer, sent))

    def _took(self, take: Take, number: int, answer: object | None, sent: int) -> None:
        take.ended = self.now
        if isinstance(answer, ErrorReply):
            take.outcome = self.refused(answer)
            if self.is_missing(answer):
                self.ready(lambda: self.create(self.kind, self._pause))
                return
            if take.outcome != UNKNOWN and not answer.line.startswith(b"NOHOME"):
                self._refuse(answer, [])
        elif isinstance(answer, list):
            take.outcome = DONE
            self.is_known = True
            self._claimed(number, take, answer, sent)
        elif self._session is not None:
            # There was no job. The number can be used again.
            take.outcome = DONE
            self.is_known, self.pending = True, None
        self._pause()

    def _claimed(self, number: int, take: Take, jobs: list[object], sent: int) -> None:
        """Record a new claim. If an earlier reply was lost, the claim may be as old as that request."""
        first, self.pending = self.pending or take, None
        self.newest = number
        self._record(number, first, jobs, self._lease_end(take.invoked), sent)
        self.world.sometimes("a claim was taken")

    def _record(self, number: int, first: Take, jobs: list[object], until: int, sent: int) -> None:
        """Record an open claim. `first` is the first attempt to take it, and its lease does not end before `until`."""
        record = ClaimRecord(number)
        for job in jobs:
            assert isinstance(job, list)
            facts = dict(zip(job[::2], job[1::2], strict=True))
            lease = Lease(
                *(facts[b"body"], self.kind, facts[b"id"], facts[b"number"], facts[b"deliveries"]),
                *(first, 0, sent, sent, self.now),
            )
            record.leases.append(lease)
            self.world.tubes.leases.append(lease)
        self.open[number] = record
        self._renewed(record, until)
        self.world.history.note(self.now, "claimed", self.consumer, number, *record.bodies())

    def _renewed(self, record: ClaimRecord, until: int) -> None:
        record.until = until
        for lease in record.leases:
            lease.claim_until = max(lease.claim_until, until)

    def _read(self, number: int) -> None:
        """Read a claim again, and check that it still has the same jobs."""
        asked = self.now
        words = [b"CLAIM", b"READ", self.consumer, b"%d" % number]
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._was_read(number, asked, answer))

    def _was_read(self, number: int, asked: int, answer: object | None) -> None:
        record = self.open.get(number)
        if isinstance(answer, ErrorReply):
            self._refuse(answer, [number])
        elif isinstance(answer, list) and record is not None:
            bodies = [dict(zip(job[::2], job[1::2], strict=True))[b"body"] for job in answer]
            if bodies != record.bodies() and not self._forgot():
                raise Violation(f"W11: claim {number} of {self.consumer!r} had {record.bodies()}, and then {bodies}")
            self.world.sometimes("a claim was read again")
            starts = [fault for fault in self.world.history.faults if fault.kind in ("kill", "power cut")]
            if any(record.leases[0].at < fault.began < asked for fault in starts):
                self.world.sometimes("a claim was read again after a crash")
        self._pause()

    def _recover(self, number: int) -> None:
        """Read a claim whose jobs the reader has not received."""
        words = [b"CLAIM", b"READ", self.consumer, b"%d" % number]
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._recovered(number, answer, sent))

    def _recovered(self, number: int, answer: object | None, sent: int) -> None:
        if isinstance(answer, ErrorReply):
            self._refuse(answer, [])
        elif isinstance(answer, list):
            first = self.unread.pop(number)
            # The reader may have released the claim in the meantime, so only its begin is certain.
            self._record(number, first, answer, first.invoked, sent)
            self.world.sometimes("a claim was recovered after the reply of its take was lost")
        self._pause()

    def _ask_info(self) -> None:
        """Ask which claims are open, because the reader is new or a request was refused."""
        words = [b"CLAIM", b"INFO", self.consumer]
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._informed(answer))

    def _informed(self, answer: object | None) -> None:
        if isinstance(answer, ErrorReply):
            self.refused(answer)
        elif isinstance(answer, list):
            facts = dict(zip(answer[::2], answer[1::2], strict=True))
            if self.world.options.is_calm:
                self._check_info(facts[b"newest"], facts[b"open"])
            # A node that did not reach the home of the tube knows no consumer.
            if facts[b"newest"] >= self.newest or self._forgot():
                if facts[b"newest"] > self.newest:
                    if self.pending is not None:
                        self.unread[facts[b"newest"]] = self.pending
                    self.pending = None
                self.newest = facts[b"newest"]
                self.unread = {number: take for number, take in self.unread.items() if number in facts[b"open"]}
                self.open = {number: record for number, record in self.open.items() if number in facts[b"open"]}
                self.is_current = True
        self._pause()

    def _check_info(self, newest: int, open: list[int]) -> None:
        missing = [record.number for record in self.open.values() if self.now < record.until]
        if newest < self.newest or not set(missing) <= set(open):
            raise Violation(f"W11: {self.consumer!r} has the claims {open} up to {newest}, without {missing}")

    # Ending

    def _ack(self, upto: int) -> None:
        asked = self.now
        finishes: list[Finish] = []
        for lease in self.open[upto].leases:
            finish = Finish("ack", lease.take.token, self.number, asked)
            lease.finishes.append(finish)
            finishes.append(finish)
        self.world.history.note(asked, "ack claim", self.consumer, upto)
        words = self._words(b"ACK", b"%d" % upto)
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._acked(upto, finishes, answer))

    def _acked(self, upto: int, finishes: list[Finish], answer: object | None) -> None:
        for finish in finishes:
            finish.ended = self.now
        if isinstance(answer, ErrorReply):
            self._refuse(answer, [upto])
        elif isinstance(answer, int):
            self._count_acked(upto, finishes, answer)
            del self.open[upto]
        self._pause()

    def _count_acked(self, upto: int, finishes: list[Finish], count: int) -> None:
        record = self.open[upto]
        if self.world.options.is_calm and self.now < record.until and count != len(record.leases):
            raise Violation(f"W11: CLAIM ACK {upto} of {self.consumer!r} ended {count} jobs, not {len(record.leases)}")
        if count not in (0, len(record.leases)) and not self._forgot():
            raise Violation(f"W11: claim {upto} of {self.consumer!r} did not end as a whole: {count} jobs were acked")
        if count:
            self.world.sometimes("a claim was acked")
        elif all(lease.verb_count() == 1 for lease in record.leases):
            self.world.sometimes("a claim had ended before its ack")
        for finish in finishes:
            # The claim had ended, or an earlier ack of it was executed and its reply was lost.
            finish.outcome = DONE if count else UNKNOWN

    def _renew(self) -> None:
        asked = self.now
        words = self._words(b"RENEW", b"LEASE", b"%dms" % self.lease_ms)
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._were_renewed(asked, answer))

    def _were_renewed(self, asked: int, answer: object | None) -> None:
        if isinstance(answer, ErrorReply):
            self._refuse(answer, list(self.open))
        elif answer == len(self.open) and self.pending is None:
            # With a pending take, the number may include its claim instead of one that has ended.
            for record in self.open.values():
                self._renewed(record, self._lease_end(asked))
        elif answer is not None:
            self.is_current = False
        self._pause()

    def _release(self) -> None:
        for record in self.open.values():
            record.until = 0
            for lease in record.leases:
                lease.free_from = min(lease.free_from, self.now)
        self.world.history.note(self.now, "release claims", self.consumer)
        self.ask(self._words(b"RELEASE"), 3 * SECOND, lambda answer, local, sent: self._released(answer))

    def _released(self, answer: object | None) -> None:
        if isinstance(answer, ErrorReply):
            self._refuse(answer, [])
        self.is_current = False
        self._pause()

    # Several processes with the name of one consumer

    def _replace(self) -> None:
        """Continue as another process, with a greater token."""
        self.fence += 1
        self.is_known = self.is_current = False
        self.hang_up()
        self._pause()

    def _send_old_request(self) -> None:
        """Send a request of the process that was replaced."""
        old = b"%d" % (self.fence - 1)
        number = b"%d" % max(1, self.newest)
        words = self.random.choice(
            (
                [b"CLAIM", b"TAKE", self.kind.name, self.consumer, b"%d" % (self.newest + 1), b"TOKEN", old],
                [b"CLAIM", b"ACK", self.consumer, number, b"TOKEN", old],
            )
        )
        self.ask(words, 3 * SECOND, lambda answer, local, sent: self._was_fenced(words, answer))

    def _was_fenced(self, words: list[bytes], answer: object | None) -> None:
        if isinstance(answer, ErrorReply):
            self.refused(answer)
            if answer.line.startswith(b"FENCED"):
                self.world.sometimes("a reader that was replaced was refused")
        elif self._session is not None and not self._forgot():
            raise Violation(f"W11: {b' '.join(words)!r} was executed, although a greater token was used before")
        self._pause()
