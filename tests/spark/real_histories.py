"""Real histories for the judge: the logs of engines and of simulated clusters, as tables of events and of tubes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.journal import frame as f
from penstock.journal import layout
from penstock.journal.history.columns import batch_of
from penstock.journal.history.gather import GatheredRows
from penstock.journal.log import ALWAYS, Log
from penstock.journal.recovery.opening import open_log
from penstock.journal.segment import FrameFile, begun_segment_names
from penstock.spark.events.columns import spark_batch
from penstock.spark.events.schema import COLUMNS, arrow_schema
from penstock.testing.disk import MemoryDisk
from penstock.testing.sim.options import options_of
from penstock.testing.sim.simulation import Simulation
from penstock.testing.sim.tube_simulation import TubeSimulation
from tests.journal.random_commands import Script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.core.engine import Engine

NOON = 1_763_251_200_000
TUBES = "node string, tube_number bigint, tube string, position bigint, event string, policy string"
_EVENTS = {layout.TUBE_MADE: "made", layout.TUBE_CHANGED: "changed", layout.TUBE_DROPPED: "dropped"}

Row = dict[str, Any]


class Histories:
    """The events and tubes of some nodes, and the first position of each node."""

    def __init__(self) -> None:
        self.events: list[Row] = []
        self.tubes: list[tuple[Any, ...]] = []
        self.since: dict[str, int] = {}

    def add(self, disk: Any, node: str) -> None:
        """Add the log of a node."""
        self.since[node] = 0
        schema = arrow_schema()
        names: dict[int, bytes] = {}
        segments = begun_segment_names(disk)
        for segment in segments:
            with FrameFile(disk, segment) as file:
                for piece in file.whole_pieces(segment == segments[-1]):
                    gathered = GatheredRows()
                    gathered.add(piece.data, piece.frames)
                    names |= gathered.names
                    for frame in piece.frames:
                        self.since[node] = self.since[node] or int(frame.position)
                        self._add_tubes(piece.data, frame, node)
                    if gathered.count:
                        batch = spark_batch(batch_of(gathered, names), node, schema)
                        self.events.extend(pa.Table.from_batches([batch]).to_pylist())

    def _add_tubes(self, data: bytes, frame: f.Frame, node: str) -> None:
        for nth in range(frame.rows):
            at = frame.rows_at + nth * frame.row_bytes
            event = _EVENTS.get(data[at + layout.EVENT_AT])
            if event is not None:
                fields = dict(f.var_fields(data, at, frame))
                number = int.from_bytes(data[at : at + 8], "little")
                policy = None
                if layout.TAG_JSON in fields:
                    policy = json.dumps(json.loads(fields[layout.TAG_JSON])["policy"])
                name = fields[layout.TAG_NAME].decode("utf-8", "backslashreplace")
                self.tubes.append((node, number, name, frame.position + nth, event, policy))

    def after(self, node: str, position: int) -> Histories:
        """Return the events of this node from a position on, as a turn reads them. Policies are known."""
        found = Histories()
        found.events = [row for row in self.events if row["node"] == node and row["position"] >= position]
        found.tubes = [row for row in self.tubes if row[0] == node]
        found.since = {node: position}
        return found

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame, dict[str, int]]:
        """Return the arguments of the judge."""
        return events_frame(spark, self.events), spark.createDataFrame(self.tubes, TUBES), self.since


def events_frame(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Return events as a table, without bodies."""
    columns = [(name, kind) for name, kind in COLUMNS if name != "body"]
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    return spark.createDataFrame(
        pa.Table.from_pylist(list(rows), arrow_schema(tuple(name for name, _ in columns))), ddl
    )


def of_engine(node: str, work: Callable[[Engine, Callable[[int], None]], None]) -> Histories:
    """Return the history of one engine with a log. `work` gets the engine, and a function that ends a turn."""
    disk = MemoryDisk()
    opened = open_log(disk, lambda: NOON, "boot", fsync=ALWAYS)

    def commit(now: int) -> None:
        opened.log.commit(now, now)

    work(opened.engine, commit)
    return _of_log(opened.log, disk, node)


def _of_log(log: Log, disk: MemoryDisk, node: str) -> Histories:
    log.make_durable(log.written)
    found = Histories()
    found.add(disk, node)
    return found


def add_random(histories: Histories, seed: int, steps: int, lives: int = 2) -> None:
    """Add the history of random commands on tubes of all types, with a crash after each life."""
    disk = MemoryDisk()
    now = NOON
    for life in range(lives):
        opened = open_log(disk, lambda at=now: at, "boot", fsync=ALWAYS)  # type: ignore[misc]
        engine, log = opened.engine, opened.log
        script = Script(engine, seed * 10 + life)
        others = [engine.connect(b"other-%d-%d" % (seed, each)) for each in range(2)]
        first = script.connection
        now = engine.now
        for _ in range(steps):
            now += script.chance.choice([0, 0, 1, 100, 700])
            engine.advance(now)
            script.connection = script.chance.choice([first, *others])
            script.step(now)
            log.commit(now, now)
        log.make_durable(log.written)
        disk.unlock()
    histories.add(disk, f"{seed:040x}")


def add_simulated(histories: Histories, seed: int, settings: list[str]) -> None:
    """Add the histories of all nodes of a simulated cluster."""
    options = options_of(seed, settings)
    world = (TubeSimulation if options.workload == "tubes" else Simulation)(seed, options)
    world.run()
    for node in world.nodes:
        if begun_segment_names(node.disk):
            histories.add(node.disk, f"{seed:030x}{node.number:010x}")
