"""The bytes between the two ends of a tunnel, without the bus."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.node.tunnels import WINDOW_BYTES, Inflow, Outflow
from penstock.wire.bus import TUNNEL_BYTES_MAX

# Writes, in chunks of 100,000 bytes with an end mark. None: the other side reads.
STEPS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 30), st.booleans())), max_size=20)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_all_bytes_come_in_order_and_no_more_than_a_window_is_under_way(steps: list[tuple[int, bool] | None]) -> None:
    sent: list[tuple[bytes, bool]] = []
    crowded = [False]
    out = Outflow(lambda data, ends: sent.append((data, ends)), lambda: crowded[0])
    inflow = Inflow(out.confirmed)
    written, got = bytearray(), bytearray()

    def read() -> None:
        while sent:
            data, _ = sent.pop(0)
            got.extend(data)
            inflow.read(len(data))

    for number, step in enumerate(steps):
        crowded[0] = number % 3 == 2
        if step is None:
            read()
        else:
            data = bytes([number]) * (step[0] * 100_000)
            written += data
            out.write(data, step[1])
        assert sum(len(data) for data, _ in sent) <= WINDOW_BYTES
        assert all(len(data) <= TUNNEL_BYTES_MAX for data, _ in sent)
    crowded[0] = False
    out.flow()
    read()
    assert got == written and out.waiting() == 0


def test_an_end_comes_with_the_last_byte_or_behind_it() -> None:
    sent: list[tuple[bytes, bool]] = []
    out = Outflow(lambda data, ends: sent.append((data, ends)), lambda: False)
    out.write(b"a" * (WINDOW_BYTES + 1), True)
    assert not any(ends for _, ends in sent) and out.waiting() == 1
    out.confirmed(WINDOW_BYTES)
    assert sent[-1] == (b"a", True)
    out.write(b"", True)
    assert sent[-1] == (b"", True)


def test_a_reader_that_is_held_confirms_no_bytes() -> None:
    told: list[int] = []
    inflow = Inflow(told.append)
    inflow.hold()
    inflow.read(WINDOW_BYTES)
    assert told == []
    inflow.go_on()
    assert told == [WINDOW_BYTES]
