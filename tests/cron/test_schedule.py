"""Schedules: their ticks, also when clocks change, and what happens with missed ticks."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import OutOfRange, WrongType
from penstock.cron.schedule import LATE_S, TICKS_MAX, Schedule, decode_schedule
from penstock.options import EncodedBody

HOURLY = Schedule("hourly", "0 * * * *", "tasks", EncodedBody(b"x", 0))


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def shown(ticks: list[int]) -> list[str]:
    return [datetime.fromtimestamp(tick, UTC).strftime("%m-%d %H:%M") for tick in ticks]


def ticks(schedule: Schedule, start: str, count: int) -> list[str]:
    found = [schedule.after(at(start))]
    while len(found) < count:
        found.append(schedule.after(found[-1]))
    return shown(found)


def test_a_time_that_is_skipped_runs_at_the_change_and_one_that_is_repeated_runs_once() -> None:
    nightly = dataclasses.replace(HOURLY, expression="30 2 * * *", zone="Europe/Berlin")
    assert ticks(nightly, "2026-03-28T12:00+01:00", 2) == ["03-29 01:00", "03-30 00:30"]
    assert ticks(nightly, "2026-10-24T12:00+02:00", 2) == ["10-25 00:30", "10-26 01:30"]


def test_an_hourly_schedule_runs_in_every_hour_of_a_change() -> None:
    hourly = dataclasses.replace(HOURLY, zone="Europe/Berlin")
    assert ticks(hourly, "2026-10-25T00:30+02:00", 4) == ["10-24 23:00", "10-25 00:00", "10-25 01:00", "10-25 02:00"]
    assert ticks(hourly, "2026-03-29T00:30+01:00", 3) == ["03-29 00:00", "03-29 01:00", "03-29 02:00"]


@given(
    expression=st.sampled_from(["*/7 * * * *", "0 * * * *", "30 2 * * *", "15 1-3 * * 0", "0 0 1 * *"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    moment=st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_the_last_tick_is_the_one_after_which_none_follows_in_time(
    expression: str, zone: str, moment: datetime
) -> None:
    schedule = dataclasses.replace(HOURLY, expression=expression, zone=zone)
    now = int(moment.timestamp())
    last = schedule.until(now)
    assert last <= now < schedule.after(last)


def test_missed_ticks_are_put_as_the_catch_up_policy_says() -> None:
    first = at("2026-11-18T08:00+00:00")
    now = first + 3 * 3_600 + 30 * 60
    due = dataclasses.replace(HOURLY, next=first)
    last, following = dataclasses.replace(due, catch_up="last").due(now)
    assert shown(last) == ["11-18 11:00"] and shown([following.next]) == ["11-18 12:00"]
    every, following = dataclasses.replace(due, catch_up="all").due(now)
    assert len(every) == 4 and shown([following.next]) == ["11-18 12:00"]
    none, following = dataclasses.replace(due, catch_up="none").due(now)
    assert none == [] and shown([following.next]) == ["11-18 12:00"]
    on_time, _ = dataclasses.replace(due, catch_up="none").due(first + LATE_S)
    assert shown(on_time) == ["11-18 08:00"]


def test_many_missed_ticks_are_put_in_several_steps() -> None:
    start = at("2026-01-01T00:00+00:00")
    now = start + int(timedelta(days=60).total_seconds())
    schedule = dataclasses.replace(HOURLY, catch_up="all", next=start)
    found: list[int] = []
    while schedule.next <= now:
        some, schedule = schedule.due(now)
        assert len(some) <= TICKS_MAX
        found += some
    assert len(found) == 60 * 24 + 1 and len(set(found)) == len(found)


@pytest.mark.parametrize(
    "wrong",
    [{"expression": "every day"}, {"expression": "0 0 30 2 *"}, {"zone": "Mars"}, {"catch_up": "some"}, {"name": ""}],
)
def test_an_invalid_schedule_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(OutOfRange):
        dataclasses.replace(HOURLY, **wrong).check()  # type: ignore[arg-type]


def test_a_schedule_survives_its_job() -> None:
    schedule = dataclasses.replace(HOURLY, body=EncodedBody(b"\x00\xff", 3), headers={"task": "t"}, next=7)
    assert decode_schedule(schedule.encoded()) == schedule
    for foreign in ("text", {}, {**schedule.encoded(), "color": "red"}, {**schedule.encoded(), "expression": "x"}):
        with pytest.raises(WrongType):
            decode_schedule(foreign)
