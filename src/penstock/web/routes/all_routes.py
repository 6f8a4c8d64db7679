"""All routes of /api/v1, in the order of the document."""

from __future__ import annotations

from penstock.web.route_table import Route
from penstock.web.routes import (
    account_routes,
    cluster_routes,
    job_routes,
    journal_routes,
    server_routes,
    stream_routes,
    tube_routes,
)


def all_routes() -> list[Route]:
    """Return the routes of all topics."""
    return [
        *account_routes.ROUTES,
        *server_routes.ROUTES,
        *tube_routes.ROUTES,
        *job_routes.ROUTES,
        *journal_routes.ROUTES,
        *cluster_routes.ROUTES,
        *stream_routes.ROUTES,
    ]
