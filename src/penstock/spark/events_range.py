"""Which part of which log is to be read: places that users name become positions, and ranges of them tasks.

A position in an offset is the next one to read: {"node": 4711} has everything before 4711 behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.client.commands import find_tube
from penstock.core.errors import NotAllowed, OutOfRange, Trimmed, UnknownTube, WrongServer
from penstock.journal.frame import Frame, integer_at
from penstock.spark.events_options import EARLIEST, LATEST, EventsOptions, Place
from penstock.spark.node import Head, Node

# Where a row has the time of its event.
_TIME_AT: Final = 48


@dataclass(frozen=True)
class EventsRange(InputPartition):
    """What one task reads: positions of one node, the last one not included."""

    url: str
    node: str
    start: int
    end: int

    def __init__(self, url: str, node: str, start: int, end: int) -> None:
        for name, value in (("url", url), ("node", node), ("start", start), ("end", end)):
            object.__setattr__(self, name, value)


class Logs:
    """The logs of all nodes, for whoever plans."""

    def __init__(self, options: EventsOptions) -> None:
        self._options = options
        self._nodes: dict[str, Node] = {}  # By the ids of the nodes.
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
                raise WrongServer(f"{self._nodes[head.node]} and {node} are one node; name each node once")
            _check_right(node, head)
        except BaseException:
            node.close()
            raise
        self._nodes[head.node] = node

    def _check_tubes(self) -> None:
        """Refuse tubes that no node has: rather than one that was dropped it is a name that is misspelt."""
        for tube in self._options.tubes:
            if not any(_knows(node, tube) for node in self._nodes.values()):
                raise UnknownTube(
                    f"there is no tube {tube!r}; check its name. The history of one that was dropped is found without "
                    f'this option, by .where("tube = {tube!r}")'
                )

    def close(self) -> None:
        """Hang up."""
        for node in self._nodes.values():
            node.close()

    def heads(self) -> dict[str, Head]:
        """How far each log goes."""
        return {name: node.head() for name, node in self._nodes.items()}

    def grown(self, start: dict[str, int], wait_ms: int) -> dict[str, int]:
        """Where the logs end. If that is where they did, wait a little for one of them to grow."""
        ends = {name: head.end for name, head in self.heads().items()}
        for name, end in ends.items():
            if any(end > start.get(name, 0) for name, end in ends.items()):
                break
            self._nodes[name].wait(end, wait_ms // len(ends))
            ends[name] = self._nodes[name].head().end
        return ends

    def positions(self, place: Place, heads: dict[str, Head]) -> dict[str, int]:
        """What a place is on every node. A node that is not named begins where its log does."""
        if isinstance(place, dict):
            self.check_names(place)
            return {name: place.get(name, head.first) for name, head in heads.items()}
        if isinstance(place, int):
            return {name: _first_since(self._nodes[name], head, place) for name, head in heads.items()}
        assert place in (EARLIEST, LATEST)
        return {name: head.first if place == EARLIEST else head.end for name, head in heads.items()}

    def ends(self, heads: dict[str, Head]) -> dict[str, int]:
        """The same for the end of a batch: there, a node that is not named is read to its end."""
        place = self._options.end
        if not isinstance(place, dict):
            return {name: head.end for name, head in heads.items()}
        self.check_names(place)
        for name, head in heads.items():
            if place.get(name, 0) > head.end:
                raise OutOfRange(f"endingOffsets: the log of node {name} ends before position {place[name]}")
        return {name: place.get(name, head.end) for name, head in heads.items()}

    def check_names(self, named: dict[str, int]) -> None:
        """Refuse nodes that are not among those of the URLs, unless what they had may be lost."""
        for name in named:
            if name not in self._nodes and self._options.fails_on_loss:
                raise WrongServer(
                    f"node {name} is none of {', '.join(map(str, self._nodes.values()))}; "
                    "add its URL, or go on without it by failOnDataLoss=false"
                )

    def checked(self, starts: dict[str, int], heads: dict[str, Head]) -> dict[str, int]:
        """Where to begin, with what is not kept any more passed over if it may be; else it is refused."""
        found = {}
        for name, head in heads.items():
            start = starts.get(name, head.first)
            if self._options.fails_on_loss:
                if start < head.first:
                    raise Trimmed(
                        f"position {start} of node {name} is not kept any more; the first that is kept is "
                        f"{head.first}; go on there by failOnDataLoss=false, or keep history for longer"
                    )
                if start > head.end:
                    raise OutOfRange(
                        f"the log of node {name} ends before position {start}: it was restored, or lost its end in a "
                        f"crash; the next one is {head.end}; go on there by failOnDataLoss=false"
                    )
            found[name] = min(max(start, head.first), head.end)
        return found

    def ranges(self, starts: dict[str, int], ends: dict[str, int]) -> list[InputPartition]:
        """The tasks between two offsets."""
        most = self._options.rows_per_partition
        found: list[InputPartition] = []
        for name, end in ends.items():
            if name not in self._nodes:
                continue  # It is gone, and may be.
            url = self._nodes[name].url
            for start in range(starts.get(name, end), end, most):
                found.append(EventsRange(url, name, start, min(start + most, end)))
        return found


def _check_right(node: Node, head: Head) -> None:
    """Refuse here, in the driver, a user whom every task would be refused."""
    try:
        node.read(head.end, 1, False)
    except NotAllowed:
        raise NotAllowed(
            f"the log of {node} tells of every tube, and this user may not use every one; "
            "use one who may (tubes:*), whichever tubes are read"
        ) from None


def _knows(node: Node, tube: str) -> bool:
    try:
        node.call(find_tube(tube.encode()))
    except UnknownTube:
        return False
    return True


def time_at(node: Node, position: int) -> int | None:
    """When what a log has at a position happened, in ms; None if it is not kept."""
    piece = node.read(position, 1, False)
    frame = Frame(piece.frames, 0)
    if not frame.position <= position < frame.position + frame.rows:
        return None
    return int(integer_at(piece.frames, frame.rows_at + (position - frame.position) * frame.row_bytes + _TIME_AT))


def _first_since(node: Node, head: Head, moment_ms: int) -> int:
    """The position of the first event not before a moment. Frames are in the order of time, so it halves its way."""
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
    """The first row of a frame that is not older than a moment; the end of the frame, if there is none."""
    for index in range(frame.rows):
        if integer_at(data, frame.rows_at + index * frame.row_bytes + _TIME_AT) >= moment_ms:
            return frame.position + index
    return frame.position + frame.rows
