"""Where tubes live that are on one node: a directory of homes, and the claims by which a tube gets its only one.

A tube that promises something about all of its jobs together is *strict* and lives on the node that made it. Each node
tells its own to every peer, all of them when a link comes up, then what changes; and remembers what it was told, in its
log, so that it knows after a restart where the tubes of a node live that is down.

Before a node makes such a tube it asks every peer that is not failed (CLAIM). Who says yes (MAY) enters the claimant as
the home at once, and takes that back only if the claimant says so, by word (UNCLAIM) or by a list that does not have
it. So a yes outlives whatever happens to either, and no timer can end it on one side and not on the other. Two who
claim at once hear of each other: the lesser id wins. A side of a partition that is not the greater one cannot declare
the others failed, so it makes no such tube.

Who never met may both have made one. Then both keep it, others go to the lesser id, and `disputes` tells.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.messages import (
    CLAIM,
    CLAIMED,
    HOMES,
    IS_SHARED,
    LIST_BEGINS,
    LIST_ENDS,
    LIST_WANTED,
    LIVES_ELSEWHERE,
    MAY,
    MAY_SOON,
    NODE_FAILED,
    UNCLAIM,
    OfClaim,
    OfTubes,
)
from penstock.cluster.place import Place
from penstock.core import waits as w
from penstock.core.copying import begin_wait, end_wait, is_shared
from penstock.core.deadlines import Timed
from penstock.core.engine import shown
from penstock.core.errors import CommandError, NoHome, TubeExists
from penstock.core.limits import NEVER
from penstock.core.policy import TubePolicy
from penstock.core.tube import Tube
from penstock.core.waits import Connection, ElsewhereWait

# How many tubes are looked at, or told of, in a turn; and about how many bytes of names a message has.
_LIST_SLICE: Final = 1_000
_LIST_BYTES: Final = 256 * 1024

# How long until those are asked again who have not said yes to a claim: at first, and at most.
_AGAIN_MS: Final = 25
_AGAIN_MS_MAX: Final = 500

# The notes of the log: a tube, and the node it lives on; behind that a mark where the node only may be making it.
_KEY: Final = b"home "
_PROMISED: Final = b"?"


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


class Telling(Timed):
    """A list of this node's tubes that is being told to a peer. Its deadline is when to go on."""

    node: bytes
    cursor: int
    part: i64

    def __init__(self, node: bytes) -> None:
        super().__init__()
        self.node = node
        self.cursor = 0
        self.part = LIST_BEGINS


