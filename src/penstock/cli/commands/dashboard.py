"""`penstock dashboard`: serve the dashboard of a server."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from penstock._extras import check_packages
from penstock.cli import web_options as web
from penstock.cli.dashboard_process import stop_at_eof
from penstock.cli.targets import Target, server_url


def dashboard(
    bind: web.Bind = "127.0.0.1",
    port: web.Port = 7780,
    tls_cert: web.TlsCert = None,
    tls_key: web.TlsKey = None,
    path_prefix: web.PathPrefix = "",
    allow_host: web.AllowHost = None,
    cors_origin: web.CorsOrigin = None,
    trusted_proxy: web.TrustedProxy = None,
    max_request: web.MaxRequest = web.MAX_REQUEST,
    connections: web.Connections = web.CONNECTIONS,
    streams: web.Streams = web.STREAMS,
    hide_bodies: web.HideBodies = False,
    access_log: web.AccessLog = False,
    log_format: web.LogFormat = "text",
    environment: Annotated[
        str,
        typer.Option("--environment", metavar="NAME", help="Show this name on every page; production is shown in red."),
    ] = "",
    lake: Annotated[
        str, typer.Option("--lake", metavar="PLACE", help="Show the tables of this lake: a directory or s3:// URL.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only.")] = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True, help="Stop when standard input ends.")] = False,
    *,
    target: Target,
) -> None:
    """Serve the dashboard: pages in a browser that show tubes, jobs and consumers live, and change them.

    It includes the HTTP API of `penstock api`. If the server has users, each visitor signs in as one of them, and has
    the rights of this user. Otherwise the dashboard serves this machine only. docs/reference/dashboard.md describes it.
    """
    check_packages("starlette", "uvicorn", "jinja2", *(["deltalake"] if lake else []))
    from penstock.dashboard.mounting import create_dashboard
    from penstock.dashboard.options import DashboardOptions
    from penstock.web.serving import serve

    settings = web.web_settings(
        path_prefix=path_prefix,
        allow_host=allow_host,
        cors_origin=cors_origin,
        trusted_proxy=trusted_proxy,
        max_request=max_request,
        connections_max=connections,
        streams_max=streams,
        hide_bodies=hide_bodies,
        access_log=access_log,
        lake=lake,
    )
    where = web.listening(bind, port, tls_cert, tls_key)
    url = server_url(target)
    web.set_up_web_logging(log_format)
    if quiet:
        logging.getLogger("penstock").setLevel(logging.WARNING)
    if until_eof:
        stop_at_eof(sys.stdin.buffer)
    options = DashboardOptions(environment=environment)
    raise typer.Exit(serve(create_dashboard(url, settings, options), where))
