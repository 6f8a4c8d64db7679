"""`penstock cluster rehome`: a standby or a backup becomes the node that it was made of.

In this order: see that the directory can be opened, that the cluster has given the node up, and agree with every node
that can be reached on an epoch that nobody has had. From then on the old one is refused, whether the new one is there
or not. Only then does the directory become the node.
"""

from __future__ import annotations

import datetime
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from penstock.cli.exits import REFUSED, USAGE, fail, reading_answers, sentence_of
from penstock.cli.nodes import NODES_FILE, NOT_ASKED, address_of, is_found, node_at, nodes_of, where
from penstock.cli.output import Output, Record, told
from penstock.cli.target import Target, place_of
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.journal.disk import RealDisk
    from penstock.journal.identity import Identity

# The old one may have been opened so often since, without giving out an id that the new one gives out, too.
_EPOCHS_APART: Final = 1_000

# By how much an epoch of the node is greater than the last one: by chance, so that two who do this at once, and cannot
# reach the same nodes, do not choose the same. Then the lesser one steps down when they meet.
_LEAP_MAX: Final = 1_000_000


def run(directory: str, via: str | None, nodes_file: str, force: bool, dry_run: bool, out: Output) -> None:
    """Do it, or say why not."""
    from penstock.journal.disk import ReadOnlyDisk, RealDisk
    from penstock.journal.identity import identity

    if via is None and not force:
        fail("name another node of its cluster with --via; or say --force, if it was alone and is surely gone", USAGE)
    if via is not None and place_of(via).directory is not None:
        fail("--via names a server: another node of the cluster", USAGE)
    with told(directory):
        who = identity(ReadOnlyDisk(directory))  # Before anything is made.
        disk = RealDisk(directory)
        disk.lock()
        try:
            _check(disk, directory)
            reach = _reach(disk)
            cluster = Cluster(Target(url=via), who.node)
            if via is not None:
                cluster.look()
            why_not = cluster.why_not()
            if why_not and not force:
                fail(f"node {who.node} may still be there: {'; '.join(why_not)}. If you know better: --force", REFUSED)
            epoch = cluster.last_epoch(who.node_epoch)
            if not dry_run:
                epoch = cluster.agree_on_next(epoch)
                disk.replace(nodes_file, cluster.table().encode())
                _become(disk, who, epoch)
        finally:
            disk.unlock()
    position, moment = reach
    start = f"penstock serve --dir {directory}{cluster.ports()}"
    if nodes_file != NODES_FILE:
        start += f" --cluster-config-file {nodes_file}"
    done = f"would become node {who.node}, after epoch" if dry_run else f"is node {who.node}, in epoch"
    out.done(
        f"{directory} {done} {epoch}, as it was at {moment}, position {position:,}. "
        f"{cluster.told_missed()}Start it with the settings of the old one: {start}",
        node=who.node,
        epoch=epoch,
        position=position,
        time=moment,
        done=not dry_run,
        start=start,
        missed=list(cluster.missed),
    )


def _check(disk: RealDisk, directory: str) -> None:
    """See that it can be opened."""
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.journal.check import check_log
    from penstock.journal.segment import segment_names

    if not segment_names(disk):
        fail(f"{directory}: there is no log here; a standby has to catch up once before it can become its node")
    with bytes_bar("checking") as progress:
        checked = check_log(disk, boot_id(), progress)
    if checked.refused:
        fail(f"{directory}: it cannot be opened: {checked.refused}")


def _reach(disk: RealDisk) -> tuple[int, str]:
    """The last position of a log, and when that was."""
    from penstock.journal.segment import FrameFile, is_segment, segment_names, snapshot_names

    position, time_ms = 0, 0
    for name in [*reversed(segment_names(disk)), *snapshot_names(disk)[-1:]]:
        with FrameFile(disk, name) as file:
            position, time_ms = file.header.position - 1, file.header.created
            for piece in file.run() if is_segment(name) else ():
                last = piece.frames[-1]
                position, time_ms = last.position + last.rows - 1, last.wall_ms
        if position >= 0:
            break
    return position, datetime.datetime.fromtimestamp(time_ms / 1000).isoformat(" ", "milliseconds")


