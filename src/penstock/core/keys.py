"""The keys of a tube. They limit how many jobs of one key are taken at a time, and let consumers take jobs by key.

A key is *open* if it has a ready job and fewer taken jobs than the limit. Only open keys are in the heap that `take`
reads, so ten thousand busy keys cost a take nothing.

Open keys are ranked in one of two ways. In strict order, they are ranked by the (priority, order) of their first jobs,
which gives the order of the whole tube. In fair order, each key gets a number when it opens, and a new one each time it
was served and is still open. Every number is greater than all earlier ones, and the key with the least number is served
next. Therefore each open key is served once before any is served twice.

A key exists as long as it has jobs in any state.
"""

from __future__ import annotations

from mypy_extensions import i32, i64, mypyc_attr

from penstock.core.deadlines import NOWHERE, Deadlines, Timed
from penstock.core.job import NO_SLOT, Job, LabelBytes
from penstock.core.order import JobHeap


@mypyc_attr(acyclic=True)
class Key(Timed):
    """One key of one tube. If it is open, its `due` is the time at which its first job became ready."""

    name: bytes
    # The next ready job. Most keys have few jobs, so the heap for the others is created only when needed.
    first: Job | None
    rest: JobHeap | None  # The other ready jobs.
    rank: i64  # Rank among the open keys: the priority of the first job (strict), or the turn (fair).
    rank_order: i64  # Second criterion among equal ranks: the order of the first job.
    slot: i32
    jobs: i32  # Number of jobs of this key in any state. The key is removed with the last one.
    taken: i32
    pos: i32  # Index in the heap of open keys, or NOWHERE.

    def __init__(self, name: bytes, slot: i32) -> None:
        super().__init__()
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
    """All keys of one tube, and a 4-ary indexed heap of the open keys: those with a ready job and below their limit."""

    def __init__(self, limit: i32, fair: bool = False, labels: LabelBytes | None = None) -> None:
        self._labels: LabelBytes = LabelBytes() if labels is None else labels
        self.limit = limit  # Maximal number of taken jobs per key; 0 for no limit.
        self.fair = fair  # Open keys are ranked by turn, not by first job.
        self.ready: i32 = 0  # Number of ready jobs of all keys.
        # The limit was set below the number of taken jobs of a key, so that key may still exceed it.
        self.lowered = False
        self._turn: i64 = 0
        self.by_name: dict[bytes, Key] = {}
        self.slots: list[Key | None] = []
        self.free_slots: list[i32] = []
        self._open: list[Key] = []
        self._by_age = Deadlines()  # The open keys by the time since which their first jobs are ready.

    def __len__(self) -> int:
        return len(self.by_name)

    def find(self, name: bytes) -> Key | None:
        """Return the key with this name, or None if it has no jobs."""
        return self.by_name.get(name)

    def of(self, job: Job) -> Key:
        key = self.slots[job.key]
        assert key is not None
        return key

    def join(self, job: Job, name: bytes) -> None:
        """Assign a job to the key with this name. Create the key if necessary."""
        key = self.by_name.get(name)
        if key is None:
            slot: i32 = self.free_slots.pop() if self.free_slots else len(self.slots)
            key = Key(name, slot)
            if slot == len(self.slots):
                self.slots.append(key)
            else:
                self.slots[slot] = key
            self.by_name[name] = key
            self._labels.total += len(name)
        key.jobs += 1
        job.key = key.slot

    def leave(self, job: Job) -> None:
        """Remove a job from its key. Remove the key if this was its last job."""
        key = self.of(job)
        key.jobs -= 1
        if key.jobs == 0:
            assert key.taken == 0 and key.first is None
            del self.by_name[key.name]
            self._labels.total -= len(key.name)
            self.slots[key.slot] = None
            self.free_slots.append(key.slot)
        job.key = NO_SLOT

    def first(self) -> Job | None:
        """Return the job to take next among all open keys, or None if no key is open."""
        opened = self._open
        return opened[0].first if opened else None

    def oldest(self) -> i64:
        """Return the earliest time at which the first job of an open key became ready, or NEVER if no key is open."""
        return self._by_age.next_due

    def first_of(self, name: bytes) -> Job | None:
        """Return the job to take next of one key, or None if the key has no ready job or has reached its limit."""
        key = self.by_name.get(name)
        return key.first if key is not None and key.pos != NOWHERE else None

    def push(self, job: Job) -> None:
        key = self.of(job)
        key.push(job)
        self.ready += 1
        if key.pos == NOWHERE:
            self._open_up(key)
        elif key.first is job:
            self._by_age.set(key, job.since)
            if not self.fair:
                key.rank = job.priority
                key.rank_order = job.order
                self._up(key, key.pos)

    def remove(self, job: Job) -> None:
        key = self.of(job)
        was_first = key.first is job
        key.remove(job)
        self.ready -= 1
        if was_first and key.pos != NOWHERE:
            self._first_left(key)

    def set_priority(self, job: Job, priority: i64) -> None:
        """Change the priority of a ready job. In fair order, its key keeps its turn."""
        key = self.of(job)
        key.remove(job)
        job.priority = priority
        key.push(job)
        first = key.first
        if key.pos != NOWHERE and first is not None:
            self._by_age.set(key, first.since)
            if not self.fair:
                key.rank = first.priority
                key.rank_order = first.order
                self._up(key, key.pos)
                self._down(key, key.pos)

    def take(self, job: Job) -> None:
        """Count a ready job as taken.

        Its key may reach its limit. In fair order, the key goes behind all other open keys.
        """
        key = self.of(job)
        key.taken += 1
        key.remove(job)
        self.ready -= 1
        if self.limit > 0 and key.taken >= self.limit:
            if key.pos != NOWHERE:
                self._close(key)
        elif key.pos != NOWHERE:
            self._first_left(key)
            if self.fair and key.first is not None:
                self._give_turn(key)
                self._down(key, key.pos)

    def give_back(self, job: Job) -> None:
        """Count a job as no longer taken. Its key may then be below its limit again."""
        key = self.of(job)
        key.taken -= 1
        if key.pos == NOWHERE:
            self._open_up(key)

    def set_limit(self, limit: i32) -> None:
        """Change the limit of taken jobs per key. Jobs that are taken stay taken."""
        self.limit = limit
        self.lowered = False
        for key in self.by_name.values():
            if limit > 0 and key.taken > limit:
                self.lowered = True
            if key.pos == NOWHERE:
                self._open_up(key)
            elif limit > 0 and key.taken >= limit:
                self._close(key)

    def set_fair(self, fair: bool) -> None:
        """Set whether open keys are served one after the other (fair), or ranked by their first jobs."""
        self.fair = fair
        opened = self._open
        self._open = []
        for key in opened:
            key.pos = NOWHERE
        for key in opened:
            self._open_up(key)

    def open_keys(self) -> list[Key]:
        """Return the keys that have a ready job and are below their limit, in no particular order. Used by tests."""
        return list(self._open)

    def some_ready(self, count: int) -> list[Job]:
        """Return up to `count` ready jobs that are cheap to remove.

        The jobs of the newest key come first. The first job of each key comes last among its jobs.
        """
        found: list[Job] = []
        for key in reversed(self.by_name.values()):
            rest = key.rest
            if rest is not None:
                found.extend(rest.items[: -(count - len(found)) - 1 : -1])
            if key.first is not None and len(found) < count:
                found.append(key.first)
            if len(found) == count:
                break
        return found

    def all_keys(self) -> list[Key]:
        """Return all keys in the order of their creation. Used by tests."""
        return list(self.by_name.values())

    def _first_left(self, key: Key) -> None:
        """Update the rank of a key after its first ready job left. Remove a key without ready jobs from the heap."""
        first = key.first
        if first is None:
            self._close(key)
            return
        self._by_age.set(key, first.since)
        if not self.fair:
            key.rank = first.priority
            key.rank_order = first.order
            self._down(key, key.pos)

    def _give_turn(self, key: Key) -> None:
        self._turn += 1
        key.rank = self._turn
        key.rank_order = 0

    def _open_up(self, key: Key) -> None:
        """Add a key to the heap of open keys if it has a ready job and is below its limit."""
        first = key.first
        if first is None or (self.limit > 0 and key.taken >= self.limit):
            return
        if self.fair:
            self._give_turn(key)
        else:
            key.rank = first.priority
            key.rank_order = first.order
        self._by_age.set(key, first.since)
        pos: i32 = len(self._open)
        self._open.append(key)
        self._up(key, pos)

    def _close(self, key: Key) -> None:
        self._by_age.clear(key)
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
