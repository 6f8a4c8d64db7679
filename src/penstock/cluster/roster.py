"""The table of nodes as text, in Disque's lines: what CLUSTER NODES shows, and the file that survives a restart.

    <id> <ip>:<port>[@<bus port>] <flags> <ping sent> <pong received> <connected|disconnected>

The bus port is there where it is not the usual one. Among the flags is `epoch=N` of a node that a standby has become;
for those that are in the table no more, the file has a line of its own, and one for those that were given up. Why a
node does not accept copies now (`nodisk`, `nomem`, `paused`) is shown, and is not in the file:

    vars epochs <id>=<epoch> …
    vars forgotten <id> …
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from penstock.cluster.members import Members
from penstock.cluster.messages import (
    NODE_CONDITION,
    NODE_FAILED,
    NODE_LEAVING,
    NODE_NO_DISK,
    NODE_NO_MEMORY,
    NODE_PAUSED,
    NODE_SUSPECTED,
)
from penstock.cluster.peers import HANDSHAKE, NOADDR, Peer

# The bus of a node listens so far above its port, unless it says otherwise.
BUS_OFFSET: Final = 10_000

# In the order in which they are shown.
_FLAGS: Final = {
    "fail?": NODE_SUSPECTED,
    "fail": NODE_FAILED,
    "handshake": HANDSHAKE,
    "noaddr": NOADDR,
    "leaving": NODE_LEAVING,
    "nodisk": NODE_NO_DISK,
    "nomem": NODE_NO_MEMORY,
    "paused": NODE_PAUSED,
}


# In front of an epoch, among the flags.
_EPOCH: Final = "epoch="

# The flag of a node that does not know us perhaps, and is to be told to: in files that a node did not write itself.
_INVITED: Final = "invited"


class Roster:
    """What the file says."""

    myself: bytes
    peers: list[Peer]
    past: dict[bytes, i64]  # Members of before, with their epochs.
    given_up: list[bytes]  # Those that the operator has told the node to forget.

    def __init__(self, myself: bytes) -> None:
        self.myself = myself
        self.peers = []
        self.past = {}
        self.given_up = []


def nodes_text(members: Members, address: str) -> str:
    """What CLUSTER NODES shows to one who has found this node at an address."""
    own = _own_line(members, address + _unusual(members.port, members.bus_port), members.condition)
    return own + "".join([_line(peer, peer.flags) for peer in members.peers.values()])


def file_text(members: Members) -> str:
    """What the file is to say: the members, without those whom we only hope to meet."""
    lines = [_own_line(members, _address(members.host, members.port, members.bus_port), 0)]
    lines += [_line(peer, peer.flags & ~NODE_CONDITION) for peer in members.peers.values() if peer.is_member()]
    return "".join([*lines, _epochs(members.past), _vars("forgotten", [node.decode() for node in members.given_up])])


def first_text(myself: bytes, peers: list[Peer], past: dict[bytes, i64] | None = None) -> str:
    """What the file of a node is to say that has never run as this one: whom it is to get to know, and whom not."""
    lines = [f"{myself.decode()} :0 myself 0 0 connected\n"]
    lines += [
        f"{peer.id.decode()} {_address(peer.host, peer.port, peer.bus_port)} "
        f"{_flags(_INVITED, peer.epoch)} 0 0 disconnected\n"
        for peer in peers
    ]
    return "".join([*lines, _epochs(past or {})])


def read_file(text: str) -> Roster:
    """What the file says; raises ValueError, and says which line is wrong."""
    roster = Roster(b"")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        try:
            if words[:2] == ["vars", "epochs"]:
                for word in words[2:]:
                    node, _, epoch = word.partition("=")
                    roster.past[_id(node)] = int(epoch)
            elif words[:2] == ["vars", "forgotten"]:
                roster.given_up = [_id(word) for word in words[2:]]
            elif words and words[0] != "vars":
                peer = _peer(words)
                if "myself" in words[2].split(","):
                    roster.myself = peer.id
                else:
                    roster.peers.append(peer)
        except (ValueError, IndexError, UnicodeEncodeError):
            raise ValueError(f"line {number} is not what this node wrote") from None
    if not roster.myself:
        raise ValueError("there is no line of the node itself")
    return roster


def flags_text(flags: i64) -> str:
    """What is known of a node, in Disque's words."""
    return ",".join([word for word, bit in _FLAGS.items() if flags & bit])


def _own_line(members: Members, address: str, condition: i64) -> str:
    words = flags_text(condition | (NODE_LEAVING if members.leaving else 0))
    flags = f"myself,{words}" if words else "myself"
    return f"{members.myself.decode()} {address} {_flags(flags, members.epoch)} 0 0 connected\n"


def _line(peer: Peer, shown: i64) -> str:
    address = ":0" if peer.flags & NOADDR else _address(peer.host, peer.port, peer.bus_port)
    state = "connected" if peer.linked else "disconnected"
    flags = _flags(flags_text(shown), peer.epoch) or "noflags"
    return f"{peer.id.decode()} {address} {flags} {peer.ping_sent} {peer.pong_received} {state}\n"


def _epochs(past: dict[bytes, i64]) -> str:
    """The epochs of nodes that are in the table no more, if there are any."""
    return _vars("epochs", [f"{node.decode()}={epoch}" for node, epoch in past.items()])


def _vars(name: str, words: list[str]) -> str:
    return f"vars {name} {' '.join(words)}\n" if words else ""


def _flags(words: str, epoch: i64) -> str:
    """Flags, and an epoch behind them if there ever was another."""
    return ",".join([word for word in (words, f"{_EPOCH}{epoch}" if epoch else "") if word])


def _address(host: str, port: i64, bus_port: i64) -> str:
    return f"{host}:{port}{_unusual(port, bus_port)}"


def _unusual(port: i64, bus_port: i64) -> str:
    """The bus port behind the other one, where it has to be said; one that has none cannot be found at any."""
    return "" if bus_port in (0, port + BUS_OFFSET) else f"@{bus_port}"


def _peer(words: list[str]) -> Peer:
    """A peer out of its line, as it is known at a start: it has to show by itself whether it is still there."""
    if len(words) != 6:
        raise ValueError("not a line of a node")
    host, _, ports = words[1].rpartition(":")
    port, _, bus_port = ports.partition("@")
    flags: i64 = 0
    epoch: i64 = 0
    told = words[2].split(",")
    for word in told:
        flags |= _FLAGS.get(word, 0) & ~NODE_CONDITION
        if word.startswith(_EPOCH):
            epoch = int(word[len(_EPOCH) :])
    number = int(port)
    nodes = int(bus_port) if bus_port else number + BUS_OFFSET
    peer = Peer(_id(words[0]), host, number, nodes, flags, 0, epoch)
    peer.invited = _INVITED in told
    return peer


def _id(word: str) -> bytes:
    if len(word) != 40:
        raise ValueError("not the id of a node")
    return word.encode("ascii")
