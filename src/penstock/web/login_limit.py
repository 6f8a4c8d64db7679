"""A limit for failed logins of each client address.

An address may fail FAILURES_MAX times. Each failure is forgotten after FORGET_S. IPv6 addresses count by their /64
network, because one machine can have all addresses of it. The table has a limited size: the address that failed
longest ago is dropped first.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from typing import Final

from penstock.web.refusals import Refused

FAILURES_MAX: Final = 10
FORGET_S: Final = 6.0
ADDRESSES_MAX: Final = 10_000


class LoginLimit:
    """Counts failed logins by client address."""

    def __init__(self) -> None:
        self._full_until: OrderedDict[str, float] = OrderedDict()  # When all failures of an address are forgotten.

    def __len__(self) -> int:
        return len(self._full_until)

    def check(self, client: str) -> None:
        """Raise Refused if too many logins from this address have failed."""
        left_s = self._full_until.get(_network(client), 0.0) - time.monotonic()
        over_s = left_s - (FAILURES_MAX - 1) * FORGET_S
        if over_s > 0:
            raise Refused(
                "TOOMANY", "too many logins from this address have failed", None, Retry_After=str(int(over_s) + 1)
            )

    def failed(self, client: str) -> None:
        """Record a failed login."""
        network, now = _network(client), time.monotonic()
        self._full_until[network] = max(self._full_until.get(network, now), now) + FORGET_S
        self._full_until.move_to_end(network)
        while len(self._full_until) > ADDRESSES_MAX:
            self._full_until.popitem(last=False)


def _network(client: str) -> str:
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return client
