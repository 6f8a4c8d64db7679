"""`penstock api`: serve the HTTP API of a server."""

from __future__ import annotations

import ipaddress
import logging
import re
from importlib.util import find_spec
from typing import Annotated

import typer

from penstock.cli.commands.serve import set_up_logging
from penstock.cli.errors import USAGE, fail
from penstock.cli.option_values import parse_size
from penstock.cli.targets import Target, server_url


def api(
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDRESS", help="Listen on this address. [default: 127.0.0.1]")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="Listen on this port.")] = 7780,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with the certificates in this file.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="File with the private key of the certificate.")
    ] = None,
    path_prefix: Annotated[
        str,
        typer.Option("--path-prefix", metavar="PATH", help="Serve all paths below this one, for example /queue."),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Answer requests for this host name, too. '*' for all. Repeatable."
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Let pages of this origin use the API, for example https://app.example. '*' for all. Repeatable.",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="Believe the X-Forwarded-For and X-Forwarded-Proto headers of this address or network. Repeatable.",
        ),
    ] = None,
    max_request: Annotated[
        str, typer.Option("--max-request", metavar="SIZE", help="Refuse requests with a longer body.")
    ] = "8mb",
    connections: Annotated[
        int, typer.Option("--connections", min=4, max=100_000, help="Open at most this many connections to the nodes.")
    ] = 512,
    streams: Annotated[
        int, typer.Option("--streams", min=0, max=1_000_000, help="Serve at most this many event streams at a time.")
    ] = 20_000,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log each request: its client, method, route, status and duration.")
    ] = False,
    log_format: Annotated[str, typer.Option("--log-format", metavar="FORM", help="Form of the log: text or json.")] = (
        "text"
    ),
    *,
    target: Target,
) -> None:
    """Serve the HTTP API: JSON over HTTP for one server, or for several servers of a cluster.

    The API is a client of the server and has no rights of its own. Each request is run as the user who sends it, with
    HTTP Basic authentication or a token. If the server has no users, the API serves this machine only.
    docs/reference/http.md describes all paths, and GET /api/v1/openapi.json returns their description for programs.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ModuleNotFoundError(name="starlette" if find_spec("starlette") is None else "uvicorn")
    from penstock.web import Settings, create_app
    from penstock.web.serving import Listening, serve

    if (tls_cert is None) != (tls_key is None):
        fail("use --tls-cert and --tls-key together", USAGE)
    if log_format not in ("text", "json"):
        fail(f"--log-format is text or json, not {log_format!r}", USAGE)
    settings = Settings(
        path_prefix=_prefix(path_prefix),
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        cors_origins=tuple(_origin(each) for each in cors_origin or ()),
        trusted_proxies=tuple(_network(each) for each in trusted_proxy or ()),
        request_bytes_max=int(parse_size(max_request)),
        connections_max=connections,
        streams_max=streams,
        access_log=access_log,
    )
    url = server_url(target)
    set_up_logging(log_format, "")
    logging.getLogger("penstock").setLevel(logging.INFO)
    app = create_app(url, settings)
    raise typer.Exit(serve(app, Listening(host=bind, port=port, tls_cert=tls_cert, tls_key=tls_key)))


def _prefix(text: str) -> str:
    prefix = "/" + text.strip("/") if text.strip("/") else ""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", prefix):
        fail(f"--path-prefix is a path such as /queue, not {text!r}", USAGE)
    return prefix


def _origin(text: str) -> str:
    if text != "*" and not re.fullmatch(r"https?://[^/\s]+", text):
        fail(f"--cors-origin is an origin such as https://app.example, or '*', not {text!r}", USAGE)
    return text.lower()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        fail(f"--trusted-proxy is an address such as 10.0.0.1 or a network such as 10.0.0.0/8, not {text!r}", USAGE)
