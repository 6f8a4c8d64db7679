"""The HTTP API: a Starlette application that serves /api/v1 for one node or a cluster, as a client of the nodes."""

from penstock.web.application import create_app
from penstock.web.settings import Settings

__all__ = ["create_app", "Settings"]
