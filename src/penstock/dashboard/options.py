"""The options of the dashboard."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    """What an administrator can choose. `penstock dashboard --help` describes the options."""

    environment: str = ""  # A badge on every page, for example "production", which is red.
