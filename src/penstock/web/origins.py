"""Who may use the API from where: proxies, the Host and Origin headers, and CORS.

A web page of evil.example can make its own name resolve to 127.0.0.1 (DNS rebinding), and a page of any site can send
requests to this machine. `Host` and `Origin` show both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from penstock.server.net.http_host import BadHost, is_allowed, named_host
from penstock.web.refusals import Refused, bad_request
from penstock.web.settings import Settings

SAFE_METHODS: Final = frozenset(["GET", "HEAD", "OPTIONS"])

# What a page of another origin may send and read, if its origin is allowed.
_CORS_METHODS: Final = "GET, HEAD, POST, PATCH, DELETE"
_CORS_HEADERS: Final = "Authorization, Content-Type, Penstock-Session, X-CSRF-Token"
_CORS_EXPOSED: Final = "ETag, Retry-After"
_CORS_AGE_S: Final = "600"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """The proxies whose X-Forwarded-For and X-Forwarded-Proto headers are believed."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._networks: list[_Network] = [ipaddress.ip_network(each, strict=False) for each in trusted]

    def _trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)

    def apply(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        """Set the client address and the scheme of a request."""
        peer = scope.get("client")
        client = peer[0] if peer else ""
        if self._networks and self._trusts(client):
            forwarded = headers.get(b"x-forwarded-for")
            if forwarded is not None:
                client = self._first_untrusted(forwarded.decode("latin-1"), client)
            scheme = headers.get(b"x-forwarded-proto", b"").strip().lower()
            if scheme in (b"http", b"https"):
                scope["scheme"] = scheme.decode()
        scope["penstock.client"] = client

    def _first_untrusted(self, forwarded: str, peer: str) -> str:
        """Return the last address in the list that is no trusted proxy: a client can write any address before it."""
        for part in reversed(forwarded.split(",")[-64:]):
            address = part.strip()
            try:
                ipaddress.ip_address(address)
            except ValueError:
                return peer
            if not self._trusts(address):
                return address
            peer = address
        return peer


def is_loopback(address: str) -> bool:
    """Return whether a client is on this machine. A client without an address uses a Unix socket."""
    if not address:
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def check_host(raw_headers: Sequence[tuple[bytes, bytes]], settings: Settings) -> None:
    """Raise Refused if the request was sent to a name that is not one of this API."""
    hosts = [b"host: " + value for name, value in raw_headers if name == b"host"]
    try:
        host = named_host(hosts)
    except BadHost as error:
        raise bad_request(str(error)) from None
    if not is_allowed(host, settings.allowed_hosts):
        raise Refused("BADHOST", "the API does not answer to the name in Host", f"start it with --allow-host {host}")


def check_origin(method: str, headers: dict[bytes, bytes], scheme: str, settings: Settings) -> None:
    """Raise Refused if a page of another origin sent an unsafe request."""
    if method in SAFE_METHODS:
        return
    origin = headers.get(b"origin")
    if origin is not None:
        text = origin.decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        # A proxy may have ended TLS, so the scheme is not compared.
        if text.partition("://")[2].lower() != host.lower() and not _is_allowed_origin(text, settings):
            raise Refused("BADORIGIN", "a page of another origin may not send this request")
    elif headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise Refused("BADORIGIN", "a page of another site may not send this request")


def _is_allowed_origin(origin: str, settings: Settings) -> bool:
    return origin in settings.cors_origins or "*" in settings.cors_origins


def cors_headers(headers: dict[bytes, bytes], settings: Settings, is_preflight: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of an allowed origin read the response. Cookies are never allowed."""
    if not settings.cors_origins:
        return []
    found = [(b"vary", b"Origin")]
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or not _is_allowed_origin(origin, settings):
        return found
    allowed = "*" if "*" in settings.cors_origins else origin
    found.append((b"access-control-allow-origin", allowed.encode("latin-1")))
    if is_preflight:
        found += [
            (b"access-control-allow-methods", _CORS_METHODS.encode()),
            (b"access-control-allow-headers", _CORS_HEADERS.encode()),
            (b"access-control-max-age", _CORS_AGE_S.encode()),
        ]
    else:
        found.append((b"access-control-expose-headers", _CORS_EXPOSED.encode()))
    return found
