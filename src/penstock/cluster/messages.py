"""What nodes say to each other. Disque's messages under Disque's names, and a few of our own behind them.

A message is what it says; who sent it is known from the link it came by, and how it is written is wire/bus.py's matter.
Moments never travel, since clocks differ: what is left of a time does. The one exception is the moment at which a job
was made, which orders it in every queue it comes to.
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

# About jobs, whole or by id; and about queues.
REPLJOB: Final = 4  # Hold a copy of this.
GOTJOB: Final = 5  # I hold a copy.
ENQUEUE: Final = 6  # Queue your copy, after so many ms.
QUEUED: Final = 7  # I have it queued; aux is one of the reasons below.
SETACK: Final = 8  # It was acknowledged; aux: a fingerprint of the holders I know of, 0 for none.
WILLQUEUE: Final = 9  # I am about to queue it, unless you say that you have it queued, or handed it out, or it is done;
# aux: the same fingerprint.
GOTACK: Final = 10  # I know that it was acknowledged; aux 1: and had a copy. Tells of holders, if I know of others.
DELJOB: Final = 11  # Forget it; aux: the same fingerprint, where the others should, too.
NEEDJOBS: Final = 12  # Send me up to so many of this queue, now or within so many ms.
YOURJOBS: Final = 13  # Here they are: queue them.
WORKING: Final = 14  # Somebody works on it: do not queue it for so many ms. Said at every delivery, too.
PAUSE: Final = 15  # Be paused like this: 1 in, 2 out.
# Ours.
TAKENOVER: Final = 16  # I have what you handed over: the receipt without which nobody forgets an at-most-once job.
ASK: Final = 17  # Tell me about this queue, as you have it.
TOLD: Final = 18  # The answer.
NOTTAKEN: Final = 19  # I have not taken what you handed over, and never will: it is yours.
HOLDERS: Final = 20  # These have copies, too, and so do I.
HOMES: Final = 21  # These tubes live here, and these do no more.
CLAIM: Final = 22  # I am about to make this tube: may I?
CLAIMED: Final = 23  # What I have to say to that: one of the verdicts below.
UNCLAIM: Final = 24  # I am not making it after all.
TUNNEL: Final = 25  # For a client of mine I shall send commands, of this number; or: this is who it is now.
FORWARD: Final = 26  # What it says; aux is one of the marks below.
FORWARDED: Final = 27  # What it is answered; aux 1: and that is all of the answer.
TUNNELREAD: Final = 28  # So many more bytes of it were passed on: aux.
TUNNELEND: Final = 29  # It is over; data: why, in the words of RESP, if that is not that its client left.
NOTHELD: Final = 30  # I do not hold a copy of this; aux is one of the reasons below.

MESSAGES_COUNT: Final = 31

# What they are called, for people.
MESSAGE_NAMES: Final = (
    *("ping", "pong", "meet", "fail", "repljob", "gotjob", "enqueue", "queued", "setack", "willqueue", "gotack"),
    *("deljob", "needjobs", "yourjobs", "working", "pause", "takenover", "ask", "told", "nottaken", "holders"),
    *("homes", "claim", "claimed", "unclaim", "tunnel", "forward", "forwarded", "tunnelread", "tunnelend"),
    "notheld",
)

# What is asked about a queue: the `about` of ASK.
LENGTHS: Final = 0  # How many jobs are ready, taken, delayed, buried, and mere copies.
OLDEST: Final = 1  # Its first jobs; `count` of them.
EMPTY: Final = 2  # Delete what it has there; how many jobs that were, and are left.
# What is asked about something else of this name: whether it is there.
CONSUMER: Final = 3
STAGE: Final = 4
SOME: Final = 5  # The next of its jobs from a cursor on, without their bodies, and the cursor to go on from.

# The state of a job that is only held for another node, which has it queued or handed out; beside those of states.py.
MERE_COPY: Final = s.STATES_COUNT

# Why a job is queued: the `aux` of QUEUED.
STILL: Final = 0  # It was before.
TIME_OVER: Final = 1  # Its retry time was over, and nobody objected.
ASKED_FOR: Final = 2  # A client said so: that it failed, or that it should be. Whoever holds it holds it no more.

# Why a copy is not held: the `aux` of NOTHELD.
LEAVES: Final = 0  # The node is leaving.
NO_MEMORY: Final = 1
NO_DISK: Final = 2
IS_PAUSED: Final = 3  # The queue takes no jobs there, or is of another type.
NOT_VALID: Final = 4  # The job is over, or too large for that node. Other jobs may be held.

# The `aux` of a DELJOB that says: the job is not over, the sender has it in a tube that lives there. No fingerprint is
# as small.
MOVED_AWAY: Final = 1

# Which part of a list of homes this is: the `part` of HOMES, bits. Without any it is what has changed.
LIST_BEGINS: Final = 1
LIST_ENDS: Final = 2
LIST_WANTED: Final = 4  # It is none, but asks for one.

# What is said to one who wants to make a tube: the `verdict` of CLAIMED.
MAY: Final = 0  # Go ahead; I make none of this name until you say that you do not, either.
MAY_SOON: Final = 1  # `node` is about to make it. Ask again.
LIVES_ELSEWHERE: Final = 2  # It lives on `node`.
IS_SHARED: Final = 3  # A queue of this name, of Disque's kind, is here.

# What stands in a FORWARD: the end of a command, or nothing but that its client waits no more.
COMMAND_ENDS: Final = 1
HURRY: Final = 2

# Through which door the client of a tunnel came.
RESP_2: Final = 0
RESP_3: Final = 1
IPROTO: Final = 2
IPROTO_15: Final = 3

# What a node says of itself and of others: bits, as Disque has them.
NODE_SUSPECTED: Final = 1
NODE_FAILED: Final = 2
NODE_LEAVING: Final = 128
# Ours: why a node does not accept copies now (condition.py). A node that does not know these bits ignores them.
NODE_NO_DISK: Final = 256
NODE_NO_MEMORY: Final = 512
NODE_PAUSED: Final = 1024  # Of some queues only: those that are paused for jobs in.
NODE_CONDITION: Final = NODE_NO_DISK | NODE_NO_MEMORY | NODE_PAUSED


class Message:
    """Something that one node says to another."""

    kind: i64

    def __init__(self, kind: i64) -> None:
        self.kind = kind


@mypyc_attr(acyclic=True)
class Rumour:
    """What a node has heard of another one."""

    node: bytes  # Its id, 40 hex digits.
    host: str
    port: i64  # Where its clients connect,
    bus_port: i64  # and where nodes do.
    flags: i64
    epoch: i64

    def __init__(self, node: bytes, host: str, port: i64, bus_port: i64, flags: i64, epoch: i64 = 0) -> None:
        self.node = node
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.flags = flags
        self.epoch = epoch


class Greeting(Message):
    """PING, PONG and MEET: that the sender is alive, where it is, and what it has heard."""

    host: str  # Its announced address; empty: the one that it is seen to come from.
    port: i64
    bus_port: i64
    flags: i64
    memory: bytes  # Changes whenever the node forgot its jobs: 16 bytes.
    rumours: list[Rumour]
    epoch: i64  # Greater each time that a standby becomes this node.

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
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.flags = flags
        self.memory = memory
        self.rumours = rumours
        self.epoch = epoch


class OfNode(Message):
    """FAIL: a node that most of us cannot reach."""

    node: bytes

    def __init__(self, kind: i64, node: bytes) -> None:
        super().__init__(kind)
        self.node = node


@mypyc_attr(acyclic=True)
class JobImage:
    """A job as it travels."""

    id: bytes  # 40 characters.
    queue: bytes
    body: bytes
    body_kind: i64
    repl: i64  # How many copies were asked for.
    age_ms: i64  # How long ago it was made.
    order: i64  # When it was made, by the clock of its maker, ms × 10^6: its place in every queue.
    ttl_ms: i64  # What is left of it; NEVER if it has none.
    delay_ms: i64  # What is left of it.
    retry_ms: i64  # 0 for at most once.
    nacks: i64
    returns: i64
    deliveries: i64
    holders: list[bytes]  # The nodes that are believed to have a copy.
    state: i64  # Of the sender's copy; in a YOURJOBS, what it is to be: buried, or else ready.
    reason: bytes  # Why it failed or was buried last.

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


class OfJobs(Message):
    """REPLJOB and YOURJOBS: whole jobs."""

    jobs: list[JobImage]
    quiet: bool  # REPLJOB: no GOTJOB is wanted.
    number: i64  # YOURJOBS with at-most-once jobs: which handing-over of the sender's this is; else 0.
    floor: i64  # Every handing-over from sender to receiver below this number is over: never to be accepted again.
    series: bytes  # What the sender remembers since: its numbers are of that memory.
    memory: bytes  # What the receiver has said of its memory: if that is another by now, nobody knows what it took.

    def __init__(self, kind: i64, jobs: list[JobImage], quiet: bool = False) -> None:
        super().__init__(kind)
        self.jobs = jobs
        self.quiet = quiet
        self.number = 0
        self.floor = 0
        self.series = b""
        self.memory = b""


class OfJob(Message):
    """What is said of a job by its id: GOTJOB, ENQUEUE, SETACK, WILLQUEUE, DELJOB; and more in those below."""

    id: bytes
    aux: i64
    # SETACK, DELJOB: the tubes that the client may use who ended the job. Nodes that do not hold the job cannot check
    # this, so each holder does. `EVERY_TUBE` also stands for what a node says on its own account.
    tubes: TubePatterns

    def __init__(self, kind: i64, id: bytes, aux: i64 = 0, tubes: TubePatterns = EVERY_TUBE) -> None:
        super().__init__(kind)
        self.id = id
        self.aux = aux
        self.tubes = tubes


class OfCopy(OfJob):
    """QUEUED and WORKING: what is so of a copy, which states its counters. They are never less elsewhere then."""

    nacks: i64
    returns: i64

    def __init__(self, kind: i64, id: bytes, aux: i64, nacks: i64, returns: i64) -> None:
        super().__init__(kind, id, aux)
        self.nacks = nacks
        self.returns = returns


class OfHolders(OfJob):
    """GOTACK, with all holders that the sender knows of where the fingerprint that it was sent says others; HOLDERS."""

    holders: list[bytes]

    def __init__(self, kind: i64, id: bytes, aux: i64, holders: list[bytes]) -> None:
        super().__init__(kind, id, aux)
        self.holders = holders


class OfQueue(Message):
    """NEEDJOBS and PAUSE."""

    queue: bytes
    aux: i64
    ms: i64  # NEEDJOBS: for how long it is wanted.

    def __init__(self, kind: i64, queue: bytes, aux: i64, ms: i64 = 0) -> None:
        super().__init__(kind)
        self.queue = queue
        self.aux = aux
        self.ms = ms


class Receipt(Message):
    """TAKENOVER and NOTTAKEN: what became of a handing-over of the receiver's."""

    number: i64

    def __init__(self, kind: i64, number: i64) -> None:
        super().__init__(kind)
        self.number = number


