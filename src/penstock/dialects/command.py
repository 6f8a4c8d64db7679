"""Commands by name: who may call them, with how many words, and what runs when they do.

A `Command` is a row of the table that dispatch, COMMAND, the permissions and docs/reference/protocol.md are made from.
The `Desk` runs the commands of all callers, one at a time. A handler checks everything before it changes or answers
anything: what it raises is the whole answer then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.founding import ClaimWait
from penstock.cluster.questions import QuestionWait
from penstock.core.errors import BodyTooLarge, CommandError, NoHome, NoMemory, PenstockError
from penstock.core.job import Job
from penstock.core.limits import BODY_BYTES_MAX
from penstock.core.sessions import Session
from penstock.core.tube_patterns import EVERY_TUBE, TubePatterns
from penstock.core.waits import SERVED, TIMED_OUT, Connection, Waiting
from penstock.wire.errors import AskFirst, Elsewhere, Refused, Spread
from penstock.wire.reply import Reply
from penstock.wire.resp import HTTP_REQUEST, OVERSIZED

# What a command does, as users are permitted it: bits of a mask.
READ: Final = 1
WRITE: Final = 2
ADMIN: Final = 4
DEBUG: Final = 8
EVERYTHING: Final = READ | WRITE | ADMIN | DEBUG
GROUPS: Final[dict[str, int]] = {"read": READ, "write": WRITE, "admin": ADMIN, "debug": DEBUG}

# Whether a caller is answered: CLIENT REPLY.
ANSWERED: Final = 0
SKIP_NEXT: Final = 1  # It has just asked not to be answered once.
SKIP_THIS: Final = 2
SILENT: Final = 3

# With so many bytes of answers a caller has got enough for one turn, however many commands it has sent.
ANSWERS_BYTES_MAX: Final = 1024 * 1024

# What a caller is told whose command failed in a way that nobody meant.
INTERNAL_ERROR: Final = b"internal error; the server's log has the details"

# What MONITOR and SLOWLOG show instead of secrets.
REDACTED: Final = b"(redacted)"

# Words of browsers: a page that makes one talk to us must not get far. GET and HEAD are none by themselves: clients of
# Redis say GET, and what a browser sends is known by the rest of its line.
_HTTP_WORDS: Final = frozenset([HTTP_REQUEST, b"POST", b"HOST:"])


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """A client as commands see it."""

    reply: Reply
    connection: Connection
    known: bool  # It has said who it is, or need not.
    groups: i64  # What it may do.
    tubes: TubePatterns  # To which tubes it may do so.
    any_tube: bool  # Whether these are all tubes; a copy of `tubes.any_tube` for the hot path.
    truncates: set[bytes]  # Tubes that it may empty without being an administrator.
    wait: Waiting | None  # What it waits for. Nothing more of it is run meanwhile.
    busy: bool  # A long command of it is under way: the same.
    abroad: i64  # How many of its commands are under way on other nodes.
    closing: bool  # It is to be closed when what it was answered has been sent.
    muted: i64  # Whether it is answered.
    entry: bytes  # The node that its client is connected to, if that is another one.
    last_command: bytes  # The name of the command that it sent last.
    answer: Answer | None  # How what it waits for is to be answered.
    unsent: list[Job]  # Handed to it in answers that were not sent yet,
    unsent_deliveries: list[int]  # and which delivery of each that was.
    owed: i64  # How many bytes of a long answer are to follow.
    sending: i64  # How many bytes of answers are on their way to it.
    _sending_count: i64  # How many of the unsent deliveries are in them.

    def __init__(self, connection: Connection) -> None:
        self.reply = Reply()
        self.connection = connection
        self.known = True
        self.groups = EVERYTHING
        self.tubes = EVERY_TUBE
        self.any_tube = True
        self.truncates = set()
        self.wait = None
        self.busy = False
        self.abroad = 0
        self.closing = False
        self.muted = ANSWERED
        self.entry = b""
        self.last_command = b""
        self.answer = None
        self.unsent = []
        self.unsent_deliveries = []
        self.owed = 0
        self.sending = 0
        self._sending_count = 0

    def waits(self, wait: Waiting, answer: Answer) -> None:
        """Let it wait. If that has ended already, it is answered when the turn ends."""
        self.wait = wait
        self.answer = answer

    def is_held_up(self) -> bool:
        """Whether it waits, or a long command of it is under way. (mypyc would take what was set to None for None.)"""
        return self.wait is not None or self.busy

    def take_answers(self) -> bytes:
        """The answers so far, to be sent; `were_sent` says that they have been."""
        self.sending = self.reply.length
        self._sending_count = len(self.unsent)
        return self.reply.take()

    def were_sent(self) -> bool:
        """The answers that were taken are sent, and what was delivered in them; tell whether it is to be closed now."""
        self.sending = 0
        if self._sending_count > 0:
            if self._sending_count == len(self.unsent):
                self.unsent.clear()
                self.unsent_deliveries.clear()
            else:
                del self.unsent[: self._sending_count]
                del self.unsent_deliveries[: self._sending_count]
            self._sending_count = 0
        return self.closing and self.reply.length == 0

    def restrict(self, tubes: TubePatterns) -> None:
        """Allow it these tubes from now on."""
        self.tubes = tubes
        self.any_tube = tubes.any_tube

    def may_use(self, tube: bytes) -> bool:
        """Return whether it may use a tube."""
        return self.tubes.match(tube)


# A function, because a method that the shell's callers could override is looked up at every call.
def check_tube(caller: Caller, tube: bytes) -> None:
    """Refuse a tube that a caller may not use."""
    if not caller.any_tube and not caller.may_use(tube):
        raise Refused(b"NOPERM this user has no permission to use this queue")


def check_own(caller: Caller, name: bytes, what: bytes) -> None:
    """Refuse a stage or a consumer that is not of a caller's own, by the patterns that say which tubes it may use.

    Who else uses one cannot be told from its jobs: it may have none now, and still be spoilt for its owner.
    """
    if not caller.any_tube and not caller.may_use(name):
        raise Refused(b"NOPERM this user has no permission to use this " + what)


def check_join(caller: Caller, session: Session | None) -> None:
    """Refuse a caller that only reads to join the session of a token, if that holds jobs.

    Who joins a session can end its grace time, and so give its jobs back. The journal has the tokens of sessions, and
    who only reads may read it.
    """
    if session is not None and session.held and not caller.groups & WRITE and session is not caller.connection.session:
        raise Refused(b"NOPERM this user has no permission to join a session that holds jobs")


def whole_server_refusal(caller: Caller) -> bytes:
    """Return why a caller may not look at or change the whole server; empty if it may.

    A user with tube patterns administers its own tubes only. A node forwards commands about single tubes, so a command
    about the whole server that comes through another node is not from one of its clients.
    """
    if caller.entry:
        return b"NOPERM a command about the whole server is not run for a client of another node"
    return b"" if caller.any_tube else b"NOPERM this user has no permission to use every queue"


def check_whole_server(caller: Caller) -> None:
    """Refuse a caller that may not look at or change the whole server."""
    refusal = whole_server_refusal(caller)
    if refusal:
        raise Refused(refusal)


# How many jobs or queues a slice of a long command is about, and at most what is answered in one go: about a
# millisecond's work.
SLICE: Final = 1_000


class Answer:
    """How a dialect answers one who waited."""

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """A wait has ended: it was served, its time was over, or it was cancelled."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Long:
    """A command that runs in slices. Its caller waits, and between two slices everybody else is served."""

    def step(self, caller: Caller, now: i64) -> bool:
        """Run a slice; tell whether it was the last one, which answers."""
        return True


