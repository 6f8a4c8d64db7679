"""The counters of an API process, and its own /metrics in the text format of Prometheus."""

from __future__ import annotations

import resource
import time
from collections import Counter
from typing import Final

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """Counts requests by route, method and status, and their durations by route."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self.started = time.time()
        self.dropped_streams = 0

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response. `route` is the path with its parameters, so there are few."""
        self.requests[method, route, status] += 1
        buckets = self._durations.get(route)
        if buckets is None:
            buckets = self._durations[route] = [0] * (len(_BUCKETS_S) + 1)
        at = 0
        while at < len(_BUCKETS_S) and seconds > _BUCKETS_S[at]:
            at += 1
        buckets[at] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """Return the page. `gauges` has descriptions and values by name."""
        lines = [
            "# HELP penstock_api_requests_total Requests by method, route and status.",
            "# TYPE penstock_api_requests_total counter",
        ]
        for (method, route, status), count in sorted(self.requests.items()):
            lines.append(f'penstock_api_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines += [
            "# HELP penstock_api_request_seconds Time from a request to the end of its response, by route.",
            "# TYPE penstock_api_request_seconds histogram",
        ]
        for route, buckets in sorted(self._durations.items()):
            total = 0
            for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), buckets, strict=True):
                total += count
                lines.append(f'penstock_api_request_seconds_bucket{{route="{route}",le="{bound}"}} {total}')
            lines.append(f'penstock_api_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
            lines.append(f'penstock_api_request_seconds_count{{route="{route}"}} {total}')
        used = resource.getrusage(resource.RUSAGE_SELF)
        counters = {
            "process_cpu_seconds_total": ("CPU time of the API process.", used.ru_utime + used.ru_stime),
            "penstock_api_streams_dropped_total": ("Event streams that were closed: too slow.", self.dropped_streams),
        }
        for kind, figures in (("counter", counters), ("gauge", gauges)):
            for name, (about, value) in figures.items():
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