class Question(Message):
    """ASK: what one node wants to know of another about a queue."""

    number: i64  # Of the sender's own: the answer has it.
    about: i64
    queue: bytes  # Empty for all of them, where that can be asked for.
    count: i64
    cursor: i64  # SOME: where to go on,
    states: i64  # and a bit for each state of which jobs are wanted.

    def __init__(self, kind: i64, number: i64, about: i64, queue: bytes, count: i64) -> None:
        super().__init__(kind)
        self.number = number
        self.about = about
        self.queue = queue
        self.count = count
        self.cursor = 0
        self.states = 0


class Told(Message):
    """TOLD: the answer to a question."""

    number: i64
    figures: list[int]
    jobs: list[JobImage]

    def __init__(self, kind: i64, number: i64, figures: list[int], jobs: list[JobImage]) -> None:
        super().__init__(kind)
        self.number = number
        self.figures = figures
        self.jobs = jobs


class OfTubes(Message):
    """HOMES: tubes that came to live on the sender, and those that went."""

    part: i64
    made: list[bytes]
    gone: list[bytes]

    def __init__(self, kind: i64, part: i64, made: list[bytes], gone: list[bytes]) -> None:
        super().__init__(kind)
        self.part = part
        self.made = made
        self.gone = gone


class OfClaim(Message):
    """CLAIM, CLAIMED and UNCLAIM: who may make a tube."""

    tube: bytes
    number: i64  # Which claim of the claimant's this is about.
    verdict: i64
    node: bytes  # CLAIMED: who has the tube, or is about to; empty where nobody does.

    def __init__(self, kind: i64, tube: bytes, number: i64, verdict: i64 = MAY, node: bytes = b"") -> None:
        super().__init__(kind)
        self.tube = tube
        self.number = number
        self.verdict = verdict
        self.node = node


