"""The result of an audit as a section of a report."""

from __future__ import annotations

from typing import Final

from penstock.pipeline.audit import Verdict
from penstock.pipeline.sections import Column, Section, column

STATES: Final = {True: "kept", False: "broken", None: "not judged"}


def audit_section(verdict: Verdict) -> Section:
    """Return the section that lists for each guarantee whether it was kept."""
    rows = [
        {
            "promise": finding.promise + (f" ({finding.unjudged})" if finding.unjudged else ""),
            "verdict": STATES[finding.kept],
            "broken": finding.broken,
        }
        for finding in verdict.findings
    ]
    return Section(
        "audit",
        "Audit",
        "Was every guarantee kept, according to the history?",
        [column("promise"), column("verdict"), Column("times broken", lambda row: row["broken"])],
        rows,
        "Nothing was checked.",
        note=f"Checked with {verdict.events:,} events of {verdict.jobs:,} jobs.",
    )


def kept_figure(verdict: Verdict) -> tuple[str, str]:
    """Return how many guarantees were kept, as a figure of the report: its label and its value."""
    kept = sum(finding.kept is True for finding in verdict.findings)
    return "guarantees kept", f"{kept} of {len(verdict.findings)}"
