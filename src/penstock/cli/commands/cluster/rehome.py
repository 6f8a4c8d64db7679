"""`penstock cluster rehome`: replace a lost node by its standby or a backup.

Steps:
1. Check that the directory can be opened.
2. Check that the cluster considers the node lost.
3. Agree with every reachable node on a new epoch of the node. From then on all nodes refuse the old node, whether the
   new one is running or not.
4. Write the id of the node and the new epoch into the directory.
"""

from __future__ import annotations

import datetime
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.cli.cluster_nodes import (
    NODE_ERRORS,
    NODES_FILE,
    address_of,
    address_or_id,
    connect_to_node,
    has_address,
    list_nodes,
)
from penstock.cli.errors import REFUSED, USAGE, fail, message_of, parsing_answer
from penstock.cli.output import Output, Record, naming_directory
from penstock.cli.targets import Target, parse_address
from penstock.core.errors import CommandError

if TYPE_CHECKING:
    from penstock.journal.real_disk import RealDisk

# The epoch grows by a random number up to this. If two operators rehome the node at once and reach different nodes,
# they choose different epochs, and the node with the lower one steps down when the two meet.
_LEAP_MAX: Final = 1_000_000


def run(directory: str, via: str | None, nodes_file: str, force: bool, dry_run: bool, out: Output) -> None:
    """Rehome the node, or exit with the reason why that is refused."""
    from penstock.journal.identity import identity, take_over
    from penstock.journal.real_disk import ReadOnlyDisk, RealDisk

    if via is None and not force:
        fail(
            "name another node of the cluster with --via, or use --force if the node was alone and is certainly lost",
            USAGE,
        )
    if via is not None and parse_address(via).directory is not None:
        fail("--via must name a server: another node of the cluster", USAGE)
    with naming_directory(directory):
        who = identity(ReadOnlyDisk(directory))  # Fails before anything is changed.
        disk = RealDisk(directory)
        disk.lock()
        try:
            _check(disk, directory)
            reach = _last_position(disk)
            cluster = RemainingNodes(Target(url=via), who.node)
            if via is not None:
                cluster.ask_all()
            why_not = cluster.objections()
            if why_not and not force:
                fail(
                    f"node {who.node} may still be running: {'; '.join(why_not)}. Use --force to continue anyway",
                    REFUSED,
                )
            epoch = cluster.last_epoch(who.node_epoch)
            if not dry_run:
                epoch = cluster.agree_on_next(epoch)
                disk.replace(nodes_file, cluster.table().encode())
                # This is the last step, because it makes the directory the node.
                take_over(disk, who, epoch)
        finally:
            disk.unlock()
    position, moment = reach
    start = f"penstock serve --dir {directory}{cluster.ports()}"
    if nodes_file != NODES_FILE:
        start += f" --cluster-config-file {nodes_file}"
    done = f"would become node {who.node}, after epoch" if dry_run else f"is node {who.node}, in epoch"
    out.report_done(
        f"{directory} {done} {epoch}, with the state of {moment}, position {position:,}. "
        f"{cluster.missed_sentence()}Start it with the settings of the old node: {start}",
        node=who.node,
        epoch=epoch,
        position=position,
        time=moment,
        done=not dry_run,
        start=start,
        missed=list(cluster.missed),
    )


def _check(disk: RealDisk, directory: str) -> None:
    from penstock.cli.progress import bytes_bar
    from penstock.host.boot import boot_id
    from penstock.journal.recovery.check import check_log
    from penstock.journal.segment import segment_names

    if not segment_names(disk):
        fail(f"{directory}: there is no log here; a standby must catch up once before it can replace its node")
    with bytes_bar("checking") as progress:
        checked = check_log(disk, boot_id(), progress)
    if checked.refused:
        fail(f"{directory}: the queue cannot be opened: {checked.refused}")


