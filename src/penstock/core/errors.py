"""All errors, with their codes and sentences.

Each class is one error. Its `code` is stable and is the same in every protocol and client. Its docstring is the default
message and says what to do. Refusals that clients cause in bulk (an unknown id, a late ack) leave the engine as small
integers (`states.py`), because raising would cost more than the rest of the command. `refuse` converts such an
integer to its class. This is the only module of core that is not compiled, because mypyc drops docstrings, and here
they are the messages.
"""

from __future__ import annotations

from typing import ClassVar, Final, NoReturn


class PenstockError(Exception):
    """The base class of all errors that Penstock raises on purpose."""


class ProtocolError(PenstockError):
    """The peer sent bytes that are invalid in this protocol."""


class CommandError(PenstockError):
    """The command was understood, but refused."""

    code: ClassVar[str] = "ERR"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or self.code))


class BadSyntax(CommandError):
    """The arguments of this command are invalid; see docs/reference/protocol.md for its syntax."""

    code: ClassVar[str] = "SYNTAX"


class BadCondition(CommandError):
    """The condition (WHERE, `where=`, --where) is invalid; docs/reference/search.md describes conditions."""

    code: ClassVar[str] = "BADCONDITION"


class WrongType(CommandError):
    """An argument has the wrong type; see the command's signature."""

    code: ClassVar[str] = "WRONGTYPE"


class OutOfRange(CommandError):
    """A number is out of range; docs/reference/compatibility.md lists the limits."""

    code: ClassVar[str] = "RANGE"


class BadName(CommandError):
    """A name must have 1 to 65,535 bytes."""

    code: ClassVar[str] = "BADNAME"


class BadHeaders(CommandError):
    """A job can have at most 64 headers with 8 KiB together, and each name must be unique, not empty and UTF-8."""

    code: ClassVar[str] = "BADHEADERS"


class BodyTooLarge(CommandError):
    """The body is larger than this queue allows; store it elsewhere and queue a reference, or raise max_body."""

    code: ClassVar[str] = "TOOBIG"


class UnknownTube(CommandError):
    """There is no such tube; create it first, or check its name."""

    code: ClassVar[str] = "NOTUBE"


class TubeExists(CommandError):
    """A tube of this name exists with another policy; drop it, alter it, or choose another name."""

    code: ClassVar[str] = "TUBEEXISTS"


class UnknownType(CommandError):
    """There is no such type of tube; choose one of the presets or give a policy."""

    code: ClassVar[str] = "NOTYPE"


class TubeTaken(CommandError):
    """The tube has taken jobs; wait until they are acked or release them, then drop it."""

    code: ClassVar[str] = "TUBETAKEN"


class TubeAwaited(CommandError):
    """Consumers are waiting on the tube; let their takes end, then drop it."""

    code: ClassVar[str] = "TUBEAWAITED"


class Unsupported(CommandError):
    """This type of tube has no such option or command."""

    code: ClassVar[str] = "UNSUPPORTED"


class BadDriver(CommandError):
    """The driver of the tube failed or broke its rules, so nothing changed; see docs/reference/tubes/drivers.md."""

    code: ClassVar[str] = "BADDRIVER"


class BadRetry(CommandError):
    """Invalid retry policy; an example is: 5x exp(1s..10m) jitter then bury."""

    code: ClassVar[str] = "BADRETRY"


class Paused(CommandError):
    """The tube is paused for puts; try later, or resume it."""

    code: ClassVar[str] = "PAUSED"


class BadId(CommandError):
    """Invalid job id: it is malformed, forged or from another node; ids look like D-… or TUBE#NUMBER."""

    code: ClassVar[str] = "BADID"


class UnknownJob(CommandError):
    """There is no such job here: it was acked, deleted or expired, or was never in this tube."""

    code: ClassVar[str] = "NOJOB"


class NotTaken(CommandError):
    """The job is not taken now: its time to run passed, or it was already acked or released."""

    code: ClassVar[str] = "NOTTAKEN"


class NotOwner(CommandError):
    """The job is taken by another session; only the session that took it may do this."""

    code: ClassVar[str] = "NOTOWNER"


class NotBuried(CommandError):
    """The job is not buried, so there is nothing to dig."""

    code: ClassVar[str] = "NOTBURIED"


class OnlyOnce(CommandError):
    """The job may be delivered at most once and has been; it cannot be queued again."""

    code: ClassVar[str] = "ONLYONCE"


