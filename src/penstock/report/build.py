"""Builds a report from a source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from penstock.report.context import TUBES_MAX, Context
from penstock.report.gold import Gold
from penstock.report.section import Report
from penstock.report.sections.audit import audit
from penstock.report.sections.backlog import backlog
from penstock.report.sections.durations import runs, waits
from penstock.report.sections.failures import failures
from penstock.report.sections.keys import keys
from penstock.report.sections.lag import lag
from penstock.report.sections.rates import rates
from penstock.report.sections.redeliveries import redeliveries
from penstock.report.sections.targets import targets as targets_section
from penstock.report.sections.transitions import transitions
from penstock.report.sections.user_table import user_table
from penstock.report.sections.workers import workers
from penstock.report.source import ReportSource
from penstock.report.targets import Target
from penstock.report.units import count_text, moment_text


def build_report(
    source: ReportSource, now: datetime, tubes: Collection[str] = (), targets: Sequence[Target] = ()
) -> Report:
    """Return the report on all tubes, or on the given ones. `now` is the time of the report.

    Raise ReportError if a tube is not in the lake.
    """
    context = Context(Gold(source, tubes), targets, now)
    sections = [
        audit(source.verdict()),
        lag(source.lag(), now),
        *([targets_section(context)] if targets else []),
        *(rates(context), waits(context), runs(context), backlog(context), failures(context)),
        *(redeliveries(context), keys(context), workers(context), transitions(context)),
        *(user_table(each, context) for each in source.user_tables()),
    ]
    return Report("Queue report", _subtitle(context.gold), _totals(context.gold), sections)


def _subtitle(gold: Gold) -> str:
    if gold.span is None:
        return "No events in the selected days and tubes."
    first, last = gold.span
    end = last + timedelta(seconds=gold.grain_s)
    named = ", ".join(gold.tubes) if len(gold.tubes) <= TUBES_MAX else f"{len(gold.tubes):,} tubes"
    return f"{moment_text(first)} to {moment_text(end)} UTC · {named}"


def _totals(gold: Gold) -> list[tuple[str, str]]:
    sums = gold.merged("rates", [])[0]
    dead = gold.merged("failures", [])[0]["dead_letters"]
    again = gold.merged("redeliveries", [])[0]["redeliveries"]
    named = {"jobs put": sums["puts"], "taken": sums["takes"], "acked": sums["acks"], "failed": sums["fails"]}
    named |= {"redelivered": again, "given up": dead}
    return [(name, count_text(count)) for name, count in named.items()]