Handler = Callable[[Caller, list[bytes], int], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Command:
    """One command."""

    name: bytes  # In small letters.
    arity: i64  # How many words it has, its name among them; at least so many, where negative; 0 for any number.
    group: i64
    flags: str  # As Disque's COMMAND tells them: w r m a l F.
    grammar: str
    summary: str
    handler: Handler
    is_open: bool  # May be called by those who have not said who they are.
    whole_server: bool  # It shows or changes what belongs to every tube: see `check_whole_server`.
    members: list[Command]  # Those that its second word chooses from, of a family.
    calls: i64
    ns: i64

    def __init__(
        self,
        name: str,
        arity: i64,
        flags: str,
        group: i64,
        grammar: str,
        summary: str,
        handler: Handler,
        is_open: bool = False,
        whole_server: bool = False,
    ) -> None:
        self.name = name.encode()
        self.arity = arity
        self.flags = flags
        self.group = group
        self.grammar = grammar
        self.summary = summary
        self.handler = handler
        self.is_open = is_open
        self.whole_server = whole_server
        self.members = []
        self.calls = 0
        self.ns = 0

    def refusal(self, caller: Caller, args: list[bytes]) -> bytes:
        """Why a caller may not run it with so many words; nothing, if it may."""
        words: i64 = len(args)
        if (self.arity > 0 and words != self.arity) or (self.arity < 0 and words < -self.arity):
            return b"ERR wrong number of arguments for '" + self.name + b"' command"
        if not self.is_open:
            if not caller.known:
                return b"NOAUTH Authentication required."
            if self.group & caller.groups == 0:
                return b"NOPERM this user has no permission to run the '" + self.name + b"' command"
            if self.whole_server:
                return whole_server_refusal(caller)
        return b""


class Family:
    """Commands that share their first word: TUBE CREATE, TUBE DROP. Each has its own words and its own group."""

    name: bytes
    members: dict[bytes, Command]  # By their second words in capitals.

    def __init__(self, name: str) -> None:
        self.name = name.encode()
        self.members = {}

    def add(self, member: Command) -> None:
        """Add a command, whose name is both words."""
        self.members[member.name.partition(b" ")[2].upper()] = member

    def as_command(self) -> Command:
        """All of them as one command, which passes on what it is asked. Who may run one of them, may run it."""
        group: i64 = 0
        for member in self.members.values():
            group |= member.group
        words = b" | ".join(self.members).decode()
        name = self.name.decode()
        command = Command(name, -2, "w", group, words, f"Commands that begin with {name.upper()}.", self.run)
        command.members = list(self.members.values())
        return command

    def run(self, caller: Caller, args: list[bytes], now: int) -> None:
        """Run the command that the second word says."""
        member = self.members.get(args[1].upper())
        if member is None:
            words = b", ".join(self.members)
            shown = args[1][:64].decode("utf-8", "backslashreplace").encode()
            raise Refused(b"SYNTAX there is no " + self.name.upper() + b" " + shown + b"; there are " + words)
        refusal = member.refusal(caller, args)
        if refusal:
            raise Refused(refusal)
        member.handler(caller, args, now)


# Their first argument is a caller, of whatever kind the shell has.
Show = Callable[[Any, list[bytes]], None]
Slow = Callable[[Any, list[bytes], int], None]
Report = Callable[[Exception], None]
PassOn = Callable[[Any, list[bytes], Elsewhere], None]
AskOthers = Callable[[Caller, AskFirst, object, int], Waiting]


class Desk:
    """Runs commands. What the shell wants to hear of, it is told by calls: a subclass of it there would be slow."""

    commands: dict[bytes, Command]  # By their names in small letters.
    clock_ns: Callable[[], int]  # Any clock that goes on: what commands cost is measured with it.
    slow_ns: i64  # What takes longer is told.
    body_bytes_max: i64  # The limit that the refusal of an oversized request names; parsers and engine have it as well.
    watched: bool  # Whether somebody wants to see every command.
    executed: i64
    internal_errors: i64
    on_show: Show | None  # Told of a command that is about to run, while somebody wants to see every one.
    on_slow: Slow | None  # Told of a command that took long, and how many ns that was.
    on_error: Report | None  # Told of what is wrong with us.
    on_elsewhere: PassOn | None  # Told of a command that is for another node; without it, the command is refused.
    evict: Callable[[], bool] | None  # Frees some memory; returns whether it did.
    ask_others: AskOthers | None  # Asks other nodes something: for whom, what, the tag of the wait, now.
    _spellings: dict[bytes, Command]  # By their names as clients mostly write them.
    _originals: dict[bytes, Command]  # By the names that nodes call them, whatever clients call them.

    def __init__(self, commands: list[Command], clock_ns: Callable[[], int]) -> None:
        self.commands = {}
        self._spellings = {}
        self._originals = {}
        for command in commands:
            self.add(command, command.name)
        self.clock_ns = clock_ns
        self.slow_ns = -1
        self.body_bytes_max = BODY_BYTES_MAX
        self.watched = False
        self.executed = 0
        self.internal_errors = 0
        self.on_show = None
        self.on_slow = None
        self.on_error = None
        self.on_elsewhere = None
        self.evict = None
        self.ask_others = None

    def add(self, command: Command, name: bytes) -> None:
        """Let a command be called by a name."""
        self.commands[name.lower()] = command
        self._spellings[name.lower()] = command
        self._spellings[name.upper()] = command
        self._originals[command.name] = command

    def remove(self, name: bytes) -> Command | None:
        """Remove the command of a name, for clients and for the clients of other nodes. Return it, if there is one."""
        self._spellings.pop(name.lower(), None)
        self._spellings.pop(name.upper(), None)
        command = self.commands.pop(name.lower(), None)
        if command is not None:
            self._originals.pop(command.name, None)
        return command

    def named(self, name: bytes) -> Command | None:
        """Return the command that a client, or another node on behalf of its client, calls by a name."""
        return self.commands.get(name.lower()) or self._originals.get(name.lower())

    def run_all(self, caller: Caller, commands: list[list[bytes]], start: i64, now: i64) -> i64:
        """Run the commands of a caller from one on, until it has to wait; tell how far that was."""
        at = start
        count: i64 = len(commands)
        began: i64 = self.clock_ns()
        while at < count:
            args = commands[at]
            at += 1
            self.executed += 1
            name = args[0]
            command = self._spellings.get(name)
            if caller.entry:
                # Another node has looked the command up under the name that its own configuration gives it.
                command = self._originals.get(name.lower())
            elif command is None:
                command = self.commands.get(name.lower())
            before = caller.reply.length
            if command is not None:
                # Not the word that the client sent: the new name of a renamed command is a secret.
                caller.last_command = command.name
                if self.watched and self.on_show is not None:
                    self.on_show(caller, args)
                self.run(caller, command, args, now)
                ended: i64 = self.clock_ns()
                command.calls += 1
                command.ns += ended - began
                if self.slow_ns >= 0 and ended - began >= self.slow_ns and self.on_slow is not None:
                    self.on_slow(caller, args, ended - began)
                began = ended
            else:
                self._refuse_unknown(caller, name)
            if caller.wait is not None or caller.busy:
                return at
            if caller.muted != ANSWERED:
                self.answered(caller, before)
            if caller.closing or caller.reply.length > ANSWERS_BYTES_MAX:
                return at
        return at

    def run(self, caller: Caller, command: Command, args: list[bytes], now: i64) -> None:
        """Run a command of a caller, if it may; it is answered, or waits."""
        reply = caller.reply
        refusal = command.refusal(caller, args)
        if refusal:
            reply.error(refusal)
            return
        before = reply.length
        try:
            try:
                command.handler(caller, args, now)
            except NoMemory:
                self._run_again(caller, command, args, now)
        except PenstockError as error:
            if reply.length != before:
                # Half an answer was written: whatever comes next would be read as the rest of it.
                self._failed(caller, error)
                return
            if isinstance(error, AskFirst) and self.ask_others is not None:
                caller.waits(self.ask_others(caller, error, caller, now), _Again(self, command, args))
            elif isinstance(error, Elsewhere) and self.on_elsewhere is not None:
                self._pass_on(caller, command, args, error)
            else:
                reply.error(refusal_line(error))
        except Exception as defect:
            self._failed(caller, defect)

    def _run_again(self, caller: Caller, command: Command, args: list[bytes], now: i64) -> None:
        """Run a command that there was no memory for, as long as memory can be freed. It has done nothing yet."""
        while self.evict is not None and self.evict():
            try:
                command.handler(caller, args, now)
                return
            except NoMemory:
                pass
        raise NoMemory()

    def _pass_on(self, caller: Caller, command: Command, args: list[bytes], where: Elsewhere) -> None:
        """Send a command to other nodes, under its original name: each node has its own `rename-command`."""
        assert self.on_elsewhere is not None
        if isinstance(where, Spread):
            for part in where.parts.values():
                part[0] = command.name
        args = [command.name, *args[1:]]
        try:
            self.on_elsewhere(caller, args, where)
        except PenstockError as refusal:
            caller.reply.error(refusal_line(refusal))

    def answered(self, caller: Caller, before: i64) -> None:
        """A command has ended: take back its answer, which began here, where its caller wants none."""
        if caller.muted == ANSWERED:
            return
        caller.reply.truncate(before)
        if caller.muted == SKIP_NEXT:
            caller.muted = SKIP_THIS
        elif caller.muted == SKIP_THIS:
            caller.muted = ANSWERED

    def step(self, caller: Caller, long: Long, now: i64) -> bool:
        """Run a slice of a long command; tell whether it was the last one."""
        before = caller.reply.length
        try:
            if not long.step(caller, now):
                return False
        except PenstockError as refusal:
            caller.reply.error(refusal_line(refusal))
        except Exception as error:
            self._failed(caller, error)
        self.answered(caller, before)
        return True

    def end_wait(self, caller: Caller, wait: Waiting, now: i64, refusal: bytes = b"") -> None:
        """What a caller waited for has ended: answer it as its command does, or refuse it."""
        answer = caller.answer
        assert answer is not None
        caller.wait = None
        caller.answer = None
        before = caller.reply.length
        if refusal:
            caller.reply.error(refusal)
        else:
            try:
                answer.write(caller, wait, now)
            except PenstockError as reason:
                caller.reply.error(refusal_line(reason))
            except Exception as defect:
                self._failed(caller, defect)
        if not caller.is_held_up():
            self.answered(caller, before)

    def _failed(self, caller: Caller, error: Exception) -> None:
        """A command failed in a way that nobody meant: its caller is closed, the others go on."""
        caller.closing = True
        caller.reply.error(b"ERR " + INTERNAL_ERROR)
        self.report(error)

    def report(self, error: Exception) -> None:
        """Let it be known that something is wrong with us."""
        self.internal_errors += 1
        if self.on_error is None:
            raise error
        self.on_error(error)

    def oversized(self) -> BodyTooLarge:
        """Return the refusal of a request that the parser discarded because of its size."""
        limit = f"a body may have {self.body_bytes_max} bytes (max_body)"
        return BodyTooLarge(f"the request is too large; {limit}; store the data elsewhere and queue a reference to it")

    def _refuse_unknown(self, caller: Caller, name: bytes) -> None:
        if name == OVERSIZED:
            caller.reply.error(refusal_line(self.oversized()))
            return
        if name.upper() in _HTTP_WORDS:
            caller.reply.error(b"ERR this is not a web server; it speaks RESP")
            caller.closing = True
            return
        if name.upper() == b"QUIT":
            caller.reply.ok()
            caller.closing = True
            return
        caller.last_command = name[:128]
        shown = name[:128].decode("utf-8", "backslashreplace").encode()
        caller.reply.error(b"ERR unknown command '" + shown + b"'")


class _Again(Answer):
    """How one is answered who waited for what other nodes say: as if it asked only now."""

    _desk: Desk
    _command: Command
    _args: list[bytes]

    def __init__(self, desk: Desk, command: Command, args: list[bytes]) -> None:
        self._desk = desk
        self._command = command
        self._args = args

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """A wait has ended."""
        check_again(wait)
        self._desk.run(caller, self._command, self._args, now)


def check_again(wait: Waiting) -> None:
    """Refuse a command that waited for what other nodes say, and is not to be run again."""
    if isinstance(wait, ClaimWait) and wait.refusal is not None:
        raise wait.refusal
    # Who does not answer a question in time has nothing to say.
    if wait.outcome != SERVED and not (isinstance(wait, QuestionWait) and wait.outcome == TIMED_OUT):
        raise NoHome("nobody waited until the other nodes had answered; try again")


def refusal_line(refusal: PenstockError) -> bytes:
    """How a refusal reads in RESP."""
    if isinstance(refusal, Refused):
        return refusal.line
    if isinstance(refusal, NoMemory):
        return b"OOM command not allowed when used memory > 'maxmemory'."
    code = refusal.code if isinstance(refusal, CommandError) else CommandError.code
    return f"{code} {refusal}".encode("utf-8", "backslashreplace")
