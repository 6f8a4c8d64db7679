"""Errors of a report."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class ReportError(PenstockError):
    """A report was refused: an option does not fit the lake."""
