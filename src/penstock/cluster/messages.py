"""Messages between nodes: Disque's messages under Disque's names, and ours after them.

The sender of a message follows from the link that it arrived on. wire/bus.py encodes messages. Clocks of nodes differ,
so a message contains the time that is left until a deadline, never the time of day. The only exception is a job's
creation time, which determines its order in every queue.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.core import states as s
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns

# About nodes.
PING: Final = 0
PONG: Final = 1
MEET: Final = 2
FAIL: Final = 3

# About jobs and queues. `aux` is the argument of a message; its meaning depends on the kind. A *fingerprint* identifies
# the holders that the sender knows of (see state.py), so that a receiver that knows others can answer with them.
REPLJOB: Final = 4  # Hold a copy of this job.
GOTJOB: Final = 5  # The sender holds a copy.
ENQUEUE: Final = 6  # Queue your copy, after `aux` ms.
QUEUED: Final = 7  # The sender has the job queued. aux: one of the reasons below.
SETACK: Final = 8  # The job was acknowledged. aux: fingerprint of the holders; 0: the sender knows of none.
WILLQUEUE: Final = 9  # The sender will queue the job soon, unless a holder objects. aux: fingerprint of the holders.
GOTACK: Final = 10  # The sender has recorded the ack. aux 1: and had a copy. Names holders that the receiver lacks.
DELJOB: Final = 11  # Delete your copy. aux: fingerprint of the holders if the receiver is to pass this on, otherwise 0.
NEEDJOBS: Final = 12  # Send up to `aux` jobs of this queue, those that are ready now or become ready within `ms`.
YOURJOBS: Final = 13  # Queue these jobs.
WORKING: Final = 14  # The job was delivered, or its consumer needs more time: do not queue it for `aux` ms.
PAUSE: Final = 15  # Pause this queue. aux: 1 for incoming jobs, 2 for outgoing jobs, 3 for both, 0 to resume.
# Messages that Disque does not have.
TAKENOVER: Final = 16  # The sender has taken over the jobs, so the receiver can delete them.
ASK: Final = 17  # Answer a question about this queue.
TOLD: Final = 18  # The answer to an ASK.
NOTTAKEN: Final = 19  # The sender has not taken over the jobs and never will. The receiver keeps them.
HOLDERS: Final = 20  # These nodes have copies, and so does the sender.
HOMES: Final = 21  # These tubes live on the sender, and these no longer do.
CLAIM: Final = 22  # The sender wants to create this tube and asks for permission.
CLAIMED: Final = 23  # The answer to a CLAIM: one of the verdicts below.
UNCLAIM: Final = 24  # The sender does not create the tube after all.
TUNNEL: Final = 25  # Opens a tunnel for a client of the sender, or updates the client's credentials.
FORWARD: Final = 26  # Bytes from the client. aux: one of the marks below.
FORWARDED: Final = 27  # Bytes for the client. aux 1: the reply is complete.
TUNNELREAD: Final = 28  # The sender passed on `aux` bytes. The receiver may send this number of bytes more.
TUNNELEND: Final = 29  # Closes the tunnel. data: a RESP error, unless the client left.
NOTHELD: Final = 30  # The sender does not hold a copy of this job. aux: one of the reasons below.

MESSAGES_COUNT: Final = 31

# For metrics and logs.
MESSAGE_NAMES: Final = (
    *("ping", "pong", "meet", "fail", "repljob", "gotjob", "enqueue", "queued", "setack", "willqueue", "gotack"),
    *("deljob", "needjobs", "yourjobs", "working", "pause", "takenover", "ask", "told", "nottaken", "holders"),
    *("homes", "claim", "claimed", "unclaim", "tunnel", "forward", "forwarded", "tunnelread", "tunnelend"),
    "notheld",
)

# Questions: the `about` of an ASK.
LENGTHS: Final = 0  # How many jobs are ready, taken, delayed and buried, and how many are standby copies.
OLDEST: Final = 1  # The first `count` jobs of the queue.
EMPTY: Final = 2  # Delete some jobs of the queue. The answer: how many were deleted, and how many are left.
# Whether a consumer of claims, or a stage, of this name exists on the node.
CONSUMER: Final = 3
STAGE: Final = 4
NEXT_JOBS: Final = 5  # The next jobs from a cursor on, without their bodies, and the next cursor.

# The state of a copy whose job is queued or delivered on another node. The other states are those of states.py.
MERE_COPY: Final = s.STATES_COUNT

# Reasons of QUEUED.
STILL: Final = 0  # It was queued before.
TIME_OVER: Final = 1  # Its retry time has passed, and no holder objected.
ASKED_FOR: Final = 2  # A client returned or requeued it. A delivery on another node ends by this.

# Reasons of NOTHELD.
LEAVES: Final = 0  # The node is leaving.
NO_MEMORY: Final = 1
NO_DISK: Final = 2
IS_PAUSED: Final = 3  # The queue is paused for incoming jobs, or a tube of another type has its name.
NOT_VALID: Final = 4  # The job has expired or is too large for the node. Other jobs may be held.

# The `aux` of a DELJOB for a job that did not end: the sender moved it to a tube that lives there. No fingerprint is as
# small.
MOVED_AWAY: Final = 1

# Parts of a list of homes: bits of `part` in HOMES. Without any bit the message contains changes only.
LIST_BEGINS: Final = 1
LIST_ENDS: Final = 2
LIST_WANTED: Final = 4  # The sender asks for the receiver's list.

# Verdicts of CLAIMED.
GRANTED: Final = 0  # Granted. The sender of the verdict creates no such tube until the claimant withdraws.
RIVAL_PENDING: Final = 1  # `node` is about to create the tube. Ask again.
LIVES_ELSEWHERE: Final = 2  # The tube lives on `node`.
IS_SHARED: Final = 3  # A shared queue of this name exists on `node`.

# Marks of a FORWARD: a command is complete; or the client no longer waits, so a blocking command returns immediately.
COMMAND_ENDS: Final = 1
STOP_WAITING: Final = 2

# The protocol of a tunnel's client.
RESP_2: Final = 0
RESP_3: Final = 1
IPROTO: Final = 2
IPROTO_15: Final = 3

# Flags of a node in greetings, with Disque's values.
NODE_SUSPECTED: Final = 1
NODE_FAILED: Final = 2
NODE_LEAVING: Final = 128
# Our flags: why a node does not accept copies now (condition.py). A node that does not know these bits ignores them.
NODE_NO_DISK: Final = 256
NODE_NO_MEMORY: Final = 512
NODE_PAUSED: Final = 1024  # Some queues of the node are paused for incoming jobs.
NODE_CONDITION: Final = NODE_NO_DISK | NODE_NO_MEMORY | NODE_PAUSED


class Message:
    """A message from one node to another. `kind` is one of the constants above."""

    def __init__(self, kind: i64) -> None:
        self.kind = kind


@mypyc_attr(acyclic=True)
class Rumour:
    """A report about another node in a greeting."""

    def __init__(self, node: bytes, host: str, port: i64, bus_port: i64, flags: i64, epoch: i64 = 0) -> None:
        self.node = node  # 40 hex digits.
        self.host = host
        self.port = port  # For clients.
        self.bus_port = bus_port  # For nodes.
        self.flags = flags
        self.epoch = epoch


class Greeting(Message):
    """PING, PONG and MEET: the sender is alive. Contains its address, its flags and reports about other nodes."""

    def __init__(
        self,
        kind: i64,
        host: str,
        port: i64,
        bus_port: i64,
        flags: i64,
        memory: bytes,
        rumours: list[Rumour],
        epoch: i64 = 0,
    ) -> None:
        super().__init__(kind)
        self.host = host  # The announced address. Empty: the receiver uses the address that the link comes from.
        self.port = port
        self.bus_port = bus_port
        self.flags = flags
        self.incarnation = memory  # The incarnation of the sender, 16 bytes. It changes when the node loses its jobs.
        self.rumours = rumours
        self.epoch = epoch  # Raised each time a standby takes over the node.


class FailMessage(Message):
    """FAIL: the majority of the members cannot reach the node `node`."""

    def __init__(self, kind: i64, node: bytes) -> None:
        super().__init__(kind)
        self.node = node


@mypyc_attr(acyclic=True)
class JobImage:
    """A job as it is sent in a message."""

    id: bytes  # 40 characters.
    queue: bytes
    body: bytes
    body_kind: i64
    repl: i64  # The number of copies that the producer requested.
    age_ms: i64  # Time since the job was made.
    order: i64  # When it was made, by the clock of its maker, in ms × 10^6. It determines the order in every queue.
    ttl_ms: i64  # Time left; NEVER if there is no ttl.
    delay_ms: i64  # Time left.
    retry_ms: i64  # 0 for at most once.
    nacks: i64
    returns: i64
    deliveries: i64
    holders: list[bytes]  # The nodes that are believed to have a copy.
    # The state of the sender's copy. In a YOURJOBS the state that the job is to have: buried, or else ready.
    state: i64
    reason: bytes  # The reason of the last failure or bury.
    headers: bytes  # Encoded by wire/headers.py; empty if there are none. Older nodes ignore them.

    def __init__(self, id: bytes, queue: bytes, body: bytes) -> None:
        self.id = id
        self.queue = queue
        self.body = body
        self.body_kind = 0
        self.repl = 1
        self.age_ms = 0
        self.order = 0
        self.ttl_ms = 0
        self.delay_ms = 0
        self.retry_ms = 0
        self.nacks = 0
        self.returns = 0
        self.deliveries = 0
        self.holders = []
        self.state = s.READY
        self.reason = b""
        self.headers = b""


class JobsMessage(Message):
    """REPLJOB and YOURJOBS: complete jobs, with their bodies."""

    jobs: list[JobImage]
    quiet: bool  # REPLJOB: the receiver is not to answer with GOTJOB.
    number: i64  # The number of the handover in a YOURJOBS that has to be confirmed; otherwise 0.
    floor: i64  # All handovers from sender to receiver with a lower number are over and must not be accepted again.
    sender_incarnation: bytes  # The sender's incarnation. Numbers are unique within it.
    receiver_incarnation: (
        bytes  # The receiver's incarnation, as the sender knows it. A receiver with another one takes nothing.
    )

    def __init__(self, kind: i64, jobs: list[JobImage], quiet: bool = False) -> None:
        super().__init__(kind)
        self.jobs = jobs
        self.quiet = quiet
        self.number = 0
        self.floor = 0
        self.sender_incarnation = b""
        self.receiver_incarnation = b""


class JobMessage(Message):
    """A message about one job: GOTJOB, NOTHELD, ENQUEUE, SETACK, WILLQUEUE and DELJOB. Subclasses add fields."""

    def __init__(self, kind: i64, id: bytes, aux: i64 = 0, tubes: TubePatterns = EVERY_TUBE) -> None:
        super().__init__(kind)
        self.id = id
        self.argument = aux
        # SETACK, DELJOB: the tubes that the client who ended the job may use. Only holders know the tube of a job, so
        # each holder checks it. `EVERY_TUBE` also applies if no client is involved.
        self.tubes = tubes


class CopyMessage(JobMessage):
    """QUEUED and WORKING, with the counters of the sender's copy. Receivers raise their counters to these values."""

    def __init__(self, kind: i64, id: bytes, aux: i64, nacks: i64, returns: i64) -> None:
        super().__init__(kind, id, aux)
        self.nacks = nacks
        self.returns = returns


