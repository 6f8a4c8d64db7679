"""How a tube that lives on one node gets its only home: claims, before it is made.

A node that is to make such a tube asks every peer that is not failed (CLAIM). Who says yes (MAY) enters the claimant as
the home at once, and takes that back only if the claimant says so, by word (UNCLAIM) or by a list without the tube.
So a yes outlives whatever happens to either, and no timer can end it on one side and not on the other. Two who claim at
once hear of each other: the lesser id wins. More than half of all members have to have said yes, the claimant among
them, whoever is failed: that is an opinion, and two may hold at once, but two such majorities have a node in common.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.homes import Homes
from penstock.cluster.messages import (
    CLAIM,
    CLAIMED,
    IS_SHARED,
    LIVES_ELSEWHERE,
    MAY,
    MAY_SOON,
    NODE_FAILED,
    UNCLAIM,
    OfClaim,
)
from penstock.cluster.place import Place
from penstock.core import waits as w
from penstock.core.copying import begin_wait, end_wait, is_shared
from penstock.core.deadlines import Timed
from penstock.core.engine import shown
from penstock.core.errors import CommandError, NoHome, TubeExists
from penstock.core.limits import NEVER
from penstock.core.policy import DISQUE, TubePolicy
from penstock.core.tube import Tube
from penstock.core.waits import Connection, ElsewhereWait

# How long until those are asked again who have not said yes: at first, and at most.
_AGAIN_MS: Final = 25
_AGAIN_MS_MAX: Final = 500


class ClaimWait(ElsewhereWait):
    """A command that waits until it is known where its tube lives: here, or elsewhere. Then it is to be run again."""

    tube: bytes
    refusal: CommandError | None  # Why it is not to be run again, if so.

    def __init__(self, number: i64, connection: Connection, tube: bytes, tag: object) -> None:
        super().__init__(number, connection, tag)
        self.tube = tube
        self.refusal = None


class Claim(Timed):
    """A tube that this node is about to make. Its deadline is when to ask again, or to give up."""

    tube: bytes
    number: i64
    until: i64  # When it is given up.
    again_ms: i64
    yes: dict[bytes, None]  # Who has said so, and not lost its link since.
    rival: bytes  # Who was last said to be about to make it, too.
    waits: dict[int, ClaimWait]
    granted: bool  # Those who waited were told.

    def __init__(self, tube: bytes, number: i64, until: i64) -> None:
        super().__init__()
        self.tube = tube
        self.number = number
        self.until = until
        self.again_ms = _AGAIN_MS
        self.yes = {}
        self.rival = b""
        self.waits = {}
        self.granted = False


class Founding:
    """The claims of a node, and what it says to those of others."""

    claims: dict[bytes, Claim]  # Of this node, by tube.
    _number: i64  # Of the last one.
    _place: Place
    _homes: Homes

    def __init__(self, place: Place, homes: Homes) -> None:
        self.claims = {}
        self._number = 0
        self._place = place
        self._homes = homes

    # What commands want

    def may_make(self, name: bytes, policy: TubePolicy) -> bool:
        """Whether a tube may be made here now: it can be shared, there is nobody else, or it was agreed on."""
        if policy is DISQUE or self._place.members.size() == 1 or is_shared(Tube(name, 0, 0, policy, 0)):
            return True
        claim = self.claims.get(name)
        return claim is not None and self._is_agreed(claim)

    def claim(self, connection: Connection, name: bytes, tag: object, now: i64) -> ClaimWait:
        """Ask everybody whether a tube may be made here, and wait for that."""
        engine = self._place.engine
        wait = ClaimWait(engine._number(), connection, name, tag)
        begin_wait(engine, wait, NEVER, now)
        claim = self.begin(name, now)
        claim.granted = False
        claim.waits[wait.number] = wait
        self._look(claim, now)
        return wait

    def begin(self, name: bytes, now: i64) -> Claim:
        """The same, and nobody waits; or go on with what was begun."""
        claim = self.claims.get(name)
        if claim is None:
            # The clock, so that answers to a claim before a restart are not taken for those to one after it.
            self._number = max(self._number + 1, now)
            claim = Claim(name, self._number, now + self._place.members.timeout_ms)
            self.claims[name] = claim
            self._ask(claim)
            self._place.deadlines.set(claim, now + claim.again_ms)
        return claim

    def wait_ended(self, wait: ClaimWait) -> None:
        """Somebody waits no more."""
        claim = self.claims.get(wait.tube)
        if claim is not None and claim.waits.pop(wait.number, None) is not None:
            if not claim.waits and not claim.granted:
                self._withdraw(claim)

    # What the engine and the shell tell

    def tube_made(self, tube: Tube) -> None:
        """A tube came into being here."""
        claim = None if is_shared(tube) else self.claims.pop(tube.name, None)
        if claim is not None:
            self._place.deadlines.clear(claim)
            self._end(claim, None)

    def list_told(self, node: bytes) -> None:
        """A node is told what lives here, which takes back its yes; and it may have lost its memory of it before."""
        self.link_down(node)
        for claim in self.claims.values():
            self._place.mail.send(node, OfClaim(CLAIM, claim.tube, claim.number))

    def link_down(self, node: bytes) -> None:
        """A node does not hear us any more. What it has said does not count, nor does what is under way from it."""
        for claim in self.claims.values():
            claim.yes.pop(node, None)
            self._number += 1
            claim.number = self._number

    def begin_anew(self) -> None:
        """Know nobody."""
        for claim in list(self.claims.values()):
            self._withdraw(claim)

    # Claims of others

    def receive_claim(self, sender: bytes, message: OfClaim, now: i64) -> None:
        """A node wants to make a tube."""
        name = message.tube
        answer = OfClaim(CLAIMED, name, message.number)
        tube = self._place.engine.tubes.get(name)
        home = self._homes.home_of(name)
        mine = self.claims.get(name)
        if tube is not None:
            answer.verdict = IS_SHARED if is_shared(tube) else LIVES_ELSEWHERE
            answer.node = self._place.myself
        elif home and home != sender:
            answer.verdict = MAY_SOON if self._homes.is_promised(name) else LIVES_ELSEWHERE
            answer.node = home
        elif mine is not None and self._place.myself < sender:
            answer.verdict = MAY_SOON
            answer.node = self._place.myself
        else:
            self._homes.promise(name, sender, message.number, now)
            if mine is not None:
                # The lesser id wins; whoever waits here goes there.
                self._withdraw(mine)
        self._place.mail.send(sender, answer)

    # Claims of this node

    def receive_claimed(self, sender: bytes, message: OfClaim, now: i64) -> None:
        """A node says whether a tube may be made here."""
        claim = self.claims.get(message.tube)
        if claim is None or claim.number != message.number:
            return
        if message.verdict == MAY:
            claim.yes[sender] = None
            self._look(claim, now)
        elif message.verdict == IS_SHARED:
            text = f"tube {shown(claim.tube)} exists as a queue of Disque's on {self._shown(message.node)}"
            self._withdraw(claim, TubeExists(f"{text}; drop it there, or choose another name"))
        elif message.verdict == LIVES_ELSEWHERE and message.node != self._place.myself:
            if message.node in self._place.members.peers:
                self._homes.lives(claim.tube, message.node, now)
                self._withdraw(claim)
            else:
                text = f"tube {shown(claim.tube)} lives on {self._shown(message.node)}, which this node does not know; "
                self._withdraw(claim, NoHome(text + "meet it, or let all others forget it"))
        else:
            claim.rival = message.node

    def fire(self, claim: Claim, now: i64) -> None:
        """Ask again, or give up."""
        if now >= claim.until:
            self._withdraw(claim, self._why_not(claim))
            return
        if not claim.granted:
            self._ask(claim)
        claim.again_ms = min(2 * claim.again_ms, _AGAIN_MS_MAX)
        self._place.deadlines.set(claim, min(claim.until, now + claim.again_ms))
        self._look(claim, now)

    def _ask(self, claim: Claim) -> None:
        """Ask everybody who has not said yes and can hear it."""
        for node in self._missing(claim):
            if self._place.members.is_linked(node):
                self._place.mail.send(node, OfClaim(CLAIM, claim.tube, claim.number))

    def _missing(self, claim: Claim) -> list[bytes]:
        """Who has not said yes. Those who are failed are not waited for."""
        peers = self._place.members.peers.values()
        return [
            peer.id for peer in peers if peer.is_member() and not peer.flags & NODE_FAILED and peer.id not in claim.yes
        ]

    def _is_agreed(self, claim: Claim) -> bool:
        """Whether everybody who is not failed has said yes, and most of us have."""
        members = self._place.members
        yes = [node for node in claim.yes if members.is_member(node)]
        return not self._missing(claim) and 1 + len(yes) > members.size() // 2

    def _look(self, claim: Claim, now: i64) -> None:
        """Let those who wait make the tube if that is agreed on."""
        if not claim.granted and self._is_agreed(claim):
            claim.granted = True
            self._end(claim, None)

    def _end(self, claim: Claim, refusal: CommandError | None) -> None:
        waits = list(claim.waits.values())
        claim.waits = {}
        for wait in waits:
            wait.refusal = refusal
            end_wait(self._place.engine, wait, w.SERVED)

    def _withdraw(self, claim: Claim, refusal: CommandError | None = None) -> None:
        """Do not make a tube after all. Who waits is refused, or looks anew where it lives."""
        del self.claims[claim.tube]
        self._place.deadlines.clear(claim)
        for peer in self._place.members.peers.values():
            if peer.linked:
                self._place.mail.send(peer.id, OfClaim(UNCLAIM, claim.tube, claim.number))
        self._end(claim, refusal)

    def _why_not(self, claim: Claim) -> CommandError:
        missing = self._missing(claim)
        if claim.rival and claim.rival not in missing:
            return NoHome(f"tube {shown(claim.tube)} may be about to be made on {self._shown(claim.rival)}; try again")
        if self._is_agreed(claim):
            return NoHome(f"tube {shown(claim.tube)} could not be made; try again")
        if not missing:
            text = f"tube {shown(claim.tube)} cannot be made while most nodes cannot be reached"
            return NoHome(f"{text}; wait until they are back, or give up those that are lost: penstock cluster forget")
        text = f"tube {shown(claim.tube)} cannot be made while {self._shown(missing[0])} cannot be reached"
        return NoHome(f"{text}; wait until it is back, or give it up: penstock cluster forget {missing[0].decode()}")

    def _shown(self, node: bytes) -> str:
        return self._place.shown(node)
