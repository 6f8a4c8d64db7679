"""Planning: finds the positions of each node's log at which a query starts and ends, and splits them into Spark tasks.

An offset has the next position to read of each node: {"node": 4711} means that all positions before 4711 were read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from penstock.client.commands import find_tube
from penstock.core.errors import NotAllowed, OutOfRange, Trimmed, UnknownTube, WrongServer
from penstock.journal.frame import Frame, integer_at
from penstock.journal.layout import TIME_AT
from penstock.spark.events.options import EARLIEST, LATEST, EventsOptions, StartPoint
from penstock.spark.node import Head, Node


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
        self._options = options
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
        for tube in self._options.tubes:
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

    def positions(self, place: StartPoint, heads: dict[str, Head]) -> dict[str, int]:
        """Return the start position of every node. A node that `place` does not list starts at its first position."""
        if isinstance(place, dict):
            self.check_nodes(place)
            return {name: place.get(name, head.first) for name, head in heads.items()}
        if isinstance(place, int):
            return {name: first_since(self._nodes[name], head, place) for name, head in heads.items()}
        assert place in (EARLIEST, LATEST)
        return {name: head.first if place == EARLIEST else head.end for name, head in heads.items()}

    def ends(self, heads: dict[str, Head]) -> dict[str, int]:
        """Return the end position of every node for a batch: the one in endingOffsets, or the end of its log."""
        place = self._options.end
        if not isinstance(place, dict):
            return {name: head.end for name, head in heads.items()}
        self.check_nodes(place)
        for name, head in heads.items():
            if place.get(name, 0) > head.end:
                raise OutOfRange(f"endingOffsets: the log of node {name} ends before position {place[name]}")
        return {name: place.get(name, head.end) for name, head in heads.items()}

    def check_nodes(self, named: dict[str, int]) -> None:
        """Raise WrongServer if a named node is at none of the URLs, unless failOnDataLoss is off."""
        for name in named:
            if name not in self._nodes and self._options.fails_on_loss:
                raise WrongServer(
                    f"node {name} is none of {', '.join(map(str, self._nodes.values()))}; "
                    "add its URL, or continue without it with failOnDataLoss=false"
                )

    def check_starts(self, starts: dict[str, int], heads: dict[str, Head]) -> dict[str, int]:
        """Replace a start position outside its log by the nearest valid one. With failOnDataLoss, raise an error."""
        found = {}
        for name, head in heads.items():
            start = starts.get(name, head.first)
            if self._options.fails_on_loss:
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
        most = self._options.rows_per_partition
        found: list[InputPartition] = []
        for name, end in ends.items():
            if name not in self._nodes:
                continue  # The node is gone, and failOnDataLoss is off.
            url = self._nodes[name].url
            for start in range(starts.get(name, end), end, most):
                found.append(EventsRange(url, name, start, min(start + most, end)))
        return found


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
