"""The options that `penstock api` and `penstock dashboard` share."""

from __future__ import annotations

import ipaddress
import logging
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.errors import USAGE, fail
from penstock.cli.option_values import parse_size

if TYPE_CHECKING:
    from penstock.web import Settings
    from penstock.web.serving import Listening

Bind = Annotated[str, typer.Option("--bind", metavar="ADDRESS", help="Listen on this address.")]
Port = Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="Listen on this port.")]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with the certificates in this file.")
]
TlsKey = Annotated[
    str | None, typer.Option("--tls-key", metavar="FILE", help="File with the private key of the certificate.")
]
PathPrefix = Annotated[
    str, typer.Option("--path-prefix", metavar="PATH", help="Serve all paths below this one, for example /queue.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="Answer requests for this host name, too. '*' for all. Repeatable."
    ),
]
CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin",
        metavar="ORIGIN",
        help="Let pages of this origin use the API, for example https://app.example. '*' for all. Repeatable.",
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="Believe the X-Forwarded-For and X-Forwarded-Proto headers of this address or network. Repeatable.",
    ),
]
MaxRequest = Annotated[str, typer.Option("--max-request", metavar="SIZE", help="Refuse requests with a longer body.")]
Connections = Annotated[
    int, typer.Option("--connections", min=4, max=100_000, help="Open at most this many connections to the nodes.")
]
Streams = Annotated[
    int, typer.Option("--streams", min=0, max=1_000_000, help="Serve at most this many event streams at a time.")
]
HideBodies = Annotated[
    bool, typer.Option("--hide-bodies", help="Do not show the bodies and headers of jobs, to any user.")
]
AccessLog = Annotated[
    bool, typer.Option("--access-log", help="Log each request: its client, method, route, status and duration.")
]
LogFormat = Annotated[str, typer.Option("--log-format", metavar="FORM", help="Form of the log: text or json.")]

MAX_REQUEST: Final = "8mb"
CONNECTIONS: Final = 512
STREAMS: Final = 20_000


def web_settings(
    *,
    path_prefix: str,
    allow_host: list[str] | None,
    cors_origin: list[str] | None,
    trusted_proxy: list[str] | None,
    max_request: str,
    **settings: Any,
) -> Settings:
    """Return the settings of the API that these options mean. `settings` need no conversion."""
    from penstock.web import Settings

    return Settings(
        path_prefix=_prefix(path_prefix),
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        cors_origins=tuple(_origin(each) for each in cors_origin or ()),
        trusted_proxies=tuple(_network(each) for each in trusted_proxy or ()),
        request_bytes_max=int(parse_size(max_request)),
        **settings,
    )


def listening(bind: str, port: int, tls_cert: str | None, tls_key: str | None) -> Listening:
    from penstock.web.serving import Listening

    if (tls_cert is None) != (tls_key is None):
        fail("use --tls-cert and --tls-key together", USAGE)
    return Listening(host=bind, port=port, tls_cert=tls_cert, tls_key=tls_key)


def set_up_web_logging(log_format: str) -> None:
    from penstock.cli.commands.serve import set_up_logging

    if log_format not in ("text", "json"):
        fail(f"--log-format is text or json, not {log_format!r}", USAGE)
    set_up_logging(log_format, "")
    logging.getLogger("penstock").setLevel(logging.INFO)


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
