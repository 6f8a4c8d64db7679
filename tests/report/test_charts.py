"""Charts draw gaps as gaps, place values correctly, and describe themselves."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.report.charts.bars import BarGroup, bars_chart
from penstock.report.charts.heatmap import SHADES, heatmap, shade_of
from penstock.report.charts.lines import ROWS, Line, Mark, lines_chart
from penstock.report.charts.matrix import matrix
from penstock.report.charts.scales import DurationBands, DurationScale, LinearScale
from penstock.report.charts.svg import clean
from penstock.report.charts.time_axis import TimeAxis

from .memory_source import DAY

AXIS = TimeAxis(int(DAY.timestamp()), 60, 6)
HOSTILE = "</title></svg><script>alert(1)</script>\" onload='x' \u202e\x00"
VALUES = st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=40)


def paths(svg: str) -> list[tuple[str, str]]:
    """Return the classes and the data of all paths. The SVG has to be well-formed."""
    root = ElementTree.fromstring(svg)
    return [(each.get("class", ""), each.get("d", "")) for each in root.iter("path")]


def points(path: str, level: bool) -> dict[int, int]:
    """Return the height of each step that a path covers: the drawing of a line, reversed."""
    found: dict[int, int] = {}
    for run in path.split("M")[1:]:
        start, rest = re.fullmatch(r"(\d+ \d+)(.*)", run).groups()  # type: ignore[union-attr]
        x, y = map(int, start.split())
        if level:
            for letter, number in re.findall(r"([hv])(-?\d+)", rest):
                if letter == "v":
                    y += int(number)
                for _ in range(int(number) if letter == "h" else 0):
                    found[x] = y
                    x += 1
            continue
        found[x] = y
        numbers = [int(each) for each in re.findall(r"-?\d+", rest.removeprefix("h0"))]
        for right, down in zip(numbers[::2], numbers[1::2]):
            assert down == 0 or right == 1
            for _ in range(right):
                x, y = x + 1, y + down
                found[x] = y
    return found


@given(VALUES, st.booleans())
def test_a_line_has_a_point_for_each_value_and_nothing_in_gaps(values: list[int | None], level: bool) -> None:
    scale = LinearScale([1000])
    axis = TimeAxis(AXIS.start_s, 60, len(values))
    drawn = paths(lines_chart("x", "title", [Line("a", 0, values, level=level)], axis, scale))
    lines, dots = ([data for classes, data in drawn if classes == wanted] for wanted in ("s0", "s0 dot"))
    solid = "".join(lines + dots)
    # A value between two gaps is a dot, because a line without length cannot be seen.
    assert all(run.endswith("h0") for data in dots for run in data.split("M")[1:])
    assert not any(run.endswith("h0") for data in lines for run in data.split("M")[1:])
    wanted = {step: round(ROWS * (1 - value / 1000)) for step, value in enumerate(values) if value is not None}
    assert points(solid, level) == wanted
    # A level is held through its gaps, as a dotted line.
    held = next((data for classes, data in drawn if classes == "s0 held"), "")
    first = min(wanted, default=len(values))
    gaps = {step for step, value in enumerate(values) if value is None and step > first}
    assert points(held, True).keys() == (gaps if level else set())


def test_a_level_before_the_first_event_is_held_from_the_start() -> None:
    line = Line("a", 0, [None, None, 5], level=True, before=10)
    (_, solid), (_, held) = paths(lines_chart("x", "t", [line], TimeAxis(AXIS.start_s, 60, 3), LinearScale([10])))
    assert points(held, True) == {0: 0, 1: 0} and points(solid, True) == {2: 50}


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0], ["0", "1"]),
        ([], ["0", "1"]),
        ([7], ["0", "5", "10"]),
        ([3_100], ["0", "2k", "4k"]),
        ([0.5], ["0", "0.2", "0.4", "0.6"]),
        ([30], ["0", "10", "20", "30"]),
    ],
)
def test_a_linear_scale_starts_at_zero_and_ends_at_a_round_number(values: list[float], labels: list[str]) -> None:
    assert [label for _, label in LinearScale(values).ticks()] == labels


@given(st.lists(st.floats(0, 1e10), max_size=5))
def test_every_value_is_inside_its_scale(values: list[float]) -> None:
    for scale in (LinearScale(values), DurationScale(values)):
        places = [scale.place(value) for value in values]
        assert all(0 <= place <= 1 for place in places)
        assert [scale.place(value) for value in sorted(values)] == sorted(places)
        assert 2 <= len(scale.ticks()) <= 5


@given(st.lists(st.integers(0, 10**11), min_size=1))
def test_every_duration_is_in_the_band_that_ends_at_or_above_it(values: list[int]) -> None:
    bands = DurationBands(values)
    for value in values:
        band = bands.band(value)
        assert value <= bands.ends[band] or band == len(bands.ends) - 1
        assert band == 0 or value > bands.ends[band - 1]


def test_a_duration_scale_has_readable_labels() -> None:
    assert [label for _, label in DurationScale([40, 2_000]).ticks()] == ["30 ms", "100 ms", "300 ms", "1 s", "3 s"]


@pytest.mark.parametrize(
    ("minutes", "step_s", "labels"),
    [
        (5, 60, ["16 Nov", "00:02", "00:04", "00:06"]),
        (380, 60, ["16 Nov", "02:00", "04:00", "06:00"]),
        (60 * 24 * 3, 900, ["16 Nov", "17 Nov", "18 Nov", "19 Nov"]),
        (60 * 24 * 365, 86_400, ["3 Dec", "3 Mar", "1 Jun", "30 Aug"]),
    ],
)
def test_a_time_axis_has_few_steps_and_labels_at_round_times(minutes: int, step_s: int, labels: list[str]) -> None:
    axis = TimeAxis.between(DAY, DAY + datetime.timedelta(minutes=minutes), 60, 400)
    assert axis.step_s == step_s and axis.count <= 400
    assert [label for _, label in axis.ticks()] == labels
    assert axis.step_of(int((DAY + datetime.timedelta(minutes=minutes)).timestamp())) == axis.count - 1


def test_labels_with_seconds_do_not_overlap() -> None:
    axis = TimeAxis.between(DAY, DAY, 60, 400)
    assert [label for _, label in axis.ticks()] == ["16 Nov", "00:00:30", "00:01:00"]


def test_a_chart_over_time_names_the_greatest_value_of_each_line_and_its_marks() -> None:
    lines = [Line("emails", 0, [1, None, 7, 2, 7, 0]), Line("quiet", 1, [None] * 6)]
    svg = lines_chart("x", "put, jobs per minute", lines, AXIS, LinearScale([7]), [Mark(5, "target 5")])
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-labelledby") == "x-title x-desc"
    assert root.findtext("title") == "put, jobs per minute"
    assert root.findtext("desc") == (
        "From 2026-11-16 00:00 to 2026-11-16 00:06 UTC. emails: at most 7, at 11-16 00:02. quiet: no values."
    )
    assert "target 5" in [each.text for each in root.iter("text")]


def test_cells_of_a_heatmap_are_strokes_by_shade() -> None:
    cells = {(0, 0): 100, (1, 0): 100, (3, 0): 100, (2, 1): 1}
    drawn = dict(paths(heatmap("x", "t", cells, AXIS, DurationBands([1, 3]))))
    assert drawn == {"q6": "M0 1h2M3 1h1", "q1": "M2 0h1"}


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_shade_is_between_1_and_the_darkest(one: int, other: int) -> None:
    count, greatest = sorted((one, other))
    assert 1 <= shade_of(count, greatest) <= shade_of(greatest, greatest) == SHADES


def test_bars_are_shares_of_the_greatest_value() -> None:
    root = ElementTree.fromstring(bars_chart("x", "t", ["a"], [BarGroup("one", [8]), BarGroup("two", [2])]))
    assert [each.get("width") for each in root.iter("rect") if each.get("class") == "f0"] == ["100%", "25%"]
    assert root.findtext("desc") == "one: a 8; two: a 2."


def test_every_chart_escapes_hostile_names() -> None:
    charts = [
        lines_chart("x", HOSTILE, [Line(HOSTILE, 0, [1])], AXIS, LinearScale([1]), [Mark(1, HOSTILE)]),
        heatmap("x", HOSTILE, {(0, 0): 1}, AXIS, DurationBands([1]), Mark(1, HOSTILE)),
        bars_chart("x", HOSTILE, [HOSTILE], [BarGroup(HOSTILE, [1])]),
        matrix("x", HOSTILE, [HOSTILE], [HOSTILE], {(HOSTILE, HOSTILE): 1}),
    ]
    for svg in charts:
        root = ElementTree.fromstring(svg.replace("\x00", ""))  # XML does not allow the character NUL at all.
        assert {each.tag for each in root.iter()} <= {"svg", "g", "title", "desc", "text", "line", "rect", "path"}
        assert "style=" not in svg and not any(name.startswith("on") for each in root.iter() for name in each.attrib)


def test_a_label_is_short_and_has_no_invisible_characters() -> None:
    assert clean("a\u202eb\x07c\n") == "a\ufffdb\ufffdc\ufffd" and clean(None) == "(none)"
    assert len(clean("x" * 65_536)) == 40 and clean("x" * 65_536).endswith("…")


def test_charts_need_neither_pyarrow_nor_the_core() -> None:
    code = (
        "import sys, penstock.report.charts.lines, penstock.report.charts.heatmap, penstock.report.charts.bars, "
        "penstock.report.charts.matrix; print([m for m in sys.modules if m in ('pyarrow', 'pyspark', 'numpy')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
