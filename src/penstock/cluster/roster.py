"""The table of nodes as text, in Disque's format: the output of CLUSTER NODES and the file that survives a restart.

    <id> <ip>:<port>[@<bus port>] <flags> <ping sent> <pong received> <connected|disconnected>

The bus port is written only if it is not the usual one. The flags contain `epoch=N` if a standby has taken over the
node. The flags `nodisk`, `nomem` and `paused`, which say why a node does not accept copies now, are shown and not
stored. The file has two more lines: the epochs of former members, and the nodes that the operator has given up:

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

# The usual bus port is this much above the port for clients.
BUS_OFFSET: Final = 10_000

# In the order of the output.
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


# Prefix of an epoch among the flags.
_EPOCH: Final = "epoch="

# The flag of a node that may not know this one and is sent MEET. It occurs only in the file.
_INVITED: Final = "invited"


class Roster:
    """The contents of the file that stores the table of nodes."""

    def __init__(self, myself: bytes) -> None:
        self.myself = myself
        self.peers: list[Peer] = []
        self.past: dict[bytes, i64] = {}  # Epochs of former members.
        self.given_up: list[bytes] = []  # Former members that the operator has removed.


def nodes_text(members: Members, address: str) -> str:
    """Return the output of CLUSTER NODES. `address` is the address at which the client reached this node."""
    own = _own_line(members, address + _unusual(members.port, members.bus_port), members.condition)
    return own + "".join([_line(peer, peer.flags) for peer in members.peers.values()])


def file_text(members: Members) -> str:
    """Return the contents of the file: the members, and the nodes that the operator has asked this node to meet."""
    lines = [_own_line(members, _address(members.host, members.port, members.bus_port), 0)]
    for peer in members.peers.values():
        if peer.is_member() or peer.invited:
            lines.append(_line(peer, peer.flags & ~NODE_CONDITION, _INVITED if peer.invited else ""))
    return "".join([*lines, _epochs(members.past), _vars("forgotten", [node.decode() for node in members.given_up])])


def successor_text(known: Roster, epoch: i64, fresh: bytes) -> str:
    """Return the contents of the file for a node that was replaced and starts again with the new id `fresh`.

    `known` is its old file, and `epoch` the epoch in which another process replaced it.
    """
    # Peers must not accept the old node in its old epoch, nor any node that was replaced before it.
    lost = {peer.id: peer.epoch for peer in known.peers if peer.flags & NOADDR and peer.epoch}
    past = {**known.past, **lost, known.myself: epoch}
    return first_text(fresh, [peer for peer in known.peers if not peer.flags & NOADDR], past)


def first_text(myself: bytes, peers: list[Peer], past: dict[bytes, i64] | None = None) -> str:
    """Return the contents of the file for the first start of a node with the id `myself`.

    `peers` are the nodes to meet, and `past` are the epochs of former members.
    """
    lines = [f"{myself.decode()} :0 myself 0 0 connected\n"]
    lines += [
        f"{peer.id.decode()} {_address(peer.host, peer.port, peer.bus_port)} "
        f"{_flags(flags_text(peer.flags & HANDSHAKE), peer.epoch, _INVITED)} 0 0 disconnected\n"
        for peer in peers
    ]
    return "".join([*lines, _epochs(past or {})])


def read_file(text: str) -> Roster:
    """Parse the file. Raise ValueError with the number of the first wrong line."""
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
            raise ValueError(f"line {number} is malformed") from None
    if not roster.myself:
        raise ValueError("the line of this node (myself) is missing")
    return roster


def flags_text(flags: i64) -> str:
    """Return the flags of a node as words, with Disque's names."""
    return ",".join([word for word, bit in _FLAGS.items() if flags & bit])


def _own_line(members: Members, address: str, condition: i64) -> str:
    words = flags_text(condition | (NODE_LEAVING if members.leaving else 0))
    flags = f"myself,{words}" if words else "myself"
    return f"{members.myself.decode()} {address} {_flags(flags, members.epoch)} 0 0 connected\n"


def _line(peer: Peer, shown: i64, invited: str = "") -> str:
    address = ":0" if peer.flags & NOADDR else _address(peer.host, peer.port, peer.bus_port)
    state = "connected" if peer.linked else "disconnected"
    flags = _flags(flags_text(shown), peer.epoch, invited) or "noflags"
    return f"{peer.id.decode()} {address} {flags} {peer.ping_sent} {peer.pong_received} {state}\n"


def _epochs(past: dict[bytes, i64]) -> str:
    """Return the line with the epochs of former members, if there are any."""
    return _vars("epochs", [f"{node.decode()}={epoch}" for node, epoch in past.items()])


def _vars(name: str, words: list[str]) -> str:
    return f"vars {name} {' '.join(words)}\n" if words else ""


def _flags(words: str, epoch: i64, invited: str = "") -> str:
    """Return the flag words, with `epoch=N` appended if the epoch is not 0."""
    return ",".join([word for word in (words, invited, f"{_EPOCH}{epoch}" if epoch else "") if word])


def _address(host: str, port: i64, bus_port: i64) -> str:
    return f"{host}:{port}{_unusual(port, bus_port)}"


def _unusual(port: i64, bus_port: i64) -> str:
    """Return `@PORT` for the bus port. Return "" if it is the usual one, or if the node has no bus."""
    return "" if bus_port in (0, port + BUS_OFFSET) else f"@{bus_port}"


def _peer(words: list[str]) -> Peer:
    """Parse the line of a node. The node counts as unreachable until it answers."""
    if len(words) != 6:
        raise ValueError("not a line of a node")
    host, _, ports = words[1].rpartition(":")
    port, _, bus_port = ports.partition("@")
    flags: i64 = 0
    epoch: i64 = 0
    flag_words = words[2].split(",")
    for word in flag_words:
        flags |= _FLAGS.get(word, 0) & ~NODE_CONDITION
        if word.startswith(_EPOCH):
            epoch = int(word[len(_EPOCH) :])
    number = int(port)
    nodes = int(bus_port) if bus_port else number + BUS_OFFSET
    peer = Peer(_id(words[0]), host, number, nodes, flags, 0, epoch)
    peer.invited = _INVITED in flag_words
    return peer


def _id(word: str) -> bytes:
    if len(word) != 40:
        raise ValueError("not the id of a node")
    return word.encode("ascii")
