"""Keys within a tube: at most N jobs of one key are taken at a time, or jobs are taken by their key.

A key with ready jobs and room for another taker is *open*, and only open keys stand in the order that `take` looks at:
ten thousand busy keys cost a take nothing. Open keys are ranked by their first jobs (strict order over the whole tube)
or by whose turn it is (fair: each open key is served once before any is served twice). Keys come with their first job
and go with their last.
"""

from __future__ import annotations

from mypy_extensions import i32, i64, mypyc_attr

from penstock.core.deadlines import NOWHERE
from penstock.core.job import NO_SLOT, Job
from penstock.core.labels import LabelBytes
from penstock.core.order import JobHeap


@mypyc_attr(acyclic=True)
class Key:
    """One key of one tube."""

    name: bytes
    slot: i32
    jobs: i32  # Jobs of this key in any state; the key goes when none is left.
    taken: i32
    first: Job | None  # Its next ready job. Most keys have few, so the heap behind it is made on need.
    rest: JobHeap | None  # The other ready jobs.
    pos: i32  # Where among the open keys, or NOWHERE.
    rank: i64  # Its rank among the open keys: the priority of its first job, or its turn.
    rank_order: i64  # Among equal ranks: the order of its first job.

    def __init__(self, name: bytes, slot: i32) -> None:
        self.name = name
        self.slot = slot
        self.jobs = 0
        self.taken = 0
        self.first = None
        self.rest = None
        self.pos = NOWHERE
        self.rank = 0
        self.rank_order = 0

    def push(self, job: Job) -> None:
        """Add a ready job."""
        first = self.first
        if first is None:
            self.first = job
            return
        rest = self.rest
        if rest is None:
            rest = JobHeap()
            self.rest = rest
        if job.priority < first.priority or (job.priority == first.priority and job.order < first.order):
            self.first = job
            rest.push(first)
        else:
            rest.push(job)

    def remove(self, job: Job) -> None:
        """Take a ready job out."""
        rest = self.rest
        if job is not self.first:
            assert rest is not None
            rest.remove(job)
            return
        following: Job | None = None
        if rest is not None:
            following = rest.first()
            if following is not None:
                rest.remove(following)
        self.first = following