class HoldersMessage(JobMessage):
    """GOTACK and HOLDERS: names holders of a job.

    SETACK contains a fingerprint of the holders that its sender knows of. If the receiver knows of other holders, its
    answer GOTACK names them.
    """

    def __init__(self, kind: i64, id: bytes, aux: i64, holders: list[bytes]) -> None:
        super().__init__(kind, id, aux)
        self.holders = holders


class QueueMessage(Message):
    """NEEDJOBS asks for jobs of a queue. PAUSE pauses or resumes a queue."""

    def __init__(self, kind: i64, queue: bytes, aux: i64, ms: i64 = 0) -> None:
        super().__init__(kind)
        self.queue = queue
        self.argument = aux
        self.ms = ms  # NEEDJOBS: how long the jobs are wanted.


class Receipt(Message):
    """TAKENOVER and NOTTAKEN: the receiver of a handover accepted its jobs, or refused them."""

    def __init__(self, kind: i64, number: i64) -> None:
        super().__init__(kind)
        self.number = number


class Question(Message):
    """ASK: a question about a queue."""

    number: i64  # Chosen by the sender. The answer repeats it.
    about: i64
    queue: bytes  # Empty for all queues, where the question allows it.
    count: i64
    cursor: i64  # NEXT_JOBS: the job to continue with.
    states: i64  # NEXT_JOBS: a bit for each state whose jobs are wanted.

    def __init__(self, kind: i64, number: i64, about: i64, queue: bytes, count: i64) -> None:
        super().__init__(kind)
        self.number = number
        self.about = about
        self.queue = queue
        self.count = count
        self.cursor = 0
        self.states = 0


