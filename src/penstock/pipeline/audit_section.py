"""The verdict of an audit as a section of a report."""

from __future__ import annotations

from typing import Final

from penstock.pipeline.audit import Verdict
from penstock.pipeline.sections import Column, Section, column

STATES: Final = {True: "kept", False: "broken", None: "not judged"}


def audit_section(verdict: Verdict) -> Section:
    """Return the section that says of each promise whether it was kept."""
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
        "Does the history show that every promise was kept?",
        [column("promise"), column("verdict"), Column("times broken", lambda row: row["broken"])],
        rows,
        "Nothing was judged.",
        note=f"Judged by {verdict.events:,} events of {verdict.jobs:,} jobs.",
    )


def kept_figure(verdict: Verdict) -> tuple[str, str]:
    """Return how many promises were kept, as a figure of a report."""
    kept = sum(finding.kept is True for finding in verdict.findings)
    return "promises kept", f"{kept} of {len(verdict.findings)}"