class Keys:
    """All keys of one tube, and the open ones in their order: a 4-ary indexed heap by rank."""

    limit: i32  # How many jobs of a key may be taken at a time; 0 for any number.
    fair: bool  # Ranked by turn, not by first job.
    ready: i32  # Ready jobs of all keys.
    lowered: bool  # The limit was lowered below what was taken of a key: it takes a while until it is kept.
    _turn: i64
    _by_name: dict[bytes, Key]
    _slots: list[Key | None]
    _free: list[i32]
    _open: list[Key]
    _labels: LabelBytes

    def __init__(self, limit: i32, fair: bool = False, labels: LabelBytes | None = None) -> None:
        self._labels = LabelBytes() if labels is None else labels
        self.limit = limit
        self.fair = fair
        self.ready = 0
        self.lowered = False
        self._turn = 0
        self._by_name = {}
        self._slots = []
        self._free = []
        self._open = []

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: bytes) -> Key | None:
        """The key of this name, if it has jobs."""
        return self._by_name.get(name)

    def of(self, job: Job) -> Key:
        """The key of a job."""
        key = self._slots[job.key]
        assert key is not None
        return key

    def join(self, job: Job, name: bytes) -> None:
        """Give a new job its key."""
        key = self._by_name.get(name)
        if key is None:
            slot: i32 = self._free.pop() if self._free else len(self._slots)
            key = Key(name, slot)
            if slot == len(self._slots):
                self._slots.append(key)
            else:
                self._slots[slot] = key
            self._by_name[name] = key
            self._labels.total += len(name)
        key.jobs += 1
        job.key = key.slot

    def leave(self, job: Job) -> None:
        """Forget a job that is gone, and its key with the last of its jobs."""
        key = self.of(job)
        key.jobs -= 1
        if key.jobs == 0:
            assert key.taken == 0 and key.first is None
            del self._by_name[key.name]
            self._labels.total -= len(key.name)
            self._slots[key.slot] = None
            self._free.append(key.slot)
        job.key = NO_SLOT

    def first(self) -> Job | None:
        """The job to serve next among all open keys."""
        opened = self._open
        return opened[0].first if opened else None

    def first_of(self, name: bytes) -> Job | None:
        """The job of one key to serve next, if that key is open."""
        key = self._by_name.get(name)
        return key.first if key is not None and key.pos != NOWHERE else None

    def push(self, job: Job) -> None:
        """Add a ready job."""
        key = self.of(job)
        key.push(job)
        self.ready += 1
        if key.pos == NOWHERE:
            self._open_up(key)
        elif key.first is job and not self.fair:
            key.rank = job.priority
            key.rank_order = job.order
            self._up(key, key.pos)

    def remove(self, job: Job) -> None:
        """Take a ready job out."""
        key = self.of(job)
        was_first = key.first is job
        key.remove(job)
        self.ready -= 1
        if was_first and key.pos != NOWHERE:
            self._first_left(key)

    def take(self, job: Job) -> None:
        """Count a job as taken: a ready one leaves, its key may be full, and the turn is another's."""
        key = self.of(job)
        key.taken += 1
        key.remove(job)
        self.ready -= 1
        if self.limit > 0 and key.taken >= self.limit:
            if key.pos != NOWHERE:
                self._close(key)
        elif key.pos != NOWHERE:
            if self.fair and key.first is not None:
                self._give_turn(key)
                self._down(key, key.pos)
            else:
                self._first_left(key)

    def give_back(self, job: Job) -> None:
        """A job is no longer taken: its key has room again."""
        key = self.of(job)
        key.taken -= 1
        if key.pos == NOWHERE:
            self._open_up(key)

    def set_limit(self, limit: i32) -> None:
        """Change how many of a key may be taken at a time; those taken stay taken."""
        self.limit = limit
        self.lowered = False
        for key in self._by_name.values():
            if limit > 0 and key.taken > limit:
                self.lowered = True
            if key.pos == NOWHERE:
                self._open_up(key)
            elif limit > 0 and key.taken >= limit:
                self._close(key)

    def set_fair(self, fair: bool) -> None:
        """Change how open keys are ranked."""
        self.fair = fair
        opened = self._open
        self._open = []
        for key in opened:
            key.pos = NOWHERE
        for key in opened:
            self._open_up(key)

    def open_keys(self) -> list[Key]:
        """The open keys, in no particular order. For checkers."""
        return list(self._open)

    def some_ready(self, count: int) -> list[Job]:
        """Up to `count` ready jobs, of the newest keys first; what comes last of a key, first."""
        found: list[Job] = []
        for key in reversed(self._by_name.values()):
            rest = key.rest
            if rest is not None:
                found.extend(rest.items[: -(count - len(found)) - 1 : -1])
            if key.first is not None and len(found) < count:
                found.append(key.first)
            if len(found) == count:
                break
        return found

    def all_keys(self) -> list[Key]:
        """Every key, in the order they came. For checkers."""
        return list(self._by_name.values())

    def _first_left(self, key: Key) -> None:
        """The first ready job of an open key is another one now, or none."""
        first = key.first
        if first is None:
            self._close(key)
        elif not self.fair:
            key.rank = first.priority
            key.rank_order = first.order
            self._down(key, key.pos)

    def _give_turn(self, key: Key) -> None:
        self._turn += 1
        key.rank = self._turn
        key.rank_order = 0

    def _open_up(self, key: Key) -> None:
        """Let a key be served, if it has a job to serve and room for its taker."""
        first = key.first
        if first is None or (self.limit > 0 and key.taken >= self.limit):
            return
        if self.fair:
            self._give_turn(key)
        else:
            key.rank = first.priority
            key.rank_order = first.order
        pos: i32 = len(self._open)
        self._open.append(key)
        self._up(key, pos)

    def _close(self, key: Key) -> None:
        opened = self._open
        pos = key.pos
        last = opened.pop()
        key.pos = NOWHERE
        if last is not key:
            if pos > 0 and self._before(last, opened[(pos - 1) >> 2]):
                self._up(last, pos)
            else:
                self._down(last, pos)

    def _before(self, a: Key, b: Key) -> bool:
        return a.rank < b.rank or (a.rank == b.rank and a.rank_order < b.rank_order)

    def _up(self, key: Key, start: i32) -> None:
        opened = self._open
        pos = start
        while pos > 0:
            parent: i32 = (pos - 1) >> 2
            other = opened[parent]
            if self._before(other, key):
                break
            opened[pos] = other
            other.pos = pos
            pos = parent
        opened[pos] = key
        key.pos = pos

    def _down(self, key: Key, start: i32) -> None:
        opened = self._open
        size: i32 = len(opened)
        pos = start
        while True:
            child: i32 = (pos << 2) + 1
            if child >= size:
                break
            best = opened[child]
            best_pos = child
            end = child + 4
            if end > size:
                end = size
            child += 1
            while child < end:
                other = opened[child]
                if self._before(other, best):
                    best = other
                    best_pos = child
                child += 1
            if self._before(key, best):
                break
            opened[pos] = best
            best.pos = pos
            pos = best_pos
        opened[pos] = key
        key.pos = pos
