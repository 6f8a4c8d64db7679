"""Deadlines fire by time, equal ones in the order in which they were set. A removed deadline does not fire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.deadlines import NOWHERE, Deadlines, Timed
from penstock.core.limits import NEVER


def drain(deadlines: Deadlines) -> list[Timed]:
    """Return all entities in the order of their deadlines."""
    found = []
    while len(deadlines):
        first = deadlines.first()
        assert first.due == deadlines.next_due
        found.append(first)
        deadlines.clear(first)
    assert deadlines.next_due == NEVER
    return found


# A script: the index of an entity, and its new deadline. None removes it.
SCRIPTS = st.lists(st.tuples(st.integers(0, 12), st.one_of(st.integers(0, 6), st.none())), max_size=100)


@given(SCRIPTS)
def test_the_heap_does_what_a_sorted_list_does(script: list[tuple[int, int | None]]) -> None:
    deadlines, entities = Deadlines(), [Timed() for _ in range(13)]
    expected: dict[int, tuple[int, int]] = {}
    for step, (which, due) in enumerate(script):
        deadlines.set(entities[which], NEVER if due is None else due)
        expected.pop(which, None)
        if due is not None:
            expected[which] = (due, step)
        assert len(deadlines) == len(expected)
        assert deadlines.next_due == min((due for due, _ in expected.values()), default=NEVER)
        for position, item in enumerate(deadlines.items):
            assert item.deadline_pos == position
    assert drain(deadlines) == [entities[which] for which in sorted(expected, key=lambda which: expected[which])]
    assert all(entity.deadline_pos == NOWHERE for entity in entities)


def test_equal_deadlines_fire_in_the_order_in_which_they_were_set() -> None:
    deadlines, entities = Deadlines(), [Timed() for _ in range(50)]
    for entity in entities:
        deadlines.set(entity, 7)
    assert drain(deadlines) == entities


def test_a_deadline_that_is_set_again_fires_after_equal_ones_set_before() -> None:
    deadlines, a, b = Deadlines(), Timed(), Timed()
    deadlines.set(a, 5)
    deadlines.set(b, 5)
    deadlines.set(a, 5)
    assert drain(deadlines) == [b, a]


def test_an_entity_has_one_entry_however_often_it_is_set() -> None:
    deadlines, entity = Deadlines(), Timed()
    for due in (9, 3, 12, 3, 3):
        deadlines.set(entity, due)
    assert len(deadlines) == 1 and deadlines.next_due == 3


def test_never_removes_a_deadline_and_a_second_clear_has_no_effect() -> None:
    deadlines, entity = Deadlines(), Timed()
    deadlines.set(entity, NEVER)
    assert len(deadlines) == 0 and deadlines.next_due == NEVER
    deadlines.set(entity, 4)
    deadlines.set(entity, NEVER)
    deadlines.clear(entity)
    deadlines.clear(entity)
    assert len(deadlines) == 0 and deadlines.next_due == NEVER and entity.deadline_pos == NOWHERE


def test_deadlines_close_to_never_are_kept_in_order() -> None:
    deadlines, last, first = Deadlines(), Timed(), Timed()
    deadlines.set(last, NEVER - 1)
    deadlines.set(first, -5)
    assert deadlines.next_due == -5
    assert drain(deadlines) == [first, last]