class Full(CommandError):
    """The tube is full; wait for room, or take from it."""

    code: ClassVar[str] = "FULL"


class NameTaken(CommandError):
    """A job of this tube has this name already; choose another name, or delete that job."""

    code: ClassVar[str] = "NAMETAKEN"


class NumberTaken(CommandError):
    """A job of this tube has this number already; choose another number, or let the tube assign one."""

    code: ClassVar[str] = "NUMBERTAKEN"


class JobExists(CommandError):
    """A job exists for this put already, so none was added; leave out `new` to get that job."""

    code: ClassVar[str] = "JOBEXISTS"


class IsTaken(CommandError):
    """The job is taken; snatch it from its holder first, or wait for its release."""

    code: ClassVar[str] = "ISTAKEN"


class NotKept(CommandError):
    """Only a job that is delayed, done or a zombie can be restarted."""

    code: ClassVar[str] = "NOTKEPT"


class NotWaiting(CommandError):
    """Only a job that is ready, delayed or buried can be changed."""

    code: ClassVar[str] = "NOTWAITING"


class NotDelayed(CommandError):
    """The job is not delayed, so there is no delay to end."""

    code: ClassVar[str] = "NOTDELAYED"


class HasCopies(CommandError):
    """Other nodes have copies of this job, which would keep the old body; put a new job and delete this one."""

    code: ClassVar[str] = "HASCOPIES"


class ClaimGone(CommandError):
    """This claim ended: it was acked, or its lease ended and its jobs were given back to their tube."""

    code: ClassVar[str] = "CLAIMGONE"


class Fenced(CommandError):
    """A newer consumer of this name took over; this one must stop."""

    code: ClassVar[str] = "FENCED"


class UnknownStage(CommandError):
    """There is no such stage: nothing was put into it, or it was discarded, expired, or published long ago."""

    code: ClassVar[str] = "NOSTAGE"


class StageOver(CommandError):
    """This stage was published or discarded, or has lost jobs; choose another name."""

    code: ClassVar[str] = "STAGEOVER"


class UnknownBatch(CommandError):
    """There is no such batch here; create it first, or name a tube on the node of the batch."""

    code: ClassVar[str] = "NOBATCH"


class BatchOver(CommandError):
    """The batch has ended or exists already; choose another name."""

    code: ClassVar[str] = "BATCHOVER"


class IsStaged(CommandError):
    """The job is in a stage; publish the stage first, or delete the job."""

    code: ClassVar[str] = "ISSTAGED"


class Finished(CommandError):
    """The job was acked, and only its result is kept, so it cannot be cancelled; delete it instead."""

    code: ClassVar[str] = "FINISHED"


class Closed(CommandError):
    """The queue is closed; open it again."""

    code: ClassVar[str] = "CLOSED"


class Forked(CommandError):
    """This queue was opened in the parent process; open it in the child, or start the child before opening it."""

    code: ClassVar[str] = "FORKED"


class NoJournal(CommandError):
    """This queue has no journal, so it stores nothing and has no history; open a directory instead of ":memory:"."""

    code: ClassVar[str] = "NOJOURNAL"


class Trimmed(CommandError):
    """The history at this position was deleted; continue at the first position that is kept, or keep history longer."""

    code: ClassVar[str] = "TRIMMED"


class NoSpace(CommandError):
    """The disk is full, so nothing was added. Takes and acks still work; free some space, and puts will work again."""

    code: ClassVar[str] = "NOSPACE"


class NoMemory(CommandError):
    """The memory limit is reached, so nothing was added. Takes and acks still work, and free memory for puts."""

    code: ClassVar[str] = "NOMEMORY"


class JournalFailed(CommandError):
    """The disk failed to write or sync, so nothing more can be stored; check the disk, then open the queue again."""

    code: ClassVar[str] = "JOURNALFAILED"


class Interrupted(CommandError):
    """A command was interrupted halfway, so this queue has stopped; its directory is intact: open it again."""

    code: ClassVar[str] = "INTERRUPTED"


class DamagedJournal(CommandError):
    """The log is damaged in the middle; restore a backup, or salvage what can be read."""

    code: ClassVar[str] = "DAMAGED"


class NewerJournal(DamagedJournal):
    """A newer Penstock has written this log; use that one. A repair of an older version would remove its rows."""

    code: ClassVar[str] = "NEWERJOURNAL"


