"""The addresses of sockets, as logs and replies show them."""

from __future__ import annotations

import ipaddress


def shown_address(name: object) -> tuple[str, bool]:
    """Return a socket address as text, and whether it is a loopback address."""
    if isinstance(name, tuple):
        host, port = name[0], name[1]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return shown, ipaddress.ip_address(host.split("%")[0]).is_loopback
    # The client is already gone.
    return "unknown:0", False
