"""Planning: finds the positions of each node's log at which a query starts and ends, and splits them into Spark tasks.

An offset has the next position to read of each node: {"node": 4711} means that all positions before 4711 were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.client.commands import find_tube
from penstock.core.errors import NotAllowed, OutOfRange, Trimmed, UnknownTube, WrongServer
from penstock.journal.frame import Frame, integer_at
from penstock.journal.layout import TIME_AT
from penstock.spark.events.filters import END, EventFilters
from penstock.spark.events.options import EventsOptions
from penstock.spark.events.places import EARLIEST, LATEST, Place, Times
from penstock.spark.node import Head, Node

# Times of a log do not decrease with the position: engine time is monotonic, and a log that is opened continues at its
# last time if the clock was set back. Rows of one turn may still be older than the time of its frame, so a filter on
# the time reads this much more on both sides. The filter is applied to the rows, so the result stays exact.
_TIME_MARGIN_MS: Final = 10_000


@dataclass(frozen=True)
class EventsRange(InputPartition):
    """The input of one Spark task: the positions of one node's log from `start` to before `end`."""

    url: str
    node: str
    start: int
    end: int


class NodeLogs:
    """Connections to the logs of all nodes. Spark's driver uses them to plan tasks."""

    def __init__(self, options: EventsOptions) -> None:
        self.options = options
        self._nodes: dict[str, Node] = {}  # By node id.
        try:
            for url in options.urls:
                self._connect(Node(url))
            self._check_tubes()
        except BaseException:
            self.close()
            raise

    def _connect(self, node: Node) -> None:
        try:
            head = node.head()
            if head.node in self._nodes:
                raise WrongServer(f"{self._nodes[head.node]} and {node} are the same node; name each node once")
            _check_permission(node, head)
        except BaseException:
            node.close()
            raise
        self._nodes[head.node] = node

    def _check_tubes(self) -> None:
        """Raise UnknownTube if no node has a selected tube, because it was more likely misspelt than dropped."""
        for tube in self.options.tubes:
            if not any(_has_tube(node, tube) for node in self._nodes.values()):
                raise UnknownTube(
                    f"there is no tube {tube!r}; check its name. To read the history of a dropped tube, replace this "
                    f'option by .where("tube = {tube!r}")'
                )

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()

    def heads(self) -> dict[str, Head]:
        """Return the first and the end position of each log."""
        return {name: node.head() for name, node in self._nodes.items()}

    def wait_for_growth(self, start: dict[str, int], wait_ms: int) -> dict[str, int]:
        """Return the ends of the logs. If none of them is beyond `start`, wait up to `wait_ms` for one to grow."""
        ends = {name: head.end for name, head in self.heads().items()}
        for name, end in ends.items():
            if any(end > start.get(name, 0) for name, end in ends.items()):
                break
            self._nodes[name].wait(end, wait_ms // len(ends))
            ends[name] = self._nodes[name].head().end
        return ends

    def positions(self, place: Place, heads: dict[str, Head]) -> dict[str, int]:
        """Return the start position of every node. A node that `place` does not list starts at its first position."""
        if isinstance(place, Times):
            return self._since(place, heads, EARLIEST)
        places = self._by_node(place, heads, EARLIEST)
        return {name: _resolve(places[name], head) for name, head in heads.items()}

    def ends(self, heads: dict[str, Head]) -> dict[str, int]:
        """Return the end position of every node for a batch: the one of the options, or the end of its log."""
        place = self.options.end
        if isinstance(place, Times):
            return self._since(place, heads, LATEST)
        places = self._by_node(place, heads, LATEST)
        found = {name: _resolve(places[name], head) for name, head in heads.items()}
        for name, head in heads.items():
            if found[name] > head.end:
                raise OutOfRange(f"endingOffsets: the log of node {name} ends before position {found[name]}")
        return found

    def _by_node(self, place: dict[str, int | str] | str, heads: dict[str, Head], default: str) -> dict[str, int | str]:
        if isinstance(place, str):
            return dict.fromkeys(heads, place)
        self.check_nodes(place)
        return {name: place.get(name, default) for name in heads}

    def _since(self, times: Times, heads: dict[str, Head], default: str) -> dict[str, int]:
        """Return for every node the position of the first event at or after its time, or its end if there is none."""
        self.check_nodes(times.by_node)
        found = {}
        for name, head in heads.items():
            moment_ms = times.by_node.get(name, times.ms)
            if moment_ms is None:
                found[name] = _resolve(default, head)
                continue
            found[name] = first_since(self._nodes[name], head, moment_ms)
            if default == EARLIEST and found[name] == head.end and self.options.fails_without_start:
                since = datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat()
                raise OutOfRange(
                    f"node {name} has no event since {since}; start at its end with "
                    "startingOffsetsByTimestampStrategy=latest"
                )
        return found

    def narrow(
        self, starts: dict[str, int], ends: dict[str, int], filters: EventFilters
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the smallest ranges that contain all events of the given ranges that match the filters."""
        least, most = filters.bounds("position")
        since_us, until_us = filters.bounds("time")
        low, high = {}, {}
        for name in ends:
            if name not in self._nodes or not filters.has_node(name):
                continue
            start, end = max(starts.get(name, ends[name]), least), min(ends[name], most + 1)
            if since_us > 0 and start < end:
                start = self._first_since(name, start, end, since_us // 1_000 - _TIME_MARGIN_MS)
            if until_us < END and start < end:
                end = self._first_since(name, start, end, until_us // 1_000 + 1 + _TIME_MARGIN_MS)
            if start < end:
                low[name], high[name] = start, end
        return low, high

    def _first_since(self, name: str, start: int, end: int, moment_ms: int) -> int:
        return min(first_since(self._nodes[name], Head(name, 0, start, end), moment_ms), end)

    def bytes_between(self, name: str, start: int, end: int) -> int:
        """Return about how many bytes of a node's log the positions from `start` to before `end` have."""
        node = self._nodes.get(name)
        if node is None:
            return 0  # The node is gone, and failOnDataLoss is off.
        files = node.segments()
        return max(0, _byte_of(node, end, files) - _byte_of(node, start, files))

    def check_nodes(self, named: Iterable[str]) -> None:
        """Raise WrongServer if a named node is at none of the URLs, unless failOnDataLoss is off."""
        for name in named:
            if name not in self._nodes and self.options.fails_on_loss:
                raise WrongServer(
                    f"node {name} is none of {', '.join(map(str, self._nodes.values()))}; "
                    "add its URL, or continue without it with failOnDataLoss=false"
                )

    def check_starts(self, starts: dict[str, int], heads: dict[str, Head]) -> dict[str, int]:
        """Replace a start position outside its log by the nearest valid one. With failOnDataLoss, raise an error."""
        found = {}
        for name, head in heads.items():
            start = starts.get(name, head.first)
            if self.options.fails_on_loss:
                if start < head.first:
                    raise Trimmed(
                        f"position {start} of node {name} is no longer kept; the first that is kept is {head.first}; "
                        "continue there with failOnDataLoss=false, or keep history for longer"
                    )
                if start > head.end:
                    raise OutOfRange(
                        f"the log of node {name} ends before position {start}: it was restored, or lost its end in a "
                        f"crash; its next position is {head.end}; continue there with failOnDataLoss=false"
                    )
            found[name] = min(max(start, head.first), head.end)
        return found

    def ranges(self, starts: dict[str, int], ends: dict[str, int]) -> list[InputPartition]:
        """Return the Spark tasks that read the logs from `starts` to before `ends`."""
        total = sum(max(0, end - starts.get(name, end)) for name, end in ends.items())
        most = min(self.options.rows_per_partition, max(1, total // self.options.partitions_min))
        found: list[InputPartition] = []
        for name, end in ends.items():
            if name not in self._nodes:
                continue  # The node is gone, and failOnDataLoss is off.
            url = self._nodes[name].url
            for start in range(starts.get(name, end), end, most):
                found.append(EventsRange(url, name, start, min(start + most, end)))
        return found


def _resolve(place: int | str, head: Head) -> int:
    if isinstance(place, int):
        return place
    assert place in (EARLIEST, LATEST)
    return head.first if place == EARLIEST else head.end


def _byte_of(node: Node, position: int, files: dict[str, int]) -> int:
    """Return the offset of a position in the files of a log together. `files` has their sizes by name, in order."""
    found = node.locate(position)
    if found is None or found.file not in files:
        return sum(files.values())
    frame = Frame(found.frames, 0)
    before = sum(size for name, size in files.items() if name < found.file)
    return before + found.offset + int(frame.length * (position - frame.position) // max(1, frame.rows))


def _check_permission(node: Node, head: Head) -> None:
    """Check in Spark's driver that the user is allowed to read the log. Otherwise the tasks would fail one by one."""
    try:
        node.read(head.end, 1, False)
    except NotAllowed:
        raise NotAllowed(
            f"the log of {node} contains all tubes, and this user may not use all of them; "
            "connect as a user with tubes:*, also to read a single tube"
        ) from None


def _has_tube(node: Node, tube: str) -> bool:
    try:
        node.call(find_tube(tube.encode()))
    except UnknownTube:
        return False
    return True


def time_at(node: Node, position: int) -> int | None:
    """Return the time in ms of the event at a position, or None if the log no longer has the position."""
    piece = node.read(position, 1, False)
    frame = Frame(piece.frames, 0)
    if not frame.position <= position < frame.position + frame.rows:
        return None
    return int(integer_at(piece.frames, frame.rows_at + (position - frame.position) * frame.row_bytes + TIME_AT))


def first_since(node: Node, head: Head, moment_ms: int) -> int:
    """Return the position of the first event at or after a time, by a binary search over the frames of the log."""
    low, high = head.first, head.end
    while low < high:
        middle = (low + high) // 2
        piece = node.read(middle, 1, False)
        frame = Frame(piece.frames, 0)
        if frame.engine_ms < moment_ms:
            low = frame.position + frame.rows
        elif frame.position <= low:
            return _row_since(piece.frames, frame, moment_ms)
        else:
            high = frame.position
    return low


def _row_since(data: bytes, frame: Frame, moment_ms: int) -> int:
    """Return the position of the first row at or after a time, or the end of the frame if it has none."""
    for index in range(frame.rows):
        if integer_at(data, frame.rows_at + index * frame.row_bytes + TIME_AT) >= moment_ms:
            return frame.position + index
    return frame.position + frame.rows