class Papers(Message):
    """TUNNEL: for whom a tunnel is, and what that one may do."""

    number: i64  # Of the sender's own.
    epoch: i64  # Which of those that have the receiver's id it is for.
    door: i64
    user: bytes
    groups: i64
    tubes: list[bytes]  # Patterns of those that it may use; none: every one.
    token: bytes  # Of its session, and how long that outlives it: ms, and one more; 0: as the receiver says.
    grace: i64
    address: bytes
    name: bytes

    def __init__(self, kind: i64, number: i64, epoch: i64, door: i64) -> None:
        super().__init__(kind)
        self.number = number
        self.epoch = epoch
        self.door = door
        self.user = b""
        self.groups = 0
        self.tubes = []
        self.token = b""
        self.grace = 0
        self.address = b""
        self.name = b""

    def is_like(self, other: Papers) -> bool:
        """Whether nothing has changed."""
        return (
            self.door == other.door
            and self.user == other.user
            and self.groups == other.groups
            and self.tubes == other.tubes
            and self.token == other.token
            and self.grace == other.grace
            and self.name == other.name
        )


class OfTunnel(Message):
    """FORWARD, FORWARDED, TUNNELREAD and TUNNELEND: what goes through a tunnel, either way."""

    number: i64
    is_back: bool  # The tunnel is one of the receiver's: this comes back from where it leads.
    aux: i64
    data: bytes

    def __init__(self, kind: i64, number: i64, is_back: bool, aux: i64, data: bytes) -> None:
        super().__init__(kind)
        self.number = number
        self.is_back = is_back
        self.aux = aux
        self.data = data