class Answer(Message):
    """TOLD: the answer to a question."""

    def __init__(self, kind: i64, number: i64, figures: list[int], jobs: list[JobImage]) -> None:
        super().__init__(kind)
        self.number = number
        self.figures = figures
        self.jobs = jobs


class HomesMessage(Message):
    """HOMES: tubes that the sender has created or dropped."""

    def __init__(self, kind: i64, part: i64, made: list[bytes], gone: list[bytes]) -> None:
        super().__init__(kind)
        self.part = part
        self.made = made
        self.gone = gone


class ElectionMessage(Message):
    """CLAIM, CLAIMED and UNCLAIM: the election of the node that creates a tube."""

    def __init__(self, kind: i64, tube: bytes, number: i64, verdict: i64 = GRANTED, node: bytes = b"") -> None:
        super().__init__(kind)
        self.tube = tube
        self.number = number  # The number of the election, chosen by the claimant.
        self.verdict = verdict
        self.node = node  # CLAIMED: the node that has the tube or is about to create it; empty if there is none.


class Credentials(Message):
    """TUNNEL: the credentials of the client whose commands the tunnel carries."""

    def __init__(self, kind: i64, number: i64, epoch: i64, protocol: i64) -> None:
        super().__init__(kind)
        self.number = number  # Chosen by the sender.
        self.epoch = epoch  # The epoch of the receiver. A process of another epoch must not accept the tunnel.
        self.protocol = protocol
        self.user = b""
        self.groups: i64 = 0
        self.tubes: list[bytes] = []  # Patterns of the tubes that the client may use. Empty: all tubes.
        self.token = b""  # The token of the client's session.
        self.grace: i64 = 0  # The grace time of the session in ms, plus 1. 0: the default of the receiver.
        self.address = b""
        self.name = b""

    def is_like(self, other: Credentials) -> bool:
        return (
            self.protocol == other.protocol
            and self.user == other.user
            and self.groups == other.groups
            and self.tubes == other.tubes
            and self.token == other.token
            and self.grace == other.grace
            and self.name == other.name
        )


class TunnelMessage(Message):
    """FORWARD, FORWARDED, TUNNELREAD and TUNNELEND: data and control of a tunnel, in either direction."""

    def __init__(self, kind: i64, number: i64, is_back: bool, aux: i64, data: bytes) -> None:
        super().__init__(kind)
        self.number = number
        self.is_reply = is_back  # The receiver opened the tunnel, so this is a reply.
        self.argument = aux
        self.data = data
