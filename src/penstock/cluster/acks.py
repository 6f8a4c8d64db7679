"""Acknowledgements: each ack is kept until every holder of the job has recorded it, and is then collected.

Protocol:
1. The node that a client acks a job on sends SETACK to all holders that it knows of. It repeats this at growing
   intervals.
2. A holder deletes its copy, records the ack and answers GOTACK. If it knows of other holders, GOTACK names them.
3. When all holders have answered, the node that sent SETACK sends DELJOB to them. All of them drop the ack. The ack is
   then *collected*.
4. A holder that receives no DELJOB sends SETACK itself after a while. So the ack is collected even if only one node
   still has it.
5. A node that never met one of the holders does not collect the ack. It leaves this to nodes that have met the holder.

A *dummy* is the ack of a job that this node has never had. The job may be on a node that cannot be reached now, so the
dummy is kept and SETACK is sent to all nodes. The first node that has the job takes over the ack.

A client can be restricted to some tubes, and only a holder can look up the tube of a job. The dummy of a restricted
client is therefore only a request. It contains the client's tube patterns, which each holder checks. It does not prove
that the job is done, so it leaves no tombstone (recent.py). A tombstone would remove a job that arrives later,
even if its tube is forbidden to the client.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import DELJOB, GOTACK, MOVED_AWAY, SETACK, HoldersMessage, JobMessage
from penstock.cluster.state import ClusterState, backoff_ms, fingerprint
from penstock.core import states as s
from penstock.core.copy_commands import finish
from penstock.core.deadlines import Timed
from penstock.core.job import Job
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns

# Each interval is twice as long as the one before, up to three minutes.
_PERIOD_MS: Final = 1_000
_PERIOD_MS_MAX: Final = 180_000

# A node that never met a holder gives up after this many attempts, about a minute, if another node has the ack and may
# have met the holder. If no other node has the ack, it gives up after about four minutes, because no greeting reported
# such a node in that time.
_ATTEMPTS_UNMET: Final = 5
_ATTEMPTS_ALONE: Final = 7

# Limits the dummies to about 50 MB, because any client can ack ids that no node knows.
DUMMIES_MAX: Final = 100_000

# When a node can be reached again, at most this many acks are examined. The others wait for their timers.
_AGAIN_MAX: Final = 10_000

_KEY: Final = b"ack "

# Marks a tube pattern, in hex digits, in the note of a dummy. Dummies with longer patterns are not logged, because
# 100,000 of them must not fill the memory. They are kept until the process ends.
_PATTERN_MARK: Final = b"?"
_PATTERN_BYTES_MAX: Final = 256


class Ack(Timed):
    """The ack of a job, until all holders have recorded it. Its deadline is the time at which SETACK is sent again."""

    id: bytes
    holders: list[bytes]  # Nodes that may have a copy or the ack, including this node. Empty: a dummy.
    confirmed: dict[bytes, bool]  # The nodes that answered, and whether each had a copy.
    attempts: i64
    expiry: i64  # When the job would have expired. The ack is not needed after that.
    tubes: TubePatterns  # If this is a dummy: the tubes that the client may use.

    def __init__(self, id: bytes, holders: list[bytes], expiry: i64, tubes: TubePatterns = EVERY_TUBE) -> None:
        super().__init__()
        self.id = id
        self.holders = holders
        self.confirmed = {}
        self.attempts = 0
        self.expiry = expiry
        self.tubes = tubes

    def is_dummy(self) -> bool:
        """Return whether the ack is for a job that this node never had."""
        return not self.holders


class Acks:
    """The acks of this node that some holders of their jobs have not confirmed yet."""

    def __init__(self, place: ClusterState) -> None:
        self.by_id: dict[bytes, Ack] = {}
        self.dummies: i64 = 0
        self.collected: i64 = 0
        self.refused: i64 = 0  # Dummies that were dropped because of DUMMIES_MAX.
        self._place = place

    def restore(self, now: i64) -> None:
        """Load the acks from the log after a restart, and schedule their SETACK messages."""
        for key, value in self._place.engine.notes.items():
            if key.startswith(_KEY):
                ack = self._read_note(key[len(_KEY) :], value)
                self._track(ack)
                self._place.deadlines.set(ack, now + _PERIOD_MS + self._place.random.below(_PERIOD_MS))

    # Requests of clients

    def begin(self, id: bytes, holders: list[bytes], expiry: i64, now: i64) -> None:
        """Start to send SETACK to the holders of a job that was acked or deleted on this node."""
        if len(holders) > 1 and id not in self.by_id:
            self._try(self._keep(Ack(id, list(holders), expiry), now), now)
        else:
            self._place.recent.add(id, now)

    def keep_unknown(self, id: bytes, minutes: i64, tubes: TubePatterns, now: i64) -> None:
        """Keep an ack (a dummy) for a job that is not on this node. `tubes` are the tubes that the client can use."""
        ack = self.by_id.get(id)
        if ack is not None:
            if ack.is_dummy() and ack.tubes is not tubes:
                ack.tubes = ack.tubes.union(tubes)
                self._write_note(ack, now)
            self._try(ack, now)
        elif self._place.members.size() < 2:
            return
        elif self.dummies >= DUMMIES_MAX:
            self.refused += 1
        else:
            self._try(self._keep(Ack(id, [], now + minutes * 60_000, tubes), now), now)

    def forget(self, id: bytes, now: i64) -> list[bytes]:
        """Drop the ack of a job, if there is one, and return its holders."""
        ack = self.by_id.get(id)
        if ack is None:
            return []
        self._drop(ack, now)
        return ack.holders

    def evict(self, count: i64, now: i64) -> int:
        """Drop up to `count` acks, the oldest first, to free memory. Their jobs may be delivered again."""
        oldest: list[Ack] = []
        for ack in self.by_id.values():
            if len(oldest) == count:
                break
            oldest.append(ack)
        for ack in oldest:
            self._drop(ack, now)
        return len(oldest)

    # Messages from other nodes

    def reject_if_acked(self, sender: bytes, id: bytes, now: i64, queue: bytes = b"") -> bool:
        """If this node has recorded that a job is done, send SETACK to `sender`, which sent a message about the job.

        Return whether the job is done. `queue` is the job's tube, or empty if it is not known.
        """
        ack = self.by_id.get(id)
        if ack is not None and queue and not ack.tubes.match(queue):
            # The client that acked the job may not use its tube.
            self._drop(ack, now)
        elif ack is not None:
            if not ack.is_dummy() and sender not in ack.holders:
                ack.holders.append(self._place.node(sender))
            self._place.outbox.send(sender, JobMessage(SETACK, id, fingerprint(ack.holders), ack.tubes))
            return ack.tubes.any_tube or queue != b""
        if self._place.recent.contains(id):
            self._place.outbox.send(sender, JobMessage(SETACK, id))
            return True
        return False

    def receive_setack(self, sender: bytes, message: JobMessage, now: i64) -> None:
        """Process SETACK: delete this node's copy of a job that was acked on another node, and answer GOTACK."""
        place = self._place
        id = message.id
        ack = self.by_id.get(id)
        job: Job | None = None
        if ack is None:
            job = place.find(id, now)
            if job is not None and not message.tubes.match(place.engine.tube_of(job).name):
                # The client may not use the tube. The answer is the same as for an unknown job.
                place.outbox.send(sender, HoldersMessage(GOTACK, id, 0, []))
                return
            if job is not None:
                ack = self._acked(job, id, sender, message.argument == 0, now)
        if ack is None:
            heir = place.moved.new_holder(id)
            if job is None and heir is not None:
                # The new holder keeps the ack.
                place.outbox.send(sender, HoldersMessage(GOTACK, id, 0, [heir]))
                return
            if job is not None or message.tubes.any_tube:
                # A message with the job may still arrive.
                place.recent.add(id, now)
            place.outbox.send(sender, HoldersMessage(GOTACK, id, 1 if job is not None else 0, []))
            return
        had = not ack.is_dummy()
        if had and message.argument != 0 and sender not in ack.holders:
            ack.holders.append(place.node(sender))
        told = had and message.argument != 0 and message.argument != fingerprint(ack.holders)
        place.outbox.send(
            sender, HoldersMessage(GOTACK, id, 1 if had else 0, place.known_holders(ack.holders) if told else [])
        )

    def _acked(self, job: Job, id: bytes, sender: bytes, by_dummy: bool, now: i64) -> Ack | None:
        """Delete a job that was acked on another node.

        Return its `Ack` if the job has other holders, which have to record the ack too. Otherwise return None.
        """
        place = self._place
        copy = job.copy()
        holders = [place.myself] if copy is None else list(copy.holders)
        if not by_dummy and sender not in holders:
            holders.append(place.node(sender))
        ack: Ack | None = None
        if len(holders) > 1 and not job.once:
            ack = self._keep(Ack(id, holders, job.expiry), now)
        place.begin_remote_change()
        finish(place.engine, job, s.ACKED, now)
        place.end_remote_change()
        if ack is not None:
            if by_dummy:
                self._try(ack, now)
            else:
                # The sender collects. This node starts only if it receives no DELJOB.
                place.deadlines.set(ack, min(ack.expiry, now + 2 * _PERIOD_MS + place.jitter()))
        return ack

    def receive_gotack(self, sender: bytes, message: HoldersMessage, now: i64) -> None:
        """Process GOTACK: record that the sender has recorded the ack, or does not have the job.

        If the sender names other holders, send SETACK to them.
        """
        ack = self.by_id.get(message.id)
        if ack is None:
            return
        ack.confirmed[self._place.node(sender)] = message.argument != 0
        if not ack.is_dummy():
            self._add_holders(ack, sender if message.argument else b"", message.holders)
        elif message.argument:
            self._drop(ack, now)
            return
        self._collect_if_known(ack, now)

    def receive_holders(self, sender: bytes, message: HoldersMessage, now: i64) -> bool:
        """Process HOLDERS: the sender names nodes that have a copy of a job.

        If this node has recorded the job's ack, send SETACK to these nodes and return True. Otherwise return False.
        """
        ack = self.by_id.get(message.id)
        if ack is None or ack.is_dummy():
            return self.reject_if_acked(sender, message.id, now)
        self._add_holders(ack, b"", [sender, *message.holders])
        return True

    def _add_holders(self, ack: Ack, sender: bytes, nodes: list[bytes]) -> None:
        """Add `sender` and `nodes` to the holders that have to record the ack. Send SETACK to the new `nodes`."""
        for node in [sender, *nodes]:
            if node and node not in ack.holders:
                ack.holders.append(self._place.node(node))
                if node != sender:
                    self._place.send_all([node], JobMessage(SETACK, ack.id, fingerprint(ack.holders)))

    def receive_deljob(self, sender: bytes, message: JobMessage, now: i64) -> None:
        """Process DELJOB: delete this node's copy of the job, and its ack.

        The sender has one of these reasons: all holders have recorded the ack, the put failed for lack of copies, the
        job was deleted or ended by FASTACK, or the job moved to a tube that lives on one node.
        """
        place = self._place
        id = message.id
        job = place.find(id, now)
        if not message.tubes.any_tube and (job is None or not message.tubes.match(place.engine.tube_of(job).name)):
            # A restricted client has ended a job that is not here, or whose tube it may not use.
            return
        if message.argument == MOVED_AWAY:
            if job is not None and not job.once:
                place.moved.add(id, now, sender)
                self._forget_copy(job, now)
            return
        ack = self.by_id.get(id)
        if ack is not None:
            self._drop(ack, now)
        if job is None:
            place.recent.add(id, now)
        elif not job.once:
            copy = job.copy()
            if copy is not None and message.argument != 0 and message.argument != fingerprint(copy.holders):
                # The sender did not know of these holders, so they have received nothing. This cannot loop, because the
                # job is deleted.
                told = JobMessage(DELJOB, id, fingerprint(copy.holders))
                place.send_all([node for node in copy.holders if node != sender], told)
            place.recent.add(id, now)
            self._forget_copy(job, now)

    def _forget_copy(self, job: Job, now: i64) -> None:
        self._place.begin_remote_change()
        finish(self._place.engine, job, s.DELETED, now)
        self._place.end_remote_change()

    def resend_to(self, node: bytes, now: i64) -> None:
        """Send SETACK within a second for each ack that `node` has not confirmed, because its link is up again."""
        for ack in islice(self.by_id.values(), _AGAIN_MAX):
            if node not in ack.confirmed and (ack.is_dummy() or node in ack.holders):
                soon = now + self._place.random.below(_PERIOD_MS)
                if soon < ack.due:
                    self._place.deadlines.set(ack, soon)

    # Collection

    def fire(self, ack: Ack, now: i64) -> None:
        """Send SETACK again. If the job would have expired by now, drop the ack instead."""
        if ack.expiry <= now:
            self._drop(ack, now)
        else:
            self._try(ack, now)

    def _try(self, ack: Ack, now: i64) -> None:
        """Send SETACK to all holders that have not answered."""
        place = self._place
        ack.attempts += 1
        if self._collect_if_known(ack, now):
            return
        message = JobMessage(SETACK, ack.id, fingerprint(ack.holders), ack.tubes)
        for node in place.members.linked() if ack.is_dummy() else ack.holders:
            if node != place.myself and node not in ack.confirmed:
                place.outbox.send(node, message)
        period = backoff_ms(_PERIOD_MS, ack.attempts, _PERIOD_MS_MAX)
        place.deadlines.set(ack, min(ack.expiry, now + period + place.jitter()))

    def _collect_if_known(self, ack: Ack, now: i64) -> bool:
        """If all holders have recorded the ack, drop it here and send DELJOB to them. Return whether that was done.

        Holders that have left the cluster need not record it.
        """
        members = self._place.members
        unmet = False
        for node in members.member_ids() if ack.is_dummy() else ack.holders:
            if node == self._place.myself or node in ack.confirmed or members.has_left(node):
                continue
            if members.is_member(node):
                return False
            unmet = True
        if not unmet:
            message = JobMessage(DELJOB, ack.id)
            for node, had in ack.confirmed.items():
                if had:
                    self._place.outbox.send(node, message)
        elif ack.attempts <= (_ATTEMPTS_UNMET if True in ack.confirmed.values() else _ATTEMPTS_ALONE):
            return False
        self.collected += 1
        self._drop(ack, now)
        return True

    def _keep(self, ack: Ack, now: i64) -> Ack:
        self._track(ack)
        self._write_note(ack, now)
        return ack

    def _write_note(self, ack: Ack, now: i64) -> None:
        """Write an ack to the log: its expiry, and its holders or the tube patterns of a restricted client."""
        words = [b"%d" % ack.expiry, *ack.holders]
        if not ack.tubes.any_tube:
            words += [_PATTERN_MARK + text.hex().encode() for text in ack.tubes.texts]
        note = b" ".join(words)
        if ack.tubes.any_tube or len(note) <= _PATTERN_BYTES_MAX:
            self._place.engine.note(_KEY + ack.id, note, now)

    def _read_note(self, id: bytes, note: bytes) -> Ack:
        words = note.split(b" ")
        holders = [self._place.node(word) for word in words[1:] if not word.startswith(_PATTERN_MARK)]
        texts = [bytes.fromhex(word[1:].decode()) for word in words[1:] if word.startswith(_PATTERN_MARK)]
        return Ack(id, holders, int(words[0]), TubePatterns(texts) if texts else EVERY_TUBE)

    def _track(self, ack: Ack) -> None:
        assert ack.id not in self.by_id, "a node keeps one ack of a job"
        self.by_id[ack.id] = ack
        if ack.is_dummy():
            self.dummies += 1

    def _drop(self, ack: Ack, now: i64) -> None:
        del self.by_id[ack.id]
        if ack.is_dummy():
            self.dummies -= 1
        self._place.deadlines.clear(ack)
        self._place.engine.note(_KEY + ack.id, b"", now)
        if ack.tubes.any_tube or True in ack.confirmed.values():
            self._place.recent.add(ack.id, now)


def is_at_least_once(id: bytes) -> bool:
    """Return whether the job with this id is delivered again until it is acked. The id encodes this."""
    return id[39:40] in (b"1", b"3", b"5", b"7", b"9", b"b", b"d", b"f")
