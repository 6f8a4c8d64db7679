"""The command table and the dispatcher that runs the commands of all clients, one at a time.

A `Command` is a row of the table. The permissions, the output of COMMAND and docs/reference/protocol.md are also made
from the table. A handler checks everything before it changes anything or replies. If it raises an error, the error is
the whole reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from penstock.cluster.home_election import ElectionWait
from penstock.cluster.questions import QuestionWait
from penstock.core.errors import BodyTooLarge, CommandError, NoHome, NoMemory, PenstockError
from penstock.core.limits import BODY_BYTES_MAX
from penstock.core.waits import SERVED, TIMED_OUT, Waiting
from penstock.node.caller import (
    ANSWERED,
    ANSWERS_BYTES_MAX,
    SKIP_NEXT,
    SKIP_THIS,
    Caller,
    SlicedCommand,
    WaitReply,
    whole_server_refusal,
)
from penstock.node.command_counts import REFUSED, REPLIED, REPLIES_LATER, CommandCounts
from penstock.node.remote import NO_REMOTE_COMMANDS, RemoteCommands
from penstock.node.routing import Elsewhere, NeedsAnswer, NeedsDecision, OnSeveralNodes
from penstock.wire.errors import Refused
from penstock.wire.resp import HTTP_REQUEST, OVERSIZED

# The error that a caller receives if its command fails because of a defect in our code.
INTERNAL_ERROR: Final = b"internal error; the server's log has the details"

# MONITOR and SLOWLOG show this in place of secrets.
REDACTED: Final = b"(redacted)"

# First words of HTTP requests. A web page that makes a browser connect to us must not be able to run commands. GET and
# HEAD are not in the list because Redis clients send GET; the parser recognises them by the rest of their line.
_HTTP_WORDS: Final = frozenset([HTTP_REQUEST, b"POST", b"HOST:"])


Handler = Callable[[Caller, list[bytes], int], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Command:
    """A command: its name, arity, permissions, help and handler."""

    name: bytes  # In lower case.
    arity: i64  # The number of words with the name. Negative: the minimum. 0: any number.
    group: i64
    flags: str  # The flags of Disque's COMMAND: w r m a l F.
    grammar: str
    summary: str
    handler: Handler
    is_open: bool  # May be called before authentication.
    whole_server: bool  # Shows or changes data of all tubes: see `check_whole_server`.
    members: list[Command]  # The subcommands, if the second word selects one.
    calls: i64  # Since the start or the last CONFIG RESETSTAT.
    ns: i64
    counts: CommandCounts  # Since the start.

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
        self.counts = CommandCounts()

    def refusal(self, caller: Caller, args: list[bytes]) -> bytes:
        """Return the error line if the caller may not run the command with these arguments, or b"" if it may."""
        words: i64 = len(args)
        if (self.arity > 0 and words != self.arity) or (self.arity < 0 and words < -self.arity):
            return b"ERR wrong number of arguments for '" + self.name + b"' command"
        if not self.is_open:
            if not caller.is_authenticated:
                return b"NOAUTH Authentication required."
            if self.group & caller.groups == 0:
                return b"NOPERM this user has no permission to run the '" + self.name + b"' command"
            if self.whole_server:
                return whole_server_refusal(caller)
        return b""


class CommandFamily:
    """Commands with the same first word, such as TUBE CREATE and TUBE DROP. Each has its own permissions."""

    name: bytes
    members: dict[bytes, Command]  # By their second words in upper case.

    def __init__(self, name: str) -> None:
        self.name = name.encode()
        self.members = {}

    def add(self, member: Command) -> None:
        """Add a subcommand. Its name has two words, and the first is the name of this family."""
        self.members[member.name.partition(b" ")[2].upper()] = member

    def as_command(self) -> Command:
        """Return one command for all subcommands. Callers with the permission for at least one of them can run it."""
        group: i64 = 0
        for member in self.members.values():
            group |= member.group
        words = b" | ".join(self.members).decode()
        name = self.name.decode()
        command = Command(name, -2, "w", group, words, f"Commands that begin with {name.upper()}.", self.run)
        command.members = list(self.members.values())
        return command

    def run(self, caller: Caller, args: list[bytes], now: int) -> None:
        """Run the subcommand that the second word names."""
        member = self.members.get(args[1].upper())
        if member is None:
            words = b", ".join(self.members)
            shown = args[1][:64].decode("utf-8", "backslashreplace").encode()
            raise Refused(b"SYNTAX unknown subcommand " + self.name.upper() + b" " + shown + b"; use one of " + words)
        refusal = member.refusal(caller, args)
        if refusal:
            raise Refused(refusal)
        member.handler(caller, args, now)


@mypyc_attr(allow_interpreted_subclasses=True)
class DispatchHooks:
    """Callbacks from the dispatcher to its server. This base class is for a dispatcher without a server."""

    def command_runs(self, caller: Caller, args: list[bytes]) -> None:
        """Send a command that is about to run to the clients that use MONITOR."""

    def record_slow(self, caller: Caller, args: list[bytes], ns: i64) -> None:
        """Record a slow command, which took `ns` nanoseconds."""

    def failed(self, error: Exception) -> None:
        """Report an internal error."""
        raise error

    def evict(self) -> bool:
        """Free some memory. Return whether there was any to free."""
        return False


class Dispatcher:
    """Runs commands."""

    commands: dict[bytes, Command]  # By their names in lower case.
    clock_ns: Callable[[], int]  # Any monotonic clock; measures the time that commands take.
    slow_ns: i64  # Commands that take at least this long are passed to `hooks.record_slow`. Negative: none.
    body_bytes_max: i64  # The limit in the refusal of an oversized request; the parsers and the engine enforce it.
    is_monitored: bool  # A client runs MONITOR.
    functions: dict[bytes, CommandCounts]  # The counters of functions that clients call by name.
    executed: i64
    unknown: i64  # Calls of commands that do not exist.
    internal_errors: i64
    hooks: DispatchHooks
    remote: RemoteCommands  # Runs commands on other nodes.
    _spellings: dict[bytes, Command]  # By their names in lower case and in upper case, as most clients write them.
    _originals: dict[bytes, Command]  # By their original names, which nodes use among themselves.

    def __init__(self, commands: list[Command], clock_ns: Callable[[], int]) -> None:
        self.commands = {}
        self._spellings = {}
        self._originals = {}
        for command in commands:
            self.add(command, command.name)
        self.clock_ns = clock_ns
        self.slow_ns = -1
        self.body_bytes_max = BODY_BYTES_MAX
        self.is_monitored = False
        self.functions = {}
        self.executed = 0
        self.unknown = 0
        self.internal_errors = 0
        self.hooks = DispatchHooks()
        self.remote = NO_REMOTE_COMMANDS

    def add(self, command: Command, name: bytes) -> None:
        """Add a command, so that clients can call it by `name`."""
        self.commands[name.lower()] = command
        self._spellings[name.lower()] = command
        self._spellings[name.upper()] = command
        self._originals[command.name] = command

    def remove(self, name: bytes) -> Command | None:
        """Remove a command, also for clients of other nodes. Return it, or None if no command has this name."""
        self._spellings.pop(name.lower(), None)
        self._spellings.pop(name.upper(), None)
        command = self.commands.pop(name.lower(), None)
        if command is not None:
            self._originals.pop(command.name, None)
        return command

    def find(self, name: bytes) -> Command | None:
        """Return the command with a name, or None. Other nodes use the original names of renamed commands."""
        return self.commands.get(name.lower()) or self._originals.get(name.lower())

    def function_counts(self, name: bytes) -> CommandCounts:
        """Return the counters of a function that clients call by name. The caller makes sure that there are few names.

        All ports share them.
        """
        counts = self.functions.get(name)
        if counts is None:
            counts = CommandCounts()
            self.functions[name] = counts
        return counts

    def run_all(self, caller: Caller, commands: list[list[bytes]], start: i64, now: i64) -> i64:
        """Run the caller's commands starting at index `start`, until it waits. Return the index of the next command."""
        at = start
        count: i64 = len(commands)
        began: i64 = self.clock_ns()
        while at < count:
            args = commands[at]
            at += 1
            self.executed += 1
            name = args[0]
            command = self._spellings.get(name)
            if caller.entry_node:
                # The other node resolved the name by its own configuration and sent the original name.
                command = self._originals.get(name.lower())
            elif command is None:
                command = self.commands.get(name.lower())
            before = caller.reply.length
            if command is not None:
                # The word that the client sent is not shown, because the new name of a renamed command is a secret.
                caller.last_command = command.name
                if self.is_monitored:
                    self.hooks.command_runs(caller, args)
                result = self.run(caller, command, args, now)
                ended: i64 = self.clock_ns()
                command.calls += 1
                command.ns += ended - began
                command.counts.add(result, ended - began)
                if self.slow_ns >= 0 and ended - began >= self.slow_ns:
                    self.hooks.record_slow(caller, args, ended - began)
                began = ended
            else:
                self._refuse_unknown(caller, name)
            if caller.wait is not None or caller.busy:
                return at
            if caller.reply_mode != ANSWERED:
                self.drop_muted_reply(caller, before)
            if caller.closing or caller.reply.length > ANSWERS_BYTES_MAX:
                return at
        return at

    def run(self, caller: Caller, command: Command, args: list[bytes], now: i64) -> i64:
        """Check the caller's permissions and run a command. Afterwards the caller has its reply, or waits.

        Return the result: REPLIED, REFUSED or REPLIES_LATER.
        """
        reply = caller.reply
        refusal = command.refusal(caller, args)
        if refusal:
            reply.error(refusal)
            return REFUSED
        before = reply.length
        try:
            try:
                command.handler(caller, args, now)
            except NoMemory:
                self._run_again(caller, command, args, now)
        except PenstockError as error:
            if reply.length != before:
                # Half a reply was written, so the client would read an error as the rest of it.
                self._failed(caller, error)
                return REFUSED
            try:
                if isinstance(error, Elsewhere) and error.promised:
                    error = NeedsDecision(error)
                if isinstance(error, NeedsAnswer):
                    wait = self.remote.ask(caller, error, caller, now)
                    caller.wait_for(wait, _RerunCommand(self, command, args, caller.answers))
                    return REPLIES_LATER
                if isinstance(error, Elsewhere):
                    self._forward(caller, command, args, error)
                    return REPLIES_LATER
                reply.error(refusal_line(error))
            except PenstockError as reason:
                reply.error(refusal_line(reason))
            return REFUSED
        except Exception as defect:
            self._failed(caller, defect)
            return REFUSED
        return REPLIES_LATER if caller.is_blocked() else REPLIED

    def _run_again(self, caller: Caller, command: Command, args: list[bytes], now: i64) -> None:
        """Free memory and run a command again, until it succeeds or no more memory can be freed.

        The command was refused because memory was full, so it has changed nothing.
        """
        while self.hooks.evict():
            try:
                command.handler(caller, args, now)
                return
            except NoMemory:
                pass
        raise NoMemory()

    def _forward(self, caller: Caller, command: Command, args: list[bytes], where: Elsewhere) -> None:
        """Forward a command to another node under its original name, because each node has its own `rename-command`."""
        if isinstance(where, OnSeveralNodes):
            for part in where.parts.values():
                part[0] = command.name
        self.remote.forward(caller, [command.name, *args[1:]], where)

    def drop_muted_reply(self, caller: Caller, before: i64) -> None:
        """Drop the reply that begins at `before`, if the caller has switched replies off."""
        if caller.reply_mode == ANSWERED:
            return
        caller.reply.truncate(before)
        if caller.reply_mode == SKIP_NEXT:
            caller.reply_mode = SKIP_THIS
        elif caller.reply_mode == SKIP_THIS:
            caller.reply_mode = ANSWERED

    def step(self, caller: Caller, long: SlicedCommand, now: i64) -> bool:
        """Run one slice of a long command. Return whether it was the last one."""
        before = caller.reply.length
        try:
            if not long.step(caller, now):
                return False
        except PenstockError as refusal:
            caller.reply.error(refusal_line(refusal))
        except Exception as error:
            self._failed(caller, error)
        self.drop_muted_reply(caller, before)
        return True

    def end_wait(self, caller: Caller, wait: Waiting, now: i64, refusal: bytes = b"") -> None:
        """End the wait of a caller: write the reply of its command, or `refusal` if it is not empty."""
        answer = caller.on_wait_end
        assert answer is not None
        caller.wait = None
        caller.on_wait_end = None
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
        if not caller.is_blocked():
            self.drop_muted_reply(caller, before)

    def _failed(self, caller: Caller, error: Exception) -> None:
        """Close the caller's connection after an internal error. Other clients are not affected."""
        caller.closing = True
        caller.reply.error(b"ERR " + INTERNAL_ERROR)
        self.report(error)

    def report(self, error: Exception) -> None:
        """Increase `internal_errors`, and pass the error to the server."""
        self.internal_errors += 1
        self.hooks.failed(error)

    def oversized(self) -> BodyTooLarge:
        """Return the error for a request that the parser discarded because of its size."""
        limit = f"a body may have {self.body_bytes_max} bytes (max_body)"
        return BodyTooLarge(f"the request is too large; {limit}; store the data elsewhere and queue a reference to it")

    def _refuse_unknown(self, caller: Caller, name: bytes) -> None:
        self.unknown += 1
        if name == OVERSIZED:
            caller.reply.error(refusal_line(self.oversized()))
            return
        if name.upper() in _HTTP_WORDS:
            caller.reply.error(b"ERR this port speaks RESP, not HTTP; use a Redis or Disque client")
            caller.closing = True
            return
        if name.upper() == b"QUIT":
            caller.reply.ok()
            caller.closing = True
            return
        caller.last_command = name[:128]
        shown = name[:128].decode("utf-8", "backslashreplace").encode()
        caller.reply.error(b"ERR unknown command '" + shown + b"'")