def _last_position(disk: RealDisk) -> tuple[int, str]:
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
class RemainingNodes:
    """All nodes except the lost one, and the state of the lost node as they see it."""

    target: Target
    lost: str
    nodes: dict[str, Record] = field(default_factory=dict)  # Nodes that answer, with the addresses that others use.
    views: list[tuple[str, Record]] = field(default_factory=list)  # Address of a node, and its view of the lost node.
    forgotten: bool = False  # A node has removed the lost node with CLUSTER FORGET.
    missed: dict[str, str] = field(default_factory=dict)  # Address of each node that does not answer, and the reason.

    def ask_all(self) -> None:
        with connect_to_node(self.target, {"flags": ["myself"]}) as queue:
            first = list_nodes(queue)
        if first[0]["node"] == self.lost:
            fail(f"{self.target.address().without_password()} is node {self.lost} itself, so it is not lost", REFUSED)
        for node in first:
            if node["node"] == self.lost:
                continue
            try:
                with connect_to_node(self.target, node) as queue:
                    known = {each["node"]: each for each in list_nodes(queue)}
                    with parsing_answer():
                        self.forgotten |= self.lost.encode() in queue.execute("CLUSTER", "FORGET")
            except NODE_ERRORS as error:
                self.missed[address_or_id(node)] = message_of(error)
                continue
            self.nodes[node["node"]] = node
            if self.lost in known:
                self.views.append((node["address"], known[self.lost]))
            self._learn_addresses(known)

    def _learn_addresses(self, known: dict[str, Record]) -> None:
        """Replace the address of the --via node by the one that other nodes use, because --via may be a local one."""
        for id, node in self.nodes.items():
            if "myself" in node["flags"] and id in known and "myself" not in known[id]["flags"]:
                self.nodes[id] = node | {"address": known[id]["address"]}

    def objections(self) -> list[str]:
        """Return the reasons to believe that the node is not lost. Answers of nodes that do not know it are ignored."""
        found = [
            f"{address} sees it as {', '.join(lost['flags']) or 'reachable'}, {lost['state']}"
            for address, lost in self.views
            if "fail" not in lost["flags"]
        ]
        if not self.views and not self.forgotten:
            found.append("no node of this cluster knows it; check that --via names a node of its cluster")
        if self._answers():
            found.append("it answers")
        return found

    def _answers(self) -> bool:
        lost = self._last_record()
        if lost is None:
            return False
        try:
            with connect_to_node(self.target, lost, retry_for="0s") as queue, parsing_answer():
                return bool(queue.execute("CLUSTER", "MYID").decode() == self.lost)
        except NODE_ERRORS:
            return False

    def _last_record(self) -> Record | None:
        """Return a record of the lost node with its address, or None if there is none."""
        return next((lost for _, lost in self.views if has_address(lost)), None)

    def missed_sentence(self) -> str:
        """Return a sentence about the nodes that do not answer, or ""."""
        if not self.missed:
            return ""
        who = ", ".join(f"{address} ({why})" for address, why in self.missed.items())
        return f"Not reached, to be informed by the other nodes: {who}. "

    def ports(self) -> str:
        lost = self._last_record()
        if lost is None:
            return ""
        _, port, bus_port = address_of(lost["address"])
        return f" --port {port}" + "".join(f" --cluster-port {each}" for each in bus_port)

    def last_epoch(self, own: int) -> int:
        """Return the greatest known epoch of the lost node: `own`, or one that another node has stored."""
        return max([own, *(self._ask(node) for node in self.nodes.values())])

    def agree_on_next(self, last: int) -> int:
        """Set a new epoch on every reachable node, and return it."""
        # Nodes gossip epochs immediately, so the node with the least id decides which of two operators was first. Then
        # all nodes must have this epoch, because another operator may have set a greater one on other nodes meanwhile.
        nodes = [self.nodes[id] for id in sorted(self.nodes)]
        while True:
            epoch = last + 1 + secrets.randbelow(_LEAP_MAX)
            if not nodes or (
                self._set_epoch(nodes[0], epoch) and all(self._ensure_epoch(node, epoch) for node in nodes)
            ):
                return epoch
            last = self.last_epoch(epoch)

    def _ensure_epoch(self, node: Record, epoch: int) -> bool:
        """Set the epoch on a node. Return whether the node now has this epoch, no matter which operator set it."""
        return self._set_epoch(node, epoch) or self._ask(node) == epoch

    def _set_epoch(self, node: Record, epoch: int) -> bool:
        """Set the epoch on a node. Return False if the node already has this epoch or a greater one."""
        try:
            self._ask(node, epoch)
        except CommandError as error:
            if error.code != "STALE":
                raise
            return False
        return True

    def _ask(self, node: Record, *epoch: int) -> int:
        with connect_to_node(self.target, node) as queue, parsing_answer():
            return int(queue.execute("CLUSTER", "EPOCH", self.lost, *epoch))

    def table(self) -> str:
        """Return the content of nodes.conf for the replacement. It lists all nodes that answer."""
        from penstock.cluster.peers import Peer
        from penstock.cluster.roster import BUS_OFFSET, first_text

        peers = []
        for id, node in self.nodes.items():
            host, port, bus_port = address_of(node["address"])
            peers.append(Peer(id.encode(), host, int(port), int(bus_port[0]) if bus_port else int(port) + BUS_OFFSET))
        return first_text(self.lost.encode(), peers)
