"""The settings of the API process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the API process. `penstock api --help` describes them."""

    path_prefix: str = ""  # For example /queue, if a proxy serves the API below this path.
    allowed_hosts: tuple[str, ...] = ()  # Names in `Host`, besides those that are always allowed.
    cors_origins: tuple[str, ...] = ()  # Origins whose pages may read responses; "*" for all.
    trusted_proxies: tuple[str, ...] = ()  # Addresses whose X-Forwarded-* headers are believed.
    request_bytes_max: int = REQUEST_BYTES_MAX
    connections_max: int = 512  # To the nodes.
    streams_max: int = 20_000  # Open event streams.
    wait_s_max: float = 300.0  # The longest time that a request can wait for a job.
    tick_s: float = 1.0  # The interval of the event stream.
    access_log: bool = False
    hide_bodies: bool = False  # No response contains a job's body or headers.
    lake: str = ""  # The place of a lake whose tables /lake shows.
    login_ttl_s: int = 12 * 3_600