class Exhausted(CommandError):
    """This process cannot open more files; raise its limit (`ulimit -n`), and try again."""

    code: ClassVar[str] = "EXHAUSTED"


class InUse(CommandError):
    """Another process has this queue open; stop it, or let it serve the queue and connect to it."""

    code: ClassVar[str] = "INUSE"


class NotAQueue(CommandError):
    """This is a file, or a directory with other files in it; name a new or empty directory, or one with a queue."""

    code: ClassVar[str] = "NOTAQUEUE"


class StandbyOnly(CommandError):
    """This directory is a standby: it follows a node and is not opened. `penstock cluster rehome` makes it the node."""

    code: ClassVar[str] = "STANDBY"


class Superseded(CommandError):
    """A standby replaced this node. Run `penstock serve` on the directory: its log is moved aside for a new node."""

    code: ClassVar[str] = "SUPERSEDED"


class UnknownSession(CommandError):
    """There is no such session: it ended, or its grace time passed; its jobs were given back to their tubes."""

    code: ClassVar[str] = "NOSESSION"


class TooManyWaits(CommandError):
    """This connection has reached its limit of waiting takes; use another connection."""

    code: ClassVar[str] = "TOOMANYWAITS"


class Unauthenticated(CommandError):
    """The server requires a password in the URL: penstock://:password@host, or penstock://user:password@host."""

    code: ClassVar[str] = "NOAUTH"


class WrongPassword(CommandError):
    """Wrong user or password, or an expired token; check both in the URL, and write % as %25 and @ as %40."""

    code: ClassVar[str] = "WRONGPASS"


class BadToken(CommandError):
    """This is no token of this server, or it has expired or was revoked; create a new one."""

    code: ClassVar[str] = "BADTOKEN"


class NoUsers(CommandError):
    """The server has no password and no users, so clients need no token; configure users first."""

    code: ClassVar[str] = "NOUSERS"


class NotAllowed(CommandError):
    """This user has no permission to do that; use another user, or ask an administrator for permission."""

    code: ClassVar[str] = "NOPERM"


class Leaving(CommandError):
    """This node is leaving the cluster, please connect to a different one."""

    code: ClassVar[str] = "LEAVING"


class Loading(CommandError):
    """The server is loading its journal; try again soon."""

    code: ClassVar[str] = "LOADING"


class NoHome(CommandError):
    """The home node of the tube is leaving, or may be unreachable; wait until it is back, and try again."""

    code: ClassVar[str] = "NOHOME"


class CrossHome(CommandError):
    """These tubes and jobs are on different nodes; one command can use only those of one node."""

    code: ClassVar[str] = "CROSSHOME"


class BadUrl(CommandError):
    """Invalid server URL; an example is: penstock://user:password@host:7711."""

    code: ClassVar[str] = "BADURL"


class OtherRefusal(CommandError):
    """A server refused with a code that this version does not know."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # Each instance has its own code.


class Unreachable(PenstockError, ConnectionError):
    """The server could not be reached."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else type(self).__doc__)


class NoServer(Unreachable):
    """No server answers there; start one with `penstock serve`, or check the address."""


class WrongServer(NoServer):
    """The server at this address is not Penstock; check the address and the port."""


class ConnectionLost(Unreachable):
    """The connection was lost before the reply, so the command may have been executed or not; give puts a `dedup=`."""


class BadAnswer(ConnectionLost):
    """The server's reply is invalid, so the command may have been executed or not; check the server and its version."""


# Indexed by the results of commands in states.py.
REFUSALS: Final[list[type[CommandError]]] = [
    CommandError,
    UnknownJob,
    NotTaken,
    NotOwner,
    NotBuried,
    OnlyOnce,
    IsTaken,
    NotKept,
    IsStaged,
    NotWaiting,
    NotDelayed,
    Finished,
]


def refuse(outcome: int) -> NoReturn:
    """Raise the error for a command whose outcome is not OK."""
    raise REFUSALS[outcome]()


def refusal_of(code: str, message: str) -> CommandError:
    """Return the error that a server sent as a code and a sentence."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known(message)
    return CommandError(message) if code == CommandError.code else OtherRefusal(code, message)


_BY_CODE: Final[dict[str, type[CommandError]]] = {
    kind.code: kind for kind in CommandError.__subclasses__() if kind is not OtherRefusal
} | {"OOM": NoMemory}
