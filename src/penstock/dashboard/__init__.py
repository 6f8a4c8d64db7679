"""The dashboard: pages in a browser that show a queue and change it.

The server renders only the frame of a page. Modules in the browser fill it with the data of /api/v1, as the signed-in
user, and update it from the event stream. So the dashboard has no rights and no data of its own.

`penstock.dashboard` is this package, and also the function that returns the application: the package can be called.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock._extras import extra_of, not_installed

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def dashboard(
    url: str | None = None,
    *,
    environment: str = "",
    lake: str = "",
    hide_bodies: bool = False,
    allowed_hosts: Sequence[str] = (),
) -> ASGIApp:
    """Return the dashboard of a server as an ASGI application, for `app.mount("/queues", penstock.dashboard(url))`.

    `url` names the server, or several nodes of a cluster: `penstock://host:7711`. It has no user and no password,
    because each visitor signs in. `environment` is a badge on every page. `lake` is a lake whose tables are shown.
    `hide_bodies` hides the bodies of jobs. `allowed_hosts` are the names in the `Host` header under which the parent
    application is reached, besides localhost and addresses.

    Raises Unsupported for a queue that is not on a server, because the dashboard is a client.
    """
    try:
        from penstock.dashboard.mounting import mounted_dashboard
    except ModuleNotFoundError as error:
        if not extra_of(error.name):
            raise
        raise ModuleNotFoundError(not_installed(error.name, "dashboard"), name=error.name) from None
    return mounted_dashboard(url, environment, lake, hide_bodies, allowed_hosts)


class _CallablePackage(ModuleType):
    """This package. The import of any of its modules stores it in `penstock.dashboard`, in place of the function."""

    def __call__(self, *arguments: Any, **options: Any) -> ASGIApp:
        return dashboard(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