class _RerunCommand(WaitReply):
    """Runs a command again after other nodes have answered the question on which it depends (see NeedsAnswer)."""

    _dispatcher: Dispatcher
    _command: Command
    _args: list[bytes]
    _answers: dict[bytes, QuestionWait]  # The answers to earlier questions of the command.

    def __init__(
        self, dispatcher: Dispatcher, command: Command, args: list[bytes], answers: dict[bytes, QuestionWait] | None
    ) -> None:
        self._dispatcher = dispatcher
        self._command = command
        self._args = args
        self._answers = {} if answers is None else answers

    def write(self, caller: Caller, wait: Waiting, now: i64) -> None:
        """Run the command again, because the question was answered. Its answers are not used for other commands."""
        check_question_answered(wait)
        if isinstance(wait, QuestionWait):
            self._answers[wait.name] = wait
        caller.answers = self._answers
        try:
            self._dispatcher.run(caller, self._command, self._args, now)
        finally:
            caller.answers = None


def check_question_answered(wait: Waiting) -> None:
    """Raise the error of the wait if other nodes refused the question of a command or did not answer it."""
    if isinstance(wait, ElectionWait) and wait.refusal is not None:
        raise wait.refusal
    # A question may have some answers. `CommandContext.find_node_with` checks which nodes have not answered.
    if wait.outcome != SERVED and not (isinstance(wait, QuestionWait) and wait.outcome == TIMED_OUT):
        raise NoHome("the other nodes have not answered; try again")


def refusal_line(refusal: PenstockError) -> bytes:
    """Return the RESP error line of an error."""
    if isinstance(refusal, Refused):
        return refusal.line
    if isinstance(refusal, NoMemory):
        return b"OOM command not allowed when used memory > 'maxmemory'."
    code = refusal.code if isinstance(refusal, CommandError) else CommandError.code
    return f"{code} {refusal}".encode("utf-8", "backslashreplace")