@dataclass
class Cluster:
    """The other nodes, and what they say of the one that is lost."""

    target: Target
    lost: str
    nodes: dict[str, Record] = field(default_factory=dict)  # Who can be asked, and where others find it.
    seen: list[tuple[str, Record]] = field(default_factory=list)  # What those say of the lost one who know it.
    forgotten: bool = False  # Somebody was told to forget it.
    missed: dict[str, str] = field(default_factory=dict)  # Who cannot be asked, and why.

    def look(self) -> None:
        """Ask everybody."""
        with node_at(self.target, {"flags": ["myself"]}) as queue:
            first = nodes_of(queue)
        if first[0]["node"] == self.lost:
            fail(f"{self.target.place().shown()} is node {self.lost} itself; it need not be replaced", REFUSED)
        for node in first:
            if node["node"] == self.lost:
                continue
            try:
                with node_at(self.target, node) as queue:
                    known = {each["node"]: each for each in nodes_of(queue)}
                    with reading_answers():
                        self.forgotten |= self.lost.encode() in queue.execute("CLUSTER", "FORGET")
            except NOT_ASKED as error:
                self.missed[where(node)] = sentence_of(error)
                continue
            self.nodes[node["node"]] = node
            if self.lost in known:
                self.seen.append((node["address"], known[self.lost]))
            self._learn_addresses(known)

    def _learn_addresses(self, known: dict[str, Record]) -> None:
        """Where a node is, others know best: itself it is asked at whatever address leads there from here."""
        for id, node in self.nodes.items():
            if "myself" in node["flags"] and id in known and "myself" not in known[id]["flags"]:
                self.nodes[id] = node | {"address": known[id]["address"]}

    def why_not(self) -> list[str]:
        """What speaks against its being lost. Who has never heard of it has nothing to say."""
        found = [
            f"{address} has it as {', '.join(lost['flags']) or 'reachable'}, {lost['state']}"
            for address, lost in self.seen
            if "fail" not in lost["flags"]
        ]
        if not self.seen and not self.forgotten:
            found.append("nobody there has ever heard of it; see whether --via names a node of its cluster")
        if self._answers():
            found.append("it answers")
        return found

    def _answers(self) -> bool:
        """Whether the one that is lost answers where it was."""
        lost = self._where()
        if lost is None:
            return False
        try:
            with node_at(self.target, lost, retry_for="0s") as queue, reading_answers():
                return bool(queue.execute("CLUSTER", "MYID").decode() == self.lost)
        except NOT_ASKED:
            return False

    def _where(self) -> Record | None:
        """Where it was, as somebody knows it."""
        return next((lost for _, lost in self.seen if is_found(lost)), None)

    def told_missed(self) -> str:
        """A sentence about those who cannot be asked, if there are any."""
        if not self.missed:
            return ""
        who = ", ".join(f"{address} ({why})" for address, why in self.missed.items())
        return f"Not asked, and to hear of it from the others: {who}. "

    def ports(self) -> str:
        """Where it was found, as settings for the one that comes in its place."""
        lost = self._where()
        if lost is None:
            return ""
        _, port, bus_port = address_of(lost["address"])
        return f" --port {port}" + "".join(f" --cluster-port {each}" for each in bus_port)

    def last_epoch(self, own: int) -> int:
        """The greatest one that somebody knows."""
        return max([own, *(self._ask(node) for node in self.nodes.values())])

    def agree_on_next(self, last: int) -> int:
        """Let every node that can be reached know of an epoch that nobody has had."""
        # Nodes tell each other at once: so who was first is decided by one of them, the same whoever asks. All have to
        # know of this one then: somebody who asked others first may have been given a greater one meanwhile.
        nodes = [self.nodes[id] for id in sorted(self.nodes)]
        while True:
            epoch = last + 1 + secrets.randbelow(_LEAP_MAX)
            if not nodes or (self._raise(nodes[0], epoch) and all(self._knows(node, epoch) for node in nodes)):
                return epoch
            last = self.last_epoch(epoch)

    def _knows(self, node: Record, epoch: int) -> bool:
        """Tell a node of an epoch; False if it knows of a greater one."""
        return self._raise(node, epoch) or self._ask(node) == epoch

    def _raise(self, node: Record, epoch: int) -> bool:
        """Tell a node of an epoch; False if it knew of that, or of a greater one."""
        try:
            self._ask(node, epoch)
        except CommandError as error:
            if error.code != "STALE":
                raise
            return False
        return True

    def _ask(self, node: Record, *epoch: int) -> int:
        with node_at(self.target, node) as queue, reading_answers():
            return int(queue.execute("CLUSTER", "EPOCH", self.lost, *epoch))

    def table(self) -> str:
        """Whom the new one is to get to know, as a node keeps it."""
        from penstock.cluster.peers import Peer
        from penstock.cluster.roster import BUS_OFFSET, first_text

        peers = []
        for id, node in self.nodes.items():
            host, port, bus_port = address_of(node["address"])
            peers.append(Peer(id.encode(), host, int(port), int(bus_port[0]) if bus_port else int(port) + BUS_OFFSET))
        return first_text(self.lost.encode(), peers)


def _become(disk: RealDisk, who: Identity, epoch: int) -> None:
    """Let a directory be the node, in an epoch."""
    from penstock.journal.identity import next_epoch

    # Last, since from now on it is the node. The log may lack what the old one did last, also that it delivered a job.
    replace(
        who,
        epoch=next_epoch(disk) + _EPOCHS_APART,
        node_epoch=epoch,
        doubtful=True,
        standby=False,
        superseded=0,
    ).write(disk)
