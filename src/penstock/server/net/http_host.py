"""The Host header: which names the HTTP port answers to.

This prevents DNS rebinding. A web page of evil.example can make its own name resolve to 127.0.0.1, and then read the
answers of this port as if they were its own. But the browser still sends the name in Host.

A public name of an attacker has a dot and is no IP address. So addresses, names without a dot and names below
`.localhost` are safe, and so is the hostname of this machine. The setting `http-hosts` lists all other names. A request
without Host is answered, because browsers always send one.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import Final

# A name or an IPv4 address, or an IPv6 address in brackets, with an optional port.
_HOST: Final = re.compile(r"(?:([A-Za-z0-9_.-]{1,253})|\[([0-9A-Fa-f:.]{2,45})\])(?::[0-9]{0,5})?", re.ASCII)

_OWN_NAME: Final = socket.gethostname().lower()


class BadHost(Exception):
    """The Host header is malformed, or occurs several times."""


def named_host(headers: Sequence[bytes]) -> str:
    """Return the host that the headers name, in lower case and without its port, or "" if there is no Host header.

    Raise BadHost if the header is malformed or occurs twice.
    """
    found = None
    for header in headers:
        name, _, value = header.partition(b":")
        if name.strip().lower() != b"host":
            continue
        if found is not None:
            raise BadHost("the request has several Host headers")
        if name != name.strip():
            raise BadHost("the Host header is malformed")
        found = value.strip(b" \t").decode("latin-1")
    if not found:
        return ""
    parts = _HOST.fullmatch(found)
    if parts is None or (parts[2] and not _is_address(parts[2])):
        raise BadHost("the Host header is malformed")
    return (parts[1] or parts[2]).lower()


def is_allowed(host: str, names: Sequence[str]) -> bool:
    """Return whether a request for this host is answered. `names` is the setting `http-hosts`."""
    host = host.removesuffix(".")
    return (
        "." not in host  # This includes "", IPv6 addresses and localhost.
        or _is_address(host)
        or host.endswith(".localhost")
        or host == _OWN_NAME
        or host in names
        or "*" in names
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
