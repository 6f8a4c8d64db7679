"""Home election: how a tube that lives on one node gets exactly one home before it is created.

The *claimant* is a node that wants to create a tube. (Claims of consumers, in core/claims.py, are something else.)
Protocol:
1. The claimant sends CLAIM to every peer that is not failed.
2. A peer answers CLAIMED. If it grants the election (GRANTED), it immediately records the claimant as the home. It
   removes this record only if the claimant withdraws, with UNCLAIM or with a list of homes that does not contain the
   tube. The grant therefore survives restarts of both nodes, and no timer can end it on one node only.
3. If two nodes send CLAIM for a tube at the same time, the one with the lesser id wins.
   Other nodes let commands about the tube wait until the claimant has created it or has withdrawn.
4. The claimant creates the tube when all peers that are not failed have granted the election, and these peers and the
   claimant are more than half of all members. Nodes may disagree about which nodes are failed, but two
   majorities have a node in common.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.homes import Homes
from penstock.cluster.messages import (
    CLAIM,
    CLAIMED,
    GRANTED,
    IS_SHARED,
    LIVES_ELSEWHERE,
    NODE_FAILED,
    RIVAL_PENDING,
    UNCLAIM,
    ElectionMessage,
)
from penstock.cluster.state import ClusterState
from penstock.core import waits as w
from penstock.core.copy_commands import begin_wait, end_wait, is_shared
from penstock.core.deadlines import Timed
from penstock.core.engine import quoted_name
from penstock.core.errors import CommandError, NoHome, TubeExists
from penstock.core.limits import NEVER
from penstock.core.policy import DISQUE, TubePolicy
from penstock.core.tube import Tube
from penstock.core.waits import Connection, PeerWait

# Peers that have not granted the claim are asked again after this interval, which doubles up to the maximum.
_AGAIN_MS: Final = 25
_AGAIN_MS_MAX: Final = 500


class ElectionWait(PeerWait):
    """A command that waits until the home of its tube is elected. The command is then run, here or on the home."""

    def __init__(self, number: i64, connection: Connection, tube: bytes, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.tube = tube
        self.refusal: CommandError | None = None  # The error to return instead of running the command again, if any.


class HomeElection(Timed):
    """An election for a tube that this node wants to create.

    Its deadline is the time of the next CLAIM, or of giving up.
    """

    def __init__(self, tube: bytes, number: i64, until: i64) -> None:
        super().__init__()
        self.tube = tube
        self.number = number
        self.until = until  # When the election is given up.
        self.again_ms: i64 = _AGAIN_MS
        self.yes: dict[bytes, None] = {}  # Peers that have granted the claim and whose link was not lost since.
        self.rival = b""  # The node that was last reported to claim the tube as well.
        self.waits: dict[int, ElectionWait] = {}
        self.granted = False  # The election was won, and the waiting commands are run again.


class HomeElections:
    """The elections of this node, and its answers to elections of other nodes."""

    def __init__(self, place: ClusterState, homes: Homes) -> None:
        self.by_tube: dict[bytes, HomeElection] = {}  # Elections of this node by tube.
        # Commands that wait until another node, which was granted the creation of a tube, creates it or withdraws.
        self._undecided: dict[bytes, dict[int, ElectionWait]] = {}
        self._number: i64 = 0  # The number of the last election.
        self._place = place
        self._homes = homes

    # Requests of commands

    def may_make(self, name: bytes, policy: TubePolicy) -> bool:
        """Return whether this node is allowed to create a tube now.

        It is allowed if all nodes share the tube, if this node is the only member, or if it has won the election.
        """
        if policy is DISQUE or self._place.members.size() == 1 or is_shared(Tube(name, 0, 0, policy, 0)):
            return True
        claim = self.by_tube.get(name)
        return claim is not None and self._is_agreed(claim)

    def start_and_wait(self, connection: Connection, name: bytes, tag: object, now: i64) -> ElectionWait:
        """Start or join the election for a tube, and wait for its result."""
        engine = self._place.engine
        wait = ElectionWait(engine.new_number(), connection, name, tag)
        begin_wait(engine, wait, NEVER, now)
        claim = self.start(name, now)
        claim.granted = False
        claim.waits[wait.number] = wait
        self._grant_if_agreed(claim, now)
        return wait

    def wait_for_decision(self, connection: Connection, name: bytes, tag: object, now: i64) -> ElectionWait:
        """Wait until the node that was granted the creation of a tube has created it or has withdrawn.

        If the command were forwarded to this node immediately, this node could lose its election in the meantime.
        """
        engine = self._place.engine
        wait = ElectionWait(engine.new_number(), connection, name, tag)
        wait.refusal = self._not_yet(name, self._homes.home_of(name))
        begin_wait(engine, wait, self._place.members.timeout_ms, now)
        self._undecided.setdefault(name, {})[wait.number] = wait
        return wait

    def end_decided(self) -> None:
        """Run the commands again that waited for the decision of another node, if it has decided."""
        for name in [name for name in self._undecided if not self._homes.is_promised(name)]:
            for wait in list(self._undecided.pop(name).values()):
                wait.refusal = None
                end_wait(self._place.engine, wait, w.SERVED)

    def waiting(self) -> int:
        """Return how many commands wait for elections of this node and of others."""
        mine = sum([len(claim.waits) for claim in self.by_tube.values()])
        return mine + sum([len(waits) for waits in self._undecided.values()])

    def start(self, name: bytes, now: i64) -> HomeElection:
        """Return the election for a tube; start it if there is none."""
        claim = self.by_tube.get(name)
        if claim is None:
            # The clock is used so that answers to an election before a restart do not match one after it.
            self._number = max(self._number + 1, now)
            claim = HomeElection(name, self._number, now + self._place.members.timeout_ms)
            self.by_tube[name] = claim
            self._ask(claim)
            self._place.deadlines.set(claim, now + claim.again_ms)
        return claim

    def wait_ended(self, wait: ElectionWait) -> None:
        """Remove the wait of a command. If no other command waits for the election, withdraw from it."""
        undecided = self._undecided.get(wait.tube)
        if undecided is not None and undecided.pop(wait.number, None) is not None and not undecided:
            del self._undecided[wait.tube]
        claim = self.by_tube.get(wait.tube)
        if claim is not None and claim.waits.pop(wait.number, None) is not None:
            if not claim.waits and not claim.granted:
                self._withdraw(claim)

    # Events of the engine and of links

    def tube_made(self, tube: Tube) -> None:
        claim = None if is_shared(tube) else self.by_tube.pop(tube.name, None)
        if claim is not None:
            self._place.deadlines.clear(claim)
            self._end(claim, None)

    def resend_after_list(self, node: bytes) -> None:
        """Send CLAIM for all elections to `node` again, after this node sent its list of tubes to `node`.

        The list makes `node` remove its grants to this node. A restart of `node` may also have lost them.
        """
        self.link_down(node)
        for claim in self.by_tube.values():
            self._place.outbox.send(node, ElectionMessage(CLAIM, claim.tube, claim.number))

    def link_down(self, node: bytes) -> None:
        """Discard the grants of a node whose link is down.

        The elections get new numbers, so that answers of the node that are in transit are ignored.
        """
        for claim in self.by_tube.values():
            claim.yes.pop(node, None)
            self._number += 1
            claim.number = self._number

    def reset(self) -> None:
        """Withdraw from all elections."""
        for claim in list(self.by_tube.values()):
            self._withdraw(claim)

    # Elections of other nodes

    def receive_claim(self, sender: bytes, message: ElectionMessage, now: i64) -> None:
        """Process CLAIM, because another node wants to create a tube: answer whether this node grants the election."""
        name = message.tube
        answer = ElectionMessage(CLAIMED, name, message.number)
        tube = self._place.engine.tubes.get(name)
        home = self._homes.home_of(name)
        mine = self.by_tube.get(name)
        if tube is not None:
            answer.verdict = IS_SHARED if is_shared(tube) else LIVES_ELSEWHERE
            answer.node = self._place.myself
        elif home and home != sender:
            answer.verdict = RIVAL_PENDING if self._homes.is_promised(name) else LIVES_ELSEWHERE
            answer.node = home
        elif mine is not None and self._place.myself < sender:
            answer.verdict = RIVAL_PENDING
            answer.node = self._place.myself
        else:
            self._homes.promise(name, sender, message.number, now)
            if mine is not None:
                # The lesser id wins. Commands that wait here are forwarded to the winner.
                self._withdraw(mine)
        self._place.outbox.send(sender, answer)

    # Elections of this node

    def receive_claimed(self, sender: bytes, message: ElectionMessage, now: i64) -> None:
        """Process CLAIMED: record that a peer granted an election of this node, or prefers a rival.

        Withdraw from the election if the tube exists already.
        """
        claim = self.by_tube.get(message.tube)
        if claim is None or claim.number != message.number:
            return
        if message.verdict == GRANTED:
            claim.yes[sender] = None
            self._grant_if_agreed(claim, now)
        elif message.verdict == IS_SHARED:
            text = f"tube {quoted_name(claim.tube)} exists as a shared queue on {self._shown(message.node)}"
            self._withdraw(claim, TubeExists(f"{text}; drop it there, or choose another name"))
        elif message.verdict == LIVES_ELSEWHERE and message.node != self._place.myself:
            if message.node in self._place.members.peers:
                self._homes.add(claim.tube, message.node, now)
                self._withdraw(claim)
            else:
                text = f"tube {quoted_name(claim.tube)} lives on {self._shown(message.node)}, which is not known here; "
                self._withdraw(claim, NoHome(text + "meet it, or remove it on all nodes: penstock cluster forget"))
        else:
            claim.rival = message.node

    def fire(self, claim: HomeElection, now: i64) -> None:
        """Send CLAIM again, or give the election up after a timeout."""
        if now >= claim.until:
            self._withdraw(claim, self._why_not(claim))
            return
        if not claim.granted:
            self._ask(claim)
        claim.again_ms = min(2 * claim.again_ms, _AGAIN_MS_MAX)
        self._place.deadlines.set(claim, min(claim.until, now + claim.again_ms))
        self._grant_if_agreed(claim, now)

    def _ask(self, claim: HomeElection) -> None:
        """Send CLAIM to every peer that has a link and has not granted the election."""
        for node in self._missing(claim):
            if self._place.members.is_linked(node):
                self._place.outbox.send(node, ElectionMessage(CLAIM, claim.tube, claim.number))

    def _missing(self, claim: HomeElection) -> list[bytes]:
        """Return the members that have not granted the election. Failed nodes are left out."""
        peers = self._place.members.peers.values()
        return [
            peer.id for peer in peers if peer.is_member() and not peer.flags & NODE_FAILED and peer.id not in claim.yes
        ]

    def _is_agreed(self, claim: HomeElection) -> bool:
        """Return whether all members that are not failed have granted the election, and are a majority."""
        members = self._place.members
        yes = [node for node in claim.yes if members.is_member(node)]
        return not self._missing(claim) and 1 + len(yes) > members.size() // 2

    def _grant_if_agreed(self, claim: HomeElection, now: i64) -> None:
        """If the election is won, end the waits of its commands, so that the commands create the tube."""
        if not claim.granted and self._is_agreed(claim):
            claim.granted = True
            self._end(claim, None)

    def _end(self, claim: HomeElection, refusal: CommandError | None) -> None:
        waits = list(claim.waits.values())
        claim.waits = {}
        for wait in waits:
            wait.refusal = refusal
            end_wait(self._place.engine, wait, w.SERVED)

    def _withdraw(self, claim: HomeElection, refusal: CommandError | None = None) -> None:
        """Withdraw from an election (UNCLAIM).

        Waiting commands get `refusal`, or are run again to find the new home.
        """
        assert self.by_tube.get(claim.tube) is claim, "a node takes part in one election for a tube"
        del self.by_tube[claim.tube]
        self._place.deadlines.clear(claim)
        for peer in self._place.members.peers.values():
            if peer.linked:
                self._place.outbox.send(peer.id, ElectionMessage(UNCLAIM, claim.tube, claim.number))
        self._end(claim, refusal)

    def _why_not(self, claim: HomeElection) -> CommandError:
        missing = self._missing(claim)
        if claim.rival and claim.rival not in missing:
            return self._not_yet(claim.tube, claim.rival)
        if self._is_agreed(claim):
            return NoHome(f"tube {quoted_name(claim.tube)} could not be created; try again")
        if not missing:
            text = f"tube {quoted_name(claim.tube)} cannot be created while most nodes cannot be reached"
            return NoHome(f"{text}; wait until they are back, or remove lost ones: penstock cluster forget")
        text = f"tube {quoted_name(claim.tube)} cannot be created while {self._shown(missing[0])} cannot be reached"
        return NoHome(f"{text}; wait until it is back, or remove it: penstock cluster forget {missing[0].decode()}")

    def _not_yet(self, tube: bytes, node: bytes) -> CommandError:
        return NoHome(f"tube {quoted_name(tube)} may soon be created on {self._shown(node)}; try again")

    def _shown(self, node: bytes) -> str:
        return self._place.describe(node)
