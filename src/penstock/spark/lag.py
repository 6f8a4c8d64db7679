"""The lag of streams of `penstock_events`: how many events of each node a query has not read, and how old they are.

Spark's progress has the position that a query has reached, and the end of each log at that time. If a listener has the
URLs of the nodes, it asks them for the present ends instead. Its figures then also grow while a query hangs.
"""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.core.errors import PenstockError
from penstock.spark.events.ranges import time_at
from penstock.spark.node import Head, Node, parse_urls

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_NODE_ID: Final = re.compile(r"[0-9a-f]{40}")
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PATH: Final = "/metrics"


@dataclass(frozen=True)
class Lag:
    """The lag of one query on one node."""

    query: str  # The name of the query, or its id if it has no name.
    node: str
    rows: int  # Positions that the query has not read.
    seconds: float | None  # Age of the oldest event among them, 0 if there is none, or None if it is unknown.


@dataclass(frozen=True)
class _Progress:
    """The place that a query has reached, and the ends of the logs at that time, by node."""

    query: str
    reached: dict[str, int]
    ends: dict[str, int]


class LagListener(StreamingQueryListener):
    """Records the lag of all streams of events in a session: `spark.streams.addListener(LagListener(url))`.

    `url`: the URLs of the nodes, as in the option of the source. Without it, rows are those of the last batch, and
    seconds are unknown.
    """

    def __init__(self, url: str | None = None, user: str | None = None, password: str | None = None) -> None:
        self._urls = () if url is None else parse_urls(url, user, password)
        self._lock = threading.Lock()
        self._progress: dict[str, _Progress] = {}  # By the id of a run of a query.
        self._server: ThreadingHTTPServer | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        reached: dict[str, int] = {}
        ends: dict[str, int] = {}
        for source in progress.sources:
            reached |= _offset_of(source.endOffset)
            ends |= _offset_of(source.latestOffset)
        if reached:
            with self._lock:
                self._progress[str(progress.runId)] = _Progress(progress.name or str(progress.id), reached, ends)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._progress.pop(str(event.runId), None)

    def lags(self) -> list[Lag]:
        """Return the present lag of each query that has finished a batch, for each of its nodes."""
        with self._lock:
            running = list(self._progress.values())
        with _Nodes(self._urls if running else ()) as nodes:
            return [
                nodes.lag(each.query, node, position, each.ends.get(node, position))
                for each in running
                for node, position in each.reached.items()
            ]

    def metrics(self) -> str:
        """Return the lags in the text format of Prometheus."""
        lags = self.lags()
        lines = [
            "# HELP penstock_spark_lag_rows Events of a node that a query has not read.",
            "# TYPE penstock_spark_lag_rows gauge",
            *(f"penstock_spark_lag_rows{_labels(lag)} {lag.rows}" for lag in lags),
            "# HELP penstock_spark_lag_seconds Age of the oldest event of a node that a query has not read.",
            "# TYPE penstock_spark_lag_seconds gauge",
            *(f"penstock_spark_lag_seconds{_labels(lag)} {lag.seconds:.3f}" for lag in lags if lag.seconds is not None),
        ]
        return "\n".join(lines) + "\n"

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> int:
        """Serve the metrics at http://host:port/metrics in a thread. Return the port; 0 chooses a free one."""
        assert self._server is None, "the metrics are already served"
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != _PATH:
                    self.send_error(404, f"not found; available path: {_PATH}")
                    return
                text = listener.metrics().encode()
                self.send_response(200)
                self.send_header("Content-Type", _CONTENT_TYPE)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        threading.Thread(target=self._server.serve_forever, name="penstock-lag", daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving the metrics."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Nodes:
    """Connections to the nodes that can be reached, for one measurement."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._nodes: dict[str, tuple[Node, Head]] = {}
        self._opened: list[Node] = []
        for url in urls:
            # A node that cannot be reached must not hide the lag of the others.
            with contextlib.suppress(PenstockError):
                node = Node(url)
                self._opened.append(node)
                head = node.head()
                self._nodes[head.node] = (node, head)

    def __enter__(self) -> _Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._opened:
            node.close()

    def lag(self, query: str, name: str, position: int, last_end: int) -> Lag:
        """Return the lag of a query that has reached a position. `last_end` is the end of the log in its progress."""
        if name not in self._nodes:
            return Lag(query, name, max(0, last_end - position), None)
        node, head = self._nodes[name]
        rows = max(0, head.end - position)
        return Lag(query, name, rows, _age_s(node, max(position, head.first)) if rows else 0.0)


def _age_s(node: Node, position: int) -> float | None:
    try:
        event_ms = time_at(node, position)
    except PenstockError:
        return None
    return None if event_ms is None else max(0.0, time.time() - event_ms / 1000)


def _offset_of(text: Any) -> dict[str, int]:
    """Return the offset of a stream of events from Spark's progress, or an empty dict for another source.

    Spark 4.0 and 4.1 can have the text of a Python dict here instead of JSON. Our offsets are Python literals in both.
    """
    try:
        found = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError):
        return {}
    if not isinstance(found, dict) or not all(_NODE_ID.fullmatch(node) for node in found):
        return {}
    return {node: position for node, position in found.items() if type(position) is int}


def _labels(lag: Lag) -> str:
    name = lag.query.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{query="{name}",node="{lag.node}"}}'
