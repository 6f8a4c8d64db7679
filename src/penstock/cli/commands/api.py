"""`penstock api`: serve the HTTP API of a server."""

from __future__ import annotations

import typer

from penstock._extras import check_packages
from penstock.cli import web_options as web
from penstock.cli.targets import Target, server_url


def api(
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
    *,
    target: Target,
) -> None:
    """Serve the HTTP API: JSON over HTTP for one server, or for several servers of a cluster.

    The API is a client of the server and has no rights of its own. Each request is run as the user who sends it, with
    HTTP Basic authentication or a token. If the server has no users, the API serves this machine only.
    docs/reference/http.md describes all paths, and GET /api/v1/openapi.json returns their description for programs.
    """
    check_packages("starlette", "uvicorn")
    from penstock.web import create_app
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
    )
    where = web.listening(bind, port, tls_cert, tls_key)
    url = server_url(target)
    web.set_up_web_logging(log_format)
    raise typer.Exit(serve(create_app(url, settings), where))
