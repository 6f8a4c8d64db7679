"""Section: the stored result of the last audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.report.section import Section, Status, column, count_column
from penstock.report.source import AuditResult, Finding, Verdict
from penstock.report.units import moment_text

_ORDER: Final[tuple[Verdict, ...]] = ("broken", "not judged", "kept")


def audit(result: AuditResult | None) -> Section:
    """Return the section that lists for each promise whether it was kept."""
    rows = [
        {"promise": each.promise, "verdict": each.verdict, "broken": each.broken, "note": each.note}
        # The broken promises come first.
        for each in sorted(result.findings if result else (), key=lambda each: _ORDER.index(each.verdict))
    ]
    return Section(
        "audit",
        "Audit",
        "Was every promise kept, according to the history?",
        [column("promise"), column("verdict"), count_column("broken", "times broken"), column("note")],
        rows,
        "The lake was not audited. Run `penstock pipeline audit`.",
        status=_status(result),
    )


def _status(result: AuditResult | None) -> Status:
    if result is None:
        return Status("unknown", "Not audited", "Run `penstock pipeline audit` to check every promise.")
    detail = f"Audited at {moment_text(result.made_at)} UTC, turn {result.turn:,}."
    broken, kept = (_with(result.findings, verdict) for verdict in ("broken", "kept"))
    unjudged = len(result.findings) - broken - kept
    if broken:
        return Status("bad", f"{_promises(broken)} broken", detail)
    if not kept:
        return Status("unknown", "No promise was judged", detail)
    rest = f", {unjudged} not judged" if unjudged else ""
    return Status("good", f"{_promises(kept)} kept{rest}", detail)


def _with(findings: Sequence[Finding], verdict: str) -> int:
    return sum(each.verdict == verdict for each in findings)


def _promises(count: int) -> str:
    return "1 promise" if count == 1 else f"{count} promises"
