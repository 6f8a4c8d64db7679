"""The heap of all deadlines: delay, ttl, ttr, timeouts of waits, leases of claims, grace time of sessions.

Each object has one entry, for its nearest deadline. When this deadline changes, the entry moves within the heap. Equal
deadlines fire in the order in which they were set. Entries are removed immediately, because each object stores its
index in the heap. Rejected: lazy cancellation, which keeps an entry for every job that was acked within its ttr (30
million dead entries at 100,000 jobs per second and a ttr of five minutes), and a timing wheel, in which it is hard to
guarantee the order of deadlines that move from a coarse wheel to a finer one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from penstock.core.limits import NEVER

NOWHERE: Final = -1


@mypyc_attr(acyclic=True)
class Timed:
    """An object with a deadline, for example a job, a wait or a session."""

    due: i64  # The nearest deadline in ms; meaningful while deadline_pos is not NOWHERE.
    due_seq: i64  # Sequence number of the call that set the deadline. It orders equal deadlines.
    deadline_pos: i32  # Index in the heap, or NOWHERE.

    def __init__(self) -> None:
        self.due = NEVER
        self.due_seq = 0
        self.deadline_pos = NOWHERE


class Deadlines:
    """A 4-ary indexed heap of Timed objects, by deadline and then by the order in which deadlines were set.

    With four children per node the heap is half as deep as a binary one, and the additional comparisons stay in the
    cache.
    """

    def __init__(self) -> None:
        self.next_due: i64 = NEVER  # The nearest deadline, or NEVER. An idle shell has to check only this.
        self.items: list[Timed] = []
        self._seq: i64 = 0

    def __len__(self) -> int:
        return len(self.items)

    def set(self, item: Timed, due: i64) -> None:
        """Set the nearest deadline of an object. If `due` is NEVER, remove the object from the heap."""
        if due == NEVER:
            if item.deadline_pos != NOWHERE:
                self._remove(item)
            return
        seq = self._seq + 1
        self._seq = seq
        if item.deadline_pos == NOWHERE:
            item.due = due
            item.due_seq = seq
            pos: i32 = len(self.items)
            self.items.append(item)
            self._up(item, pos)
        else:
            # The new seq is the greatest, so the entry moves up only if its deadline is earlier than before.
            nearer = due < item.due
            item.due = due
            item.due_seq = seq
            if nearer:
                self._up(item, item.deadline_pos)
            else:
                self._down(item, item.deadline_pos)
        self.next_due = self.items[0].due

    def clear(self, item: Timed) -> None:
        if item.deadline_pos != NOWHERE:
            self._remove(item)

    def first(self) -> Timed:
        """Return the object with the nearest deadline. The heap must not be empty."""
        return self.items[0]

    def _remove(self, item: Timed) -> None:
        items = self.items
        pos = item.deadline_pos
        item.deadline_pos = NOWHERE
        last = items.pop()
        if last is not item:
            last.deadline_pos = pos
            if pos > 0 and self._before(last, items[(pos - 1) >> 2]):
                self._up(last, pos)
            else:
                self._down(last, pos)
        self.next_due = items[0].due if items else NEVER

    def _before(self, a: Timed, b: Timed) -> bool:
        return a.due < b.due or (a.due == b.due and a.due_seq < b.due_seq)

    def _up(self, item: Timed, start: i32) -> None:
        items = self.items
        pos = start
        due = item.due
        seq = item.due_seq
        while pos > 0:
            parent: i32 = (pos - 1) >> 2
            other = items[parent]
            if other.due < due or (other.due == due and other.due_seq < seq):
                break
            items[pos] = other
            other.deadline_pos = pos
            pos = parent
        items[pos] = item
        item.deadline_pos = pos

    def _down(self, item: Timed, start: i32) -> None:
        items = self.items
        size: i32 = len(items)
        pos = start
        due = item.due
        seq = item.due_seq
        while True:
            child: i32 = (pos << 2) + 1
            if child >= size:
                break
            best = items[child]
            best_pos = child
            end = child + 4
            if end > size:
                end = size
            child += 1
            while child < end:
                other = items[child]
                if other.due < best.due or (other.due == best.due and other.due_seq < best.due_seq):
                    best = other
                    best_pos = child
                child += 1
            if due < best.due or (due == best.due and seq < best.due_seq):
                break
            items[pos] = best
            best.deadline_pos = pos
            pos = best_pos
        items[pos] = item
        item.deadline_pos = pos
