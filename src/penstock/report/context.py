"""The data that the sections of a report share: the gold tables, the time axis, and the tubes that charts show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.report.charts.lines import Line, lines_chart
from penstock.report.charts.scales import LinearScale
from penstock.report.charts.svg import clean
from penstock.report.charts.time_axis import TimeAxis
from penstock.report.gold import Gold, Row, merge, of_tubes
from penstock.report.section import Figure
from penstock.report.source import Table
from penstock.report.targets import Target

# A chart of a longer time has steps of several minutes. Panels are 300 to 500 pixels wide, so more steps could not be
# seen, but a page with six tubes in all charts would be larger than 300 KB.
STEPS_MAX: Final = 300
TUBES_MAX: Final = 6  # A chart with more lines cannot be read.
ROWS_MAX: Final = 20


@dataclass(frozen=True)
class Context:
    """A report in the making."""

    gold: Gold
    targets: Sequence[Target]
    now: datetime

    @cached_property
    def chart_tubes(self) -> list[str]:
        return self.gold.tubes[:TUBES_MAX]

    @cached_property
    def legend(self) -> list[str]:
        """The labels of the colours. Tube names that are equal when shortened stay separate entries."""
        return [clean(tube) for tube in self.chart_tubes]

    @cached_property
    def axis(self) -> TimeAxis:
        return self.axis_of(STEPS_MAX)

    def axis_of(self, steps_max: int) -> TimeAxis:
        """Return a time axis over the whole report with at most `steps_max` steps."""
        span = self.gold.span
        if span is None:
            return TimeAxis(0, 60, 1)
        return TimeAxis.between(*span, grain_s=self.gold.grain_s, steps_max=steps_max)

    @cached_property
    def table_tubes(self) -> list[str]:
        """The tubes that tables show."""
        return self.gold.tubes[:ROWS_MAX]

    def by_tube(self, rows: list[Row]) -> list[Row]:
        """Sort rows by tube, the busiest tubes first, and return the first ones."""
        place = {tube: number for number, tube in enumerate(self.gold.tubes)}
        return sorted(rows, key=lambda row: (place.get(row["tube"], len(place)), row["tube"]))[:ROWS_MAX]

    def stepped(self, table: Table, axis: TimeAxis) -> Table:
        """Return the rows of the tubes in the charts, with the number of their step in the column `minute`."""
        rows = of_tubes(table, self.chart_tubes)
        return rows.set_column(rows.schema.get_field_index("minute"), "minute", steps_of(rows["minute"], axis))

    def series(self, name: str) -> dict[tuple[str, int], Row]:
        """Return the merged rows of a table by tube and step."""
        rows = merge(self.stepped(self.gold.table(name), self.axis), ["tube", "minute"])
        return {(row["tube"], row["minute"]): row for row in rows}

    def rate_figures(self, name: str, fields: dict[str, str]) -> Iterator[Figure]:
        """Yield a chart of jobs per minute, or per second, for each field of a table. `fields` has their captions."""
        rows = self.series(name)
        unit, unit_s = ("second", 1) if self.axis.step_s < 60 else ("minute", 60)
        factor = unit_s / self.axis.step_s
        for field, caption in fields.items():
            lines = []
            for number, tube in enumerate(self.chart_tubes):
                found = (rows.get((tube, step)) for step in range(self.axis.count))
                lines.append(Line(tube, number, [None if row is None else row[field] * factor for row in found]))
            scale = LinearScale(value for line in lines for value in line.values)
            title = f"{caption}, jobs per {unit}"
            yield Figure(title, lines_chart(f"{name}-{field}", title, lines, self.axis, scale))

    @property
    def left_out(self) -> str:
        """A sentence about the tubes that the charts do not show."""
        count = len(self.gold.tubes) - len(self.chart_tubes)
        if not count:
            return ""
        named = "1 tube" if count == 1 else f"{count:,} tubes"
        return f"The charts leave out {named} with less activity. Use --tube to select the tubes to show."


def steps_of(minutes: Table, axis: TimeAxis) -> Table:
    """Return the number of the step for each time of a column."""
    seconds = pc.cast(minutes, pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
    return pc.divide(pc.subtract(seconds, axis.start_s), axis.step_s)
