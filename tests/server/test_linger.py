"""The event loop stays awake if the next command usually comes at once, and sleeps otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.server.linger import Linger

from .serving import Server, bulks, wait_for

MOMENT_NS = 100_000


class Loop(asyncio.AbstractEventLoop):
    """An event loop that is driven by hand. It would sleep if no callback is scheduled."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.turns = 0  # The number of ended turns.
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.soon.append(callback)

    def go_round(self, pass_ns: int = 10_000) -> None:
        """Run all scheduled callbacks once, and advance the time."""
        self.now_ns += pass_ns
        called, self.soon = self.soon, []
        for callback in called:
            callback()

    def end_turn(self) -> None:
        self.turns += 1

    @property
    def sleeps(self) -> bool:
        return not self.soon


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def linger(loop: Loop) -> Linger:
    made = Linger(loop, loop.end_turn, lambda: loop.now_ns)
    made.linger_ns = MOMENT_NS
    return made


def a_turn(loop: Loop, linger: Linger, pass_ns: int = 0) -> None:
    """Run a turn that begins now, and ends with a round of the loop that takes this long."""
    linger.turn_begins()
    loop.go_round(pass_ns)


def test_a_turn_ends_with_the_round_that_it_began_in(loop: Loop, linger: Linger) -> None:
    linger.turn_begins()
    assert loop.turns == 0
    loop.go_round()
    assert loop.turns == 1


def test_a_turn_that_the_end_of_another_begins_ends_with_the_next_round(loop: Loop) -> None:
    def end_turn() -> None:
        loop.end_turn()
        if loop.turns < 3:
            linger.turn_begins()

    linger = Linger(loop, end_turn, lambda: loop.now_ns)
    linger.turn_begins()
    for ended in (1, 2, 3):
        loop.go_round()
        assert loop.turns == ended
    assert loop.sleeps


def test_turns_continue_after_a_failed_one(loop: Loop) -> None:
    def end_turn() -> None:
        loop.end_turn()
        if loop.turns == 1:
            raise ValueError("a defect")

    linger = Linger(loop, end_turn, lambda: loop.now_ns)
    linger.turn_begins()
    with pytest.raises(ValueError, match="a defect"):
        loop.go_round()
    a_turn(loop, linger)
    assert loop.turns == 2


def test_the_loop_sleeps_at_once_after_a_first_command(loop: Loop, linger: Linger) -> None:
    a_turn(loop, linger)
    assert loop.sleeps


def test_the_loop_stays_awake_after_a_pause_shorter_than_linger(loop: Loop, linger: Linger) -> None:
    a_turn(loop, linger)
    loop.now_ns += MOMENT_NS - 1
    a_turn(loop, linger)
    for _ in range(9):
        loop.go_round()
        assert not loop.sleeps
    loop.go_round()
    assert loop.sleeps


def test_every_command_restarts_the_linger_time(loop: Loop, linger: Linger) -> None:
    a_turn(loop, linger)
    a_turn(loop, linger)
    for _ in range(50):
        a_turn(loop, linger, MOMENT_NS // 2)
        assert len(loop.soon) == 1, "it is called once a round, however many turns there were"


def test_the_loop_stays_awake_through_a_long_turn(loop: Loop, linger: Linger) -> None:
    a_turn(loop, linger)
    a_turn(loop, linger, 10 * MOMENT_NS)
    assert not loop.sleeps
    loop.go_round()
    assert not loop.sleeps


def test_one_long_pause_lets_the_loop_sleep_again(loop: Loop, linger: Linger) -> None:
    a_turn(loop, linger)
    a_turn(loop, linger)
    loop.go_round(MOMENT_NS)
    assert loop.sleeps
    loop.now_ns += MOMENT_NS
    a_turn(loop, linger)
    assert loop.sleeps


def test_without_linger_the_loop_always_sleeps(loop: Loop, linger: Linger) -> None:
    linger.linger_ns = 0
    for _ in range(3):
        a_turn(loop, linger)
        assert loop.sleeps


def test_linger_can_be_changed_at_run_time(start: Callable[..., Server]) -> None:
    wire = start("--linger", "20", "--no-journal").connect()
    assert wire.ask("CONFIG", "GET", "linger") == bulks("linger", "20")
    assert wire.ask("CONFIG", "SET", "linger", "0") == b"+OK\r\n"
    assert wire.ask("CONFIG", "GET", "linger") == bulks("linger", "0")


def test_an_idle_server_sleeps(start: Callable[..., Server]) -> None:
    server = start("--linger", "10000", "--no-journal")
    wire = server.connect()
    for _ in range(100):
        assert wire.ask("PING") == b"+PONG\r\n"
    wait_for(lambda: all(state_of(server.process.pid) == "S" for _ in range(1_000)))


def state_of(pid: int) -> str:
    """Return the state of a process: R runs, S sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
