"""All routes of /api/v1, in the order of the document."""

from __future__ import annotations

from penstock.web.route_table import Route
from penstock.web.routes import (
    account_routes,
    bulk_routes,
    check_routes,
    cluster_routes,
    document_routes,
    job_routes,
    journal_routes,
    lake_routes,
    login_routes,
    put_routes,
    server_routes,
    session_routes,
    settle_routes,
    stream_routes,
    tube_routes,
)


def all_routes() -> list[Route]:
    """Return the routes of all topics."""
    return [
        *account_routes.ROUTES,
        *login_routes.ROUTES,
        *put_routes.ROUTES,
        *session_routes.ROUTES,
        *settle_routes.ROUTES,
        *job_routes.ROUTES,
        *bulk_routes.ROUTES,
        *tube_routes.ROUTES,
        *server_routes.ROUTES,
        *check_routes.ROUTES,
        *journal_routes.ROUTES,
        *lake_routes.ROUTES,
        *cluster_routes.ROUTES,
        *stream_routes.ROUTES,
        *document_routes.ROUTES,
    ]