class Homes:
    """The directory of a node."""

    of: dict[bytes, bytes]  # Tubes that live elsewhere, and where.
    claims: dict[bytes, Claim]  # Of this node, by tube.
    disputes: dict[bytes, bytes]  # Tubes of this node that live on another one, too.
    changes: i64  # Raised with every dispute, so that the shell can tell of it.
    _promised: dict[bytes, i64]  # Tubes that a node may be making, and the number of its claim.
    _names: dict[bytes, dict[bytes, None]]  # Tubes by node.
    _listed: dict[bytes, dict[bytes, None]]  # What a list that is being told has named so far, by node.
    _telling: dict[bytes, Telling]
    _number: i64  # Of the last claim.
    _place: Place

    def __init__(self, place: Place) -> None:
        self.of = {}
        self.claims = {}
        self.disputes = {}
        self.changes = 0
        self._promised = {}
        self._names = {}
        self._listed = {}
        self._telling = {}
        self._number = 0
        self._place = place

    def restore(self) -> None:
        """Know what the log knows."""
        for key, value in self._place.engine.notes.items():
            if key.startswith(_KEY):
                name = key[len(_KEY) :]
                node = value[: len(value) - 1] if value.endswith(_PROMISED) else value
                self.of[name] = node
                self._names_of(node)[name] = None
                if len(value) != len(node):
                    self._promised[name] = 0

    # What commands ask

    def home_of(self, name: bytes) -> bytes:
        """The node that a tube which is not here lives on, or may be made on; empty if nobody is known to have it."""
        node = self.of.get(name)
        return node if node is not None and node in self._place.members.peers else b""

    def known(self) -> list[bytes]:
        """The tubes that are known to live elsewhere."""
        return [name for name in self.of if name not in self._promised and self.home_of(name)]

    def may_make(self, name: bytes, policy: TubePolicy) -> bool:
        """Whether a tube may be made here now: it can be shared, there is nobody else, or all have said yes."""
        if self._place.members.size() == 1 or is_shared(Tube(name, 0, 0, policy, 0)):
            return True
        claim = self.claims.get(name)
        return claim is not None and not self._missing(claim)

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

    # What the engine tells

    def tube_made(self, tube: Tube) -> None:
        """A tube came into being here."""
        if is_shared(tube):
            return
        claim = self.claims.pop(tube.name, None)
        if claim is not None:
            self._place.deadlines.clear(claim)
            self._end(claim, None)
        self._tell(OfTubes(HOMES, 0, [tube.name], []))

    def tube_dropped(self, tube: Tube) -> None:
        """A tube is gone."""
        if not is_shared(tube):
            self.disputes.pop(tube.name, None)
            self._tell(OfTubes(HOMES, 0, [], [tube.name]))

    # What the shell tells

    def link_up(self, node: bytes, now: i64) -> None:
        """A node can hear us: tell it what lives here, and ask for what lives there."""
        self.tell_all(node, now)
        # It may have tried before it was known here.
        self._place.mail.send(node, OfTubes(HOMES, LIST_WANTED, [], []))

    def link_down(self, node: bytes) -> None:
        """A node does not hear us any more."""
        for claim in self.claims.values():
            claim.yes.pop(node, None)
        telling = self._telling.pop(node, None)
        if telling is not None:
            self._place.deadlines.clear(telling)

    def tidy(self, now: i64) -> None:
        """Forget the tubes of nodes that are none of us any more."""
        for node in [node for node in self._names if node not in self._place.members.peers]:
            for name in list(self._names[node]):
                self._leaves(name, node, now)
            del self._names[node]
            self._listed.pop(node, None)

    def begin_anew(self, now: i64) -> None:
        """Know nobody."""
        for claim in list(self.claims.values()):
            self._withdraw(claim)
        self.tidy(now)

    # Telling what lives here

    def tell_all(self, node: bytes, now: i64) -> None:
        """Tell a node of every tube that lives here, from the first one on."""
        before = self._telling.pop(node, None)
        if before is not None:
            self._place.deadlines.clear(before)
        self.go_on_telling(Telling(node), now)
        for claim in self.claims.values():
            # The list has taken back a yes; and the node may have lost its memory of it before.
            claim.yes.pop(node, None)
            self._place.mail.send(node, OfClaim(CLAIM, claim.tube, claim.number))

    def go_on_telling(self, telling: Telling, now: i64) -> None:
        """Tell of some more tubes."""
        names: list[bytes] = []
        size = 0
        tubes, telling.cursor = self._place.engine.scan_tubes(telling.cursor, _LIST_SLICE)
        for tube in tubes:
            if size > _LIST_BYTES:
                telling.cursor = tube.number
                break
            if not is_shared(tube):
                names.append(tube.name)
                size += len(tube.name)
        is_last = telling.cursor == 0
        part = telling.part | (LIST_ENDS if is_last else 0)
        self._place.mail.send(telling.node, OfTubes(HOMES, part, names, []))
        telling.part = 0
        if is_last:
            self._telling.pop(telling.node, None)
        else:
            self._telling[telling.node] = telling
            self._place.deadlines.set(telling, now + 1)

    def _tell(self, message: OfTubes) -> None:
        for peer in self._place.members.peers.values():
            if peer.linked:
                self._place.mail.send(peer.id, message)

    # What others tell

    def receive_homes(self, sender: bytes, message: OfTubes, now: i64) -> None:
        """A node tells which tubes live there."""
        if message.part & LIST_WANTED:
            if self._place.members.is_linked(sender):
                self.tell_all(sender, now)
            return
        if message.part & LIST_BEGINS:
            self._listed[sender] = {}
        listed = self._listed.get(sender)
        for name in message.made:
            if listed is not None:
                listed[name] = None
            self._lives(name, sender, now)
        for name in message.gone:
            if listed is not None:
                listed.pop(name, None)
            self._leaves(name, sender, now)
        if message.part & LIST_ENDS and listed is not None:
            del self._listed[sender]
            for name in [name for name in self._names_of(sender) if name not in listed]:
                self._leaves(name, sender, now)

    def _lives(self, name: bytes, node: bytes, now: i64) -> None:
        """A tube lives on a node."""
        node = self._place.node(node)
        self._names_of(node)[name] = None
        home = self.of.get(name)
        if home is None or home == node or node < home or name in self._promised:
            self._promised.pop(name, None)
            self._enter(name, node, now)
        tube = self._place.engine.tubes.get(name)
        if tube is not None and not is_shared(tube) and self.disputes.get(name) != node:
            self.disputes[name] = node
            self.changes += 1

    def _leaves(self, name: bytes, node: bytes, now: i64) -> None:
        """A tube lives on a node no more."""
        self._names_of(node).pop(name, None)
        if self.disputes.get(name) == node:
            del self.disputes[name]
            self.changes += 1
        if self.of.get(name) != node:
            return
        self._promised.pop(name, None)
        others = [other for other, names in self._names.items() if name in names]
        if others:
            self._enter(name, min(others), now)
        else:
            del self.of[name]
            self._place.engine.note(_KEY + name, b"", now)

    def _enter(self, name: bytes, node: bytes, now: i64) -> None:
        note = node + _PROMISED if name in self._promised else node
        self.of[name] = node
        if self._place.engine.notes.get(_KEY + name) != note:
            self._place.engine.note(_KEY + name, note, now)

    def _names_of(self, node: bytes) -> dict[bytes, None]:
        names = self._names.get(node)
        if names is None:
            names = self._names[node] = {}
        return names

    # Claims of others

    def receive_claim(self, sender: bytes, message: OfClaim, now: i64) -> None:
        """A node wants to make a tube."""
        name = message.tube
        answer = OfClaim(CLAIMED, name, message.number)
        tube = self._place.engine.tubes.get(name)
        home = self.home_of(name)
        mine = self.claims.get(name)
        if tube is not None:
            answer.verdict = IS_SHARED if is_shared(tube) else LIVES_ELSEWHERE
            answer.node = self._place.myself
        elif home and home != sender:
            answer.verdict = MAY_SOON if name in self._promised else LIVES_ELSEWHERE
            answer.node = home
        elif mine is not None and self._place.myself < sender:
            answer.verdict = MAY_SOON
            answer.node = self._place.myself
        else:
            self._promise(name, sender, message.number, now)
            if mine is not None:
                # The lesser id wins; whoever waits here goes there.
                self._withdraw(mine)
        self._place.mail.send(sender, answer)

    def _promise(self, name: bytes, node: bytes, number: i64, now: i64) -> None:
        node = self._place.node(node)
        self._promised[name] = number
        self._names_of(node)[name] = None
        self._enter(name, node, now)
        listed = self._listed.get(node)
        if listed is not None:
            listed[name] = None

    def receive_unclaim(self, sender: bytes, message: OfClaim, now: i64) -> None:
        """A node does not make a tube after all."""
        if self.of.get(message.tube) == sender and self._promised.get(message.tube, NEVER) <= message.number:
            self._leaves(message.tube, sender, now)

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
                self._lives(claim.tube, message.node, now)
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
        """Who has not said yes. Of those who are failed no word is needed: most of us agree that they are."""
        peers = self._place.members.peers.values()
        return [
            peer.id for peer in peers if peer.is_member() and not peer.flags & NODE_FAILED and peer.id not in claim.yes
        ]

    def _look(self, claim: Claim, now: i64) -> None:
        """Let those who wait make the tube if everybody has said yes."""
        if not claim.granted and not self._missing(claim):
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
        if not missing:
            return NoHome(f"tube {shown(claim.tube)} could not be made; try again")
        text = f"tube {shown(claim.tube)} cannot be made while {self._shown(missing[0])} cannot be reached"
        return NoHome(f"{text}; wait until it is back, or give it up: penstock cluster forget {missing[0].decode()}")

    def _shown(self, node: bytes) -> str:
        return self._place.shown(node)
